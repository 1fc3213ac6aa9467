"""From a node's files and its kubelet's socket to the object in the API, and back to the same machine."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from exporter_bench import Bench
from recorded import write
from recorded_topology import adapter, device, own_bridge, two_sockets, v100
from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import until, write_kubeconfig
from tests.kube.pod_resources import PodResourcesServer, container, devices, listed, message, pod

from ullage.cli.main import main
from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import NvmlCards
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES
from ullage.kube.mirror.nodes import node_of
from ullage.model.card_figures import SHIPPED_FIGURES
from ullage.model.part import Isolation

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

GPU = "nvidia.com/gpu"


@pytest.fixture
def bench(server: ApiServer, api: HttpKubeApi, tmp_path: Path) -> Bench:
    adapter(tmp_path, 0x11, 0)
    return Bench(server, api, tmp_path, two_sockets(tmp_path))


def one_pod(card: str = "GPU-1b") -> bytes:
    return listed(pod("p", container("c", devices(GPU, card, zones=(0,)), cpus=[1, 2])))


@pytest.mark.parametrize("machine", [two_sockets, v100])
async def test_written_topologies_are_read_back_unchanged(server, api, tmp_path, machine):
    bench = Bench(server, api, tmp_path, machine(tmp_path))
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
    found = discover(MachineSettings(name="n1"), {}, NvmlCards(bench.library), root=tmp_path).node
    record = bench.record()
    assert record.cards == tuple(replace(card, isolations=None) for card in found.gpus)
    for what in ("zones", "distances", "cpus"):
        assert getattr(record.topology, what) == getattr(found.topology, what), what
    assert set(record.topology.links) == set(found.topology.links)
    assert {device.resource for device in record.topology.devices} == {
        bench.settings.names.get(device.resource, device.resource) for device in found.topology.devices
    }
    assert record.topology.kubelet.policy == "restricted"
    assert record.topology.reserved_cpus == {0, 8}
    assert record.topology.observed_at == 1003
    assert [(held.namespace, held.name) for held in record.use.pods] == [("default", "p")]
    assert record.use.pods[0].containers[0].cpus == (1, 2)
    assert not record.use.stale


async def test_it_is_written_when_something_changes_and_never_else(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        for _ in range(50):
            assert await bench.round()
        assert bench.writes() == bench.exporter.count.writes == 1
        socket.answer = listed(
            pod("q", container("c", devices(GPU, "GPU-3b"))), pod("p", container("c", devices(GPU, "GPU-1b")))
        )
        assert await bench.round()
        first = bench.stored()
        assert bench.writes() == 2
        socket.answer = listed(
            pod("p", container("c", devices(GPU, "GPU-1b"))), pod("q", container("c", devices(GPU, "GPU-3b")))
        )
        assert await bench.round()
        assert bench.writes() == 2, "the order in which it is reported is no change"
        assert bench.stored() == first
        bench.exporter = bench.fresh()
        assert await bench.round()
        assert bench.writes() == 2, "a restart is no change"
        write(bench.root, "sys/devices/system/cpu/online", "0-14")
        bench.library.installed[3].failing["nvmlDeviceGetMemoryInfo"] = 15
        assert await bench.round()
        assert bench.writes() == 3
        assert not bench.record().cards[3].healthy
    assert bench.said == []


async def test_the_object_is_owned_by_its_node_and_keeps_fields_of_others(bench):
    async with PodResourcesServer(bench.settings.pod_resources) as socket:
        await bench.round()
        uid = bench.server.do(lambda: bench.server.rules.get(("nodes", "", "n1")))["metadata"]["uid"]
        assert [owner["uid"] for owner in bench.stored()["metadata"]["ownerReferences"]] == [uid]

        def mark(item):
            notes = item["metadata"]["annotations"] | {"somebody": "else"}
            return {**item, "metadata": item["metadata"] | {"annotations": notes, "labels": {"a": "b"}}}

        bench.server.do(lambda: bench.server.rules.change(("numatopologies", "", "n1"), mark))
        await bench.round(61)
        assert bench.writes() == 1, "what others say beside it is no drift"
        socket.answer = one_pod()
        await bench.round()
    assert bench.stored()["metadata"]["labels"] == {"a": "b"}
    assert bench.stored()["metadata"]["annotations"]["somebody"] == "else"


async def test_drift_is_corrected_within_a_minute(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        await bench.round()
        spec = bench.stored()["spec"]
        bench.server.do(
            lambda: bench.server.rules.change(("numatopologies", "", "n1"), lambda item: {**item, "spec": {}})
        )
        assert await bench.round(30)
        assert bench.stored()["spec"] == {}
        assert await bench.round(31)
        assert bench.stored()["spec"] == spec
        bench.server.do(lambda: bench.server.rules.delete(("numatopologies", "", "n1"), {}))
        assert await bench.round(61)
        assert bench.stored()["spec"] == spec
        assert bench.writes() == 3


async def test_a_write_after_a_concurrent_one_is_decided_again(bench):
    async with PodResourcesServer(bench.settings.pod_resources) as socket:
        await bench.round()
        bench.server.do(
            lambda: bench.server.rules.change(("numatopologies", "", "n1"), lambda item: {**item, "spec": {}})
        )
        socket.answer = one_pod()
        assert not await bench.round()
        assert await bench.round()
    assert [held.name for held in bench.record().use.pods] == ["p"]


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_write_whose_answer_is_lost(bench, carried_out):
    async with PodResourcesServer(bench.settings.pod_resources) as socket:
        await bench.round()
        bench.server.canned.append(Canned("PUT", "/n1", 500, carried_out=carried_out))
        socket.answer = one_pod()
        assert not await bench.round()
        while not await bench.round():
            assert bench.exporter.count.rounds < 6
        assert [held.name for held in bench.record().use.pods] == ["p"]
        done = bench.writes()
        for _ in range(30):
            assert await bench.round()
    assert bench.writes() == done


async def test_without_a_kubelet_the_last_state_stays_and_its_age_grows(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        await bench.round()
        before = bench.stored()
        socket.stop()
        for _ in range(5):
            assert await bench.round()
        assert bench.stored() == before
        assert bench.exporter.age_s == 15
        assert {source for source, _ in bench.said} == {"pod-resources"}
        await socket.start()
        socket.answer = one_pod("GPU-3b")
        assert await bench.round()
        assert bench.exporter.age_s == 0
        assert bench.record().use.pods[0].containers[0].devices == (("gpu", ("GPU-3b",)),)


async def test_refusals_and_unreadable_answers_keep_the_last_state(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        await bench.round()
        before = bench.stored()
        for status, raw, answer in (
            (14, None, b""),
            (0, b"\1\0\0\0\0", b""),
            (0, b"", b""),
            (0, b"\0\0\0\0\5ab", b""),
            (0, None, b"\x0a\xff"),
            (0, None, b"\x0f"),
            (0, None, b"\x0a\x02\x08\x01"),
            (0, None, b"\xff" * 11),
        ):
            socket.status, socket.raw, socket.answer = status, raw, answer
            logged = len(bench.said)
            assert await bench.round()
            assert len(bench.said) > logged, (status, raw, answer)
            assert bench.stored() == before


async def test_an_answer_that_does_not_come_is_given_up(bench, monkeypatch):
    monkeypatch.setattr("ullage.kube.exporter.grpc.ANSWER_S", 0.05)
    async with PodResourcesServer(bench.settings.pod_resources) as socket:
        socket.silent = True
        assert not await bench.round()
    assert [source for source, _ in bench.said][::3] == ["pod-resources", "kubelet"]


async def test_an_answer_larger_than_one_window(bench):
    many = [pod(f"p{number}", container("c" * 200, devices("example.com/x", f"id{number}"))) for number in range(2000)]
    async with PodResourcesServer(bench.settings.pod_resources, listed(*many)) as socket:
        assert len(socket.answer) > 4 << 16
        assert await bench.round()
    assert len(bench.record().use.pods) == 2000
    assert bench.said == []


async def test_files_replace_a_socket_that_never_answered_and_are_marked_stale(bench):
    write(bench.root, "kubelet/cpu", json.dumps({"policyName": "static", "entries": {"u1": {"c": "1-2"}}}))
    entry = {"PodUID": "u1", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": {"0": ["GPU-1b"]}}
    write(bench.root, "kubelet/devices", json.dumps({"Data": {"PodDeviceEntries": [entry]}}))
    assert await bench.round()
    use = bench.record().use
    assert use.stale
    assert [(held.uid, one.cpus, one.devices) for held in use.pods for one in held.containers] == [
        ("u1", (1, 2), (("gpu", ("GPU-1b",)),))
    ]
    assert bench.exporter.age_s > 0
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
    assert not bench.record().use.stale


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "\x00",
        '{"Data": 3, "entries": [1]}',
        "- a: &x [*x]",
        "[" * 100000,
        "null",
        "{}",
        '{"Data": null}',
        '{"Data": {}}',
    ],
)
async def test_nothing_is_published_as_free_while_allocations_cannot_be_read(bench, text):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
    before = bench.stored()
    bench.exporter = bench.fresh()
    for name in ("cpu", "devices", "config"):
        write(bench.root, f"kubelet/{name}", text)
    assert not await bench.round()
    assert bench.stored() == before
    assert "who holds what is unknown until" in bench.said[-1][1]
    async with PodResourcesServer(bench.settings.pod_resources, one_pod("GPU-3b")):
        assert await bench.round()
    assert bench.record().use.pods[0].containers[0].devices == (("gpu", ("GPU-3b",)),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"PodUID": "u2", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": 5},
        {"PodUID": "u2", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": None},
        {"PodUID": "u2", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": {"0": [None]}},
        {"PodUID": "u2", "ContainerName": "c", "ResourceName": GPU},
        {"PodUID": "u2", "ContainerName": "c", "DeviceIDs": {"0": ["GPU-2b"]}},
        {"ContainerName": "c", "ResourceName": GPU, "DeviceIDs": {"0": ["GPU-2b"]}},
        {},
        "u2",
    ],
)
async def test_a_file_with_an_unreadable_entry_is_ignored(bench, wrong):
    write(bench.root, "kubelet/cpu", json.dumps({"policyName": "none"}))
    entry = {"PodUID": "u1", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": {"0": ["GPU-1b"]}}
    write(bench.root, "kubelet/devices", json.dumps({"Data": {"PodDeviceEntries": [entry, wrong]}}))
    assert not await bench.round()
    write(bench.root, "kubelet/devices", json.dumps({"Data": {"PodDeviceEntries": [entry]}}))
    assert await bench.round()
    write(bench.root, "kubelet/devices", json.dumps({"Data": {"PodDeviceEntries": [wrong]}}))
    assert await bench.round()
    assert [held.uid for held in bench.record().use.pods] == ["u1"]


async def test_an_adapter_of_another_vendor_leaves_the_cards_theirs(bench):
    device(bench.root, "0000:06:00.0", own_bridge(0x06), 0, 0x1002, 0x030000, 0x1638)
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
    record = bench.record()
    assert record.stock["amd.com/gpu"].total == 1
    assert {card.vendor for card in record.cards} == {"NVIDIA"}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "node/node1/cpulist",
            "0-3",
            "the topology is not used: cpus: 0 is not valid: it lies in zone",
        ),
        ("node/node1/distance", "20", "node1/distance is not a distance for each of 2 zones"),
    ],
)
async def test_unreadable_zones_have_a_note(bench, name, content, sentence):
    write(bench.root, f"sys/devices/system/{name}", content)
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
    (message,) = [message for source, message in bench.said if source == "topology"]
    assert message.startswith(sentence)


async def test_a_configuration_that_breaks_counts_as_it_was(bench):
    async with PodResourcesServer(bench.settings.pod_resources):
        await bench.round()
        write(bench.root, "kubelet/config", "{")
        await bench.round()
        assert bench.record().topology.kubelet.policy == "restricted"
        assert bench.exporter.age_s > 0
        bench.configure(topologyManagerPolicy="best-effort")
        await bench.round()
        assert bench.record().topology.kubelet.policy == "best-effort"


async def test_a_machine_without_nvml_has_the_cards_of_its_driver(bench):
    bench.library.failing["nvmlInit"] = 9
    for number in (0x3B, 0x1B):
        text = f"Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-{number:02x}"
        write(bench.root, f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0/information", text)
    async with PodResourcesServer(bench.settings.pod_resources, listed()):
        assert await bench.round()
    assert [(card.uuid, card.index, card.zones) for card in bench.record().cards] == [
        ("GPU-1b", 0, (0,)),
        ("GPU-3b", 1, (0,)),
    ]


def allocatable(*held: bytes, cpus: list[int] = (), memory: tuple[bytes, ...] = ()) -> bytes:
    """An answer to GetAllocatableResources."""
    numbers = [(2, list(cpus))] if cpus else []
    return message(*((1, each) for each in held), *numbers, *((3, each) for each in memory))


def block(kind: str, size: int, *zones: int) -> bytes:
    near = message(*((1, message((1, zone))) for zone in zones))
    return message((1, kind), (2, size), (3, near))


async def test_what_pods_may_have_is_what_the_kubelet_says(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        socket.allocatable = allocatable(
            devices("example.com/fpga", "f1", zones=(1,)),
            devices("example.com/fpga", "f0"),
            devices("nvidia.com/gpu.shared", "GPU-1b::0", zones=(0,)),
            cpus=[*range(2, 8), *range(10, 16)],
            memory=(block("memory", 5 << 30, 0), block("memory", 6 << 30, 1), block("memory", 7 << 30, 0, 1)),
        )
        assert await bench.round()
        record = bench.record()
        assert record.topology.reserved_cpus == {0, 1, 8, 9}
        assert record.stock["cpu"].free == (3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15)
        assert [zone.memory.allocatable >> 30 for zone in record.topology.zones] == [5, 6]
        others = [each for each in record.topology.devices if each.resource != "example.com/nic"]
        assert [(each.resource, each.index, each.uuid, each.zones) for each in others] == [
            ("example.com/fpga", 0, "f0", ()),
            ("example.com/fpga", 1, "f1", (1,)),
        ]
        socket.allocatable = allocatable(cpus=list(range(16)))
        assert await bench.round(30)
        assert bench.record().topology.reserved_cpus == {0, 1, 8, 9}, "it is asked once in a while"
        assert await bench.round(31)
        assert bench.record().topology.reserved_cpus == frozenset()
    assert bench.said == []


async def test_a_kubelet_that_does_not_say_what_pods_may_have_changes_nothing(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        assert await bench.round()
        before = bench.stored()
        bench.exporter = bench.fresh()
        socket.allocatable = b"\xff" * 11
        assert await bench.round()
        assert bench.stored() == before
        assert {source for source, _ in bench.said} == {"allocatable"}
        assert bench.exporter.age_s == 0, "its holders are known"
        socket.allocatable = allocatable(cpus=[5])
        assert await bench.round()
        assert len(bench.record().topology.reserved_cpus) == 15


async def test_the_running_configuration_counts_and_the_file_until_it_is_known(bench):
    bench.settings = replace(bench.settings, configz=True)
    bench.exporter = bench.fresh()
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
        assert bench.record().topology.kubelet.policy == "restricted"
        assert {source for source, _ in bench.said} == {"configz"}
        bench.server.configz = {"kubeletconfig": {"topologyManagerPolicy": "single-numa-node"}}
        assert await bench.round()
        assert bench.record().topology.kubelet.policy == "single-numa-node"
        bench.server.configz = None
        assert await bench.round(61)
        assert bench.record().topology.kubelet.policy == "single-numa-node", "the last answer"
        bench.server.configz = {"other": 1}
        assert await bench.round()
        assert bench.record().topology.kubelet.policy == "single-numa-node"
        assert bench.said[-1] == ("configz", "there is no kubeletconfig in the answer")


BOTH = ("noderesourcetopology", "numatopology")


def amounts(bench: Bench) -> dict[str, list[str]]:
    """What is available in each zone, by resource, as the NodeResourceTopology has it."""
    document = bench.server.do(lambda: bench.server.rules.get(("noderesourcetopologies", "", "n1")))
    found: dict[str, list[str]] = {}
    for zone in document["zones"]:
        for resource in zone["resources"]:
            found.setdefault(resource["name"], []).append(resource["available"])
    return found


async def test_a_noderesourcetopology_is_kept_beside_the_numatopology(bench):
    bench.settings = replace(bench.settings, objects=BOTH)
    bench.exporter = bench.fresh()
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        for _ in range(3):
            assert await bench.round()
        assert bench.exporter.count.writes == 2
        assert (amounts(bench)[GPU], amounts(bench)["cpu"]) == (["3", "4"], ["4", "8"])
        socket.answer = listed(pod("p", container("c", devices(GPU, "GPU-1b", "GPU-3b"), cpus=[1])))
        assert await bench.round()
        assert bench.exporter.count.writes == 4
        assert (amounts(bench)[GPU], amounts(bench)["cpu"]) == (["2", "4"], ["5", "8"])
        key = ("noderesourcetopologies", "", "n1")
        bench.server.do(lambda: bench.server.rules.change(key, lambda item: {**item, "zones": []}))
        assert await bench.round(61)
        assert amounts(bench)[GPU] == ["2", "4"]
    stored = bench.server.do(lambda: bench.server.rules.get(key))
    assert [owner["kind"] for owner in stored["metadata"]["ownerReferences"]] == ["Node"]
    assert bench.said == []


async def test_an_object_that_cannot_be_written_does_not_keep_the_other_from_being_written(bench):
    bench.settings = replace(bench.settings, objects=BOTH)
    bench.exporter = bench.fresh()
    bench.server.canned.append(Canned("GET", "/noderesourcetopologies/n1", 403, times=2))
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        assert await bench.round()
        assert await bench.round()
        assert bench.writes() == 1
        assert {source for source, _ in bench.said} == {"api"}
        assert await bench.round()
    assert amounts(bench)[GPU] == ["3", "4"]


async def test_it_repeats_until_it_is_ended(bench):
    bench.exporter._pause = lambda _: asyncio.sleep(0)
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()) as socket:
        work = asyncio.create_task(bench.exporter.run())
        await until(lambda: len(socket.calls) > 3, "it looks again and again")
        bench.server.stop()
        tried = bench.exporter.count.rounds
        await until(lambda: bench.exporter.count.rounds > tried + 1, "it goes on without an API")
        bench.server.start()
        socket.answer = one_pod("GPU-3b")
        await until(lambda: bench.exporter.count.writes == 2, "what happened meanwhile is written")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert socket.calls.count("/v1.PodResourcesLister/GetAllocatableResources") == 1, "it changes seldom"


async def test_the_scheduler_has_the_machine_that_was_found(bench):
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        await bench.round()
    found = discover(MachineSettings(name="n1"), {}, NvmlCards(bench.library), root=bench.root).node
    node = await bench.api.get(NODES, "n1")
    machine = node_of(node, record=bench.record())
    kept = frozenset({Isolation.SHARED, Isolation.SOFT})  # nothing in a cluster says that it keeps more
    meant = (replace(card, isolations=kept) for card in found.gpus)
    assert machine.gpus == tuple(map(SHIPPED_FIGURES.complete, meant))
    found_topology, meant = machine.topology, found.topology
    assert (found_topology.zones, found_topology.distances, found_topology.cpus) == (
        meant.zones,
        meant.distances,
        meant.cpus,
    )
    assert sorted(found_topology.links, key=str) == sorted(meant.links, key=str)
    assert [replace(device, resource="nic") for device in found_topology.devices] == list(meant.devices)


def command(bench: Bench, kubeconfig: Path, *more: str) -> list[str]:
    files = {
        "--device-path": bench.root / "sys/devices/system",
        "--pod-resource-sock": bench.settings.pod_resources,
        "--cpu-manager-state": bench.settings.cpu_state,
        "--device-plugin-checkpoint": bench.settings.device_checkpoint,
        "--kubelet-conf": bench.settings.kubelet_config,
        "--kubeconfig": kubeconfig,
    }
    return [
        sys.executable,
        "-m",
        "ullage.cli.main",
        "exporter",
        *(f"{key}={path}" for key, path in files.items()),
        *more,
    ]


async def test_the_process_exports_and_ends_on_a_signal(bench, tmp_path):
    kubeconfig = write_kubeconfig(tmp_path, bench.server.url)
    text = "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1b"
    write(bench.root, "proc/driver/nvidia/gpus/0000:1b:00.0/information", text)
    environment = {**os.environ, "MY_NODE_NAME": "n1"}
    wanted = command(bench, kubeconfig, "--res-reserved=cpu=1500m,memory=1Gi", "--check-period=1s")
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        process = await asyncio.create_subprocess_exec(*wanted, env=environment)
        await until(lambda: bench.writes() > 0, "it writes")
        process.terminate()
        assert await process.wait() == 0
    assert bench.stored()["spec"]["resReserved"] == {"cpu": "1500m", "memory": "1073741824"}
    assert [held.name for held in bench.record().use.pods] == ["p"]


@pytest.mark.parametrize(
    ("words", "node", "says"),
    [
        ((), "", "MY_NODE_NAME"),
        (("--device-path=/host/sys",), "n1", "--device-path"),
        (("--res-reserved=gpu=1",), "n1", "--res-reserved"),
        (("--check-period=100ms",), "n1", "--check-period"),
        (("--enable-pod-resource=maybe",), "n1", "--enable-pod-resource"),
        (("--resource=nic",), "n1", "--resource"),
        (("--resource=nicc=example.com/nic",), "n1", "did you mean nic?"),
        (("--resource=nic=example",), "n1", "--resource: 'example' is not valid: write the name that pods request"),
        (("--card-resource=gpu",), "n1", "--card-resource: 'gpu' is not valid: write the name that pods request"),
        (("--objects=numatopology,pod",), "n1", "--objects"),
        (("--objects=",), "n1", "--objects"),
    ],
)
async def test_invalid_options_are_refused_at_once(monkeypatch, capsys, words, node, says):
    monkeypatch.setenv("MY_NODE_NAME", node)
    assert main(["exporter", *words]) == 2
    assert says in capsys.readouterr().err


async def test_data_that_the_server_drops_is_not_sent_repeatedly(bench, monkeypatch):
    rules = bench.server.rules

    def pruned(plural, namespace, body, create=rules.create):
        kept = {key: value for key, value in body["spec"].items() if key != "gpuDetail"}
        return create(plural, namespace, {**body, "spec": kept})

    monkeypatch.setattr(rules, "create", pruned)
    async with PodResourcesServer(bench.settings.pod_resources, one_pod()):
        for _ in range(10):
            assert await bench.round(61)
    assert "gpuDetail" not in bench.stored()["spec"]
    assert bench.writes() == 1
