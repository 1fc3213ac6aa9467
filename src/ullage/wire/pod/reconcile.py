"""The allocation of a pod, read back from the annotations that were written at bind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim
from ullage.model.counted import counted
from ullage.model.error import InvalidRequest
from ullage.model.part import Isolation, Part
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.zone_placement import ZonePlacement
from ullage.wire.document import Document, section, text
from ullage.wire.pod.compose import compose_request
from ullage.wire.pod.keys import DOMAIN, Keys, comma_list
from ullage.wire.pod.owner import bare_claim, plain_claim
from ullage.wire.pod.placement import read_placement
from ullage.wire.pod.record import Record, record_of
from ullage.wire.pod.request import PodRequest
from ullage.wire.shared import shared_charges, shared_requirement

ChargeOf = Callable[[ResourceRequirement, str], Charge]

ReadPod = Callable[[Document], PodRequest | None]
"""Return the request of a pod for cards; None if it requests none.

Raises:
    InvalidRequest: the request is invalid.

"""


def read_allocations(
    pod: Document, domain: str = DOMAIN, *, charge_of: ChargeOf, read: ReadPod | None = None
) -> tuple[Allocation, ...]:
    """Return what a pod that is on a node has been bound to: an allocation for each family of its cards.

    It is empty for a pod without a node or without cards. `read` returns the request of the pod, for pods of other
    dialects than that of `domain`. `charge_of` returns what a request takes of a card, by its uuid. It is called only
    for pods without recorded charges, as those of other schedulers. The caller checks whether the pod still runs.
    """
    keys = Keys(pod, domain)
    node, gpus = _node_of(pod), given_cards(keys)
    if not node or not gpus:
        return ()
    found = compose_request(pod, domain) if read is None else read(pod)
    if found is None:
        raise keys.invalid("gpu-ids", "the pod requests no cards; remove it")
    record = record_of(keys)
    own = _OfFamily(gpus, record, read_placement(pod, domain))
    if found.further or (record is not None and record.further):
        given = _by_family(keys, found, own)
        return tuple(_allocation(keys, node, each, given[each.family], charge_of=charge_of) for each in found.by_family)
    return (_allocation(keys, node, found, own, charge_of=charge_of),)


class _OfFamily(NamedTuple):
    """The cards of a pod of one family, what was written of them, and their place in the machine."""

    gpus: tuple[str, ...]
    record: Record | None
    placement: ZonePlacement | None


def _by_family(keys: Keys, found: PodRequest, all_: _OfFamily) -> dict[str, _OfFamily]:
    """Return what a pod with cards of several families was given of each of them."""
    record, gpus = all_.record or Record(), all_.gpus
    first = len(gpus) - sum(each.count for each in record.further)
    given: dict[str, _OfFamily] = {}
    at = first
    for each in record.further:
        own = Record(each.cards, assumed_at=each.assumed_at, bound_at=each.bound_at)
        placement = None if each.placed is None else each.placed.placement(keys.key("allocation"))
        given[each.family] = _OfFamily(gpus[at : at + each.count], own, placement)
        at += each.count
    unnamed = [each.family for each in found.by_family if each.family not in given]
    if first <= 0 or len(unnamed) != 1 or len(given) != len(found.further):
        families = ", ".join(each.family for each in found.by_family)
        raise keys.invalid("allocation", f"the pod requests cards of {families}; restore what was written at bind")
    given |= dict.fromkeys(unnamed, _OfFamily(gpus[:first], structs.replace(record, further=()), all_.placement))
    return given


def _allocation(keys: Keys, node: str, found: PodRequest, given: _OfFamily, *, charge_of: ChargeOf) -> Allocation:
    """Return the allocation of a pod's cards of one family."""
    request, asked, (gpus, record, placement) = found.request, found.requirement, given
    if record is None and len(gpus) != asked.gpu_count:
        named, by = counted(len(gpus), "card"), f"{keys.key('gpu-count')} or its containers"
        raise keys.invalid("gpu-ids", f"it names {named}, {by} request {asked.gpu_count}; make them equal")
    if record is None:
        charges = () if asked.whole else tuple(charge_of(asked, gpu) for gpu in gpus)
        record = Record()
    else:
        charges = tuple(card.charge for card in record.cards)
        if len(charges) not in (0, len(gpus)):
            fix = f"one charge per card of {keys.key('gpu-ids')} is needed, and none where cards are held whole"
            raise keys.invalid("allocation", fix)
        sharing = (each for each in found.together if each.gpu_count == len(gpus) != asked.gpu_count)
        asked = _as_granted(next(sharing, asked), len(gpus), charges)
    return Allocation(
        id=request.uid,
        node=node,
        requirement=shared_requirement(asked),
        gpus=gpus,
        state=AllocationState.BOUND,
        charges=shared_charges(charges),
        claim=request.claim,
        assumed_at=record.assumed_at,
        bound_at=record.bound_at,
        placement=placement,
    )


def _as_granted(asked: ResourceRequirement, count: int, charges: tuple[Charge, ...]) -> ResourceRequirement:
    """Return the request as it was granted; where bindings of applications count, amounts may differ."""
    if count == asked.gpu_count and bool(charges) is not asked.whole:
        return asked
    part, selector = asked.part, replace(asked.cards, indices=())
    if not charges:
        part, selector = None, replace(selector, isolation=Isolation.SHARED, template=None)
    elif asked.whole:
        first, *_ = charges
        part = Part(first.compute, first.vram) if first.basis is None else first.basis.part
        selector = replace(selector, isolation=first.isolation)
    return replace(asked, gpu_count=count, part=part, cards=selector)


def given_cards(keys: Keys) -> tuple[str, ...]:
    """Return the cards that a pod names as its own, without blanks and empty entries.

    Raises:
        InvalidAnnotation: a card is named twice, so it replaced another one.

    """
    text = keys.text("gpu-ids") or ""
    entries = [entry for entry in text.split(",") if entry.strip()]
    if len(found := comma_list(text)) != len(entries):
        raise keys.invalid("gpu-ids", "a card is named twice; it is written at bind, leave it")
    return found


def named_cards(pod: Document, domain: str = DOMAIN) -> Allocation | None:
    """Return the cards that a pod on a node names as its own, where its other annotations cannot be read.

    It holds of each card what its record states. It holds all of a card whose record is incomplete, or a slice. The
    result is None for a pod that names no cards, or whose list cannot be read: then nothing is known of it.
    """
    try:
        keys = Keys(pod, domain)
        gpus = given_cards(keys)
        metadata, node = section(pod, "metadata"), _node_of(pod)
        uid = text(metadata.get("uid"))
    except InvalidRequest:
        return None
    if not (node and uid and 0 < len(gpus) <= MAX_CARDS):
        return None
    asked, charges = ResourceRequirement(gpu_count=len(gpus)), _recorded(keys, len(gpus))
    if charges:
        asked = _as_granted(asked, len(gpus), charges)
    return Allocation(uid, node, asked, gpus, state=AllocationState.BOUND, charges=charges, claim=_whose(keys, pod))


def _whose(keys: Keys, pod: Document) -> Claim:
    """Return the claim of a pod, with its priority where that can be read."""
    try:
        return plain_claim(keys, section(pod, "spec"))
    except InvalidRequest:
        return bare_claim(keys)


def _recorded(keys: Keys, count: int) -> tuple[Charge, ...]:
    """Return the charges in the record of a pod with `count` cards.

    There are none if the cards are held whole, or the record is incomplete. A charge without its basis means nothing
    without the request.
    """
    try:
        record = record_of(keys)
        charges = () if record is None else tuple(card.charge for card in record.cards)
    except InvalidRequest:
        return ()
    known = len(charges) == count and all(charge.basis is not None and charge.slot is None for charge in charges)
    return charges if known else ()


def _node_of(pod: Document) -> str:
    return sys.intern(text(section(pod, "spec").get("nodeName")))
