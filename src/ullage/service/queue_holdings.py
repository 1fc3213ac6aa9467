"""The holdings of each queue of pods in the books. Only changed allocations are counted again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from ullage.core.admitting.turns import Held
from ullage.core.books.fleet import Fleet
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim
from ullage.model.error import InvalidRequest
from ullage.model.name import check_name
from ullage.model.resources import Resources

QueueOf = Callable[[Claim], str]
"""Returns the queue of the owner of a request."""


class QueueHoldings:
    """Sums per queue. `queue_of` returns the queue of a holder of cards."""

    def __init__(self, queue_of: QueueOf) -> None:
        self._queue_of = queue_of
        self._known: dict[str, tuple[Allocation, str, Resources]] = {}
        self._fleet: Fleet | None = None

    def forget(self) -> None:
        """Read the queues of all holders again."""
        self._known = {}

    def of(self, fleet: Fleet) -> Held:
        """Return per queue how often it holds which request, until the request is gone."""
        if fleet is not self._fleet:  # what a part counts for depends on the cards there are
            self._fleet, self._known = fleet, {}
        before, known = self._known, dict[str, tuple[Allocation, str, Resources]]()
        for uid, allocation in fleet.ledger.items():
            entry = before.get(uid)
            if entry is None or entry[0] is not allocation:
                queue = "" if allocation.claim is None else self._queue_of(allocation.claim)
                if not queue:  # a card that claims of several pods share is in no namespace
                    continue
                entry = allocation, queue, fleet.resources(allocation.requirement)
            known[uid] = entry
        self._known = known
        return Counter((queue, amount) for _, queue, amount in known.values())


def labelled(label: str, named: Callable[[str], str]) -> QueueOf:
    """Return a function for the queue of a holder: its label, else the queue `named` for its namespace, else that.

    A label that cannot be the name of a queue is ignored.
    """

    def queue_of(claim: Claim) -> str:
        said = claim.labels.get(label, ""), named(claim.namespace)
        return next((name for name in said if _is_name(name)), claim.namespace)

    return queue_of


@lru_cache(1024)
def _is_name(text: str) -> bool:
    try:
        check_name("queue", text)
    except InvalidRequest:
        return False
    return True
