"""What a session can never have: a minimum above all nodes or a limit; and which limit stops it now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.core.sharing.reach import Reach
from ullage.core.sharing.world import Demand, World
from ullage.core.verdict.mismatch import mismatch_text
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.counted import counted
from ullage.model.quantity import format_bytes
from ullage.model.queue import Limit, Queue
from ullage.model.queue_bounds import upwards
from ullage.model.rejection import Code
from ullage.model.resources import MILLI, Resources, show_milli


def unreachable(reach: Reach, demand: Demand) -> str | None:
    """Return why a session never has its minimum, even alone on the nodes that are here; None if it may.

    Of a batch that is never placed the session has the reason (`NEVER_PLACED`).
    """
    whole = replace(demand, batch_size=max(demand.floor, demand.batch_size))
    if reach.never(demand) is not None or reach.never(whole) is None:
        return None
    limit = reach.limit(whole)
    if limit is not None:
        return f"min_instances {demand.min_instances} never fits, even alone: {mismatch_text([limit])}"
    most = reach.room(demand) // demand.batch_size * demand.batch_size
    text = f"min_instances {demand.min_instances} is more than the nodes in service hold, even empty"
    return f"{text}: {counted(most, 'executor')}"


def limit_text(world: World, demand: Demand, code: Code) -> str:
    """Return which limit stops one more batch, what the batch needs, and who holds how much; empty for other codes."""
    if code is Code.APPLICATION_LIMIT:
        most = counted(demand.application_max, "executor")
        return f"{MEANINGS[code]}: {demand.application} may have {most}, and it needs {demand.batch_size} more"
    if code is not Code.QUEUE_LIMIT:
        return ""
    queues = {queue.name: queue for queue in world.queues}
    of = {each.session: each for each in world.demands}
    unit = world.fleet.resources(demand.requirement) * demand.batch_size
    for queue in upwards(queues, demand.queue):
        held: dict[str, Resources] = {}
        for executor in world.executors:
            known = of.get(executor.session or "")
            if known is not None and queue in upwards(queues, known.queue):
                more = world.fleet.resources(executor.requirement)
                held[known.session] = held.get(known.session, Resources()) + more
        total, limit = sum(held.values(), Resources()), queue.limit
        for field, label in (("cpu_milli", "cpu"), ("memory_bytes", "mem"), ("gpu_milli", "gpu")):
            most, used, asked = getattr(limit, field), getattr(total, field), getattr(unit, field)
            if most is not None and used + asked > most:
                show = format_bytes if field == "memory_bytes" else show_milli
                by = ", ".join(f"{who} {show(getattr(has, field))}" for who, has in held.items() if getattr(has, field))
                text = f"{MEANINGS[code]}: {queue.name} may hold {label}={show(most)} and holds {show(used)}"
                return f"{text} ({by}); it needs {show(asked)} more" if by else f"{text}; it needs {show(asked)}"
    return ""


def within_limit(reach: Reach, queues: Iterable[Queue], demand: Demand) -> tuple[str, ...]:
    """Return what would help a session that a limit never allows: a smaller request, or a higher limit."""
    if demand.application_max < demand.batch_size:
        return (f"allow application {demand.application} max_instances of {demand.batch_size}",)
    queues = list(queues)
    above = list(upwards({queue.name: queue for queue in queues}, demand.queue))
    smaller = cut_to_limits(queues, demand)
    found = [f"{smaller.requirement} is within the limits"] if smaller and reach.never(smaller) is None else []
    whole = reach.unit(demand) * demand.batch_size
    for queue in above:
        if queue.limit.broken_by(whole) != Limit():
            enough = queue.limit.part_of(whole.max(Resources(*(amount or 0 for amount in queue.limit))))
            found.append(f"raise the limit: ullage queues set {queue.name} --limit {enough}")
    return tuple(found)


def cut_to_limits(queues: Iterable[Queue], demand: Demand) -> Demand | None:
    """Return the demand with executors of whole cores and cards that the limits allow; None if nothing is left."""
    asked = demand.requirement
    most = asked.resources
    for queue in upwards({queue.name: queue for queue in queues}, demand.queue):
        bounds = (None if limit is None else limit // demand.batch_size for limit in queue.limit)
        most = Resources(*(has if limit is None else min(has, limit) for has, limit in zip(most, bounds, strict=True)))
    cards = min(asked.gpu_count, most.gpu_milli // MILLI) if asked.whole else asked.gpu_count
    cut = (most.cpu_milli, most.memory_bytes, cards)
    if any(
        had and not left for had, left in zip((asked.cpu_milli, asked.memory_bytes, asked.gpu_count), cut, strict=True)
    ):
        return None
    requirement = replace(asked, cpu_milli=most.cpu_milli, memory_bytes=most.memory_bytes, gpu_count=cards)
    return replace(demand, requirement=requirement)
