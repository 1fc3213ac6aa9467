"""Reports of nodes about the holders of cards: they are entered in the ledger, stored, and compared with decisions."""

from __future__ import annotations

from ullage.core.books.observation import Observation, foreign_id
from ullage.model.allocation import Allocation
from ullage.model.holding import Use
from ullage.service.context import ServiceContext
from ullage.service.journal import in_one_write
from ullage.service.store_port import Drop, PutAllocation, Record


class Observations:
    """Use cases of what is observed. A mismatch is an event `allocation.mismatch`, which is how it is counted."""

    def __init__(self, context: ServiceContext) -> None:
        self._state, self._journal, self._events = context.state, context.journal, context.events
        self._clock, self._changed = context.clock, context.changed

    @in_one_write
    def observed(self, node: str, use: Use) -> Observation:
        """Enter what a node reports to be held there. It takes precedence over decisions.

        Raises:
            NotFound: no such node.

        """
        ledger, uid = self._state.fleet.ledger, foreign_id(node)
        before, now = ledger.get(uid), self._clock()
        found = self._state.allocator.observe(node, use, now)
        for each in found.mismatches:
            bound, shown = each.bound, each.shown
            self._events.add(
                "allocation.mismatch", uid=each.uid, node=node, resource=each.resource, bound=bound, shown=shown
            )
        if found.owners != self.strangers(node):
            gpus = found.foreign.gpus if found.foreign else ()
            self._events.add("node.unknown-owners", message=", ".join(found.owners), node=node, gpus=gpus)
        gone = before is not None and found.foreign is None
        records: list[Record] = [PutAllocation(held) for held in found.changed if not held.of_session]
        records.append(self._state.mark(node, strangers=found.owners, observed_at=now))
        self._journal.write(*records, *([Drop(PutAllocation, uid)] if gone else []))
        for held in found.changed:
            self._follow(held)
        if found.changed or gone:
            self._changed(True)
        return found

    def strangers(self, node: str) -> tuple[str, ...]:
        """Return the unknown owners that hold resources of a node, by its last report."""
        mark = self._state.marks.get(node)
        return () if mark is None else mark.strangers

    def foreign(self) -> tuple[Allocation, ...]:
        """Return what unknown owners hold, one entry per node."""
        ledger = self._state.fleet.ledger
        entries = (ledger.get(foreign_id(node)) for node in sorted(self._state.nodes))
        return tuple(held for held in entries if held is not None)

    def unconfirmed(self) -> tuple[Allocation, ...]:
        """Return bound allocations by uid that their node, which reports its allocations, has not reported in time."""
        return self._state.allocator.unconfirmed(self._clock())

    def is_unconfirmed(self, held: Allocation) -> bool:
        """Return whether an allocation is unconfirmed."""
        return self._state.allocator.is_unconfirmed(held, self._clock())

    def _follow(self, held: Allocation) -> None:
        executor = self._state.executors.get(held.id)
        if executor is not None:
            executor.gpus, executor.placement = held.gpus, held.placement
