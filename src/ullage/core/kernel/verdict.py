"""May a card take a share of a request, and may a node take a unit of it: the books against the shape of the request.

Placement, explanations and evictions ask these functions and no others. `takes` decides, and is short because every
table asks it of every card; `judge_card` finds the reason of a card that `takes` refused, and its numbers.
"""

from __future__ import annotations

from ullage.core.kernel import reasons
from ullage.core.kernel.columns import (
    BY_INDEX,
    CAP,
    COMPUTE,
    COMPUTE_FREE,
    COMPUTE_TOTAL,
    CPU,
    CPU_FREE,
    EXCLUDED,
    INDEX,
    KIND,
    MEMORY,
    MEMORY_FREE,
    MIXED,
    MODES,
    NAME,
    NAMED,
    NAMED_BY,
    NOT_CARD,
    REFUSED,
    SLOTS_FREE,
    SLOTS_TOTAL,
    USERS,
    USERS_MOST,
    VRAM,
    VRAM_FREE,
    VRAM_TOTAL,
    WHOLE,
    Rows,
)
from ullage.core.kernel.compiled import compiled, lean


@lean
def takes(cards: Rows, card: int, shape: Rows) -> bool:
    """Return whether a card takes a share of a request: no rule of `judge_card` refuses it."""
    kind = cards[card, KIND] + 1
    if shape[kind, EXCLUDED] or cards[card, MODES] & shape[kind, REFUSED]:
        return False
    if shape[kind, COMPUTE] > cards[card, COMPUTE_FREE] or shape[kind, VRAM] > cards[card, VRAM_FREE]:
        return False
    if cards[card, COMPUTE_FREE] <= 0 or cards[card, USERS] >= shape[kind, USERS_MOST]:
        return False
    return not shape[0, NAMED] or _names_others(shape, card, cards[card, INDEX]) == reasons.FITS


@lean
def judge_card(cards: Rows, card: int, shape: Rows) -> tuple[int, int, int]:  # noqa: C901, PLR0911 - a line per rule
    """Return the first reason why a card takes no share, what is needed and what there is; `FITS` if it takes one."""
    if takes(cards, card, shape):
        return reasons.FITS, 0, 0
    kind = cards[card, KIND] + 1
    excluded = shape[kind, EXCLUDED]
    unnamed = _names_others(shape, card, cards[card, INDEX])
    if unnamed and (not excluded or unnamed < excluded):
        excluded = unnamed
    if excluded:
        return excluded, 0, 0
    compute, compute_free, compute_total = shape[kind, COMPUTE], cards[card, COMPUTE_FREE], cards[card, COMPUTE_TOTAL]
    vram, vram_free, vram_total = shape[kind, VRAM], cards[card, VRAM_FREE], cards[card, VRAM_TOTAL]
    modes, users = cards[card, MODES], cards[card, USERS]
    if compute > compute_total:
        return reasons.COMPUTE_TOTAL, compute, compute_total
    if vram > vram_total:
        return reasons.VRAM_TOTAL, vram, vram_total
    if modes & shape[kind, MIXED]:
        return reasons.LOCKED, 0, modes
    if users >= shape[kind, USERS_MOST]:
        return reasons.USER_LIMIT, users + 1, shape[kind, USERS_MOST]
    if shape[0, WHOLE] and users:
        return reasons.NOT_IDLE, 0, users
    if compute > compute_free:
        return reasons.COMPUTE, compute, max(0, compute_free)
    if vram > vram_free:
        return reasons.VRAM, vram, max(0, vram_free)
    return reasons.NO_COMPUTE, compute, 0


@lean
def _names_others(shape: Rows, card: int, index: int) -> int:
    """Return why a request that names cards does not take this one, `FITS` if it does."""
    asked = met = 0
    refused = False
    for row in range(len(shape) - shape[0, NAMED], len(shape)):
        by, here = shape[row, NAMED_BY], shape[row, NAME] == (index if shape[row, NAMED_BY] == BY_INDEX else card)
        if by == NOT_CARD:
            refused |= here
        else:
            asked |= 1 << by
            met |= int(here) << by
    missing = asked & ~met
    if missing & (1 << BY_INDEX):
        return reasons.WRONG_INDEX
    return reasons.WRONG_UUID if missing or refused else reasons.FITS


@lean
def slots_left(nodes: Rows, row: int, shape: Rows) -> int:
    """Return how many allocations a node may still take, by the cap of the request or else its own; below 0 if over."""
    left, cap = nodes[row, SLOTS_FREE], shape[0, CAP]
    return int(left if cap < 0 else left + cap - nodes[row, SLOTS_TOTAL])


@lean
def lacks(nodes: Rows, row: int, shape: Rows) -> int:
    """Return the bits of what a node has too little of for a unit, its cards aside; 0 if it has enough."""
    short = 0
    if slots_left(nodes, row, shape) < 1:
        short |= reasons.LACKS_SLOT
    if shape[0, CPU] and nodes[row, CPU_FREE] < shape[0, CPU]:
        short |= reasons.LACKS_CPU
    if shape[0, MEMORY] and nodes[row, MEMORY_FREE] < shape[0, MEMORY]:
        short |= reasons.LACKS_MEMORY
    return short


@compiled
def judge_cards(cards: Rows, chosen: Rows, shape: Rows, out: Rows) -> None:
    """Write the verdict on each chosen card into a row of `out`: reason, needed, had."""
    for k in range(len(chosen)):
        reason, needed, had = judge_card(cards, chosen[k], shape)
        out[k, 0], out[k, 1], out[k, 2] = reason, needed, had


@compiled
def judge_nodes(nodes: Rows, shape: Rows, out: Rows) -> None:
    """Write the bits of what each node lacks into `out`."""
    for row in range(len(nodes)):
        out[row] = lacks(nodes, row, shape)
