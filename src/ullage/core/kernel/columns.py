"""What each number of a row means: of a node, of a card, and of a request resolved against one fleet.

Rows are kept together, so that judging a node reads one or two lines of memory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Rows of integers; which column is what, the constants below say."""

Scores = npt.NDArray[np.float64]

UNREACHABLE = 2**62
"""Larger than any node or card: what is beyond the range of a column is cut to it."""

# A node.
CPU_FREE, CPU_TOTAL = 0, 1
"""Thousandths of a CPU."""
MEMORY_FREE, MEMORY_TOTAL = 2, 3
"""Bytes."""
SLOTS_FREE, SLOTS_TOTAL = 4, 5
"""Allocations it may still take, and may have."""
GPU_FREE, GPU_TOTAL = 6, 7
"""Usable cards that nobody holds any of, and all usable ones."""
FIRST_CARD, AFTER_CARDS = 8, 9
"""Its cards lie flat from the first to before the other."""
CHANGED = 10
"""The clock of the books at its last change."""
RUNS = 11
"""Sizes of what runs there, as bits: 0 for a part of a card, k for k whole cards (62: or more)."""
FREED = 12
"""The clock of the books when something there was last given back: what had no room since then has none now."""
BEFORE, AFTER = 13, 14
"""The nodes that changed last before it and next after it, -1 for none: from the newest on, all in order."""
MACHINE = 15
"""Its row among the machines whose zones are known (`core/kernel/board.py`), -1: they are not."""
NODE_COLUMNS = 16
"""Two lines of memory."""

# A card.
COMPUTE_FREE, COMPUTE_TOTAL = 0, 1
"""GFLOPS, or millionths where the capacity is not known."""
VRAM_FREE, VRAM_TOTAL = 2, 3
"""Bytes, or millionths."""
MODES, USERS = 4, 5
"""How its users hold it (`core/books/modes.py`), and how many they are."""
KIND = 6
"""Cards of one kind differ only in who they are and where they sit."""
ZONES = 7
"""The zones it is near to, a bit each in the order of their ids on its machine; 0 where that is not known."""
PLACE = 8
"""Its place among the cards of its node, by uuid."""
INDEX = 9
"""Its position on the node, as a request may name it."""
SHARE = 10
"""Free thousandths of it: the smaller of compute and vram, rounded down, 0 or more."""
LEFT = 11
"""How empty it is, compute and vram alike, in parts of `FULL`."""
CARD_COLUMNS = 12

FULL = 1 << 20
"""All of something, where parts are integers so that every CPU agrees."""

# A request: row 0 of a shape.
CPU, MEMORY, COUNT, WHOLE, CAP = 0, 1, 2, 3, 4
"""Thousandths of a CPU, bytes, cards, 1 if whole ones, most allocations on a node (-1: as the node says)."""
NAMED = 5
"""How many of its last rows name cards, each one as `NAMED_BY` says; 0: it takes any."""
NEEDS = 6
"""How many rows before those say what its containers are aligned by (`core/kernel/board.py`), 0: by nothing."""
POLICY = 7
"""How strictly it is aligned (`core/kernel/masks.py`), -1: as the node says."""
# Each of the last rows: in what way it names which card.
NAMED_BY, NAME = 0, 1
BY_INDEX, BY_CARD, NOT_CARD = 0, 1, 2
"""A position on its node, one of those that will do; a card of these books, likewise (-1: none); one that will not."""
# One share of it on cards of kind k: row k + 1.
COMPUTE, VRAM = 0, 1
"""What it takes, GFLOPS and bytes (or millionths)."""
MOST = 2
"""How many shares a card takes whatever is left."""
MIXED = 3
"""Users in these modes refuse its isolation."""
EXCLUDED = 4
"""Why such cards may not take it at all (`core/kernel/reasons.py`), 0: they may."""
KEPT_APART, PENDING = 5, 6
"""Whether such cards have its isolation; whether they wait for their driver."""
USERS_MOST = 7
"""How many users such a card may have."""
SHAPE_COLUMNS = 11

# What a table says of a node for one shape.
OPEN, BONUS = 0, 1
"""Whether the node is not excluded; what preferred terms add to its score."""
SPAN = 2
"""In how many zones a unit would lie there; only where closeness is relative."""
TABLE_COLUMNS = 3
