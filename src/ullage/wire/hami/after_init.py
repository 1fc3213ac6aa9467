"""The allocation that a pod still holds when its init containers have ended.

The record on the pod has what was granted at bind and never changes. What is still held follows from the record and
the status of the pod, so that a restarted process finds the same. If the kubelet runs the init containers again, the
pod holds all of its record again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ullage.model.alignment import AlignmentStage
from ullage.model.allocation import Allocation, Basis, Charge
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.wire.document import Document, section
from ullage.wire.hami.sharing import share_out
from ullage.wire.pod.bind import BINDINGS
from ullage.wire.pod.containers import containers_of, init_is_over
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.reconcile import ChargeOf, ReadPod
from ullage.wire.pod.request import Dialect, PodRequest
from ullage.wire.vendors.container_request import ContainerRequest

_SHARES = (Isolation.SOFT, Isolation.HARD)


def still_held(pod: Document, held: Allocation, read: ReadPod, charge_of: ChargeOf) -> Allocation:
    """Return the part of a pod's allocation that it still holds; one without cards if nothing is left.

    Each card holds what sidecars and app containers request of it, and never more than was granted. Cards that only
    init containers had are free if a device plugin hands out the cards that the scheduler names; the kubelet keeps the
    cards of any other plugin until the pod ends. Cards by bindings of applications, and slices, stay as they are.
    """
    asked = read(pod)
    if asked is not None and asked.further:
        read = partial(_of_family, read, held.requirement.cards.vendors)
        asked = read(pod)
    if asked is None or asked.devices is None or not _shrinks(pod, held, asked):
        return held
    requests = asked.devices.containers
    staying: dict[str, list[ContainerRequest]] = {}
    for request, given in zip(requests, share_out(requests, held.gpus), strict=True):
        for card in given if request.stage is not AlignmentStage.INIT else ():
            staying.setdefault(card, []).append(request)
    by_plugin = section(pod, "metadata", "annotations").get(asked.devices.family.results.allocated) is not None
    remaining = tuple(card for card in held.gpus if card in staying or not by_plugin)
    if not remaining:
        return replace(held, gpus=(), charges=(), placement=None)
    isolation = _isolation(pod, read) if asked.dialect is Dialect.HAMI else None
    sums = {card: _sum(each) for card, each in staying.items()} if isolation is not None else {}
    parts = {card: part for card, part in sums.items() if part is not None}
    was = dict(zip(held.gpus, held.charges, strict=False))
    if isolation is None or not parts:
        return _on(held, remaining, held.requirement, tuple(was[card] for card in remaining if card in was))
    part = max(parts.values(), key=lambda each: (each.vram_ppm, each.vram_bytes, each.compute_ppm))
    cards = replace(held.requirement.cards, isolation=isolation)
    if was:
        charges = tuple(_reduced(was[card], parts[card]) if card in parts else was[card] for card in remaining)
        return _on(held, remaining, replace(held.requirement, part=part), charges)
    if not parts.keys() >= set(remaining):
        return held
    requirement = replace(held.requirement, gpu_count=len(remaining), part=part, cards=replace(cards, indices=()))
    one = replace(requirement, gpu_count=1, cards=CardSelector(isolation=cards.isolation))
    charges = tuple(charge_of(replace(one, part=parts[card]), card) for card in remaining)
    return _on(held, remaining, requirement, charges)


def _of_family(read: ReadPod, vendors: tuple[str, ...], pod: Document) -> PodRequest | None:
    """Return the request of a pod for cards of these vendors; None if it requests none."""
    asked = read(pod)
    by_family = () if asked is None else asked.by_family
    return next((each for each in by_family if each.requirement.cards.vendors == vendors), None)


def _shrinks(pod: Document, held: Allocation, asked: PodRequest) -> bool:
    requests = () if asked.devices is None else asked.devices.containers
    by_init = any(request.stage is AlignmentStage.INIT and request.count for request in requests)
    sliced = any(charge.slot is not None for charge in held.charges)
    bound = Keys(pod, asked.domain).text(BINDINGS) is not None
    return by_init and not sliced and not bound and init_is_over(pod)


def _isolation(pod: Document, read: ReadPod) -> Isolation | None:
    """Return how containers that stay share their cards; None if one of them needs all of a card, or none needs any.

    Each is read alone: together they may ask for memory in two units, which one request cannot have.
    """
    spec = section(pod, "spec")
    staying = [each for stage, _, each in containers_of(spec) if stage is not AlignmentStage.INIT]
    alone = [rest for each in staying if (rest := read(_with_requests_of(pod, each))) is not None]
    if not alone or not all(rest.dialect is Dialect.HAMI for rest in alone):
        return None
    found = [rest.requirement.cards.isolation for rest in alone]
    return found[0] if all(each in _SHARES for each in found) else None


def _with_requests_of(pod: Document, chosen: Document) -> Document:
    """Return the pod with the requests of one container only."""
    spec = section(pod, "spec")
    lists = {
        name: [each if each is chosen else {**each, "resources": {}} for each in spec.get(name) or ()]
        for name in ("initContainers", "containers")
    }
    return {**pod, "spec": {**spec, **lists}}


def _sum(requests: Sequence[ContainerRequest]) -> Part | None:
    """Return what several containers need of one card; None if they state its memory in two units."""
    cores = min(sum(request.cores_ppm for request in requests), PPM)
    share, memory = sum(request.vram_ppm for request in requests), sum(request.vram_bytes for request in requests)
    if share and memory:
        return None
    return Part(compute_ppm=cores, vram_ppm=min(share, PPM)) if share else Part(compute_ppm=cores, vram_bytes=memory)


def _reduced(charge: Charge, part: Part) -> Charge:
    """Return what a part takes of a granted card; a charge of unknown basis stays."""
    basis = charge.basis
    if basis is None or basis.vram_bytes is None:
        return charge
    compute, vram = part.on(basis.compute_gflops or PPM, basis.vram_bytes)
    left = basis.part
    if compute < charge.compute:
        left = replace(left, compute_gflops=0, compute_ppm=part.compute_ppm)
    if vram < charge.vram:
        left = replace(replace(left, vram_bytes=0, vram_ppm=0), vram_bytes=part.vram_bytes, vram_ppm=part.vram_ppm)
    known = Basis(left, basis.compute_gflops, basis.vram_bytes)
    return replace(charge, compute=min(compute, charge.compute), vram=min(vram, charge.vram), basis=known)


def _on(
    held: Allocation, cards: tuple[str, ...], requirement: ResourceRequirement, charges: tuple[Charge, ...]
) -> Allocation:
    placement = held.placement
    if placement is not None:
        devices = tuple((name, tuple(uuid for uuid in uuids if uuid in cards)) for name, uuids in placement.devices)
        placement = replace(placement, devices=devices)
    selector = replace(requirement.cards, indices=())
    asked = replace(requirement, gpu_count=len(cards), cards=selector)
    return replace(held, gpus=cards, charges=charges, requirement=asked, placement=placement)
