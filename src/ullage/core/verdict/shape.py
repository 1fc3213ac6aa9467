"""A request resolved against the kinds of cards of one fleet: all that stays while the inventory stands.

What decides over a card then is a handful of numbers: the row of the card's kind here, and the card's own
row in the books.
"""

from __future__ import annotations

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.books.modes import ANY, MIXED, WHOLE, mixed
from ullage.core.kernel import columns as at
from ullage.core.kernel.board import ALONE, BEST_LINKS, CONNECT, NEEDED, ON_SWITCH, ONE_ISLAND, SEATED
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.reasons import FITS
from ullage.core.verdict.kinds import exclusion_of, keeps_apart
from ullage.model.alignment import LinkDemand
from ullage.model.allocation import Charge
from ullage.model.gpu import GpuPhase
from ullage.model.part import WHOLE_CARD, Isolation, IsolationPolicy, Part
from ullage.model.request import ResourceRequirement

_DEMANDS = {LinkDemand.BEST: BEST_LINKS, LinkDemand.ISLAND: ONE_ISLAND}

_MAX_SHAPES = 4096
_MAX_OBJECTS = 16_384
"""Requests remembered at a time by their value, and by the objects that say them."""


class Shape:
    """One requirement as rows of numbers (see `core/kernel/columns.py`).

    Itself, then a share by kind of card, what it is aligned by, the cards that it names.
    """

    def __init__(self, fleet: Fleet, asked: ResourceRequirement) -> None:
        self.asked = asked
        self.partitioned = asked.cards.isolation is Isolation.PARTITIONED
        named, kinds = _named(fleet, asked), len(fleet.kinds)
        needs, policy = fleet.board.needs(asked), asked.alignment.effective_policy
        self.rows = np.zeros((1 + kinds + len(needs) + len(named), at.SHAPE_COLUMNS), dtype=np.int64)
        self.rows[0, : at.POLICY + 1] = (
            min(asked.cpu_milli, at.UNREACHABLE),
            min(asked.memory_bytes, at.UNREACHABLE),
            asked.gpu_count,
            asked.whole,
            -1,
            len(named),
            len(needs),
            -1 if policy is None else policy.rank,
        )
        for row, need in enumerate(needs, 1 + kinds):
            self.rows[row, : len(need)] = need
        if needs:
            links = asked.alignment.links
            self.rows[1 + kinds : 1 + kinds + len(needs), CONNECT] = 0 if links is None else _DEMANDS[links]
            codes = fleet.board.switch_codes(asked)
            self.rows[1 + kinds : 1 + kinds + len(needs), ON_SWITCH] = [need[NEEDED] in codes for need in needs]
            self.rows[1 + kinds, ALONE] = asked.whole or asked.part == WHOLE_CARD
            self.rows[1 + kinds, SEATED] = fleet.board.seats(asked)
        self.rows[1 + kinds + len(needs) :, : at.NAME + 1] = named
        for kind, card in enumerate(fleet.kinds):
            share = _share(fleet, card, asked)
            self.rows[kind + 1, : len(share)] = share
        part = asked.part or Part()
        self.charges = tuple(Charge.of(part, fleet.cards[card], asked.cards.isolation) for card in fleet.kinds)
        """What one share takes of a card, by kind, if it is neither a whole card nor a partition."""
        self.kinds = tuple(
            card
            for card, row in zip(fleet.kinds, self.rows[1 : 1 + kinds].tolist(), strict=True)
            if row[at.EXCLUDED] == FITS
        )
        """One card of each kind that may take it at all."""
        self.cases: dict[object, object] = {}
        """What else is known of requests of this shape (see `core/placing/selection.py`)."""


def shape_of(fleet: Fleet, asked: ResourceRequirement) -> Shape:
    """Return the shape of a requirement on this fleet; an equal requirement has the same one."""
    shapes = fleet.tables.get(_Shapes)
    if not isinstance(shapes, _Shapes):
        shapes = fleet.tables[_Shapes] = _Shapes(fleet)
    known = shapes.by_object.get(id(asked))
    return shapes.remember(asked) if known is None else known[1]


class _Shapes:
    """Shapes by the requirement itself, and by its value when it is another object."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.by_object: dict[int, tuple[ResourceRequirement, Shape]] = {}
        self._by_value: dict[ResourceRequirement, Shape] = {}

    def remember(self, asked: ResourceRequirement) -> Shape:
        if len(self.by_object) >= _MAX_OBJECTS:
            self.by_object.clear()
        shape = self._by_value.get(asked)
        if shape is None:
            if len(self._by_value) >= _MAX_SHAPES:
                self._by_value.clear()
                self.by_object.clear()
            shape = self._by_value[asked] = Shape(self._fleet, asked)
        self.by_object[id(asked)] = asked, shape  # the object is kept, so that its id stays its own
        return shape


def _named(fleet: Fleet, asked: ResourceRequirement) -> Rows:
    """Return the cards that a request names; one that is not in the books is named as none of them."""
    cards = asked.cards
    rows = [
        *((at.BY_INDEX, index) for index in cards.indices),
        *((at.BY_CARD, fleet.card_of.get(uuid, -1)) for uuid in cards.uuids),
        *((at.NOT_CARD, fleet.card_of[uuid]) for uuid in cards.not_uuids if uuid in fleet.card_of),
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, at.NAME + 1)


def _share(fleet: Fleet, card: int, asked: ResourceRequirement) -> tuple[int, ...]:
    """Return one share of a request on cards like this one, in the order of the columns."""
    gpu = fleet.cards[card]
    modes = mixed(asked, dynamic=gpu.isolation_policy is IsolationPolicy.DYNAMIC)
    compute, vram = (0, 0) if asked.part is None else asked.part.on(gpu.compute, gpu.vram)
    if asked.cards.isolation is Isolation.PARTITIONED:
        compute = vram = 0  # it takes what the template says, where there is a place for it
    return (
        min(compute, at.UNREACHABLE),
        min(vram, at.UNREACHABLE),
        1 if asked.whole or not (compute or vram) else at.UNREACHABLE,
        modes,
        exclusion_of(gpu, asked, fleet.profiles),
        keeps_apart(gpu, asked),
        gpu.phase is GpuPhase.PENDING,
        at.UNREACHABLE if gpu.max_users is None or not asked.shares_cards else gpu.max_users,
        modes | (ANY | MIXED if asked.whole else WHOLE),
    )
