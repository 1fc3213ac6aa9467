"""The node and pod lists of Alibaba's cluster-trace-gpu-v2023 (Weng et al., USENIX ATC'23)."""

from __future__ import annotations

from ullage.model.node import Node
from ullage.model.part import ANY_CARD, CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import MAX_CARDS, ResourceRequirement
from ullage.model.resources import MILLI
from ullage.sim.cards import cards_of
from ullage.sim.rows import Row
from ullage.sim.trace import UNLIMITED, TraceTask

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
TASK_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

_MIB = 1 << 20
_MAX_CPU = 1 << 40


def read_node(row: Row) -> Node:
    """Return the node in a line of a node list."""
    name = row.text("sn")
    return Node(
        name,
        row.count("cpu_milli", maximum=_MAX_CPU),
        row.count("memory_mib", maximum=_MAX_CPU) * _MIB,
        cards_of(name, row.text("model", "") or None, row.count("gpu", maximum=MAX_CARDS)),
        max_executors=UNLIMITED,
    )


def read_task(row: Row) -> TraceTask:
    """Return the task in a line of a pod list. A share is a fraction of the compute and of the vram of a card."""
    count = row.count("num_gpu", maximum=MAX_CARDS)
    share = row.count("gpu_milli", maximum=MILLI)
    if count and not share:
        raise row.bad("gpu_milli", f"a pod with cards takes 1 to {MILLI} thousandths of each")
    models = tuple(model.strip() for model in row.text("gpu_spec", "").split("|") if model.strip())
    part, cards = None, ANY_CARD
    if count:
        if share < MILLI:
            part = Part(compute_ppm=share * (PPM // MILLI), vram_ppm=share * (PPM // MILLI))
        if models or part:
            cards = CardSelector(models, isolation=Isolation.SOFT if part else Isolation.SHARED)
    asked = ResourceRequirement(
        row.count("cpu_milli", maximum=_MAX_CPU),
        row.count("memory_mib", maximum=_MAX_CPU) * _MIB,
        count,
        part,
        cards=cards,
    )
    return TraceTask(row.text("name"), asked, row.seconds("creation_time") or 0.0, _duration_s(row))


def _duration_s(row: Row) -> float | None:
    """Return the seconds from start to end; without a start, from the creation."""
    ended = row.seconds("deletion_time")
    started = row.seconds("scheduled_time")
    started = row.seconds("creation_time") if started is None else started
    if ended is None or started is None:
        return None
    if ended < started:
        raise row.bad("deletion_time", f"a pod that started at {started:g} cannot end before that")
    return ended - started
