"""A Node of the API as a machine for bindings: its cards and how each is shared.

The cards are those of the books. A node with unified memory has one card in their place, with three quarters of that
memory.
"""

from __future__ import annotations

from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.model.compute import NVIDIA, ComputeCard, ComputeNode, HostRoom
from ullage.model.compute_result import Problem
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation
from ullage.wire.document import Document
from ullage.wire.gpubinding import share_mode
from ullage.wire.kubernetes_quantity import parse_quantity

TYPE_LABEL = "gpu.bytetrade.io/type"
ONE_MEMORY = frozenset({"nvidia-gb10", "apple-m", "moore-soc", "amd", "intel"})
"""Types of accelerators without memory of their own."""

_DISK = "ephemeral-storage"


def compute_node(found: NodeObject, node: Node) -> tuple[ComputeNode, tuple[Problem, ...]]:
    """Return a machine of the books as if nothing on it was in use, and what of it could not be parsed."""
    problems = [Problem(node.name, node.topology_note)] if node.topology_note else []
    amounts = found.status.allocatable or found.status.capacity or {}
    try:
        disk = parse_quantity(amounts.get(_DISK, "0"), _DISK)
    except InvalidRequest as error:
        problems.append(Problem(node.name, error.message))
        disk = 0
    annotations = found.metadata.annotations or {}
    accelerator = node.labels.get(TYPE_LABEL) or NVIDIA
    cards = [_card(node, gpu, accelerator, annotations) for gpu in node.gpus]
    if accelerator in ONE_MEMORY:
        cards = [_shared_memory(node, accelerator, annotations)]
    capacity = HostRoom(node.cpu_milli, node.memory_bytes, disk)
    ready = found.ready and not node.cordoned
    return ComputeNode(node.name, tuple(cards), capacity, ready=ready, cordoned=node.cordoned), tuple(problems)


def _card(node: Node, gpu: Gpu, accelerator: str, annotations: Document) -> ComputeCard:
    """Return a card. Applications cannot be bound to one that is partitioned or takes no new work by the books."""
    partitioned = gpu.isolation is Isolation.PARTITIONED
    return ComputeCard(
        node.name,
        gpu.uuid,
        accelerator,
        gpu.vram_bytes or 0,
        share=share_mode(annotations, gpu.uuid, accelerator),
        model=gpu.model or "",
        index=gpu.index,
        zone=gpu.zones[0] if gpu.zones else 0,
        healthy=gpu.healthy,
        cordoned=(gpu.healthy and not gpu.usable) or partitioned,
        partitioned=partitioned,
    )


def _shared_memory(node: Node, accelerator: str, annotations: Document) -> ComputeCard:
    """Return the card that stands for a node with unified memory."""
    name = f"{node.name}-{accelerator}-0"
    return ComputeCard(
        node.name,
        name,
        accelerator,
        node.memory_bytes * 3 // 4,
        share=share_mode(annotations, name, accelerator),
        model=(node.gpus[0].model or "") if node.gpus else "",
        represents=tuple(gpu.uuid for gpu in node.gpus),
    )
