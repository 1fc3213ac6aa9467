"""The requests of pods on nodes, as they were when each pod was first seen there.

A pod is charged for what it requested when it was placed: nobody placed it for words that came later. Records of its
cards that came later only add to what it holds. A pod whose request could not be read may still be corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.model.allocation import Allocation, Charge
from ullage.model.request import MAX_CARDS
from ullage.wire.dialect import changed_keys, select_keys
from ullage.wire.hami.mig import MIG_ALLOCATIONS, without_ids
from ullage.wire.hami.results import card_records, node_keys
from ullage.wire.shared import shared_texts

CardRecord = Mapping[str, str]
"""The annotations of a pod that say which cards it holds."""

Held = tuple[Allocation, ...]
"""What a pod holds: an allocation for each family of its cards."""

_MOST_RECORDS = 8
"""The most records of one pod that are believed."""


class BoundRequests:
    """The words and the records of pods on nodes, by uid."""

    def __init__(self, context: KubeContext) -> None:
        self._words = context.pod_settings.annotations
        self._given = context.key("gpu-ids")
        families = context.pod_settings.families
        self._naming = (self._given, *card_records(families))
        self._keys = frozenset((*self._naming, context.key("allocation"), *node_keys(families), MIG_ALLOCATIONS))
        self._asked: dict[str, tuple[str, dict[str, str]]] = {}
        """The node where a pod was first seen, and its words there."""
        self._records: dict[str, tuple[CardRecord, ...]] = {}
        self._written: dict[str, tuple[str, CardRecord]] = {}
        """The node and the record of the last bind of a pod that was written here, until the pod is seen there."""

    def clear(self) -> None:
        self._asked.clear()
        self._records.clear()
        self._written.clear()

    def drop(self, uid: str) -> None:
        self._asked.pop(uid, None)
        self._records.pop(uid, None)
        self._written.pop(uid, None)

    def write(self, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Note that a bind of a pod with these annotations is written here."""
        self._written[uid] = node, self._record_in(annotations)

    def forget_write(self, uid: str) -> None:
        """Note that the last bind of a pod that was written here did not take effect."""
        self._written.pop(uid, None)

    def is_written(self, pod: Pod) -> bool:
        """Return whether the node and the record of a pod are those that were written here last."""
        return self._written.get(pod.metadata.uid) == (pod.spec.node_name, self.record(pod))

    def believe_written(self, pod: Pod) -> None:
        """Believe the record that was written here for a pod on its node; the one it has now if that is not known."""
        uid = pod.metadata.uid
        node, record = self._written.pop(uid, ("", {}))
        self._records[uid] = (record if node == pod.spec.node_name else self.record(pod),)

    def as_placed(self, pod: Pod, *, correctable: bool) -> tuple[Pod, list[str]]:
        """Return a pod with the words that it had when it was first seen on its node, and the words that changed.

        With `correctable` the words of the pod are those that it has now.
        """
        uid, annotations = pod.metadata.uid, pod.metadata.annotations or {}
        now = shared_texts(tuple(select_keys(annotations, self._words).items()))
        node, first = self._asked.get(uid, ("", {}))
        if node != pod.spec.node_name or correctable:
            self._asked[uid] = pod.spec.node_name, now
            return pod, []
        if now == first:
            return pod, []
        kept = {key: value for key, value in annotations.items() if key not in self._words}
        return _with_annotations(pod, kept | first), changed_keys(first, now, first.keys() | now.keys())

    def words(self, pod: Pod) -> list[str]:
        """Return the annotations of the request of a pod as it is now."""
        return sorted(select_keys(pod.metadata.annotations, self._words))

    def record(self, pod: Pod) -> CardRecord:
        """Return the record of a pod; the ids that a device plugin adds to its slices do not count."""
        return self._record_in(pod.metadata.annotations)

    def _record_in(self, annotations: Mapping[str, str] | None) -> CardRecord:
        found = select_keys(annotations, self._keys)
        return {**found, MIG_ALLOCATIONS: without_ids(found[MIG_ALLOCATIONS])} if MIG_ALLOCATIONS in found else found

    def names_cards(self, record: CardRecord) -> bool:
        """Return whether a record names cards, in whatever form."""
        return any(record.get(key) for key in self._naming)

    def records(self, uid: str) -> tuple[CardRecord, ...]:
        """Return the records of a pod that are believed, the first one first; one may be empty."""
        return self._records.get(uid, ())

    def differs(self, pod: Pod) -> list[str]:
        """Return the annotations of the record of a pod that differ from those of its first record."""
        first, *_ = (*self.records(pod.metadata.uid), {})
        return changed_keys(first, self.record(pod), self._keys)

    def believe(self, pod: Pod, *, only: bool = False) -> bool:
        """Believe the record of a pod as it is now, `only` this one or also those before; return whether it is one."""
        uid, now, known = pod.metadata.uid, self.record(pod), self.records(pod.metadata.uid)
        self._written.pop(uid, None)
        if only:
            self._records[uid] = (now,)
        elif now not in known and len(known) < _MOST_RECORDS:
            self._records[uid] = (*known, now)
        return now in self._records[uid]

    def with_record(self, pod: Pod, record: CardRecord) -> Pod:
        if record == self.record(pod):
            return pod
        kept = {key: value for key, value in (pod.metadata.annotations or {}).items() if key not in self._keys}
        return _with_annotations(pod, {**kept, **record})

    def placed_without_cards(self, pod: Pod) -> bool:
        """Return whether a pod was bound here without cards, as its record says."""
        return (pod.metadata.annotations or {}).get(self._given) == ""


def union_by_family(one: Held, other: Held) -> Held:
    """Return what a pod holds that holds both. A card is of the family to which it belongs in `one`."""
    family_of = {gpu: each.id for each in one for gpu in each.gpus}
    more = {each.id: _without_others(each, family_of) for each in other}
    both = tuple(union(each, more.pop(each.id)) if each.id in more else each for each in one)
    return (*both, *more.values())


def _without_others(held: Allocation, family_of: Mapping[str, str]) -> Allocation:
    kept = [at for at, gpu in enumerate(held.gpus) if family_of.get(gpu, held.id) == held.id]
    if len(kept) == len(held.gpus):
        return held
    charges = tuple(held.charges[at] for at in kept) if held.charges else ()
    return replace(held, gpus=tuple(held.gpus[at] for at in kept), charges=charges)


def union(one: Allocation, other: Allocation) -> Allocation:
    """Return what a pod holds that holds both: the cards of either, and the most of each.

    Cards without amounts are held whole. A union of more cards than a request may have is the first of the two.
    """
    gpus = tuple(dict.fromkeys((*one.gpus, *other.gpus)))
    if not (one.gpus and other.gpus) or len(gpus) > MAX_CARDS:
        return one if one.gpus else other
    charges: tuple[Charge, ...] = ()
    if one.charges and other.charges:
        here, there = (dict(zip(each.gpus, each.charges, strict=True)) for each in (one, other))
        charges = tuple(_most(here.get(uuid), there.get(uuid)) for uuid in gpus)
    cards = replace(one.requirement.cards, indices=())
    requirement = replace(one.requirement, gpu_count=len(gpus), cards=cards)
    return replace(one, gpus=gpus, charges=charges, requirement=requirement)


def _most(one: Charge | None, other: Charge | None) -> Charge:
    if one is None or other is None:
        return one or other or Charge(0, 0)
    if one.slots != other.slots:  # it may have a slice at each place
        slot, *further = dict.fromkeys((*one.slots, *other.slots))
        one, other = (replace(each, slot=slot, further=tuple(further)) for each in (one, other))
    compute, vram = max(one, other, key=lambda each: each.compute), max(one, other, key=lambda each: each.vram)
    if compute.vram == vram.vram:
        return compute
    if compute.compute == vram.compute:
        return vram
    basis = compute.basis
    if basis is not None and vram.basis is not None:
        memory = vram.basis.part
        basis = replace(basis, part=replace(basis.part, vram_bytes=memory.vram_bytes, vram_ppm=memory.vram_ppm))
    return replace(compute, vram=vram.vram, basis=basis)


def _with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations=annotations))
