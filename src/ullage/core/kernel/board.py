"""Columns of the zones of machines: their supplies, what a request needs, and what was decided.

All rows of a board lie in one array, the *arena*. An array costs a quarter of a microsecond per call from Python, so
compiled functions take the arena instead of its sixteen parts, and open the parts that they use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import compiled, inlined
from ullage.core.kernel.compiling.uncounted import part
from ullage.core.kernel.links import Links

# A machine.
ZONE_COUNT = 0
"""Its zones, which masks number from 0 in the order of their ids. 0: only the links of its cards are known."""
FIRST_SUPPLY, AFTER_SUPPLIES = 1, 2
"""Its supplies, from the first row to before the other: CPUs by id, then the rest."""
KUBELET = 3
"""The policy of its kubelet; -1 where Ullage binds."""
POD_SCOPE = 4
"""1 if that kubelet aligns a pod as one."""
STATIC_CPUS, STATIC_MEMORY = 5, 6
"""Whether CPUs and memory of its zones are allocated exclusively."""
FIRST_DISTANCE = 7
"""The first row of its distances, one per zone; -1 where masks are not compared by them."""
BY_TOTAL = 8
"""1 if the width of a preferred mask follows from what the machine has, 0 if it follows from what is free."""
THREADS = 9
"""CPUs per core, if the kubelet allocates whole cores only; else 0."""
CARDS_COUNTED = 10
"""1 if only the number of cards in each zone is known: then it is a supply of the machine."""
PICKER = 11
"""Who picks the cards of a request, by number (below)."""
MACHINE_COLUMNS = 12

LOWEST, NAMED, BY_PARTITION = 0, 1, 2
"""A plugin that takes the lowest free cards; Ullage, because it binds or the plugin follows; NVIDIA's plugin."""

# A supply: a CPU, a device, or an amount in a zone (memory, or a resource that is counted and has no ids).
RESOURCE = 0
ZONES = 1
"""The mask of zones it lies in; 0 where that is unknown."""
TOTAL, FREE = 2, 3
"""1 or 0 for a single CPU or device, else the amount. What is reserved is part of the total only."""
ID = 4
OUTER, INNER, CORE = 5, 6, 7
"""Of a CPU, each numbered from 0 on its machine: its zone and its socket, the larger first; its core. A core of
-1 marks an amount."""
WHOLE_CORE = 8
"""Of a CPU: 1 if no CPU of its core is reserved."""
SUPPLY_COLUMNS = 9

CPUS, CARDS, MEMORY, OTHERS = 0, 1, 2, 3
"""Resources; those from `OTHERS` on have names in the board of Python."""

# A need: an amount of a resource that a container of a request is aligned by. Those of a container are consecutive.
SCOPE, CONTAINER, STAGE, NEEDED, AMOUNT = 0, 1, 2, 3, 4
"""0 if containers are aligned one by one, 1 for a whole pod; the container; its stage; the resource; the amount."""
LEVEL = 5
"""Of its pair: 0 if in none, 1 if in a preferred one, 2 if in a required one. A resource that cards only have to be
near to has no amount."""
CLOSENESS = 6
"""In the first row: what a hundredth of closeness adds to the score of a node, times `SCALE`."""
SCALE = 1 << 20
OWN_PICK = 7
"""In the first row: 1 if the strategy picks the cards of a request that asks for no alignment."""
WIDEST = 8
"""In the first row: where closeness is relative, one more than the most zones that a candidate needs; else 0."""
ALONE = 9
"""In the first row: 1 if the request takes all of each of its cards, whatever it is called."""
SEATED = 10
"""In the first row: 1 if supplies are held for the request."""
CONNECT = 11
"""In each row: what the request asks of the links between its cards: nothing (0), or as below."""
BEST_LINKS, ONE_ISLAND = 1, 2
"""The best connected cards; cards of one island or none."""
ON_SWITCH = 12
"""1 if each card has to be behind one PCIe switch with some of the resource."""
INIT, SIDECAR, APP = 0, 1, 2

# The verdict on a request.
CODE = 0
"""`ALIGNED`, or a reason (below)."""
SPAN = 1
"""The number of zones that contain all that it takes."""
CONTAINER_OF, MERGED = 2, 3
"""The container that was aligned last, and its merged mask."""
KNOWN = 4
"""1 if the zones of the machine are known, and few enough to enumerate."""
PROVEN = 5
"""1 if the zones of all that it takes are known, and the placer there aligns as strictly as requested."""
NEAR = 6
"""The merged mask of the container with cards; -1 if several have cards."""
ONLY_CARDS = 7
"""1 if only cards are picked."""
SUPPLY_ZONES = 8
"""If only cards are picked: the zones of the supplies that would be taken; -1 if that depends on which are picked."""
LINKED = 9
"""The mean weight of the pairs of the cards that it takes."""
VERDICT_COLUMNS = 10
ALIGNED, UNKNOWN, WEAKER, TOO_MANY, NOT_ALIGNED, SHORT, BROKEN_CORES, APART, OFF_SWITCH = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Reasons: zones are unknown, the policy of the node is weaker, more zones than are enumerated, no mask is admitted,
too little is free, the CPUs are not whole cores where only those are allocated, the cards are of several
islands, or not behind a switch with a device that they are paired with."""

# What a request takes of each supply of one machine.
STATUS, BYTES, PEAK = 0, 1, 2
"""Of a single CPU or device, its status (below). Of an amount, what is taken now, and the most that init containers
took."""
TAKEN_COLUMNS = 3
OUT_OF_REACH, OPEN, HELD, REUSABLE = 0, 1, 2, 3
"""Status of a card or a supply for one request: unavailable, free, taken by it, or returned by its init containers."""

# The supplies that the last decision takes, as a list: their zones, the number of CPUs and the number of others. Then,
# from `FIRST_LISTED` on, the ids of the CPUs in ascending order. Then for each other supply four numbers: its row on
# its machine, its resource, its id, and its amount.
LISTED_ZONES, LISTED_CPUS, LISTED_OTHERS, FIRST_LISTED = 0, 1, 2, 3
LISTED_COLUMNS = 4


@compiled
def is_amount(total: int, core: int) -> bool:
    """Return whether a supply is an amount, not a single CPU or device."""
    return total > 1 or core < 0


class BoardRows(NamedTuple):
    """The machines of a fleet, and space for one decision.

    `taken` is what the decision takes of each supply of its machine, `verdict` its outcome, `listed` the supplies as a
    list. `counts` is scratch for counts by mask, and `scratch` for the cards of a node.
    """

    machines: Rows
    supplies: Rows
    distances: Rows
    taken: Rows
    verdict: Rows
    counts: Rows
    scratch: Rows
    listed: Rows
    links: Links


_MACHINES, _SUPPLIES, _DISTANCES, _TAKEN, _VERDICT, _COUNTS, _SCRATCH, _LISTED = 0, 1, 2, 3, 4, 5, 6, 7
"""The parts of an arena in its order."""
_LAYOUT_OF, _BY_INDEX, _WEIGHTS, _PLACES, _UNIFORM, _MEMO, _KEY, _USED = 8, 9, 10, 11, 12, 13, 14, 15
"""The parts of its links."""

_HEAD = 4
"""Numbers at the begin of an arena that describe a part: where it begins, and its shape in three dimensions."""


def packed(board: BoardRows) -> tuple[Rows, BoardRows]:
    """Copy all parts of a board into an arena. Return the arena, and its parts as views."""
    parts = *board[:-1], *board.links
    at, heads = _HEAD * len(parts), []
    for rows in parts:
        heads.append((at, *rows.shape, *(1,) * (_HEAD - 1 - rows.ndim)))
        at += rows.size
    arena = np.empty(at, np.int64)
    arena[: _HEAD * len(parts)] = np.array(heads).ravel()
    for (begin, *_), rows in zip(heads, parts, strict=True):
        arena[begin : begin + rows.size] = rows.ravel()
    tables = machines_in(arena), supplies_in(arena), distances_in(arena), taken_in(arena)
    lines = verdict_in(arena), counts_in(arena), scratch_in(arena), listed_in(arena)
    return arena, BoardRows(*tables, *lines, links_in(arena))


@inlined
def _line(arena: Rows, number: int) -> Rows:
    head = _HEAD * number
    return part(arena, arena[head], (arena[head + 1],))


@inlined
def _table(arena: Rows, number: int) -> Rows:
    head = _HEAD * number
    return part(arena, arena[head], (arena[head + 1], arena[head + 2]))


@inlined
def _cube(arena: Rows, number: int) -> Rows:
    head = _HEAD * number
    return part(arena, arena[head], (arena[head + 1], arena[head + 2], arena[head + 3]))


@inlined
def machines_in(arena: Rows) -> Rows:
    return _table(arena, _MACHINES)


@inlined
def supplies_in(arena: Rows) -> Rows:
    return _table(arena, _SUPPLIES)


@inlined
def distances_in(arena: Rows) -> Rows:
    """Return the distances between zones."""
    return _table(arena, _DISTANCES)


@inlined
def taken_in(arena: Rows) -> Rows:
    """Return what the last decision takes of each supply of its machine."""
    return _table(arena, _TAKEN)


@inlined
def verdict_in(arena: Rows) -> Rows:
    """Return the verdict of the last decision."""
    return _line(arena, _VERDICT)


@inlined
def counts_in(arena: Rows) -> Rows:
    """Return the scratch for counts by mask."""
    return _line(arena, _COUNTS)


@inlined
def scratch_in(arena: Rows) -> Rows:
    """Return the scratch for the cards of a node, two rows."""
    return _table(arena, _SCRATCH)


@inlined
def listed_in(arena: Rows) -> Rows:
    """Return the list of the supplies that the last decision takes."""
    return _line(arena, _LISTED)


@inlined
def by_index_in(arena: Rows) -> Rows:
    """Return the part of the links that maps cards by index to their order in the fleet (`Links`)."""
    return _line(arena, _BY_INDEX)


@inlined
def links_in(arena: Rows) -> Links:
    """Return the links between cards."""
    return Links(
        _line(arena, _LAYOUT_OF),
        _line(arena, _BY_INDEX),
        _cube(arena, _WEIGHTS),
        _cube(arena, _PLACES),
        _line(arena, _UNIFORM),
        _table(arena, _MEMO),
        _line(arena, _KEY),
        _line(arena, _USED),
    )
