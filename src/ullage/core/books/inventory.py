"""The inventory: machines and cards as they are, whatever is allocated; and what a request counts for on them.

Nodes are rows, sorted by name. Cards lie flat, those of a row by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from math import ceil
from operator import attrgetter

import numpy as np

from ullage.core.books.exclusion import Exclusion
from ullage.core.books.inventory_check import check_inventory
from ullage.core.books.labels import Labels
from ullage.core.books.usage import CardHolding
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation, Part
from ullage.model.profile import Profiles
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources

_OWN = ("uuid", "index", "bus_id", "zones", "slice_uuids")
_KIND = attrgetter(*(fact.name for fact in fields(Gpu) if fact.name not in _OWN))
"""The facts of a card that decide what it may take."""


class Inventory:
    """Machines and cards. Those of node row r lie from `gpu_start[r]` to before `gpu_start[r + 1]`.

    `profiles` give the partitions of cards.

    Raises:
        InvalidRequest: the inventory is not valid, see `check_inventory`.

    """

    def __init__(self, nodes: Iterable[Node], profiles: Profiles) -> None:
        self.profiles = profiles
        self.nodes: tuple[Node, ...] = tuple(map(_by_index, sorted(nodes, key=lambda node: node.name)))
        check_inventory(self.nodes)
        self.row_of = {node.name: row for row, node in enumerate(self.nodes)}
        self.schedulable = np.array([node.schedulable for node in self.nodes], dtype=np.bool_)
        self.exclusion = Exclusion(Labels(self.nodes))
        self.gpu_start = np.cumsum([0, *(len(node.gpus) for node in self.nodes)])
        self._starts: list[int] = self.gpu_start.tolist()
        self.cards = tuple(gpu for node in self.nodes for gpu in node.gpus)
        self.card_of = {gpu.uuid: card for card, gpu in enumerate(self.cards)}
        self.card_row = np.repeat(np.arange(len(self.nodes)), np.diff(self.gpu_start))
        self.card_usable = np.array([gpu.usable for gpu in self.cards], dtype=np.bool_)
        kinds: dict[object, int] = {}
        self.kind_of = np.array([kinds.setdefault(_KIND(gpu), len(kinds)) for gpu in self.cards], dtype=np.int64)
        """Per card its kind: cards of one kind differ only in who they are and where they sit."""
        self.kinds: tuple[int, ...] = tuple(np.unique(self.kind_of, return_index=True)[1].tolist())
        """The first card of each kind."""
        self.total = _sum_of(node.allocatable for node in self.nodes if node.schedulable)
        """What the nodes that may take work have; whole cards only."""
        self._shares: dict[ResourceRequirement, Fraction] = {}

    # --- cards by their position ---

    def cards_on(self, row: int) -> range:
        """Flat positions of a node's cards."""
        return range(self._starts[row], self._starts[row + 1])

    def uuids(self, cards: Sequence[int]) -> tuple[str, ...]:
        """Identities of cards given by their flat position."""
        return tuple([self.cards[card].uuid for card in cards])

    def names(self, rows: Iterable[int]) -> frozenset[str]:
        """Return the names of the nodes in these rows."""
        return frozenset([self.nodes[row].name for row in rows])

    def at(self, cards: Iterable[int]) -> tuple[Gpu, ...]:
        """Return cards of the inventory by their flat position."""
        return tuple([self.cards[card] for card in cards])

    def gpus(self, uuids: Iterable[str]) -> tuple[Gpu, ...]:
        """Return cards of the inventory by their identities."""
        return tuple([self.cards[self.card_of[uuid]] for uuid in uuids])

    # --- what a request counts for ---

    def resources(self, requirement: ResourceRequirement) -> Resources:
        """Return what a unit of this requirement counts for in shares and limits.

        A part named in TFLOPS or bytes counts as the larger of its fractions of a card, on the card where
        that is least, in thousandths rounded up (at least one, at most a whole card). A partition counts
        as what it takes, not as what is asked.
        """
        partitioned = requirement.cards.isolation is Isolation.PARTITIONED
        if not partitioned and (requirement.part is None or requirement.part.share_milli):
            return requirement.resources
        share = ceil(self.share_of_card(requirement) * MILLI)
        return Resources(requirement.cpu_milli, requirement.memory_bytes, requirement.gpu_count * share)

    def holding(self, requirement: ResourceRequirement, units: int) -> CardHolding:
        """Return what so many units count for, as `resources` but with parts of cards exact: for display."""
        cards = requirement.gpu_count and requirement.gpu_count * self.share_of_card(requirement)
        return CardHolding(
            requirement.cpu_milli * units, requirement.memory_bytes * units, Fraction(cards) * MILLI * units
        )

    def share_of_card(self, requirement: ResourceRequirement) -> Fraction:
        """Return the part of each of its cards that a unit counts for, exactly; `resources` says how."""
        part = requirement.part or Part()
        if requirement.cards.isolation is not Isolation.PARTITIONED:
            if requirement.whole or requirement.part is None:
                return Fraction(1)
            if part.share_milli:
                return Fraction(max(part.compute_ppm, part.vram_ppm), PPM)
        known = self._shares.get(requirement)
        if known is None:
            known = self._shares[requirement] = self._share_of_card(requirement)
        return known

    def _share_of_card(self, requirement: ResourceRequirement) -> Fraction:
        kinds = {
            (gpu.compute, gpu.vram, gpu.model, gpu.vendor, gpu.partitions): gpu
            for gpu in self.cards
            if gpu.compute_gflops or gpu.vram_bytes
        }
        amounts = [(self.amounts_on(gpu, requirement), (gpu.compute, gpu.vram)) for gpu in kinds.values()]
        shares = [_share(amount, capacity) for amount, capacity in amounts if amount is not None]
        return min(Fraction(1), min(shares, default=Fraction(1)))

    def amounts_on(self, gpu: Gpu, requirement: ResourceRequirement) -> tuple[int, int] | None:
        """Return what a share of this requirement takes of such a card; None if it has no such partition."""
        part = requirement.part or Part()
        if requirement.cards.isolation is not Isolation.PARTITIONED:
            return part.on(gpu.compute, gpu.vram)
        found = self.profiles.choose(gpu, part, requirement.cards.template)
        if found is None:
            return None
        profile, template = found
        compute, vram = profile.usage(template, gpu.compute, gpu.vram)
        return compute * requirement.cards.slices, vram * requirement.cards.slices


def _sum_of(amounts: Iterable[Resources]) -> Resources:
    total = Resources()
    for each in amounts:
        total += Resources(each.cpu_milli, each.memory_bytes, each.gpu_milli // MILLI * MILLI)
    return total


def _by_index(node: Node) -> Node:
    """Return the node with its cards in order of index, whatever order they came in."""
    cards = tuple(sorted(node.gpus, key=lambda gpu: (gpu.index, gpu.uuid)))
    return node if cards == node.gpus else replace(node, gpus=cards)


def _share(amounts: tuple[int, int], capacity: tuple[int, int]) -> Fraction:
    """Return the larger fraction of a card."""
    return max(
        Fraction(amount, total) if total else Fraction(1) for amount, total in zip(amounts, capacity, strict=True)
    )
