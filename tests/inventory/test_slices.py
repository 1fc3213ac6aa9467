"""Slices of the cards of this machine: found through NVML, given to one worker each, and named to CUDA."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_nvml import GIB, FakeCard, FakeNvml, FakeSlice

from ullage.core.books.fleet import Fleet
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.engines.local.environment import visible_devices
from ullage.inventory.machine import MachineSettings, _shareable
from ullage.inventory.nvml import NvmlCards
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement

SMALL = FakeSlice("MIG-s", "1g.10gb", 10 * GIB, 1, instance=9)
OTHER = FakeSlice("MIG-o", "1g.10gb", 10 * GIB, 1, instance=10)
LARGE = FakeSlice("MIG-l", "3g.40gb", 40 * GIB, 3, instance=2)
WHOLE = Gpu("GPU-2", 1, "NVIDIA H100", "NVIDIA", 80 * GIB)


def card_with(*slices, **more):
    (card,) = NvmlCards(FakeNvml(FakeCard("GPU-1", slices=list(slices), **more))).cards()
    return _shareable(card, MachineSettings())


def placing(card):
    fleet = Fleet([Node("here", 64_000, 2**40, (card, WHOLE))])
    placer = Placer(fleet, Policy())
    return fleet, lambda name, text: placer.place(name, ResourceRequirement.from_string(text))


def named(fleet, held):
    return visible_devices(fleet.gpus(held.gpus), held.charges)


def test_the_slices_of_a_card_are_its_partitions():
    card = card_with(SMALL, None, OTHER, LARGE)
    found = [(each.name, each.memory_bytes, each.takes_ppm, each.starts) for each in card.partitions]
    assert found == [
        ("1g.10gb", 10 * GIB, PPM // 7, (72, 80)),
        ("3g.40gb", 40 * GIB, 3 * PPM // 7, (16,)),
    ]
    assert card.slice_uuids == ((16, "MIG-l"), (72, "MIG-s"), (80, "MIG-o"))
    assert (card.healthy, card.isolations) == (True, frozenset({Isolation.PARTITIONED}))


@pytest.mark.parametrize("question", ["nvmlDeviceGetName", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetAttributes_v2"])
def test_a_slice_that_is_not_known_is_given_to_nobody(question):
    unknown = replace(OTHER, failing={question: FakeNvml.NVML_ERROR_NO_PERMISSION})
    assert card_with(SMALL, unknown).slice_uuids == ((72, "MIG-s"),)


def test_a_card_whose_slices_cannot_be_listed_gives_none():
    card = card_with(SMALL, failing={"nvmlDeviceGetMaxMigDeviceCount": FakeNvml.NVML_ERROR_UNKNOWN})
    assert (card.partitions, card.healthy) == ((), False)


@pytest.mark.parametrize("failing", [{}, {"nvmlDeviceGetMigMode": FakeNvml.NVML_ERROR_NOT_SUPPORTED}])
def test_a_card_without_the_mode_has_no_partitions(failing):
    (card,) = NvmlCards(FakeNvml(FakeCard("GPU-1", failing=failing))).cards()
    assert card.partitions is None


def test_each_worker_has_a_slice_of_its_own_by_its_uuid():
    fleet, place = placing(card_with(SMALL, OTHER, LARGE))
    texts = ["gpu=1,vram=8g,isolation=partitioned"] * 3 + ["gpu=1,partition=3g.40gb"]
    first, second, third, none = [place(f"p{at}", text) for at, text in enumerate(texts)]
    assert [named(fleet, held) for held in (first, second, third)] == ["MIG-s", "MIG-o", "MIG-l"]
    assert none is None
    fleet.release("p1")
    assert named(fleet, place("again", texts[0])) == "MIG-o"


def test_a_card_in_slices_is_not_given_whole_or_in_parts():
    fleet, place = placing(card_with(SMALL))
    assert place("whole", "gpu=1").gpus == ("GPU-2",)
    assert place("part", "gpu=0.5") is None
    assert place("two", "gpu=2") is None
    assert named(fleet, place("slice", "gpu=1,isolation=partitioned")) == "MIG-s"


def test_several_slices_are_named_in_order_and_one_that_is_gone_is_not():
    fleet, place = placing(card_with(SMALL, OTHER))
    held = place("p", "gpu=1,partition=1g.10gb,slices=2")
    assert named(fleet, held) == "MIG-s,MIG-o"
    with pytest.raises(ValueError, match=r"no slice 1g\.10gb with the number 80 any more"):
        visible_devices((card_with(SMALL),), held.charges)
