"""Claims whose cards are bound to other applications.

Other allocators of claims, such as kube-scheduler, do not know bindings. Their allocations stay. They are counted,
reported by an event on the pods that use the claim, and listed with the other problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ullage.binding.permit import BindingClaims
from ullage.kube.bindings.hosted_apps import tenant_in
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.events import PodEvent, Reason
from ullage.model.binding import Binding, Tenant
from ullage.model.compute_result import Problem
from ullage.model.device_claim import DeviceClaim
from ullage.model.error import InvalidRequest

Claimed = Callable[[], Iterable[tuple[DeviceClaim, tuple[str, ...]]]]
"""Return claims that have cards, with the uuids of these cards."""


@dataclass(frozen=True, slots=True)
class ConflictingClaim:
    """A pod whose claim has a card, and the binding that reserves the card for another application."""

    pod: Pod
    claim: DeviceClaim
    card: str
    binding: Binding

    @property
    def message(self) -> str:
        whose = f"{self.binding.app} of {self.binding.owner or 'no particular owner'}"
        return f"claim {self.claim.name} has {self.card}, which is bound to {whose}"

    @property
    def problem(self) -> Problem:
        return Problem("/".join(self.pod.key), f"card-bound-elsewhere: {self.message}")


class ConflictingClaims:
    """`now` has the claims found by the last `update`: one for each card of a claim and each pod that uses it."""

    def __init__(self, context: KubeContext, claimed: Claimed) -> None:
        self._claimed, self._record_event = claimed, context.record_event
        self._pods, self._namespaces = context.followed.pods, context.followed.namespaces
        self.now: tuple[ConflictingClaim, ...] = ()

    def update(self, bindings: BindingClaims) -> None:
        """Find them again, and record events."""
        claimed = [(claim, cards) for claim, cards in self._claimed() if claim.reserved_for]
        pods = {pod.metadata.uid: pod for pod in self._pods.objects.values()} if claimed else {}
        self.now = tuple(
            ConflictingClaim(pod, claim, card, others[0])
            for claim, cards in claimed
            for pod in filter(None, map(pods.get, claim.reserved_for))
            for card in cards
            if (others := bindings.others_on(self._who(pod), card))
        )
        for each in self.now:
            self._record_event(PodEvent.on(each.pod, Reason.BOUND_ELSEWHERE, each.message))

    def _who(self, pod: Pod) -> Tenant:
        try:
            return tenant_in(pod.document, self._namespaces.objects)
        except InvalidRequest:
            return Tenant(namespace=pod.metadata.namespace)
