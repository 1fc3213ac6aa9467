"""Numbers of the reasons why a card takes no share of a request, in the order in which they are examined.

`core/verdict/reasons.py` says what each of them means. The kinds of cards give those up to `NO_TEMPLATE`, except for
`WRONG_INDEX`, `WRONG_UUID`, `NODE_AFFINITY` and `NODE_TAINTED`; the books give the others.
"""

from __future__ import annotations

FITS = 0
"""No reason: the card takes a share."""

WRONG_POOL, USED_BY_OTHER, GPU_MISSING, GPU_CORDONED, GPU_NOT_RUNNING, NO_CAPACITY = range(1, 7)
ISOLATION_POLICY, WRONG_INDEX, WRONG_UUID, ISOLATION_UNSUPPORTED, WRONG_MODEL, WRONG_VENDOR = range(7, 13)
NODE_AFFINITY, NODE_TAINTED, CAPACITY_UNKNOWN, NO_TEMPLATE = range(13, 17)
EXCLUSIONS = NO_TEMPLATE
"""The last reason that freed capacity cannot change."""

COMPUTE_TOTAL, VRAM_TOTAL = 17, 18
"""The request needs more than the whole card has."""
LOCKED, USER_LIMIT, NOT_IDLE = 19, 20, 21
COMPUTE, VRAM, NO_COMPUTE = 22, 23, 24
"""Less is free than needed; no compute at all is left, which a request for memory alone needs too."""
SHARE, PARTITION = 25, 26
"""Less than the requested fraction is free; no place for a partition."""
REASONS = 27
"""The number of reasons."""

# What a node lacks for a unit, as bits.
LACKS_CPU, LACKS_MEMORY, LACKS_SLOT = 1, 2, 4
