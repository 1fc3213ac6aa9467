"""The state of the service at one time: copied on the event loop in one step, written as bodies in a thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

import msgspec

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import CardHolding
from ullage.core.sharing.shares import dominant_share
from ullage.model.grant import Grant
from ullage.model.guarantees import unmet_guarantees
from ullage.model.node import Node
from ullage.model.quantity import PPM
from ullage.model.queue import Limit, Queue, QueueBounds
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI, Resources
from ullage.model.task import TaskState
from ullage.server.fair_share import past_use_of_queues
from ullage.server.session_facts import SessionFacts, SessionReasons, session_facts
from ullage.service.card_use import free_ppm
from ullage.service.service import UllageService
from ullage.service.state import State
from ullage.wire.amount import AmountBody
from ullage.wire.body import body_of
from ullage.wire.catalog import QueueBody
from ullage.wire.fair_share import ShareBody
from ullage.wire.node import GpuBody, GpuHolderBody, NodeBody, PartBody
from ullage.wire.session import SessionBody


class ExecutorSession(NamedTuple):
    """The session of an executor, or none of a request for cards, and its owner."""

    session: str | None = None
    owner: str | None = None


SessionOf = Callable[[str], ExecutorSession]
"""Returns the session behind an id of the ledger."""


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
    node_facts: Sequence[NodeFacts]
    session_facts: Sequence[SessionFacts]
    reasons: SessionReasons
    queue_of: Mapping[str, Queue]
    past_use: Mapping[str, ShareBody]
    executors: Mapping[str, ExecutorSession]

    @classmethod
    def of(cls, service: UllageService, notes: Mapping[str, str]) -> StateSnapshot:
        """Return the state now; `notes` are remarks about nodes, by name."""
        state = service.state
        fleet = state.fleet.copy(apart=True)
        return cls(
            fleet=fleet,
            node_facts=node_facts(service, notes),
            session_facts=session_facts(state),
            reasons=SessionReasons(fleet, service.policy, state),
            queue_of=dict(state.queues),
            past_use=past_use_of_queues(service),
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
        return [self.reasons.body(facts) for facts in sessions]

    def queues(self) -> list[QueueBody]:
        """Return the share tree; see `queue_bodies`."""
        return queue_bodies(self.fleet, self.queue_of, self.session_facts, self.past_use)


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
        holders=[
            _holder(uid, _holding(fleet, uid, session_of), Grant.of(gpu, charge)) for uid, charge in sorted(holders)
        ],
    )


def _holding(fleet: Fleet, uid: str, session_of: SessionOf) -> ExecutorSession:
    """Return the session behind an id of the ledger, and its owner; of a request for cards the owner alone."""
    by, held = session_of(uid), fleet.ledger.get(uid)
    claim = None if held is None else held.claim
    return by if by.owner is not None or claim is None else by._replace(owner=claim.owner or None)


def _holder(uid: str, by: ExecutorSession, grant: Grant) -> GpuHolderBody:
    return body_of(GpuHolderBody, grant, by, executor=uid, fraction=grant.fraction_ppm / PPM)


def node_body(fleet: Fleet, facts: NodeFacts) -> NodeBody:
    """Return a node with its usage."""
    node = facts.node
    held = sum((requirement.resources for requirement in facts.required), Resources())
    held = replace(held, gpu_milli=held_cards_milli(fleet, fleet.row_of[node.name]))
    return body_of(NodeBody, node, facts, held=held, executors=len(facts.required))


def held_cards_milli(fleet: Fleet, row: int) -> int:
    """Return the thousandths of the cards of a node that are not free, rounded up.

    Cards that take no new work, such as a lost one with a holder, are left out, as they are not allocatable either.
    """
    held = sum(PPM - free_ppm(fleet, card) for card in fleet.cards_on(row) if fleet.cards[card].usable)
    return -(-held * MILLI // PPM)


def queue_bodies(
    fleet: Fleet, queues: Mapping[str, Queue], sessions: Iterable[SessionFacts], past_use: Mapping[str, ShareBody]
) -> list[QueueBody]:
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
    unmet = unmet_guarantees(queues.values(), total)
    found = (
        _queue(queue, held.get(name, CardHolding()), members.get(name, ()), total)
        for name, queue in sorted(queues.items())
    )
    return [
        msgspec.structs.replace(body, warnings=unmet.get(body.name, []), past_use=past_use.get(body.name))
        for body in found
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
