"""The annotations that HAMi writes on a pod with cards. On pods that were not placed here they are not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ullage.model.allocation import Charge
from ullage.model.error import InvalidRequest, invalid, invalid_annotation
from ullage.model.gpu import Gpu
from ullage.model.quantity import MAX_INT32, PPM, parse_count
from ullage.wire.document import text
from ullage.wire.hami.container_request import MIB, WHOLE, ContainerRequest
from ullage.wire.hami.sharing import share_out
from ullage.wire.hami.vendor import ANNOTATIONS, NVIDIA, HamiVendor
from ullage.wire.pod.keys import as_annotation

TO_ALLOCATE = f"{ANNOTATIONS}/vgpu-devices-to-allocate"
ALLOCATED = f"{ANNOTATIONS}/vgpu-devices-allocated"
NODE = f"{ANNOTATIONS}/vgpu-node"
TIME = f"{ANNOTATIONS}/vgpu-time"
BIND_PHASE = f"{ANNOTATIONS}/bind-phase"
BIND_TIME = f"{ANNOTATIONS}/bind-time"
MIG = f"{ANNOTATIONS}/vgpu-mig-allocations"

OUTPUT = (TO_ALLOCATE, ALLOCATED, NODE, TIME, BIND_PHASE, BIND_TIME, MIG)
"""Annotations that only the scheduler of a pod writes."""

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
    """The share of one container in a card: MiB, and percent of its cores. `share_mode` is from a fork of HAMi."""

    uuid: str
    kind: str
    memory_mib: int
    cores: int
    share_mode: str | None = None

    @property
    def card(self) -> str:
        """The uuid without the suffix of a slice."""
        return _SLICE.sub("", self.uuid)


def devices_of(
    requests: Sequence[ContainerRequest],
    gpus: Sequence[str],
    cards: Mapping[str, Gpu],
    vendor: HamiVendor = NVIDIA,
    charges: Sequence[Charge] = (),
) -> tuple[tuple[HamiDevice, ...], ...]:
    """Return the devices of each container of a pod, in its order; none for one whose kubelet requests none.

    `gpus` are the pod's cards, `charges` what it was given of each (empty: all of them). No container has more than
    that.
    """
    shared, found = list(share_out(requests, gpus)), []
    given = dict(zip(gpus, charges, strict=False))
    for request, here in zip(requests, shared, strict=True):
        missing = [uuid for uuid in here if uuid not in cards]
        if len(here) < request.count or missing:
            raise invalid("gpus", missing or list(gpus), f"{request.count} known cards are needed for {request.name}")
        devices = (_device(request, cards[uuid], given.get(uuid), vendor) for uuid in here if request.counted)
        found.append(tuple(devices))
    return tuple(found)


def _device(request: ContainerRequest, card: Gpu, charge: Charge | None, vendor: HamiVendor) -> HamiDevice:
    memory, cores = request.vram_on(card.vram_bytes or 0), request.cores
    if charge is not None:
        memory = min(memory, charge.vram) if card.vram_bytes else 0
        cores = min(cores, -(-charge.compute * WHOLE // (card.compute_gflops or PPM)))
    return HamiDevice(card.uuid, vendor.name, memory // MIB, cores)


def encode_devices(containers: Iterable[Iterable[HamiDevice]]) -> str:
    """Return devices as `UUID,TYPE,MiB,cores:` each, and a `;` after every container."""
    return "".join("".join(f"{_encoded(device)}:" for device in devices) + ";" for devices in containers)


def decode_devices(written: str, *, key: str = ALLOCATED) -> tuple[tuple[HamiDevice, ...], ...]:
    """Return the devices of each container."""
    containers = written.split(";", _MAX_COUNT + 1)
    if containers[-1].strip():
        raise invalid_annotation(key, written, "each container ends with a semicolon")
    if len(containers) > _MAX_COUNT:
        raise invalid_annotation(key, written, f"at most {_MAX_COUNT} containers are read")
    return tuple(tuple(_devices(container, key)) for container in containers[:-1])


def adds_devices(before: object, after: object) -> bool:
    """Return whether each container has all devices that it had, with as much of each; true if it had none to read."""
    try:
        had = decode_devices(text(before))
    except InvalidRequest:
        had = ()
    try:
        has = decode_devices(text(after))
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


def to_allocate(
    node: str, containers: Iterable[Iterable[HamiDevice]], now: float, *, phase: BindPhase = BindPhase.ALLOCATING
) -> dict[str, str]:
    """Return the annotations of a pod that was given cards and is being bound; `now` in seconds since the epoch."""
    written, seconds = encode_devices(containers), str(int(now))
    placed = {NODE: node, TIME: seconds, TO_ALLOCATE: written, ALLOCATED: written}
    return placed | {BIND_PHASE: phase.value, BIND_TIME: seconds}


def _encoded(device: HamiDevice) -> str:
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
        yield HamiDevice(uuid, kind, memory_mib, percent, *share_mode)
