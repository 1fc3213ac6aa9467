"""The zone of a card: the first source that knows it decides, and none guesses."""

from __future__ import annotations

import pytest
from fake_nvml import FakeNvml
from recorded import write
from recorded_topology import EIGHT, bus_of, cards, device, own_bridge, read, two_sockets, zones

from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import NvmlCards
from ullage.model.topology import Path


def card_in(root, zone, bridge_zone=None, local=None, near=None, cpus=None):
    """The zones of one card of a machine with two zones."""
    zones(root, cpus or {0: "0-3", 1: "4-7"})
    place = device(root, bus_of(0x3B), own_bridge(0x3B), zone, local=local)
    if bridge_zone is not None:
        write(place.parent, "numa_node", bridge_zone)
    (card,) = read(root, FakeNvml(*cards(0x3B, near=near))).cards
    return card.zones


def test_the_kernels_word_on_the_device_decides(tmp_path):
    assert card_in(tmp_path, 1, bridge_zone=0, local="0-3", near=0b1) == (1,)


@pytest.mark.parametrize("zone", [-1, None, "text", 7])
def test_then_the_nearest_bridge_that_has_one(tmp_path, zone):
    assert card_in(tmp_path, zone, bridge_zone=1, local="0-3", near=0b1) == (1,)


def test_then_the_cpus_that_are_near_if_they_lie_in_one_zone(tmp_path):
    assert card_in(tmp_path / "a", -1, bridge_zone=-1, local="4-7", near=0b1) == (1,)
    assert card_in(tmp_path / "b", -1, local="0-7", near=0b10) == (1,)
    assert card_in(tmp_path / "c", -1, local="4-9", near=0b1) == (0,)


def test_then_the_cards_of_nvml(tmp_path):
    assert card_in(tmp_path, -1, near=0b10) == (1,)


@pytest.mark.parametrize("near", [0b11, 0b100, 0, 2**64 - 1])
def test_nvml_masks_of_all_zones_or_of_one_without_processors_are_ignored(tmp_path, near):
    assert card_in(tmp_path, -1, near=near, cpus={0: "0-3", 1: "4-7", 2: ""}) == ()


@pytest.mark.parametrize("zone", [-1, None])
def test_an_unknown_zone_makes_no_claim(tmp_path, zone):
    found = read(tmp_path, two_sockets(tmp_path, zone_of=lambda _: zone))
    assert [gpu.zones for gpu in found.cards] == [()] * 8
    assert found.topology.zone_ids == (0, 1)
    assert {link.path for link in found.topology.links} <= {Path.UNKNOWN}


def test_cards_are_ordered_by_address_and_have_their_zones(tmp_path):
    buses = (0x3B, 0x86, 0xAF, 0xD8)
    found = read(tmp_path, two_sockets(tmp_path, buses, zone_of=lambda place: place // 2))
    assert [(gpu.index, gpu.bus_id, gpu.zones) for gpu in found.cards] == [
        (0, "0000:3b:00.0", (0,)),
        (1, "0000:86:00.0", (0,)),
        (2, "0000:af:00.0", (1,)),
        (3, "0000:d8:00.0", (1,)),
    ]


def test_a_card_without_sysfs_has_the_zone_of_nvml(tmp_path):
    zones(tmp_path, {0: "0-3", 1: "4-7"})
    assert [gpu.zones for gpu in read(tmp_path, FakeNvml(*cards(*EIGHT, near=0b10))).cards] == [(1,)] * 8


def test_a_declared_card_that_the_driver_knows_has_its_address_model_and_zone(tmp_path):
    two_sockets(tmp_path)
    text = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 31\nGPU UUID: \t GPU-8932f937-d72c\nBus Type: \t PCIe"
    write(tmp_path, "proc/driver/nvidia/gpus/0000:9b:00.0/information", text)
    write(tmp_path, "proc/driver/nvidia/gpus/0000:3b:00.0/information", "GPU UUID: \t GPU-????????-????")
    library = FakeNvml()
    library.failing["nvmlInit"] = FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED
    settings = MachineSettings(gpus=("GPU-8932f937-d72c", "7"))
    known, unknown = discover(settings, {}, NvmlCards(library), root=tmp_path).node.gpus
    assert (known.bus_id, known.model, known.zones) == ("0000:9b:00.0", "NVIDIA A100-SXM4-40GB", (1,))
    assert (unknown.bus_id, unknown.model, unknown.zones) == (None, None, ())
