"""The allocator as a library: machines and requests in, placements or refusals out, without a server.

```python
from ullage.allocator import Allocator, Gpu, Node, Refusal, Request

books = Allocator([Node("a", 64_000, 2**38, (Gpu("g0", 0, vram_bytes=40 * 2**30),))])
held = books.alloc(Request.of("pod-1", "vram=10g"), now=0.0)
print(held if isinstance(held, Refusal) else held.gpus)
```

Amounts are GFLOPS, bytes and thousandths of a CPU; times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from ullage.core.admitting.gang_state import GangOutcome
from ullage.core.allocator import FleetAllocator
from ullage.core.books.capacity import CardRoom
from ullage.core.books.departed import Freed
from ullage.core.books.fleet import Fleet
from ullage.core.evicting.preemption import NoPreemption, Preemption
from ullage.core.gang import Gangs
from ullage.core.learning.learned import Learning
from ullage.core.placing.adjust import Adjustment, AmountsChange
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request, Subgroup
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Part
from ullage.model.profile import Profiles
from ullage.model.profiles import SHIPPED
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement

__all__ = [
    "Adjustment",
    "Allocation",
    "Allocator",
    "AmountsChange",
    "Caps",
    "CardRoom",
    "Claim",
    "Freed",
    "GangClaim",
    "GangOutcome",
    "Gangs",
    "Gpu",
    "NoPreemption",
    "Node",
    "Part",
    "Preemption",
    "Quota",
    "Quotas",
    "Refusal",
    "Request",
    "ResourceRequirement",
    "Rules",
    "Subgroup",
]


class Allocator(FleetAllocator):
    """Operations on the cards of some machines, ready at once.

    `held` are allocations that were found, such as after a restart. `profiles` say what partitions cards have.

    Raises:
        InvalidRequest: the machines cannot be: a name or a card is there twice, or an amount is out of range.
        NotFound, Conflict: what is held contradicts the machines, as `reconcile` says.

    """

    def __init__(
        self,
        nodes: Iterable[Node],
        rules: Rules | None = None,
        *,
        held: Iterable[Allocation] = (),
        profiles: Profiles = SHIPPED,
        learning: Learning | None = None,
        now: float = 0.0,
    ) -> None:
        super().__init__(Fleet(nodes, profiles=profiles), rules, learning)
        self.reconcile(held, now)
        self.set_ready()
