"""From a machine's files to its kubelet: what is found, written, read and planned is what a kubelet then does.

A machine is written as sysfs shows it, discovered, written as an exporter writes it (Numatopology), read back, and
planned on. A kubelet that knows the machine from its plans alone (`fake_kubelet.py`) is asked about each pod as it is
bound.

Equal always: whether a pod is admitted. Equal where it is: zones, CPUs, cards and other devices of all its containers.
Never compared, as it cannot be equal: the choice of a device plugin that prefers devices; groups of zones for memory
(here memory is managed under single-numa-node, for pods without init containers); pods that ask for a stricter policy
than the node's, which are refused though their kubelet would not; the reason for which a kubelet refuses.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from fake_kubelet import GIB, GPU, NIC, FakeKubelet, Grant, Hardware, Refused
from fake_nvml import FakeNvml
from recorded_topology import EIGHT, two_sockets, v100

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import NvmlCards
from ullage.model.claim import Request
from ullage.model.idset import format_ids
from ullage.model.node import Node
from ullage.model.zone_placement import ZonePlacement
from ullage.wire.pod import compose_request
from ullage.wire.topology.export import record_of
from ullage.wire.topology.kubelet_config import read_kubelet_config
from ullage.wire.topology.numatopology import read_numatopology
from ullage.wire.topology.numatopology_object import numatopology_object

pytestmark = pytest.mark.timeout(900)

FAR = {
    1: [[10]],
    2: [[10, 21], [21, 10]],
    3: [[10, 12, 21], [12, 10, 21], [21, 21, 10]],
    4: [[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]],
}

TWO_SOCKETS = Hardware(
    {0: (0, 1, 2, 3, 8, 9, 10, 11), 1: (4, 5, 6, 7, 12, 13, 14, 15)},
    {cpu: (cpu // 4 % 2, cpu % 4) for cpu in range(16)},
    FAR[2],
    [(bus, place // 4) for place, bus in enumerate(EIGHT)],
)
V100 = Hardware(
    {0: range(4), 1: range(4, 8)},
    {cpu: (cpu // 4, cpu) for cpu in range(8)},
    FAR[2],
    [(bus, place // 4) for place, bus in enumerate((0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A))],
)


# --- our side ---


def shuffled(chance: random.Random | None, document: object) -> object:
    """The same document with its keys in another order."""
    if isinstance(document, dict):
        entries = [(key, shuffled(chance, value)) for key, value in document.items()]
        if chance is not None:
            chance.shuffle(entries)
        return dict(entries)
    return [shuffled(chance, value) for value in document] if isinstance(document, list) else document


def the_node(root, library: FakeNvml, config: dict, chance: random.Random | None = None) -> Node:
    """A machine as a scheduler knows it from what its exporter wrote."""
    found = discover(MachineSettings(name="n1"), {}, NvmlCards(library), root=root).node
    settings, complaints = read_kubelet_config(config, found.memory_bytes)
    document = numatopology_object(record_of(found, settings, GPU, {"nic": NIC}))
    record, dropped = read_numatopology(json.loads(json.dumps(shuffled(chance, document))))
    assert (complaints, dropped) == ((), ())
    cards, cpus = list(record.cards), list(record.topology.cpus)
    if chance is not None:
        chance.shuffle(cards)
        chance.shuffle(cpus)
    topology = replace(record.topology, cpus=tuple(cpus))
    return replace(found, gpus=tuple(cards), topology=topology, reserved=record.reserved)


def books_of(node: Node) -> FleetAllocator:
    books = FleetAllocator(Fleet([node]), Rules())
    books.set_ready()
    return books


def planned(books: FleetAllocator, pod: dict) -> tuple[object, ...] | None:
    """Zones, CPUs, cards and other devices of a pod; None if it may not go there."""
    composed = compose_request(pod)
    found = books.alloc(Request(composed.uid, composed.requirement, composed.claim), 0.0)
    if isinstance(found, Refusal):
        return None
    placement = found.placement or ZonePlacement()
    return placement.zones, {*placement.cpus}, {*found.gpus}, {*dict(placement.devices).get(NIC, ())}


def granted(hardware: Hardware, grant: Grant) -> tuple[object, ...]:
    """The same of what a kubelet gave."""
    zone_of = {cpu: zone for zone, cpus in hardware.cpus.items() for cpu in cpus}
    places = {hardware.devices[resource][name][1] for resource, names in grant.devices.items() for name in names}
    zones = {zone_of[cpu] for cpu in grant.cpus} | places | {zone for zone, size in grant.memory.items() if size}
    return tuple(sorted(zones - {None})), grant.cpus, grant.devices.get(GPU, set()), grant.devices.get(NIC, set())


# --- pods and machines ---


def container(cpu: object, gpus: int = 0, nics: int = 0, memory: str = "1Gi", *, burstable: bool = False) -> dict:
    """A container; a burstable one limits devices only."""
    devices = {name: str(count) for name, count in ((GPU, gpus), (NIC, nics)) if count}
    if burstable:
        return {"resources": {"requests": {"cpu": str(cpu)}, "limits": devices}}
    return {"resources": {"limits": {"cpu": str(cpu), "memory": memory, **devices}}}


def pod_of(uid: str, apps: list[dict], before: list[dict] = (), policy: str | None = None) -> dict:  # type: ignore[assignment]  # a tuple is read only
    """A pod; containers are named by their places."""
    named = [{"name": f"c{place}", **one} for place, one in enumerate([*before, *apps])]
    keys = {} if policy is None else {"ullage.io/numa-policy": policy}
    return {
        "metadata": {
            "name": uid,
            "namespace": "team",
            "uid": uid,
            "labels": {"ullage.io/workload": "w"},
            "annotations": keys,
        },
        "spec": {"initContainers": named[: len(before)], "containers": named[len(before) :]},
    }


def some_pod(chance: random.Random, uid: str, config: dict) -> dict:
    """Guaranteed or burstable, whole CPUs or parts, with init containers and sidecars, with some cards."""
    burstable, memory = chance.random() < 0.25, config.get("memoryManagerPolicy") == "Static"

    def some_container(gpus: int) -> dict:
        cpu = chance.choice(("250m", "250m", "1500m", 1, 1, 2, 2, 3, 4, 6))
        nics = int(chance.random() < 0.15)
        return container(
            cpu, gpus, nics, f"{chance.choice((1, 2, 20, 40))}Gi" if memory else "1Gi", burstable=burstable
        )

    apps = [some_container(chance.choice((0, 1, 1, 2))) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    before = []
    for _ in range(0 if memory else chance.choice((0, 0, 1, 2))):
        sidecar = {"restartPolicy": "Always"} if chance.random() < 0.5 else {}
        before.append({**some_container(chance.choice((0, 0, 1, 2, 4))), **sidecar})
    if not any(GPU in one["resources"]["limits"] for one in (*apps, *before)):
        apps[0]["resources"]["limits"][GPU] = str(chance.choice((1, 2, 4, 5, 8)))
    weaker = chance.choice((None, None, "best-effort", config.get("topologyManagerPolicy", "none")))
    stricter = weaker == "best-effort" and config.get("topologyManagerPolicy", "none") == "none"
    return pod_of(uid, apps, before, None if stricter else weaker)


def some_hardware(chance: random.Random) -> Hardware:
    """Sockets with one zone or several, zones with several sockets; threads beside each other or far apart."""
    count = chance.choice((1, 2, 2, 2, 3, 4, 4))
    ids = sorted(chance.sample(range(6), count)) if chance.random() < 0.2 else list(range(count))
    threads, each = chance.choice((1, 2, 2)), chance.choice((2, 4, 6, 8, 9))
    sockets = chance.choice([number for number in (1, 2, count, 2 * count) if number in (count, 1) or each % 2 == 0])
    of: dict[int, list[int]] = {zone: [] for zone in ids}
    cores: dict[int, tuple[int, int]] = {}
    seats = [(place, core) for place in range(count) for core in range(each)]
    order = [(seat, thread) for thread in range(threads) for seat in seats]
    if chance.random() < 0.5:
        order = [(seat, thread) for seat in seats for thread in range(threads)]
    bare = chance.random() < 0.1 and count > 1
    for cpu, ((place, core), _) in enumerate(order):
        if bare and place == count - 1:
            place = 0  # noqa: PLW2901 - the last zone has no CPUs
        socket = place * sockets // count if sockets <= count else 2 * place + core % 2
        of[ids[place]].append(cpu)
        cores[cpu] = socket, seats.index(order[cpu][0])
    gpus = [(bus, chance.choice((*ids, *ids, *ids, None))) for bus in EIGHT[: chance.choice((4, 8, 8))]]
    gpus.sort(key=lambda gpu: gpu[1] if gpu[1] is not None and chance.random() < 0.8 else 9)
    gpus = [(bus, zone) for bus, (_, zone) in zip(sorted(bus for bus, _ in gpus), gpus, strict=True)]
    nics = [(bus, chance.choice((*ids, None))) for bus in (0x11, 0x91)[: chance.choice((0, 1, 2))]]
    return Hardware({zone: sorted(cpus) for zone, cpus in of.items()}, cores, FAR[count], gpus, nics)


def some_config(chance: random.Random, hardware: Hardware) -> dict:
    """A kubelet's configuration, as its file has it."""
    policy = chance.choice(("none", "best-effort", "restricted", "single-numa-node"))
    config: dict = {"topologyManagerPolicy": policy, "topologyManagerScope": chance.choice(("container", "pod"))}
    if chance.random() < 0.5 and policy in ("best-effort", "restricted"):
        config["topologyManagerPolicyOptions"] = {"prefer-closest-numa-nodes": "true"}
    if chance.random() < 0.8:
        config["cpuManagerPolicy"] = "static"
        options = {name: "true" for name in ("full-pcpus-only", "strict-cpu-reservation") if chance.random() < 0.3}
        config["cpuManagerPolicyOptions"] = options
    if chance.random() < 0.5:
        config["kubeReserved"] = {"cpu": chance.choice(("1", "1", "2", "0.5")), "memory": "1Gi"}
    elif chance.random() < 0.5:
        config["reservedSystemCPUs"] = format_ids(chance.sample(sorted(hardware.cores), chance.choice((1, 2))))
    if policy == "single-numa-node" and config["topologyManagerScope"] == "container" and chance.random() < 0.5:
        config["memoryManagerPolicy"] = "Static"
        config["reservedMemory"] = [{"numaNode": hardware.zones[0], "limits": {"memory": "2Gi"}}]
    return config


# --- the contract ---


def compare(root, hardware: Hardware, library: FakeNvml, config: dict, pods: list[dict]) -> Counter[str]:
    """Ask both sides about each pod in turn; how many were admitted, and how many refused for which reason."""
    books, kubelet = books_of(the_node(root, library, config)), FakeKubelet(hardware, config)
    seen: Counter[str] = Counter()
    for pod in pods:
        ours = planned(books, pod)
        try:
            theirs = granted(hardware, kubelet.admit(pod))
            seen["admitted"] += 1
        except Refused as refused:
            theirs = None
            seen[str(refused)] += 1
        assert ours == theirs, (config, hardware, pod)
    return seen


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize(("write", "hardware"), [(two_sockets, TWO_SOCKETS), (v100, V100)])
def test_recorded_machines(tmp_path, write, hardware, policy, scope):
    config = {"topologyManagerPolicy": policy, "topologyManagerScope": scope, "cpuManagerPolicy": "static"}
    config |= {"kubeReserved": {"cpu": "1", "memory": "1Gi"}}
    pods = [
        pod_of("two-cards-and-two-cpus", [container(2, 2)]),
        pod_of("cards-alone", [container("100m", 1, burstable=True)]),
        pod_of("half-a-cpu", [container("500m", 1)]),
        pod_of("init-lends-its-cards", [container(1, 2)], [container(1, 2)]),
        pod_of("wide", [container(1, 6)]),
        pod_of("two-containers", [container(1, 1), container(1, 1)]),
        pod_of("sidecar", [container(1, 1)], [{**container(1, 1), "restartPolicy": "Always"}]),
        pod_of("the-rest", [container(1, 1)]),
    ]
    seen = compare(tmp_path, hardware, write(tmp_path), config, pods)
    assert seen["admitted"] >= 3
    assert sum(seen.values()) > seen["admitted"]


def test_a_zone_without_cpus_is_in_no_hint_for_cpus(tmp_path):
    gpus = [(bus, place // 2) for place, bus in enumerate(EIGHT[:4])]
    cores = {cpu: (0, cpu) for cpu in range(8)}
    hardware = Hardware({0: [], 1: [0, 1, 2, 3], 2: [4, 5, 6, 7]}, cores, FAR[3], gpus)
    library = FakeNvml(*hardware.write(tmp_path))
    config = {"topologyManagerPolicy": "best-effort", "cpuManagerPolicy": "static"}
    config |= {"reservedSystemCPUs": "7"}
    pods = [pod_of("one", [container(1, 1)]), pod_of("two", [container(1, 2)])]
    assert compare(tmp_path, hardware, library, config, pods) == {"admitted": 2}


@pytest.mark.parametrize("seed", range(60))
def test_random_machines_and_pods(tmp_path, seed):
    chance = random.Random(seed)
    hardware = some_hardware(chance)
    library = FakeNvml(*hardware.write(tmp_path))
    for _ in range(4):
        config = some_config(chance, hardware)
        compare(tmp_path, hardware, library, config, [some_pod(chance, f"p{n}", config) for n in range(8)])


def nested(zones: int, sockets: int, threads: int) -> Hardware:
    """Six cores for each zone or socket, whichever are more; the others hold several of them each."""
    groups = max(zones, sockets)
    cores = {
        cpu: (cpu % (6 * groups) // 6 * sockets // groups, cpu % (6 * groups)) for cpu in range(6 * groups * threads)
    }
    cpus = {zone: [cpu for cpu in cores if cpu % (6 * groups) // 6 * zones // groups == zone] for zone in range(zones)}
    return Hardware(cpus, cores, FAR[zones], [(bus, place * zones // 8) for place, bus in enumerate(EIGHT)])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("zones", "sockets"), [(4, 2), (2, 4), (4, 1), (1, 2), (2, 2)])
def test_cpus_beyond_one_zone(tmp_path, zones, sockets, whole):
    hardware, chance = nested(zones, sockets, 2), random.Random(10 * zones + sockets)
    library, seen = FakeNvml(*hardware.write(tmp_path)), Counter[str]()
    for _ in range(12):
        config = {"cpuManagerPolicy": "static", "topologyManagerPolicy": chance.choice(("none", "best-effort"))}
        config |= {"reservedSystemCPUs": format_ids(chance.sample(range(12), chance.choice((1, 2, 3))))}
        if whole:
            config["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true"}
        sizes = [
            chance.choice((2, 4, 6, 8, 10, 12, 14, 24) if whole else (1, 2, 3, 5, 7, 12, 13, 25)) for _ in range(8)
        ]
        first = min(sizes[0], 8)  # something is left for the others
        seen += compare(
            tmp_path,
            hardware,
            library,
            config,
            [pod_of(f"p{n}", [container(size, 1)]) for n, size in enumerate([first, *sizes])],
        )
    assert seen["admitted"] > 12
    assert seen["SMTAlignmentError"] > 0 or not whole


def test_all_that_is_compared_happens(tmp_path):
    chance, seen = random.Random(1), Counter[str]()
    for number in range(40):
        hardware, root = some_hardware(chance), tmp_path / str(number)
        library = FakeNvml(*hardware.write(root))
        config = some_config(chance, hardware)
        seen += compare(root, hardware, library, config, [some_pod(chance, f"p{n}", config) for n in range(8)])
    for reason in ("admitted", "TopologyAffinityError", "SMTAlignmentError", f"OutOf{GPU}"):
        assert seen[reason] > 1, seen


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_reports_does_not_matter(tmp_path, seed):
    chance = random.Random(500 + seed)
    hardware = some_hardware(chance)
    library = FakeNvml(*hardware.write(tmp_path))
    config = some_config(chance, hardware)
    pods = [some_pod(chance, f"p{n}", config) for n in range(8)]
    plain = books_of(the_node(tmp_path, library, config))
    mixed = books_of(the_node(tmp_path, library, config, random.Random(seed)))
    for pod in pods:
        assert planned(mixed, shuffled(random.Random(seed), pod)) == planned(plain, pod)


def test_less_memory_than_is_reserved(tmp_path):
    library = FakeNvml(*TWO_SOCKETS.write(tmp_path))
    config = {"topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static"}
    config |= {"reservedMemory": [{"numaNode": 1, "limits": {"memory": "2Gi"}}]}
    rooms = [zone.memory for zone in the_node(tmp_path, library, config).topology.zones]
    assert [(room.total // GIB, room.allocatable // GIB) for room in rooms] == [(64, 64), (64, 62)]
