"""When waiting sessions start: the cycle itself is run forward on a copy of the books, with durations of the past.

Each simulation draws how long tasks run, from what tasks of the same session, owner, queue and application took. Many
of them give the range. Sessions that are opened later are not foreseen, nor failures, cordons and other changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.placing.policy import Policy
from ullage.core.sharing.plan import Action, EvictExecutor, Keep, Plan, Release, Reuse, Start, Unbind
from ullage.core.sharing.world import WORKING, Demand, Eviction, ExecutorPhase, ExecutorView, Promise, World
from ullage.core.verdict.sentences import CURES
from ullage.model.rejection import Cure

RUNS = 15
"""Simulations of one estimate; the range leaves out the earliest and the latest of them."""

MOST_STEPS = 300
"""Cycles of one simulation: what is farther away is not foreseen."""

_PHASES_AT_WORK = (ExecutorPhase.BUSY, ExecutorPhase.LEAVING)


class Known(NamedTuple):
    """What is known of the seconds of a task: those of others, from where, and the limit; None is no limit.

    `of` is the session, or what stands for it in the words for a reader from whom it is hidden.
    """

    of: str
    seconds: tuple[float, ...]
    source: str
    limit_s: float | None = None

    def draw(self, rng: random.Random, lasted_s: float = 0.0) -> float:
        """Return the seconds that a task has left, which has lasted so long; `inf` if nothing is known."""
        longer = [each for each in self.seconds if each > lasted_s]
        if longer:
            left = rng.choice(longer) - lasted_s
        elif self.seconds:
            left = max(lasted_s, 1.0)  # it lasts longer than all others: as long again
        else:
            left = inf if self.limit_s is None else rng.uniform(0, max(0.0, self.limit_s - lasted_s))
        return left if self.limit_s is None else min(left, max(0.0, self.limit_s - lasted_s))


class RunningTasks(NamedTuple):
    """The tasks of an executor now: how many, and how long the first of them has run."""

    tasks: int
    lasted_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a session gets its first executor, most likely and from when to when; None where that is not foreseen."""

    at: float | None = None
    earliest: float | None = None
    latest: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Foresight:
    """The present, for simulations in another thread. `reserving` reserves the room of nominated requests."""

    world: World
    policy: Policy
    now: float
    running: Mapping[str, RunningTasks]
    known: Mapping[str, Known]
    begins: Mapping[str, float]
    """When sessions that are held back until then may start."""
    reserving: Callable[[Fleet], AbstractContextManager[object]]

    def starts(self, sessions: Iterable[str]) -> dict[str, Estimate]:
        """Return the estimates for these sessions, which wait."""
        wanted = frozenset(sessions)
        found: dict[str, list[float | None]] = {name: [] for name in wanted}
        for seed in range(RUNS):
            rng = random.Random(seed)  # noqa: S311  # equal books have equal estimates
            started = _Simulation(self, rng, wanted).run()
            for name in wanted:
                found[name].append(started.get(name))
        return {name: self._estimate(times) for name, times in found.items()}

    def _estimate(self, times: Sequence[float | None]) -> Estimate:
        known = sorted(at for at in times if at is not None)
        unknown = sorted({each.of for each in self.known.values() if not each.seconds and each.limit_s is None})
        if 2 * len(known) <= len(times):
            why = "it does not start within what can be foreseen"
            if unknown:
                why = f"nothing is known of how long tasks of {', '.join(unknown[:3])} run, and they have no time limit"
            return Estimate(text=f"no estimate: {why}")
        sources = sorted({each.source for each in self.known.values() if each.source})
        open_end = len(known) < len(times)
        text = (
            f"from {len(times)} simulations of the queue as it is now, with tasks as long as {'; '.join(sources[:3])}"
        )
        middle = known[1:-1] or known
        return Estimate(
            at=known[len(known) // 2],
            earliest=min(middle),
            latest=None if open_end else max(middle),
            text=f"{text}; in some it does not start within what can be foreseen" if open_end else text,
        )


@dataclass(slots=True)
class _Worker:
    view: ExecutorView
    tasks: int = 0
    ends_at: float = inf


@dataclass(slots=True)
class _Session:
    demand: Demand
    pending: int
    started: bool = False
    waiting_since: float | None = None


@dataclass(slots=True)
class _Simulation:
    foresight: Foresight
    rng: random.Random
    wanted: frozenset[str]
    fleet: Fleet = field(init=False)
    now: float = field(init=False)
    sessions: dict[str, _Session] = field(init=False)
    workers: dict[str, _Worker] = field(init=False)
    promises: dict[str, Promise] = field(init=False)
    yielding: frozenset[str] = frozenset()
    created: int = 0
    gangs: dict[str, float] = field(default_factory=dict)
    """When the tasks of a gang end, which end together."""
    found: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = self.foresight
        self.fleet, self.now = source.world.fleet.copy(apart=True), source.now
        self.promises = dict(source.world.promises)
        self.sessions = {
            each.session: _Session(each, each.pending, waiting_since=each.waiting_since)
            for each in source.world.demands
        }
        self.workers = {}
        for view in source.world.executors:
            task = source.running.get(view.id)
            worker = self.workers[view.id] = _Worker(view)
            if task is not None:
                self._work(worker, task.tasks, task.lasted_s)
            elif view.phase is ExecutorPhase.STARTING:
                self._feed(worker)

    def run(self) -> dict[str, float]:
        """Return when each wanted session starts, of those that do."""
        for _ in range(MOST_STEPS):
            plan = self._cycle()
            for action in plan.actions:
                self._apply(action)
            self._note(plan)
            if self.wanted <= self.found.keys():
                break
            ends = min((worker.ends_at for worker in self.workers.values()), default=inf)
            later = plan.wake_at if plan.wake_at is not None and plan.wake_at > self.now else inf
            begin = min((at for at in self.foresight.begins.values() if at > self.now), default=inf)
            following = self.now if plan.actions else min(ends, later, begin)
            if following == inf:
                break
            self.now = max(self.now, following)
            self._end_tasks()
        return self.found

    def _cycle(self) -> Plan:
        source = self.foresight
        world = replace(
            source.world,
            fleet=self.fleet,
            demands=tuple(self._demand(session) for session in self.sessions.values()),
            executors=tuple(worker.view for worker in self.workers.values()),
            promises=self.promises,
        )
        with source.reserving(self.fleet):
            return schedule(world, source.policy, self.now)

    def _demand(self, session: _Session) -> Demand:
        begin_at = self.foresight.begins.get(session.demand.session)
        due = begin_at is not None and begin_at <= self.now
        mine = [worker for worker in self.workers.values() if worker.view.session == session.demand.session]
        return replace(
            session.demand,
            pending=session.pending,
            running=sum(worker.tasks for worker in mine if worker.view.phase is ExecutorPhase.BUSY),
            leaving=sum(worker.tasks for worker in mine if worker.view.phase is ExecutorPhase.LEAVING),
            waiting_since=session.waiting_since,
            held_back=None if due else session.demand.held_back,
        )

    # --- actions ---

    def _apply(self, action: Action) -> None:
        match action:
            case Start():
                self._start(action)
            case Reuse():
                self._join(self.workers[action.executor], action.session, action.gang)
            case Unbind():
                self._unbind(self.workers[action.executor], action.eviction)
            case Keep():
                self._enter(self.workers[action.executor], ExecutorPhase.BUSY, eviction=None)
            case Release():
                self._remove(action.executor)
            case EvictExecutor():
                self._pay(action.eviction)
                self._remove(action.executor)

    def _start(self, action: Start) -> None:
        self.created += 1
        name, demand = f"simulated-{self.created}", self.sessions[action.session].demand
        self.fleet.charge(replace(action.allocation, id=name))
        view = ExecutorView(
            name,
            ExecutorPhase.VACANT,
            demand.requirement,
            application=demand.application,
            setup=demand.setup,
            delay_release_s=demand.delay_release_s,
        )
        self.workers[name] = _Worker(view)
        self._join(self.workers[name], action.session, action.gang)

    def _join(self, worker: _Worker, session: str, gang: int | None) -> None:
        self.found.setdefault(session, self.now)
        name = None if gang is None else f"{session}/{self.now}/{gang}"
        until = self.now + self.foresight.policy.min_runtime_s
        worker.view = replace(worker.view, session=session, gang=name, bound_at=self.now, protected_until=until)
        self._feed(worker)

    def _feed(self, worker: _Worker) -> None:
        """Give a worker the next task of its session, if it takes one."""
        session = self.sessions.get(worker.view.session or "")
        if session is None or not session.pending or worker.view.id in self.yielding:
            self._enter(worker, ExecutorPhase.VACANT)
            return
        session.pending -= 1
        self._work(worker, 1, 0.0)

    def _work(self, worker: _Worker, tasks: int, lasted_s: float) -> None:
        known = self.foresight.known.get(worker.view.session or "", Known("", (), ""))
        seconds = known.draw(self.rng, lasted_s) + sum(known.draw(self.rng) for _ in range(tasks - 1))
        ends_at = self.now + seconds
        gang = worker.view.gang
        if gang is not None:
            ends_at = self.gangs[gang] = (
                self.gangs.get(gang, ends_at) if self.gangs.get(gang, 0) > self.now else ends_at
            )
        leaves = worker.view.phase is ExecutorPhase.LEAVING
        worker.tasks, worker.ends_at = tasks, ends_at
        if not leaves:
            self._enter(worker, ExecutorPhase.BUSY)

    def _unbind(self, worker: _Worker, eviction: Eviction | None) -> None:
        if worker.tasks:
            self._enter(worker, ExecutorPhase.LEAVING, eviction=eviction)
        else:
            self._leave(worker, eviction)

    def _leave(self, worker: _Worker, eviction: Eviction | None) -> None:
        self._pay(eviction)
        worker.view = replace(worker.view, session=None, gang=None, eviction=None)
        self._enter(worker, ExecutorPhase.IDLE)

    def _pay(self, eviction: Eviction | None) -> None:
        if eviction is not None and eviction.winner in self.promises:
            self.promises[eviction.winner] = replace(self.promises[eviction.winner], paid=True)

    def _remove(self, name: str) -> None:
        worker = self.workers.pop(name)
        if name in self.fleet.ledger:
            self.fleet.release(name)
        session = self.sessions.get(worker.view.session or "")
        if session is not None:
            session.pending += worker.tasks

    def _enter(self, worker: _Worker, phase: ExecutorPhase, **changes: Eviction | None) -> None:
        may_stay = bool(worker.tasks)
        worker.view = replace(worker.view, phase=phase, since=self.now, may_stay=may_stay, **changes)  # type: ignore[arg-type]  # an eviction

    # --- time ---

    def _end_tasks(self) -> None:
        for worker in list(self.workers.values()):
            if worker.view.phase is ExecutorPhase.ENDING:
                self._remove(worker.view.id)
            elif worker.ends_at <= self.now:
                worker.tasks, worker.ends_at = 0, inf
                if worker.view.phase is ExecutorPhase.LEAVING:
                    self._leave(worker, worker.view.eviction)
                else:
                    self._feed(worker)

    def _note(self, plan: Plan) -> None:
        self.yielding = plan.yielding
        self.promises = {
            name: Promise(places, name in self.promises and self.promises[name].paid)
            for name, places in plan.promised.items()
        }
        for name, session in self.sessions.items():
            code = plan.waiting.get(name)
            held = sum(worker.view.session == name and worker.view.phase in WORKING for worker in self.workers.values())
            short = code is not None and CURES.get(code) is Cure.CAPACITY
            starves = short and (not held or held < plan.deserved.get(name, 0))
            session.waiting_since = (session.waiting_since or self.now) if starves else None
