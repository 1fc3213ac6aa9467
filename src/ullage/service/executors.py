"""Executors: carried through their life by the plan's actions and the engine's reports.

Every executor is charged in the books from the moment it is decided until its process is known to
be gone. What is reported of an executor that is not known is ignored; what the state table does not
allow changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ullage.core.plan import Evict, Release, Reuse, Start, Unbind
from ullage.core.policy import Policy
from ullage.model.event import BIND_FAILED, RETRY_LIMIT_REACHED
from ullage.model.executor import BindCode, ExecutorState, Gang, Operation, apply
from ullage.model.session import RETRY_LIMIT
from ullage.service.dispatch import Dispatcher
from ullage.service.engine_port import (
    BindOrder,
    Bound,
    Completed,
    Engine,
    Gone,
    LaunchOrder,
    Registered,
    Returned,
    Unbound,
)
from ullage.service.events import Events
from ullage.service.journal import Journal
from ullage.service.state import ExecutorRecord, SessionRecord, State, setup_key
from ullage.service.store_port import DropExecutor, PutExecutor, PutSession
from ullage.service.tasks import STOP_GRACE_S, Tasks

GANG_TIMEOUT_S = 120.0
"""Within which all members of a gang must be bound, or the gang is released and tried again."""

GANG_BACKOFF_S = 10.0


class Executors:
    """Applies decisions to executors, and takes what the engine reports of them."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        engine: Engine,
        events: Events,
        tasks: Tasks,
        dispatcher: Dispatcher,
        policy: Policy,
        clock: Callable[[], float],
        changed: Callable[[bool], None],
    ) -> None:
        self._state = state
        self._journal = journal
        self._engine = engine
        self._events = events
        self._tasks = tasks
        self._dispatcher = dispatcher
        self._policy = policy
        self._clock = clock
        self._changed = changed
        self._created = 0

    # --- decisions ---

    def start(self, action: Start, gang: Gang | None) -> None:
        """Create an executor at the planned place."""
        record = self._state.session(action.session)
        application = self._state.applications[record.session.spec.application]
        self._created += 1
        now, asked = self._clock(), action.allocation.requirement
        if record.foreseen:
            record.foreseen -= 1
        else:
            self._state.allocator.learning.see(asked)
        executor = ExecutorRecord(
            id=f"e{self._state.epoch}-{self._created}",
            node=action.allocation.node,
            requirement=asked,
            gpus=action.allocation.gpus,
            placement=action.allocation.placement,
            application=application.name,
            setup=setup_key(record.session),
            delay_release_s=application.delay_release_s,
            created_at=now,
            session=record.id,
            gang=gang,
            since=now,
            bound_at=now,
        )
        executor.protected_until = now + self._protection(overdue=action.overdue)
        self._state.fleet.charge(replace(action.allocation, id=executor.id))
        self._state.executors[executor.id] = executor
        record.executors[executor.id] = executor
        self._journal.write(PutExecutor(executor.id, executor.node, record.id, None, asked, executor.gpus, now))
        self._events.add("executor.started", record.id, **_facts(executor, record))
        cards = {gpu.uuid: gpu for gpu in self._state.nodes[executor.node].gpus}
        self._engine.launch(
            LaunchOrder(
                executor.id,
                executor.node,
                application,
                record.session.spec.setup,
                asked,
                tuple(cards[uuid] for uuid in executor.gpus),
                action.allocation.charges,
                action.allocation.placement,
            )
        )

    def reuse(self, action: Reuse, gang: Gang | None) -> None:
        """Give an idle executor to a session."""
        executor, record = self._state.executors[action.executor], self._state.session(action.session)
        executor.session, executor.gang = record.id, gang
        executor.reclaimed = executor.spared = False
        executor.bound_at = self._clock()
        executor.protected_until = executor.bound_at + self._protection(overdue=False)
        record.executors[executor.id] = executor
        self._events.add("executor.reused", record.id, **_facts(executor, record))
        self._bind(executor, record)

    def unbind(self, action: Unbind) -> None:
        """Take an executor from its session once the tasks it has in hand are done."""
        executor = self._state.executors[action.executor]
        executor.reclaimed, executor.spared = action.reclaimed, action.spared
        if action.reclaimed:
            self._events.add("executor.reclaimed", executor.session, executor=executor.id, claimant=action.claimant)
        if executor.state is ExecutorState.VOID:
            self._detach(executor)
            executor.reclaimed, executor.spared = action.reclaimed, action.spared
            return
        leaves_already = executor.state is ExecutorState.UNBINDING
        executor.state = apply(executor.state, Operation.UNBIND)
        executor.since = self._clock()
        if not leaves_already:
            self._engine.unbind(executor.id)

    def release(self, action: Release) -> None:
        """End an idle executor."""
        executor = self._state.executors[action.executor]
        executor.state = apply(executor.state, Operation.RELEASE)
        self._engine.stop(executor.id, STOP_GRACE_S)

    def evict(self, action: Evict) -> None:
        """End an executor whose session kept it past the grace it was given."""
        executor = self._state.executors[action.executor]
        executor.stopping = True
        self._events.add("executor.evicted", executor.session, executor=executor.id)
        self._engine.stop(executor.id, STOP_GRACE_S)

    def _protection(self, *, overdue: bool) -> float:
        return max(self._policy.min_runtime_s, self._policy.reserve_after_s if overdue else 0.0)

    def let_go(self, record: SessionRecord) -> None:
        """The session is forgotten: its executors leave, and work for nobody from now on."""
        for executor in tuple(record.executors.values()):
            if executor.state in (ExecutorState.BINDING, ExecutorState.BOUND):
                self.unbind(Unbind(executor.id))
            self._detach(executor)

    def give_up(self, node: str) -> None:
        """The node is lost: its executors are gone for us, and are ended should they be seen again."""
        for executor in [executor for executor in self._state.executors.values() if executor.node == node]:
            executor.lost = True  # with its node: no fault of its session
            self.gone(Gone(executor.id, f"node {node} was lost"))
            self._engine.stop(executor.id, 0.0)

    # --- reports ---

    def registered(self, event: Registered) -> None:
        """The process is up: bind it to the session it was made for, if that still wants it."""
        executor = self._state.executors.get(event.executor)
        if executor is None:
            self._engine.stop(event.executor, 0.0)
            return
        if executor.state is not ExecutorState.VOID:
            return
        executor.state = apply(executor.state, Operation.REGISTER)
        executor.pid, executor.note, executor.since = event.pid, event.note, self._clock()
        if event.note:
            self._events.add("executor.misplaced", executor.session, message=event.note, executor=executor.id)
        record = self._state.sessions.get(executor.session or "")
        if record is None or not record.open:
            self._detach(executor)
            self._changed(True)
            return
        self._bind(executor, record)

    def bound(self, event: Bound) -> None:
        """A bind ended: the executor can take tasks, or the session has one failure more."""
        executor = self._state.executors.get(event.executor)
        if executor is None or executor.state is not ExecutorState.BINDING:
            return
        if event.code is not BindCode.OK:
            self._bind_failed(executor, event)
            return
        executor.state = apply(executor.state, Operation.BIND_COMPLETED, executor.session)
        executor.since = executor.bound_at = self._clock()
        record = self._state.session(executor.session or "")
        if record.session.bind_failures and self._together(record, executor):
            self._count_failures(record, 0)
        self._dispatcher.dispatch(record)
        self._changed(False)

    def completed(self, event: Completed) -> None:
        """Tasks ended."""
        executor = self._state.executors.get(event.executor)
        if executor is not None:
            broken = self._tasks.complete(executor, event.outcomes)
            self._carry_on(executor, broken, "a task of the batch failed and is tried again")

    def returned(self, event: Returned) -> None:
        """Tasks came back unstarted."""
        executor = self._state.executors.get(event.executor)
        if executor is not None:
            broken = self._tasks.give_back(executor, event.claims)
            self._carry_on(executor, broken, "a task of the batch was not started")

    def unbound(self, event: Unbound) -> None:
        """The executor left its session and is idle, or ends if its last bind failed."""
        executor = self._state.executors.get(event.executor)
        if executor is None or executor.state is not ExecutorState.UNBINDING:
            return
        executor.state = apply(executor.state, Operation.UNBIND_COMPLETED)
        broken = self._tasks.give_back(executor, tuple(executor.tasks))
        self._carry_on(executor, broken, "a task of the batch was not started")
        self._detach(executor)
        if executor.spoilt:
            self.release(Release(executor.id))
        self._changed(True)

    def gone(self, event: Gone) -> None:
        """The process and all it started have ended: free what it held, put its tasks back."""
        executor = self._state.executors.pop(event.executor, None)
        if executor is None:
            return
        self._state.allocator.leave(executor.id)
        self._journal.write(DropExecutor(executor.id))
        self._tasks.lose(executor, event.reason, blame=not (executor.stopping or executor.reclaimed))
        self._events.add("executor.gone", executor.session, message=event.reason, executor=executor.id)
        record = self._state.sessions.get(executor.session or "")
        if record is not None:
            record.executors.pop(executor.id, None)
            if executor.state in (ExecutorState.VOID, ExecutorState.BINDING) and not (
                executor.stopping or executor.lost
            ):
                self._failed_to_start(record, executor, BindCode.WORKER_FAILED, event.reason)
            if executor.gang is not None:
                self._break_up(record, executor.gang, f"member {executor.gang.rank} was lost: {event.reason}")
            self._dispatcher.dispatch(record)
        self._changed(True)

    def _carry_on(self, executor: ExecutorRecord, broken: bool, reason: str) -> None:
        """After tasks came back or ended: the session's next ones are handed out."""
        record = self._state.sessions.get(executor.session or "")
        if record is None:
            return
        if broken and executor.gang is not None:
            self._break_up(record, executor.gang, reason)
        self._dispatcher.dispatch(record)

    # --- gangs ---

    def expire_gangs(self, now: float) -> float | None:
        """Release gangs that did not come together in time; returns when the next one is due."""
        due: float | None = None
        for record in tuple(self._state.sessions.values()):
            if record.session.spec.batch_size == 1:
                continue
            if record.not_before:
                due = record.not_before if due is None else min(due, record.not_before)
                if record.not_before <= now:
                    record.not_before = 0.0
                    self._changed(True)
            for executor in tuple(record.executors.values()):
                forming = executor.state in (ExecutorState.VOID, ExecutorState.IDLE, ExecutorState.BINDING)
                if not forming or executor.gang is None or executor.stopping:
                    continue
                if executor.bound_at + GANG_TIMEOUT_S <= now:
                    record.not_before = now + GANG_BACKOFF_S
                    due = record.not_before if due is None else min(due, record.not_before)
                    self._break_up(record, executor.gang, f"not all members started within {GANG_TIMEOUT_S:g} s")
                else:
                    ends_at = executor.bound_at + GANG_TIMEOUT_S
                    due = ends_at if due is None else min(due, ends_at)
        return due

    @staticmethod
    def _together(record: SessionRecord, executor: ExecutorRecord) -> bool:
        """Whether the executor, and all of its gang if it has one, can take tasks."""
        gang = executor.gang
        members = [other for other in record.executors.values() if gang and other.gang and other.gang.id == gang.id]
        return gang is None or sum(member.state is ExecutorState.BOUND for member in members) == gang.size

    def _break_up(self, record: SessionRecord, gang: Gang, reason: str) -> None:
        """One member is gone or late: the batch goes back as a whole and its executors end."""
        members = [member for member in record.executors.values() if member.gang and member.gang.id == gang.id]
        if any(not member.stopping for member in members):
            self._events.add("gang.released", record.id, message=reason, gang=gang.id)
        for member in members:
            if not member.stopping:
                member.stopping = True
                self._tasks.lose(member, reason, blame=False)
                self._engine.stop(member.id, STOP_GRACE_S)

    # --- steps ---

    def _bind(self, executor: ExecutorRecord, record: SessionRecord) -> None:
        executor.state = apply(executor.state, Operation.BIND)
        executor.since = self._clock()
        executor.shared_sent.clear()
        self._engine.bind(BindOrder(executor.id, record.id, record.session.spec.common_data, executor.gang))

    def _bind_failed(self, executor: ExecutorRecord, event: Bound) -> None:
        record = self._state.session(executor.session or "")
        executor.state = apply(executor.state, Operation.BIND_FAILED)
        executor.spoilt = True
        gang = executor.gang
        self._detach(executor)
        if gang is not None:
            self._break_up(record, gang, f"member {gang.rank} could not enter the session: {event.message}")
        self._failed_to_start(record, executor, event.code, event.message)
        self._engine.unbind(executor.id)
        self._changed(True)

    def _failed_to_start(self, record: SessionRecord, executor: ExecutorRecord, code: BindCode, message: str) -> None:
        text = f"executor {executor.id} on node {executor.node} failed with code {int(code)}: {message}"
        self._events.add("session.bind-failed", record.id, code=BIND_FAILED, message=text, return_code=int(code))
        self._count_failures(record, record.session.bind_failures + 1)
        if record.session.bind_failures == RETRY_LIMIT:
            text = f"no new executor after {RETRY_LIMIT} failures; mend the cause, then retry it"
            self._events.add("session.retry-limit", record.id, code=RETRY_LIMIT_REACHED, message=text)

    def _count_failures(self, record: SessionRecord, failures: int) -> None:
        record.session = replace(record.session, bind_failures=failures)
        self._journal.write(PutSession(record.session))

    def _detach(self, executor: ExecutorRecord) -> None:
        """The executor works for nobody."""
        record = self._state.sessions.get(executor.session or "")
        if record is not None:
            record.executors.pop(executor.id, None)
        self._events.add("executor.left", executor.session, executor=executor.id)
        executor.session = executor.gang = None
        executor.reclaimed = executor.spared = False
        executor.since = self._clock()


def _facts(executor: ExecutorRecord, record: SessionRecord) -> dict[str, Any]:
    """What the record says of who works where, and since when the session waited for it."""
    gpus = " ".join(executor.gpus)
    return {"executor": executor.id, "node": executor.node, "gpus": gpus, "asked_at": record.waits_since}
