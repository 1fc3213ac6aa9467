"""Days on which the starts of waiting sessions are estimated, and what the estimates were worth.

Each estimate is compared with what really happened on the same day: sessions arrived, tasks took their time, and the
same service placed them. Beside it is the estimate of Slurm: the queue as it is now, and every task runs to its limit.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import mean, median

from tests.service.days.day import Day
from tests.service.days.engine import Agenda, SlowEngine
from tests.service.days.store import Synchronous
from tests.service.days.tally import Tally

from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import WORKING
from ullage.model.history import PastSession, SessionHistory
from ullage.model.node import Node
from ullage.model.past_state import PastState
from ullage.model.queue import Queue
from ullage.model.session import SessionSpec
from ullage.service.durations import Durations, TaskTimes, Urns
from ullage.service.engine_port import EngineEvent, NodeReported
from ullage.service.foresight import MOST_WORK, RUNS, Estimate
from ullage.service.future import Future, Present
from ullage.service.service import ServiceHost, ServiceSettings, UllageService
from ullage.service.starts import PAST
from ullage.storage.open import open_store

SLACK_S = 5.0
"""Executors start and end within seconds, which estimates leave out."""


@dataclass
class Judged:
    """An estimate that was made at `asked_at`, that of Slurm, and when the session started; None was cancelled."""

    session: str
    asked_at: float
    estimate: Estimate
    by_limits: float | None
    started_at: float | None = None

    @property
    def wait_s(self) -> float:
        return max(1.0, (self.started_at or inf) - self.asked_at)

    @property
    def inside(self) -> bool:
        found, started_at = self.estimate, self.started_at
        assert found.earliest is not None
        assert found.latest is not None
        assert started_at is not None
        return found.earliest - SLACK_S <= started_at <= found.latest + SLACK_S

    @property
    def width_s(self) -> float:
        assert self.estimate.earliest is not None
        assert self.estimate.latest is not None
        return self.estimate.latest - self.estimate.earliest

    def error_of(self, at: float) -> float:
        """Return the error of an estimate, in parts of the wait."""
        assert self.started_at is not None
        return abs(at - self.started_at) / self.wait_s


@dataclass
class Figures:
    """What estimates were worth, all together. Errors and widths are medians, in parts of the wait."""

    asked: int = 0
    unknown: int = 0
    open: int = 0
    judged: list[Judged] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, found: Iterable[Judged]) -> None:
        for each in found:
            self.asked += 1
            if each.estimate.at is None:
                self.unknown += 1
                self.reasons.append(each.estimate.text)
            elif each.started_at is None:
                self.open += 1
            else:
                self.judged.append(each)

    def join(self, others: Figures) -> None:
        self.asked += others.asked
        self.unknown += others.unknown
        self.open += others.open
        self.judged += others.judged
        self.reasons += others.reasons

    @property
    def inside(self) -> float:
        return sum(each.inside for each in self.judged) / len(self.judged)

    @property
    def stated(self) -> float:
        """The share of starts in the range that the estimates state."""
        return mean(each.estimate.confidence or 0.0 for each in self.judged)

    @property
    def before(self) -> float:
        """The share of starts before the range."""
        early = [each for each in self.judged if each.started_at < each.estimate.earliest - SLACK_S]
        return len(early) / len(self.judged)

    @property
    def error(self) -> float:
        return median(each.error_of(each.estimate.at or 0.0) for each in self.judged)

    @property
    def width(self) -> float:
        return median(each.width_s / each.wait_s for each in self.judged)

    @property
    def wait_s(self) -> float:
        return median(each.wait_s for each in self.judged)

    @property
    def limits_error(self) -> float:
        """The error of estimates by limits; where there is none it is infinite."""
        return median(inf if each.by_limits is None else each.error_of(each.by_limits) for each in self.judged)

    @property
    def limits_inside(self) -> float:
        """The share of starts in a range as wide as ours with the estimate by limits in its middle."""
        near = [
            each
            for each in self.judged
            if each.by_limits is not None
            and abs((each.started_at or inf) - each.by_limits) <= each.width_s / 2 + SLACK_S
        ]
        return len(near) / len(self.judged)

    def __str__(self) -> str:
        if not self.judged:
            return f"{self.asked} asked, {self.unknown} unknown, {self.open} open"
        return (
            f"{self.asked:5} asked, {self.unknown / self.asked:4.0%} unknown, {self.open:3} open | wait "
            f"{self.wait_s / 60:6.1f} min | inside {self.inside:4.0%} ({self.stated:.0%} stated), "
            f"before {self.before:4.0%} | error {self.error:5.2f}, width {self.width:5.2f} | "
            f"by limits: error {self.limits_error:6.2f}, inside {self.limits_inside:4.0%}"
        )


class _ToTheLimit(Durations):
    """Every task runs until its limit."""

    def draw(self, rng: random.Random, urns: Urns, lasted_s: float = 0.0) -> TaskTimes | None:
        del rng, urns, lasted_s
        return None if self.limit_s is None else TaskTimes((self.limit_s,))

    def left_s(self, rng: random.Random, kind: TaskTimes, lasted_s: float = 0.0) -> float:
        del rng, kind
        return inf if self.limit_s is None else max(0.0, self.limit_s - lasted_s)


def by_limits(present: Present, sessions: Iterable[str]) -> dict[str, float]:
    """Return when sessions start if every task runs to its limit and nothing arrives."""
    prospects = {
        name: replace(each, durations=_ToTheLimit(each.durations.own, (), each.durations.limit_s))
        for name, each in present.prospects.items()
    }
    return (
        Future(replace(present, prospects=prospects, arrivals=()), 0)
        .run(frozenset(sessions), MOST_WORK // RUNS)
        .started
    )


class Foreteller:
    """Asks for estimates of sessions that wait, at most `each` new ones at a time, and sees when they start."""

    def __init__(self, rng: random.Random, each: int, before: Sequence[PastSession] = ()) -> None:
        self._rng, self._each, self._before = rng, each, before
        self.found: dict[str, Judged] = {}
        self.waits: dict[str, Judged] = {}

    def ask(self, service: UllageService, now: float) -> None:
        waiting = service.starts.waiting()
        new = [name for name in waiting if name not in self.found and not service.starts.refusal(name)]
        if not new:
            return
        names = self._rng.sample(new, min(self._each, len(new)))
        past = [*self._before, *service.store.history(PAST, now)]
        estimates, limits = service.starts.estimating(names, past)(), by_limits(service.starts.present(past)(), names)
        for name in names:
            self.found[name] = self.waits[name] = Judged(name, now, estimates[name], limits.get(name))

    def look(self, service: UllageService, now: float) -> None:
        """Note which of them have started, or are gone."""
        for name, judged in list(self.waits.items()):
            record = service.state.sessions.get(name)
            if record is None or not record.open:
                del self.waits[name]
            elif any(executor.phase in WORKING for executor in record.executors.values()):
                judged.started_at = now
                del self.waits[name]


class ForetoldDay(Day):
    """A random day on which estimates are asked for, from `learnt_s` on."""

    learnt_s, every_s, each = 1200.0, 400.0, 2

    def __init__(self, seed: int, *, quiet: bool) -> None:
        super().__init__(seed, Tally())
        self.quiet = quiet
        self.foreteller = Foreteller(random.Random(seed), self.each)
        self.agenda.after(self.learnt_s, self._ask)

    def _open_store(self) -> Synchronous:
        return Synchronous(open_store("memory://"))

    def foretold(self, seconds: float) -> list[Judged]:
        """Run the day, and return the estimates."""
        self.run(seconds)
        return list(self.foreteller.found.values())

    def _ask(self) -> None:
        self.foreteller.ask(self.service, self.now)
        self.agenda.after(self.every_s, self._ask)

    def _settle(self) -> float | None:
        wake = super()._settle()
        self.foreteller.look(self.service, self.now)
        return wake

    def _disturb(self) -> None:
        if not self.quiet:
            super()._disturb()

    def _leave(self) -> None:
        if not self.quiet:
            super()._leave()

    def _more(self) -> None:
        if not self.quiet:
            super()._more()


@dataclass(frozen=True)
class Job:
    """A session that arrives at `at`, with one task for each of `seconds`."""

    at: float
    spec: SessionSpec
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Plan:
    """A day of jobs."""

    nodes: Sequence[Node]
    jobs: Sequence[Job]
    policy: Policy
    queues: Sequence[Queue] = (Queue("default"),)
    before: Sequence[Job] = ()
    """Jobs that ended before the day, which the history has."""


def past_of(jobs: Sequence[Job]) -> list[PastSession]:
    """Return the rows of the history of jobs."""
    return [
        PastSession(
            SessionHistory(
                number=number - len(jobs),
                session=f"past{number}",
                owner=job.spec.owner,
                queue=job.spec.queue,
                application=job.spec.application,
                resreq=str(job.spec.resreq),
                created_at=0.0,
                state=PastState.SUCCEED,
                succeed=len(job.seconds),
            ),
            ran_s=sum(job.seconds),
            core_s=0.0,
            card_s=0.0,
            memory_peak_bytes=None,
        )
        for number, job in enumerate(jobs)
    ]


class JobDay:
    """A day on which these jobs arrive. Estimates are asked for from `learnt_s` until `until_s`, every `every_s`."""

    def __init__(self, plan: Plan, seed: int, each: int = 3) -> None:
        self.agenda = Agenda()
        self.store = Synchronous(open_store("memory://"))
        rng = random.Random(seed)
        self.foreteller = Foreteller(random.Random(seed), each, past_of(plan.before))
        self._seconds: dict[str, deque[float]] = {}
        self.engine = SlowEngine(self.agenda, rng, self._next_seconds, set())
        self._woken: deque[Callable[[], None]] = deque()
        self._reports: deque[EngineEvent] = deque()
        self.engine.report = self._reports.append
        self.service = UllageService(
            self.store,
            self.engine,
            ServiceSettings(policy=plan.policy, queues=plan.queues),
            ServiceHost(clock=lambda: self.agenda.now, wake=self._woken.append, on_failure=self._raise),
        )
        for node in plan.nodes:
            self.service.on_engine_event(NodeReported(node))
        begin = self.agenda.now
        for number, job in enumerate(plan.jobs):
            self.agenda.at(begin + job.at, lambda job=job, number=number: self._arrive(f"j{number}", job))

    @staticmethod
    def _raise(error: BaseException) -> None:
        raise error

    def _next_seconds(self, session: str) -> float:
        """Return how long the next task of a session takes; one that was evicted begins again."""
        seconds = self._seconds[session]
        seconds.rotate(-1)
        return seconds[-1]

    def _arrive(self, name: str, job: Job) -> None:
        self._seconds[name] = deque(job.seconds)
        self.service.sessions.create(name, job.spec, lambda: None)
        self.service.tasks.submit(name, name, [b""] * len(job.seconds), None, lambda _first, _n: None)

    def _ask_every(self, every_s: float, until: float) -> None:
        if self.agenda.now < until:
            self.foreteller.ask(self.service, self.agenda.now)
            self.agenda.after(every_s, lambda: self._ask_every(every_s, until))

    def foretold(self, learnt_s: float, until_s: float, every_s: float) -> list[Judged]:
        """Run until all estimates are judged, and return them. The service is closed then."""
        self.run(learnt_s, until_s, every_s)
        self.store.close()
        return list(self.foreteller.found.values())

    def run(self, learnt_s: float, until_s: float, every_s: float) -> None:
        """Run until all estimates are judged."""
        begin = self.agenda.now
        self.agenda.at(begin + learnt_s, lambda: self._ask_every(every_s, begin + until_s))
        while self.agenda.now < begin + 10 * until_s:
            wake = self.settle()
            self.foreteller.look(self.service, self.agenda.now)
            if self.agenda.now >= begin + until_s and not self.foreteller.waits:
                break
            following = min(self.agenda.next, inf if wake is None else max(wake, self.agenda.now + 1e-3))
            if following == inf:
                break
            self.agenda.now = following
            for work in self.agenda.due():
                work()

    def settle(self) -> float | None:
        """Let everything happen that happens without time passing."""
        while True:
            while self._woken:
                self._woken.popleft()()
            while self._reports:
                self.service.on_engine_event(self._reports.popleft())
            wake = self.service.tick()
            if not (self._woken or self._reports or self.service.loop.dirty):
                return wake
