"""Narrows the request of a pod on each node to cards that go together by the rules of its family.

Such a rule depends on the cards that are free now: links between cards, slices of one size on a card, classes of pods
that share a card, or the slices that a node offers. The books check the narrowed request as any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.kube.bindings.filter import Admitted
from ullage.kube.client.objects import KubeNode
from ullage.kube.context import KubeContext
from ullage.kube.mirror.cards import node_facts
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidRequest
from ullage.model.part import Isolation
from ullage.wire.dialect import PodReader
from ullage.wire.document import Document, section
from ullage.wire.pod import PodRequest
from ullage.wire.vendors.card_sets import SETS, CardState, SetRequest
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.profiles import SliceProfile
from ullage.wire.vendors.registers import RegisteredCard, registered_cards

_MACHINE_LABEL = "node.kubernetes.io/instance-type"
_NOT_LINKED = "NumaNotFit"
_NO_SLICE = "ModeNotFit"
"""HAMi's texts for a node whose free cards are not linked, and for one that offers no such slice."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of cards in the narrowed request, and the class of the pod."""

    family: Family
    request: PodRequest
    pod_class: str

    @property
    def whole(self) -> bool:
        return self.request.requirement.cards.isolation is Isolation.SHARED


class CardSets:
    """Reads what nodes register, and what the books and the pods there hold."""

    def __init__(self, context: KubeContext) -> None:
        self._cluster, self._read_pod = context.cluster, PodReader(context.pod_settings)
        self._nodes, self._pods = context.followed.nodes, context.followed.pods
        self._known: dict[tuple[str, str], tuple[KubeNode, Sequence[RegisteredCard]]] = {}
        """The registers of nodes as they were last read, by node and family."""

    def narrow(self, pod: Document, asked: PodRequest, admitted: Admitted) -> Admitted:
        """Return what the pod may request on which nodes. Cards by bindings stay as they are."""
        family = None if asked.devices is None else asked.devices.family
        if family is None or admitted.places or not _has_rules(family, asked.requirement.gpu_count):
            return admitted
        found: defaultdict[PodRequest, list[str]] = defaultdict(list)
        refused: dict[str, str] = {}
        for request, nodes in admitted.asked:
            for node in nodes:
                narrowed = self._on(node, pod, family, request)
                if isinstance(narrowed, str):
                    refused[node] = narrowed
                else:
                    found[narrowed].append(node)
        return replace(admitted, asked=list(found.items()), unlinked=refused)

    def _on(self, node: str, pod: Document, family: Family, request: PodRequest) -> PodRequest | str:
        """Return the request on one node, or why there is none."""
        there = self._registered(node, family)
        if not there:
            return request
        if family.memory.amounts == "profiles":
            first, *_ = there
            profiles: Sequence[SliceProfile] = first.facts.get("profiles", ())
            sliced = self._read_pod(pod, profiles=profiles)
            if sliced is not None and sliced.further:
                sliced = next((each for each in sliced.by_family if each.uid == request.uid), None)
            slices = () if sliced is None or sliced.devices is None else sliced.devices.containers
            if sliced is None or any(each.slice is not None and not each.template for each in slices):
                return f"{len(there)}/{len(there)} {_NO_SLICE}"
            request = sliced
        asked = _Asked(family, request, self._class_of(section(pod, "metadata", "annotations"), family))
        states = self._states(node, there, asked)
        machine = self._label(node, _MACHINE_LABEL)
        rule = SETS.get(family.sets)
        wanted = SetRequest(request.requirement.gpu_count, asked.whole, machine)
        chosen = None if rule is None else rule(states, wanted)
        if chosen is not None and not chosen:
            return f"1/{len(there)} {_NOT_LINKED}"
        if chosen is None and (family.equal_slices or family.classes is not None):
            chosen = [state.uuid for state in states if state.free]
        return request if not chosen else _restricted(request, chosen)

    def _registered(self, node: str, family: Family) -> Sequence[RegisteredCard]:
        found, key = self._nodes.objects.get(("", node)), (node, family.name)
        if found is None:
            self._known.pop(key, None)
            return ()
        last, cards = self._known.get(key, (None, ()))
        if last is not found:
            try:
                cards = registered_cards(family, node_facts(found)) or ()
            except InvalidRequest:  # it is reported where the node is read
                cards = ()
            self._known[key] = found, cards
        return cards

    def _states(self, node: str, there: Sequence[RegisteredCard], asked: _Asked) -> list[CardState]:
        """Return the cards of a family on a node, by their indexes."""
        holders: defaultdict[str, list[Allocation]] = defaultdict(list)
        for allocation in self._cluster.holders.on([node]):
            for uuid in allocation.gpus if allocation.id != asked.request.uid else ():
                holders[uuid].append(allocation)
        ordered = sorted(there, key=lambda each: each.gpu.index)
        return [
            CardState(each.gpu.uuid, each.gpu.index, self._is_free(each, holders[each.gpu.uuid], asked), each.facts)
            for each in ordered
        ]

    def _is_free(self, card: RegisteredCard, holders: Sequence[Allocation], asked: _Asked) -> bool:
        """Return whether a card seems to have room besides its holders; the books decide."""
        fleet, uuid = self._cluster.allocator.fleet, card.gpu.uuid
        at = fleet.card_of.get(uuid)
        requirement = asked.request.requirement
        if at is None or not fleet.cards[at].usable or not requirement.cards.takes_uuid(uuid):
            return False
        if asked.whole:
            return not holders
        charges = [allocation.charges[allocation.gpus.index(uuid)] for allocation in holders if allocation.charges]
        if len(charges) < len(holders):
            return False
        total = fleet.cards[at]
        compute, vram = (0, 0) if requirement.part is None else requirement.part.on(total.compute, total.vram)
        fits = sum(charge.vram for charge in charges) + vram <= total.vram
        fits = fits and sum(charge.compute for charge in charges) + compute <= total.compute
        equal = not asked.family.equal_slices or all(charge.vram == vram for charge in charges)
        return fits and equal and all(self._is_of_class(allocation, asked) for allocation in holders)

    def _is_of_class(self, holder: Allocation, asked: _Asked) -> bool:
        if asked.family.classes is None or holder.claim is None:
            return True
        pod = self._pods.objects.get((holder.claim.namespace, holder.claim.pod))
        annotations = {} if pod is None else pod.metadata.annotations or {}
        return self._class_of(annotations, asked.family) == asked.pod_class

    def _class_of(self, annotations: Mapping[str, str], family: Family) -> str:
        rule = family.classes
        return "" if rule is None else annotations.get(rule.annotation, rule.default)

    def _label(self, node: str, label: str) -> str:
        found = self._nodes.objects.get(("", node))
        return "" if found is None else (found.metadata.labels or {}).get(label, "")


def _has_rules(family: Family, count: int) -> bool:
    """Return whether a rule can matter for that number of cards. Of one card only the wing matters."""
    linked = family.sets and (count > 1 or family.sets == _OF_ONE)
    by_node = family.memory.amounts == "profiles"
    return bool(linked or family.equal_slices or family.classes is not None or by_node)


_OF_ONE = "wings"


def _restricted(request: PodRequest, uuids: Sequence[str]) -> PodRequest:
    """Return the request for some of these cards."""
    cards = replace(request.requirement.cards, uuids=tuple(uuids))
    together = tuple(replace(each, cards=cards) for each in request.together)
    return replace(request, requirement=replace(request.requirement, cards=cards), together=together)
