"""Cards without a library: from the files of a machine to pods in its zones."""

import json

import msgspec
import pytest
from exporter_bench import Bench
from fake_nvml import FakeNvml
from recorded import write
from recorded_topology import AMD, ASCEND, EIGHT, NVIDIA, bus_of, device, own_bridge, two_sockets, zones
from tests.kube.pod_resources import PodResourcesServer, container, devices, listed, pod

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.rules import Rules
from ullage.inventory.pci import list_addresses, read_devices
from ullage.inventory.pci_cards import find_cards
from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.kube.mirror.nodes import node_of
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.wire.pod import compose_request

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

ACCELERATOR, DISPLAY = 0x120000, 0x030000
MI300, RYZEN, ASCEND_910 = 0x74A1, 0x1638, 0xD801
AMD_GPU, ASCEND_CARD = "amd.com/gpu", "huawei.com/Ascend910"


def machine(root, vendor, kind, number, buses=EIGHT):
    """Layout B with the cards of a vendor whose library is not there."""
    zones(root, {0: "0-3,8-11", 1: "4-7,12-15"}, core_of=lambda cpu: (cpu // 4 % 2, cpu % 4))
    for place, bus in enumerate(buses):
        device(root, bus_of(bus), own_bridge(bus), place // 4, vendor, kind, number)


def silent(*cards):
    """An NVML without a driver."""
    library = FakeNvml(*cards)
    library.failing["nvmlInit"] = 9
    return library


def uuid(place):
    return f"n1/pci-{bus_of(EIGHT[place]).replace(':', '-')}"


@pytest.fixture
def amd(server, api, tmp_path):
    machine(tmp_path, AMD, ACCELERATOR, MI300)
    return Bench(server, api, tmp_path, silent())


@pytest.fixture
def ascend(server, api, tmp_path):
    machine(tmp_path, ASCEND, ACCELERATOR, ASCEND_910)
    return Bench(server, api, tmp_path, silent())


async def exported(bench, *pods):
    async with PodResourcesServer(bench.settings.pod_resources, listed(*pods)):
        assert await bench.round()
    return bench.record()


def node_in_cluster(record, labels=None, **amounts):
    """The node as the scheduler has it, whose kubelet offers these amounts."""
    offered = {"cpu": "16", "memory": "64Gi", "pods": "9", **amounts}
    status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    node = msgspec.convert({"metadata": {"name": "n1", "labels": labels or {}}, "status": status}, NodeObject)
    return node_of(node, record=record)


def wanting(name, resource, cards):
    amounts = {resource: str(cards)}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}]},
        "status": {"qosClass": "BestEffort"},
    }


def books_of(node, use):
    books = FleetAllocator(Fleet([node]), Rules())
    books.set_ready()
    books.observe("n1", use, 0.0)
    return books


def placed(books, name, resource, cards):
    composed = compose_request(wanting(name, resource, cards))
    found = books.alloc(Request(composed.uid, composed.requirement, composed.claim), 0.0)
    return found.gpus if isinstance(found, Allocation) else None


async def test_cards_of_amd_have_zone_address_and_model_and_count_in_full(amd):
    record = await exported(amd)
    spec = amd.stored()["spec"]
    assert spec["numares"][AMD_GPU] == {"allocatable": "0-7", "capacity": 8}
    assert spec["gpuDetail"]["4"] == {"numa": 1, "busID": bus_of(EIGHT[4]), "deviceModel": "1002:74a1"}
    assert [(card.uuid, card.zones, card.vendor) for card in record.cards] == [
        (uuid(place), (place // 4,), "AMD") for place in range(8)
    ]
    assert (record.card_resource, record.topology.devices) == (AMD_GPU, ())
    assert amd.said == []


@pytest.mark.parametrize(
    ("vendor", "number", "resource", "ids"),
    [
        (AMD, MI300, AMD_GPU, ["0000:1b:00.0", "3B:00.0"]),
        (ASCEND, ASCEND_910, ASCEND_CARD, ["Ascend910-0", "Ascend910-1"]),
    ],
)
async def test_pods_get_cards_in_one_zone_next_to_those_that_the_node_shows_as_held(
    server, api, tmp_path, vendor, number, resource, ids
):
    machine(tmp_path, vendor, ACCELERATOR, number)
    bench = Bench(server, api, tmp_path, silent())
    record = await exported(bench, pod("p", container("c", devices(resource, *ids))))
    assert bench.stored()["spec"]["numares"][resource] == {"allocatable": "2-7", "capacity": 8}
    assert record.use.pods[0].containers[0].devices == (("gpu", (uuid(0), uuid(1))),)
    node = node_in_cluster(record, **{resource: "8"})
    assert [card.uuid for card in node.gpus] == [card.uuid for card in record.cards]
    books = books_of(node, record.use)
    assert placed(books, "a", resource, 3) == tuple(map(uuid, (4, 5, 6))), "the zone with two free cards is too small"
    assert placed(books, "b", resource, 2) == tuple(map(uuid, (2, 3)))
    assert placed(books, "c", resource, 2) is None
    assert placed(books, "d", resource, 1) == (uuid(7),)


async def test_the_checkpoint_names_cards_too(ascend):
    write(ascend.root, "kubelet/cpu", json.dumps({"policyName": "none"}))
    entry = {"PodUID": "u1", "ContainerName": "c", "ResourceName": ASCEND_CARD, "DeviceIDs": {"-1": ["Ascend910-5"]}}
    write(ascend.root, "kubelet/devices", json.dumps({"Data": {"PodDeviceEntries": [entry]}}))
    assert await ascend.round()
    assert ascend.record().stock["gpu"].free == (0, 1, 2, 3, 4, 6, 7)
    assert ascend.record().use.pods[0].containers[0].devices == (("gpu", (uuid(5),)),)


async def test_ids_that_no_card_has_hold_as_many_cards(amd):
    record = await exported(amd, pod("p", container("c", devices(AMD_GPU, "0000:1b:00.0", "0000:ff:00.0", "xcp-3"))))
    assert record.stock["gpu"].free == (3, 4, 5, 6, 7)
    assert [sentence.partition(" ")[0] for source, sentence in amd.said if source == "cards"] == [
        "0000:ff:00.0",
        "xcp-3",
    ]
    books = books_of(node_in_cluster(record, **{AMD_GPU: "8"}), record.use)
    assert books.fleet.ledger["foreign:n1"].gpus == tuple(map(uuid, (0, 1, 2)))
    assert placed(books, "a", AMD_GPU, 6) is None
    assert placed(books, "b", AMD_GPU, 5) == tuple(map(uuid, (3, 4, 5, 6, 7)))


async def test_cards_of_two_vendors_are_published_only_when_one_is_named(server, api, tmp_path):
    machine(tmp_path, AMD, ACCELERATOR, MI300, EIGHT[:4])
    for bus in EIGHT[4:]:
        device(tmp_path, bus_of(bus), own_bridge(bus), 1, ASCEND, ACCELERATOR, ASCEND_910)
    bench = Bench(server, api, tmp_path, silent())
    record = await exported(bench, pod("p", container("c", devices(ASCEND_CARD, "Ascend910-0", "Ascend910-9"))))
    assert (record.cards, record.card_resource) == ((), "")
    assert {name: (stock.total, stock.free) for name, stock in record.stock.items() if "/" in name} == {
        AMD_GPU: (4, (0, 1, 2, 3)),
        ASCEND_CARD: (4, (2, 3)),
    }
    ((source, sentence),) = bench.said
    assert source == "cards"
    assert f"the machine has cards of {AMD_GPU} and {ASCEND_CARD}" in sentence
    assert "--card-resource" in sentence


async def test_the_resource_that_is_named_selects_its_cards(server, api, tmp_path):
    library = two_sockets(tmp_path)
    for place, bus in enumerate((0x21, 0x41, 0xA1)):
        device(tmp_path, bus_of(bus), own_bridge(bus), place // 2, ASCEND, ACCELERATOR, ASCEND_910)
    bench = Bench(server, api, tmp_path, library, ASCEND_CARD)
    record = await exported(bench, pod("p", container("c", devices(ASCEND_CARD, "Ascend910-1"))))
    assert (record.card_resource, record.stock["gpu"].total, record.stock["gpu"].free) == (ASCEND_CARD, 3, (0, 2))
    assert [card.zones for card in record.cards] == [(0,), (0,), (1,)]
    node = node_in_cluster(record, **{ASCEND_CARD: "3", "nvidia.com/gpu": "8"})
    assert [card.vendor for card in node.gpus] == ["Ascend"] * 3 + ["NVIDIA"] * 8
    books = books_of(node, record.use)
    assert placed(books, "a", ASCEND_CARD, 2) is None, "one zone has two cards, and one of these is held"
    assert placed(books, "b", ASCEND_CARD, 1) == ("n1/pci-0000-21-00.0",)
    assert placed(books, "c", ASCEND_CARD, 1) == ("n1/pci-0000-a1-00.0",)


async def test_cards_that_nvml_lists_go_before_those_of_other_vendors(server, api, tmp_path):
    library = two_sockets(tmp_path)
    device(tmp_path, bus_of(0x21), own_bridge(0x21), 1, AMD, ACCELERATOR, MI300)
    bench = Bench(server, api, tmp_path, library)
    record = await exported(bench, pod("p", container("c", devices(AMD_GPU, bus_of(0x21)))))
    assert (record.card_resource, len(record.cards)) == ("nvidia.com/gpu", 8)
    assert (record.stock[AMD_GPU].total, record.stock[AMD_GPU].free) == (1, ())
    assert record.stock["gpu"].free == tuple(range(8))


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((), [(AMD, RYZEN)]),
        (((AMD, ACCELERATOR, MI300),), [(AMD, MI300)]),
        (((AMD, 0x038000, 0x740C),), [(AMD, 0x740C)]),
        (((NVIDIA, 0x030200, 0x2330),), []),
    ],
)
def test_a_display_adapter_is_a_card_only_where_there_is_no_other(tmp_path, others, found):
    for number, (vendor, kind, name) in enumerate(((AMD, DISPLAY, RYZEN), *others), 0x21):
        device(tmp_path, bus_of(number), own_bridge(number), 0, vendor, kind, name)
    cards = find_cards(read_devices(tmp_path, list_addresses(tmp_path)).values())
    assert [(each.vendor, each.device) for each in cards.devices] == found


async def test_a_display_adapter_next_to_accelerators_is_no_device_of_their_resource(amd):
    device(amd.root, bus_of(0x06), own_bridge(0x06), 0, AMD, DISPLAY, RYZEN)
    record = await exported(amd)
    assert (len(record.cards), record.stock["gpu"].total, record.topology.devices) == (8, 8, ())


async def test_a_node_without_cards_publishes_no_resource_of_cards(server, api, tmp_path):
    zones(tmp_path, {0: "0-3"})
    bench = Bench(server, api, tmp_path, silent())
    record = await exported(bench)
    assert (record.cards, list(record.stock)) == ((), ["cpu"])
    assert bench.said == []


async def test_cards_with_a_custom_resource_name_are_held_as_the_kubelet_reports(server, api, tmp_path):
    bench = Bench(server, api, tmp_path, two_sockets(tmp_path), "example.com/gpu")
    record = await exported(bench, pod("p", container("c", devices("example.com/gpu", "GPU-1b"))))
    assert (record.card_resource, record.stock["gpu"].total) == ("example.com/gpu", 8)
    assert record.stock["gpu"].free == (1, 2, 3, 4, 5, 6, 7)


async def test_a_model_that_only_pci_names_is_that_of_feature_discovery(amd):
    record = await exported(amd)
    node = node_in_cluster(record, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, **{AMD_GPU: "8"})
    assert {card.model for card in node.gpus} == {"AMD_Instinct_MI300X_OAM"}
    assert {card.model for card in node_in_cluster(record, **{AMD_GPU: "8"}).gpus} == {"1002:74a1"}
