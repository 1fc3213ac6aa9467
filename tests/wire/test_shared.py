"""Equal values of pods are kept once, and different ones stay different."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ullage.model.allocation import Allocation, Basis, Charge
from ullage.model.gpu import Gpu
from ullage.model.part import Part
from ullage.wire.dialect import read_pod
from ullage.wire.pod import bind_annotations, read_allocations
from ullage.wire.shared import shared_charges
from ullage.wire.vendors.registers import NodeText, registered_cards
from ullage.wire.vendors.shipped import NVIDIA


def a_pod(name: str, mib: int = 1000, **more: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib)}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"app": "train"}, **more}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": [{"resources": {"limits": limits}}]}}


def test_requests_of_pods_that_ask_for_the_same_are_one() -> None:
    one, other, another = (read_pod(pod) for pod in (a_pod("one"), a_pod("other"), a_pod("another", 2000)))
    assert one is not None
    assert other is not None
    assert another is not None
    assert one.requirement is other.requirement
    assert one.requirement != another.requirement
    assert one.claim.labels is other.claim.labels


def test_pods_that_hold_the_same_are_charged_by_one_value_after_a_restart() -> None:
    charge = Charge(1, 1000, basis=Basis(Part(vram_bytes=1000)))

    def held(name: str, **notes: str) -> Allocation:
        notes = notes or {"ullage.io/gpu-ids": f"G-{name}"}
        (found,) = read_allocations(a_pod(name, annotations=notes), charge_of=lambda *_: charge, read=read_pod)
        return found

    one, other = (held(name, **bind_annotations(held(name))) for name in ("one", "other"))
    assert one.charges is other.charges
    assert one.requirement is other.requirement
    assert (one.id, one.gpus) != (other.id, other.gpus)


def test_charges_that_were_granted_by_another_card_stay_apart() -> None:
    """The basis does not count when charges are compared."""
    one = Charge(1, 1000, basis=Basis(Part(vram_bytes=1000), vram_bytes=2000))
    other = replace(one, basis=Basis(Part(vram_ppm=500_000), vram_bytes=2000))
    mixed = replace(one, mixed=True)
    assert one == other == mixed
    found = [shared_charges((each,)) for each in (one, other, mixed)]
    assert [charge.basis for (charge,) in found] == [one.basis, other.basis, one.basis]
    assert [charge.mixed for (charge,) in found] == [False, False, True]


def test_cards_of_one_model_have_their_common_facts_together() -> None:
    def registered(card: str) -> Gpu:
        entry = {"id": card, "devmem": 1000, "devcore": 100, "type": "A100", "numa": 1, "health": True}
        node = NodeText(card, {NVIDIA.register.annotation: json.dumps([entry])})
        (found,) = registered_cards(NVIDIA, node) or ()
        return found.gpu

    one, other = registered("G-0"), registered("G-1")
    assert one.isolations is other.isolations
    assert one.zones is other.zones
    assert one.model is other.model
