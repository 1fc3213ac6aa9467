"""The holders of cards on the nodes of a cluster: who they are, who is leaving, and their priorities."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ullage.core.allocator import FleetAllocator
from ullage.model.allocation import Allocation
from ullage.model.claim import Request


class Holders:
    """Questions about the present ledger."""

    def __init__(self, allocator: FleetAllocator) -> None:
        self._allocator = allocator

    def on(self, nodes: Iterable[str]) -> list[Allocation]:
        """Return the allocations with cards on these nodes."""
        fleet = self._allocator.fleet
        rows = [fleet.row_of[node] for node in nodes if node in fleet.row_of]
        return [fleet.ledger[uid] for row in rows for uid in fleet.card_holders(fleet.cards_on(row))]

    def being_left(self, nodes: Iterable[str]) -> list[str]:
        """Return those of these nodes that an allocation is leaving."""
        fleet = self._allocator.fleet
        return sorted({fleet.ledger[uid].node for uid in fleet.leaving}.intersection(nodes))

    def is_leaving(self, uid: str) -> bool:
        """Return whether a request is leaving, or holds nothing any more."""
        fleet = self._allocator.fleet
        return uid in fleet.leaving or uid not in fleet.ledger

    def is_schedulable(self, node: str) -> bool:
        """Return whether a node exists, is ready and schedulable."""
        fleet = self._allocator.fleet
        return node in fleet.row_of and fleet.nodes[fleet.row_of[node]].schedulable

    def any_leaves(self, node: str, below: float = math.inf) -> bool:
        """Return whether an allocation with a priority below `below` is leaving this node."""
        fleet = self._allocator.fleet
        there = (held for uid in fleet.leaving if (held := fleet.ledger[uid]).node == node)
        return any(held.claim is None or held.claim.priority < below for held in there)

    @property
    def lowest_priority(self) -> float:
        """The lowest priority among holders of cards; infinite if there are none."""
        claims = (held.claim for held in self._allocator.fleet.ledger.values())
        return min((claim.priority for claim in claims if claim is not None), default=math.inf)

    def with_lower_priority(self, request: Request, nodes: Iterable[str]) -> list[str]:
        """Return those of these nodes with cards held at a lower priority, the lowest first."""
        own, asked = request.claim.priority, set(nodes)
        highest: dict[str, int] = {}
        for held in self._allocator.fleet.ledger.values():
            if held.node in asked and held.claim is not None and held.claim.priority < own:
                highest[held.node] = max(highest.get(held.node, held.claim.priority), held.claim.priority)
        return sorted(highest, key=lambda node: (highest[node], node))
