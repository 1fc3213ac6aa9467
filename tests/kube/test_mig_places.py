"""Random pods with slices against slow code that only knows profiles and places, by HAMi's rules."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.kube.mig_node import A30, A100, mig_card
from tests.kube.vendor_nodes import a_pod
from ullage.core.books.fleet import Fleet
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.verdict.partition import slices_on
from ullage.model.allocation import Allocation, Slot
from ullage.model.node import Node
from ullage.wire.hami.mig import reservations_of
from ullage.wire.hami.request import read_hami
from ullage.wire.pod import bind_annotations, read_allocations
from ullage.wire.vendors.registers import NodeText, registered_cards
from ullage.wire.vendors.shipped import NVIDIA

Document = dict[str, Any]
Run = tuple[int, int]
CARDS = {"GPU-1": (A100, 81920), "GPU-2": (A100[1:], 81920), "GPU-3": (A30, 24576)}


def next_slice(profiles: list[Document], taken: list[Run], mib: int, cores: int) -> tuple[str, int, int] | None:
    """The smallest profile with enough memory and cores and a free place; 1g and 3g lie high, others low."""
    for each in sorted(profiles, key=lambda each: each["memoryMB"]):
        places = sorted((place["start"], place["size"]) for place in each["placements"])
        if each["name"].startswith(("1g", "3g")):
            places.reverse()
        for start, size in places if each["memoryMB"] >= mib and each["core"] >= cores else ():
            if all(start + size <= other or other + length <= start for other, length in taken):
                return each["name"], start, size
    return None


def slices(uuid: str, taken: list[Run], mib: int, cores: int, count: int) -> list[tuple[str, int, int]] | None:
    """So many slices of a card, one after the other; None if not all have a place."""
    found, taken = [], list(taken)
    for _ in range(count):
        one = next_slice(CARDS[uuid][0], taken, mib, cores)
        if one is None:
            return None
        found.append(one)
        taken.append(one[1:])
    return found


def runs(fleet: Fleet) -> dict[str, list[Run]]:
    """The runs of slots that are held of each card."""
    found: dict[str, list[Run]] = {uuid: [] for uuid in CARDS}
    for held in fleet.ledger.values():
        for gpu, charge in zip(held.gpus, held.charges, strict=True):
            found[gpu] += [(slot.start, slot.end - slot.start) for slot in charge.slots]
    return found


def as_places(slots: tuple[Slot, ...]) -> list[tuple[str, int, int]]:
    return [(slot.template, slot.start, slot.end - slot.start) for slot in slots]


amounts = st.tuples(st.sampled_from([1, 5952, 5953, 9728, 9729, 20000, 60000]), st.sampled_from([0, 15, 16, 25, 30]))
pods = st.tuples(amounts, st.lists(st.integers(1, 2), min_size=1, max_size=2))


@given(st.lists(st.one_of(pods, st.integers(0, 9)), max_size=14))
def test_no_two_slices_overlap_and_a_refused_pod_has_no_place(steps: list[Any]) -> None:
    register = json.dumps([mig_card(uuid, *about, index=at) for at, (uuid, about) in enumerate(CARDS.items())])
    cards = registered_cards(NVIDIA, NodeText("a", {NVIDIA.register.annotation: register})) or ()
    fleet = Fleet([Node("a", 64_000, 2**40, tuple(card.gpu for card in cards))])
    placer, placed = Placer(fleet, Policy()), []
    for step, what in enumerate(steps):
        if isinstance(what, int):
            if what < len(placed):
                fleet.release(placed.pop(what).id)
            continue
        (mib, cores), counts = what
        limits = [{"nvidia.com/gpu": n, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores} for n in counts]
        pod = a_pod(f"p{step}", *limits, annotations={"nvidia.com/vgpu-mode": "mig"})
        pod["metadata"]["uid"] = pod["metadata"]["name"]
        asked = read_hami(pod)
        assert asked is not None
        before, total = runs(fleet), sum(counts)
        ways = [(total // each, each) for each in range(1, total + 1) if total % each == 0]
        for requirement, (on, each) in zip((asked.requirement, *asked.together), ways, strict=True):
            could = {uuid: found for uuid in CARDS if (found := slices(uuid, before[uuid], mib, cores, each))}
            held = placer.place(pod["metadata"]["name"], requirement)
            assert (held is not None) == (len(could) >= on), (before, could, requirement)
            if held is not None:
                check(fleet, pod, held, could)
                placed.append(held)
                break
    for gpu, taken in runs(fleet).items():
        there = [slot for start, size in taken for slot in range(start, start + size)]
        assert len(there) == len(set(there)), f"slices of {gpu} overlap"
    again = Fleet(fleet.nodes, placed)
    assert (again.card_rows == fleet.card_rows)[:, :4].all()


def check(fleet: Fleet, pod: Document, held: Allocation, could: dict[str, list[tuple[str, int, int]]]) -> None:
    """Its slices lie where the slow code puts them, and its annotations say so."""
    asked = read_hami(pod)
    assert asked is not None
    assert asked.devices is not None
    for gpu, charge in zip(held.gpus, held.charges, strict=True):
        assert as_places(charge.slots) == could[gpu]
        assert slices_on(fleet, fleet.card_of[gpu], charge.slots) == charge
    reserved = [(each.gpu_uuid, each.slot) for each in reservations_of(asked.devices.containers, held)]
    assert reserved == [
        (gpu, slot) for gpu, charge in zip(held.gpus, held.charges, strict=True) for slot in charge.slots
    ]
    metadata = {**pod["metadata"], "annotations": pod["metadata"]["annotations"] | bind_annotations(held)}
    bound = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "a"}}
    (again,) = read_allocations(bound, charge_of=lambda *_: charge, read=read_hami)
    assert (again.gpus, again.charges, again.requirement) == (held.gpus, held.charges, held.requirement)
