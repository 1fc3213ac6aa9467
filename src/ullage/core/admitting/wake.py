"""Which waiting requests to try again after a change.

A card wakes a request that fits on it now and did not before: the filters compare one card with the part of the
request on one card. Quotas, places for workers and other facts of a node wake only the requests that they refused.
These functions are pure: `look` records a card before and after the change.

The service wakes nominated requests by their node and by quotas. Gangs are tried again after any change, because two
members may share a card: one that had room for one member before may have room for both only now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.topology.rules import ZoneRules
from ullage.core.verdict.cards import refusal_of
from ullage.core.verdict.stages import Rejections
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.profile import Profiles
from ullage.model.rejection import Code, Rejection

OF_NODE = frozenset(
    {Code.WORKER_CAP, Code.OVERSUBSCRIPTION, Code.CPU, Code.MEMORY, Code.NOT_READY, Code.CORDONED}
    | {Code.TOPOLOGY_UNKNOWN, Code.NODE_POLICY_WEAKER, Code.ZONES_TOO_MANY, Code.NOT_ALIGNED, Code.SHORT_ALLOCATION}
    | {Code.BROKEN_CORES, Code.NOT_LINKED, Code.OFF_SWITCH}
)
"""Reasons that hold for a whole node."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a trial depended on: as long as it is equal, the result is equal."""

    version: int
    fleet: Fleet
    rules: Rules
    waiting: tuple[str, ...]

    def same(self, other: Tried | None) -> bool:
        """Return whether nothing changed since the other trial."""
        if other is None or self.fleet is not other.fleet or self.rules is not other.rules:
            return False
        return (self.version, self.waiting) == (other.version, other.waiting)


@dataclass(frozen=True, slots=True)
class Causes:
    """The nodes that refused a request for themselves, and the quotas that did, in any stage."""

    nodes: frozenset[str] = frozenset()
    quotas: frozenset[str] = frozenset()

    @classmethod
    def of(cls, refusal: Refusal) -> Causes:
        """Return the causes in a refusal. Rejections of equal cards are not expanded: there may be one per card."""
        nodes, quotas = set[str](), set[str]()
        for rejections in (refusal.rejections, *(stage.removed for stage in refusal.stages)):
            kinds: Sequence[Rejection] = rejections
            if isinstance(rejections, Rejections):
                kinds = rejections.kinds
                nodes |= rejections.nodes(OF_NODE)
            else:
                nodes.update(each.node for each in rejections if each.node is not None and each.code in OF_NODE)
            quotas.update(each.quota.namespace for each in kinds if each.quota is not None)
        return cls(frozenset(nodes), frozenset(quotas))


NO_CAUSES = Causes()


@dataclass(frozen=True, slots=True)
class Pending:
    """A waiting request: its last refusal, and the node that is being cleared for it."""

    request: Request
    causes: Causes = NO_CAUSES
    nominated: str | None = None


@dataclass(frozen=True, slots=True)
class CardLook:
    """One card and its holders at one moment; `node` has no other cards."""

    node: Node
    held: tuple[Allocation, ...]
    profiles: Profiles
    zone_rules: ZoneRules

    @property
    def gpu(self) -> Gpu:
        return self.node.gpus[0]

    def books(self) -> Fleet:
        """Return books of this card alone."""
        return Fleet([self.node], self.held, profiles=self.profiles, zone_rules=self.zone_rules)


def look(fleet: Fleet, gpu: str) -> CardLook | None:
    """Return the present state of a card; None if it is not known."""
    card = fleet.card_of.get(gpu)
    if card is None:
        return None
    node = fleet.nodes[int(fleet.card_row[card])]
    held = tuple(
        replace(fleet.ledger[holder], gpus=(gpu,), charges=() if charge is None else (charge,))
        for holder, charge in fleet.holders[card].items()
    )
    return CardLook(replace(node, gpus=(fleet.cards[card],)), held, fleet.profiles, fleet.board.rules)


def woken_by_card(before: CardLook | None, after: CardLook | None, pending: Iterable[Pending]) -> tuple[str, ...]:
    """Return the uids that a change of one card wakes, in the given order.

    These are requests that fit on it now and did not before, requests in whose pool it starts running, and those
    that are nominated to its node.
    """
    nodes = {seen.node.name for seen in (before, after) if seen is not None}
    starts = after is not None and after.gpu.usable and not (before is not None and before.gpu.usable)
    old, new = before.books() if before else None, after.books() if after else None
    return tuple(
        waiting.request.uid
        for waiting in pending
        if waiting.nominated in nodes
        or (starts and after is not None and _in_pool(after.gpu, waiting.request))
        or (_fits(new, waiting.request) and not _fits(old, waiting.request))
    )


def woken_by_quota(quotas: Iterable[str], pending: Iterable[Pending]) -> tuple[str, ...]:
    """Return the uids that one of these quotas refused; call it when their usage fell, or they grew.

    `Quotas.levels` returns the quotas of a namespace that frees something.
    """
    names = frozenset(quotas)
    return tuple(waiting.request.uid for waiting in pending if not names.isdisjoint(waiting.causes.quotas))


def woken_by_nodes(nodes: Iterable[str], pending: Iterable[Pending]) -> tuple[str, ...]:
    """Return the uids that one of these nodes refused for a reason of its own, or that are nominated to one.

    Call it when an allocation there ends or shrinks, or the state of a node changes.
    """
    names = frozenset(nodes)
    return tuple(
        waiting.request.uid
        for waiting in pending
        if waiting.nominated in names or not names.isdisjoint(waiting.causes.nodes)
    )


def _fits(books: Fleet | None, request: Request) -> bool:
    return books is not None and refusal_of(books, 0, request.requirement) is None


def _in_pool(gpu: Gpu, request: Request) -> bool:
    return request.requirement.cards.pool in (None, gpu.pool)
