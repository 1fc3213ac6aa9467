"""What is known for an estimate of starts: the present, and how long tasks took in the past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ullage.core.placing.reserving import reserving_requests
from ullage.core.sharing.world import WORKING
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.history import PastSession
from ullage.model.rejection import NEVER_PLACED, Code
from ullage.service.context import ServiceContext
from ullage.service.foresight import Estimate, Foresight, Known, RunningTasks
from ullage.service.loop import Loop
from ullage.service.state import SessionRecord

PAST_SESSIONS = 1000
"""The most recent sessions of the history from which durations are taken."""

_ENOUGH = 3
"""Durations below which those of a wider group are taken."""

_Group = tuple[str, ...]

_OTHERS = "other users"
"""What stands for their sessions where these are hidden."""


class Starts:
    """Estimates when waiting sessions start."""

    def __init__(self, context: ServiceContext, loop: Loop) -> None:
        self._state, self._policy, self._clock, self._loop = context.state, context.policy, context.clock, loop

    def waiting(self) -> list[str]:
        """Return the sessions that wait for their first executor, or for another first one."""
        return [name for name, record in self._state.sessions.items() if record.open and not self._refusal(record)]

    def estimating(
        self, sessions: Iterable[str], past: Sequence[PastSession], reader: str | None = None
    ) -> Callable[[], dict[str, Estimate]]:
        """Return a function for another thread that returns the estimates; `past` are ended sessions.

        With a `reader` the words name the sessions of that user only.

        Raises:
            NotFound: a session does not exist.

        """
        refused = {name: self._refusal(self._state.session(name)) for name in sessions}
        foresight = self._foresight(past, reader)

        def estimate() -> dict[str, Estimate]:
            found = foresight.starts(name for name, why in refused.items() if not why)
            return found | {name: Estimate(text=why) for name, why in refused.items() if why}

        return estimate

    def _refusal(self, record: SessionRecord) -> str:
        """Return why there is nothing to estimate; "" if there is."""
        if not record.takes_tasks:
            return "no estimate: it is closed, or is being cancelled"
        if any(executor.phase in WORKING for executor in record.executors.values()):
            return "it has an executor already"
        if record.pending < record.session.spec.batch_size and not record.session.spec.min_instances:
            return "no estimate: it has no tasks that wait"
        held_back = record.held_back(self._clock())
        if held_back not in (None, Code.BEGIN_TIME, Code.BACKOFF):
            return f"no estimate: {MEANINGS[held_back]}"
        return f"no estimate: {MEANINGS[record.waiting_for]}" if record.waiting_for in NEVER_PLACED else ""

    def _foresight(self, past: Sequence[PastSession], reader: str | None) -> Foresight:
        allocator, now = self._state.allocator, self._clock()
        nominations, cap, fleet = allocator.nominations, allocator.rules.cap, allocator.fleet.copy(apart=True)
        world = replace(self._loop.world(), fleet=fleet, promises=dict(self._state.promises))
        records = [self._state.sessions[demand.session] for demand in world.demands]
        means = {each.session.number: each.mean_task_s for each in self._state.sessions.values()}
        groups = _groups(past, means)
        return Foresight(
            world,
            self._policy,
            now,
            running={
                executor.id: RunningTasks(
                    len(executor.tasks), max(0.0, now - min(task.handed_out_at for task in executor.tasks.values()))
                )
                for executor in self._state.executors.values()
                if executor.tasks
            },
            known={record.id: self._shown(record, groups, reader) for record in records},
            begins={
                record.id: record.session.spec.begin_at
                for record in records
                if record.session.spec.begin_at is not None and record.held_back(now) is Code.BEGIN_TIME
            },
            reserving=lambda books: reserving_requests(books, nominations, cap),
        )

    def _shown(self, record: SessionRecord, groups: dict[_Group, list[float]], reader: str | None) -> Known:
        known = self._known(record, groups)
        if reader in (None, record.session.spec.owner):
            return known
        return known._replace(of=_OTHERS, source=known.source and f"those of {_OTHERS}")

    def _known(self, record: SessionRecord, groups: dict[_Group, list[float]]) -> Known:
        """Return the seconds of tasks of the session itself, or of the narrowest group that has enough."""
        spec, limit_s = record.session.spec, self._state.timeout_of(record)
        own = record.recent.seconds()
        if len(own) >= _ENOUGH:
            return Known(record.id, tuple(own), f"the {len(own)} last tasks of {record.id}", limit_s)
        for group, words in (
            ((spec.application, spec.queue, spec.owner), f"those of {spec.owner or 'nobody'} in {spec.queue}"),
            ((spec.application, spec.queue), f"those in queue {spec.queue}"),
            ((spec.application,), f"those of application {spec.application}"),
        ):
            found = groups.get(group, [])
            if len(found) >= _ENOUGH:
                return Known(record.id, tuple(found), f"{words} ({len(found)} past sessions)", limit_s)
        if own:
            return Known(record.id, tuple(own), f"the last tasks of {record.id}", limit_s)
        return Known(record.id, (), "" if limit_s is None else "their time limits allow", limit_s)


def _groups(past: Sequence[PastSession], means: Mapping[int, float | None]) -> dict[_Group, list[float]]:
    """Return the seconds of a task of each session, by application, queue and owner, and by wider groups.

    They are the mean of its tasks where that is known, else the time of its executors, idle times too, by its tasks.
    """
    found: dict[_Group, list[float]] = defaultdict(list)
    for each in past:
        history = each.history
        ended = history.succeed + history.failed
        if ended and each.ran_s > 0:
            group = (history.application, history.queue, history.owner)
            for width in (1, 2, 3):
                found[group[:width]].append(means.get(history.number) or each.ran_s / ended)
    return found
