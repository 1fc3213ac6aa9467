"""What sessions of a queue get if they state nothing, and the most that they may state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import format_bytes
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec

CODE = "above-queue-maximum"


def defaults_of(queues: Mapping[str, Queue], name: str) -> ResourceRequirement | None:
    """Return the requirement of a session that states none: that of its queue, or of the nearest one above it."""
    stated = (queue.bounds.default_resreq for queue in upwards(queues, name))
    return next((each for each in stated if each is not None), None)


def within_bounds(queues: Mapping[str, Queue], spec: SessionSpec, own_timeout_s: float | None) -> SessionSpec:
    """Return the specification of a session with the time limit of its queue, if it and its application state none.

    `own_timeout_s` is the limit of its application, in seconds. A queue with a maximum and no default has its maximum
    as the default.

    Raises:
        InvalidRequest: the session is above a maximum (`above-queue-maximum`); field, value, limit and fix are named.

    """
    above = tuple(upwards(queues, spec.queue))
    for queue in above:
        _check_size(queue, spec.resreq)
    stated = own_timeout_s if spec.task_timeout_s is None else spec.task_timeout_s
    timeout = stated
    if timeout is None:
        timeout = next((each for queue in above if (each := queue.bounds.default_time_s) is not None), None)
    for queue in above:
        most = queue.bounds.max_time_s
        if most is not None and stated is not None and stated > most:
            allowed = f"queue {queue.name} allows a task at most {most:g} s (max_time_s)"
            raise _refused("task_timeout_s", f"{stated:g}", f"{allowed}; ask for less, or use another queue")
        if most is not None:
            timeout = most if timeout is None else min(timeout, most)
    bounded = any(queue.bounds.max_time_s is not None for queue in above)
    # Without a maximum the limit of the application stays with the application, where it may change.
    return replace(spec, task_timeout_s=timeout) if stated is None or bounded else spec


def _check_size(queue: Queue, asked: ResourceRequirement) -> None:
    limit = queue.bounds.max_resreq
    exceeded = limit.exceeded(asked.resources)
    allowed = f"queue {queue.name} allows an executor at most {queue.bounds.max_resreq} (max_resreq)"
    if exceeded is not None:
        raise _refused("resreq", str(asked), f"{allowed}; ask for less {exceeded}, or use another queue")
    if limit.memory_bytes is not None and not asked.memory_bytes:
        fix = f"{allowed}, and mem=0 is no limit; write mem={format_bytes(limit.memory_bytes)} or less"
        raise _refused("resreq", str(asked), fix)


def _refused(field: str, value: str, fix: str) -> InvalidRequest:
    return InvalidRequest(invalid(field, value, fix).message, code=CODE, field=field)


def upwards(queues: Mapping[str, Queue], name: str) -> Iterator[Queue]:
    """Yield a queue, then those above it."""
    queue = queues.get(name)
    while queue is not None:
        yield queue
        queue = queues.get(queue.parent)
