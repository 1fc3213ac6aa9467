"""The state of the service at one time: copied on the event loop in one step, written as bodies in a thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import CardHolding
from ullage.core.explaining.explain import reject
from ullage.core.explaining.summary import summary
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import has_room, why_no_room
from ullage.core.sharing.shares import dominant_share
from ullage.core.sharing.world import WORKING, Demand
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.grant import Grant
from ullage.model.node import Node
from ullage.model.quantity import PPM
from ullage.model.queue import Limit, Queue, QueueBounds
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources
from ullage.model.session import SessionInfo
from ullage.model.session_state import activity
from ullage.model.task import TaskState
from ullage.service.card_use import free_ppm
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord, State
from ullage.wire.amount import AmountBody
from ullage.wire.body import body_of
from ullage.wire.catalog import QueueBody
from ullage.wire.node import GpuBody, GpuHolderBody, NodeBody, PartBody
from ullage.wire.session import SessionBody


class ExecutorSession(NamedTuple):
    """The session of an executor, and its owner."""

    session: str | None = None
    owner: str | None = None


SessionOf = Callable[[str], ExecutorSession]
"""Returns the session behind an id of the ledger."""


class SessionFacts(NamedTuple):
    """A session. `held` counts its working `executors`."""

    info: SessionInfo
    counts: Mapping[TaskState, int]
    executors: int
    held: int
    deserved: int
    waiting_for: Code | None
    open: bool

    @classmethod
    def of(cls, record: SessionRecord) -> SessionFacts:
        """Return the facts of a session now."""
        executors = record.executors
        return cls(
            info=record.session,
            counts=dict(record.counts),
            executors=len(executors),
            held=sum(executor.phase in WORKING for executor in executors.values()),
            deserved=record.deserved,
            waiting_for=record.waiting_for,
            open=record.open,
        )


class NodeFacts(NamedTuple):
    """A node, the requirements of its executors, and facts outside of the books."""

    node: Node
    required: Sequence[ResourceRequirement]
    observed_at: float | None
    strangers: Sequence[str]
    note: str


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """Facts and a copy of the books at one time. They are immutable."""

    fleet: Fleet
    policy: Policy
    node_facts: Sequence[NodeFacts]
    session_facts: Sequence[SessionFacts]
    queue_of: Mapping[str, Queue]
    executors: Mapping[str, ExecutorSession]

    @classmethod
    def of(cls, service: UllageService, notes: Mapping[str, str]) -> StateSnapshot:
        """Return the state now; `notes` are remarks about nodes, by name."""
        state = service.state
        return cls(
            fleet=state.fleet.copy(apart=True),
            policy=service.policy,
            node_facts=node_facts(service, notes),
            session_facts=session_facts(state),
            queue_of=dict(state.queues),
            executors={uid: session_in(state, uid) for uid in state.executors},
        )

    def nodes(self) -> list[NodeBody]:
        """Return nodes by name."""
        return [node_body(self.fleet, facts) for facts in self.node_facts]

    def gpus(self) -> list[GpuBody]:
        """Return cards by node and index, with their holders."""
        fleet, no_session = self.fleet, ExecutorSession()
        return [
            gpu_body(fleet, card, lambda uid: self.executors.get(uid, no_session))
            for row in range(len(fleet.nodes))
            for card in sorted(fleet.cards_on(row), key=lambda card: fleet.cards[card].index)
        ]

    def bodies(self, sessions: Iterable[SessionFacts]) -> list[SessionBody]:
        """Return these sessions as bodies."""
        return [session_body(self.fleet, self.policy, facts) for facts in sessions]

    def queues(self) -> list[QueueBody]:
        """Return the share tree; see `queue_bodies`."""
        return queue_bodies(self.fleet, self.queue_of, self.session_facts)


def session_facts(state: State) -> list[SessionFacts]:
    """Return the facts of all sessions in the order of creation."""
    return [
        SessionFacts.of(record) for record in sorted(state.sessions.values(), key=lambda record: record.session.number)
    ]


def node_facts(service: UllageService, notes: Mapping[str, str], names: Iterable[str] | None = None) -> list[NodeFacts]:
    """Return the facts of the named nodes, or of all, by name."""
    state, required = service.state, defaultdict[str, list[ResourceRequirement]](list)
    for executor in state.executors.values():
        required[executor.node].append(executor.requirement)
    return [
        NodeFacts(
            node=state.nodes[name],
            required=required.get(name, ()),
            observed_at=state.allocator.observed_at(name),
            strangers=service.observations.strangers(name),
            note=notes.get(name, ""),
        )
        for name in sorted(state.nodes if names is None else names)
    ]


def session_in(state: State, uid: str) -> ExecutorSession:
    """Return the session behind an id of the ledger now."""
    executor = state.executors.get(uid)
    record = state.sessions.get(executor.session or "") if executor else None
    return ExecutorSession(record.id, record.session.spec.owner) if record else ExecutorSession()


# --- bodies ---


def session_body(fleet: Fleet, policy: Policy, facts: SessionFacts) -> SessionBody:
    """Return a session; for a request that can never be placed, with the reason, which takes long on many nodes."""
    info, counts = facts.info, facts.counts
    spec, (reason, message) = info.spec, _reason(fleet, policy, facts)
    return body_of(
        SessionBody,
        info,
        spec,
        facts,
        **{state.value: counts[state] for state in TaskState},
        activity=activity(info.state, pending=counts[TaskState.PENDING], running=counts[TaskState.RUNNING]),
        resreq=str(spec.resreq),
        share=dominant_share(fleet.holding(spec.resreq, facts.executors), fleet.total),
        after=[str(each) for each in spec.after],
        awaits=[str(each) for each in info.awaits],
        reason=reason,
        message=message,
    )


def reason_of(fleet: Fleet, policy: Policy, facts: SessionFacts) -> Code | None:
    """Return what a session waits for, also before it asks for anything that can never be placed."""
    if not facts.open or facts.waiting_for is not None:
        return facts.waiting_for if facts.open else None
    if facts.executors:  # also on a node that is cordoned
        return None
    demand = _demand(facts.info)
    return None if has_room(Placer(fleet.emptied(), policy), demand) else why_no_room(fleet, policy, demand)


def _demand(info: SessionInfo) -> Demand:
    return Demand(info.id, info.number, info.spec.resreq, batch_size=info.spec.batch_size)


def _reason(fleet: Fleet, policy: Policy, facts: SessionFacts) -> tuple[str | None, str]:
    code = reason_of(fleet, policy, facts)
    if code is None:
        return None, facts.info.cancel_reason
    if code is Code.TOO_LARGE:
        return code.value, summary(code, _demand(facts.info), reject(fleet, facts.info.spec.resreq))
    return code.value, MEANINGS[code]


def gpu_body(fleet: Fleet, card: int, session_of: SessionOf) -> GpuBody:
    """Return a card with its holders."""
    gpu, free = fleet.cards[card], _free(fleet, card)
    holders = fleet.holders[card].items()
    return body_of(
        GpuBody,
        gpu,
        node=fleet.nodes[int(fleet.card_row[card])].name,
        isolations=None if gpu.isolations is None else sorted(gpu.isolations),
        free=body_of(PartBody, free, fraction=free_ppm(fleet, card) / PPM),
        holders=[_holder(uid, session_of(uid), Grant.of(gpu, charge)) for uid, charge in sorted(holders)],
    )


def _holder(uid: str, by: ExecutorSession, grant: Grant) -> GpuHolderBody:
    return body_of(GpuHolderBody, grant, by, executor=uid, fraction=grant.fraction_ppm / PPM)


def node_body(fleet: Fleet, facts: NodeFacts) -> NodeBody:
    """Return a node with its usage."""
    node = facts.node
    held = sum((requirement.resources for requirement in facts.required), Resources())
    held = replace(held, gpu_milli=held_cards_milli(fleet, fleet.row_of[node.name]))
    return body_of(NodeBody, node, facts, held=held, executors=len(facts.required))


def held_cards_milli(fleet: Fleet, row: int) -> int:
    """Return the thousandths of the cards of a node that are not free, rounded up."""
    held = sum(PPM - free_ppm(fleet, card) for card in fleet.cards_on(row))
    return -(-held * MILLI // PPM)


def queue_bodies(fleet: Fleet, queues: Mapping[str, Queue], sessions: Iterable[SessionFacts]) -> list[QueueBody]:
    """Return the share tree, parents before children. A queue includes the queues below it."""
    held: dict[str, CardHolding] = {}
    members: dict[str, list[SessionFacts]] = {}
    for facts in sessions:
        if not facts.open:
            continue
        amount = fleet.holding(facts.info.spec.resreq, facts.executors)
        queue = queues.get(facts.info.spec.queue)
        while queue is not None:
            held[queue.name] = held.get(queue.name, CardHolding()).plus(amount)
            members.setdefault(queue.name, []).append(facts)
            queue = queues.get(queue.parent)
    total = fleet.total
    return [
        _queue(queue, held.get(name, CardHolding()), members.get(name, ()), total)
        for name, queue in sorted(queues.items())
    ]


def _queue(queue: Queue, held: CardHolding, members: Sequence[SessionFacts], total: Resources) -> QueueBody:
    return body_of(
        QueueBody,
        queue,
        guarantee=limit_text(Limit(*(amount or None for amount in queue.guarantee))),
        limit=limit_text(queue.limit),
        **_bounds(queue.bounds),
        held=body_of(AmountBody, held, gpu_milli=ceil(held.gpu_milli)),
        share=dominant_share(held, total),
        sessions=len(members),
        pending=sum(facts.counts[TaskState.PENDING] for facts in members),
        running=sum(facts.counts[TaskState.RUNNING] for facts in members),
    )


def _free(fleet: Fleet, card: int) -> Grant:
    """Return the free part of a card; 0 if it is over-committed."""
    compute, vram = max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card]))
    return Grant.amounts(fleet.cards[card], compute, vram)


def _bounds(bounds: QueueBounds) -> dict[str, str | float | None]:
    return {
        "default_resreq": None if bounds.default_resreq is None else str(bounds.default_resreq),
        "max_resreq": limit_text(bounds.max_resreq),
        "default_time_s": bounds.default_time_s,
        "max_time_s": bounds.max_time_s,
    }


def limit_text(limit: Limit) -> str | None:
    """Return a limit as its text, also a guarantee; a dimension that it does not bind is left out."""
    return str(limit) or None
