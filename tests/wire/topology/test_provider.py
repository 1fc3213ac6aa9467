"""Alignment settings per resource: the meaning of their names, and invalid ones."""

from __future__ import annotations

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.provider import Provider, ProviderKind
from ullage.wire.topology.provider import read_provider


def read(resource: str, kind: str | None = None) -> Provider:
    return read_provider(resource, kind, align=False, path="p")


@pytest.mark.parametrize(
    ("written", "fits", "fits_not"),
    [
        ("cpu", [(ProviderKind.CPU, "cpu")], [(ProviderKind.MEMORY, "memory"), (ProviderKind.DEVICE, "cpu")]),
        ("memory", [(ProviderKind.MEMORY, "memory")], [(ProviderKind.HUGEPAGES, "hugepages-2Mi")]),
        ("hugepages-2Mi", [(ProviderKind.HUGEPAGES, "hugepages-2Mi")], [(ProviderKind.HUGEPAGES, "hugepages-1Gi")]),
        ("hugepages-*", [(ProviderKind.HUGEPAGES, "hugepages-2Mi")], [(ProviderKind.DEVICE, "hugepages-2Mi")]),
        (
            "intel.com/*",
            [(ProviderKind.DEVICE, "intel.com/sriov")],
            [(ProviderKind.DEVICE, "intel.co"), (ProviderKind.DEVICE, "gpu")],
        ),
        ("nic", [(ProviderKind.DEVICE, "nic")], [(ProviderKind.DEVICE, "nic2"), (ProviderKind.DEVICE, "gpu")]),
        (
            "*",
            [(ProviderKind.DEVICE, "nic"), (ProviderKind.DEVICE, "gpu")],
            [(ProviderKind.CPU, "cpu"), (ProviderKind.HUGEPAGES, "hugepages-4Ki")],
        ),
    ],
)
def test_the_resources_that_an_entry_matches(written, fits, fits_not):
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
def test_cards_have_the_names_of_their_vendor(written, vendors):
    entry = read(written)
    assert {
        vendor for vendor in ("NVIDIA", "AMD", "Ascend", None) if entry.fits(ProviderKind.DEVICE, "gpu", vendor)
    } == (vendors | {"Ascend"} if written == "gpu" else vendors)


@pytest.mark.parametrize("kind", [*ProviderKind])
def test_a_star_matches_all_of_a_kind(kind):
    entry = read("*", kind)
    assert [entry.fits(each, "x") for each in ProviderKind] == [each is kind for each in ProviderKind]


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
def test_an_invalid_provider_is_refused_with_its_name(resource, kind, said):
    with pytest.raises(InvalidRequest, match=said):
        read(resource, kind)
