"""The allocation of a pod that HAMi's scheduler placed: the cards in its annotations, and the amounts of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ullage.model.alignment import AlignmentStage
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.wire.document import Document, section, text
from ullage.wire.hami.container_request import MIB, WHOLE
from ullage.wire.hami.results import ALLOCATED, NODE, TO_ALLOCATE, HamiDevice, decode_devices
from ullage.wire.hami.vendor import ANNOTATIONS
from ullage.wire.pod.containers import containers_of, init_is_over
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.owner import bare_claim
from ullage.wire.pod.reconcile import ChargeOf
from ullage.wire.pod.request import PodRequest

_NAMES = tuple(key.removeprefix(f"{ANNOTATIONS}/") for key in (ALLOCATED, TO_ALLOCATE))
_NODE = NODE.removeprefix(f"{ANNOTATIONS}/")


def hami_allocation(pod: Document, asked: PodRequest | None, charge_of: ChargeOf) -> Allocation | None:
    """Return what a pod on a node holds by HAMi's annotations; None without such annotations, or without a node.

    `asked` is the request of the pod, None where that cannot be read. `charge_of` returns what a requirement takes of
    a card, by the uuid of the card. A device without stated memory, and a slice, hold their card whole. Init
    containers that have ended hold nothing; an allocation without cards says that no other container had any.
    """
    keys, spec = Keys(pod, ANNOTATIONS), section(pod, "spec")
    node = text(spec.get("nodeName"))
    name = next((name for name in _NAMES if keys.text(name)), None)
    if not node or name is None:
        return None
    if keys.text(_NODE) not in (None, node):
        raise keys.invalid(_NODE, f"the pod is on {node}; the cards of another node are not those that it has")
    written = decode_devices(keys.text(name) or "", key=keys.key(name))
    held = _peaks(spec, written, over=init_is_over(pod))
    if not held and _peaks(spec, written, over=False):
        return _without_cards(bare_claim(keys), node, asked)
    if not 0 < len(held) <= MAX_CARDS:
        raise keys.invalid(name, f"1 to {MAX_CARDS} cards are needed, it names {len(held)}")
    part = max(held.values(), key=lambda each: (each.vram_ppm, each.vram_bytes, each.compute_ppm))
    requirement = _requirement(asked, len(held), part)
    charges = tuple(charge_of(replace(requirement, gpu_count=1, part=each), uuid) for uuid, each in held.items())
    claim = bare_claim(keys) if asked is None else asked.claim
    return Allocation(
        claim.pod_uid, node, requirement, tuple(held), state=AllocationState.BOUND, charges=charges, claim=claim
    )


def _without_cards(bare: Claim, node: str, asked: PodRequest | None) -> Allocation:
    """Return the allocation of a pod whose cards were all those of init containers that have ended."""
    claim = bare if asked is None else asked.claim
    requirement = ResourceRequirement(gpu_count=1) if asked is None else asked.requirement
    return Allocation(claim.pod_uid, node, requirement, state=AllocationState.BOUND, claim=claim)


def _peaks(spec: Document, written: Sequence[Sequence[HamiDevice]], *, over: bool) -> dict[str, Part]:
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
            with_it = now + Counter({"mib": device.memory_mib, "cores": device.cores, "whole": _is_whole(device)})
            peaks[device.card] = peaks.get(device.card, Counter()) | with_it
            if stage is not AlignmentStage.INIT:
                staying[device.card] = with_it
    return {card: _part(amounts) for card, amounts in peaks.items()}


def _is_whole(device: HamiDevice) -> int:
    return int(not device.memory_mib or device.card != device.uuid)


def _part(amounts: Counter[str]) -> Part:
    cores = min(amounts["cores"], WHOLE) * PPM // WHOLE
    if amounts["whole"]:
        return Part(compute_ppm=cores or PPM, vram_ppm=PPM)
    return Part(compute_ppm=cores, vram_bytes=amounts["mib"] * MIB)


def _requirement(asked: PodRequest | None, count: int, part: Part) -> ResourceRequirement:
    """Return the request as it was granted: these cards, softly isolated."""
    cards = CardSelector(isolation=Isolation.SOFT)
    if asked is None:
        return ResourceRequirement(gpu_count=count, part=part, cards=cards)
    was = asked.requirement
    return replace(was, gpu_count=count, part=part, cards=replace(cards, vendors=was.cards.vendors))
