"""Which cards of a node go together: the rules that the file of a family names as `sets`.

A rule is given the cards of a node in the order of their indexes. It returns the cards to choose from, None if any will
do, or none if the cards that are free are not linked as the rule needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

Chosen = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class CardState:
    """A card of a node: whether it has room for the request, and what its agent states of it."""

    uuid: str
    index: int
    free: bool
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetRequest:
    """How many cards are requested, whether each is held whole, and the type of the machine."""

    count: int
    whole: bool
    machine: str = ""


# --- Kunlunxin: two wings of four cards ---

_WING = 4
_ACROSS = ((0, 4), (1, 5), (2, 6), (3, 7))
_SQUARES = ((0, 1, 4, 5), (2, 3, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), (0, 3, 4, 7), (1, 2, 5, 6))
_ODD_ORDER = (1, 3, 2, 4)
"""For one card, the numbers of free cards of a wing in the order in which a wing is preferred."""

_LINKED = frozenset((*_ACROSS, *combinations(range(4), 2), *combinations(range(4, 8), 2)))


def wings(cards: Sequence[CardState], request: SetRequest) -> Chosen:
    """Return cards of one wing, of the wing that they fill best; else linked cards of both wings."""
    free = [at for at, card in enumerate(cards) if card.free]
    left, right = [at for at in free if at < _WING], [at for at in free if at >= _WING]
    count = request.count
    chosen: Sequence[int]
    if count == 2 * _WING:
        chosen = free if len(free) == count else []
    elif max(len(left), len(right)) >= count:
        chosen = next(
            (wing[:count] for size in _sizes(count) for wing in (left, right) if len(wing) == size),
            [],
        )
    else:
        chosen = _across(free, count)
    return [cards[at].uuid for at in chosen]


def _sizes(count: int) -> Iterable[int]:
    return (size if count % 2 == 0 else _ODD_ORDER[size - 1] for size in range(count, _WING + 1))


def _across(free: Sequence[int], count: int) -> Sequence[int]:
    there = set(free)
    if count * 2 == _WING:
        return next((pair for pair in _ACROSS if there.issuperset(pair)), ())
    squares = [square for square in _SQUARES if there.issuperset(square)]
    if len(free) <= _WING + 1:
        return next(iter(squares), ())
    good = (square for square in squares if tuple(sorted(there.difference(square))) in _LINKED)
    return next(good, next(reversed(squares), ()))


# --- others ---

_ROWS = (1, 4, 8, 16)


def rows(cards: Sequence[CardState], request: SetRequest) -> Chosen:
    """Return several cards in a row: anywhere in a ring (machines `inf`), else a row of 4, 8 or 16 at its own place."""
    count = request.count
    if count == 1:
        return None
    ring = "inf" in request.machine.casefold()
    if not ring and count not in _ROWS:
        return ()
    starts = range(0, len(cards) - count + 1, 1 if ring else count)
    found = (cards[start : start + count] for start in starts)
    row = next((each for each in found if all(card.free for card in each)), ())
    return [card.uuid for card in row]


_OF_MODULE = 2


def modules(cards: Sequence[CardState], request: SetRequest) -> Chosen:
    """Return several cards as whole modules of two, the first ones that are free."""
    if request.count == 1:
        return None
    by_module = _grouped((card for card in cards if card.free), lambda card: card.index // _OF_MODULE)
    whole = [card.uuid for module in by_module.values() if len(module) == _OF_MODULE for card in module]
    return whole[: request.count] if len(whole) >= request.count else ()


def networks(cards: Sequence[CardState], request: SetRequest) -> Chosen:
    """Return several cards of the network that has the most free ones, where all cards state their network."""
    return _largest_groups(cards, request, "NetworkID") if all("NetworkID" in each.facts for each in cards) else None


def boards(cards: Sequence[CardState], request: SetRequest) -> Chosen:
    """Return several dies of the board that has the most free ones, where cards are dies."""
    dies = next((card.facts.get("DeviceStrategy") == "die" for card in cards), False)
    return _largest_groups(cards, request, "AIC") if dies else None


def _largest_groups(cards: Sequence[CardState], request: SetRequest, fact: str) -> Chosen:
    if request.count == 1:
        return None
    groups = _grouped((card for card in cards if card.free), lambda card: card.facts.get(fact))
    ordered = [card.uuid for group in sorted(groups.values(), key=len, reverse=True) for card in group]
    return ordered[: request.count] if len(ordered) >= request.count else None


def links(cards: Sequence[CardState], request: SetRequest) -> Chosen:
    """Return several whole cards of the smallest link zone that has them, else of the smallest zones first."""
    if request.count == 1 or not request.whole:
        return None
    zones = _grouped((card for card in cards if card.free), lambda card: max(card.facts.get("LinkZone", 0), 0))
    apart = zones.pop(0, [])
    ordered = sorted(zones.values(), key=len)
    enough = next((zone for zone in ordered if len(zone) >= request.count), None)
    chosen = enough or [card for zone in (*ordered, apart) for card in zone]
    return [card.uuid for card in chosen[: request.count]] if len(chosen) >= request.count else None


def _grouped(cards: Iterable[CardState], key: Callable[[CardState], Hashable]) -> dict[Any, list[CardState]]:
    found: defaultdict[Any, list[CardState]] = defaultdict(list)
    for card in cards:
        found[key(card)].append(card)
    return dict(found)


SETS: Mapping[str, Callable[[Sequence[CardState], SetRequest], Chosen]] = {
    "wings": wings,
    "rows": rows,
    "modules": modules,
    "networks": networks,
    "links": links,
    "boards": boards,
}
"""The rules by the names that files use."""
