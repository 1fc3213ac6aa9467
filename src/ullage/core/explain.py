"""Why a session has what it has: from a cycle on the present facts, never from a second opinion.

The one dominant reason, its numbers per node, who holds what is missing, and the nearest change that
would start the next unit now. Suggestions are tried on a draft before they are made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.core.cycle import schedule
from ullage.core.entitlement import entitlement, leaf_of, place_unit
from ullage.core.fleet import Fleet
from ullage.core.placement import Placer
from ullage.core.plan import Plan
from ullage.core.policy import Policy
from ullage.core.sentences import CURES, summary
from ullage.core.shares import ShareTree, dominant_share
from ullage.core.world import Demand, Phase, World
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that holds some of what is missing."""

    session: str
    executors: int
    deserved: int
    amount: Resources


@dataclass(frozen=True, slots=True)
class Reasons:
    """The answer to why: counts are executors, `share` a fraction of the fleet, `position` from 1."""

    session: str
    code: Code
    cure: Cure | None
    summary: str
    want: int = 0
    held: int = 0
    deserved: int = 0
    share: float = 0.0
    position: int | None = None
    rejections: tuple[Rejection, ...] = ()
    holders: tuple[Holder, ...] = ()
    suggestions: tuple[str, ...] = ()


def explain(
    world: World,
    policy: Policy,
    now: float,
    session: str,
    *,
    open_: bool = True,
    deserved: dict[str, int] | None = None,
) -> Reasons:
    """Reasons for one session; a closed one has none but that. `deserved` as for `schedule`."""
    demand = next((demand for demand in world.demands if demand.session == session), None)
    if demand is None or not open_:
        return Reasons(session, Code.CLOSED, None, summary(Code.CLOSED, None))
    plan = schedule(world, policy, now, deserved=deserved)
    held = world.held()
    code = _code(demand, plan, [executor.phase for executor in held.get(session, ())])
    rejections = reject(world.fleet, demand.requirement) if code in CURES else ()
    mine = held.get(session, [])
    return Reasons(
        session=session,
        code=code,
        cure=CURES.get(code),
        summary=summary(code, demand, rejections, plan.deserved.get(session, 0), len(mine)),
        want=demand.want,
        held=len(mine),
        deserved=plan.deserved.get(session, 0),
        share=dominant_share(demand.requirement.resources * len(mine), world.fleet.total),
        position=_position(world, policy, plan, session),
        rejections=rejections,
        holders=_holders(world, demand, plan, rejections) if code in _OTHERS_COULD_HELP else (),
        suggestions=suggest(world, policy, demand, code, plan.deserved.get(session, 0)),
    )


_OTHERS_COULD_HELP = {code for code, cure in CURES.items() if cure is Cure.CAPACITY} - {Code.BACKOFF}


def reject(fleet: Fleet, asked: ResourceRequirement) -> tuple[Rejection, ...]:
    """Every node that has no room for one executor, and each dimension in which it falls short."""
    found: list[Rejection] = []
    for row, node in enumerate(fleet.nodes):
        if not node.schedulable:
            code = Code.CORDONED if node.cordoned else Code.NOT_READY
            found.append(Rejection(code, Cure.NODE_CHANGE, node=node.name))
            continue
        checks = (
            (Code.GPU, asked.gpu_count, int(fleet.gpu_free[row]), int(fleet.gpu_total[row])),
            (Code.CPU, asked.cpu_milli, int(fleet.cpu_free[row]), int(fleet.cpu_total[row])),
            (Code.MEMORY, asked.memory_bytes, int(fleet.memory_free[row]), int(fleet.memory_total[row])),
            (Code.SLOTS, 1, int(fleet.slots_free[row]), int(fleet.slots_total[row])),
        )
        for code, needed, free, total in checks:
            if needed > max(free, 0) and needed:
                cure = Cure.CAPACITY if needed <= total else Cure.NODE_CHANGE
                had = max(free, 0) if needed <= total else total
                found.append(Rejection(code, cure, needed, had, node.name))
    return tuple(found)


def _code(demand: Demand, plan: Plan, phases: list[Phase]) -> Code:
    waiting = plan.waiting.get(demand.session)
    if waiting is not None:
        return waiting
    work = demand.pending + demand.running
    if not work:
        return Code.NOTHING_PENDING
    if not phases and demand.pending < demand.batch_size:
        return Code.GANG_INCOMPLETE
    if any(phase is Phase.STARTING for phase in phases) or not phases:
        return Code.STARTING
    if demand.max_instances is not None and work > demand.want:
        return Code.MAX_INSTANCES
    return Code.GANG_INCOMPLETE if 0 < demand.pending < demand.batch_size else Code.RUNNING


def _position(world: World, policy: Policy, plan: Plan, session: str) -> int | None:
    """Place in the line of those that wait: priority, then smallest share, then age."""
    held = world.held()
    leaves = [leaf_of(d, 0, len(held.get(d.session, ())) // d.batch_size) for d in world.demands]
    tree = ShareTree(world.fleet.total, world.queues, leaves, policy.order)
    shares = {leaf.session: tree.leaf_share(leaf) for leaf in tree.leaves}
    waiting = [demand for demand in world.demands if demand.session in plan.waiting]
    waiting.sort(key=lambda d: (-d.priority, shares[d.session], d.number, d.session))
    names = [demand.session for demand in waiting]
    return names.index(session) + 1 if session in names else None


_MISSING = {Code.CPU: Resources(cpu_milli=1), Code.MEMORY: Resources(memory_bytes=1), Code.GPU: Resources(gpu_milli=1)}


def _holders(world: World, demand: Demand, plan: Plan, rejections: tuple[Rejection, ...]) -> tuple[Holder, ...]:
    """Other sessions that hold what is missing on the nodes that could run this request, the largest first."""
    fleet = world.fleet
    missing = sum((_MISSING.get(code, Resources()) for code in {r.code for r in rejections}), Resources())
    useful = Placer(fleet.emptied(), Policy()).room(demand.requirement) > 0
    by_session: dict[str, list[Resources]] = {}
    for executor in world.executors:
        allocation = fleet.ledger.get(executor.id)
        row = fleet.row_of.get(allocation.node) if allocation else None
        other = executor.session is not None and executor.session != demand.session
        if other and row is not None and useful[row]:
            by_session.setdefault(executor.session or "", []).append(executor.requirement.resources)
    holders = [
        Holder(session, len(amounts), plan.deserved.get(session, 0), sum(amounts, Resources()))
        for session, amounts in by_session.items()
        if not missing or sum(amounts, Resources()).min(missing)
    ]
    return tuple(sorted(holders, key=lambda h: (-h.amount.gpu_milli, -h.amount.cpu_milli, h.session))[:10])


def suggest(world: World, policy: Policy, demand: Demand, code: Code, deserved: int) -> tuple[str, ...]:
    """Nearest changes, each tried on a draft: a smaller request that starts now, or a share that is due."""
    if code not in _OTHERS_COULD_HELP and code is not Code.TOO_LARGE:
        return ()
    found = []
    for smaller in _smaller(world.fleet, demand, empty=code is Code.TOO_LARGE):
        fleet = world.fleet.emptied() if code is Code.TOO_LARGE else world.fleet
        trial = fleet.checkpoint()
        fits = place_unit(Placer(fleet, policy), smaller, "suggestion", demand.batch_size)
        fleet.rollback(trial)
        if fits is not None:
            verb = "can run here" if code is Code.TOO_LARGE else "would fit now"
            found.append(f"{smaller.requirement} {verb}")
            break
    urgent = replace(demand, priority=max((d.priority for d in world.demands), default=0) + 1)
    if code in (Code.SHARE, Code.CPU, Code.MEMORY, Code.GPU) and demand.priority < urgent.priority:
        others = tuple(urgent if d.session == demand.session else d for d in world.demands)
        due = entitlement(replace(world, demands=others), policy)[demand.session]
        if due > deserved:
            found.append(f"with priority {urgent.priority} it would deserve {due} executors")
    return tuple(found)


def _smaller(fleet: Fleet, demand: Demand, *, empty: bool) -> list[Demand]:
    """The request cut to what each node has, the least cut first."""
    asked = demand.requirement
    books = fleet.emptied() if empty else fleet
    cuts: list[tuple[float, Demand]] = []
    for row, node in enumerate(books.nodes):
        if not node.schedulable or books.slots_free[row] < 1:
            continue
        cpu = min(asked.cpu_milli, int(books.cpu_free[row]) // MILLI * MILLI)
        memory = min(asked.memory_bytes, int(books.memory_free[row]) >> 20 << 20)
        gpus = min(asked.gpu_count, int(books.gpu_free[row]))
        if min(cpu, memory, gpus) < 0 or not (cpu or memory or gpus) or (asked.cpu_milli and not cpu):
            continue
        if asked.memory_bytes and not memory:
            continue
        smaller = ResourceRequirement(cpu, memory, gpus)
        if smaller == asked:
            continue
        kept = [a / b for a, b in zip(smaller.resources, asked.resources, strict=True) if b]
        cuts.append((sum(1 - part for part in kept), replace(demand, requirement=smaller)))
    return [cut for _, cut in sorted(cuts, key=lambda pair: pair[0])]
