"""A request resolved against the kinds of cards of one fleet: all that stays while the inventory stands.

What decides over a card then is a handful of numbers: the row of the card's kind here, and what the
books say of the card (free compute in GFLOPS, free vram in bytes, the modes of its users).
"""

from __future__ import annotations

from typing import NamedTuple

from ullage.core.filters import KEPT_APART, KIND
from ullage.core.fleet import Fleet
from ullage.core.modes import ANY, WHOLE, mixed
from ullage.core.partition import fitting
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.request import ResourceRequirement

_MAX_SHAPES = 4096
_MAX_OBJECTS = 16_384
"""Requests remembered at a time by their value, and by the objects that say them."""

_UNBOUNDED = 2**62


class Share(NamedTuple):
    """What one share of a request is on cards of one kind.

    `compute` and `vram` are what it takes (GFLOPS and bytes), `most` is how many of them a card takes
    whatever is left. Users in the modes `against` leave no room, those in `mixed` refuse the isolation.
    """

    compute: int
    vram: int
    against: int
    most: int
    mixed: int
    allowed: bool
    kept_apart: bool


class Shape:
    """The shares of one requirement, by kind of card."""

    def __init__(self, fleet: Fleet, asked: ResourceRequirement) -> None:
        self.asked = asked
        self.partitioned = asked.cards.isolation is Isolation.PARTITIONED
        self.shares = tuple(_share(fleet, card, asked) for card in fleet.kinds)


def shape_of(fleet: Fleet, asked: ResourceRequirement) -> Shape:
    """The shape of a requirement on this fleet; an equal requirement has the same one."""
    shapes = fleet.tables.get(_Shapes)
    if not isinstance(shapes, _Shapes):
        shapes = fleet.tables[_Shapes] = _Shapes(fleet)
    return shapes.of(asked)


class _Shapes:
    """Shapes by the requirement itself, and by its value when it is another object."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_object: dict[int, tuple[ResourceRequirement, Shape]] = {}
        self._by_value: dict[ResourceRequirement, Shape] = {}

    def of(self, asked: ResourceRequirement) -> Shape:
        known = self._by_object.get(id(asked))
        return known[1] if known is not None else self._remember(asked)

    def _remember(self, asked: ResourceRequirement) -> Shape:
        if len(self._by_object) >= _MAX_OBJECTS:
            self._by_object.clear()
        shape = self._by_value.get(asked)
        if shape is None:
            if len(self._by_value) >= _MAX_SHAPES:
                self._by_value.clear()
                self._by_object.clear()
            shape = self._by_value[asked] = Shape(self._fleet, asked)
        self._by_object[id(asked)] = asked, shape  # the object is kept, so that its id stays its own
        return shape


def _share(fleet: Fleet, card: int, asked: ResourceRequirement) -> Share:
    gpu = fleet.cards[card]
    compute, vram = (0, 0) if asked.part is None else asked.part.on(gpu.compute, gpu.vram)
    refused = mixed(asked, dynamic=gpu.isolation_policy is IsolationPolicy.DYNAMIC)
    return Share(
        compute,
        vram,
        ANY if asked.whole else refused | WHOLE,
        1 if asked.whole or not (compute or vram) else _UNBOUNDED,
        refused,
        KIND.first(fleet, card, asked) is None,
        KEPT_APART.first(fleet, card, asked) is None,
    )


def units(share: Share, compute_free: int, vram_free: int, modes: int) -> int:
    """How many units a card with so much left and users in these modes could hold one share of.

    The numbers behind the capacity filters: 0 exactly where one of them refuses.
    """
    compute, vram, against, most, _, _, _ = share
    if modes & against or compute > compute_free or vram > vram_free:
        return 0
    if compute:
        most = min(most, compute_free // compute)
    if vram:
        most = min(most, vram_free // vram)
    return most


def units_on(fleet: Fleet, card: int, asked: ResourceRequirement) -> int:
    """`units` of a card that is not excluded, now."""
    shape = shape_of(fleet, asked)
    share, modes = shape.shares[fleet.kind_of[card]], fleet.card_modes.item(card)
    if shape.partitioned:
        return 0 if modes & share.against else fitting(fleet, card, asked)
    return units(share, fleet.compute_free.item(card), fleet.vram_free.item(card), modes)
