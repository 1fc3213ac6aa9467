"""Looks at a service after every step of a day: who gives way for whom, who keeps what, who waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf
from typing import Protocol

from tests.service.days.room import Room
from tests.service.days.tally import Tally

from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import WORKING, ExecutorPhase
from ullage.model.event import Event
from ullage.service.service import UllageService
from ullage.service.state import ExecutorRecord, SessionRecord

SLACK_S = 10.0
"""What starting and stopping may take on top of the grace and the protection."""


class Watched(Protocol):
    """A day, as far as it is looked at."""

    seed: int
    policy: Policy
    service: UllageService
    failing: set[str]

    @property
    def now(self) -> float:
        """Seconds."""

    @property
    def all_nodes_known(self) -> bool:
        """Whether each node has reported itself since the last restart."""


@dataclass(frozen=True)
class Won:
    """An executor in room that others gave up: for which session, until when, and where."""

    session: str
    until: float
    node: str


class Watch:
    """Looks at a service after every step."""

    def __init__(self, day: Watched, tally: Tally) -> None:
        self._day, self._tally = day, tally
        self._seen = 0
        self._owed: dict[str, float] = {}
        self._claims: dict[str, tuple[str, float]] = {}
        self._started: dict[str, float] = {}
        self._won: dict[str, Won] = {}
        self._waits: dict[str, float] = {}
        self._starves: dict[str, float] = {}
        self._rooms: dict[object, bool] = {}
        self._disturbed = -inf
        policy = day.policy
        self._bound_s = inf
        if policy.reclaim_grace_s is not None:
            self._bound_s = policy.reclaim_grace_s + policy.protected_s + policy.min_runtime_s + SLACK_S

    def disturbed(self) -> None:
        """Nodes changed by other hands: what is owed to somebody may be lost with them."""
        self._disturbed = self._day.now
        self._owed.clear()
        self._claims.clear()
        self._waits.clear()
        self._starves.clear()

    def node_lost(self, node: str) -> None:
        """Contact with a node is lost, and with it what its executors had won."""
        self.disturbed()
        self._won = {name: won for name, won in self._won.items() if won.node != node}

    def killed(self, executor: str) -> None:
        """An executor is lost by itself, and its session may get another one."""
        self._won.pop(executor, None)

    def restarted(self, cordoned: Collection[str]) -> None:
        """Who was owed room, or had won it lately, is owed it still, but on a node that was `cordoned`."""
        state = self._day.service.state
        for won in self._won.values():
            record = state.sessions.get(won.session)
            if record is None or won.until <= self._day.now or won.node in cordoned:
                continue
            if record.session.spec.batch_size == 1:
                self._owed.setdefault(won.session, self._day.now)
        self._won.clear()
        self._claims.clear()
        self._waits.clear()
        self._starves.clear()

    def fail(self, text: str) -> None:
        self._tally.violations.append(f"day {self._day.seed} at {self._day.now:.2f}: {text}")

    def look(self) -> None:
        self._tally.steps += 1
        self._follow_events()
        if self._day.all_nodes_known:
            self._who_was_promised()
            self._who_waits()

    # --- evictions ---

    def _follow_events(self) -> None:
        recent = self._day.service.events.recent
        news = list(takewhile(lambda event: event.number > self._seen, reversed(recent)))
        for event in reversed(news):
            self._seen = event.number
            name = str(event.data.get("executor", ""))
            if event.kind in ("executor.started", "executor.reused"):
                self._has_started(name, event)
            elif event.kind == "executor.reclaimed":
                self._is_claimed(name, event)
            elif event.kind == "executor.kept":
                self._is_kept(name, event)
            elif event.kind == "executor.evicted":
                self._tally.ended += 1
                self._claims[name] = str(event.data["claimant"]), event.at - (self._day.policy.reclaim_grace_s or 0.0)
                self._owes(name)
            elif event.kind in ("executor.left", "executor.gone"):
                self._has_left(name, event)
        for name, won in self._won.items():
            record = self._day.service.state.executors.get(name)
            if record is not None and record.phase in (ExecutorPhase.BUSY, ExecutorPhase.VACANT):
                self._won[name] = replace(won, until=self._kept_until(won, record))

    def _kept_until(self, won: Won, record: ExecutorRecord) -> float:
        """From when its session has it for the protected time; in the place of a lost one for what was left of it."""
        if won.until < inf or record.protected_until == inf:
            return won.until
        return min(record.bound_at + self._day.policy.protected_s, record.shielded_until)

    def _has_started(self, name: str, event: Event) -> None:
        record, session = self._day.service.state.executors.get(name), event.session or ""
        self._tally.starts += 1
        if record is not None and record.winner == session:
            self._won[name] = Won(session, inf, record.node)
        self._owed.pop(session, None)
        self._started[session] = event.at
        self._starves.pop(session, None)
        since = self._waits.pop(session, None)
        if since is not None:
            self._tally.waits += 1
            self._tally.longest_wait_s = max(self._tally.longest_wait_s, self._day.now - since)

    def _is_kept(self, name: str, event: Event) -> None:
        """Its session has room again that it was to lose: what others leave for it may go to whoever was to have it."""
        self._tally.kept += 1
        self._claims.pop(name, None)
        self._owed.pop(event.session or "", None)
        self._started[event.session or ""] = event.at

    def _is_claimed(self, name: str, event: Event) -> None:
        state = self._day.service.state
        record, claimant = state.executors.get(name), str(event.data["claimant"])
        if record is None or not self._works(record):
            self._tally.vacant += 1
            self._won.pop(name, None)  # what its session has no task for, it gives up, whatever comes while it leaves
            return
        self._tally.claimed += 1
        loser, winner = state.sessions.get(event.session or ""), state.sessions.get(claimant)
        if loser is not None and winner is not None:
            one, other = loser.session.spec, winner.session.spec
            self._tally.for_gangs += other.batch_size > 1
            self._tally.of_gangs += one.batch_size > 1
            self._tally.of_other_queues += one.queue != other.queue
        self._claims[name] = claimant, event.at
        if name in self._won and self._kept_until(self._won[name], record) > self._day.now:
            self.fail(f"{name} of {event.session} was won and is taken again")

    def _works(self, executor: ExecutorRecord) -> bool:
        """Whether it runs a task, or its session has one for it."""
        owner = self._day.service.state.sessions.get(executor.session or "")
        return bool(executor.tasks) or (owner is not None and owner.pending >= owner.session.spec.batch_size)

    def _has_left(self, name: str, event: Event) -> None:
        """One that gave way is away; a session that ended or was cancelled loses nothing by it."""
        won = self._won.pop(name, None)
        record = self._day.service.state.sessions.get(event.session or "")
        if won is not None and won.until > self._day.now and name not in self._claims and self._wants_it(record):
            self.fail(f"{name} of {won.session} was won and has left")
        if name not in self._claims:
            return
        self._tally.taken += 1
        if record is not None and record.takes_tasks:
            self._owes(name)
        del self._claims[name]

    def _wants_it(self, record: SessionRecord | None) -> bool:
        if record is None:
            return False
        spec = record.session.spec
        ends_by_itself = record.id in self._day.failing or spec.batch_size > 1
        return record.takes_tasks and not ends_by_itself and record.pending > 0

    def _owes(self, executor: str) -> None:
        winner, since = self._claims[executor]
        if self._started.get(winner, -inf) < since:
            self._owed.setdefault(winner, self._day.now)

    def _who_was_promised(self) -> None:
        for winner in list(self._owed):
            if winner not in self._day.service.state.promises:
                del self._owed[winner]
                if self._needs_room(winner):
                    self.fail(f"others left for {winner}, which did not start")
                else:
                    self._tally.excused += 1

    def _needs_room(self, session: str) -> bool:
        """Whether a session would start an executor if it had room."""
        state, now = self._day.service.state, self._day.now
        record = state.sessions.get(session)
        if record is None or not record.open or self._disturbed == now:
            return False
        demand = state.demand(record, now)
        held = sum(executor.phase in WORKING for executor in record.executors.values())
        return demand.ready and demand.want >= held + demand.batch_size

    # --- waits ---

    def _who_waits(self) -> None:
        if self._bound_s == inf:
            return
        now = self._day.now
        short = {record.id for record in self._day.service.state.sessions.values() if self._is_short(record)}
        for waits in (self._waits, self._starves):
            for name in waits.keys() - short:
                del waits[name]
        for name in sorted(short):
            self._waits_on(name, self._waits, self._waits.get(name, now), self._bound_s)
            self._waits_on(name, self._starves, inf, self._bound_s + self._day.policy.reserve_after_s)

    def _waits_on(self, name: str, waits: dict[str, float], spared: float, bound_s: float) -> None:
        """Whether a session waits too long, though others than those `spared` since then could make room."""
        since = waits.setdefault(name, self._day.now)
        if not (name in self._day.service.state.promises or self._could_be_placed(name, spared)):
            del waits[name]
        elif self._day.now - since > bound_s:
            record = self._day.service.state.session(name)
            self.fail(f"{name} deserves {record.deserved}, and waits since {since:.2f}")
            waits[name] = inf

    def _is_short(self, record: SessionRecord) -> bool:
        if not record.open or record.at_rest:
            return False
        demand = self._day.service.state.demand(record, self._day.now)
        held = sum(executor.phase in WORKING for executor in record.executors.values())
        return demand.ready and held + demand.batch_size <= min(record.deserved, demand.want)

    def _won_since(self, executor: ExecutorRecord, since: float) -> bool:
        """Whether others gave way to its session, which has it since then and is still protected."""
        won = executor.winner is not None and executor.winner == executor.session
        return won and executor.bound_at > since and executor.protected_until > self._day.now

    def _could_be_placed(self, session: str, since: float) -> bool:
        """Whether others could make room; known from before where nobody came or went.

        Room that one of them won while it waits is protected for a time of its own: the wait begins again then. Once
        the session is overdue, nobody wins that room any more.
        """
        state, world = self._day.service.state, self._day.service.loop.world()
        won = frozenset(each.id for each in state.executors.values() if self._won_since(each, since))
        deserved = {record.id: record.deserved for record in state.sessions.values()}
        places = tuple((each.id, each.session, each.phase in WORKING) for each in world.executors)
        sessions = tuple((demand.session, deserved[demand.session]) for demand in world.demands)
        promised = tuple((name, promise.places) for name, promise in world.promises.items())
        key = session, won, places, sessions, promised, world.fleet.schedulable.tobytes()
        if key not in self._rooms:
            if len(self._rooms) > 100:
                self._rooms.clear()
            self._rooms[key] = Room(world, deserved, session, won).could_be_had()
        return self._rooms[key]
