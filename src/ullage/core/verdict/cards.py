"""The verdicts on cards for one request: the reasons of the kernel, with their numbers, as rejections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.modes import MODES, conflicts
from ullage.core.kernel import reasons
from ullage.core.kernel.columns import KIND, Flags
from ullage.core.kernel.row_classes import number_classes
from ullage.core.kernel.verdict import judge_card, judge_cards
from ullage.core.verdict.mismatch import MISMATCHES, mismatch
from ullage.core.verdict.partition import fit, no_template
from ullage.core.verdict.reasons import CURABLE, MEANS
from ullage.core.verdict.shape import shape_of
from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import ANY_CARD, Isolation, IsolationPolicy
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Rejection
from ullage.model.request import ResourceRequirement

_SHORT = (reasons.COMPUTE, reasons.VRAM)
_BY_BOOKS = (reasons.FITS, *range(reasons.COMPUTE, reasons.REASONS))
"""Reasons in the place of which a partition has that of its own search."""

_LARGE, _SHIFT = 1 << 43, 20
"""Amounts of which a million times does not fit into 64 bits, and how far they are shifted first."""


class CardVerdict(NamedTuple):
    """Why a card takes no share: a reason of the kernel, what is needed, and what there is."""

    reason: int
    needed: int
    had: int

    def rejection(self, gpu: Gpu, node: Node, asked: ResourceRequirement) -> Rejection:
        """Return the verdict as a value; not for a partition, which has the rejection of its own search."""
        code, cure = MEANS[self.reason]
        if code in MISMATCHES:
            return mismatch(code, gpu, node, asked)
        if code is Code.NO_PARTITION_TEMPLATE:
            return no_template(gpu, node.name, asked)
        plain = Rejection(code, cure, self.needed, self.had, node=node.name, gpu=gpu.uuid)
        if self.reason != reasons.LOCKED:
            return plain
        dynamic = gpu.isolation_policy is IsolationPolicy.DYNAMIC
        if dynamic and conflicts(self.had):
            return replace(plain, code=Code.ISOLATION_CONFLICT, had=0)
        return replace(plain, had=0, mode=_isolation_in(self.had))


class CardVerdicts:
    """Why each of some cards takes no share of a request: arrays with an entry per card, in the order given.

    `reason` is `FITS` for a card that takes one. The verdicts stay as they are when the books change.
    """

    def __init__(self, fleet: Fleet, asked: ResourceRequirement, cards: Column) -> None:
        self.cards = cards
        self._inventory = fleet.nodes, fleet.cards, fleet.card_row
        self._asked = asked
        self._found = np.zeros((len(cards), 3), dtype=np.int64)
        self._partitions: dict[int, Rejection] = {}
        judge_cards(fleet.card_rows, cards, shape_of(fleet, asked).rows, self._found)
        self.reason, self.needed, self.had = self._found.T
        if fleet.exclusion.excludes(asked.nodes):
            self._exclude_nodes(fleet)
        if asked.cards.isolation is Isolation.PARTITIONED:
            self._search_places(fleet)
        elif asked.part is not None and asked.part.fraction_ppm:
            self._count_as_fractions(fleet, asked.part.fraction_ppm)

    @cached_property
    def curable(self) -> Flags:
        """Per card, whether freed capacity could cure its reason; a card that fits needs no cure."""
        return CURABLE[self.reason]

    @cached_property
    def classes(self) -> Column:
        """Per card, the class of its rejection: those of one class differ only in names and in what there was."""
        own = np.where(self.reason == reasons.LOCKED, self.had, 0)
        own = np.where(self.reason == reasons.PARTITION, np.arange(len(own)), own)
        numbers, _ = number_classes(np.column_stack([self.reason, self.needed, own]))
        return numbers

    def rejection(self, k: int) -> Rejection:
        """Return the rejection of the k-th card, which does not fit."""
        if k in self._partitions:
            return self._partitions[k]
        nodes, cards, rows = self._inventory
        card = self.cards.item(k)
        verdict = CardVerdict(*self._found[k].tolist())
        return verdict.rejection(cards[card], nodes[rows.item(card)], self._asked)

    def _exclude_nodes(self, fleet: Fleet) -> None:
        nodes, rows, exclusion = self._asked.nodes, fleet.card_row[self.cards], fleet.exclusion
        masks = (reasons.NODE_AFFINITY, exclusion.matching(nodes)), (reasons.NODE_TAINTED, exclusion.tolerated(nodes))
        for reason, allowed in masks:
            later = (self.reason == reasons.FITS) | (self.reason > reason)
            self._found[~allowed[rows] & later] = reason, 0, 0

    def _search_places(self, fleet: Fleet) -> None:
        for k in np.isin(self.reason, _BY_BOOKS).nonzero()[0].tolist():
            found = fit(fleet, self.cards.item(k), self._asked)
            if isinstance(found, Rejection):
                self._found[k] = reasons.PARTITION, found.needed, found.had
                self._partitions[k] = found

    def _count_as_fractions(self, fleet: Fleet, fraction_ppm: int) -> None:
        """Give what is short as a fraction of the card, in millionths, where a fraction was requested."""
        short = np.isin(self.reason, _SHORT).nonzero()[0]
        if not len(short):
            return
        cards = self.cards[short]
        compute = _in_ppm(fleet.compute_free[cards], fleet.compute_total[cards])
        vram = _in_ppm(fleet.vram_free[cards], fleet.vram_total[cards])
        self._found[short, 0], self._found[short, 1] = reasons.SHARE, fraction_ppm
        self._found[short, 2] = np.minimum(compute, vram)


def _in_ppm(free: Column, total: Column) -> Column:
    """Return what is free in millionths of the total, 0 or more; `PPM` where there is no total."""
    large = total >= _LARGE
    free, total = np.where(large, free >> _SHIFT, free), np.where(large, total >> _SHIFT, total)
    return np.where(total > 0, np.maximum(0, free) * PPM // np.maximum(1, total), PPM)


def _isolation_in(modes: int) -> Isolation:
    """Return the isolation of the users of a card that is in these modes; a whole card is shared with nobody."""
    return next((isolation for isolation, bit in MODES.items() if modes & bit), Isolation.SHARED)


def refusal_of(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    """Return why a card takes no share of a request now; None if it takes one."""
    if fleet.exclusion.excludes(asked.nodes) or _counts_otherwise(asked):
        verdicts = CardVerdicts(fleet, asked, np.array([card]))
        return None if verdicts.reason.item(0) == reasons.FITS else verdicts.rejection(0)
    verdict = CardVerdict(*map(int, judge_card(fleet.card_rows, card, shape_of(fleet, asked).rows)))
    if verdict.reason == reasons.FITS:
        return None
    return verdict.rejection(fleet.cards[card], fleet.nodes[fleet.card_row.item(card)], asked)


def _counts_otherwise(asked: ResourceRequirement) -> bool:
    """Return whether the kernel's verdict of a card is not the last word: partitions, and parts given as fractions."""
    partitioned = asked.cards.isolation is Isolation.PARTITIONED
    return partitioned or (asked.part is not None and bool(asked.part.fraction_ppm))


def exclusion_of(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    """Return why a card never takes a share of a request, whatever is freed on it; None if freed capacity can help.

    More than the whole card has is no exclusion: it may grow with the card.
    """
    verdicts = CardVerdicts(fleet, asked, np.array([card]))
    return verdicts.rejection(0) if 0 < verdicts.reason.item(0) <= reasons.EXCLUSIONS else None


def open_cards(fleet: Fleet, row: int, asked: ResourceRequirement) -> list[int]:
    """Return the cards of a node that could take a share of one unit now."""
    verdicts = CardVerdicts(fleet, asked, np.array(fleet.cards_on(row), dtype=np.int64))
    fits: list[int] = verdicts.cards[verdicts.reason == reasons.FITS].tolist()
    return fits


def any_takes(fleet: Fleet, asked: ResourceRequirement, cards: Sequence[int]) -> bool:
    """Return whether one of these cards could take a share of one unit now."""
    verdicts = CardVerdicts(fleet, asked, np.array(cards, dtype=np.int64))
    return bool((verdicts.reason == reasons.FITS).any())


def free_cards(fleet: Fleet, asked: ResourceRequirement) -> Column:
    """Return per node how many cards could take a share of one unit now."""
    if asked.cards == ANY_CARD:
        return fleet.gpu_free
    verdicts = CardVerdicts(fleet, asked, np.arange(len(fleet.cards)))
    return np.bincount(fleet.card_row[verdicts.reason == reasons.FITS], minlength=len(fleet.nodes))


def charge_on(fleet: Fleet, card: int, asked: ResourceRequirement) -> Charge:
    """Return what a share of the request takes of a card that has room for it; not for whole cards."""
    if asked.cards.isolation is Isolation.PARTITIONED:
        found = fit(fleet, card, asked)
        assert isinstance(found, Charge), "the card has room"
        return found
    return shape_of(fleet, asked).charges[fleet.card_rows.item(card, KIND)]


def charges_on(fleet: Fleet, cards: Sequence[int], asked: ResourceRequirement) -> tuple[Charge, ...]:
    """Return what a unit takes of each of its cards; empty for whole ones."""
    return () if asked.whole else tuple(charge_on(fleet, card, asked) for card in cards)
