"""The cards that pods on nodes hold: an allocation for each family, by the records of a pod or by its request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ullage.core.books.usage import OtherUsage
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.mirror.bound_requests import BoundRequests, Held, union_by_family
from ullage.kube.mirror.placed_by_hami import PlacedByHami
from ullage.model.allocation import AllocationState
from ullage.model.error import InvalidRequest, UllageError
from ullage.wire.hami.after_init import still_held
from ullage.wire.pod import PodRequest, named_cards, read_allocations


class FamilyHoldings:
    """Reads what pods hold, and enters it in the books."""

    def __init__(
        self,
        context: KubeContext,
        requests: BoundRequests,
        by_hami: PlacedByHami,
        report: Callable[[Pod, UllageError], None],
    ) -> None:
        self._cluster, self._read_pod, self._domain = context.cluster, context.read_pod, context.domain
        self._requests, self._by_hami, self._report = requests, by_hami, report

    def own(self, pod: Pod) -> Held | UllageError:
        """Return what a pod's annotations say it holds; an error if unreadable; nothing if there are none.

        If its request cannot be read, it holds the amounts in its record of the cards that it names, else all of them.
        """
        if pod.finished or not any(self._requests.record(pod).values()):
            return ()
        if f"{self._domain}/gpu-ids" not in (pod.metadata.annotations or {}):
            return self._by_hami.read(pod.document)
        document, charge_of = pod.document, self._cluster.charge_on
        try:
            found = read_allocations(document, self._domain, charge_of=charge_of, read=self._read_pod)
            if not pod.spec.init_containers:
                return found
            return tuple(still_held(document, each, self._read_pod, charge_of) for each in found)
        except InvalidRequest as error:
            self._report(pod, error)
            named = named_cards(pod.document, self._domain)
            return error if named is None else (named,)

    def union(self, pod: Pod, held: Held) -> Held:
        """Return all that the believed records of a pod say it holds; what it holds without any stays held.

        A record that changes adds cards and amounts, and takes none away: nobody knows who wrote it.
        """
        records = self._requests.records(pod.metadata.uid)
        found = () if all(map(self._requests.names_cards, records)) else held
        for record in records:
            each = self.own(self._requests.with_record(pod, record))
            if isinstance(each, tuple):
                found = union_by_family(found, each)
        return found

    def has_unreported(self, found: Held) -> bool:
        """Return whether a known node does not report some of these cards."""
        fleet = self._cluster.allocator.fleet
        return any(each.node in fleet.row_of and not fleet.card_of.keys() >= set(each.gpus) for each in found)

    def hold(self, *pods: tuple[Pod, Held]) -> None:
        """Enter what pods say they hold. What is contradictory is reported and held all the same.

        Their usage of nodes apart from cards is not counted here.
        """
        contradicted = self._cluster.adopt(*(found for _, held in pods for found in held if found.gpus))
        for pod, held in pods:
            for found in held:
                if not found.gpus:  # all its cards belonged to init containers that have ended
                    self._cluster.free_one(found.id)
                if (error := contradicted.get(found.id)) is not None:
                    self._report(pod, error)

    def hold_some(self, asked: PodRequest, node: str) -> bool:
        """Hold cards of each family that a pod requests; return whether they suffice, else none are held."""
        for each in asked.by_family:
            if not any(self._cluster.adopt_bound(way.request, node) for way in (each, *each.shared)):
                self._cluster.free(asked.uid)
                return False
        return True

    def shrink(self, uid: str, has: OtherUsage) -> str:
        """Release the CPU and memory by which a pod with cards was resized down, as a restart would do.

        Return the node if any were.
        """
        held = self._cluster.held(uid)
        if held is None or held.state is AllocationState.ASSUMED:
            return ""
        asked = held.requirement
        cpu_milli, memory_bytes = min(asked.cpu_milli, has.cpu_milli), min(asked.memory_bytes, has.memory_bytes)
        less = replace(asked, cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        if less == asked:
            return ""
        self._cluster.adopt(replace(held, requirement=less))
        self._cluster.drop_rejections(held.node)
        return held.node

    def besides_cards(self, uid: str, has: OtherUsage) -> OtherUsage:
        """Return what a pod uses of its node beyond what its cards are booked with; it takes one place."""
        held = self._cluster.held_by_family(uid)
        if not held:
            return has
        first, *further = held
        known = first.requirement
        free = max(0, has.cpu_milli - known.cpu_milli), max(0, has.memory_bytes - known.memory_bytes)
        return OtherUsage(*free, -len(further))


def same(held: Held, found: Held | UllageError) -> bool:
    """Return whether a pod's annotations match its reservation, and not one by another leader."""
    if not isinstance(found, tuple) or not found:
        return True
    charges = ([each.charges for each in there if each.gpus] for there in (held, found))
    return cards_by_family(held) == cards_by_family(found) and next(charges) == next(charges)


def cards_by_family(held: Held) -> list[tuple[str, ...]]:
    """Return the cards of each family; none where all of them belonged to init containers that have ended."""
    return [each.gpus for each in held if each.gpus]
