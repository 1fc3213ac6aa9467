"""What each queue of pods holds in the books; of an allocation that is as it was, it is not worked out again."""

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
"""The queue in which the owner of a request is."""


class QueueHoldings:
    """`queue_of` says in which queue whoever holds cards is."""

    def __init__(self, queue_of: QueueOf) -> None:
        self._queue_of = queue_of
        self._known: dict[str, tuple[Allocation, str, Resources]] = {}
        self._fleet: Fleet | None = None

    def forget(self) -> None:
        """Namespaces may be in other queues by now."""
        self._known = {}

    def of(self, fleet: Fleet) -> Held:
        """Per queue how often it holds what: requests alone, until they are gone."""
        if fleet is not self._fleet:  # what a part counts for depends on the cards there are
            self._fleet, self._known = fleet, {}
        before, known = self._known, dict[str, tuple[Allocation, str, Resources]]()
        for uid, allocation in fleet.ledger.items():
            entry = before.get(uid)
            if entry is None or entry[0] is not allocation:
                if allocation.claim is None:
                    continue
                entry = allocation, self._queue_of(allocation.claim), fleet.resources(allocation.requirement)
            known[uid] = entry
        self._known = known
        return Counter((queue, amount) for _, queue, amount in known.values())


def labelled(label: str, named: Callable[[str], str]) -> QueueOf:
    """The queue that a pod names in a label, else the one that is `named` for its namespace, else the namespace.

    What can be no queue's name is as if it were not said.
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
