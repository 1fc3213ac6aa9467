"""One simulated future: the cycle itself is run forward on a copy of the books, with times that are drawn.

Sessions arrive as they lately did: a stretch of the past arrivals is taken, from a random one on, gaps and all (the
block bootstrap of Künsch, 1989). What nobody can know is not in it: failures, nodes that come and go, tasks that are
added to sessions, sessions that are cancelled or changed.

What is near is followed end by end. Farther away the ends within 2 % of the time ahead share a cycle, up to 4 % of the
executors: so the number of cycles grows with the length of the queue, and not with its product with the fleet. Of equal
sessions that wait only the first take part in a cycle; the others follow when these have started.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import KnownEntitlement
from ullage.core.sharing.plan import Action, EvictExecutor, Keep, Plan, Release, Reuse, Start, Unbind
from ullage.core.sharing.world import WORKING, Demand, Eviction, ExecutorPhase, ExecutorView, Promise, World
from ullage.core.verdict.sentences import CURES
from ullage.model.rejection import Code, Cure
from ullage.service.durations import Durations, TaskTimes, Urns

IN_VIEW = range(2, 9)
"""Of equal sessions that wait so many take part in a cycle, and of all together as many as there are executors."""

CYCLE_WORK = 20
"""Sessions that take as much time in a cycle as all that does not depend on their number."""

_NEAR = 0.02
_AT_ONCE = 25
_ARRIVE_AT_ONCE = 100
"""Sessions that arrive before the next cycle at most: nobody may wait for a time that is years away."""


class RunningTasks(NamedTuple):
    """The tasks of an executor now: how many, and how long the first of them has run."""

    tasks: int
    lasted_s: float


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is known of a session: how long its tasks run, and whether it closes when they are done.

    Before `begins_at` it gets no executors. Sessions of one `line` are equal to the cycle.
    """

    durations: Durations
    line: Hashable
    closes: bool = True
    begins_at: float | None = None


def line_of(demand: Demand, begins_at: float | None = None) -> Hashable:
    """Return what sessions have in common that are equal to the cycle: they start in the order of their numbers."""
    return (
        demand.queue,
        demand.requirement,
        demand.priority,
        demand.batch_size,
        demand.application,
        demand.setup,
        demand.weight,
        demand.min_instances,
        demand.max_instances,
        begins_at,
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A session that arrived `gap_s` after the one before it, with all its tasks."""

    gap_s: float
    demand: Demand
    prospect: Prospect


@dataclass(frozen=True, slots=True)
class Present:
    """What futures begin with. `reserving` reserves the room of nominated requests in the books of one."""

    world: World
    policy: Policy
    now: float
    running: Mapping[str, RunningTasks]
    prospects: Mapping[str, Prospect]
    arrivals: Sequence[Arrival]
    reserving: Callable[[Fleet], AbstractContextManager[object]]
    source: str = ""
    """What durations are taken from."""


@dataclass(slots=True)
class FutureStarts:
    """When sessions start, in seconds of the clock; why others wait at the end; when it was cut short by the work."""

    started: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, Code] = field(default_factory=dict)
    cut_at: float | None = None
    work: int = 0
    """Sessions in all cycles together, and `CYCLE_WORK` for each cycle. The time taken is proportional to that."""


@dataclass(slots=True)
class _Worker:
    view: ExecutorView
    tasks: int = 0
    ends_at: float = inf

    @property
    def id(self) -> str:
        return self.view.id


@dataclass(slots=True)
class _Session:
    demand: Demand
    prospect: Prospect
    workers: dict[str, _Worker] = field(default_factory=dict)
    kind: TaskTimes | None = None
    drawn: bool = False
    in_line: bool = False

    def present(self, now: float) -> Demand:
        """Return its demand now."""
        demand, begins_at = self.demand, self.prospect.begins_at
        mine = self.workers.values()
        if not (mine or begins_at or demand.running or demand.leaving or demand.min_instances):
            return demand
        return replace(
            demand,
            running=sum(worker.tasks for worker in mine if worker.view.phase is ExecutorPhase.BUSY),
            leaving=sum(worker.tasks for worker in mine if worker.view.phase is ExecutorPhase.LEAVING),
            held_back=None if begins_at is not None and begins_at <= now else demand.held_back,
            min_instances=demand.min_instances if self.goes_on else 0,
        )

    @property
    def goes_on(self) -> bool:
        """Whether it is open."""
        return not self.prospect.closes or bool(self.demand.pending) or any(w.tasks for w in self.workers.values())

    @property
    def at_rest(self) -> bool:
        return not self.workers and not (self.demand.pending or (self.demand.min_instances and self.goes_on))


class _Line:
    """Sessions without executors, those that are equal to the cycle by their numbers."""

    def __init__(self, sessions: Iterable[_Session]) -> None:
        self._lines: dict[Hashable, list[tuple[int, str, _Session]]] = {}
        for session in sessions:
            self.add(session)

    def add(self, session: _Session) -> None:
        """Add a session that waits, unless it waits for something that is not foreseen."""
        demand, prospect = session.demand, session.prospect
        if not session.in_line and (demand.competes or prospect.begins_at is not None):
            session.in_line = True
            heappush(self._lines.setdefault(prospect.line, []), (demand.number, demand.session, session))

    def view(self, promises: Mapping[str, Promise], executors: int) -> Iterator[_Session]:
        """Yield the first of each kind, and those with promises."""
        most = min(max(IN_VIEW.start, -(-executors // max(1, len(self._lines)))), IN_VIEW.stop - 1)
        for line in self._lines.values():
            seen: list[tuple[int, str, _Session]] = []
            while line and len(seen) < most:
                place = heappop(line)
                *_, session = place
                if session.workers or session.at_rest:
                    session.in_line = False
                else:
                    seen.append(place)
                    yield session
            yield from (session for _, name, session in line if name in promises and not session.workers)
            for place in seen:
                heappush(line, place)


class Future:
    """One future from the present on."""

    def __init__(self, present: Present, seed: int) -> None:
        self._present = present
        self._rng = random.Random(seed)  # noqa: S311  # equal books have equal estimates
        self._urns = Urns(self._rng)
        self._fleet, self._now = present.world.fleet.copy(apart=True), present.now
        self._promises = dict(present.world.promises)
        self._yielding: frozenset[str] = frozenset()
        self._created = 0
        self._gangs: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []
        self._outcome, self._entitlement = FutureStarts(), KnownEntitlement()
        self._sessions = {
            demand.session: _Session(demand, present.prospects[demand.session]) for demand in present.world.demands
        }
        self._workers: dict[str, _Worker] = {}
        for view in present.world.executors:
            self._add(_Worker(view))
        self._line = _Line(session for session in self._sessions.values() if not session.workers)
        self._begins = sorted(each.begins_at for each in present.prospects.values() if each.begins_at is not None)
        self._arrivals = self._foreseen()
        self._next = next(self._arrivals, None)
        for worker in list(self._workers.values()):
            task = present.running.get(worker.id)
            if task is not None:
                self._work(worker, task.tasks, task.lasted_s)
            elif worker.view.phase is ExecutorPhase.STARTING:
                self._feed(worker)

    def run(self, wanted: frozenset[str], most_work: int) -> FutureStarts:
        """Return when the wanted sessions start. It ends when all have, or nothing more will happen, or by the work."""
        found = self._outcome
        while True:
            plan = self._cycle()
            for action in plan.actions:
                self._apply(action)
            self._note(plan)
            if wanted <= found.started.keys():
                return found
            if found.work > most_work:
                found.cut_at = self._now
                return found
            if not self._changes(plan) and not self._pass_time(plan.wake_at):
                return found

    def _foreseen(self) -> Iterator[tuple[float, Arrival]]:
        """Yield arrivals with their times."""
        past, at = self._present.arrivals, self._now
        first = self._rng.randrange(len(past)) if past else 0
        number = 0
        while any(each.gap_s for each in past):
            arrival = past[(first + number) % len(past)]
            at += arrival.gap_s * (self._rng.random() if not number else 1.0)
            number += 1
            yield at, arrival

    # --- cycles ---

    @staticmethod
    def _changes(plan: Plan) -> bool:
        """Return whether another cycle at the same time may do more: room became free, or others come into view."""
        starts = sum(isinstance(action, (Start, Reuse)) for action in plan.actions)
        return starts < len(plan.actions) or starts >= IN_VIEW.start

    def _cycle(self) -> Plan:
        present = self._present
        demands = [session.present(self._now) for session in self._sessions.values() if session.workers]
        demands += [session.present(self._now) for session in self._line.view(self._promises, len(self._workers))]
        demands.sort(key=lambda demand: demand.number)
        self._outcome.work += CYCLE_WORK + len(demands)
        world = replace(
            present.world,
            fleet=self._fleet,
            demands=tuple(demands),
            executors=tuple(worker.view for worker in self._workers.values()),
            promises=self._promises,
        )
        with present.reserving(self._fleet):
            deserved = self._entitlement.of(world, present.policy)
            return schedule(world, present.policy, self._now, deserved=deserved)

    def _note(self, plan: Plan) -> None:
        """Keep what the next cycle needs: promises, who yields, and since when sessions wait for room."""
        self._yielding = plan.yielding
        self._promises = {
            name: Promise(places, name in self._promises and self._promises[name].paid)
            for name, places in plan.promised.items()
        }
        self._outcome.waiting |= plan.waiting
        for name in plan.deserved:
            session = self._sessions[name]
            code = plan.waiting.get(name)
            held = sum(worker.view.phase in WORKING for worker in session.workers.values())
            short = code is not None and CURES.get(code) is Cure.CAPACITY
            starves = short and (not held or held < plan.deserved.get(name, 0))
            since = (session.demand.waiting_since or self._now) if starves else None
            if since != session.demand.waiting_since:
                session.demand = replace(session.demand, waiting_since=since)
        for worker in tuple(self._workers.values()):
            session_of = self._sessions.get(worker.view.session or "")
            if worker.view.phase is ExecutorPhase.VACANT and session_of is not None and session_of.demand.pending:
                self._feed(worker)  # it yields no more

    # --- time ---

    def _pass_time(self, wake_at: float | None) -> bool:
        """Go on to what happens next; return False if nothing does."""
        soon = self._now + _NEAR * (self._now - self._present.now)
        wake = max(wake_at, soon) if wake_at is not None and wake_at > self._now else inf
        stop = min(wake, next((at for at in self._begins if at > self._now), inf))
        if self._next is not None and not self._workers:
            stop = min(stop, self._next[0])  # nothing ends before
        ending = [w for w in self._workers.values() if w.view.phase is ExecutorPhase.ENDING]
        for worker in ending:
            self._remove(worker.id)
        freed, most = len(ending), max(1, len(self._workers) // _AT_ONCE)
        until = self._now if ending else inf
        while self._ends and freed < most:
            at, name = self._ends[0]
            if at > min(until, stop):
                break
            heappop(self._ends)
            ended = self._workers.get(name)
            if ended is None or ended.ends_at != at:
                continue
            self._now = max(self._now, at)
            if self._end(ended):
                freed += 1
                until = min(until, self._now + _NEAR * (self._now - self._present.now))
        if not freed and stop == inf:
            return False
        self._now = self._arrive(self._now if freed else stop)
        return True

    def _arrive(self, until: float) -> float:
        """Let sessions arrive until then, but not more than `_ARRIVE_AT_ONCE`; return how far that is."""
        for _ in range(_ARRIVE_AT_ONCE):
            if self._next is None or self._next[0] > until:
                return until
            self._created += 1
            self._outcome.work += 1
            at, arrival = self._next
            name = f"simulated-session-{self._created}"
            demand = replace(arrival.demand, session=name, number=arrival.demand.number + self._created)
            self._sessions[name] = _Session(demand, arrival.prospect)
            self._line.add(self._sessions[name])
            self._next = next(self._arrivals, None)
        return max(self._now, at)

    def _end(self, worker: _Worker) -> bool:
        """End the task of a worker; return False if it only goes on with the next one."""
        worker.tasks, worker.ends_at = 0, inf
        if worker.view.phase is ExecutorPhase.LEAVING:
            self._leave(worker, worker.view.eviction)
            return True
        return not self._feed(worker)

    # --- actions ---

    def _apply(self, action: Action) -> None:
        match action:
            case Start():
                self._start(action)
            case Reuse():
                self._join(self._workers[action.executor], action.session, action.gang)
            case Unbind():
                self._unbind(self._workers[action.executor], action.eviction)
            case Keep():
                self._enter(self._workers[action.executor], ExecutorPhase.BUSY, eviction=None)
            case Release():
                self._remove(action.executor)
            case EvictExecutor():
                self._pay(action.eviction)
                self._remove(action.executor)

    def _start(self, action: Start) -> None:
        self._created += 1
        name, demand = f"simulated-{self._created}", self._sessions[action.session].demand
        self._fleet.charge(replace(action.allocation, id=name))
        view = ExecutorView(
            name,
            ExecutorPhase.VACANT,
            demand.requirement,
            application=demand.application,
            setup=demand.setup,
            delay_release_s=demand.delay_release_s,
        )
        worker = self._workers[name] = _Worker(view)
        self._join(worker, action.session, action.gang)

    def _join(self, worker: _Worker, session: str, gang: int | None) -> None:
        self._outcome.started.setdefault(session, self._now)
        self._yielding -= {worker.id}
        name = None if gang is None else f"{session}/{self._now}/{gang}"
        until = self._now + self._present.policy.min_runtime_s
        worker.view = replace(worker.view, session=session, gang=name, bound_at=self._now, protected_until=until)
        self._add(worker)
        self._feed(worker)

    def _add(self, worker: _Worker) -> None:
        self._workers[worker.id] = worker
        session = self._sessions.get(worker.view.session or "")
        if session is not None:
            session.workers[worker.id] = worker

    def _feed(self, worker: _Worker) -> bool:
        """Give a worker the next task of its session, if it takes one."""
        session = self._sessions.get(worker.view.session or "")
        if session is not None and not session.goes_on:
            self._leave(worker, None)
            return False
        if session is None or not session.demand.pending or worker.id in self._yielding:
            self._enter(worker, ExecutorPhase.VACANT)
            return False
        session.demand = replace(session.demand, pending=session.demand.pending - 1)
        self._work(worker, 1, 0.0)
        return True

    def _work(self, worker: _Worker, tasks: int, lasted_s: float) -> None:
        gang = worker.view.gang
        ends_at = self._gangs.get(gang, 0.0) if gang is not None else 0.0  # members of a gang end together
        if ends_at <= self._now:
            ends_at = self._now + self._seconds(worker.view.session or "", tasks, lasted_s)
        if gang is not None:
            self._gangs[gang] = ends_at
        worker.tasks, worker.ends_at = tasks, ends_at
        if ends_at < inf:
            heappush(self._ends, (ends_at, worker.id))
        if worker.view.phase is not ExecutorPhase.LEAVING:
            self._enter(worker, ExecutorPhase.BUSY)

    def _seconds(self, name: str, tasks: int, lasted_s: float) -> float:
        """Return how long tasks of a session will run, one after the other, of which the first has lasted so long."""
        session = self._sessions.get(name)
        if session is None:
            return inf
        durations = session.prospect.durations
        if not session.drawn:
            oldest = max((self._lasted(each) for each in session.workers), default=0.0)
            session.kind, session.drawn = durations.draw(self._rng, self._urns, oldest), True
        kind = session.kind
        if kind is None:
            return inf
        each = (durations.left_s(self._rng, kind, lasted_s if not number else 0.0) for number in range(tasks))
        return sum(each)

    def _lasted(self, executor: str) -> float:
        task = self._present.running.get(executor)
        return 0.0 if task is None else task.lasted_s

    def _unbind(self, worker: _Worker, eviction: Eviction | None) -> None:
        if worker.tasks:
            self._enter(worker, ExecutorPhase.LEAVING, eviction=eviction)
        else:
            self._leave(worker, eviction)

    def _leave(self, worker: _Worker, eviction: Eviction | None) -> None:
        self._pay(eviction)
        self._forget(worker)
        worker.view = replace(worker.view, session=None, gang=None, eviction=None)
        self._enter(worker, ExecutorPhase.IDLE)

    def _pay(self, eviction: Eviction | None) -> None:
        if eviction is not None and eviction.winner in self._promises:
            self._promises[eviction.winner] = replace(self._promises[eviction.winner], paid=True)

    def _remove(self, name: str) -> None:
        worker = self._workers.pop(name)
        if name in self._fleet.ledger:
            self._fleet.release(name)
        self._forget(worker)

    def _forget(self, worker: _Worker) -> None:
        """Take a worker from its session, whose tasks on it wait again."""
        session = self._sessions.get(worker.view.session or "")
        if session is None:
            return
        session.workers.pop(worker.id, None)
        if worker.tasks:
            session.demand = replace(session.demand, pending=session.demand.pending + worker.tasks)
        if not session.workers and not session.at_rest:
            self._line.add(session)

    def _enter(self, worker: _Worker, phase: ExecutorPhase, **changes: Eviction | None) -> None:
        may_stay = bool(worker.tasks)
        worker.view = replace(worker.view, phase=phase, since=self._now, may_stay=may_stay, **changes)  # type: ignore[arg-type]  # an eviction
