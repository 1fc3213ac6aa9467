"""Whom to evict so that units of one request fit: the cheapest set on each node, and the cheapest nodes.

On a node all that may go is released; if a unit fits then, they are put back, first those beyond their budget, each
in order of worth, as long as it still fits. Released allocations never take room away, so whoever is left is needed.
Each unit takes the node where that costs least; only nodes that were taken are looked at again.

`occupants` is a tuple: per node its first entry (and one behind the last), entries, since when each is bound, and what
each is charged on its cards. A node's entries stand dearest first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ullage.core.kernel.columns import (
    AFTER_CARDS,
    COMPUTE_FREE,
    COUNT,
    CPU_FREE,
    FIRST_CARD,
    MEMORY_FREE,
    MODES,
    SLOTS_FREE,
    USERS,
    VRAM_FREE,
    Rows,
    Scores,
)
from ullage.core.kernel.compiled import code_of, compiled
from ullage.core.kernel.draft import charge_unit
from ullage.core.kernel.room import look_at_cards, room_on

Occupants = tuple[Rows, Rows, Scores, Rows]

# An entry.
CPU, MEMORY = 0, 1
PRIORITY = 2
BOUND = 3
"""1 if it is a request's own and bound."""
NAMESPACE, WORKLOAD, GANG = 4, 5, 6
"""Numbers of names; -1 for none."""
FIRST_CHARGE, AFTER_CHARGE = 7, 8
ENTRY_COLUMNS = 9
# A charge.
CARD, COMPUTE, VRAM, MODE = 0, 1, 2, 3
CHARGE_COLUMNS = 4
# What becomes of an entry.
STAYS, MAY_GO, VICTIM, BACK, GONE = 0, 1, 2, 3, 4
"""The third and fourth while one node is looked at, the last of victims of a unit before."""
# What a set costs, the smallest first; then the younger, then the first node.
VIOLATIONS, HIGHEST, PRIORITIES, NUMBER = 0, 1, 2, 3
COST_COLUMNS = 4


@compiled
def move(nodes: Rows, cards: Rows, row: int, occupants: Occupants, entry: int, sign: int) -> None:
    """Charge an entry on its node (+1) or release it (-1); modes of cards are another matter."""
    _, entries, _, charges = occupants
    nodes[row, CPU_FREE] -= sign * entries[entry, CPU]
    nodes[row, MEMORY_FREE] -= sign * entries[entry, MEMORY]
    nodes[row, SLOTS_FREE] -= sign
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            cards[card, COMPUTE_FREE] -= sign * charges[at, COMPUTE]
            cards[card, VRAM_FREE] -= sign * charges[at, VRAM]
            cards[card, USERS] += sign


@compiled
def hold(nodes: Rows, cards: Rows, row: int, occupants: Occupants, entry: int) -> None:
    """Let the cards of an entry be held in its mode."""
    _, entries, _, charges = occupants
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            cards[card, MODES] |= charges[at, MODE]


@compiled
def hold_again(nodes: Rows, cards: Rows, row: int, occupants: Occupants, status: Rows, own: Rows) -> None:
    """The modes of a node's cards, of those who are there and of units that were placed (`own`)."""
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        cards[card, MODES] = own[card]
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if status[entry] == STAYS or status[entry] == BACK:
            hold(nodes, cards, row, occupants, entry)


@compiled
def units_open(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, locked: Rows) -> Rows:
    """How much room each card of a node has, none where a lock stays although all users go."""
    units = look_at_cards(nodes, cards, row, shape, space)
    for k in range(len(units)):
        if locked[nodes[row, FIRST_CARD] + k]:
            units[k] = 0
    return units


@compiled
def fits(nodes: Rows, cards: Rows, row: int, shape: Rows, space: Rows, locked: Rows) -> bool:
    """Whether one unit fits on a node."""
    return bool(room_on(nodes, row, shape, units_open(nodes, cards, row, shape, space, locked)) > 0)


@compiled
def victims_on(
    nodes: Rows,
    cards: Rows,
    row: int,
    shape: Rows,
    space: Rows,
    locked: Rows,
    occupants: Occupants,
    status: Rows,
    own: Rows,
    budget: Rows,
    left: Rows,
    taken: Rows,
) -> bool:
    """Whether a unit fits once who may go is gone; then who of them are the victims, and they are released.

    `budget` numbers the budget of an entry (-1: none), `left` is how many it has, `taken` room to count in.
    """
    begin, end = occupants[0][row], occupants[0][row + 1]
    for entry in range(begin, end):
        if status[entry] == MAY_GO:
            move(nodes, cards, row, occupants, entry, -1)
            if budget[entry] >= 0:
                taken[budget[entry]] += 1
    hold_again(nodes, cards, row, occupants, status, own)
    if not fits(nodes, cards, row, shape, space, locked):
        return False
    for beyond_budget in (True, False):
        for entry in range(begin, end):
            of = budget[entry]
            if status[entry] != MAY_GO or (beyond_budget and (of < 0 or taken[of] <= left[of])):
                continue
            move(nodes, cards, row, occupants, entry, 1)
            hold(nodes, cards, row, occupants, entry)
            if fits(nodes, cards, row, shape, space, locked):
                status[entry] = BACK
                if of >= 0:
                    taken[of] -= 1
            else:
                status[entry] = VICTIM
                move(nodes, cards, row, occupants, entry, -1)
                hold_again(nodes, cards, row, occupants, status, own)
    return True


@compiled
def cost_of(
    row: int, occupants: Occupants, status: Rows, budget: Rows, left: Rows, taken: Rows, cost: Rows, since: Scores
) -> None:
    """Write what the victims on a node cost, and in `since` when the oldest of the highest priority was bound.

    Forgets what was `taken`.
    """
    first, entries, bound, _ = occupants
    for column in range(COST_COLUMNS):
        cost[row, column] = 0
    since[row] = np.inf
    begin, end = first[row], first[row + 1]
    for entry in range(begin, end):
        if status[entry] == VICTIM:
            priority, of = entries[entry, PRIORITY], budget[entry]
            if not cost[row, NUMBER] or priority > cost[row, HIGHEST]:
                cost[row, HIGHEST], since[row] = priority, bound[entry]
            elif priority == cost[row, HIGHEST]:
                since[row] = min(since[row], bound[entry])
            cost[row, PRIORITIES] += max(0, priority)
            cost[row, NUMBER] += 1
            if of >= 0:
                cost[row, VIOLATIONS] += max(0, taken[of] - left[of])
                taken[of] = 0
    _forget(begin, end, budget, taken)


@compiled
def _forget(begin: int, end: int, budget: Rows, taken: Rows) -> None:
    for entry in range(begin, end):
        if budget[entry] >= 0:
            taken[budget[entry]] = 0


@compiled
def costs_more(cost: Rows, row: int, other: int) -> bool:
    """Whether one row of costs is larger than another, from the first difference on."""
    for column in range(COST_COLUMNS):
        if cost[row, column] != cost[other, column]:
            return bool(cost[row, column] > cost[other, column])
    return False


@compiled
def cheaper(cost: Rows, since: Scores, row: int, other: int) -> bool:
    """Whether the victims on one node cost less than those on the other."""
    if costs_more(cost, row, other) or costs_more(cost, other, row):
        return costs_more(cost, other, row)
    return bool(since[row] > since[other] if since[row] != since[other] else row < other)


@compiled
def sift(heap: Rows, size: int, at: int, cost: Rows, since: Scores) -> None:
    """Let the node at a place of the heap sink below all that are cheaper."""
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and cheaper(cost, since, heap[child], heap[least]):
                least = child
        if least == at:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least


@compiled
def copy_row(of: Rows, row: int, to: Rows, to_row: int) -> None:
    """One row; a loop compiles faster than an assignment of slices."""
    for column in range(of.shape[1]):
        to[to_row, column] = of[row, column]


@compiled
def look(
    nodes: Rows,
    cards: Rows,
    row: int,
    shape: Rows,
    space: Rows,
    locked: Rows,
    occupants: Occupants,
    status: Rows,
    own: Rows,
    budget: Rows,
    left: Rows,
    taken: Rows,
    cost: Rows,
    since: Scores,
    old_node: Rows,
    old_cards: Rows,
) -> bool:
    """`victims_on` with what they cost; `put_back` takes it back."""
    copy_row(nodes, row, old_node, 0)
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        copy_row(cards, card, old_cards, card - nodes[row, FIRST_CARD])
    found = victims_on(nodes, cards, row, shape, space, locked, occupants, status, own, budget, left, taken)
    cost_of(row, occupants, status, budget, left, taken, cost, since)
    return found


@compiled
def put_back(
    nodes: Rows, cards: Rows, row: int, occupants: Occupants, status: Rows, old_node: Rows, old_cards: Rows
) -> None:
    """The node and its occupants as they were before they were looked at."""
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if status[entry] == VICTIM or status[entry] == BACK:
            status[entry] = MAY_GO
    copy_row(old_node, 0, nodes, row)
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        copy_row(old_cards, card - nodes[row, FIRST_CARD], cards, card)


@compiled
def take_victims(row: int, occupants: Occupants, status: Rows, budget: Rows, left: Rows, turn: Rows, unit: int) -> None:
    """The victims on a node are gone for this unit, and use up their budgets; the others may go for a later one."""
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if status[entry] == VICTIM:
            status[entry], turn[entry] = GONE, unit
            if budget[entry] >= 0:
                left[budget[entry]] = max(0, left[budget[entry]] - 1)
        elif status[entry] == BACK:
            status[entry] = MAY_GO


@compiled
def line_up(
    nodes: Rows,
    cards: Rows,
    shape: Rows,
    space: Rows,
    locked: Rows,
    occupants: Occupants,
    status: Rows,
    own: Rows,
    budget: Rows,
    left: Rows,
    taken: Rows,
    cost: Rows,
    since: Scores,
    old_node: Rows,
    old_cards: Rows,
    may_take: Rows,
    heap: Rows,
) -> int:
    """Look at every node that may take a unit; how many can, those with the cheapest victims first in the heap."""
    size = 0
    for row in range(len(nodes)):
        if may_take[row]:
            if look(
                nodes,
                cards,
                row,
                shape,
                space,
                locked,
                occupants,
                status,
                own,
                budget,
                left,
                taken,
                cost,
                since,
                old_node,
                old_cards,
            ):
                heap[size] = row
                size += 1
            put_back(nodes, cards, row, occupants, status, old_node, old_cards)
    for at in range(size // 2 - 1, -1, -1):
        sift(heap, size, at, cost, since)
    return size


@cache
def evictions_over(pick: Callable[..., Any]) -> Callable[..., int]:
    """Compile the loop over units around how a strategy picks cards."""
    key = code_of(pick, line_up, look, put_back, take_victims, sift, charge_unit, units_open, fits)

    @compiled
    def fill_up(
        nodes: Rows,
        cards: Rows,
        row: int,
        shape: Rows,
        space: Rows,
        locked: Rows,
        own: Rows,
        state: Any,
        mode: int,
        at_row: Rows,
        at_cards: Rows,
        placed: int,
    ) -> int:
        """Place units on a node until none fits any more; how many are placed in all."""
        key  # noqa: B018  part of the cache key, see `code_of`
        while placed < len(at_row) and fits(nodes, cards, row, shape, space, locked):
            at_row[placed], chosen = row, at_cards[placed]
            if shape[0, COUNT]:
                pick(nodes, cards, row, shape, units_open(nodes, cards, row, shape, space, locked), state, chosen)
            charge_unit(nodes, cards, row, shape, mode, chosen)
            for card in chosen:
                own[card] |= mode
            placed += 1
        return placed

    @compiled
    def evict(
        nodes: Rows,
        cards: Rows,
        shape: Rows,
        space: Rows,
        locked: Rows,
        may_take: Rows,
        occupants: Occupants,
        status: Rows,
        budget: Rows,
        left: Rows,
        state: Any,
        mode: int,
        at_row: Rows,
        at_cards: Rows,
        turn: Rows,
        paid: Rows,
        paid_since: Scores,
    ) -> int:
        """Place units until nobody more may go for one; how many, and in `turn` for which unit an entry goes.

        `nodes` and `cards` are copies of the books, and are spoilt; `paid` is what each unit costs.
        """
        key  # noqa: B018  as above
        own, taken = np.zeros(len(cards), np.int64), np.zeros(len(left), np.int64)
        cost, since = np.zeros((len(nodes) + 1, COST_COLUMNS), np.int64), np.zeros(len(nodes) + 1)
        known = len(nodes)  # the last row of `cost` has what was known of the node that is looked at
        heap = np.zeros(len(nodes), np.int64)
        old_node, old_cards = np.empty((1, nodes.shape[1]), np.int64), np.empty((len(space), cards.shape[1]), np.int64)
        size = line_up(
            nodes,
            cards,
            shape,
            space,
            locked,
            occupants,
            status,
            own,
            budget,
            left,
            taken,
            cost,
            since,
            old_node,
            old_cards,
            may_take,
            heap,
        )
        placed = 0
        while placed < len(at_row) and size:
            row = heap[0]
            copy_row(cost, row, cost, known)
            found = look(
                nodes,
                cards,
                row,
                shape,
                space,
                locked,
                occupants,
                status,
                own,
                budget,
                left,
                taken,
                cost,
                since,
                old_node,
                old_cards,
            )
            if found and not costs_more(cost, row, known):  # else others used up a budget meanwhile
                copy_row(cost, row, paid, placed)
                paid_since[placed] = since[row]
                take_victims(row, occupants, status, budget, left, turn, placed)
                placed = fill_up(nodes, cards, row, shape, space, locked, own, state, mode, at_row, at_cards, placed)
                found = look(
                    nodes,
                    cards,
                    row,
                    shape,
                    space,
                    locked,
                    occupants,
                    status,
                    own,
                    budget,
                    left,
                    taken,
                    cost,
                    since,
                    old_node,
                    old_cards,
                )
            put_back(nodes, cards, row, occupants, status, old_node, old_cards)
            if not found:
                size -= 1
                heap[0] = heap[size]
            sift(heap, size, 0, cost, since)
        return placed

    return evict
