"""Those who hold something of a node, as columns, and the steps in which all evictions release them and put them back.

An eviction releases everybody who may go, or one after the other in order. Then it puts them back, the last one first,
as long as the room suffices (`kernel/fewest.py` for sessions, `kernel/victims.py` for requests).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ullage.core.kernel.board import FREE
from ullage.core.kernel.columns import (
    AFTER_CARDS,
    COMPUTE_FREE,
    CPU_FREE,
    FIRST_CARD,
    MEMORY_FREE,
    MODES,
    SLOTS_FREE,
    USERS,
    VRAM_FREE,
    Rows,
)
from ullage.core.kernel.compiled import lean

# An entry.
CPU, MEMORY = 0, 1
PRIORITY = 2
BOUND = 3
"""1 if it is a request's own, and bound."""
NAMESPACE, WORKLOAD, GANG = 4, 5, 6
"""Numbers of names; -1 for none."""
ROW = 7
"""The node where it holds this; -1: none that is known."""
FIRST_CHARGE, AFTER_CHARGE = 8, 9
ENTRY_COLUMNS = 10
# A charge.
CARD, COMPUTE, VRAM, MODE = 0, 1, 2, 3
"""Of a card; or, where `CARD` is below 0, `COMPUTE` of the supply -1 - `CARD` (`core/kernel/board.py`)."""
CHARGE_COLUMNS = 4


class HolderRows(NamedTuple):
    """What entries hold, and the rows of nodes, cards and supplies from which that is charged.

    `before` has room for the modes of the card of each charge, as they were before the last change by it.
    """

    nodes: Rows
    cards: Rows
    supplies: Rows
    entries: Rows
    charges: Rows
    before: Rows


class BookRows(NamedTuple):
    """The same for requests: copies of the rows of the books, who holds something of a node, and the request.

    The entries of a node follow each other, the dearest first. `shape` is of the request, `space` has room for a node's
    cards, `locked` says on which cards a lock stays although all users go, and `store` holds the zones of machines;
    what is free in them is a copy too. It is flat: to take a record out of another one costs time in compiled code.
    """

    nodes: Rows
    cards: Rows
    supplies: Rows
    entries: Rows
    charges: Rows
    before: Rows
    shape: Rows
    space: Rows
    locked: Rows
    store: Rows


Holders: TypeAlias = HolderRows | BookRows


@lean
def charge(holders: Holders, entry: int, sign: int) -> None:
    """Charge an entry on its node (+1) or release it (-1); modes of cards, and what follows from it, come later."""
    nodes, cards, entries, charges = holders.nodes, holders.cards, holders.entries, holders.charges
    row = entries[entry, ROW]
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
            holders.supplies[-1 - card, FREE] -= sign * charges[at, COMPUTE]


@lean
def hold(holders: Holders, entry: int) -> None:
    """Let the cards of an entry be held in its mode too; how they were held is kept."""
    nodes, cards, entries, charges = holders.nodes, holders.cards, holders.entries, holders.charges
    row = entries[entry, ROW]
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            holders.before[at] = cards[card, MODES]
            cards[card, MODES] |= charges[at, MODE]


@lean
def let_go(holders: Holders, entry: int) -> None:
    """Undo `hold`, in the opposite order."""
    nodes, cards, entries, charges = holders.nodes, holders.cards, holders.entries, holders.charges
    row = entries[entry, ROW]
    for at in range(entries[entry, FIRST_CHARGE], entries[entry, AFTER_CHARGE]):
        card = charges[at, CARD]
        if nodes[row, FIRST_CARD] <= card < nodes[row, AFTER_CARDS]:
            cards[card, MODES] = holders.before[at]


@lean
def put_in(holders: Holders, entry: int) -> None:
    """Put a released entry back."""
    charge(holders, entry, 1)
    hold(holders, entry)


@lean
def take_out(holders: Holders, entry: int) -> None:
    """Release the entry that was put back last."""
    charge(holders, entry, -1)
    let_go(holders, entry)
