"""What the rows of a board say: the zones of each machine, and what lies in them beside its cards."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.compiling.uncounted import part
from ullage.core.kernel.links import Links

# A machine.
ZONE_COUNT = 0
"""Its zones; masks count them from 0 in the order of their ids. None: only links of its cards are known."""
FIRST_SUPPLY, AFTER_SUPPLIES = 1, 2
"""What lies in its zones, from the first row to before the other: CPUs by id, then the rest."""
KUBELET = 3
"""The policy of the kubelet that decides there; -1: Ullage binds."""
POD_SCOPE = 4
"""1 if that kubelet aligns a pod as one."""
STATIC_CPUS, STATIC_MEMORY = 5, 6
"""Whether CPUs and memory of its zones are handed out alone."""
FIRST_DISTANCE = 7
"""The first row of its distances, one per zone; -1 where masks are not compared by them."""
BY_TOTAL = 8
"""1 if a preferred mask is as narrow as all that the machine has allows; 0: as what is free does."""
THREADS = 9
"""CPUs of a core, where that kubelet hands out whole cores only; else 0."""
CARDS_COUNTED = 10
"""1 if only their number is known of cards in a zone: then that is a supply of it."""
MACHINE_COLUMNS = 11

# A supply: a CPU, a device, or an amount in a zone: memory, or what is counted there and has no ids.
RESOURCE = 0
ZONES = 1
"""The mask of zones it lies in; 0 where that is not known."""
TOTAL, FREE = 2, 3
"""Of what is there one by one 1, or 0; else the amount. What is reserved counts in the total only."""
ID = 4
OUTER, INNER, CORE = 5, 6, 7
"""Of a CPU, each counted from 0 on its machine: its zone and its socket, the larger first; its core. A core of
-1 says that it is an amount."""
WHOLE_CORE = 8
"""Of a CPU 1 if no CPU of its core is reserved."""
SUPPLY_COLUMNS = 9

CPUS, CARDS, MEMORY, OTHERS = 0, 1, 2, 3
"""Resources; those from `OTHERS` on are named by the board."""

# A need: what a container of a request is aligned by. Those of one container follow each other.
SCOPE, CONTAINER, STAGE, NEEDED, AMOUNT = 0, 1, 2, 3, 4
"""0 where containers are aligned one by one, 1 for a whole pod; which container; when it runs; of what; how much."""
LEVEL = 5
"""Of the pair it is in: 0 if in none, 1 if in a preferred one, 2 if in a required one. What cards are only to be near
to has no amount."""
CLOSENESS = 6
"""In the first row: what a hundredth of closeness adds to the score of a node, times `SCALE`."""
SCALE = 1 << 20
OWN_PICK = 7
"""In the first row: 1 if the strategy picks cards by itself where nobody asks for alignment."""
WIDEST = 8
"""In the first row, where closeness is relative: one more than the most zones that a candidate needs; else 0."""
ALONE = 9
"""In the first row: 1 if it takes all of each of its cards, by whatever name."""
SEATED = 10
"""In the first row: 1 if what it has beside cards is held for it."""
INIT, SIDECAR, APP = 0, 1, 2

# What became of it.
CODE, SPAN, CONTAINER_OF, MERGED, KNOWN, CLAIM, NEAR, ONLY_CARDS, BESIDE = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Why it is refused, or `ALIGNED`; in how many zones lies all that it takes; the container that was aligned last, and
its merged mask; 1 if the zones of the machine are known and told apart; 1 if so are those of all that it takes, and
whoever decides there aligns as strictly as asked; the merged mask of the container that has cards, -1 if several have;
1 if only cards are picked, and then the zones of what is taken beside them, -1 if they show only when it is picked."""
VERDICT_COLUMNS = 9
ALIGNED, UNKNOWN, WEAKER, TOO_MANY, NOT_ALIGNED, SHORT, BROKEN_CORES = 0, 1, 2, 3, 4, 5, 6
"""Reasons: no record of zones, a weaker policy of the node, more zones than are enumerated, no mask that will do,
too little there, CPUs that are not whole cores where only those are handed out."""

# What a request takes of each supply of one machine.
MARK, BYTES, PEAK = 0, 1, 2
"""What is the matter with it (below); bytes of it now, and the most that init containers had of it."""
TAKEN_COLUMNS = 3
OUT_OF_REACH, OPEN, HELD, REUSABLE = 0, 1, 2, 3
"""A card or a supply for one request: not to be had, free, taken by it, or given back by a finished init container."""

# What the last decision takes beside cards, told in a line: the zones of that, how many CPUs, how many others; from
# `FIRST_TOLD` on the ids of the CPUs, ascending, then of each other its row on its machine, resource, id, bytes.
TOLD_ZONES, TOLD_CPUS, TOLD_OTHERS, FIRST_TOLD = 0, 1, 2, 3
TOLD_COLUMNS = 4


@compiled
def in_bytes(total: int, core: int) -> bool:
    """Whether a supply is an amount, not one device."""
    return total > 1 or core < 0


class KernelBoard(NamedTuple):
    """The machines of a fleet, and room for one decision.

    `taken` is what that decision takes of each supply of its machine, `verdict` what came of it; `counts` is room
    for counts by mask, `spare` for cards of a node; `told` is what is taken, for whoever makes a value of it.
    """

    machines: Rows
    supplies: Rows
    distances: Rows
    taken: Rows
    verdict: Rows
    counts: Rows
    spare: Rows
    told: Rows
    links: Links


_HEAD = 4
"""Numbers that say where a part of a store lies: its begin, and its shape in three dimensions."""


def packed(board: KernelBoard) -> tuple[Rows, KernelBoard]:
    """All parts of a board in one array, and the same parts as views of it.

    Handing a compiled function an array costs as much as a decision: one is handed instead of fifteen.
    """
    parts = *board[:-1], *board.links
    at, heads = _HEAD * len(parts), []
    for rows in parts:
        heads.append((at, *rows.shape, *(1,) * (_HEAD - 1 - rows.ndim)))
        at += rows.size
    store = np.empty(at, np.int64)
    store[: _HEAD * len(parts)] = np.array(heads).ravel()
    for (begin, *_), rows in zip(heads, parts, strict=True):
        store[begin : begin + rows.size] = rows.ravel()
    return store, opened(store)


def opened(store: Rows) -> KernelBoard:
    """The parts of a store, as views."""
    tables = machines_in(store), supplies_in(store), distances_in(store), taken_in(store)
    return KernelBoard(*tables, verdict_in(store), counts_in(store), spare_in(store), told_in(store), links_in(store))


@inlined
def machines_in(store: Rows) -> Rows:
    """The machines of a store."""
    return _table(store, 0)


@inlined
def supplies_in(store: Rows) -> Rows:
    """The supplies of a store."""
    return _table(store, 1)


@inlined
def distances_in(store: Rows) -> Rows:
    """The distances of a store."""
    return _table(store, 2)


@inlined
def taken_in(store: Rows) -> Rows:
    """What the last decision in a store takes of each supply of its machine."""
    return _table(store, 3)


@inlined
def verdict_in(store: Rows) -> Rows:
    """The verdict of a store."""
    return _line(store, 4)


@inlined
def counts_in(store: Rows) -> Rows:
    """The room for counts by mask in a store."""
    return _line(store, 5)


@inlined
def spare_in(store: Rows) -> Rows:
    """The room for cards of a node in a store."""
    return _table(store, 6)


@inlined
def told_in(store: Rows) -> Rows:
    """What is taken, as a store tells it."""
    return _line(store, 7)


@inlined
def by_index_in(store: Rows) -> Rows:
    """The part of its links that leads from cards by index to their order (`Links`)."""
    return _line(store, 9)


@inlined
def links_in(store: Rows) -> Links:
    """The links of a store."""
    lines = _line(store, 8), _line(store, 9)
    return Links(*lines, _cube(store, 10), _cube(store, 11), *_rest_of_links(store))


@inlined
def _rest_of_links(store: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    return _line(store, 12), _table(store, 13), _line(store, 14), _line(store, 15)


@inlined
def _line(store: Rows, at: int) -> Rows:
    head = _HEAD * at
    return part(store, store[head], (store[head + 1],))


@inlined
def _table(store: Rows, at: int) -> Rows:
    head = _HEAD * at
    return part(store, store[head], (store[head + 1], store[head + 2]))


@inlined
def _cube(store: Rows, at: int) -> Rows:
    head = _HEAD * at
    return part(store, store[head], (store[head + 1], store[head + 2], store[head + 3]))
