"""Applies bindings before the extender: on each node, a pod may request what bindings give its application."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ullage.binding.permit import Permit, Place
from ullage.binding.room import BindingRejection, Hindrance
from ullage.kube.bindings.occupants import Identity, identity
from ullage.kube.bindings.store import KubeBindings
from ullage.kube.bindings.terms import BindingScope
from ullage.kube.client.changes import Patch
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.recent import Recent
from ullage.model.binding import Binding, Tenant
from ullage.model.error import Conflict, InvalidRequest, Unavailable
from ullage.model.request import ResourceRequirement
from ullage.wire.document import Document, mapping, text
from ullage.wire.gpubinding import APP_LABEL, consume_of
from ullage.wire.pod import DOMAIN, PodRequest
from ullage.wire.pod.bind import BINDINGS

SCOPE_LABEL = f"{DOMAIN}/gpu-bindings"
"""The namespace label that says whether bindings count there: `enabled` or `disabled`."""


WOKEN = "bindings-changed"
"""The annotation, under the domain, written on a pod that waited for a binding, so that its scheduler retries it."""

MOST_WAITING = 4096
"""Maximum number of pods that are woken when their bindings come. Schedulers retry others sooner or later."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a pod may request on which nodes, and in `permit` why other nodes do not fit.

    `uneven` has bytes by card, for each node where the cards have different amounts. `unlinked` are nodes whose free
    cards do not go together by the rules of their vendor, with the reason.
    """

    asked: Sequence[tuple[PodRequest, Sequence[str]]]
    permit: Permit = field(default_factory=Permit)
    uneven: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unlinked: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> Mapping[str, Place]:
        """The cards of each node where bindings give it some; empty where bindings do not count."""
        return self.permit.places

    def refused(self, *, helps: bool) -> dict[str, str]:
        """Return the reasons by node, of nodes where an eviction helps or of those where none does."""
        found = {node: _text(why) for node, why in self.permit.refused.items() if why.helps is helps}
        return found | (dict(self.unlinked) if helps else {})

    def on(self, node: str) -> PodRequest:
        """Return its request on the one node that was examined.

        Raises:
            Conflict: bindings do not allow it there.

        """
        if not self.asked and node in self.unlinked:
            raise Conflict(f"{node} has no room for it by now: {self.unlinked[node]}", code="bind-no-room")
        if not self.asked:
            why = _text(self.permit.refused[node])
            raise Conflict(f"{node} is not allowed by its bindings: {why}", code="bind-not-bound")
        return self.asked[0][0]

    def check_claimed(self, node: str, claimed: Iterable[str]) -> None:
        """Check that it may have the cards that kube-scheduler has claimed for it on a node.

        Raises:
            Conflict: a binding reserves one of them for another application.

        """
        place = self.places.get(node)
        if place is None:
            return
        bound = {uuid for each in place.cards for uuid in each.card.uuids}
        others = sorted(set(claimed) - bound)
        if others:
            why = f"kube-scheduler has claimed {', '.join(others)} for it, which none of its bindings allows"
            raise Conflict(why, code="bind-not-bound")

    def bindings(self, node: str, cards: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the bindings that give it these cards."""
        place, chosen = self.places.get(node), set(cards)
        return () if place is None else tuple(b.binding.name for b in place.cards if chosen.intersection(b.card.uuids))


class BindingFilter:
    """Judges pods by bindings, in the namespaces where bindings count."""

    def __init__(self, context: KubeContext, bindings: KubeBindings, scope: BindingScope) -> None:
        self._bindings, self._scope = bindings, scope
        self._namespaces, self._domain = context.followed.namespaces, context.domain
        self._conflicted: dict[Identity, Tenant] = {}
        self._waiting: Recent[tuple[str, str], PodRequest] = Recent(MOST_WAITING)

    @property
    def unready(self) -> str:
        """The reason why nothing can be judged now; "" if it can."""
        return self._bindings.unread

    @property
    def conflicts(self) -> dict[str, Binding]:
        """The bindings of several owners that claimed, and still claim, one pod, with the status to show, by name."""
        claims = self._bindings.claims
        self._conflicted = {key: tenant for key, tenant in self._conflicted.items() if claims.conflict(tenant)}
        return {each.name: each for tenant in self._conflicted.values() for each in claims.conflict(tenant)}

    def admit(self, pod: Document, asked: PodRequest, nodes: Sequence[str], *, note: bool = True) -> Admitted:
        """Return what a pod may request on these nodes. With `note`, a conflict is shown on the bindings.

        Raises:
            InvalidRequest: its labels cannot be parsed. Unavailable: bindings are uncertain now.

        """
        if not self._covers(pod):
            return Admitted([(asked, nodes)])
        tenant = self._bindings.tenant(pod)
        claims = self._bindings.claims
        siblings = self._bindings.occupants.siblings(asked.uid, tenant)
        found = claims.permit(tenant, asked.requirement, nodes, held=siblings, consume=consume_of(tenant))
        if note and identity(tenant) not in self._conflicted and claims.conflict(tenant):
            self._conflicted[identity(tenant)] = tenant
            self._bindings.wake()
        if note:
            self._expect(asked, placed=bool(found.places))
        amounts = {node: place.uneven(asked.requirement) for node, place in found.places.items()}
        uneven = {node: vram for node, vram in amounts.items() if vram}
        return Admitted(list(_together(asked, found.places)), found, uneven)

    def counts(self, pod: Document, asked: PodRequest, nodes: Collection[str]) -> tuple[int, ...]:
        """Return the numbers of cards that a new pod can get by its bindings on these nodes, each number once.

        Cards that other pods of its application hold count as free, as those pods may end first. The result is empty if
        bindings do not count, are not read yet, or leave the pod nothing.

        Raises:
            InvalidRequest: its labels cannot be parsed.

        """
        if self.unready or not self._covers(pod):
            return ()
        tenant = self._bindings.tenant(pod)
        consume = consume_of(tenant)
        try:
            found = self._bindings.claims.permit(tenant, asked.requirement, nodes, held=(), consume=consume)
        except Unavailable:
            return ()
        return tuple(sorted({place.count for place in found.places.values()}))

    def _expect(self, asked: PodRequest, *, placed: bool) -> None:
        key = asked.claim.namespace, asked.claim.pod
        if placed:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = asked

    def retries(self, pods: Mapping[tuple[str, str], Pod], nodes: Collection[str]) -> Iterator[Patch]:
        """Yield patches for pods that lacked a bound card and have one now, so that their schedulers retry them.

        Nothing else would trigger a retry: to a scheduler nothing has changed.
        """
        for key, asked in list(self._waiting.items()):
            pod = pods.get(key)
            if pod is None or pod.metadata.uid != asked.uid or pod.spec.node_name:
                self._waiting.pop(key, None)
            elif self._has_place(pod, asked, nodes):
                self._waiting.pop(key, None)
                notes = {f"{self._domain}/{WOKEN}": pod.metadata.resource_version}
                namespace, name = key
                yield Patch(PODS, name, {"metadata": {"uid": asked.uid, "annotations": notes}}, namespace)

    def _has_place(self, pod: Pod, asked: PodRequest, nodes: Collection[str]) -> bool:
        try:
            return bool(self.admit(pod.document, asked, list(nodes), note=False).asked)
        except InvalidRequest:
            return False  # its labels can no longer be parsed

    def whole_cards(self, pod: Document, uid: str) -> frozenset[str] | None:
        """Return the cards that claims of a pod may be given; None for any, where bindings do not count.

        Raises:
            Conflict: no binding is for it. InvalidRequest: its labels cannot be parsed. Unavailable: as `admit`.

        """
        if not self._covers(pod):
            return None
        tenant = self._bindings.tenant(pod)
        found = self._bindings.claims.whole(tenant, self._bindings.occupants.siblings(uid, tenant))
        if isinstance(found, BindingRejection):
            raise Conflict(_text(found), code="not-bound")
        return found

    def hold(self, pod: Pod, node: str, bindings: tuple[str, ...], cards: Iterable[str]) -> dict[str, str]:
        """Hold these bindings and cards for a pod that is being bound. Return the annotations to write on it.

        Raises:
            Conflict: one of the bindings is being released.

        """
        if not bindings:
            return {}
        if self._bindings.store.leaving.intersection(bindings):
            raise Conflict("one of its bindings is being released", code="bind-not-bound")
        self._bindings.occupants.reserve(pod, node, bindings, cards)
        return {f"{self._domain}/{BINDINGS}": ",".join(bindings)}

    def undo(self, uid: str) -> None:
        """Release what is held for a pod that is not bound after all."""
        self._bindings.occupants.undo(uid)

    def _covers(self, pod: Document) -> bool:
        return self.covers(text(mapping(pod.get("metadata"), "metadata").get("namespace")) or "default")

    def covers(self, namespace: str) -> bool:
        """Return whether bindings count for pods of a namespace."""
        found = self._namespaces.objects.get(("", namespace))
        label = "" if found is None else (found.metadata.labels or {}).get(SCOPE_LABEL, "")
        return label == "enabled" if self._scope is BindingScope.LABELLED else label != "disabled"


def _together(asked: PodRequest, places: Mapping[str, Place]) -> Iterable[tuple[PodRequest, list[str]]]:
    """Group nodes with the same request, with all bound cards of each group."""
    grouped: dict[ResourceRequirement, tuple[list[str], set[str]]] = {}
    for node, place in places.items():
        under = place.under(asked.requirement)
        key = replace(under, cards=replace(under.cards, uuids=()))
        nodes, uuids = grouped.setdefault(key, ([], set()))
        nodes.append(node)
        uuids.update(under.cards.uuids)
    for under, (nodes, uuids) in grouped.items():
        requirement = replace(under, cards=replace(under.cards, uuids=tuple(sorted(uuids))))
        yield _with(asked, requirement), nodes


def _with(asked: PodRequest, requirement: ResourceRequirement) -> PodRequest:
    """Return the request with other amounts. A binding also limits what the pod may use."""
    limit, part = asked.claim.limit, requirement.part
    if limit is not None and part is not None and part.vram_bytes:
        limit = replace(limit, vram_bytes=part.vram_bytes, vram_ppm=0)
    same = requirement.gpu_count == asked.requirement.gpu_count
    return replace(
        asked,
        requirement=requirement,
        claim=replace(asked.claim, limit=limit),
        container_gpu_counts=asked.container_gpu_counts if same else {},
    )


def _text(why: BindingRejection) -> str:
    if why.code is Hindrance.NO_LABEL:
        return f"{why.code}: a pod with cards needs the label {APP_LABEL}"
    return why.text
