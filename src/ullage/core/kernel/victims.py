"""Whom to evict so that units of one request fit: the cheapest set on each node, and the cheapest nodes.

On a node all that may go is released; if a unit fits then, they are put back, first those beyond their budget, each
in order of worth, as long as it still fits. Released allocations never take room away, so whoever is left is needed.
Then other sets are searched for a cheaper one. Each unit takes the node where that costs least; only nodes that were
taken are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ullage.core.kernel.board import (
    AFTER_SUPPLIES,
    ALIGNED,
    CODE,
    FIRST_SUPPLY,
    FREE,
    machines_in,
    supplies_in,
    verdict_in,
)
from ullage.core.kernel.charge import charge_unit, follow_free
from ullage.core.kernel.columns import (
    AFTER_CARDS,
    COMPUTE_FREE,
    COUNT,
    CPU_FREE,
    FIRST_CARD,
    MACHINE,
    MEMORY_FREE,
    MODES,
    NEEDS,
    SLOTS_FREE,
    USERS,
    VRAM_FREE,
    Rows,
    Scores,
)
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.room import enough, look_at_cards, room_on
from ullage.core.kernel.zones import SPEND, TAKE, decide

Books = tuple[Rows, Rows, Rows, Rows, Rows, Rows]
"""Nodes and cards (copies, which are changed), the shape, room for a node's cards, cards on which a lock stays;
the zones of machines (what is free in them is a copy too)."""

Occupants = tuple[Rows, Rows, Scores, Rows, Rows, Rows, Rows]
"""Per node the first entry, and one behind the last; entries, a node's dearest first; since when each is bound; what
each is charged on its cards. Then, of one decision: what becomes of each, the number of its budget (-1: none), and for
which unit it goes."""

Costs = tuple[Rows, Scores, Rows, Rows]
"""Per node what its victims cost, and when the oldest of the highest priority was bound; how many each budget has
left, and room to count in. The last two rows of costs are spare."""

Kept = tuple[Rows, Rows, Rows, Rows, Rows, Rows]
"""Modes of units that were placed, per card; a node and its cards as they were; per charge, the mode of its card before
it; what became of each entry in the cheapest set so far; what lay in the zones of a machine."""

# An entry.
CPU, MEMORY = 0, 1
PRIORITY = 2
BOUND = 3
"""1 if it is a request's own, and bound."""
NAMESPACE, WORKLOAD, GANG = 4, 5, 6
"""Numbers of names; -1 for none."""
FIRST_CHARGE, AFTER_CHARGE = 7, 8
ENTRY_COLUMNS = 9
# A charge.
CARD, COMPUTE, VRAM, MODE = 0, 1, 2, 3
"""Of a card; or, where `CARD` is below 0, `COMPUTE` of the supply -1 - `CARD` (`core/kernel/board.py`)."""
CHARGE_COLUMNS = 4
# What becomes of an entry.
STAYS, MAY_GO, VICTIM, BACK, GONE = 0, 1, 2, 3, 4
"""Victims and those put back are of the node that is looked at; who is gone was a victim of a unit before."""
# What a set costs, the smallest first; then the younger, then the first node.
VIOLATIONS, HIGHEST, PRIORITIES, NUMBER = 0, 1, 2, 3
COST_COLUMNS = 4

NOBODY = -(2**40)
"""The highest priority among no victims: below all others."""

MOST_STEPS = 4096
"""How long a cheaper set is searched for on one node: enough for every set of a dozen."""


# --- one entry ---


@compiled
def charge(
    nodes: Rows, cards: Rows, supplies: Rows, entries: Rows, charges: Rows, row: int, entry: int, sign: int
) -> None:
    """Charge an entry on its node (+1) or release it (-1); modes of cards, and what follows from it, come later."""
    nodes[row, CPU_FREE] -= sign * entries[entry, CPU]
    nodes[row, MEMORY_FREE] -= sign * entries[entry, MEMORY]
    nodes[row, SLOTS_FREE] -= sign
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            cards[card, COMPUTE_FREE] -= sign * charges[at, COMPUTE]
            cards[card, VRAM_FREE] -= sign * charges[at, VRAM]
            cards[card, USERS] += sign
        elif card < 0:
            supplies[-1 - card, FREE] -= sign * charges[at, COMPUTE]


@compiled
def hold(nodes: Rows, cards: Rows, entries: Rows, charges: Rows, row: int, entry: int, before: Rows) -> None:
    """Let the cards of an entry be held in its mode too; how they were held is kept."""
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            before[at] = cards[card, MODES]
            cards[card, MODES] |= charges[at, MODE]


@compiled
def let_go(nodes: Rows, cards: Rows, entries: Rows, charges: Rows, row: int, entry: int, before: Rows) -> None:
    """The opposite of `hold`, in the opposite order."""
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            cards[card, MODES] = before[at]


# --- one node ---


@compiled
def units_open(books: Books, row: int) -> Rows:
    """How much room each card of a node has, none where a lock stays although all users go."""
    nodes, cards, shape, space, locked, store = books
    units = look_at_cards(nodes, cards, row, shape, space)
    for k in range(len(units)):
        if locked[nodes[row, FIRST_CARD] + k]:
            units[k] = 0
    if shape[0, NEEDS] and enough(units, shape[0, COUNT]):
        decide(nodes, cards, row, shape, units, store, TAKE, 0)
    return units


@compiled
def fits(books: Books, row: int) -> bool:
    """Whether one unit fits on a node."""
    there = room_on(books[0], row, books[2], units_open(books, row)) > 0
    return bool(there and (not books[2][0, NEEDS] or verdict_in(books[5])[CODE] == ALIGNED))


@compiled
def supplies_of(books: Books, row: int) -> tuple[int, int]:
    """The first supply of a node's machine, and one behind the last."""
    machine, machines = books[0][row, MACHINE], machines_in(books[5])
    return (machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]) if machine >= 0 else (0, 0)


@compiled
def release(books: Books, occupants: Occupants, kept: Kept, row: int) -> None:
    """Release all that may go; cards are held by those who stay, and by units that were placed."""
    nodes, cards = books[0], books[1]
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        cards[card, MODES] = kept[0][card]
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if occupants[4][entry] == STAYS:
            hold(books[0], books[1], occupants[1], occupants[3], row, entry, kept[3])
        elif occupants[4][entry] == MAY_GO:
            charge(books[0], books[1], supplies_in(books[5]), occupants[1], occupants[3], row, entry, -1)


@compiled
def put_in(books: Books, occupants: Occupants, before: Rows, row: int, entry: int) -> bool:
    """Put an entry back if a unit fits beside it; else it is a victim. Whether it is back."""
    charge(books[0], books[1], supplies_in(books[5]), occupants[1], occupants[3], row, entry, 1)
    hold(books[0], books[1], occupants[1], occupants[3], row, entry, before)
    if fits(books, row):
        occupants[4][entry] = BACK
        return True
    take_out(books, occupants, before, row, entry)
    return False


@compiled
def take_out(books: Books, occupants: Occupants, before: Rows, row: int, entry: int) -> None:
    """The last entry that was put back is a victim after all."""
    charge(books[0], books[1], supplies_in(books[5]), occupants[1], occupants[3], row, entry, -1)
    let_go(books[0], books[1], occupants[1], occupants[3], row, entry, before)
    occupants[4][entry] = VICTIM


@compiled
def put_back_in_order(books: Books, occupants: Occupants, costs: Costs, kept: Kept, row: int) -> None:
    """Those beyond their budget first, the dearest first: a set of which no part would do."""
    status, budget, left, taken = occupants[4], occupants[5], costs[2], costs[3]
    begin, end = occupants[0][row], occupants[0][row + 1]
    for entry in range(begin, end):
        if status[entry] == MAY_GO and budget[entry] >= 0:
            taken[budget[entry]] += 1
    for beyond_budget in (True, False):
        for entry in range(begin, end):
            of = budget[entry]
            if status[entry] != MAY_GO or (beyond_budget and (of < 0 or taken[of] <= left[of])):
                continue
            if put_in(books, occupants, kept[3], row, entry) and of >= 0:
                taken[of] -= 1
    for entry in range(begin, end):
        if budget[entry] >= 0:
            taken[budget[entry]] = 0


@compiled
def search(books: Books, occupants: Occupants, costs: Costs, kept: Kept, row: int) -> None:
    """Look for a cheaper set than that in `kept`, the dearest put back first, and leave the cheapest there.

    What a set costs so far only grows with it, so a set that is not cheaper so far is given up. After
    `MOST_STEPS` the cheapest so far is taken.
    """
    status, begin, end = occupants[4], occupants[0][row], occupants[0][row + 1]
    entry = begin
    for _ in range(MOST_STEPS):
        while entry < end and status[entry] != MAY_GO:
            entry += 1
        if entry < end and (put_in(books, occupants, kept[3], row, entry) or cheaper_so_far(occupants, costs, row)):
            entry += 1
            continue
        if entry == end and cheaper_so_far(occupants, costs, row):
            copy_row(costs[0], len(costs[0]) - 1, costs[0], row)
            costs[1][row] = costs[1][-1]
            for each in range(begin, end):
                kept[4][each] = status[each]
        entry = step_back(books, occupants, costs, kept, row, min(entry, end - 1)) + 1
        if entry == begin:
            return


@compiled
def step_back(books: Books, occupants: Occupants, costs: Costs, kept: Kept, row: int, entry: int) -> int:
    """Undo decisions from an entry on, up to one that was put back and may be a victim instead; before all if none."""
    status = occupants[4]
    while entry >= occupants[0][row]:
        if status[entry] == VICTIM:
            status[entry] = MAY_GO
        elif status[entry] == BACK:
            take_out(books, occupants, kept[3], row, entry)
            if cheaper_so_far(occupants, costs, row):
                break
            status[entry] = MAY_GO
        entry -= 1
    return entry


@compiled
def cheaper_so_far(occupants: Occupants, costs: Costs, row: int) -> bool:
    """Whether the victims chosen so far cost less than the cheapest set on the node."""
    trial = len(costs[0]) - 1
    sum_up(occupants, costs, row, trial)
    return cheaper(costs, trial, row)


@compiled
def sum_up(occupants: Occupants, costs: Costs, row: int, to: int) -> None:
    """Write what the victims on a node cost into a row of costs."""
    entries, bound, status, budget = occupants[1], occupants[2], occupants[4], occupants[5]
    cost, since, left, taken = costs
    for column in range(COST_COLUMNS):
        cost[to, column] = 0
    cost[to, HIGHEST], since[to] = NOBODY, np.inf
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if status[entry] != VICTIM:
            continue
        priority, of = entries[entry, PRIORITY], budget[entry]
        if not cost[to, NUMBER] or priority > cost[to, HIGHEST]:
            cost[to, HIGHEST], since[to] = priority, bound[entry]
        elif priority == cost[to, HIGHEST]:
            since[to] = min(since[to], bound[entry])
        cost[to, PRIORITIES] += max(0, priority)
        cost[to, NUMBER] += 1
        if of >= 0:
            taken[of] += 1
            cost[to, VIOLATIONS] += taken[of] > left[of]
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if budget[entry] >= 0:
            taken[budget[entry]] = 0


@compiled
def copy_row(of: Rows, row: int, to: Rows, to_row: int) -> None:
    """One row; a loop compiles faster than an assignment of slices."""
    for column in range(of.shape[1]):
        to[to_row, column] = of[row, column]


@compiled
def look(books: Books, occupants: Occupants, costs: Costs, kept: Kept, row: int) -> bool:
    """Whether a unit fits on a node once who may go is gone; then who of them are the victims, and what they cost.

    Only the victims are released then; `put_back` takes it back.
    """
    nodes, cards, status = books[0], books[1], occupants[4]
    begin, end = occupants[0][row], occupants[0][row + 1]
    copy_row(nodes, row, kept[1], 0)
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        copy_row(cards, card, kept[2], card - nodes[row, FIRST_CARD])
    first, after = supplies_of(books, row)
    for at in range(first, after):
        kept[5][at - first] = supplies_in(books[5])[at, FREE]
    release(books, occupants, kept, row)
    if not fits(books, row):
        return False
    put_back_in_order(books, occupants, costs, kept, row)
    sum_up(occupants, costs, row, row)
    if not searchable(occupants, costs, row):
        return True
    for entry in range(begin, end):
        kept[4][entry] = status[entry]
    put_back(books, occupants, kept, row)
    release(books, occupants, kept, row)
    search(books, occupants, costs, kept, row)
    put_back(books, occupants, kept, row)
    release(books, occupants, kept, row)
    for entry in range(begin, end):
        status[entry] = kept[4][entry]
        if status[entry] == BACK:
            charge(books[0], books[1], supplies_in(books[5]), occupants[1], occupants[3], row, entry, 1)
            hold(books[0], books[1], occupants[1], occupants[3], row, entry, kept[3])
    return True


@compiled
def searchable(occupants: Occupants, costs: Costs, row: int) -> bool:
    """Whether there may be a cheaper set: none is if nobody could be put back, or for a single victim of no budget."""
    if costs[0][row, NUMBER] <= 1 and not len(costs[2]):
        return False
    found = False
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        found |= occupants[4][entry] == BACK
    return found


@compiled
def put_back(books: Books, occupants: Occupants, kept: Kept, row: int) -> None:
    """The node and its occupants as they were before they were looked at."""
    nodes, cards, status = books[0], books[1], occupants[4]
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if status[entry] == VICTIM or status[entry] == BACK:
            status[entry] = MAY_GO
    copy_row(kept[1], 0, nodes, row)
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        copy_row(kept[2], card - nodes[row, FIRST_CARD], cards, card)
    first, after = supplies_of(books, row)
    for at in range(first, after):
        supplies_in(books[5])[at, FREE] = kept[5][at - first]


@compiled
def take(occupants: Occupants, left: Rows, row: int, unit: int) -> None:
    """The victims on a node are gone for this unit, and use up their budgets; the others may go for a later one."""
    status, budget, turn = occupants[4], occupants[5], occupants[6]
    for entry in range(occupants[0][row], occupants[0][row + 1]):
        if status[entry] == VICTIM:
            status[entry], turn[entry] = GONE, unit
            if budget[entry] >= 0:
                left[budget[entry]] = max(0, left[budget[entry]] - 1)
        elif status[entry] == BACK:
            status[entry] = MAY_GO


# --- the cheapest nodes ---


@compiled
def costs_more(cost: Rows, row: int, other: int) -> bool:
    """Whether one row of costs is larger than another, from the first difference on."""
    for column in range(COST_COLUMNS):
        if cost[row, column] != cost[other, column]:
            return bool(cost[row, column] > cost[other, column])
    return False


@compiled
def cheaper(costs: Costs, row: int, other: int) -> bool:
    """Whether the victims on one node come before those on the other."""
    cost, since = costs[0], costs[1]
    if costs_more(cost, row, other) or costs_more(cost, other, row):
        return costs_more(cost, other, row)
    return bool(since[row] > since[other] if since[row] != since[other] else row < other)


@compiled
def sift(heap: Rows, size: int, at: int, costs: Costs) -> None:
    """Let the node at a place of the heap sink below all that are cheaper."""
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and cheaper(costs, heap[child], heap[least]):
                least = child
        if least == at:
            return
        heap[at], heap[least] = heap[least], heap[at]
        at = least


@compiled
def line_up(books: Books, occupants: Occupants, costs: Costs, kept: Kept, may_take: Rows, heap: Rows) -> int:
    """Look at every node that may take a unit; how many can, the cheapest at the top of the heap."""
    size = 0
    for row in range(len(may_take)):
        if may_take[row]:
            if look(books, occupants, costs, kept, row):
                heap[size] = row
                size += 1
            put_back(books, occupants, kept, row)
    for at in range(size // 2 - 1, -1, -1):
        sift(heap, size, at, costs)
    return size


@cache
def evictions_over(pick: Callable[..., Any]) -> Callable[..., int]:
    """Compile the loop over units around how a strategy picks cards."""

    @compiled
    def evict(
        books: Books,
        occupants: Occupants,
        costs: Costs,
        kept: Kept,
        may_take: Rows,
        state: Any,
        mode: int,
        at_row: Rows,
        at_cards: Rows,
        paid: Rows,
        paid_since: Scores,
    ) -> int:
        """Place units until nobody more may go for one; how many, and in `paid` what each costs."""
        nodes, cards, shape = books[0], books[1], books[2]
        cost, known, heap, placed = costs[0], len(may_take), np.zeros(len(may_take), np.int64), 0
        size = line_up(books, occupants, costs, kept, may_take, heap)
        while placed < len(at_row) and size:
            row = heap[0]
            copy_row(cost, row, cost, known)
            found = look(books, occupants, costs, kept, row)
            if found and not costs_more(cost, row, known):  # else others used up a budget meanwhile
                copy_row(cost, row, paid, placed)
                paid_since[placed] = costs[1][row]
                take(occupants, costs[2], row, placed)
                for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
                    follow_free(cards, card)
                while placed < len(at_row) and fits(books, row):
                    at_row[placed], chosen = row, at_cards[placed]
                    if shape[0, COUNT]:
                        pick(nodes, cards, row, shape, units_open(books, row), state, chosen)
                    if shape[0, NEEDS]:
                        decide(nodes, cards, row, shape, chosen, books[5], SPEND, 0)
                    charge_unit(nodes, cards, row, shape, mode, chosen)
                    for card in chosen:
                        kept[0][card] |= mode
                    placed += 1
                found = look(books, occupants, costs, kept, row)
            put_back(books, occupants, kept, row)
            if not found:
                size -= 1
                heap[0] = heap[size]
            sift(heap, size, 0, costs)
        return placed

    return evict
