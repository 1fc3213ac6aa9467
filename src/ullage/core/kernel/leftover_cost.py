"""The functions of the strategy `leftover` (`core/strategies/leftover.py`): the cost of a placement on a node."""

from __future__ import annotations

from typing import Any

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.alignment import BEFORE_ALL
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import compiled, lean
from ullage.core.kernel.known import (
    LEFT,
    growth,
    recall,
    renew,
    there,
    value_at,
)
from ullage.core.kernel.prices import (
    bare_cost,
    model_prices,
    most_wanted,
    slot_cost,
    slot_prices,
    slots_of,
)
from ullage.core.kernel.room import look_at_cards
from ullage.core.kernel.shares import CARD, share_asked, share_on
from ullage.core.kernel.task_class import MODELS, MOST_KINDS, SHARE
from ullage.core.kernel.tightest import whole_cards
from ullage.core.kernel.tree import winner

_BEYOND, _BEYOND_CARDS = 1.3, 1.6
"""Tasks expected until cards or CPU are full, and until cards are, as a multiple of those that just fit.

Some are dropped. Room for several cards is kept until cards are full: what runs out of CPU first is other nodes.
"""

_LOOKS = 1024
"""Nodes whose prices are looked at in one decision, so that it ends soon where thousands are alike."""

# What is noted of a node for a shape.
_IN_USE, _IDLE = 0, 1
"""Growth of leftover on a card in use, and on idle cards (or without a choice): the sum over all fills."""
_ROOM = 2
"""Free share of the card in use."""
_PLACE = 3
"""Where the memo has what is left after each of the two."""
NOTES = 5
_NO_OPTION = 2**62

# What is kept of a node: what it is, then how it was at its change `SEEN`.
_MODEL, _GROUP, CLOSED = 0, 1, 2
"""Of its cards; which of its cards take no work, as bits, or -1 for all and the node itself."""
SEEN, _IDLE_SUM, _CPU, _STATE, SHARES = 3, 4, 5, 6, 7
"""Thousandths of cards, of CPU; its place in the memo; then what each card has free, nothing of one that takes no work.
"""
NEVER = -2


State = tuple[Any, ...]
"""What the strategy keeps of one fleet, for one workload: plain tuples, which the cache of compiled code outlives.

Goods are: a thousandth of a card of each model, a slot of each scarce class, one of each size without cards.
"""
_KNOWN, _SCARCE, _NAMED, _MEAN = 0, 1, 2, 3
"""The memo of leftover; scarce classes; what `named` found; thousandths of CPU and of cards that a task asks for."""
_RATE, _VALUE = 4, 5
"""Per slot of a class or size (see `core/kernel/prices.py`)."""
_KEPT, _NOW, _ROOMY, _HELD = 6, 7, 8, 9
"""Per node: a row as above; the value of its state; per scarce class cards with its share free, and slots."""
_FREE, _SCALE, IDLE_OF = 10, 11, 2
"""Per good how much the fleet has, and last, what is idle of CPU and of cards, all times this."""
_HAVE, _PRICES, _DEAR, _MANY = 12, 13, 14, 15
"""As of the last selection: what the fleet has and the price per good; priced classes; how many they and sizes are."""
_SPARE, _LOST = 16, 17
"""Room for notes and the cards of two nodes; for a number per size."""


# --- nodes as they change ---


@lean
def _end(nodes: Rows, row: int) -> int:
    """Where the shares of a node end in what is kept of it."""
    return int(SHARES + nodes[row, c.AFTER_CARDS] - nodes[row, c.FIRST_CARD])


@lean
def follow(nodes: Rows, cards: Rows, row: int, state: State) -> None:
    """Keep what the fleet has of each good true."""
    kept = state[_KEPT][row]
    if kept[SEEN] == nodes[row, c.CHANGED]:
        return
    if kept[SEEN] != NEVER:
        _count(row, state, -1)
    kept[SEEN] = nodes[row, c.CHANGED]
    kept[_CPU] = 0 if kept[CLOSED] == -1 else nodes[row, c.CPU_FREE]
    kept[_IDLE_SUM] = 0
    free = kept[SHARES : _end(nodes, row)]
    for k in range(len(free)):
        free[k] = 0 if (kept[CLOSED] >> min(k, 62)) & 1 else share_on(cards, nodes[row, c.FIRST_CARD] + k)
        kept[_IDLE_SUM] += free[k]
    known, now = state[_KNOWN], state[_NOW][row]
    kept[_STATE] = place = recall(known, kept[_CPU], kept[_MODEL], kept[_GROUP], free)
    for each in range(len(now)):
        now[each] = value_at(known, place, each)
    scarce, roomy, held = state[_SCARCE], state[_ROOMY][row], state[_HELD][row]
    for each in range(len(scarce)):
        roomy[each] = 0
        for share in free:
            roomy[each] += share >= scarce[each, SHARE]
        allowed = (scarce[each, MODELS] >> kept[_MODEL]) & 1
        held[each] = slots_of(scarce[each], kept[_CPU], roomy[each]) if allowed else 0
    _count(row, state, 1)


@lean
def _count(row: int, state: State, sign: int) -> None:
    """Add a node to what the fleet has, or take it out. All terms are exact, so their order does not matter."""
    kept, now, held, free = state[_KEPT][row], state[_NOW][row], state[_HELD][row], state[_FREE]
    sizes = len(now) - LEFT - 1
    first = len(free) - IDLE_OF - len(held) - sizes
    free[len(free) - 2] += sign * kept[_CPU]
    free[len(free) - 1] += sign * kept[_IDLE_SUM]
    free[kept[_MODEL]] += sign * (kept[_IDLE_SUM] * state[_SCALE][0] - now[LEFT])
    for each in range(len(held)):
        free[first + each] += sign * held[each]
    for each in range(sizes):
        free[first + len(held) + each] += sign * now[LEFT + 1 + each]


# --- options on one node ---


@compiled
def _take_off(shares: Rows, units: Rows, asked: int, count: int, least: int) -> int:
    """Take a share off each of the `count` fullest cards that have it and at least `least`; the last card.

    Those taken have no units any more.
    """
    last = -1
    for _ in range(count):
        last = -1
        for k in range(len(shares)):
            if units[k] and shares[k] >= least and (last < 0 or shares[k] < shares[last]):
                last = k
        units[last] = 0
        shares[last] = max(0, shares[last] - asked)
    return last


@lean
def _after(nodes: Rows, row: int, units: Rows, cpu: int, asked: int, count: int, least: int, state: State) -> int:
    """Where the memo has the node as it is with a request on its fullest cards that have at least `least`."""
    known, kept = state[_KNOWN], state[_KEPT][row]
    free = kept[SHARES : _end(nodes, row)]
    shares = state[_SPARE][NOTES + len(free) : NOTES + 2 * len(free)]
    for k in range(len(free)):
        shares[k] = free[k]
    _take_off(shares, units, asked, count, least)
    return int(recall(known, nodes[row, c.CPU_FREE] - cpu, kept[_MODEL], kept[_GROUP], shares))


@lean
def node(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: State, note: Rows) -> float:
    """The least growth of leftover, and a note of each option; less is better."""
    known, kept, count, cpu = state[_KNOWN], state[_KEPT][row], shape[0, c.COUNT], shape[0, c.CPU]
    asked, now, fills = share_asked(nodes, cards, row, shape), state[_NOW][row], state[_SCALE][0]
    note[_IN_USE] = note[_IDLE] = _NO_OPTION
    if count != 1 or asked == CARD:
        note[_PLACE + _IDLE] = place = _after(nodes, row, units, cpu, asked, count, 0, state)
        note[_IDLE] = growth(known, place, now)
        if not count:
            note[_IDLE] = max(0, note[_IDLE])  # less CPU leaves no fewer cards idle; what says so is chance
        return float(-note[_IDLE] / fills)
    shares, cpu_left = kept[SHARES : _end(nodes, row)], nodes[row, c.CPU_FREE] - cpu
    for k in range(len(shares)):
        room, met = shares[k], units[k] == 0
        for other in range(k):
            met |= units[other] > 0 and shares[other] == room
        if met:
            continue
        shares[k] = max(0, room - asked)
        place = recall(known, cpu_left, kept[_MODEL], kept[_GROUP], shares)
        more = growth(known, place, now)
        shares[k] = room
        if room == CARD:
            note[_IDLE], note[_PLACE + _IDLE] = more, place
        elif more < note[_IN_USE] or (more == note[_IN_USE] and room < note[_ROOM]):
            note[_IN_USE], note[_PLACE + _IN_USE], note[_ROOM] = more, place, room
    return float(-min(note[_IN_USE], note[_IDLE]) / fills)


@lean
def _cheapest(
    nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, note: Rows, state: State, most: float
) -> tuple[float, int]:
    """The cost of the cheaper option at the prices of the last selection, and the least share its cards have free.

    An infinite cost if both are beyond `most`.
    """
    known, model, now, prices = state[_KNOWN], state[_KEPT][row, _MODEL], state[_NOW][row], state[_PRICES]
    scarce, roomy, held = state[_SCARCE], state[_ROOMY][row], state[_HELD][row]
    asked, count = share_asked(nodes, cards, row, shape), shape[0, c.COUNT]
    cpu, fills, (classes, sizes) = shape[0, c.CPU], state[_SCALE][0], state[_MANY]
    bare = len(prices) - (len(now) - LEFT - 1)
    of_slots, of_bare, dear = prices[bare - len(scarce) : bare], prices[bare:], state[_DEAR][:classes]
    cpu_left, lost, best, chosen = nodes[row, c.CPU_FREE] - cpu, state[_LOST], np.inf, 0
    for option in range(2):
        if note[option] == _NO_OPTION:
            continue
        cost = note[option] / fills + asked * count * prices[model]
        if cost >= best or cost > most:
            continue
        least = 0
        if count == 1 and asked < CARD:
            least = CARD if option == _IDLE else note[_ROOM]
        room, enough = CARD if asked == CARD else least, min(best, most) - cost
        cost += slot_cost(scarce, of_slots, dear, held, roomy, cpu_left, asked, count, room, enough)
        if cost >= best or cost > most:
            continue
        if sizes:
            if not there(known, note[_PLACE + option]):
                units = look_at_cards(nodes, cards, row, shape, space)
                note[_PLACE + option] = _after(nodes, row, units, cpu, asked, count, least, state)
            for each in range(len(of_bare)):
                lost[each] = now[LEFT + 1 + each] - value_at(known, note[_PLACE + option], LEFT + 1 + each)
            cost += bare_cost(of_bare, lost) / fills
        if cost < best:
            best, chosen = cost, least
    return best, chosen


# --- which node, which cards ---


@lean
def _price(state: State) -> None:
    """Prices as of now."""
    rate, free, have, prices = state[_RATE], state[_FREE], state[_HAVE], state[_PRICES]
    mean_cpu, mean_size = state[_MEAN]
    sets, mean, variance = state[_NAMED]
    for good in range(len(have)):
        have[good] = free[good] / state[_SCALE][good]
    models, bare = len(prices) - len(rate), len(prices) - (state[_NOW].shape[1] - LEFT - 1)
    by_cpu, by_cards = have[len(have) - 2] / mean_cpu, have[len(have) - 1] / mean_size
    value, until_full = state[_VALUE], _BEYOND * min(by_cpu, by_cards)
    classes = bare - models
    slot_prices(rate[:classes], value[:classes], have[models:], _BEYOND_CARDS * by_cards, prices[models:bare])
    slot_prices(rate[classes:], value[classes:], have[bare:], until_full, prices[bare:])
    model_prices(sets, mean, variance, have[:models], mean_size, prices[:models])
    state[_MANY][1] = most_wanted(prices[bare:], state[_DEAR])
    state[_MANY][0] = most_wanted(prices[models:bare], state[_DEAR])


@lean
def _goes_before(nodes: Rows, row: int, other: int, kept: Rows) -> bool:
    """Whether the first of two nodes of equal cost is the better."""
    if kept[row, _IDLE_SUM] != kept[other, _IDLE_SUM]:
        return bool(kept[row, _IDLE_SUM] < kept[other, _IDLE_SUM])
    if nodes[row, c.CPU_FREE] != nodes[other, c.CPU_FREE]:
        return bool(nodes[row, c.CPU_FREE] < nodes[other, c.CPU_FREE])
    return row < other


@lean
def _cost_alike(shape: Rows, said: Rows, kept: Rows, row: int, other: int) -> bool:
    """Whether all that the cost depends on is certainly the same on two nodes."""
    same = kept[row, _STATE] == kept[other, _STATE] and kept[row, _CPU] == kept[other, _CPU]
    same &= kept[row, _MODEL] == kept[other, _MODEL] and (kept[row, _MODEL] < MOST_KINDS or not shape[0, c.COUNT])
    for at in range(said.shape[1]):
        same &= said[row, at] == said[other, at]
    return bool(same)


@lean
def select(nodes: Rows, cards: Rows, shape: Rows, space: Rows, said: Rows, tree: Scores, state: State) -> int:
    """The node of least cost: that of least growth, or one whose growth is less than the cost found so far.

    Prices only add to the growth, so no other can be better; nor is one that is like the one before it. Of more than
    `_LOOKS` the first by name are looked at.
    """
    best, size, at, looks = winner(tree), len(tree) // 2, 1, 0
    if best < 0:
        return -1
    _price(state)
    renew(state[_KNOWN])
    cost, _ = _cheapest(nodes, cards, best, shape, space, said[best, c.TABLE_COLUMNS :], state, np.inf)
    least, before = cost - said[best, c.BONUS], best
    near = np.floor(tree[size + best] / BEFORE_ALL + 0.5) * BEFORE_ALL  # what its zones add, if they go before all
    while at > 0 and looks < _LOOKS:
        if near - tree[at] <= least:
            if at < size:
                at *= 2
                continue
            row, looks = at - size, looks + 1
            if not _cost_alike(shape, said, state[_KEPT], row, before):
                before, most = row, least + said[row, c.BONUS]
                cost, _ = _cheapest(nodes, cards, row, shape, space, said[row, c.TABLE_COLUMNS :], state, most)
                cost -= said[row, c.BONUS]
                if cost < least or (cost == least and _goes_before(nodes, row, best, state[_KEPT])):
                    best, least = row, cost
        while at & 1:  # a right child: what is below its parent is done
            at //= 2
        if at > 0:
            at += 1
    return int(best)


@lean
def pick(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: State, out: Rows) -> None:
    """Whole cards of one zone if possible; parts on the cards of the cheaper option."""
    if shape[0, c.WHOLE]:
        whole_cards(nodes, cards, row, units, out)
        return
    note, left = state[_SPARE][:NOTES], state[_SPARE][NOTES:]
    for k in range(len(units)):
        left[k] = units[k]
    node(nodes, cards, row, shape, left, state, note)
    _, least = _cheapest(nodes, cards, row, shape, left, note, state, np.inf)
    shares = state[_KEPT][row, SHARES : _end(nodes, row)]
    for taken in range(len(out)):
        out[taken] = nodes[row, c.FIRST_CARD] + _take_off(shares, units, 0, 1, least)


def terms(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, state: State) -> dict[str, float]:
    """What a placement costs in thousandths of a card: how leftover grows, and the prices of what is taken."""
    note, space = np.zeros(NOTES, np.int64), units.copy()
    node(nodes, cards, row, shape, units, state, note)
    _price(state)
    cost, least = _cheapest(nodes, cards, row, shape, space, note, state, np.inf)
    chosen = _IDLE if note[_IN_USE] == _NO_OPTION or least == CARD else _IN_USE
    growth = float(note[chosen] / state[_SCALE][0])
    return {"leftover": growth, "prices": float(cost) - growth}
