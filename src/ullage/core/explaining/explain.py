"""Why a session has what it has: from a cycle on the present facts, never from a second opinion.

The one dominant reason, its numbers per node, who holds what is missing, and the nearest change that
would start the next unit now. Suggestions are tried on a draft before they are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.explaining.limits import cut_to_limits, limit_text, unreachable, within_limit
from ullage.core.explaining.summary import summary
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import Leaves, entitlement, place_unit
from ullage.core.sharing.plan import Plan, Reuse, Start
from ullage.core.sharing.reach import Reach
from ullage.core.sharing.shares import ShareTree, dominant_share
from ullage.core.sharing.world import Demand, ExecutorPhase, World
from ullage.core.verdict.cards import CardVerdicts, exclusion_of, open_cards
from ullage.core.verdict.mismatch import of_all
from ullage.core.verdict.nodes import closed, shortfalls, slots_short
from ullage.core.verdict.sentences import CURES
from ullage.core.verdict.zone_remedy import nearest_changes
from ullage.core.verdict.zones import refusal_on, refusal_when_empty
from ullage.model.alignment import DEFAULT_ALIGNMENT
from ullage.model.counted import counted
from ullage.model.part import ANY_CARD, Part
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources


@dataclass(frozen=True, slots=True)
class Holder:
    """A session, or the requests of a namespace, that hold some of what is missing."""

    session: str
    executors: int
    deserved: int
    amount: Resources


@dataclass(frozen=True, slots=True)
class Reasons:
    """The answer to why: counts are executors, `share` a fraction of the fleet, `position` from 1.

    `warnings` say what the session can never have.
    """

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
    warnings: tuple[str, ...] = ()


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
    mine = held.get(session, [])
    reach = Reach(world.fleet, policy, world.queues)
    code = _code(demand, plan, [executor.phase for executor in mine], reach)
    rejections = rejections_of(world.fleet, demand, code, reach)
    return Reasons(
        session=session,
        code=code,
        cure=CURES.get(code),
        summary=limit_text(world, demand, code)
        or summary(code, demand, rejections, deserved=plan.deserved.get(session, 0), held=len(mine)),
        want=demand.want,
        held=len(mine),
        deserved=plan.deserved.get(session, 0),
        share=dominant_share(world.fleet.holding(demand.requirement, len(mine)), world.fleet.total),
        position=_position(world, policy, plan, session),
        rejections=rejections,
        holders=_holders(world, demand, plan, rejections) if code in _OTHERS_COULD_HELP else (),
        suggestions=within_limit(reach, world.queues, demand)
        if code is Code.ABOVE_LIMIT
        else suggest(world, policy, demand, code, now=now, deserved=plan.deserved.get(session, 0)),
        warnings=tuple(filter(None, [unreachable(reach, demand)])),
    )


_OTHERS_COULD_HELP = {code for code, cure in CURES.items() if cure is Cure.CAPACITY} - {Code.BACKOFF}


def rejections_of(fleet: Fleet, demand: Demand, code: Code, reach: Reach) -> tuple[Rejection, ...]:
    """Return what refuses one batch, for a code: the limit that it exceeds, or each node."""
    if code is Code.ABOVE_LIMIT:
        limit = reach.limit(demand)
        return () if limit is None else (limit,)
    return reject(fleet, demand.requirement) if code in CURES else ()


def reject(fleet: Fleet, asked: ResourceRequirement) -> tuple[Rejection, ...]:
    """Return every node that has no room for one executor, and each dimension in which it falls short."""
    found: list[Rejection] = []
    for row in range(len(fleet.nodes)):
        shut = closed(fleet, row)
        found += _rejections_on(fleet, row, asked) if shut is None else [shut]
    return tuple(found)


def _rejections_on(fleet: Fleet, row: int, asked: ResourceRequirement) -> list[Rejection]:
    """Return each dimension in which an open node falls short, or what its zones refuse; empty if a unit fits."""
    cards, slots = _cards_short(fleet, row, asked), slots_short(fleet, row, asked)
    short = [each for each in (cards, *shortfalls(fleet, row, asked), slots) if each is not None]
    if not short:
        zones = refusal_on(fleet, asked, row, open_cards(fleet, row, asked))
        return [] if zones is None else [zones]
    never = refusal_when_empty(fleet, asked, row) if all(each.cure is Cure.CAPACITY for each in short) else None
    return short if never is None else [never]


def _cards_short(fleet: Fleet, row: int, asked: ResourceRequirement) -> Rejection | None:
    """Return what a node's cards lack: their number for whole ones or where some suit, else what the nearest lacks."""
    if not asked.gpu_count:
        return None
    verdicts = CardVerdicts(fleet, asked, np.array(fleet.cards_on(row), dtype=np.int64))
    refused = verdicts.reason.nonzero()[0].tolist()
    free = len(verdicts.reason) - len(refused)
    if free >= asked.gpu_count:
        return None
    short = [verdicts.rejection(k) for k in refused]
    curable = [refusal for refusal in short if refusal.cure is Cure.CAPACITY]
    node = fleet.nodes[row].name
    if len(short) + free < asked.gpu_count or (asked.whole and free + len(curable) >= asked.gpu_count):
        possible = len(short) + free
        cure = Cure.CAPACITY if asked.gpu_count <= possible else Cure.NODE_CHANGE
        return Rejection(Code.GPU, cure, asked.gpu_count, free if cure is Cure.CAPACITY else possible, node=node)
    if (too_few := _too_few(node, asked.gpu_count, free, could=free + len(curable))) is not None:
        return too_few
    short = curable or [of_empty_card(fleet, refusal) for refusal in short]
    nearest = min(short, key=lambda r: ((r.needed - r.had) / r.needed if r.needed else 1.0, r.gpu or ""))
    return of_all(nearest, short)


def _too_few(node: str, asked: int, free: int, *, could: int) -> Rejection | None:
    """Return the number of suitable cards of a node where that refuses, not what each card lacks.

    `free` cards would do now, `could` if others left. So some cards do, but not as many as are asked.
    """
    if 0 < could < asked:
        return Rejection(Code.NOT_ENOUGH_CARDS, Cure.NODE_CHANGE, asked, could, node=node)
    return Rejection(Code.NOT_ENOUGH_CARDS, Cure.CAPACITY, asked, free, node=node) if 0 < free < asked else None


def of_empty_card(fleet: Fleet, refusal: Rejection) -> Rejection:
    """Return a refusal that only another card could cure, with what the card has, not with what is free of it."""
    totals = {Code.GPU_COMPUTE: fleet.compute_total, Code.GPU_VRAM: fleet.vram_total}.get(refusal.code)
    return (
        refusal
        if totals is None or refusal.gpu is None
        else replace(refusal, had=int(totals[fleet.card_of[refusal.gpu]]))
    )


def _code(demand: Demand, plan: Plan, phases: list[ExecutorPhase], reach: Reach) -> Code:
    waiting = plan.waiting.get(demand.session)
    if waiting is not None:
        return waiting
    work = demand.pending + demand.running
    if not work:  # what can never be placed is said before there are tasks
        return (None if phases else reach.obstacle(demand)) or Code.NOTHING_PENDING
    if not phases and demand.pending < demand.batch_size:
        return Code.GANG_INCOMPLETE
    if any(phase is ExecutorPhase.STARTING for phase in phases) or not phases:
        return Code.STARTING
    whole = demand.running + demand.pending // demand.batch_size * demand.batch_size
    if demand.max_instances is not None and whole > demand.want:
        return Code.MAX_INSTANCES
    return Code.GANG_INCOMPLETE if 0 < demand.pending < demand.batch_size else Code.RUNNING


def _position(world: World, policy: Policy, plan: Plan, session: str) -> int | None:
    """Place in the line of those that wait: priority, then smallest share, then age."""
    held = world.held()
    of = Leaves(world.fleet).of
    leaves = [of(d, held=len(held.get(d.session, ())) // d.batch_size) for d in world.demands]
    tree = ShareTree(world.fleet.total, world.queues, leaves, policy.order)
    shares = {leaf.session: tree.leaf_share(leaf) for leaf in tree.leaves}
    waiting = [demand for demand in world.demands if demand.session in plan.waiting]
    waiting.sort(key=lambda d: (-d.priority, shares[d.session], d.number, d.session))
    names = [demand.session for demand in waiting]
    return names.index(session) + 1 if session in names else None


_OF_CARDS = (
    *(Code.GPU, Code.GPU_SHARE, Code.GPU_COMPUTE, Code.GPU_VRAM, Code.GPU_NOT_IDLE, Code.GPU_USERS),
    Code.NOT_ENOUGH_CARDS,
)
_TENTH = MILLI // 10
"""Thousandths of a core: the grain of suggestions where the request itself has no whole number of cores."""

_MISSING = {Code.CPU: Resources(cpu_milli=1), Code.MEMORY: Resources(memory_bytes=1)} | dict.fromkeys(
    _OF_CARDS, Resources(gpu_milli=1)
)


def _holders(world: World, demand: Demand, plan: Plan, rejections: tuple[Rejection, ...]) -> tuple[Holder, ...]:
    """Return who else holds what is missing on the nodes that could run this request, the largest first.

    Sessions, the requests for cards of each namespace together, and what nodes show of owners that are not known.
    """
    fleet = world.fleet
    missing = sum((_MISSING.get(code, Resources()) for code in {r.code for r in rejections}), Resources())
    lies = not missing and any(rejection.zones for rejection in rejections)
    useful = Placer(fleet.emptied(), Policy()).room(demand.requirement) > 0
    session_of = {executor.id: executor.session for executor in world.executors}
    held: dict[str, list[Resources]] = {}
    for allocation in fleet.ledger.values():
        row, claim = fleet.row_of.get(allocation.node), allocation.claim
        if lies and not (allocation.gpus or allocation.placement):
            continue  # it has nothing of a zone alone
        if claim is not None:
            holder: str | None = f"requests of {claim.namespace}"
        else:
            holder = session_of.get(allocation.id) if allocation.of_session else "owners that are not known"
        if holder not in (None, demand.session) and row is not None and useful[row]:
            held.setdefault(holder or "", []).append(fleet.resources(allocation.requirement))
    holders = [
        Holder(holder, len(amounts), plan.deserved.get(holder, 0), sum(amounts, Resources()))
        for holder, amounts in held.items()
        if not missing or sum(amounts, Resources()).min(missing)
    ]
    return tuple(sorted(holders, key=lambda h: (-h.amount.gpu_milli, -h.amount.cpu_milli, h.session))[:10])


_TRIED = 3
"""The most smaller requests that a whole cycle is run for."""

_FRESH = "a smaller request"
"""What a suggestion is called in a cycle; no session has a name with spaces."""


def suggest(world: World, policy: Policy, demand: Demand, code: Code, *, now: float, deserved: int) -> tuple[str, ...]:
    """Nearest changes, each tried: a smaller request that would start now if it came now, or a share that is due."""
    if code not in _OTHERS_COULD_HELP and code is not Code.TOO_LARGE:
        return ()
    found = []
    smaller = _smaller_that_helps(world, policy, demand, code, now=now)
    if smaller is not None:
        found.append(f"{smaller} {'can run here' if code is Code.TOO_LARGE else 'would fit now'}")
    urgent = replace(demand, priority=max((d.priority for d in world.demands), default=0) + 1)
    if code in (Code.SHARE, Code.CPU, Code.MEMORY, Code.GPU) and demand.priority < urgent.priority:
        others = tuple(urgent if d.session == demand.session else d for d in world.demands)
        due = entitlement(replace(world, demands=others), policy)[demand.session]
        if due > deserved:
            found.append(f"with priority {urgent.priority} it would deserve {counted(due, 'executor')}")
    return tuple(found)


def _smaller_that_helps(
    world: World, policy: Policy, demand: Demand, code: Code, *, now: float
) -> ResourceRequirement | None:
    """Return the least cut request that would start now; of one that no node can hold, that can ever start."""
    asked = demand.requirement
    fleet = world.fleet.emptied() if code is Code.TOO_LARGE else world.fleet
    smaller_ones = smaller_requests(fleet, asked, range(len(fleet.nodes)))
    if any(refusal.of_zones for refusal in reject(fleet, asked)):
        smaller_ones = [*nearest_changes(fleet, asked), *smaller_ones]
    reach, cycles = Reach(world.fleet, policy, world.queues), 0
    for requirement in dict.fromkeys(smaller_ones):
        smaller = cut_to_limits(world.queues, replace(demand, requirement=requirement))
        if smaller is None or not _has_room(fleet, policy, smaller) or reach.never(smaller) is not None:
            continue
        if code is Code.TOO_LARGE or _starts(world, policy, smaller, now):
            return smaller.requirement
        cycles += 1
        if cycles == _TRIED:
            break
    return None


def _has_room(fleet: Fleet, policy: Policy, demand: Demand) -> bool:
    """Return whether one batch fits on the nodes as they are, whether or not the room is for others."""
    trial = fleet.checkpoint()
    fits = place_unit(Placer(fleet, policy), demand, _FRESH, demand.batch_size)
    fleet.rollback(trial)
    return fits is not None


def _starts(world: World, policy: Policy, demand: Demand, now: float) -> bool:
    """Return whether the scheduler would start a demand that comes now, in place of that of its session.

    A session that has executors keeps them, and goes on asking for more.
    """
    number = max(each.number for each in world.demands) + 1
    fresh = replace(demand, session=_FRESH, number=number, running=0, leaving=0, waiting_since=None)
    others, promises = world.demands, world.promises
    if all(executor.session != demand.session for executor in world.executors):
        others = tuple(each for each in others if each.session != demand.session)
        promises = {session: promise for session, promise in promises.items() if session != demand.session}
    plan = schedule(replace(world, demands=(*others, fresh), promises=promises), policy, now)
    return any(isinstance(action, Start | Reuse) and action.session == _FRESH for action in plan.actions)


def smaller_requests(books: Fleet, asked: ResourceRequirement, rows: Iterable[int]) -> list[ResourceRequirement]:
    """Return the request cut to what each of these nodes has free, the least cut first."""
    grain = _TENTH if asked.cpu_milli % MILLI else MILLI
    found: list[ResourceRequirement] = []
    whole = books.resources(asked)

    def cut(smaller: ResourceRequirement) -> float:
        kept = (a / b for a, b in zip(books.resources(smaller), whole, strict=True) if b)
        return sum(1 - part for part in kept)

    for row in rows:
        node = books.nodes[row]
        if not node.schedulable or books.slots_free[row] < 1:
            continue
        cpu = min(asked.cpu_milli, int(books.cpu_free[row]) // grain * grain)
        memory = min(asked.memory_bytes, int(books.memory_free[row]) >> 20 << 20)
        cards = _smaller_cards(books, row, asked)
        if min(cpu, memory) < 0 or not (cpu or memory or cards.gpu_count) or (asked.cpu_milli and not cpu):
            continue
        if (asked.memory_bytes and not memory) or (asked.gpu_count and not cards.gpu_count):
            continue
        smaller = replace(cards, cpu_milli=cpu, memory_bytes=memory)
        if smaller != asked:
            found.append(smaller)
    return sorted(found, key=cut)


def _smaller_cards(books: Fleet, row: int, asked: ResourceRequirement) -> ResourceRequirement:
    """Return the request with as many cards, or as much of one, as the node has free."""
    free = open_cards(books, row, asked)
    if len(free) >= asked.gpu_count:
        return asked
    if free or asked.part is None or asked.gpu_count > 1:
        none = None if asked.whole else asked.part
        cards = replace(asked.cards, indices=()) if free else ANY_CARD
        alignment = replace(asked.alignment, containers=()) if free else DEFAULT_ALIGNMENT
        return ResourceRequirement(
            1, 0, len(free), part=none if free else None, cards=cards, nodes=asked.nodes, alignment=alignment
        )
    parts = [
        part
        for card in books.cards_on(row)
        if exclusion_of(books, card, asked) is None and (part := _smaller_part(books, card, asked.part)) is not None
    ]
    if not parts:
        return ResourceRequirement(1)
    best = max(parts, key=lambda part: (part.compute_ppm, part.compute_gflops, part.vram_bytes, part.vram_ppm))
    return replace(asked, part=best)


def _smaller_part(books: Fleet, card: int, part: Part) -> Part | None:
    """Return the part cut to what a card has free, fractions to whole hundredths."""
    compute, vram = max(0, int(books.compute_free[card])), max(0, int(books.vram_free[card]))
    compute_ppm = compute * PPM // max(1, int(books.compute_total[card]))
    vram_ppm = vram * PPM // max(1, int(books.vram_total[card]))
    ppm = min(compute_ppm, vram_ppm) if part.compute_ppm and part.vram_ppm else max(compute_ppm, vram_ppm)
    hundredths = ppm // 10_000 * 10_000
    smaller = Part(
        min(part.compute_gflops, compute),
        min(part.vram_bytes, vram >> 20 << 20),
        min(part.compute_ppm, hundredths, compute_ppm // 10_000 * 10_000),
        min(part.vram_ppm, hundredths),
    )
    asked = (part.compute_gflops, part.vram_bytes, part.compute_ppm, part.vram_ppm)
    got = (smaller.compute_gflops, smaller.vram_bytes, smaller.compute_ppm, smaller.vram_ppm)
    return None if any(a and not g for a, g in zip(asked, got, strict=True)) else smaller
