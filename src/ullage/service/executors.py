"""Executors, from their start to their end: actions of the plan, and reports of the engine.

An executor is charged in the books from the decision to start it until its process is known to be gone. Reports on
unknown executors are ignored. What the table of states does not allow changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from ullage.core.sharing.plan import EvictExecutor, Keep, Release, Reuse, Start, Unbind
from ullage.core.sharing.world import EVICTIONS, Eviction
from ullage.model.event import EVICTED, RECLAIMED
from ullage.model.executor import BindCode, ExecutorGang, ExecutorOperation, ExecutorState, apply
from ullage.service.context import ServiceContext
from ullage.service.dispatch import Dispatcher
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    ExecutorBound,
    ExecutorGone,
    LaunchOrder,
    Registered,
    Returned,
    Unbound,
)
from ullage.service.start_failures import StartFailures
from ullage.service.state import ExecutorRecord, SessionRecord
from ullage.service.stop_rules import STOP_GRACE_S
from ullage.service.store_port import Drop, PutExecutor
from ullage.service.tasks import Tasks

GANG_TIMEOUT_S = 120.0
"""Seconds in which all members of a gang must be bound; else the gang is released and tried again."""

GANG_BACKOFF_S = 10.0


class Executors:
    """Applies decisions and the reports of the engine to executors."""

    def __init__(self, context: ServiceContext, tasks: Tasks, dispatcher: Dispatcher) -> None:
        self._state, self._journal, self._engine = context.state, context.journal, context.engine
        self._events, self._tasks, self._dispatcher = context.events, tasks, dispatcher
        self._policy, self._clock, self._changed = context.policy, context.clock, context.changed
        self._accounting = context.accounting
        self.failures = StartFailures(context)
        self._created = 0
        self._shields: dict[str, list[float]] = {}
        """By session: when the protection of room ends that its executors have lost again."""

    # --- decisions ---

    def start(self, action: Start, gang: ExecutorGang | None) -> None:
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
            setup=self._state.setup_key(record.session),
            delay_release_s=application.delay_release_s,
            created_at=now,
            session=record.id,
            gang=gang,
            since=now,
            bound_at=now,
        )
        self._protect(executor, record.id if action.won else None)
        self._state.fleet.charge(replace(action.allocation, id=executor.id))
        self._state.executors[executor.id] = executor
        record.executors[executor.id] = executor
        self._journal.write(
            PutExecutor(
                executor.id, executor.node, record.id, None, requirement=asked, gpus=executor.gpus, created_at=now
            )
        )
        self._accounting.begin(executor, record)
        self._events.add("executor.started", record.id, **_facts(executor, record))
        cards = {gpu.uuid: gpu for gpu in self._state.nodes[executor.node].gpus}
        self._engine.launch(
            LaunchOrder(
                executor.id,
                executor.node,
                application,
                record.session.spec.setup,
                requirement=asked,
                gpus=tuple(cards[uuid] for uuid in executor.gpus),
                charges=action.allocation.charges,
                placement=action.allocation.placement,
                user=record.session.spec.owner if self._state.by_owner else "",
            )
        )

    def reuse(self, action: Reuse, gang: ExecutorGang | None) -> None:
        """Give an idle executor to a session."""
        executor, record = self._state.executors[action.executor], self._state.session(action.session)
        executor.session, executor.gang, executor.served = record.id, gang, False
        executor.eviction, executor.bound_at = None, self._clock()
        self._protect(executor, record.id if action.won else None)
        record.executors[executor.id] = executor
        self._accounting.begin(executor, record)
        self._events.add("executor.reused", record.id, **_facts(executor, record))
        self._bind(executor, record)

    def unbind(self, action: Unbind) -> None:
        """Take an executor from its session once the tasks it has in hand are done.

        If it gives way already, only the winner changes: its grace is not renewed.
        """
        executor = self._state.executors[action.executor]
        if action.eviction is None:
            self._leave(executor)
            return
        gives_way = executor.eviction is not None
        executor.eviction = action.eviction
        self._events.add(
            "executor.reclaimed", executor.session, **self._eviction_facts(executor, action.eviction, RECLAIMED)
        )
        if not gives_way:
            executor.since = self._clock()
            self._leave_when_done(executor)
        elif executor.state is not ExecutorState.BOUND:
            self._state.promise(action.eviction.winner)

    def forget_shields(self) -> None:
        """End the protection of room that is not promised any more."""
        self._shields = {name: ends for name, ends in self._shields.items() if name in self._state.promises}

    def keep(self, action: Keep) -> None:
        """Cancel the eviction of an executor, unless it has begun to leave."""
        executor = self._state.executors[action.executor]
        executor.eviction = None
        self._events.add("executor.kept", executor.session, executor=executor.id)
        self._dispatch_to_session_of(executor)

    def set_yielding(self, yielding: frozenset[str]) -> None:
        """Hand no further task to these executors, and to all others again."""
        for executor in tuple(self._state.executors.values()):
            before, executor.yielding = executor.yielding, executor.id in yielding
            if before and not executor.yielding:
                self._dispatch_to_session_of(executor)

    def _dispatch_to_session_of(self, executor: ExecutorRecord) -> None:
        record = self._session_of(executor)
        if record is not None:
            self._dispatcher.dispatch(record)

    def _leave_when_done(self, executor: ExecutorRecord) -> None:
        """Let an executor leave, with its gang, once no member that is not being ended runs a task."""
        gang = self._members(executor)
        if not any(member.tasks and not member.stopping for member in gang):
            for member in gang:
                if member.eviction is not None and not member.stopping:
                    self._leave(member)

    def _members(self, executor: ExecutorRecord) -> list[ExecutorRecord]:
        """Return the executors of its gang, or only itself."""
        record = self._session_of(executor)
        if executor.gang is None or record is None:
            return [executor]
        return _members_of(record, executor.gang)

    def _leave(self, executor: ExecutorRecord) -> None:
        eviction = executor.eviction
        if eviction is not None:
            self._state.promise(eviction.winner)
        if executor.state is ExecutorState.VOID:
            self._detach(executor)
            executor.eviction = eviction
            return
        leaves_already = executor.state is ExecutorState.UNBINDING
        executor.state = apply(executor.state, ExecutorOperation.UNBIND)
        if eviction is None:
            executor.since = self._clock()
        if not leaves_already:
            self._engine.unbind(executor.id)

    def release(self, action: Release) -> None:
        """End an idle executor."""
        executor = self._state.executors[action.executor]
        executor.state = apply(executor.state, ExecutorOperation.RELEASE)
        self._engine.stop(executor.id, STOP_GRACE_S)

    def evict(self, action: EvictExecutor) -> None:
        """End an executor that is still busy after its grace period."""
        executor = self._state.executors[action.executor]
        executor.stopping = True
        self._state.promise(action.eviction.winner)
        self._events.add(
            "executor.evicted", executor.session, **self._eviction_facts(executor, action.eviction, EVICTED)
        )
        self._engine.stop(executor.id, self._grace_of(executor))

    def _protect(self, executor: ExecutorRecord, winner: str | None) -> None:
        """Protect an executor that starts; in the place of a lost one it has what was left of the time."""
        shields = self._shields.get(winner or "")
        ends = shields.pop(0) if shields else inf
        executor.winner, executor.shielded_until = winner, ends if ends > self._clock() else inf
        executor.protected_until = self._protected_until(executor)

    def _protected_until(self, executor: ExecutorRecord) -> float:
        """Return until when room won by an eviction is protected: from the start, and then for the protected time."""
        now, won = self._clock(), executor.winner is not None
        if won and executor.state is not ExecutorState.BOUND:
            return inf
        won_until = min(now + self._policy.protected_s, executor.shielded_until) if won else now
        return max(now + self._policy.min_runtime_s, won_until)

    def _promise_again(self, executor: ExecutorRecord) -> None:
        """Reserve room won by an eviction for the protected time, although the executor or its gang failed."""
        members, ledger = self._members(executor), self._state.fleet.ledger
        members.sort(key=lambda member: member.gang.rank if member.gang else 0)
        places = tuple(ledger[member.id] for member in members if member.id in ledger)
        lost = any(member.stopping or member.lost or member.eviction is not None for member in members)
        winner, until = executor.winner, max((member.protected_until for member in members), default=0.0)
        whole = len(places) == (executor.gang.size if executor.gang else 1)
        if winner is not None and whole and not lost and self._clock() < until:
            self._state.promise(winner, places)
            if until < inf:
                self._shields.setdefault(winner, []).extend([until] * len(places))
        for member in members:
            member.winner = None

    def release_all(self, record: SessionRecord) -> None:
        """Release the executors of a session that is deleted. They leave, and work for no session from now on."""
        for executor in tuple(record.executors.values()):
            if executor.state in (ExecutorState.BINDING, ExecutorState.BOUND):
                self.unbind(Unbind(executor.id))
            self._detach(executor)

    def give_up(self, node: str) -> None:
        """Give up the executors of a lost node. They are ended if they are seen again."""
        for executor in [executor for executor in self._state.executors.values() if executor.node == node]:
            executor.lost = True  # with its node: no fault of its session
            self.gone(ExecutorGone(executor.id, f"node {node} was lost"))
            self._engine.stop(executor.id, 0.0)

    def expect_end(self) -> None:
        """Expect all executors to end with this process: this is no failure of their tasks or sessions."""
        for executor in self._state.executors.values():
            executor.stopping = True

    # --- reports ---

    def registered(self, event: Registered) -> None:
        """Bind an executor that has started to its session, if the session still needs it."""
        executor = self._state.executors.get(event.executor)
        if executor is None:
            self._engine.stop(event.executor, 0.0)
            return
        if executor.state is not ExecutorState.VOID:
            return
        executor.state = apply(executor.state, ExecutorOperation.REGISTER)
        executor.pid, executor.note, executor.since = event.pid, event.note, self._clock()
        if event.note:
            self._events.add("executor.misplaced", executor.session, message=event.note, executor=executor.id)
        record = self._session_of(executor)
        if record is None or not record.open:
            self._detach(executor)
            self._changed(True)
            return
        self._bind(executor, record)

    def bound(self, event: ExecutorBound) -> None:
        """Handle the end of a bind: the executor can take tasks, or the session has one more failure."""
        executor = self._state.executors.get(event.executor)
        if executor is None or executor.state is not ExecutorState.BINDING:
            return
        if event.code is not BindCode.OK:
            self._bind_failed(executor, event)
            return
        executor.state = apply(executor.state, ExecutorOperation.BIND_COMPLETED, executor.session)
        executor.since = executor.bound_at = self._clock()
        executor.protected_until = self._protected_until(executor)
        record = self._state.session(executor.session or "")
        gang = executor.gang
        bound = [member for member in self._members(executor) if member.state is ExecutorState.BOUND]
        if gang is None or len(bound) == gang.size:
            self.failures.started(record, executor)
        self._dispatcher.dispatch(record)
        self._changed(False)

    def completed(self, event: Completed) -> None:
        """Handle the results of tasks."""
        executor = self._state.executors.get(event.executor)
        if executor is not None:
            executor.served = True
            broken = self._tasks.complete(executor, event.outcomes)
            self._dispatch_next(executor, broken, "a task of the batch failed and is tried again")

    def returned(self, event: Returned) -> None:
        """Handle tasks that were returned unstarted."""
        executor = self._state.executors.get(event.executor)
        if executor is not None:
            broken = self._tasks.give_back(executor, event.claims)
            self._dispatch_next(executor, broken, "a task of the batch was not started")

    def unbound(self, event: Unbound) -> None:
        """Handle that an executor left its session: it is idle, or ends if its last bind failed."""
        executor = self._state.executors.get(event.executor)
        if executor is None or executor.state is not ExecutorState.UNBINDING:
            return
        executor.state = apply(executor.state, ExecutorOperation.UNBIND_COMPLETED)
        executor.memory_peak_bytes = _higher(executor.memory_peak_bytes, event.memory_peak_bytes)
        broken = self._tasks.give_back(executor, tuple(executor.tasks))
        self._dispatch_next(executor, broken, "a task of the batch was not started")
        self._detach(executor)
        if executor.unusable:
            self.release(Release(executor.id))
        self._changed(True)

    def gone(self, event: ExecutorGone) -> None:
        """Handle the end of a process and all that it started: free its room, and retry its tasks."""
        executor = self._state.executors.pop(event.executor, None)
        if executor is None:
            return
        executor.memory_peak_bytes = _higher(executor.memory_peak_bytes, event.memory_peak_bytes)
        self._accounting.end(executor)
        self._promise_again(executor)
        if executor.eviction is not None and not executor.lost:
            self._state.promise(executor.eviction.winner)
        failed = _failed_to_start(executor)
        self._state.allocator.leave(executor.id)
        self._journal.write(Drop(PutExecutor, executor.id))
        counts = not (executor.stopping or executor.eviction)
        if not executor.lost:
            self._tasks.note_end(executor, event.reason, counts=counts)
        self._tasks.lose(executor, event.reason, counts=counts)
        self._events.add("executor.gone", executor.session, message=event.reason, executor=executor.id)
        record = self._session_of(executor)
        if record is not None:
            record.executors.pop(executor.id, None)
            if failed:
                self.failures.failed(record, executor, BindCode.WORKER_FAILED, event.reason)
            if executor.gang is not None:
                self._break_up(record, executor.gang, f"member {executor.gang.rank} was lost: {event.reason}")
            self._dispatcher.dispatch(record)
        self._changed(True)

    def _dispatch_next(self, executor: ExecutorRecord, broken: bool, reason: str) -> None:
        """Hand out the next tasks of a session after some have ended or were returned."""
        record = self._session_of(executor)
        if record is None:
            return
        if broken and executor.gang is not None:
            self._break_up(record, executor.gang, reason)
        if executor.eviction is not None and executor.state is ExecutorState.BOUND:
            self._leave_when_done(executor)
        self._dispatcher.dispatch(record)

    # --- gangs ---

    def expire_gangs(self, now: float) -> float | None:
        """Release gangs that did not start in time. Return when the next one is due."""
        due: list[float] = []
        for record in tuple(self._state.sessions.values()):
            if record.session.spec.batch_size == 1:
                continue
            if record.not_before:
                due.append(record.not_before)
                if record.not_before <= now:
                    record.not_before = 0.0
                    self._changed(True)
            for executor in tuple(record.executors.values()):
                forming = executor.state in (ExecutorState.VOID, ExecutorState.IDLE, ExecutorState.BINDING)
                if not forming or executor.gang is None or executor.stopping:
                    continue
                ends_at = executor.bound_at + GANG_TIMEOUT_S
                if ends_at <= now:
                    record.not_before = ends_at = now + GANG_BACKOFF_S
                    text = f"not all members started within {GANG_TIMEOUT_S:g} s"
                    self._break_up(record, executor.gang, text)
                    self.failures.failed(record, executor, BindCode.WORKER_FAILED, text)
                due.append(ends_at)
        return min(due, default=None)

    def _break_up(self, record: SessionRecord, gang: ExecutorGang, reason: str) -> None:
        """End a gang with a lost or late member: all its tasks are queued again, and its executors end."""
        members = _members_of(record, gang)
        if any(not member.stopping for member in members):
            self._promise_again(members[0])
            self._events.add("gang.released", record.id, message=reason, gang=gang.id)
        for member in members:
            if not member.stopping:
                member.stopping = True
                self._tasks.lose(member, reason, counts=False)
                self._engine.stop(member.id, self._state.stops.of(record.session.spec))

    # --- steps ---

    def _grace_of(self, executor: ExecutorRecord) -> float:
        record = self._session_of(executor)
        return STOP_GRACE_S if record is None else self._state.stops.of(record.session.spec)

    def _session_of(self, executor: ExecutorRecord) -> SessionRecord | None:
        return self._state.sessions.get(executor.session or "")

    def _bind(self, executor: ExecutorRecord, record: SessionRecord) -> None:
        executor.state = apply(executor.state, ExecutorOperation.BIND)
        executor.since = self._clock()
        executor.shared_sent.clear()
        session = record.session
        self._engine.bind(BindOrder(executor.id, record.id, session.spec.common_data, executor.gang, logs=session.logs))

    def _bind_failed(self, executor: ExecutorRecord, event: ExecutorBound) -> None:
        record = self._state.session(executor.session or "")
        executor.state = apply(executor.state, ExecutorOperation.BIND_FAILED)
        executor.unusable = True
        self._promise_again(executor)
        gang = executor.gang
        self._detach(executor)
        if gang is not None:
            self._break_up(record, gang, f"member {gang.rank} could not enter the session: {event.message}")
        self.failures.failed(record, executor, event.code, event.message)
        self._engine.unbind(executor.id)
        self._changed(True)

    def _eviction_facts(self, executor: ExecutorRecord, eviction: Eviction, code: int) -> dict[str, Any]:
        """Return the facts of an eviction for its event: for which session, and why."""
        record = self._session_of(executor)
        if record is None or not record.takes_tasks:
            why = "its own session is closed"
        else:
            why = EVICTIONS[eviction.cause] if record.tasks else "its own session has nothing left to run"
        return {
            "code": code,
            "message": f"gives way to {eviction.winner}: {why}",
            "executor": executor.id,
            "claimant": eviction.winner,
            "cause": eviction.cause.value,
        }

    def _detach(self, executor: ExecutorRecord) -> None:
        record = self._session_of(executor)
        if record is not None:
            record.executors.pop(executor.id, None)
        self._accounting.end(executor)
        self._events.add("executor.left", executor.session, executor=executor.id)
        executor.session = executor.gang = None
        executor.eviction, executor.yielding = None, False
        executor.since = self._clock()


def _higher(one: int | None, other: int | None) -> int | None:
    return other if one is None or (other is not None and other > one) else one


def _members_of(record: SessionRecord, gang: ExecutorGang) -> list[ExecutorRecord]:
    return [each for each in record.executors.values() if each.gang and each.gang.id == gang.id]


def _facts(executor: ExecutorRecord, record: SessionRecord) -> dict[str, Any]:
    return {"executor": executor.id, "node": executor.node, "gpus": executor.gpus, "asked_at": record.waits_since}


def _failed_to_start(executor: ExecutorRecord) -> bool:
    """Return whether an executor that ended unexpectedly was never used: it had no task and got none."""
    if executor.stopping or executor.lost:
        return False
    idle = not (executor.served or executor.tasks or executor.eviction)
    early = executor.state in (ExecutorState.VOID, ExecutorState.BINDING)
    return early or (executor.state is ExecutorState.BOUND and idle)
