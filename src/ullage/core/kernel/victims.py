"""Whom to evict so that units of one request fit: the cheapest set on each node, and the cheapest nodes.

On a node all that may go is released; if a unit fits then, they are put back, first those beyond their budget, each
in order of worth, as long as it still fits. Released allocations never take room away, so all that are left are needed.
Then other sets are searched for a cheaper one. Each unit takes the node where that costs least; only nodes that were
taken are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ullage.core.kernel.board import (
    AFTER_SUPPLIES,
    ALIGNED,
    CODE,
    FIRST_SUPPLY,
    FREE,
    machines_in,
    verdict_in,
)
from ullage.core.kernel.charge import charge_unit, follow_free
from ullage.core.kernel.columns import (
    AFTER_CARDS,
    COUNT,
    FIRST_CARD,
    MACHINE,
    MODES,
    NEEDS,
    Rows,
    Scores,
)
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.occupants import PRIORITY, BookRows, charge, hold, put_in, take_out
from ullage.core.kernel.room import enough, look_at_cards, room_on
from ullage.core.kernel.zones import SPEND, TAKE, decide

_TOP = 0
"""Position in the heap of the node whose victims cost least."""


class OccupantColumns(NamedTuple):
    """What one decision says of each entry; those of a node follow each other.

    `first` is per node its first entry, and one behind the last; `since` when each is bound (seconds). `status` says
    what becomes of each, `budget` the number of its budget (-1: none), and `turn` for which unit it goes.
    """

    first: Rows
    since: Scores
    status: Rows
    budget: Rows
    turn: Rows


class VictimCosts(NamedTuple):
    """Per node what its victims cost (`amounts`), and when the oldest of the highest priority was bound (`since`).

    `left` is how many each budget has left, and `taken` room to count in. The last two rows of costs are spare.
    """

    amounts: Rows
    since: Scores
    left: Rows
    taken: Rows


class NodeBefore(NamedTuple):
    """What a look at a node changes, as it was before.

    `modes` are those of units that were placed, per card; `node`, `cards` and `supplies` are rows of a node, its cards
    and its zones; `status` is what became of each entry in the cheapest set so far.
    """

    modes: Rows
    node: Rows
    cards: Rows
    status: Rows
    supplies: Rows


class UnitRows(NamedTuple):
    """Room for results, one line for each unit that is asked for: its node and its cards.

    `paid` and `since` are what its victims cost, as in `VictimCosts`.
    """

    at_row: Rows
    at_cards: Rows
    paid: Rows
    since: Scores


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


# --- one node ---


@compiled
def units_open(books: BookRows, row: int) -> Rows:
    """Return 1 for each card of a node that takes a share, else 0. A card whose lock outlasts its users takes none."""
    nodes, cards, shape = books.nodes, books.cards, books.shape
    units = look_at_cards(nodes, cards, row, shape, books.space)
    for k in range(len(units)):
        if books.locked[nodes[row, FIRST_CARD] + k]:
            units[k] = 0
    if shape[0, NEEDS] and enough(units, shape[0, COUNT]):
        decide(nodes, cards, row, shape, units, books.store, TAKE, 0)
    return units


@compiled
def fits(books: BookRows, row: int) -> bool:
    """Return whether one unit fits on a node."""
    there = room_on(books.nodes, row, books.shape, units_open(books, row)) > 0
    return bool(there and (not books.shape[0, NEEDS] or verdict_in(books.store)[CODE] == ALIGNED))


@compiled
def supplies_of(books: BookRows, row: int) -> tuple[int, int]:
    """Return the first supply of a node's machine, and the one after its last."""
    machine, machines = books.nodes[row, MACHINE], machines_in(books.store)
    return (machines[machine, FIRST_SUPPLY], machines[machine, AFTER_SUPPLIES]) if machine >= 0 else (0, 0)


@compiled
def release(books: BookRows, occupants: OccupantColumns, kept: NodeBefore, row: int) -> None:
    """Release all that may go; cards are held by those who stay, and by units that were placed."""
    nodes, cards = books.nodes, books.cards
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        cards[card, MODES] = kept.modes[card]
    for entry in range(occupants.first[row], occupants.first[row + 1]):
        if occupants.status[entry] == STAYS:
            hold(books, entry)
        elif occupants.status[entry] == MAY_GO:
            charge(books, entry, -1)


@compiled
def try_back(books: BookRows, status: Rows, row: int, entry: int) -> bool:
    """Put an entry back if a unit fits with it; else it is a victim. Whether it is back."""
    put_in(books, entry)
    back = fits(books, row)
    if not back:
        take_out(books, entry)
    status[entry] = BACK if back else VICTIM
    return back


@compiled
def put_back_in_order(books: BookRows, occupants: OccupantColumns, costs: VictimCosts, row: int) -> None:
    """Put victims back, those beyond their budget first, then the dearest. No part of what is left suffices."""
    status, budget, left, taken = occupants.status, occupants.budget, costs.left, costs.taken
    begin, end = occupants.first[row], occupants.first[row + 1]
    for entry in range(begin, end):
        if status[entry] == MAY_GO and budget[entry] >= 0:
            taken[budget[entry]] += 1
    for beyond_budget in (True, False):
        for entry in range(begin, end):
            of = budget[entry]
            if status[entry] != MAY_GO or (beyond_budget and (of < 0 or taken[of] <= left[of])):
                continue
            if try_back(books, status, row, entry) and of >= 0:
                taken[of] -= 1
    for entry in range(begin, end):
        if budget[entry] >= 0:
            taken[budget[entry]] = 0


@compiled
def search(books: BookRows, occupants: OccupantColumns, costs: VictimCosts, kept: NodeBefore, row: int) -> None:
    """Look for a cheaper set than that in `kept`, the dearest put back first, and leave the cheapest there.

    What a set costs so far only grows with it, so a set that is not cheaper so far is given up. After
    `MOST_STEPS` the cheapest so far is taken.
    """
    status, begin, end = occupants.status, occupants.first[row], occupants.first[row + 1]
    entry = begin
    for _ in range(MOST_STEPS):
        while entry < end and status[entry] != MAY_GO:
            entry += 1
        if entry < end:
            back = try_back(books, status, row, entry)
            if back or cheaper_so_far(books, occupants, costs, row):
                entry += 1
                continue
        if entry == end and cheaper_so_far(books, occupants, costs, row):
            copy_row(costs.amounts, len(costs.amounts) - 1, costs.amounts, row)
            costs.since[row] = costs.since[-1]
            for each in range(begin, end):
                kept.status[each] = status[each]
        entry = step_back(books, occupants, costs, row, min(entry, end - 1)) + 1
        if entry == begin:
            return


@compiled
def step_back(books: BookRows, occupants: OccupantColumns, costs: VictimCosts, row: int, entry: int) -> int:
    """Undo decisions from an entry on, up to one that was put back and may be a victim instead; before all if none."""
    status = occupants.status
    while entry >= occupants.first[row]:
        if status[entry] == VICTIM:
            status[entry] = MAY_GO
        elif status[entry] == BACK:
            take_out(books, entry)
            status[entry] = VICTIM
            if cheaper_so_far(books, occupants, costs, row):
                break
            status[entry] = MAY_GO
        entry -= 1
    return entry


@compiled
def cheaper_so_far(books: BookRows, occupants: OccupantColumns, costs: VictimCosts, row: int) -> bool:
    """Return whether the victims chosen so far cost less than the cheapest set on the node."""
    trial = len(costs.amounts) - 1
    sum_up(books, occupants, costs, row, trial)
    return cheaper(costs, trial, row)


@compiled
def sum_up(books: BookRows, occupants: OccupantColumns, costs: VictimCosts, row: int, to: int) -> None:
    """Write what the victims on a node cost into a row of costs."""
    entries, bound, status, budget = books.entries, occupants.since, occupants.status, occupants.budget
    cost, since, left, taken = costs.amounts, costs.since, costs.left, costs.taken
    for column in range(COST_COLUMNS):
        cost[to, column] = 0
    cost[to, HIGHEST], since[to] = NOBODY, np.inf
    for entry in range(occupants.first[row], occupants.first[row + 1]):
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
    for entry in range(occupants.first[row], occupants.first[row + 1]):
        if budget[entry] >= 0:
            taken[budget[entry]] = 0


@compiled
def copy_row(of: Rows, row: int, to: Rows, to_row: int) -> None:
    """One row; a loop compiles faster than an assignment of slices."""
    for column in range(of.shape[1]):
        to[to_row, column] = of[row, column]


@compiled
def look(books: BookRows, occupants: OccupantColumns, costs: VictimCosts, kept: NodeBefore, row: int) -> bool:
    """Return whether a unit fits on a node without its evictable occupants; if so, choose victims and sum up costs.

    Only the victims are released then; `put_back` takes it back.
    """
    nodes, cards, status = books.nodes, books.cards, occupants.status
    begin, end = occupants.first[row], occupants.first[row + 1]
    copy_row(nodes, row, kept.node, 0)
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        copy_row(cards, card, kept.cards, card - nodes[row, FIRST_CARD])
    first, after = supplies_of(books, row)
    for at in range(first, after):
        kept.supplies[at - first] = books.supplies[at, FREE]
    release(books, occupants, kept, row)
    if not fits(books, row):
        return False
    put_back_in_order(books, occupants, costs, row)
    sum_up(books, occupants, costs, row, row)
    if not searchable(occupants, costs, row):
        return True
    for entry in range(begin, end):
        kept.status[entry] = status[entry]
    put_back(books, occupants, kept, row)
    release(books, occupants, kept, row)
    search(books, occupants, costs, kept, row)
    put_back(books, occupants, kept, row)
    release(books, occupants, kept, row)
    for entry in range(begin, end):
        status[entry] = kept.status[entry]
        if status[entry] == BACK:
            put_in(books, entry)
    return True


@compiled
def searchable(occupants: OccupantColumns, costs: VictimCosts, row: int) -> bool:
    """Return whether a cheaper set may exist: not if nobody was put back, nor for a single victim without a budget."""
    if costs.amounts[row, NUMBER] <= 1 and not len(costs.left):
        return False
    found = False
    for entry in range(occupants.first[row], occupants.first[row + 1]):
        found |= occupants.status[entry] == BACK
    return found


@compiled
def put_back(books: BookRows, occupants: OccupantColumns, kept: NodeBefore, row: int) -> None:
    """Restore a node and its occupants to before `look`."""
    nodes, cards, status = books.nodes, books.cards, occupants.status
    for entry in range(occupants.first[row], occupants.first[row + 1]):
        if status[entry] == VICTIM or status[entry] == BACK:
            status[entry] = MAY_GO
    copy_row(kept.node, 0, nodes, row)
    for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
        copy_row(kept.cards, card - nodes[row, FIRST_CARD], cards, card)
    first, after = supplies_of(books, row)
    for at in range(first, after):
        books.supplies[at, FREE] = kept.supplies[at - first]


@compiled
def take(occupants: OccupantColumns, left: Rows, row: int, unit: int) -> None:
    """Mark the victims on a node as gone for this unit and charge their budgets. Later units may evict the others."""
    status, budget, turn = occupants.status, occupants.budget, occupants.turn
    for entry in range(occupants.first[row], occupants.first[row + 1]):
        if status[entry] == VICTIM:
            status[entry], turn[entry] = GONE, unit
            if budget[entry] >= 0:
                left[budget[entry]] = max(0, left[budget[entry]] - 1)
        elif status[entry] == BACK:
            status[entry] = MAY_GO


# --- the cheapest nodes ---


@compiled
def costs_more(cost: Rows, row: int, other: int) -> bool:
    """Return whether one row of costs is larger than another at the first column that differs."""
    for column in range(COST_COLUMNS):
        if cost[row, column] != cost[other, column]:
            return bool(cost[row, column] > cost[other, column])
    return False


@compiled
def cheaper(costs: VictimCosts, row: int, other: int) -> bool:
    """Return whether the victims on one node cost less than those on the other."""
    cost, since = costs.amounts, costs.since
    if costs_more(cost, row, other) or costs_more(cost, other, row):
        return costs_more(cost, other, row)
    return bool(since[row] > since[other] if since[row] != since[other] else row < other)


@compiled
def sift(heap: Rows, size: int, at: int, costs: VictimCosts) -> None:
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
def line_up(
    books: BookRows, occupants: OccupantColumns, costs: VictimCosts, kept: NodeBefore, may_take: Rows, heap: Rows
) -> int:
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
        books: BookRows,
        occupants: OccupantColumns,
        costs: VictimCosts,
        kept: NodeBefore,
        may_take: Rows,
        state: Any,
        mode: int,
        found: UnitRows,
    ) -> int:
        """Place units until nobody more may go for one; return how many, and write where and at what cost."""
        nodes, cards, shape = books.nodes, books.cards, books.shape
        cost, known, heap, placed = costs.amounts, len(may_take), np.zeros(len(may_take), np.int64), 0
        most = len(found.at_row)
        size = line_up(books, occupants, costs, kept, may_take, heap)
        while placed < most and size:
            row = heap[_TOP]
            copy_row(cost, row, cost, known)
            fitting = look(books, occupants, costs, kept, row)
            if fitting and not costs_more(cost, row, known):  # else others used up a budget meanwhile
                copy_row(cost, row, found.paid, placed)
                found.since[placed] = costs.since[row]
                take(occupants, costs.left, row, placed)
                for card in range(nodes[row, FIRST_CARD], nodes[row, AFTER_CARDS]):
                    follow_free(cards, card)
                while placed < most and fits(books, row):
                    found.at_row[placed], chosen = row, found.at_cards[placed]
                    if shape[0, COUNT]:
                        pick(nodes, cards, row, shape, units_open(books, row), state, chosen)
                    if shape[0, NEEDS]:
                        decide(nodes, cards, row, shape, chosen, books.store, SPEND, 0)
                    charge_unit(nodes, cards, row, shape, mode, chosen)
                    for card in chosen:
                        kept.modes[card] |= mode
                    placed += 1
                fitting = look(books, occupants, costs, kept, row)
            put_back(books, occupants, kept, row)
            if not fitting:
                size -= 1
                heap[_TOP] = heap[size]
            sift(heap, size, _TOP, costs)
        return placed

    return evict
