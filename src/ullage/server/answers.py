"""Service state as response bodies, one function per body."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import msgspec

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import CardHolding
from ullage.core.explaining.explain import Reasons, reject
from ullage.core.explaining.summary import summary
from ullage.core.explaining.zone_warning import weaker_predictions
from ullage.core.learning.fragmentation import NOTHING, IdleCards, fits_now, fragments_of
from ullage.core.placing.placement import Placer
from ullage.core.sharing.shares import dominant_share
from ullage.core.sharing.world import WORKING
from ullage.core.verdict.sentences import MEANINGS
from ullage.model.application import BUILT_IN, Application, ApplicationState
from ullage.model.error import NotFound
from ullage.model.event import Event
from ullage.model.grant import Grant
from ullage.model.node import Node
from ullage.model.quantity import PPM
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code
from ullage.model.resources import MILLI, Resources
from ullage.model.task import TaskResult, TaskState
from ullage.server.placements import placement_body
from ullage.server.rejections import rejection_body
from ullage.server.session_warnings import session_warnings
from ullage.service.service import UllageService
from ullage.service.state import ExecutorRecord, SessionRecord
from ullage.service.store_port import TaskView
from ullage.wire import api
from ullage.wire.body import body_of
from ullage.wire.node_drawing import placed_card, topology_body
from ullage.wire.node_topology import PlacedCardBody, TopologyBody

_BUILT_IN = frozenset(application.name for application in BUILT_IN)


class Answers:
    """Reads the service's state; changes nothing."""

    def __init__(self, service: UllageService, server: api.ServerBody, notes: dict[str, str]) -> None:
        self._service = service
        self._server = server
        self._notes = notes

    def server(self) -> api.ServerBody:
        """Return the body of the server itself."""
        return self._server

    def session(self, record: SessionRecord) -> api.SessionBody:
        """Return a session; for a request that can never be placed, with the reason."""
        spec, counts = record.session.spec, record.counts
        reason, message = self._reason(record)
        fleet = self._service.state.fleet
        return body_of(
            api.SessionBody,
            record.session,
            spec,
            record,
            **{state.value: counts[state] for state in TaskState},
            resreq=str(spec.resreq),
            held=sum(executor.phase in WORKING for executor in record.executors.values()),
            share=dominant_share(fleet.holding(spec.resreq, len(record.executors)), fleet.total),
            reason=reason,
            message=message,
        )

    def opened(self, record: SessionRecord) -> api.SessionBody:
        """Return a session for the response to its creation, with warnings."""
        warnings = session_warnings(self._service, record.session.spec)
        return msgspec.structs.replace(self.session(record), warnings=warnings)

    def _reason(self, record: SessionRecord) -> tuple[str | None, str]:
        if not record.open:
            return None, ""
        state, spec, code = self._service.state, record.session.spec, record.waiting_for
        if code is None:
            room = Placer(state.fleet.emptied(), self._service.policy).room(spec.resreq)
            code = Code.TOO_LARGE if len(room) and int(room.sum()) < spec.batch_size else None
        if code is None:
            return None, ""
        if code is Code.TOO_LARGE:
            demand = state.demand(record, record.session.created_at)
            return code.value, summary(code, demand, reject(state.fleet, spec.resreq))
        return code.value, MEANINGS[code]

    def sessions(self, state: str | None = None, owner: str | None = None) -> list[api.SessionBody]:
        """Return sessions in the order of creation."""
        records = sorted(self._service.state.sessions.values(), key=lambda record: record.session.number)
        return [
            self.session(record)
            for record in records
            if (state is None or record.session.state.value == state)
            and (owner is None or record.session.spec.owner == owner)
        ]

    def executors(self) -> list[api.ExecutorBody]:
        """Return worker processes by id."""
        return [
            body_of(
                api.ExecutorBody,
                executor,
                resreq=str(executor.requirement),
                tasks_running=len(executor.tasks),
                gang=executor.gang.id if executor.gang else None,
                placement=placement_body(executor.placement),
            )
            for executor in sorted(self._service.state.executors.values(), key=_age)
        ]

    def gpus(self) -> list[api.GpuBody]:
        """Return cards by node and index, with their holders."""
        fleet = self._service.state.fleet
        return [
            self._gpu(card)
            for row in range(len(fleet.nodes))
            for card in sorted(fleet.cards_on(row), key=lambda card: fleet.cards[card].index)
        ]

    def _gpu(self, card: int) -> api.GpuBody:
        fleet = self._service.state.fleet
        gpu, free = fleet.cards[card], _free(fleet, card)
        holders = fleet.holders[card].items()
        return body_of(
            api.GpuBody,
            gpu,
            node=fleet.nodes[int(fleet.card_row[card])].name,
            isolations=None if gpu.isolations is None else sorted(gpu.isolations),
            free=body_of(api.PartBody, free, fraction=_free_ppm(fleet, card) / PPM),
            holders=[self._holder(executor, Grant.of(gpu, charge)) for executor, charge in sorted(holders)],
        )

    def _holder(self, executor: str, grant: Grant) -> api.GpuHolderBody:
        state = self._service.state
        record = state.executors.get(executor)
        session = state.sessions.get(record.session or "") if record else None
        return body_of(
            api.GpuHolderBody,
            grant,
            executor=executor,
            session=session.id if session else None,
            owner=session.session.spec.owner if session else None,
            fraction=grant.fraction_ppm / PPM,
        )

    def nodes(self) -> list[api.NodeBody]:
        """Return machines by name."""
        here: defaultdict[str, list[ExecutorRecord]] = defaultdict(list)
        for executor in self._service.state.executors.values():
            here[executor.node].append(executor)
        nodes = sorted(self._service.state.nodes.values(), key=lambda node: node.name)
        return [self._node(node, here[node.name]) for node in nodes]

    def node(self, node: Node) -> api.NodeBody:
        """Return a machine and what is held of it."""
        executors = self._service.state.executors.values()
        return self._node(node, [executor for executor in executors if executor.node == node.name])

    def _node(self, node: Node, here: Sequence[ExecutorRecord]) -> api.NodeBody:
        fleet = self._service.state.fleet
        held = sum((executor.requirement.resources for executor in here), Resources())
        cards = sum(PPM - _free_ppm(fleet, card) for card in fleet.cards_on(fleet.row_of[node.name]))
        held = replace(held, gpu_milli=-(-cards * MILLI // PPM))
        return body_of(
            api.NodeBody,
            node,
            held=held,
            executors=len(here),
            note=self._notes.get(node.name, ""),
            observed_at=self._service.state.allocator.observed_at(node.name),
            strangers=self._service.observations.strangers(node.name),
        )

    def topology(self, name: str) -> TopologyBody:
        """Return the topology of a machine.

        Raises:
            NotFound: no such node.

        """
        state = self._service.state
        if name not in state.nodes:
            raise NotFound(f"node {name} does not exist", field="node")
        fleet = state.fleet
        cards = sorted(fleet.cards_on(fleet.row_of[name]), key=lambda card: fleet.cards[card].index)
        here = [held.placement for held in fleet.ledger.values() if held.node == name and held.placement]
        held_cpus = {cpu for placement in here for cpu in placement.cpus}
        return topology_body(state.nodes[name], map(self._placed, cards), held_cpus)

    def _placed(self, card: int) -> PlacedCardBody:
        body = self._gpu(card)
        holders = (holder.session or holder.executor for holder in body.holders)
        return placed_card(self._service.state.fleet.cards[card], body.free.fraction, tuple(holders))

    def queues(self) -> list[api.QueueBody]:
        """Return the share tree, parents before children; a queue counts what the queues below it hold."""
        state = self._service.state
        held: dict[str, CardHolding] = {}
        members: dict[str, list[SessionRecord]] = {}
        for record in state.sessions.values():
            if not record.open:
                continue
            amount = state.fleet.holding(record.session.spec.resreq, len(record.executors))
            queue: Queue | None = state.queues.get(record.session.spec.queue)
            while queue is not None:
                held[queue.name] = held.get(queue.name, CardHolding()).plus(amount)
                members.setdefault(queue.name, []).append(record)
                queue = state.queues.get(queue.parent)
        total = state.fleet.total
        return [
            self._queue(queue, held.get(queue.name, CardHolding()), members.get(queue.name, []), total)
            for queue in sorted(state.queues.values(), key=lambda queue: queue.name)
        ]

    def _queue(self, queue: Queue, held: CardHolding, members: list[SessionRecord], total: Resources) -> api.QueueBody:
        return body_of(
            api.QueueBody,
            queue,
            guarantee=str(queue.guarantee) if queue.guarantee else None,
            limit=_limit_text(queue.limit),
            held=body_of(api.AmountBody, held, gpu_milli=ceil(held.gpu_milli)),
            share=dominant_share(held, total),
            sessions=len(members),
            pending=sum(record.counts[TaskState.PENDING] for record in members),
            running=sum(record.counts[TaskState.RUNNING] for record in members),
        )

    def applications(self) -> list[api.ApplicationBody]:
        """Return applications by name."""
        return [application_body(app) for _, app in sorted(self._service.state.applications.items())]

    def _weaker(self, reasons: Reasons) -> list[str]:
        """Return warnings about refusals by zones that are less certain."""
        refusing = [refusal.node for refusal in reasons.rejections if refusal.of_zones and refusal.node is not None]
        return list(weaker_predictions(self._service.state.fleet, refusing))

    def explanation(self, reasons: Reasons, evicted: Event | None) -> api.Explanation:
        """Return the response to `why`; `evicted` is the newest eviction of the session."""
        owners = {name: record.session.spec.owner for name, record in self._service.state.sessions.items()}
        return body_of(
            api.Explanation,
            reasons,
            rejections=[rejection_body(each) for each in reasons.rejections],
            holders=[
                body_of(api.HolderBody, each, owner=owners.get(each.session, ""), amount=str(each.amount))
                for each in reasons.holders
            ],
            warnings=self._weaker(reasons),
            evicted=evicted,
        )

    def overview(self, at: float) -> api.Overview:
        """Return the state of everything, for live views; closed sessions are left out."""
        return api.Overview(
            at=at,
            server=self._server,
            nodes=self.nodes(),
            gpus=self.gpus(),
            room=self.room(),
            queues=self.queues(),
            sessions=self.sessions(state="open"),
        )

    def room(self) -> api.RoomBody:
        """Return the idle capacity, how much of it is fragments, and what fits."""
        fleet, learning = self._service.state.fleet, self._service.learning
        found = fragments_of(fleet, learning.workload or NOTHING)
        known = learning.workload is not None and not learning.missing

        def milli(idle: IdleCards) -> int | None:
            return round(idle.fragments_milli) if known else None

        total = found.total()
        return api.RoomBody(
            idle_milli=round(total.idle_milli),
            fragments_milli=milli(total),
            models=[
                api.IdleBody(model=model or None, idle_milli=round(idle.idle_milli), fragments_milli=milli(idle))
                for model, idle in found.by_model().items()
            ],
            fits=fits_now(fleet),
            tasks=learning.seen,
            missing=learning.missing,
        )


def result_body(result: TaskResult) -> api.Result:
    """Return the result of a task; clients fetch thousands of them a second, so no field is looked up by its name."""
    return api.Result(
        task=result.task,
        sequence=result.sequence,
        state=result.state,
        code=result.code,
        output=result.output,
        message=result.message,
        executor=result.executor,
        started_at=result.started_at,
        ended_at=result.ended_at,
    )


def task_body(view: TaskView, state: TaskState) -> api.TaskBody:
    """Return one task."""
    ended = () if view.result is None else (view.result,)
    return body_of(api.TaskBody, *ended, view, state=state, **({} if ended else {"started_at": view.claimed_at}))


def application_body(application: Application) -> api.ApplicationBody:
    """Return an application."""
    return body_of(
        api.ApplicationBody,
        application,
        enabled=application.state is ApplicationState.ENABLED,
        built_in=application.name in _BUILT_IN,
    )


def _free(fleet: Fleet, card: int) -> Grant:
    """Return the part of a card that is free; 0 where more is held than there is."""
    compute, vram = max(0, int(fleet.compute_free[card])), max(0, int(fleet.vram_free[card]))
    return Grant.amounts(fleet.cards[card], compute, vram)


def _free_ppm(fleet: Fleet, card: int) -> int:
    """Return the largest fraction of a card that is free, in millionths, rounded down."""
    if None in fleet.holders[card].values():
        return 0
    pairs = (
        (int(fleet.compute_free[card]), int(fleet.compute_total[card])),
        (int(fleet.vram_free[card]), int(fleet.vram_total[card])),
    )
    return min(max(0, free) * PPM // total for free, total in pairs if total)


def _limit_text(limit: Limit) -> str | None:
    """Return a limit as its text; an unlimited dimension is left out."""
    amounts = (limit.cpu_milli, limit.memory_bytes, limit.gpu_milli)
    whole = str(Resources(*(amount or 0 for amount in amounts))).split(",")
    named = [text for text, amount in zip(whole, amounts, strict=True) if amount is not None]
    return ",".join(named) or None


def _age(executor: ExecutorRecord) -> tuple[float, str]:
    return (executor.created_at, executor.id)
