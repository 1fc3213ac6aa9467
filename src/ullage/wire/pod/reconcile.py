"""The allocation of a pod, read back from what was written at bind."""

from __future__ import annotations

from collections.abc import Callable

from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.request import ResourceRequirement
from ullage.wire.document import Document, mapping, text
from ullage.wire.pod.compose import compose_request
from ullage.wire.pod.keys import DOMAIN, Keys
from ullage.wire.pod.placement import read_placement
from ullage.wire.pod.record import Record, record_of
from ullage.wire.pod.request import PLAIN_DEFAULTS, PodDefaults

ChargeOf = Callable[[ResourceRequirement, str], Charge]


def read_allocation(
    pod: Document, domain: str = DOMAIN, *, charge_of: ChargeOf, defaults: PodDefaults = PLAIN_DEFAULTS
) -> Allocation | None:
    """The allocation of a pod that is on a node and has cards, bound; None for any other pod.

    `charge_of` says what a request takes of a card, by its uuid: it is asked only for pods whose charges
    were not kept, as those of other schedulers. Whether the pod still runs is for the caller to look at.

    Raises:
        InvalidAnnotation: what was written cannot be read, or does not match what the pod asks.
        InvalidRequest: another field of the pod is wrong, or it has no uid.

    """
    keys = Keys(pod, domain)
    node = text(mapping(pod.get("spec"), "spec").get("nodeName"))
    gpus = keys.names("gpu-ids")
    if not node or not gpus:
        return None
    request = compose_request(pod, domain, defaults=defaults).request
    asked, record = request.requirement, record_of(keys)
    if len(gpus) != asked.gpu_count:
        fix = f"it names {len(gpus)} cards, {keys.key('gpu-count')} asks for {asked.gpu_count}; make them equal"
        raise keys.wrong("gpu-ids", fix)
    if record is None:
        charges = () if asked.whole else tuple(charge_of(asked, gpu) for gpu in gpus)
        record = Record()
    else:
        charges = tuple(card.charge for card in record.cards)
        if len(charges) != (0 if asked.whole else len(gpus)):
            fix = f"one charge per card of {keys.key('gpu-ids')} is needed, and none where cards are held whole"
            raise keys.wrong("allocation", fix)
    return Allocation(
        id=request.uid,
        node=node,
        requirement=asked,
        gpus=gpus,
        state=AllocationState.BOUND,
        charges=charges,
        claim=request.claim,
        assumed_at=record.assumed_at,
        bound_at=record.bound_at,
        placement=read_placement(pod, domain),
    )
