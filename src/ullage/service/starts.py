"""What is known for an estimate of starts: the present, how long tasks took in the past, and what arrived lately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import NamedTuple

from ullage.core.placing.reserving import reserving_requests
from ullage.core.sharing.world import WORKING, Demand
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.counted import counted
from ullage.model.history import HistoryQuery, PastSession
from ullage.model.past_state import PastState
from ullage.model.rejection import NEVER_PLACED, Code
from ullage.model.session import SessionSpec
from ullage.service.context import ServiceContext
from ullage.service.durations import Durations, PastGroup, TaskTimes
from ullage.service.foresight import MOST_WAITING, Estimate, foresee
from ullage.service.future import Arrival, Present, Prospect, RunningTasks, line_of
from ullage.service.loop import Loop
from ullage.service.state import SHORTEST_S, SessionRecord, TaskRecord

PAST = HistoryQuery(states=(PastState.SUCCEED, PastState.FAILED, PastState.CANCELLED), newest=True, limit=1000)
"""The sessions of the history from which durations are taken: however a session ends, its room is free then."""

ARRIVALS = 100
"""The newest sessions that arrive again in simulated futures."""

OBSERVED_S = 3600.0
"""The least time for which fewer arrivals than that are taken as all there were."""

OWN_TASKS = 50
"""The last ended tasks of an open session that count."""

MOST_AHEAD_S = 7 * 86_400.0
"""A session that begins later is not looked at: arrivals of the last hours say nothing of that time."""

_Key = tuple[object, ...]


class _Facts(NamedTuple):
    """What the loop's thread reads of an open session."""

    demand: Demand
    spec: SessionSpec
    limit_s: float | None
    ended_s: tuple[float, ...]
    running: tuple[RunningTasks, ...]
    begins_at: float | None


class _Lately(NamedTuple):
    """A session that arrived lately, with the tasks that it has had."""

    at: float
    demand: Demand
    spec: SessionSpec
    limit_s: float | None


class _Ended(NamedTuple):
    """What is still known of a session that has ended."""

    limit_s: float | None
    seconds: tuple[float, ...]


class Starts:
    """Estimates when waiting sessions start."""

    def __init__(self, context: ServiceContext, loop: Loop) -> None:
        self._state, self._policy, self._clock, self._loop = context.state, context.policy, context.clock, loop

    def waiting(self) -> list[str]:
        """Return the sessions that wait for their first executor, or for another first one."""
        return [name for name, record in self._state.sessions.items() if record.open and not _waits_not(record)]

    def estimating(self, sessions: Iterable[str], past: Sequence[PastSession]) -> Callable[[], dict[str, Estimate]]:
        """Return a function for another thread that returns the estimates; `past` are the sessions of `PAST`.

        Raises:
            NotFound: a session does not exist.

        """
        refused = {name: self.refusal(name) for name in sessions}
        build = self.present(past)

        def estimate() -> dict[str, Estimate]:
            found = foresee(build(), (name for name, why in refused.items() if not why))
            return found | {name: Estimate(text=why) for name, why in refused.items() if why}

        return estimate

    def refusal(self, session: str) -> str:
        """Return why there is nothing to estimate; "" if there is.

        Raises:
            NotFound: the session does not exist.

        """
        record = self._state.session(session)
        never = f"no estimate: {MEANINGS[record.waiting_for]}" if record.waiting_for in NEVER_PLACED else ""
        return _waits_not(record) or never or self._held_back(record)

    def _held_back(self, record: SessionRecord) -> str:
        """Return why a session waits for something whose end is not foreseen; "" if it does not."""
        held_back = record.held_back(self._clock())
        begins_late = (record.session.spec.begin_at or 0.0) > self._clock() + MOST_AHEAD_S
        if begins_late or held_back not in (None, Code.BEGIN_TIME, Code.BACKOFF):
            return f"no estimate: {MEANINGS[held_back or Code.BEGIN_TIME]}"
        return ""

    # --- the present ---

    def present(self, past: Sequence[PastSession]) -> Callable[[], Present]:
        """Copy what the loop's thread may change. Return a function for another thread that makes the present of it."""
        allocator, now, policy = self._state.allocator, self._clock(), self._policy
        nominations, cap, fleet = allocator.nominations, allocator.rules.cap, allocator.fleet.copy(apart=True)
        world = replace(self._loop.world(), fleet=fleet, promises=dict(self._state.promises))
        world = replace(world, demands=self._looked_at(world.demands))
        facts = [self._facts(demand, now) for demand in world.demands]
        lately, ended = self._lately(now), {each.history.number: self._ended(each) for each in past}
        running = {
            name: tasks for name, executor in self._state.executors.items() if (tasks := _running(executor.tasks, now))
        }

        def build() -> Present:
            habits = _Habits(past, ended, facts)
            return Present(
                world,
                policy,
                now,
                running=running,
                prospects={each.demand.session: habits.prospect(each) for each in facts},
                arrivals=habits.arrivals(lately, now),
                reserving=lambda books: reserving_requests(books, nominations, cap),
                source=habits.source,
            )

        return build

    def _looked_at(self, demands: Sequence[Demand]) -> tuple[Demand, ...]:
        """Return those that hold executors, and the first of those that wait."""
        waiting = [demand for demand in demands if not self._state.sessions[demand.session].executors]
        waiting.sort(key=lambda demand: (-demand.priority, demand.number))
        beyond = {demand.session for demand in waiting[MOST_WAITING:]}
        return tuple(demand for demand in demands if demand.session not in beyond)

    def _facts(self, demand: Demand, now: float) -> _Facts:
        record = self._state.sessions[demand.session]
        limit_s, spec = self._state.timeout_of(record), record.session.spec
        running = (_running(executor.tasks, now) for executor in record.executors.values())
        begins_at = None
        if demand.held_back in (Code.BEGIN_TIME, Code.BACKOFF, Code.BIND_FAILURES):
            begins_at = max(spec.begin_at or 0.0, record.not_before, record.retry_at)
            begins_at = begins_at if begins_at > now else None
        return _Facts(
            demand,
            spec,
            limit_s,
            record.recent.seconds(OWN_TASKS),
            running=tuple(each for each in running if each is not None),
            begins_at=begins_at,
        )

    def _lately(self, now: float) -> list[_Lately]:
        """Return the newest sessions that had tasks, the oldest first, as they arrived."""
        newest = list(islice(reversed(self._state.sessions.values()), ARRIVALS))
        return [
            _Lately(
                record.session.created_at,
                replace(
                    self._state.demand(record, now),
                    number=self._state.session_number,
                    pending=record.next_task - 1,
                    running=0,
                    leaving=0,
                    min_instances=record.session.spec.min_instances,
                    held_back=None,
                    pausing=False,
                    waiting_since=None,
                ),
                record.session.spec,
                self._state.timeout_of(record),
            )
            for record in reversed(newest)
            if record.next_task > 1
            and record.session.spec.application in self._state.applications
            and record.session.spec.queue in self._state.queues
        ]

    def _ended(self, past: PastSession) -> _Ended:
        """Return the limit and the last tasks of a past session, as far as they are known."""
        record = self._state.sessions.get(past.history.session)
        if record is None or record.session.number != past.history.number:
            return _Ended(None, ())
        return _Ended(record.session.spec.task_timeout_s, record.recent.seconds(OWN_TASKS))


def _waits_not(record: SessionRecord) -> str:
    """Return why a session does not wait for its first executor; "" if it does."""
    if not record.takes_tasks:
        return "no estimate: it is closed, or is being cancelled"
    if any(executor.phase in WORKING for executor in record.executors.values()):
        return "it has an executor already"
    if record.pending < record.session.spec.batch_size and not record.session.spec.min_instances:
        return "no estimate: it has no tasks that wait"
    return ""


def _running(tasks: Mapping[int, TaskRecord], now: float) -> RunningTasks | None:
    """Return the tasks of an executor, if it has some."""
    if not tasks:
        return None
    return RunningTasks(len(tasks), max(0.0, now - min(task.handed_out_at for task in tasks.values())))


@dataclass(frozen=True, slots=True)
class _Of:
    """What tells how long tasks of a session run."""

    application: str
    queue: str
    owner: str
    request: str
    limit_s: float | None

    @property
    def keys(self) -> tuple[_Key, ...]:
        """The groups that a session is in, the narrowest first."""
        whole = (self.application, self.queue, self.owner, self.request, self.limit_s)
        return tuple(whole[:most] for most in range(len(whole), 0, -1))


class _Habits:
    """How long tasks of groups of sessions run."""

    def __init__(self, past: Sequence[PastSession], ended: Mapping[int, _Ended], facts: Sequence[_Facts]) -> None:
        self._ended: list[tuple[tuple[_Key, ...], TaskTimes]] = []
        for each in past:
            row, known = each.history, ended[each.history.number]
            tasks = row.succeed + row.failed or row.cancelled == 1
            if tasks and each.ran_s > 0:
                of = _Of(row.application, row.queue, row.owner, row.resreq, limit_s=known.limit_s)
                self._ended.append((of.keys, TaskTimes(known.seconds or (max(SHORTEST_S, each.ran_s / tasks),))))
        self._ended += [(_of(fact.spec).keys, TaskTimes(fact.ended_s)) for fact in facts if fact.ended_s]
        self._running = [
            (_of(fact.spec).keys, TaskTimes(tuple(each.lasted_s for each in fact.running)))
            for fact in facts
            if fact.running
        ]
        self._groups: dict[_Of, tuple[PastGroup, ...]] = {}
        self._nothing = PastGroup(())

    @property
    def source(self) -> str:
        """What durations are taken from."""
        if not self._ended:
            return "tasks up to their time limits"
        return f"tasks as long as those of {counted(len(self._ended), 'session')} before"

    def prospect(self, fact: _Facts) -> Prospect:
        """Return what is known of an open session."""
        lasted = TaskTimes(tuple(each.lasted_s for each in fact.running))
        own = PastGroup((TaskTimes((each,)) for each in fact.ended_s), [lasted] if lasted.seconds else [])
        if not fact.ended_s:
            own = self._nothing
        durations = self._durations(own, fact.spec, fact.limit_s)
        return Prospect(durations, line_of(fact.demand, fact.begins_at), fact.spec.close_when_done, fact.begins_at)

    def arrivals(self, lately: Sequence[_Lately], now: float) -> list[Arrival]:
        """Return what arrived, in a circle: the gap before the first is that from the last until now."""
        times = [each.at for each in lately]
        before = [now - max(times, default=now), *(later - sooner for sooner, later in pairwise(times))]
        if len(lately) < ARRIVALS:  # a script that submitted some at once does not go on so
            before[0] = max(before[0], OBSERVED_S - sum(before[1:]))
        return [
            Arrival(
                max(0.0, gap),
                each.demand,
                Prospect(self._durations(self._nothing, each.spec, each.limit_s), line_of(each.demand)),
            )
            for gap, each in zip(before, lately, strict=False)
        ]

    def _durations(self, own: PastGroup, spec: SessionSpec, limit_s: float | None) -> Durations:
        of = _of(spec)
        if of not in self._groups:
            ended, running = _by_nearness(self._ended, of), _by_nearness(self._running, of)
            self._groups[of] = tuple(PastGroup(*each) for each in zip(ended, running, strict=True))
        return Durations(own, self._groups[of], limit_s)


def _by_nearness(sessions: Sequence[tuple[tuple[_Key, ...], TaskTimes]], of: _Of) -> list[list[TaskTimes]]:
    """Return the sessions in the narrowest group of a session, in the next wider one but not in that, and so on."""
    found: list[list[TaskTimes]] = [[] for _ in of.keys]
    for keys, kind in sessions:
        nearest = next((place for place, own, its in zip(found, of.keys, keys, strict=True) if own == its), None)
        if nearest is not None:
            nearest.append(kind)
    return found


def _of(spec: SessionSpec) -> _Of:
    return _Of(spec.application, spec.queue, spec.owner, str(spec.resreq), limit_s=spec.task_timeout_s)
