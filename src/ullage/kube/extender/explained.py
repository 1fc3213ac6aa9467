"""Sentences that explain why a pod fits on no node. Each inspects all nodes, so it is made once for a cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ullage.core.explaining.nowhere_text import asked_text
from ullage.kube.client.lease import clock_s
from ullage.kube.events import AGAIN_S
from ullage.kube.extender.card_offers import FamilyOffers, requests
from ullage.kube.recent import Recent
from ullage.service.cluster import Cluster
from ullage.wire.pod_advice import request_text

_REMEMBERED = 4096


class _Sentence(NamedTuple):
    cause: str
    made_at: float
    text: str


@dataclass(frozen=True, slots=True)
class Explained:
    """The last sentence for each pod. It is reused while the cause is the same, for `AGAIN_S` seconds at most.

    A scheduler asks about a pending pod repeatedly. Numbers that change in between cause no new event.
    """

    clock: Callable[[], float] = clock_s
    _last: Recent[str, _Sentence] = field(default_factory=lambda: Recent(_REMEMBERED))

    def of(self, uid: str, cause: str, explain: Callable[[], str]) -> str:
        """Return the sentence for a pod and this cause. `explain` makes it."""
        last = self._last.pop(uid, None)
        if last is None or last.cause != cause or self.clock() - last.made_at >= AGAIN_S:
            last = _Sentence(cause, self.clock(), explain())
        self._last[uid] = last
        return last.text

    def forget(self, uid: str) -> None:
        self._last.pop(uid, None)


def why_nowhere(cluster: Cluster, found: Sequence[FamilyOffers]) -> str:
    """Return in one line why a pod fits on none of the nodes that it was not offered, and what would fit.

    Of a pod with cards of several families it says so for each of which a node lacks some.
    """
    if len(found) == 1:
        return _why(cluster, *found)
    lacking = [each for each in found if each.offers.refused or each.admitted.unlinked]
    both = " and ".join(each.asked.family for each in found)
    return "; ".join(
        [
            f"no node has room for its cards of {both}",
            *(f"{each.asked.family}: {_why(cluster, each)}" for each in lacking),
        ]
    )


def _why(cluster: Cluster, found: FamilyOffers) -> str:
    asked, admitted, offers = found
    if not offers.refused and admitted.unlinked:
        texts = ", ".join(sorted(set(admitted.unlinked.values())))
        return f"requests {asked_text(asked.requirement)}; no node has such cards free that are linked: {texts}"
    if not offers.refused:
        only = "where bindings count it gets cards that are bound for its application alone"
        lacks = admitted.permit.sentence or "bind some by a GPUBinding"
        return f"asks for {asked_text(asked.requirement)}; {only}: {lacks}"
    shared = () if admitted.places else asked.shared[-1:]
    whose = [f"on cards that its containers share it asks for {asked_text(each.requirement)}" for each in shared]
    why = cluster.nowhere(requests(admitted), offers, lambda fits: request_text(fits, asked))
    return "; ".join([why, *whose])
