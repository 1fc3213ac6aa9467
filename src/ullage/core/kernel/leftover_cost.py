"""The functions of the strategy `leftover` (`core/strategies/leftover.py`): the cost of a placement on a node."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ullage.core.kernel import columns as c
from ullage.core.kernel.alignment import BEFORE_ALL
from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.compiled import compiled, lean
from ullage.core.kernel.leftover_memo import LEFT, Memo, growth, is_current, recall, renew_budget, value_at
from ullage.core.kernel.prices import (
    Amounts,
    NamedSets,
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

Some are dropped. Room for several cards is reserved until cards are full: what runs out of CPU first is other nodes.
"""

_LOOKS = 1024
"""Nodes that are priced in one decision at most, so that it ends soon where thousands are equal."""

# The notes on a node for one shape. An option is a card in use, or idle cards (also where there is no choice).
_IN_USE, _IDLE = 0, 1
"""Growth of leftover by each option: the sum over all fills."""
_ROOM = 2
"""Free share of the card in use."""
_PLACE = 3
"""The place in the memo of the state after each option."""
NOTES = 5
_NO_OPTION = 2**62

# The row of a node: facts, then its amounts at its change `SEEN`.
_MODEL, _GROUP, CLOSED = 0, 1, 2
"""Model of its cards; group of the model; its cards that take no work as bits, -1 for all and the node itself."""
SEEN, _IDLE_SUM, _CPU, _STATE, SHARES = 3, 4, 5, 6, 7
"""Its clock; idle thousandths of cards; free CPU; the place of its state in the memo; then the free share of each card,
0 for one that takes no work."""
NEVER = -2

IDLE_GOODS = 2
"""The last two amounts of the fleet: idle CPU, and idle thousandths of cards."""
_CLASSES, _SIZES = 0, 1
"""How many scarce classes have a price, and how many sizes of tasks without cards."""


class LeftoverState(NamedTuple):
    """What the strategy keeps of one fleet for one workload, as a plain tuple: Python passes that faster.

    Goods are a thousandth of a card of each model, a slot of each scarce class, and one of each size of tasks without
    cards.

    - `memo`, `named`: the fields of `Memo` and of `NamedSets`; `scarce`: the scarce classes
    - `mean_cpu`, `mean_size`: thousandths of CPU and of cards that a task asks for
    - `rate`, `value`: per slot of a class or size (`core/kernel/prices.py`)
    - `of_node`: per node a row as above; `now`: the value of its state in the memo
    - `roomy`, `held`: per node and scarce class, the cards with its share free, and the tasks that the node holds
    - `amounts`: how much of each good the fleet has, times its `scale`; the last are `IDLE_GOODS`
    - `have`, `prices`: amounts and price per good at the last selection; `dear`: the classes that have a price
    - `counts`: `_CLASSES` and `_SIZES`; `scratch`: for notes and the cards of two nodes; `lost`: for a number per size
    """

    memo: tuple[Any, ...]
    scarce: Rows
    named: tuple[Any, ...]
    mean_cpu: float
    mean_size: float
    rate: Amounts
    value: Amounts
    of_node: Rows
    now: Rows
    roomy: Rows
    held: Rows
    amounts: Rows
    scale: Rows
    have: Amounts
    prices: Amounts
    dear: Rows
    counts: Rows
    scratch: Rows
    lost: Rows


# --- nodes as they change ---


@lean
def _end(nodes: Rows, row: int) -> int:
    """Return where the shares of a node end in its row of `of_node`."""
    return int(SHARES + nodes[row, c.AFTER_CARDS] - nodes[row, c.FIRST_CARD])


@lean
def follow(nodes: Rows, cards: Rows, row: int, state: tuple[Any, ...]) -> None:
    """Update what the fleet has of each good."""
    own = LeftoverState(*state)
    memo, node, now = Memo(*own.memo), own.of_node[row], own.now[row]
    if node[SEEN] == nodes[row, c.CHANGED]:
        return
    if node[SEEN] != NEVER:
        _count(row, own, -1)
    node[SEEN] = nodes[row, c.CHANGED]
    node[_CPU] = 0 if node[CLOSED] == -1 else nodes[row, c.CPU_FREE]
    node[_IDLE_SUM] = 0
    free = node[SHARES : _end(nodes, row)]
    for k in range(len(free)):
        free[k] = 0 if (node[CLOSED] >> min(k, 62)) & 1 else share_on(cards, nodes[row, c.FIRST_CARD] + k)
        node[_IDLE_SUM] += free[k]
    node[_STATE] = place = recall(memo, node[_CPU], node[_MODEL], node[_GROUP], free)
    for each in range(len(now)):
        now[each] = value_at(memo, place, each)
    scarce, roomy, held = own.scarce, own.roomy[row], own.held[row]
    for each in range(len(scarce)):
        roomy[each] = 0
        for share in free:
            roomy[each] += share >= scarce[each, SHARE]
        allowed = (scarce[each, MODELS] >> node[_MODEL]) & 1
        held[each] = slots_of(scarce[each], node[_CPU], roomy[each]) if allowed else 0
    _count(row, own, 1)


@lean
def _count(row: int, state: LeftoverState, sign: int) -> None:
    """Add a node to the amounts of the fleet, or subtract it. All terms are exact, so their order does not matter."""
    node, now, held, amounts = state.of_node[row], state.now[row], state.held[row], state.amounts
    sizes = len(now) - LEFT - 1
    first = len(amounts) - IDLE_GOODS - len(held) - sizes
    amounts[len(amounts) - 2] += sign * node[_CPU]
    amounts[len(amounts) - 1] += sign * node[_IDLE_SUM]
    amounts[node[_MODEL]] += sign * (node[_IDLE_SUM] * state.scale[0] - now[LEFT])
    for each in range(len(held)):
        amounts[first + each] += sign * held[each]
    for each in range(sizes):
        amounts[first + len(held) + each] += sign * now[LEFT + 1 + each]


# --- options on one node ---


@compiled
def _take_off(shares: Rows, fits_per_card: Rows, asked: int, count: int, least: int) -> int:
    """Subtract a share from each of the `count` fullest cards that have it and at least `least`; return the last card.

    Those cards do not fit any more.
    """
    last = -1
    for _ in range(count):
        last = -1
        for k in range(len(shares)):
            if fits_per_card[k] and shares[k] >= least and (last < 0 or shares[k] < shares[last]):
                last = k
        fits_per_card[last] = 0
        shares[last] = max(0, shares[last] - asked)
    return last


@lean
def _after(
    nodes: Rows, row: int, fits_per_card: Rows, cpu: int, asked: int, count: int, least: int, state: LeftoverState
) -> int:
    """Return the place in the memo of a node with a request on its fullest cards that have at least `least`."""
    node = state.of_node[row]
    free = node[SHARES : _end(nodes, row)]
    shares = state.scratch[NOTES + len(free) : NOTES + 2 * len(free)]
    for k in range(len(free)):
        shares[k] = free[k]
    _take_off(shares, fits_per_card, asked, count, least)
    return int(recall(Memo(*state.memo), nodes[row, c.CPU_FREE] - cpu, node[_MODEL], node[_GROUP], shares))


@lean
def node(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: tuple[Any, ...], notes: Rows
) -> float:
    """Return the negative of the least growth of leftover, and write the notes of each option."""
    own = LeftoverState(*state)
    memo, facts, count, cpu = Memo(*own.memo), own.of_node[row], shape[0, c.COUNT], shape[0, c.CPU]
    asked, now, fills = share_asked(nodes, cards, row, shape), own.now[row], own.scale[0]
    notes[_IN_USE] = notes[_IDLE] = _NO_OPTION
    if count != 1 or asked == CARD:
        notes[_PLACE + _IDLE] = place = _after(nodes, row, fits_per_card, cpu, asked, count, 0, own)
        notes[_IDLE] = growth(memo, place, now)
        if not count:
            notes[_IDLE] = max(0, notes[_IDLE])  # less CPU leaves no fewer cards idle: a negative growth is chance
        return float(-notes[_IDLE] / fills)
    shares, cpu_left = facts[SHARES : _end(nodes, row)], nodes[row, c.CPU_FREE] - cpu
    for k in range(len(shares)):
        room, met = shares[k], fits_per_card[k] == 0
        for other in range(k):
            met |= fits_per_card[other] > 0 and shares[other] == room
        if met:
            continue
        shares[k] = max(0, room - asked)
        place = recall(memo, cpu_left, facts[_MODEL], facts[_GROUP], shares)
        more = growth(memo, place, now)
        shares[k] = room
        if room == CARD:
            notes[_IDLE], notes[_PLACE + _IDLE] = more, place
        elif more < notes[_IN_USE] or (more == notes[_IN_USE] and room < notes[_ROOM]):
            notes[_IN_USE], notes[_PLACE + _IN_USE], notes[_ROOM] = more, place, room
    return float(-min(notes[_IN_USE], notes[_IDLE]) / fills)


@lean
def _cheapest(
    nodes: Rows, cards: Rows, row: int, shape: Rows, scratch: Rows, notes: Rows, state: LeftoverState, most: float
) -> tuple[float, int]:
    """Return the cost of the cheaper option at the prices of the last selection, and the least share of its cards.

    The cost is infinite if both are beyond `most`.
    """
    memo, model, now, prices = Memo(*state.memo), state.of_node[row, _MODEL], state.now[row], state.prices
    scarce, roomy, held = state.scarce, state.roomy[row], state.held[row]
    asked, count = share_asked(nodes, cards, row, shape), shape[0, c.COUNT]
    cpu, fills = shape[0, c.CPU], state.scale[0]
    bare = len(prices) - (len(now) - LEFT - 1)
    of_slots, of_bare, dear = prices[bare - len(scarce) : bare], prices[bare:], state.dear[: state.counts[_CLASSES]]
    cpu_left, lost, best, chosen = nodes[row, c.CPU_FREE] - cpu, state.lost, np.inf, 0
    for option in range(2):
        if notes[option] == _NO_OPTION:
            continue
        cost = notes[option] / fills + asked * count * prices[model]
        if cost >= best or cost > most:
            continue
        least = 0
        if count == 1 and asked < CARD:
            least = CARD if option == _IDLE else notes[_ROOM]
        room, enough = CARD if asked == CARD else least, min(best, most) - cost
        cost += slot_cost(scarce, of_slots, dear, held, roomy, cpu_left, asked, count, room, enough)
        if cost >= best or cost > most:
            continue
        if state.counts[_SIZES]:
            if not is_current(memo, notes[_PLACE + option]):
                fits_per_card = look_at_cards(nodes, cards, row, shape, scratch)
                notes[_PLACE + option] = _after(nodes, row, fits_per_card, cpu, asked, count, least, state)
            for each in range(len(of_bare)):
                lost[each] = now[LEFT + 1 + each] - value_at(memo, notes[_PLACE + option], LEFT + 1 + each)
            cost += bare_cost(of_bare, lost) / fills
        if cost < best:
            best, chosen = cost, least
    return best, chosen


# --- which node, which cards ---


@lean
def _price(state: LeftoverState) -> None:
    """Write the present prices."""
    rate, amounts, have, prices = state.rate, state.amounts, state.have, state.prices
    named = NamedSets(*state.named)
    for good in range(len(have)):
        have[good] = amounts[good] / state.scale[good]
    models, bare = len(prices) - len(rate), len(prices) - (state.now.shape[1] - LEFT - 1)
    by_cpu, by_cards = have[len(have) - 2] / state.mean_cpu, have[len(have) - 1] / state.mean_size
    value, until_full = state.value, _BEYOND * min(by_cpu, by_cards)
    classes = bare - models
    slot_prices(rate[:classes], value[:classes], have[models:], _BEYOND_CARDS * by_cards, prices[models:bare])
    slot_prices(rate[classes:], value[classes:], have[bare:], until_full, prices[bare:])
    model_prices(named.sets, named.mean, named.variance, have[:models], state.mean_size, prices[:models])
    state.counts[_SIZES] = most_wanted(prices[bare:], state.dear)
    state.counts[_CLASSES] = most_wanted(prices[models:bare], state.dear)


@lean
def _goes_before(nodes: Rows, row: int, other: int, of_node: Rows) -> bool:
    """Return whether the first of two nodes of equal cost is the better."""
    if of_node[row, _IDLE_SUM] != of_node[other, _IDLE_SUM]:
        return bool(of_node[row, _IDLE_SUM] < of_node[other, _IDLE_SUM])
    if nodes[row, c.CPU_FREE] != nodes[other, c.CPU_FREE]:
        return bool(nodes[row, c.CPU_FREE] < nodes[other, c.CPU_FREE])
    return row < other


@lean
def _have_equal_cost(shape: Rows, node_state: Rows, of_node: Rows, row: int, other: int) -> bool:
    """Return whether all that the cost depends on is certainly the same on two nodes."""
    same = of_node[row, _STATE] == of_node[other, _STATE] and of_node[row, _CPU] == of_node[other, _CPU]
    model = of_node[row, _MODEL]
    same &= model == of_node[other, _MODEL] and (model < MOST_KINDS or not shape[0, c.COUNT])
    for at in range(node_state.shape[1]):
        same &= node_state[row, at] == node_state[other, at]
    return bool(same)


@lean
def select(
    nodes: Rows, cards: Rows, shape: Rows, scratch: Rows, node_state: Rows, tree: Scores, state: tuple[Any, ...]
) -> int:
    """Return the node of least cost: that of least growth, or one whose growth is below the least cost found so far.

    Prices only add to the growth, so no other node can be better. A node that equals the one before it is skipped. Of
    more than `_LOOKS` nodes the first by name are priced.
    """
    own = LeftoverState(*state)
    best, size, at, looks = winner(tree), len(tree) // 2, 1, 0
    if best < 0:
        return -1
    _price(own)
    renew_budget(Memo(*own.memo))
    cost, _ = _cheapest(nodes, cards, best, shape, scratch, node_state[best, c.TABLE_COLUMNS :], own, np.inf)
    least, before = cost - node_state[best, c.BONUS], best
    near = np.floor(tree[size + best] / BEFORE_ALL + 0.5) * BEFORE_ALL  # what its zones add, if they go before all
    while at > 0 and looks < _LOOKS:
        if near - tree[at] <= least:
            if at < size:
                at *= 2
                continue
            row, looks = at - size, looks + 1
            if not _have_equal_cost(shape, node_state, own.of_node, row, before):
                before, most = row, least + node_state[row, c.BONUS]
                notes = node_state[row, c.TABLE_COLUMNS :]
                cost, _ = _cheapest(nodes, cards, row, shape, scratch, notes, own, most)
                cost -= node_state[row, c.BONUS]
                if cost < least or (cost == least and _goes_before(nodes, row, best, own.of_node)):
                    best, least = row, cost
        while at & 1:  # a right child: what is below its parent is done
            at //= 2
        if at > 0:
            at += 1
    return int(best)


@lean
def pick(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: tuple[Any, ...], out: Rows
) -> None:
    """Pick whole cards of one zone if possible, and parts on the cards of the cheaper option."""
    if shape[0, c.WHOLE]:
        whole_cards(nodes, cards, row, fits_per_card, out)
        return
    own = LeftoverState(*state)
    notes, left = own.scratch[:NOTES], own.scratch[NOTES:]
    for k in range(len(fits_per_card)):
        left[k] = fits_per_card[k]
    node(nodes, cards, row, shape, left, state, notes)
    _, least = _cheapest(nodes, cards, row, shape, left, notes, own, np.inf)
    shares = own.of_node[row, SHARES : _end(nodes, row)]
    for taken in range(len(out)):
        out[taken] = nodes[row, c.FIRST_CARD] + _take_off(shares, fits_per_card, 0, 1, least)


def terms(
    nodes: Rows, cards: Rows, row: int, shape: Rows, fits_per_card: Rows, state: tuple[Any, ...]
) -> dict[str, float]:
    """Return the cost of a placement in thousandths of a card: growth of leftover, and prices of what it takes."""
    notes, scratch, own = np.zeros(NOTES, np.int64), fits_per_card.copy(), LeftoverState(*state)
    node(nodes, cards, row, shape, fits_per_card, state, notes)
    _price(own)
    cost, least = _cheapest(nodes, cards, row, shape, scratch, notes, own, np.inf)
    chosen = _IDLE if notes[_IN_USE] == _NO_OPTION or least == CARD else _IN_USE
    growth = float(notes[chosen] / own.scale[0])
    return {"leftover": growth, "prices": float(cost) - growth}
