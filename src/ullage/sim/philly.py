"""Jobs of Microsoft's Philly cluster, as published with Sia (Jeon et al., USENIX ATC'19)."""

from __future__ import annotations

from datetime import UTC, datetime

from ullage.model.request import ResourceRequirement
from ullage.sim.rows import Row
from ullage.sim.trace import TraceTask

TASK_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")

_CARDS_PER_NODE = 8
_MOST = 1 << 16


def read_task(row: Row) -> TraceTask:
    """Return the task in a line of the list: equal units of at most 8 whole cards, with the virtual cluster as queue.

    The trace has no cores and memory, so none are requested. The arrival is in seconds since 1970.
    """
    try:
        arrival = datetime.fromisoformat(row.text("timestamp")).replace(tzinfo=UTC)
    except ValueError:
        raise row.bad("timestamp", "write a time such as 2017-10-09 07:01:55") from None
    cards = row.count("num_gpus", maximum=_MOST)
    if not cards:
        raise row.bad("num_gpus", "1 card or more is needed")
    duration_s = row.seconds("duration")
    if duration_s is None:
        raise row.bad("duration", "write seconds such as 66.0")
    each = max(n for n in range(1, _CARDS_PER_NODE + 1) if cards % n == 0)
    asked = ResourceRequirement(gpu_count=each)
    return TraceTask(
        str(row.line), asked, arrival.timestamp(), duration_s, queue=row.text("cluster"), units=cards // each
    )
