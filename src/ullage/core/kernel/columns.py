"""The columns of rows: of a node, of a card, and of a request resolved against one fleet (a *shape*).

Compiled functions import this module as `c` and read `nodes[row, c.CPU_FREE]`. The columns of one node or card lie
together, so that judging a node reads one or two cache lines.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
"""Rows of integers, with the columns below."""

Scores = npt.NDArray[np.float64]

UNREACHABLE = 2**62
"""Larger than any node or card: amounts beyond the range of a column are reduced to it."""

# A node.
CPU_FREE, CPU_TOTAL = 0, 1
"""Thousandths of a CPU."""
MEMORY_FREE, MEMORY_TOTAL = 2, 3
"""Bytes."""
SLOTS_FREE, SLOTS_TOTAL = 4, 5
"""Allocations that it may still take, and may have in all."""
GPU_FREE, GPU_TOTAL = 6, 7
"""Usable cards without a holder, and all usable cards."""
FIRST_CARD, AFTER_CARDS = 8, 9
"""Its cards are the rows from the first to before the other."""
CHANGED = 10
"""The clock of the books at its last change."""
RUNS = 11
"""Sizes of the work there, as bits: 0 for a part of a card, k for k whole cards (62: or more)."""
FREED = 12
"""The clock of the books when something there was last freed: a request that found no room since finds none now."""
BEFORE, AFTER = 13, 14
"""The node that changed before it, and the next that changed after it; -1 for none. They chain all nodes."""
MACHINE = 15
"""Its row among the machines whose zones are known (`core/kernel/board.py`), else -1."""
NODE_COLUMNS = 16
"""Two cache lines."""

# A card.
COMPUTE_FREE, COMPUTE_TOTAL = 0, 1
"""GFLOPS, or millionths where the capacity is unknown."""
VRAM_FREE, VRAM_TOTAL = 2, 3
"""Bytes, or millionths."""
MODES, USERS = 4, 5
"""The modes in which its users hold it (`core/books/modes.py`), and their number."""
KIND = 6
"""Cards of one kind differ only in their identity and their position."""
ZONES = 7
"""The zones it is near, one bit each in the order of their ids on its machine; 0 where that is unknown."""
PLACE = 8
"""Its position among the cards of its node, by uuid."""
INDEX = 9
"""Its position on the node, as a request may name it."""
SHARE = 10
"""Its free thousandths: the smaller of compute and vram, rounded down, 0 or more."""
LEFT = 11
"""How empty it is, with compute and vram counted equally, in parts of `FULL`."""
CARD_COLUMNS = 12

FULL = 1 << 20
"""All of something, where parts are integers so that every CPU agrees."""

# A request: row 0 of a shape.
CPU, MEMORY, COUNT, WHOLE, CAP = 0, 1, 2, 3, 4
"""Thousandths of a CPU, bytes, cards, 1 if whole cards, most allocations on a node (-1: as the node says)."""
NAMED = 5
"""How many of its last rows name cards, each as `NAMED_BY` says; 0: any card will do."""
NEEDS = 6
"""How many rows before those are needs of its containers (`core/kernel/board.py`); 0: zones do not matter."""
POLICY = 7
"""How strictly it is aligned (`core/kernel/masks.py`), -1: as the node says."""
# Each of the last rows names a card.
NAMED_BY, NAME = 0, 1
BY_INDEX, BY_CARD, NOT_CARD = 0, 1, 2
"""By its index on its node; by its row in these books (-1: none); a row that is excluded."""
# A share of it on cards of kind k: row k + 1.
COMPUTE, VRAM = 0, 1
"""What it takes: GFLOPS and bytes, or millionths."""
MOST = 2
"""How many shares a card takes at most."""
MIXED = 3
"""Users in these modes exclude its isolation."""
EXCLUDED = 4
"""Why such cards may not take it at all (`core/kernel/reasons.py`); 0: they may."""
KEPT_APART, PENDING = 5, 6
"""Whether such cards have its isolation; whether they wait for their driver."""
USERS_MOST = 7
"""The most users of such a card."""
REFUSED = 8
"""All modes of users that refuse it: `MIXED`, a card held whole, and any user at all if it takes whole cards."""
SHAPE_COLUMNS = 13

# The state of a node in a table, for one shape.
OPEN, BONUS = 0, 1
"""Whether the node is open to the request; what preferred terms add to its score."""
SPAN = 2
"""The number of zones of a unit there; only where closeness is relative."""
TABLE_COLUMNS = 3
