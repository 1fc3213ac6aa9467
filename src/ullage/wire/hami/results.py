"""The annotations that HAMi writes on a pod with cards. On pods that were not placed here they are not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from ullage.model.alignment import AlignmentStage
from ullage.model.allocation import Charge, Slot
from ullage.model.error import InvalidRequest, invalid, invalid_annotation
from ullage.model.gpu import Gpu
from ullage.model.quantity import MAX_INT32, PPM, parse_count
from ullage.wire.document import text
from ullage.wire.hami.sharing import CardUnit, card_units, share_out
from ullage.wire.pod.keys import as_annotation
from ullage.wire.vendors.container_request import MIB, WHOLE, ContainerRequest, FamilyRequest
from ullage.wire.vendors.family import Family, ResultRule
from ullage.wire.vendors.profiles import SliceProfile
from ullage.wire.vendors.registers import RegisteredCard
from ullage.wire.vendors.shipped import NVIDIA
from ullage.wire.vendors.values import DeviceGrant, GrantedContainer, GrantedDevice, extra_annotations


@cache
def result_keys(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the annotations that only the scheduler of a pod writes."""
    common = (key for family in families for key in family.results.common)
    return tuple(dict.fromkeys((*common, *(key for family in families for key in family.result_keys))))


@cache
def node_keys(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the annotations that name the node of the cards of a pod."""
    return tuple(dict.fromkeys(family.results.node for family in families))


@cache
def card_records(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the annotations that name the cards of a pod."""
    return tuple(key for family in families for key in family.results.devices)


def node_in(annotations: Mapping[str, str], families: tuple[Family, ...]) -> str:
    """Return the node of the cards that a scheduler has chosen; "" if there is none."""
    return next(filter(None, (annotations.get(key) for key in node_keys(families))), "")


@cache
def phase_keys(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the annotations in which device plugins report the phase of a pod."""
    return tuple(dict.fromkeys(family.results.phase for family in families))


def phase_in(annotations: Mapping[str, str], families: tuple[Family, ...]) -> BindPhase | None:
    """Return `FAILED` if a device plugin of the pod failed, `SUCCESS` if all are done; None if no phase is written."""
    found = {annotations[key] for key in phase_keys(families) if key in annotations}
    return next(
        (phase for phase in (BindPhase.FAILED, BindPhase.ALLOCATING, BindPhase.SUCCESS) if phase in found), None
    )


_SLICE = re.compile(r"\[[^\[\]]*\]$")
_FIELDS = (4, 5)
_MAX_COUNT = 4096
"""The most containers, or devices of one container, that are read."""


class BindPhase(StrEnum):
    """The phase of a pod after it was given cards."""

    ALLOCATING = "allocating"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HamiDevice:
    """The share of one container in a card: MiB, and cores in units of its family.

    `share_mode` is from a fork of HAMi. `index` and `facts` are of the card on its node, where it is being granted.
    """

    uuid: str
    kind: str
    memory_mib: int
    cores: int
    share_mode: str | None = None
    index: int = field(default=0, compare=False)
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def card(self) -> str:
        """The uuid without the suffix of a slice."""
        return _SLICE.sub("", self.uuid)


@dataclass(frozen=True, slots=True)
class GivenCards:
    """The cards that a pod was given: what its node registers of each by uuid, and what it holds (none: all).

    `masks` are the cores of each card that other pods have, as bits.
    """

    registered: Mapping[str, RegisteredCard]
    charges: Mapping[str, Charge] = field(default_factory=dict)
    masks: Mapping[str, int] = field(default_factory=dict)


def devices_of(
    requests: Sequence[ContainerRequest], gpus: Sequence[str], given: GivenCards, family: Family = NVIDIA
) -> tuple[tuple[HamiDevice, ...], ...]:
    """Return the devices of each container of a pod, in its order; none for one whose kubelet requests none.

    No container has more of a card than the pod was given.
    """
    shared, found = list(share_out(requests, card_units(gpus, given.charges))), []
    masks = dict(given.masks)
    for request, here in zip(requests, shared, strict=True):
        missing = [uuid for uuid, _ in here if uuid not in given.registered]
        if len(here) < request.count or missing:
            raise invalid("gpus", missing or list(gpus), f"{request.count} known cards are needed for {request.name}")
        devices = tuple(_device(request, given, unit, family) for unit in here if request.counted)
        if family.results.cores == "mask":
            devices = tuple(_masked(device, masks) for device in devices)
        found.append(devices)
    return tuple(found)


def _device(request: ContainerRequest, given: GivenCards, unit: CardUnit, family: Family) -> HamiDevice:
    uuid, slot = unit
    registered, charge, rule = given.registered[uuid], given.charges.get(uuid), family.results
    card, units = registered.gpu, family.cores.per_card
    if rule.cores in ("units-of-card", "mask"):
        units = registered.cores or units
    memory, cores = request.vram_on(card.vram_bytes or 0), request.cores_ppm * units // PPM
    if rule.cores == "units-of-card":
        cores = max(cores, 1)
    if charge is not None:
        memory = min(memory, charge.vram) if card.vram_bytes else 0
        cores = min(cores, -(-charge.compute * units // card.compute))
    memory, cores = _of_slice(card, slot) or (memory, cores)
    if request.written_cores is not None:
        cores = request.written_cores
    mib = memory // MIB if request.written_mib is None else request.written_mib
    profiles: Sequence[SliceProfile] = registered.facts.get("profiles", ())
    profile = next((each for each in profiles if each.name == request.template), None)
    return HamiDevice(
        card.uuid,
        card.model or family.word if rule.type == "model" else family.word,
        rule.memory if isinstance(rule.memory, int) else mib,
        rule.cores if isinstance(rule.cores, int) else cores,
        index=card.index if registered.index is None else registered.index,
        facts={**registered.facts, "cores": registered.cores, "profile": profile},
    )


def _of_slice(card: Gpu, slot: Slot | None) -> tuple[int, int] | None:
    """Return the bytes and the percent of cores of a slice as its card registers them; None without such a slice."""
    templates = () if slot is None else card.partitions or ()
    found = next((each for each in templates if slot is not None and each.name == slot.template), None)
    return None if found is None else (found.memory_bytes, found.compute_ppm * WHOLE // PPM)


def _masked(device: HamiDevice, masks: dict[str, int]) -> HamiDevice:
    """Return a device whose cores are a mask: the lowest ones of its card that nobody has."""
    total, taken, mask = device.facts["cores"], masks.get(device.uuid, 0), 0
    for bit in range(total):
        if mask.bit_count() < device.cores and not taken >> bit & 1:
            mask |= 1 << bit
    masks[device.uuid] = taken | mask
    return replace(device, cores=mask)


def cores_ppm(device: HamiDevice, family: Family) -> int:
    """Return the millionths of a card's cores that a written device has.

    Units of the card itself, of which it may have any number, count as percent: all of them where they are many.
    """
    per_card = family.cores.per_card
    if family.results.cores == "mask":
        return min(device.cores.bit_count(), per_card) * PPM // per_card
    return min(device.cores, per_card) * PPM // per_card


def grant_of(
    request: FamilyRequest, devices: Sequence[Sequence[HamiDevice]], node: str, now: float, *, slices: str = ""
) -> DeviceGrant:
    """Return what a pod is given on a node, with the names of its containers; `now` in seconds since the epoch."""
    containers = tuple(
        GrantedContainer(each.name, tuple(given), each.counts_cores, each.template, stage=each.stage)
        for each, given in zip(request.containers, devices, strict=True)
    )
    return DeviceGrant(request.family, node, containers, now, slices=slices)


def encode_devices(containers: Iterable[Iterable[GrantedDevice]], rule: ResultRule = NVIDIA.results) -> str:
    """Return devices as `UUID,TYPE,MiB,cores:` each, and a `;` after every container, or between them."""
    found = ["".join(f"{_encoded(device)}:" for device in devices) for devices in containers]
    return ";".join(found) if rule.form == "volcano" else "".join(f"{each};" for each in found)


def decode_devices(
    written: str, rule: ResultRule = NVIDIA.results, *, key: str = ""
) -> tuple[tuple[HamiDevice, ...], ...]:
    """Return the devices of each container; `key` is the annotation that has them, if it is not `rule.allocated`."""
    key = key or rule.allocated
    *containers, rest = written.split(";", _MAX_COUNT + 1)
    if rest.strip():
        if rule.form == "hami":
            raise invalid_annotation(key, written, "each container ends with a semicolon")
        containers.append(rest)
    if len(containers) > _MAX_COUNT:
        raise invalid_annotation(key, written, f"at most {_MAX_COUNT} containers are read")
    return tuple(tuple(_devices(container, key)) for container in containers)


def adds_devices(before: object, after: object, rule: ResultRule = NVIDIA.results) -> bool:
    """Return whether each container has all devices that it had, with as much of each; true if it had none to read."""
    try:
        had = decode_devices(text(before), rule)
    except InvalidRequest:
        had = ()
    try:
        has = decode_devices(text(after), rule)
    except InvalidRequest:
        return False
    amounts = [{device.uuid: (device.memory_mib, device.cores) for device in devices} for devices in has]
    return len(has) >= len(had) and all(
        _covers(there.get(device.uuid), device)
        for devices, there in zip(had, amounts, strict=False)
        for device in devices
    )


def _covers(amounts: tuple[int, int] | None, device: HamiDevice) -> bool:
    """Return whether amounts of a card are as much as before; 0 MiB is all of it."""
    if amounts is None:
        return False
    memory, cores = amounts
    return cores >= device.cores and (memory == 0 or memory >= device.memory_mib > 0)


def to_allocate(grant: DeviceGrant, *, phase: BindPhase = BindPhase.ALLOCATING) -> dict[str, str]:
    """Return the annotations of a pod that was given cards and is being bound."""
    rule, seconds = grant.family.results, str(int(grant.now))
    listed = [each.devices for each in grant.containers if each.stage is AlignmentStage.APP or rule.form == "hami"]
    written = dict.fromkeys(rule.devices, encode_devices(listed, rule))
    placed = {rule.node: grant.node, rule.time: seconds, **written, **extra_annotations(grant)}
    return placed | {rule.phase: phase.value, rule.bind_time: seconds}


def _encoded(device: GrantedDevice) -> str:
    fields = (device.uuid, device.kind, str(device.memory_mib), str(device.cores))
    return ",".join(fields if device.share_mode is None else (*fields, device.share_mode))


def _devices(container: str, key: str) -> Iterable[HamiDevice]:
    *entries, rest = container.split(":", _MAX_COUNT + 1)
    if rest.strip() or len(entries) > _MAX_COUNT:
        raise invalid_annotation(key, container, "each device ends with a colon")
    for entry in entries:
        fields = [field.strip() for field in entry.split(",")]
        if len(fields) not in _FIELDS or "" in fields[:1]:
            raise invalid_annotation(key, entry, "write UUID,TYPE,MiB,cores")
        uuid, kind, memory, cores, *share_mode = fields
        with as_annotation():
            memory_mib, percent = (parse_count(amount, key, MAX_INT32) for amount in (memory, cores))
        yield HamiDevice(uuid, kind, memory_mib, percent, share_mode=next(iter(share_mode), None))
