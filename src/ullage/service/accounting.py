"""Accounting: who held what, when, and which sessions there were. Each row is stored with the change that it records.

A stay begins and ends in the same write as the executor, or the allocation, that it is about. After a restart the stays
of executors, and what the nodes offered, end at the last moment at which the server is known to have run: the newest
event, or the newest heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ullage.model.allocation import Allocation, AllocationState
from ullage.model.gpu import Gpu
from ullage.model.grant import Grant
from ullage.model.history import CapacitySpan, Expiry, SessionHistory, Stay
from ullage.model.past_state import PastState
from ullage.model.past_use import HalfLife
from ullage.model.quantity import PPM
from ullage.model.resources import MILLI, Resources
from ullage.model.task import TaskState
from ullage.service.journal import Callback, Journal
from ullage.service.past_use import PastUse
from ullage.service.state import ExecutorRecord, SessionRecord, State
from ullage.service.store_port import (
    Drop,
    DropExpired,
    PutAllocation,
    PutCapacity,
    PutHistory,
    PutStay,
    Record,
    Snapshot,
)

HEARTBEAT_S = 60.0
"""Seconds between two heartbeats: a crash loses the use of executors since the newest one, or the newest event."""


class Accounting:
    """Keeps the open rows of the history, and writes each when it changes. With a half-life `past` has the past use."""

    def __init__(
        self, state: State, journal: Journal, clock: Callable[[], float], half_life: HalfLife | None = None
    ) -> None:
        self._state, self._journal, self._clock = state, journal, clock
        self.past = None if half_life is None else PastUse(half_life)
        self._open: dict[int, SessionHistory] = {}
        self._stays: dict[str, Stay] = {}
        """By executor, or by uid of a request."""
        self._number = self._capacity_number = 0
        self._capacity: CapacitySpan | None = None

    def recover(self, snapshot: Snapshot) -> None:
        """End what the last server left open, at its last known moment. Allocations outlive it, and so do their stays.

        It needs the recovered sessions and allocations.
        """
        self._number = snapshot.last_stay
        held = {allocation.id for allocation in snapshot.allocations}
        ended_at = snapshot.alive_at
        if snapshot.capacity is not None:
            self._capacity_number = snapshot.capacity.number
            self._journal.write(PutCapacity(replace(snapshot.capacity, ended_at=ended_at)))
        for stay in snapshot.stays:
            if stay.session is None and stay.holder in held:
                self._stays[stay.holder] = stay
            else:
                self._write_ended(replace(stay, ended_at=max(stay.started_at, ended_at)))
        known = {record.session.number: record for record in self._state.sessions.values() if record.open}
        for history in snapshot.history:
            if history.number in known:
                self._open[history.number] = history
            else:
                lost_at = max(history.created_at, ended_at)
                self._journal.write(PutHistory(replace(history, ended_at=lost_at, state=PastState.LOST)))
        for number, record in known.items():
            if number not in self._open:
                self.opened(record)

    def drop(self, expiry: Expiry, done: Callback) -> None:
        """Drop some expired rows."""
        self._journal.write(DropExpired(expiry), then=done)

    # --- sessions ---

    def opened(self, record: SessionRecord) -> None:
        """Begin the row of a session."""
        info, spec = record.session, record.session.spec
        self._put(
            SessionHistory(
                info.number,
                info.id,
                owner=spec.owner,
                queue=spec.queue,
                application=spec.application,
                resreq=str(spec.resreq),
                created_at=info.created_at,
            )
        )

    def asked(self, record: SessionRecord, now: float) -> tuple[Record, ...]:
        """Return the record that a session submits tasks; none if it has done so before."""
        known = self._open.get(record.session.number)
        if known is None or known.asked_at is not None:
            return ()
        changed = self._open[known.number] = replace(known, asked_at=now)
        return (PutHistory(changed),)

    def ended(self, record: SessionRecord) -> None:
        """End the row of a session that was closed, with its counts."""
        known = self._open.pop(record.session.number, None)
        if known is not None:
            ended = replace(with_counts(known, record), ended_at=self._clock())
            state = PastState.CANCELLED if record.session.cancelled or ended.cancelled else PastState.SUCCEED
            self._journal.write(PutHistory(replace(ended, state=PastState.FAILED if ended.failed else state)))

    def _put(self, history: SessionHistory) -> None:
        self._open[history.number] = history
        self._journal.write(PutHistory(history))

    # --- stays ---

    def begin(self, executor: ExecutorRecord, record: SessionRecord) -> None:
        """Begin the stay of an executor in a session."""
        self.end(executor)
        number, spec = record.session.number, record.session.spec
        stay = Stay(
            self._next(),
            executor.id,
            number,
            owner=spec.owner,
            queue=spec.queue,
            application=spec.application,
            node=executor.node,
            gpus=executor.gpus,
            cards=self._cards(self._state.fleet.ledger[executor.id]),
            cores=executor.requirement.cpu_milli / MILLI,
            memory_bytes=executor.requirement.memory_bytes,
            started_at=self._clock(),
        )
        self._stays[executor.id] = stay
        self._journal.write(PutStay(stay))
        known = self._open.get(number)
        if known is not None and known.started_at is None:
            self._put(replace(known, started_at=stay.started_at, state=PastState.RUNNING))

    def end(self, executor: ExecutorRecord) -> None:
        """End the stay of an executor, if it has one."""
        stay = self._stays.pop(executor.id, None)
        if stay is not None:
            self._write_ended(replace(stay, ended_at=self._clock(), memory_peak_bytes=executor.memory_peak_bytes))

    def _write_ended(self, stay: Stay) -> None:
        self._journal.write(PutStay(stay))
        if self.past is not None:
            self.past.add(stay)

    def of_records(self, records: Sequence[Record]) -> list[Record]:
        """Return the stays that begin or end with allocations of requests that are stored or dropped."""
        found: list[Record] = []
        for record in records:
            if isinstance(record, PutAllocation):
                found += self._hold(record.allocation)
            elif isinstance(record, Drop) and record.kind is PutAllocation:
                found += self._free(record.key)
        return found

    def _hold(self, allocation: Allocation) -> list[Record]:
        claim, known = allocation.claim, self._stays.get(allocation.id)
        if claim is None or allocation.state is AllocationState.FOREIGN:
            return []
        asked = allocation.requirement
        stay = Stay(
            0,
            allocation.id,
            None,
            owner=claim.namespace,
            queue="",
            application=claim.workload,
            node=allocation.node,
            gpus=allocation.gpus,
            cards=self._cards(allocation),
            cores=asked.cpu_milli / MILLI,
            memory_bytes=asked.memory_bytes,
            started_at=self._clock(),
        )
        if known is not None and replace(stay, number=known.number, started_at=known.started_at) == known:
            return []
        ended = self._free(allocation.id)
        stay = self._stays[allocation.id] = replace(stay, number=self._next())
        return [*ended, PutStay(stay)]

    def _free(self, uid: str) -> list[Record]:
        stay = self._stays.get(uid)
        if stay is None or stay.session is not None:
            return []
        del self._stays[uid]
        return [PutStay(replace(stay, ended_at=self._clock()))]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _cards(self, allocation: Allocation) -> float:
        """Return the cards of an allocation; of a shared one the larger of its parts of compute and memory."""
        if not allocation.charges:
            return float(len(allocation.gpus))
        fleet = self._state.fleet
        gpus: list[Gpu | None] = [
            fleet.cards[fleet.card_of[uuid]] if uuid in fleet.card_of else None for uuid in allocation.gpus
        ]
        parts = [
            PPM if gpu is None else Grant.of(gpu, charge).fraction_ppm
            for gpu, charge in zip(gpus, allocation.charges, strict=True)
        ]
        return sum(parts) / PPM

    # --- capacity ---

    def heartbeat(self) -> None:
        """Store that the server runs, and what its nodes offer, if that changed or is not stored yet."""
        now, total = self._clock(), self._state.fleet.total
        known = self._capacity
        if known is None or _amounts(known) != _amounts_of(total):
            self._capacity_number += 1
            if known is not None:
                self._journal.write(PutCapacity(replace(known, ended_at=now)))
            self._capacity = CapacitySpan(self._capacity_number, *_amounts_of(total), started_at=now, ended_at=now)
        elif now - known.ended_at < HEARTBEAT_S:
            return
        else:
            self._capacity = replace(known, ended_at=now)
        self._journal.write(PutCapacity(self._capacity))

    @property
    def stays(self) -> tuple[Stay, ...]:
        """The stays that go on."""
        return tuple(self._stays.values())


def with_counts(history: SessionHistory, record: SessionRecord) -> SessionHistory:
    """Return the row of a session with its present counts."""
    counts = record.counts
    return replace(
        history,
        succeed=counts[TaskState.SUCCEED],
        failed=counts[TaskState.FAILED],
        cancelled=counts[TaskState.CANCELLED],
    )


def _amounts_of(total: Resources) -> tuple[float, float, int]:
    return total.gpu_milli / MILLI, total.cpu_milli / MILLI, total.memory_bytes


def _amounts(span: CapacitySpan) -> tuple[float, float, int]:
    return span.cards, span.cores, span.memory_bytes
