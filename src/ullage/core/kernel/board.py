"""What the rows of a board say: the zones of each machine, and what lies in them beside its cards."""

from __future__ import annotations

from ullage.core.kernel.columns import Rows, Scores
from ullage.core.kernel.links import Links

# A machine.
ZONE_COUNT = 0
"""Its zones; masks count them from 0 in the order of their ids."""
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
MACHINE_COLUMNS = 8

# A supply: a CPU, a device, or the memory of a zone.
RESOURCE = 0
ZONES = 1
"""The mask of zones it lies in; 0 where that is not known."""
TOTAL, FREE = 2, 3
"""Of what is counted one by one 1, or 0; else bytes. What is reserved counts in the total only."""
ID = 4
SOCKET, CORE = 5, 6
"""Of a CPU, counted from 0 on its machine: a core is one of one socket."""
SUPPLY_COLUMNS = 7

CPUS, CARDS, MEMORY, OTHERS = 0, 1, 2, 3
"""Resources; those from `OTHERS` on are named by the board."""

# A need: what a container of a request is aligned by. Those of one container follow each other.
SCOPE, CONTAINER, STAGE, NEEDED, AMOUNT = 0, 1, 2, 3, 4
"""0 where containers are aligned one by one, 1 for a whole pod; which container; when it runs; of what; how much."""
INIT, SIDECAR, APP = 0, 1, 2

# What became of it.
CODE, UNION, SPAN, CONTAINER_OF, MERGED, KNOWN = 0, 1, 2, 3, 4, 5
"""Why it is refused; the zones of all that was taken, and how many; the container that was aligned last, and its
merged mask; 1 if the zones of the machine are known and told apart."""
VERDICT_COLUMNS = 6
ALIGNED, UNKNOWN, WEAKER, TOO_MANY, NOT_ALIGNED, SHORT = 0, 1, 2, 3, 4, 5
"""Reasons: no record of zones, a weaker policy of the node, more zones than are enumerated, no mask that will do,
too little there."""

# What a request takes of each supply of one machine.
MARK, BYTES, PEAK = 0, 1, 2
"""What is the matter with it (below); bytes of it now, and the most that init containers had of it."""
TAKEN_COLUMNS = 3
OUT_OF_REACH, OPEN, HELD, REUSABLE = 0, 1, 2, 3
"""A card or a supply for one request: not to be had, free, taken by it, or given back by a finished init container."""

Board = tuple[Rows, Rows, Rows, Rows, Rows, Scores, Links]
"""Machines, supplies, distances; then room for one decision: what is taken of each supply, and the verdict. Then how
much closeness counts in the score of a node; and how cards are joined."""
