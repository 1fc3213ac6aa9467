"""What a session can never have: more than all nodes hold, or more than a limit of its queue or application."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import Leaves
from ullage.core.sharing.shares import ShareTree
from ullage.core.sharing.world import Demand, World
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.counted import counted
from ullage.model.quantity import format_bytes
from ullage.model.queue import Queue
from ullage.model.rejection import Code
from ullage.model.resources import Resources, show_milli


def unreachable(world: World, policy: Policy, demand: Demand) -> str | None:
    """Return why a session never has its minimum, or one batch, even alone on the nodes that are here; else None.

    A batch that is larger than all nodes together has a reason of its own (`Code.TOO_LARGE`).
    """
    whole = replace(demand, batch_size=max(demand.floor, demand.batch_size))
    most = int(Placer(world.fleet.emptied(), policy).room(demand.requirement).sum())
    if demand.batch_size <= most < demand.floor:
        text = f"min_instances {demand.min_instances} is more than the nodes in service hold, even empty"
        return f"{text}: {counted(most // demand.batch_size * demand.batch_size, 'executor')}"
    leaf = Leaves(world.fleet).of(whole)
    most_of = {demand.application: demand.application_max}
    tree = ShareTree(world.fleet.total, world.queues, [leaf], application_limits=most_of)
    code = tree.over_limit(leaf)
    if code is None:
        return None
    wanted = f"min_instances {demand.min_instances}" if demand.floor > demand.batch_size else "the session"
    return f"{wanted} never fits, even alone: {limit_text(replace(world, executors=()), whole, code)}"


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
    name = demand.queue
    while name in queues:
        held: dict[str, Resources] = {}
        for executor in world.executors:
            known = of.get(executor.session or "")
            if known is not None and name in _line(queues, known.queue):
                more = world.fleet.resources(executor.requirement)
                held[known.session] = held.get(known.session, Resources()) + more
        total, limit = sum(held.values(), Resources()), queues[name].limit
        for field, label in (("cpu_milli", "cpu"), ("memory_bytes", "mem"), ("gpu_milli", "gpu")):
            most, used, asked = getattr(limit, field), getattr(total, field), getattr(unit, field)
            if most is not None and used + asked > most:
                show = format_bytes if field == "memory_bytes" else show_milli
                by = ", ".join(f"{who} {show(getattr(has, field))}" for who, has in held.items() if getattr(has, field))
                text = f"{MEANINGS[code]}: {name} may hold {label}={show(most)} and holds {show(used)}"
                return f"{text} ({by}); it needs {show(asked)} more" if by else f"{text}; it needs {show(asked)}"
        name = queues[name].parent
    return ""


def _line(queues: dict[str, Queue], name: str) -> Iterator[str]:
    while name in queues:
        yield name
        name = queues[name].parent
