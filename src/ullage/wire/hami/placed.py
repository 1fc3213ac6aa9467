"""The allocation of a pod that HAMi's scheduler placed: the cards in its annotations, and the amounts of each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ullage.model.alignment import AlignmentStage
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.claim import Claim
from ullage.model.error import invalid_annotation
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.wire.document import Document, section, text
from ullage.wire.hami.mig import readable_reservations
from ullage.wire.hami.results import HamiDevice, cores_ppm, decode_devices
from ullage.wire.pod.containers import containers_of, init_is_over
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.owner import bare_claim
from ullage.wire.pod.reconcile import ChargeOf
from ullage.wire.pod.request import PodRequest
from ullage.wire.shared import shared_charges, shared_requirement
from ullage.wire.vendors.container_request import MIB, FamilyRequest
from ullage.wire.vendors.family import ANNOTATIONS, Family
from ullage.wire.vendors.shipped import NVIDIA

_Device = tuple[int, int]
"""The numbers of a container of a pod and of one of its devices."""

Written = Sequence[Sequence[HamiDevice]]
"""The devices of each container."""


SlicesOf = Callable[[str, Sequence[Slot]], Charge]
"""Return what slices take of a card, by its uuid; without their places all of it."""


def hami_allocations(
    pod: Document,
    asked: PodRequest | None,
    charge_of: ChargeOf,
    families: Sequence[Family] = (NVIDIA,),
    *,
    slices_of: SlicesOf | None = None,
) -> tuple[Allocation, ...]:
    """Return what a pod on a node holds by HAMi's annotations, one allocation for each family that it requests.

    A pod that requests cards of one family, or whose request cannot be read, has one allocation for all of its cards.
    See `hami_allocation`.
    """
    further = () if asked is None else asked.further
    apart = {each.family for each in further}
    found = [(asked, [family for family in families if family.name not in apart])]
    found += [(each, [family for family in families if family.name == each.family]) for each in further]
    held = (
        hami_allocation(pod, each, charge_of, own, slices_of=slices_of if NVIDIA in own else None)
        for each, own in found
    )
    return tuple(each for each in held if each is not None)


def hami_allocation(
    pod: Document,
    asked: PodRequest | None,
    charge_of: ChargeOf,
    families: Sequence[Family] = (NVIDIA,),
    *,
    slices_of: SlicesOf | None = None,
) -> Allocation | None:
    """Return what a pod on a node holds by HAMi's annotations; None without such annotations, or without a node.

    `asked` is the request of the pod, None where that cannot be read. `charge_of` returns what a requirement takes of
    a card, by the uuid of the card. A device without stated memory, and a slice, hold their card whole. With
    `slices_of` slices hold their places, where each device of the card has one; they stay until the pod ends. Init
    containers that have ended hold nothing; an allocation without cards says that no other container had any.
    """
    spec, bare = section(pod, "spec"), bare_claim(Keys(pod, ANNOTATIONS))
    node, records = sys.intern(text(spec.get("nodeName"))), dict(_records(pod, families))
    if not node or not records:
        return None
    _check_node(pod, node, [family for family, _ in records.values()])
    written: dict[str, Written] = {
        key: decode_devices(value, family.results, key=key) for key, (family, value) in records.items()
    }
    over = init_is_over(pod)
    if asked is not None and asked.devices is not None:
        written = {key: _with_asked_cores(each, asked.devices, records[key]) for key, each in written.items()}
    held = _held(spec, records, written, over=over)
    slices = {} if slices_of is None else _slices(pod, asked, written)
    held |= {card: (Part(), NVIDIA) for card in slices if card not in held}
    if not held and over and _held(spec, records, written, over=False):
        return _without_cards(bare, node, asked)
    if not 0 < len(held) <= MAX_CARDS:
        key, (_, value) = next(iter(records.items()))
        raise invalid_annotation(key, value, f"1 to {MAX_CARDS} cards are needed, it names {len(held)}")
    part = max((part for part, _ in held.values()), key=lambda each: (each.vram_ppm, each.vram_bytes, each.compute_ppm))
    requirement = shared_requirement(_requirement(asked, len(held), part, sliced=bool(slices)))
    charges = shared_charges(
        tuple(
            slices_of(uuid, slices[uuid]) if slices_of and uuid in slices else charge_of(_one(requirement, *each), uuid)
            for uuid, each in held.items()
        )
    )
    claim = bare if asked is None else asked.claim
    return Allocation(
        _id(claim, asked), node, requirement, tuple(held), state=AllocationState.BOUND, charges=charges, claim=claim
    )


def _check_node(pod: Document, node: str, families: Iterable[Family]) -> None:
    annotations = section(pod, "metadata", "annotations")
    for key in dict.fromkeys(family.results.node for family in families):
        named = text(annotations.get(key)).strip()
        if named not in ("", node):
            fix = f"the pod is on {node}; the cards of another node are not those that it has"
            raise invalid_annotation(key, named, fix)


def _slices(pod: Document, asked: PodRequest | None, written: Mapping[str, Written]) -> dict[str, tuple[Slot, ...]]:
    """Return the places of slices by card; none on a card of which not every device has one."""
    places: dict[str, dict[_Device, Slot]] = {}
    for each in readable_reservations(pod):
        places.setdefault(each.gpu_uuid, {})[each.container_index, each.device_index] = each.slot
    devices: dict[str, set[_Device]] = {}
    for container, device, found in _devices(written):
        if found.card in places or found.card != found.uuid or _asks_slices(asked):
            devices.setdefault(found.card, set()).add((container, device))
    slices = {}
    for card in dict.fromkeys((*devices, *places)):
        there = places.get(card, {})
        known = there.keys() >= devices.get(card, set())
        slices[card] = tuple(dict.fromkeys(there.values())) if known else ()
    return slices


def _devices(written: Mapping[str, Written]) -> Iterator[tuple[int, int, HamiDevice]]:
    for each in written.values():
        for container, devices in enumerate(each):
            yield from ((container, at, device) for at, device in enumerate(devices))


def _asks_slices(asked: PodRequest | None) -> bool:
    return asked is not None and asked.requirement.cards.isolation is Isolation.PARTITIONED


def _records(pod: Document, families: Sequence[Family]) -> Iterator[tuple[str, tuple[Family, str]]]:
    """Yield the annotation that names the cards of each family that the pod has, with its value."""
    annotations = section(pod, "metadata", "annotations")
    for family in families:
        keys = reversed(family.results.devices)  # the plugin empties `to_allocate` as it hands devices out
        found = next((key for key in keys if text(annotations.get(key)).strip()), None)
        if found is not None:
            yield found, (family, text(annotations[found]))


def _with_asked_cores(written: Written, asked: FamilyRequest, record: tuple[Family, str]) -> Written:
    """Return devices whose cores are in units of their card with the percent that the pod asks of each card."""
    family, _ = record
    if family is not asked.family or family.results.cores != "units-of-card":
        return written
    cores = max((each.cores_ppm for each in asked.containers), default=0) * family.cores.per_card // PPM
    return [[replace(device, cores=cores) for device in devices] for devices in written]


def _held(
    spec: Document, records: Mapping[str, tuple[Family, str]], written: Mapping[str, Written], *, over: bool
) -> dict[str, tuple[Part, Family]]:
    """Return the most that the pod has of each card at a time, and the family of the card."""
    return {
        card: (part, family)
        for key, (family, _) in records.items()
        for card, part in _peaks(spec, written[key], family, over=over).items()
    }


def _one(requirement: ResourceRequirement, part: Part, family: Family) -> ResourceRequirement:
    """Return the request for one card, isolated as its family isolates parts."""
    cards = requirement.cards
    if cards.isolation is Isolation.PARTITIONED:  # another card of the pod is in slices
        cards = replace(cards, isolation=Isolation.SOFT)
    if family.parts == "hard" and not cards.vendors:
        cards = replace(cards, isolation=Isolation.HARD)
    return replace(requirement, gpu_count=1, part=part, cards=cards)


def _without_cards(bare: Claim, node: str, asked: PodRequest | None) -> Allocation:
    """Return the allocation of a pod whose cards were all those of init containers that have ended."""
    claim = bare if asked is None else asked.claim
    requirement = ResourceRequirement(gpu_count=1) if asked is None else asked.requirement
    return Allocation(_id(claim, asked), node, requirement, state=AllocationState.BOUND, claim=claim)


def _id(claim: Claim, asked: PodRequest | None) -> str:
    return claim.pod_uid if asked is None else asked.uid


def _peaks(spec: Document, written: Written, family: Family, *, over: bool) -> dict[str, Part]:
    """Return the most that the containers of a pod have of each card at a time.

    Init containers run one after the other, sidecars and app containers together. With `over` the init containers have
    ended and have nothing. Where the annotation has another number of containers than the pod, all of them count
    together.
    """
    stages = [stage for stage, _, _ in containers_of(spec)]
    if len(written) != len(stages):  # init containers may be left out
        stages = [AlignmentStage.APP] * len(written)
    staying: dict[str, Counter[str]] = {}
    peaks: dict[str, Counter[str]] = {}
    for stage, devices in zip(stages, written, strict=True):
        for device in () if over and stage is AlignmentStage.INIT else devices:
            now = staying.setdefault(device.card, Counter())
            amounts = {"mib": device.memory_mib, "ppm": cores_ppm(device, family), "whole": _is_whole(device, family)}
            with_it = now + Counter(amounts)
            peaks[device.card] = peaks.get(device.card, Counter()) | with_it
            if stage is not AlignmentStage.INIT:
                staying[device.card] = with_it
    return {card: _part(amounts) for card, amounts in peaks.items()}


def _is_whole(device: HamiDevice, family: Family) -> int:
    whole_mib = family.memory.default_mib if family.memory.amounts in ("templates", "steps") else 0
    in_parts = family.parts != "none" and device.card == device.uuid
    in_parts = in_parts and not 0 < whole_mib <= device.memory_mib
    by_cores = family.results.cores == "mask" and cores_ppm(device, family) < PPM
    return int(not in_parts or not (device.memory_mib or by_cores))


def _part(amounts: Counter[str]) -> Part:
    cores = min(amounts["ppm"], PPM)
    if amounts["whole"]:
        return Part(compute_ppm=cores or PPM, vram_ppm=PPM)
    return Part(compute_ppm=cores, vram_bytes=amounts["mib"] * MIB)


def _requirement(asked: PodRequest | None, count: int, part: Part, *, sliced: bool) -> ResourceRequirement:
    """Return the request as it was granted: these cards, isolated as it asked for parts; else softly."""
    cards = CardSelector(isolation=Isolation.PARTITIONED if sliced else Isolation.SOFT)
    if asked is None:
        return ResourceRequirement(gpu_count=count, part=part, cards=cards)
    was = asked.requirement
    hard = asked.devices is not None and asked.devices.family.parts == "hard"
    if sliced:
        return replace(was, gpu_count=count, part=part, cards=replace(cards, vendors=was.cards.vendors))
    if was.cards.isolation is Isolation.HARD or (hard and was.cards.isolation is Isolation.SHARED):
        cards = replace(cards, isolation=Isolation.HARD)
    return replace(was, gpu_count=count, part=part, cards=replace(cards, vendors=was.cards.vendors))
