"""Entries about alignment: what their names stand for, and what is refused."""

from __future__ import annotations

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.provider import Kind, Provider
from ullage.wire.topology.provider import read_provider


def read(resource: str, kind: str | None = None) -> Provider:
    return read_provider(resource, kind, align=False, path="p")


@pytest.mark.parametrize(
    ("written", "fits", "fits_not"),
    [
        ("cpu", [(Kind.CPU, "cpu")], [(Kind.MEMORY, "memory"), (Kind.DEVICE, "cpu")]),
        ("memory", [(Kind.MEMORY, "memory")], [(Kind.HUGEPAGES, "hugepages-2Mi")]),
        ("hugepages-2Mi", [(Kind.HUGEPAGES, "hugepages-2Mi")], [(Kind.HUGEPAGES, "hugepages-1Gi")]),
        ("hugepages-*", [(Kind.HUGEPAGES, "hugepages-2Mi")], [(Kind.DEVICE, "hugepages-2Mi")]),
        ("intel.com/*", [(Kind.DEVICE, "intel.com/sriov")], [(Kind.DEVICE, "intel.co"), (Kind.DEVICE, "gpu")]),
        ("nic", [(Kind.DEVICE, "nic")], [(Kind.DEVICE, "nic2"), (Kind.DEVICE, "gpu")]),
        ("*", [(Kind.DEVICE, "nic"), (Kind.DEVICE, "gpu")], [(Kind.CPU, "cpu"), (Kind.HUGEPAGES, "hugepages-4Ki")]),
    ],
)
def test_the_names_that_an_entry_is_about(written, fits, fits_not):
    entry = read(written)
    assert all(entry.fits(*resource) for resource in fits)
    assert not any(entry.fits(*resource) for resource in fits_not)


@pytest.mark.parametrize(
    ("written", "vendors"),
    [
        ("nvidia.com/gpu", {"NVIDIA"}),
        ("amd.com/*", {"AMD"}),
        ("huawei.com/Ascend*", {"Ascend"}),
        ("intel.com/*", set()),
        ("gpu", {"NVIDIA", "AMD", None}),
    ],
)
def test_cards_go_by_the_name_that_their_vendor_gives_them(written, vendors):
    entry = read(written)
    assert {vendor for vendor in ("NVIDIA", "AMD", "Ascend", None) if entry.fits(Kind.DEVICE, "gpu", vendor)} == (
        vendors | {"Ascend"} if written == "gpu" else vendors
    )


@pytest.mark.parametrize("kind", [*Kind])
def test_a_star_alone_is_all_of_a_kind(kind):
    entry = read("*", kind)
    assert [entry.fits(each, "x") for each in Kind] == [each is kind for each in Kind]


@pytest.mark.parametrize(
    ("resource", "kind", "said"),
    [
        ("", None, r"p\.resource: '' .*such as nvidia\.com/gpu"),
        ("a*b", None, r"p\.resource: 'a\*b'"),
        ("intel.com/ nic", None, r"p\.resource"),
        ("hugepages-big", None, r"p\.resource: 'hugepages-big' .*hugepages-2Mi"),
        ("nic", "card", r"p\.kind: 'card' .*choose one of device, cpu, memory, hugepages"),
        ("cpu", "device", r"p\.kind: 'device' .*cpu is of kind cpu"),
        ("intel.com/*", "memory", r"p\.kind: 'memory' .*of kind device"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(resource, kind, said):
    with pytest.raises(InvalidRequest, match=said):
        read(resource, kind)
