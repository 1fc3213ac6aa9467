"""May a card take one unit of a request: one rule per filter, in the order in which they are told.

Exclusion looks at what freed capacity cannot change and is decided once per inventory; capacity looks
at the books. A filter answers None, or a rejection with what was needed and what there was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.books.modes import WHOLE, conflicts, mixed
from ullage.core.verdict.equivalence import DependsOn
from ullage.core.verdict.mismatch import mismatch
from ullage.core.verdict.partition import fit, template_for
from ullage.model.affinity import ANY_NODE
from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.part import ANY_CARD, CardSelector, Isolation, IsolationPolicy, Part
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement


class StageKind(StrEnum):
    """What could cure a refusal: nothing but a change of the card, or capacity that is freed."""

    EXCLUSION = "exclusion"
    CAPACITY = "capacity"
    NODE = "node"


_AMOUNTS = (Code.GPU_COMPUTE, Code.GPU_VRAM)

Check = Callable[[Fleet, int, ResourceRequirement], Rejection | None]


@dataclass(frozen=True, slots=True)
class Filter:
    """A named rule over single cards; it takes part only where `applies` says so. `by` is what it goes by."""

    name: str
    kind: StageKind
    check: Check
    applies: Callable[[ResourceRequirement], bool] = lambda _asked: True
    by: DependsOn = DependsOn.CARD


@dataclass(frozen=True, slots=True)
class Stage:
    """What one filter did: cards before and after it, and why each of the others went."""

    filter: str
    kind: StageKind
    reached: bool
    before: int
    after: int
    removed: Sequence[Rejection] = ()
    kept: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """Filters in order. `with_` makes a new chain; this one stays as it is."""

    filters: tuple[Filter, ...]

    def with_(self, *filters: Filter) -> Chain:
        """Return a chain in which these come after those of this one."""
        return Chain((*self.filters, *filters))

    def first(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
        """Return the first refusal for one card."""
        for filter_ in self.filters:
            if filter_.applies(asked):
                rejection = filter_.check(fleet, card, asked)
                if rejection is not None:
                    return rejection
        return None


# --- exclusion ---


def _no(code: Code, fleet: Fleet, card: int, cure: Cure = Cure.NODE_CHANGE, needed: int = 0, had: int = 0) -> Rejection:
    return Rejection(code, cure, needed, had, fleet.nodes[int(fleet.card_row[card])].name, fleet.cards[card].uuid)


def _pool(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    return None if fleet.cards[card].pool == asked.cards.pool else mismatch(Code.WRONG_POOL, fleet, card, asked)


def _phase(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    gpu = fleet.cards[card]
    if gpu.used_by:
        return _no(Code.USED_BY_OTHER, fleet, card)
    if not gpu.healthy:
        return _no(Code.GPU_MISSING, fleet, card)
    if gpu.cordoned:
        return _no(Code.GPU_CORDONED, fleet, card)
    if gpu.phase is not GpuPhase.RUNNING:
        return _no(Code.GPU_NOT_RUNNING, fleet, card)
    if gpu.empty:
        return _no(Code.NO_CAPACITY, fleet, card)
    unknown = needs_capacity(gpu, asked) and _is_of_kind(gpu, asked)
    return _no(Code.CAPACITY_UNKNOWN, fleet, card) if unknown else None


def _is_of_kind(gpu: Gpu, asked: ResourceRequirement) -> bool:
    """Return whether a card is of the requested vendor and model. Otherwise its capacity would not help."""
    vendors = asked.cards.vendors
    return (not vendors or gpu.vendor in vendors) and asked.cards.takes_model(gpu.model)


def needs_capacity(gpu: Gpu, asked: ResourceRequirement) -> bool:
    """Refuse amounts in absolute units, and slices, on a card of unknown capacity."""
    part = asked.part or Part()
    partitioned = asked.cards.isolation is Isolation.PARTITIONED
    compute = part.compute_gflops > 0 and gpu.compute_gflops is None
    return compute or ((part.vram_bytes > 0 or partitioned) and gpu.vram_bytes is None)


def _isolation_policy(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    gpu, mode, wanted = fleet.cards[card], asked.cards.isolation, asked.cards.policy
    if wanted is not None and wanted is not gpu.isolation_policy:
        return _no(Code.ISOLATION_POLICY, fleet, card)
    if gpu.isolation_policy is IsolationPolicy.STATIC:
        fits = mode is Isolation.SHARED or gpu.isolation in (None, mode)
        return None if fits else _no(Code.ISOLATION_POLICY, fleet, card)
    return _no(Code.ISOLATION_POLICY, fleet, card) if mode is Isolation.PARTITIONED else None


def _index(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    return None if fleet.cards[card].index in asked.cards.indices else mismatch(Code.WRONG_INDEX, fleet, card, asked)


def _uuid(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    return None if asked.cards.takes_uuid(fleet.cards[card].uuid) else mismatch(Code.WRONG_UUID, fleet, card, asked)


def _isolation_support(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    supported = fleet.cards[card].isolations
    if supported is None or asked.cards.isolation in supported or asked.cards.isolation is Isolation.SHARED:
        return None
    if not _is_of_kind(fleet.cards[card], asked):
        return None  # that is said of it
    return _no(Code.ISOLATION_UNSUPPORTED, fleet, card)


def _model(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    return None if asked.cards.takes_model(fleet.cards[card].model) else mismatch(Code.WRONG_MODEL, fleet, card, asked)


def _vendor(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    return None if fleet.cards[card].vendor in asked.cards.vendors else mismatch(Code.WRONG_VENDOR, fleet, card, asked)


def _node(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    node = fleet.nodes[int(fleet.card_row[card])]
    return None if asked.nodes.allows(node.name, node.labels) else mismatch(Code.NODE_AFFINITY, fleet, card, asked)


def _template(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    found = template_for(fleet, card, asked)
    return None if found is not None else _no(Code.NO_PARTITION_TEMPLATE, fleet, card)


# --- capacity ---


def _lock(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    """Refuse another isolation on a dynamic card in use: it keeps that of its first user until the last one leaves."""
    dynamic = fleet.cards[card].isolation_policy is IsolationPolicy.DYNAMIC
    held = fleet.card_modes.item(card)
    if dynamic and conflicts(held):
        return _too_small(fleet, card, asked) or _no(Code.ISOLATION_CONFLICT, fleet, card, Cure.CAPACITY)
    if not held & mixed(asked, dynamic=dynamic):
        return None
    if (never := _too_small(fleet, card, asked)) is not None:
        return never
    user = next(iter(fleet.holders[card].values()))
    mode = Isolation.SHARED if user is None else user.isolation
    return replace(_no(Code.ISOLATION_LOCKED, fleet, card, Cure.CAPACITY), mode=mode)


def _idle(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    users = len(fleet.holders[card])
    if users:
        return _too_small(fleet, card, asked) or _no(Code.GPU_NOT_IDLE, fleet, card, Cure.CAPACITY, 0, users)
    return _room(fleet, card, asked)


def _too_small(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    """Refuse more than the total of the card, whatever is free."""
    if asked.part is None:
        return None
    totals = int(fleet.compute_total[card]), int(fleet.vram_total[card])
    for code, need, total in zip(_AMOUNTS, asked.part.on(*totals), totals, strict=True):
        if need > total:
            return _no(code, fleet, card, Cure.NODE_CHANGE, need, total)
    return None


def _users(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    most, users = fleet.cards[card].max_users, len(fleet.holders[card])
    if most is None or users < most:
        return None
    return _too_small(fleet, card, asked) or _no(Code.GPU_USERS, fleet, card, Cure.CAPACITY, users + 1, most)


def _room(fleet: Fleet, card: int, asked: ResourceRequirement) -> Rejection | None:
    """Refuse what is not free. A card that shrank below its use takes nothing, in any dimension."""
    if asked.cards.isolation is Isolation.PARTITIONED:
        found = fit(fleet, card, asked)
        return found if isinstance(found, Rejection) else None
    part, never = asked.part, _too_small(fleet, card, asked)
    if part is None or never is not None:
        return never
    totals = int(fleet.compute_total[card]), int(fleet.vram_total[card])
    needs = part.on(*totals)
    has = int(fleet.compute_free[card]), int(fleet.vram_free[card])
    if part.fraction_ppm and any(need > had for need, had in zip(needs, has, strict=True)):
        free = min((had * PPM // total for had, total in zip(has, totals, strict=True) if total), default=0)
        return _no(Code.GPU_SHARE, fleet, card, Cure.CAPACITY, part.fraction_ppm, max(0, free))
    for code, need, had in zip(_AMOUNTS, needs, has, strict=True):
        if need > had:
            return _no(code, fleet, card, Cure.CAPACITY, need, max(0, had))
    (compute_asked, _), (compute_free, _) = needs, has
    if compute_free <= 0 or fleet.card_modes.item(card) & WHOLE:  # who asks for no compute needs some too
        return _no(Code.GPU_COMPUTE, fleet, card, Cure.CAPACITY, compute_asked, 0)
    return None


def _says_isolation(asked: ResourceRequirement) -> bool:
    cards = asked.cards
    return asked.part is not None or cards.policy is not None or cards.isolation is not Isolation.SHARED


def _names_uuids(cards: CardSelector) -> bool:
    return bool(cards.uuids or cards.not_uuids)


def _names_models(cards: CardSelector) -> bool:
    return bool(cards.models or cards.model_words or cards.not_model_words)


_POLICY = Filter("isolation-policy", StageKind.EXCLUSION, _isolation_policy, _says_isolation)
_INDEX = Filter("index", StageKind.EXCLUSION, _index, lambda asked: bool(asked.cards.indices))
_UUID = Filter("uuid", StageKind.EXCLUSION, _uuid, lambda asked: _names_uuids(asked.cards), DependsOn.ITSELF)
_MODE = Filter("isolation-mode", StageKind.EXCLUSION, _isolation_support, _says_isolation)
_LOCK = Filter("isolation-lock", StageKind.CAPACITY, _lock)
AFFINITY = Filter(
    "node-affinity", StageKind.EXCLUSION, _node, lambda asked: asked.nodes != ANY_NODE, DependsOn.AFFINITY
)
"""Whether the request's terms allow the node."""

KEPT_APART = Chain((_POLICY, _MODE))
"""Whether a card keeps its users apart as this request wants it, as long as its users allow that."""

EXCLUSION = Chain(
    (
        Filter("pool", StageKind.EXCLUSION, _pool, lambda asked: asked.cards.pool is not None),
        Filter("phase", StageKind.EXCLUSION, _phase),
        _POLICY,
        _INDEX,
        _UUID,
        _MODE,
        Filter("model", StageKind.EXCLUSION, _model, lambda asked: _names_models(asked.cards)),
        Filter("vendor", StageKind.EXCLUSION, _vendor, lambda asked: bool(asked.cards.vendors)),
        AFFINITY,
        Filter(
            "template", StageKind.EXCLUSION, _template, lambda asked: asked.cards.isolation is Isolation.PARTITIONED
        ),
    )
)
"""What freed capacity cannot change."""

KIND = Chain(tuple(filter_ for filter_ in EXCLUSION.filters if filter_ not in (AFFINITY, _INDEX, _UUID)))
"""What of it holds for all cards of one kind, wherever they sit (see `Fleet.kinds`)."""

CAPACITY = Chain(
    (
        _LOCK,
        Filter("users", StageKind.CAPACITY, _users, lambda asked: asked.shares_cards),
        Filter("whole-card", StageKind.CAPACITY, _idle, lambda asked: asked.whole),
        Filter("room", StageKind.CAPACITY, _room, lambda asked: not asked.whole),
    )
)
"""What the books say now."""

CARD = EXCLUSION.with_(*CAPACITY.filters)
"""All rules over single cards, in the order in which they are told."""


def charge_on(fleet: Fleet, card: int, asked: ResourceRequirement) -> Charge:
    """Return what a unit of the request takes of a card that passed every filter; not for whole cards."""
    if asked.cards.isolation is Isolation.PARTITIONED:
        found = fit(fleet, card, asked)
        assert isinstance(found, Charge), "the card passed the filters"
        return found
    assert asked.part is not None
    return Charge.of(asked.part, fleet.cards[card], asked.cards.isolation)


def charges_on(fleet: Fleet, cards: Sequence[int], asked: ResourceRequirement) -> tuple[Charge, ...]:
    """Return what a unit takes of each of its cards; nothing said for whole ones."""
    return () if asked.whole else tuple(charge_on(fleet, card, asked) for card in cards)


def open_cards(fleet: Fleet, row: int, asked: ResourceRequirement) -> list[int]:
    """Return the cards of a node that could take a share of one unit now."""
    return [card for card in fleet.cards_on(row) if CARD.first(fleet, card, asked) is None]


def free_cards(fleet: Fleet, asked: ResourceRequirement) -> Column:
    """Return per node how many cards could take a share of one unit now."""
    if asked.cards == ANY_CARD:
        return fleet.gpu_free
    counts: Column = np.zeros(len(fleet.nodes), dtype=np.int64)
    for card in range(len(fleet.cards)):
        counts[fleet.card_row[card]] += CARD.first(fleet, card, asked) is None
    return counts
