"""Why a request fits on none of the nodes that were looked at: one explanation over all of them.

The causes are those that the filters gave for each node. Their numbers come from the card or node that comes closest.
The smaller request is tried before it is suggested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.explaining.explain import of_empty_card, smaller_requests
from ullage.core.placing.candidates import find
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.offers import NodeRefusal, offers
from ullage.core.placing.rules import Rules
from ullage.core.verdict.cards import exclusion_of, refusal_of
from ullage.core.verdict.nodes import unsuited
from ullage.core.verdict.zone_remedy import nearest_changes
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.part import CardSelector
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

Refused = Sequence[tuple[NodeRefusal, Sequence[str]]]
"""Refusals, each with the names of the nodes of which it is true."""

OF_NODES = frozenset(
    {Code.CPU, Code.MEMORY, Code.SLOTS, Code.NOT_READY, Code.CORDONED, Code.NODE_AFFINITY, Code.NODE_TAINTED}
    | {Code.NODE_UNKNOWN, Code.WORKER_CAP, Code.OVERSUBSCRIPTION, Code.REFUSED_THERE, Code.NOMINATED, Code.RUNNING}
    | {Code.NO_CANDIDATE, Code.POD_ANTI_AFFINITY}
)
"""Codes that a node as a whole gives. All others are of its cards."""

KINDS = {
    Code.WRONG_MODEL: "model",
    Code.WRONG_VENDOR: "vendor",
    Code.WRONG_POOL: "pool",
    Code.WRONG_INDEX: "index",
    Code.WRONG_UUID: "uuid",
}
"""Codes that name another kind of card, and the field of a card that names its kind."""

_MOST_KINDS = 5
_QUANTITIES = (Code.GPU_VRAM, Code.GPU_COMPUTE)
_MOST_CARDS = 256
"""Cards that are looked at, the largest first, for the one that comes closest."""

_MOST_ROWS = 16
_MOST_TRIALS = 3
"""Nodes that smaller requests are made for, and smaller requests that are tried."""


@dataclass(frozen=True, slots=True)
class RefusalCause:
    """One cause: `count` cards, or nodes for `OF_NODES`, have it; `rejection` is of the one that comes closest."""

    rejection: Rejection
    count: int


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Why a request fits nowhere: the cause closest to a fit comes first.

    `nodes` and `cards` were looked at. The best node has `best` cards that could be given now, `could` if others on it
    left, and the largest node has `most`. `smaller` would fit on `room` nodes now: it asks for less, or for what zones
    allow. `kinds` are what the cards are, most frequent first, where one of `KINDS` comes first.
    """

    asked: ResourceRequirement
    nodes: int
    cards: int
    causes: tuple[RefusalCause, ...]
    best: int = 0
    could: int = 0
    most: int = 0
    smaller: ResourceRequirement | None = None
    room: int = 0
    kinds: tuple[str, ...] = ()


def nowhere(
    fleet: Fleet, rules: Rules, request: Request, refused: Refused, nominations: Nominations = NO_NOMINATIONS
) -> Nowhere:
    """Explain why a request fits on none of the nodes that `refused` names."""
    asked = request.requirement
    known = [(refusal, [fleet.row_of[name] for name in names if name in fleet.row_of]) for refusal, names in refused]
    nodes = sum(len(names) for _, names in refused)
    cards_on = [(refusal, rows, [len(fleet.cards_on(row)) for row in rows]) for refusal, rows in known]
    sizes = [(refusal, rows, max(cards, default=0)) for refusal, rows, cards in cards_on]
    rows_of: dict[tuple[Code, Cure], list[int]] = {}
    counts: Counter[tuple[Code, Cure]] = Counter()
    for (refusal, rows, _), (_, names) in zip(sizes, refused, strict=True):
        for key, count in _first_said(refusal).items():
            rows_of.setdefault(key, []).extend(rows)
            counts[key] += len(names) * (1 if key[0] in OF_NODES else count)
    causes = [
        RefusalCause(_closest(fleet, rules, request, key=key, rows=rows_of[key]), count)
        for key, count in counts.items()
        if key[0] is not Code.NOT_ENOUGH_CARDS or len(counts) == 1
    ]
    open_now = [(_open(refusal, size, curable=False), _open(refusal, size, curable=True)) for refusal, _, size in sizes]
    best = max((now for now, _ in open_now), default=0)
    could = max((later for _, later in open_now), default=0)
    every = [row for _, rows in known for row in rows]
    of_zones = any(cause.rejection.of_zones for cause in causes)
    smaller, room = _smaller(fleet, rules, request, every, nominations=nominations, of_zones=of_zones)
    causes.sort(key=_order)
    never = _more_than_any_node(fleet, asked, every)
    causes = never + [each for each in causes if each.rejection.code not in {one.rejection.code for one in never}]
    first = next((cause.rejection.code for cause in causes), None)
    return Nowhere(
        asked=asked,
        nodes=nodes,
        cards=sum(sum(cards) for _, _, cards in cards_on),
        causes=tuple(causes),
        best=best,
        could=could,
        most=max((size for _, _, size in sizes), default=0),
        smaller=smaller,
        room=room,
        kinds=_kinds(fleet, asked.cards, every, first),
    )


def _more_than_any_node(fleet: Fleet, asked: ResourceRequirement, rows: Sequence[int]) -> list[RefusalCause]:
    """Return what is asked of a node that none has when it is empty: whatever else is the cause, this stays."""
    if not rows:
        return []
    amounts = (
        (Code.CPU, asked.cpu_milli, int(fleet.cpu_total[rows].max())),
        (Code.MEMORY, asked.memory_bytes, int(fleet.memory_total[rows].max())),
    )
    return [
        RefusalCause(Rejection(code, Cure.NODE_CHANGE, need, had), len(rows))
        for code, need, had in amounts
        if need > had
    ]


def _kinds(fleet: Fleet, asked: CardSelector, rows: Iterable[int], code: Code | None) -> tuple[str, ...]:
    """Return what the cards of these nodes are that are of another kind, where that is the cause."""
    if code not in KINDS:
        return ()
    name = KINDS[code]
    none = "cards of no pool" if code is Code.WRONG_POOL else "unknown"
    gpus = (gpu for row in rows for gpu in fleet.nodes[row].gpus)
    values = (getattr(gpu, name) for gpu in gpus if not _is_of_kind(asked, gpu, code))
    found = Counter(none if value in (None, "") else str(value) for value in values)
    return tuple(kind for kind, _ in found.most_common(_MOST_KINDS))


def _is_of_kind(asked: CardSelector, gpu: Gpu, code: Code) -> bool:
    """Return whether a card is of the kind that is asked, in what a code of `KINDS` is about."""
    match code:
        case Code.WRONG_MODEL:
            return asked.takes_model(gpu.model)
        case Code.WRONG_VENDOR:
            return gpu.vendor in asked.vendors
        case Code.WRONG_POOL:
            return gpu.pool == asked.pool
        case Code.WRONG_INDEX:
            return gpu.index in asked.indices
        case _:
            return asked.takes_uuid(gpu.uuid)


def _first_said(refusal: NodeRefusal) -> Counter[tuple[Code, Cure]]:
    """Return how many cards of a node have each cause, by what was said of them first."""
    first: dict[str | None, tuple[Code, Cure]] = {}
    for rejection in refusal.rejections:
        first.setdefault(rejection.gpu, (rejection.code, rejection.cure))
    return Counter(first.values())


def _open(refusal: NodeRefusal, cards: int, *, curable: bool) -> int:
    """Return how many cards of a node would do now, or if others left (`curable`)."""
    first = _first_said(refusal)
    if any(code in OF_NODES for code, _ in first):
        return 0
    kept = sum(
        count
        for (code, cure), count in first.items()
        if code is not Code.NOT_ENOUGH_CARDS and not (curable and cure is Cure.CAPACITY)
    )
    return max(0, cards - kept)


def _order(cause: RefusalCause) -> tuple[int, int, str]:
    """Sort key, closest to a fit first: what capacity cures, what is too small, what another node cures, other kinds.

    Nodes without cards come last.
    """
    rejection = cause.rejection
    if rejection.code is Code.NO_CANDIDATE:
        return 4, -cause.count, rejection.code
    if rejection.cure is not Cure.NODE_CHANGE:
        near = 0
    else:
        other_kind = rejection.code in (Code.WRONG_MODEL, Code.WRONG_VENDOR, Code.WRONG_POOL)
        near = 1 if rejection.code in (*_QUANTITIES, Code.CPU, Code.MEMORY) else 3 if other_kind else 2
    return near, -cause.count, rejection.code


def _closest(fleet: Fleet, rules: Rules, request: Request, *, key: tuple[Code, Cure], rows: list[int]) -> Rejection:
    """Return the rejection with this code of the node or card that comes closest, with its numbers."""
    code, cure = key
    plain = Rejection(code, cure)
    if not rows:
        return plain
    if code in _QUANTITIES:
        found = _closest_card(fleet, request.requirement, key, np.array(rows))
        if found is not None:
            return found
    free = {Code.CPU: fleet.cpu_free, Code.MEMORY: fleet.memory_free}.get(code)
    nearest = next(iter(rows)) if free is None else max(rows, key=free.item)
    stages = find(fleet, rules, request, fleet.cards_on(nearest)).stages
    there = [each for stage in stages for each in stage.removed if each.code is code and each.cure is cure]
    there = there or [each for stage in stages for each in stage.removed if each.code is code]
    by_node = unsuited(fleet.nodes[nearest], request.requirement.nodes)  # of a request without cards no stage says it
    default = by_node if by_node is not None and by_node.code is code else plain
    best = min(there, key=_short_by, default=default)
    return best if cure is Cure.CAPACITY else of_empty_card(fleet, best)


def _closest_card(fleet: Fleet, asked: ResourceRequirement, key: tuple[Code, Cure], rows: Column) -> Rejection | None:
    """Return the card with the most of what is short, of those that nothing else excludes."""
    code, cure = key
    total, free = {
        Code.GPU_VRAM: (fleet.vram_total, fleet.vram_free),
        Code.GPU_COMPUTE: (fleet.compute_total, fleet.compute_free),
    }[code]
    cards = np.concatenate([np.arange(0), *(np.asarray(fleet.cards_on(int(row))) for row in rows)])
    amounts = (free if cure is Cure.CAPACITY else total)[cards]
    order = cards[np.argsort(-amounts, kind="stable")]
    for card in order[:_MOST_CARDS].tolist():
        if exclusion_of(fleet, card, asked) is None:
            found = refusal_of(fleet, card, asked)
            if found is not None and (found.code, found.cure) == key:
                return found if cure is Cure.CAPACITY else of_empty_card(fleet, found)
    return None


def _short_by(rejection: Rejection) -> float:
    return (rejection.needed - rejection.had) / rejection.needed if rejection.needed else 1.0


def _smaller(
    fleet: Fleet, rules: Rules, request: Request, rows: list[int], *, nominations: Nominations, of_zones: bool
) -> tuple[ResourceRequirement | None, int]:
    """Return the request nearest to this one that fits now, and on how many of these nodes."""
    if not rows:
        return None, 0
    at, asked = np.array(rows), request.requirement
    changed = islice(nearest_changes(fleet, asked), _MOST_TRIALS) if of_zones else ()
    for smaller in (*changed, *_candidates(fleet, asked, at)):
        found = offers(fleet, rules, replace(request, requirement=smaller), at, nominations=nominations)
        if room := int((found.refused[at] < 0).sum()):
            return smaller, room
    return None, 0


def _candidates(fleet: Fleet, asked: ResourceRequirement, rows: Column) -> Iterable[ResourceRequirement]:
    """Smaller requests for the nodes with the most that is free, then the same for any card."""
    chosen: dict[int, None] = {}
    for ranked in _rankings(fleet, rows):
        chosen |= dict.fromkeys(ranked[: _MOST_ROWS // 4].tolist())
    own = asked.cards
    any_card = replace(asked, cards=CardSelector(isolation=own.isolation, pool=own.pool, policy=own.policy))
    wider = [] if any_card == asked else [any_card]
    return dict.fromkeys([*smaller_requests(fleet, asked, chosen)[:_MOST_TRIALS], *wider])


def _rankings(fleet: Fleet, rows: Column) -> Iterator[Column]:
    """Return the nodes, those with the most first: vram on one card, idle cards, CPUs, memory."""
    spans = [fleet.cards_on(int(row)) for row in rows]
    most = np.array([fleet.vram_free[span.start : span.stop].max() if span else -1 for span in spans])
    idle = np.array([sum(not fleet.holders[card] for card in span) for span in spans])
    for amounts in (most, idle, fleet.cpu_free[rows], fleet.memory_free[rows]):
        yield rows[np.argsort(-amounts, kind="stable")]
