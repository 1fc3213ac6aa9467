"""The resident memory of `ullage kube` that follows a large cluster: the base, each node, and each pod with cards.

Work: nodes of 8 cards with HAMi's register, and pods that hold a tenth of a card each, as a restart finds them: 500
workloads in 40 namespaces, with the labels, the owner and the annotations that such pods have. The objects are entered
as if they had been listed, in a process of its own with the compiled code. Pods of real clusters have longer documents.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
from pathlib import Path
from typing import Any, cast

from ullage.bootstrap import kube, warm
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.mirror.cards import register_readers
from ullage.wire.dialect import PLAIN_SETTINGS

_NODES, _PODS, _CARDS = 5_000, 50_000, 8
_WORKLOADS, _NAMESPACES = 500, 40
_AIM_MIB = 500
_GIB = 2**30
_BOUND_AT = 1_767_225_600


class _Nobody:
    """A candidate that does not lead."""

    epoch, holder, identity = None, "", "it"


def node(number: int) -> bytes:
    """A Node object with cards."""
    cards = [
        {"id": card(number, at), "index": at, "count": 10, "devmem": 81_920, "devcore": 100, "numa": at // 4}
        | {"type": "NVIDIA-NVIDIA A100-SXM4-80GB", "mode": "hami-core", "health": True}
        for at in range(_CARDS)
    ]
    name = f"node-{number:05}"
    metadata = {
        "name": name,
        "uid": uid(1, number),
        "resourceVersion": str(number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"},
        "annotations": {"hami.io/node-nvidia-register": json.dumps(cards)},
    }
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(10 * _CARDS)}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return json.dumps({"metadata": metadata, "spec": {}, "status": status}).encode()


def pod(number: int) -> bytes:
    """A Pod object on its node, with the annotations of its bind."""
    workload, at = number % _WORKLOADS, str(_BOUND_AT + number // 20)
    there, given = number % _NODES, card(number % _NODES, number // _NODES % _CARDS)
    basis = {"bytes": 8 * _GIB, "compute_ppm": 100_000, "had_gflops": 312_000, "had_bytes": 80 * _GIB}
    charge = {"compute": 31_200, "vram": 8 * _GIB, "isolation": "soft", "basis": basis}
    notes = {
        "ullage.io/gpu-ids": given,
        "ullage.io/allocation": json.dumps({"cards": [charge], "bound_at": float(at)}),
        "hami.io/vgpu-node": f"node-{there:05}",
        "hami.io/vgpu-devices-to-allocate": ";",
        "hami.io/vgpu-devices-allocated": f"{given},NVIDIA,8192,10:;",
        "hami.io/bind-phase": "success",
        "hami.io/vgpu-time": at,
        "hami.io/bind-time": at,
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"train-{workload}", "uid": uid(3, workload)}
    metadata = {
        "name": f"train-{workload}-{number:05}",
        "namespace": f"team-{workload % _NAMESPACES}",
        "uid": uid(2, number),
        "resourceVersion": str(number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": f"train-{workload}", "pod-template-hash": f"{workload:08x}"},
        "annotations": notes,
        "ownerReferences": [owner | {"controller": True}],
    }
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "10", "cpu": "1"}
    container = {"name": "main", "image": "train:1", "resources": {"limits": limits, "requests": limits}}
    spec = {"schedulerName": "ullage", "nodeName": f"node-{there:05}", "containers": [container]}
    return json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}).encode()


def card(node_number: int, at: int) -> str:
    return f"GPU-{node_number:08x}-{at:04x}-4111-8111-111111111111"


def uid(kind: int, number: int) -> str:
    return f"{number:08x}-{kind:04x}-4222-8222-222222222222"


def measure() -> None:
    """Print the memory of this process as it fills."""
    asyncio.run(warm.warm())
    gc.collect()
    settings = FrontSettings(readers=register_readers(PLAIN_SETTINGS.families))
    front = make_front(cast("Any", None), cast("Any", _Nobody()), Rules(), settings)
    base = resident_mib()
    for number in range(_NODES):
        front.nodes._put(NODES.read(node(number)))  # noqa: SLF001 - as if it had been listed
    front.mirror.recover()
    gc.collect()
    with_nodes = resident_mib()
    for number in range(_PODS):
        front.pods._put(PODS.read(pod(number)))  # noqa: SLF001 - as if it had been listed
    front.mirror.settle()
    gc.collect()
    found = resident_mib()
    assert len(front.cluster.allocator.fleet.ledger) == _PODS
    each_node, each_pod = (with_nodes - base) * 1024 / _NODES, (found - with_nodes) * 1024 / _PODS
    print(f"  {kube.__name__}: {base:.0f} MiB; {_NODES:,} nodes: {each_node:.1f} KiB each", end="; ")
    print(f"{_PODS:,} pods with cards: {each_pod:.1f} KiB each; together {found:.0f} MiB (aim {_AIM_MIB})")


def resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    """Print the results."""
    print("memory: what a process of ullage kube needs")
    child = multiprocessing.get_context("spawn").Process(target=measure)
    child.start()
    child.join()
