"""Service state as response bodies, one function per body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import Reasons
from ullage.core.explaining.zone_warning import weaker_predictions
from ullage.core.learning.fragmentation import NOTHING, IdleCards, fits_now, fragments_of
from ullage.model.application import BUILT_IN, Application, ApplicationState
from ullage.model.array import Array
from ullage.model.event import Event
from ullage.model.nearest import Missing
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.model.task import TaskResult, TaskState
from ullage.server.fair_share import past_use_of_queues, past_use_texts
from ullage.server.placements import placement_body
from ullage.server.rejections import rejection_body
from ullage.server.session_facts import SessionFacts, SessionReasons, session_facts
from ullage.server.session_list import foremost
from ullage.server.session_warnings import warning_session
from ullage.server.snapshot import StateSnapshot, gpu_body, node_body, node_facts, queue_bodies, session_in
from ullage.service.card_use import Sample
from ullage.service.service import UllageService
from ullage.service.state import ExecutorRecord, SessionRecord
from ullage.service.store_port import TaskView
from ullage.wire.body import body_of
from ullage.wire.catalog import ApplicationBody, QueueBody
from ullage.wire.explanation import Explanation, HolderBody
from ullage.wire.load import CardUseBody, LoadBody
from ullage.wire.node import ExecutorBody, NodeBody
from ullage.wire.node_topology import PlacedCardBody, TopologyBody, placed_card, topology_body
from ullage.wire.overview import IdleBody, Overview, RoomBody, ServerBody
from ullage.wire.session import Result, SessionBody, TaskBody

_BUILT_IN = frozenset(application.name for application in BUILT_IN)

OneSession: TypeAlias = SessionBody | Callable[[], SessionBody]
"""A session, or a function that a thread calls for it where its reason takes long."""


class Answers:
    """Reads the service's state; changes nothing."""

    def __init__(self, service: UllageService, server: ServerBody, notes: dict[str, str]) -> None:
        self._service = service
        self.server = server
        self._notes = notes

    def snapshot(self) -> StateSnapshot:
        """Return the state now, for a long page."""
        return StateSnapshot.of(self._service, self._notes)

    def sessions(self, records: Iterable[SessionRecord]) -> Callable[[], list[SessionBody]]:
        """Return a function for a thread that returns these sessions as they are now."""
        state = self._service.state
        reasons = SessionReasons(state.fleet.copy(apart=True), self._service.policy, state)
        found = [SessionFacts.of(record) for record in records]
        return lambda: [reasons.body(facts) for facts in found]

    def session(self, record: SessionRecord) -> OneSession:
        """Return a session; for a request that can never be placed, with the reason."""
        return self._session(record, lambda _fleet: [])

    def opened(self, record: SessionRecord) -> OneSession:
        """Return a session for the response to its creation or change, with warnings."""
        return self._session(record, warning_session(self._service, record))

    def _session(self, record: SessionRecord, warn: Callable[[Fleet], list[str]]) -> OneSession:
        """Return a session. Why no node can take a request is looked for in a thread: every node has its reason."""
        state, policy, facts = self._service.state, self._service.policy, SessionFacts.of(record)
        is_long = SessionReasons(state.fleet, policy, state).reason(facts) is Code.TOO_LARGE
        books = state.fleet.copy(apart=True) if is_long else state.fleet
        reasons = SessionReasons(books, policy, state)

        def body() -> SessionBody:
            return msgspec.structs.replace(reasons.body(facts), warnings=warn(books))

        return body if is_long else body()

    def executors(self, records: Iterable[ExecutorRecord]) -> list[ExecutorBody]:
        """Return these worker processes, the oldest first."""
        return [
            body_of(
                ExecutorBody,
                executor,
                resreq=str(executor.requirement),
                tasks_running=len(executor.tasks),
                gang=executor.gang.id if executor.gang else None,
                placement=placement_body(executor.placement),
            )
            for executor in sorted(records, key=_age)
        ]

    def node(self, node: Node) -> NodeBody:
        """Return a machine with its usage."""
        (facts,) = node_facts(self._service, self._notes, [node.name])
        return node_body(self._service.state.fleet, facts)

    def topology(self, name: str) -> TopologyBody:
        """Return the topology of a machine.

        Raises:
            NotFound: the node does not exist.

        """
        state = self._service.state
        if name not in state.nodes:
            raise Missing("node", name, state.nodes)
        fleet = state.fleet
        cards = sorted(fleet.cards_on(fleet.row_of[name]), key=lambda card: fleet.cards[card].index)
        here = [held.placement for held in fleet.ledger.values() if held.node == name and held.placement]
        held_cpus = {cpu for placement in here for cpu in placement.cpus}
        return topology_body(state.nodes[name], map(self._placed, cards), held_cpus)

    def _placed(self, card: int) -> PlacedCardBody:
        state = self._service.state
        body = gpu_body(state.fleet, card, lambda uid: session_in(state, uid))
        holders = (holder.session or holder.executor for holder in body.holders)
        return placed_card(state.fleet.cards[card], body.free.fraction, tuple(holders))

    def queues(self) -> list[QueueBody]:
        """Return the share tree; see `queue_bodies`."""
        state = self._service.state
        return queue_bodies(state.fleet, state.queues, session_facts(state), past_use_of_queues(self._service))

    def applications(self) -> list[ApplicationBody]:
        """Return applications by name."""
        return [application_body(app) for _, app in sorted(self._service.state.applications.items())]

    def explanation(self, session: str, evicted: Event | None) -> Callable[[], Explanation]:
        """Return a function for a thread that returns the response to `why`.

        `evicted` is the newest eviction of the session.

        Raises:
            NotFound: no such session.

        """
        explain, past_use = self._service.explaining(session), past_use_texts(self._service, session)
        owners = {name: record.session.spec.owner for name, record in self._service.state.sessions.items()}
        fleet = self._service.state.fleet
        return lambda: msgspec.structs.replace(_explanation(fleet, owners, explain(), evicted), past_use=past_use)

    def overview(self, at: float, most: int | None = None, owner: str | None = None) -> Callable[[], Overview]:
        """Return a function for a thread that returns the whole state, without closed sessions.

        At most `most` sessions are in it, with an `owner` only those of that user: first those that have executors,
        then those that wait.
        """
        snapshot, room, server = self.snapshot(), self.room(), self.server
        visible = [facts for facts in snapshot.session_facts if owner in (None, facts.info.spec.owner)]
        shown = foremost(visible, most)
        return lambda: Overview(
            at=at,
            server=server,
            nodes=snapshot.nodes(),
            gpus=snapshot.gpus(),
            room=room,
            queues=snapshot.queues(),
            sessions=snapshot.bodies(shown),
            sessions_open=sum(facts.open for facts in visible),
        )

    def card_use(self) -> Callable[[], LoadBody]:
        """Return a function for a thread that returns the use of all cards over the last hour."""
        samples, fleet = self._service.card_use.samples, self._service.state.fleet
        uuids = [
            fleet.cards[card].uuid
            for row in range(len(fleet.nodes))
            for card in sorted(fleet.cards_on(row), key=lambda card: fleet.cards[card].index)
        ]
        return lambda: LoadBody(
            at=[sample.at for sample in samples], cards=[card_use_body(uuid, samples) for uuid in uuids]
        )

    def room(self) -> RoomBody:
        """Return the idle capacity, its fragments, and how many requests for whole cards fit."""
        fleet, learning = self._service.state.fleet, self._service.learning
        found = fragments_of(fleet, learning.workload or NOTHING)
        known = learning.workload is not None and not learning.missing

        def milli(idle: IdleCards) -> int | None:
            return round(idle.fragments_milli) if known else None

        total = found.total()
        return RoomBody(
            idle_milli=round(total.idle_milli),
            fragments_milli=milli(total),
            models=[
                IdleBody(model=model or None, idle_milli=round(idle.idle_milli), fragments_milli=milli(idle))
                for model, idle in found.by_model().items()
            ],
            fits=fits_now(fleet),
            tasks=learning.seen,
            missing=learning.missing,
        )


def _explanation(fleet: Fleet, owners: Mapping[str, str], reasons: Reasons, evicted: Event | None) -> Explanation:
    """Return an explanation. This reads only the inventory of the books, which is immutable."""
    refusing = [refusal.node for refusal in reasons.rejections if refusal.of_zones and refusal.node is not None]
    return body_of(
        Explanation,
        reasons,
        rejections=[rejection_body(each) for each in reasons.rejections],
        holders=[
            body_of(HolderBody, each, owner=owners.get(each.session, ""), amount=str(each.amount))
            for each in reasons.holders
        ],
        warnings=[*reasons.warnings, *weaker_predictions(fleet, refusing)],
        evicted=evicted,
    )


def result_body(result: TaskResult) -> Result:
    """Return the result of a task. It names each field: clients fetch thousands a second, and `body_of` is slower."""
    return Result(
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


def task_body(view: TaskView, state: TaskState, array: Array | None) -> TaskBody:
    """Return one task; `array` is that of its session."""
    ended = () if view.result is None else (view.result,)
    started = {} if ended else {"started_at": view.claimed_at}
    return body_of(TaskBody, *ended, view, state=state, index=array and array.index_of(view.task), **started)


def card_use_body(uuid: str, samples: Sequence[Sample]) -> CardUseBody:
    """Return what is known of one card at each sample."""
    held = [sample.held.get(uuid) for sample in samples]
    loads = [sample.load.get(uuid) for sample in samples]
    compute = [None if load is None else load.compute_percent for load in loads]
    return CardUseBody(
        uuid=uuid,
        held=[None if part is None else round(part, 4) for part in held],
        compute=[None if percent is None else percent / 100 for percent in compute],
        memory_bytes=[None if load is None else load.memory_bytes for load in loads],
        measured=any(load is not None for load in loads),
    )


def application_body(application: Application) -> ApplicationBody:
    """Return an application."""
    return body_of(
        ApplicationBody,
        application,
        enabled=application.state is ApplicationState.ENABLED,
        built_in=application.name in _BUILT_IN,
    )


def _age(executor: ExecutorRecord) -> tuple[float, str]:
    return (executor.created_at, executor.id)
