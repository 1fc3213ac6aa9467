"""Sessions as bodies: facts of each at one time, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import rejections_of
from ullage.core.explaining.summary import summary
from ullage.core.placing.policy import Policy
from ullage.core.sharing.reach import Reach
from ullage.core.sharing.shares import dominant_share
from ullage.core.sharing.world import WORKING, Demand
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.rejection import NEVER_PLACED, Code
from ullage.model.session import SessionInfo
from ullage.model.session_state import activity
from ullage.model.task import TaskState
from ullage.service.state import SessionRecord, State
from ullage.wire.body import body_of
from ullage.wire.session import SessionBody


class SessionFacts(NamedTuple):
    """A session. `held` counts its working `executors`; `running_since` is when its oldest running task was sent.

    `awaiting` counts executors whose task waits for tasks.
    """

    info: SessionInfo
    counts: Mapping[TaskState, int]
    executors: int
    held: int
    deserved: int
    waiting_for: Code | None
    open: bool
    running_since: float | None
    awaiting: int

    @classmethod
    def of(cls, record: SessionRecord) -> SessionFacts:
        """Return the facts of a session now."""
        executors = record.executors
        sent = (task.handed_out_at for executor in executors.values() for task in executor.tasks.values())
        return cls(
            info=record.session,
            counts=dict(record.counts),
            executors=len(executors),
            held=sum(executor.phase in WORKING for executor in executors.values()),
            deserved=record.deserved,
            waiting_for=record.waiting_for,
            open=record.open,
            running_since=min(sent, default=None),
            awaiting=sum(bool(executor.awaits) for executor in executors.values()),
        )


def session_facts(state: State) -> list[SessionFacts]:
    """Return the facts of all sessions in the order of creation."""
    return [
        SessionFacts.of(record) for record in sorted(state.sessions.values(), key=lambda record: record.session.number)
    ]


class SessionReasons:
    """What sessions wait for, by the books, the queues and the applications of one time."""

    def __init__(self, fleet: Fleet, policy: Policy, state: State) -> None:
        self._fleet = fleet
        self._reach = Reach(fleet, policy, state.queues.values())
        self._most = {name: application.max_instances for name, application in state.applications.items()}
        self._limits_s = {name: application.task_timeout_s for name, application in state.applications.items()}

    def reason(self, facts: SessionFacts) -> Code | None:
        """Return what a session waits for, also before it asks for anything that can never be placed."""
        if not facts.open:
            return None
        if facts.waiting_for is None and not facts.executors:  # one with executors may have them on a cordoned node
            return self._reach.obstacle(self._demand(facts.info))
        return facts.waiting_for

    def body(self, facts: SessionFacts) -> SessionBody:
        """Return a session; for a request that can never be placed, with the reason, which takes long on many nodes."""
        info, counts = facts.info, facts.counts
        spec, (reason, message) = info.spec, self._text(facts)
        limit_s = self._limits_s[spec.application] if spec.task_timeout_s is None else spec.task_timeout_s
        return body_of(
            SessionBody,
            info,
            spec,
            facts,
            **{state.value: counts[state] for state in TaskState},
            activity=activity(info.state, pending=counts[TaskState.PENDING], running=counts[TaskState.RUNNING]),
            resreq=str(spec.resreq),
            task_timeout_s=limit_s,
            share=dominant_share(self._fleet.holding(spec.resreq, facts.executors), self._fleet.total),
            after=[str(each) for each in spec.after],
            awaits=[str(each) for each in info.awaits],
            reason=reason,
            message=message,
        )

    def _text(self, facts: SessionFacts) -> tuple[str | None, str]:
        code = self.reason(facts)
        if code is None:
            return None, facts.info.cancel_reason
        if code in NEVER_PLACED:
            demand = self._demand(facts.info)
            return code.value, summary(code, demand, rejections_of(self._fleet, demand, code, self._reach))
        return code.value, MEANINGS[code]

    def _demand(self, info: SessionInfo) -> Demand:
        spec = info.spec
        return Demand(
            info.id,
            info.number,
            spec.resreq,
            queue=spec.queue,
            batch_size=spec.batch_size,
            application=spec.application,
            application_max=self._most[spec.application],
        )
