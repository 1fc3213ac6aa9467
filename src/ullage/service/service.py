"""The service: all use cases over one state, one loop, one engine and one store.

Everything here runs on one thread. Calls change memory at once, and are answered when the change is durable. Time has
an effect only in `tick`, so that tests control the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import Reasons
from ullage.core.learning.learned import Later, Learning, at_once
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.topology.rules import AS_USUAL, ZoneRules
from ullage.model.error import Unavailable
from ullage.model.event import Event
from ullage.model.guarantees import distinct, unmet_guarantees
from ullage.model.past_use import HalfLife
from ullage.model.profile import Profiles
from ullage.model.profiles import SHIPPED
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.task import TaskState
from ullage.model.topology import ZonePolicy
from ullage.service.access_rules import NO_RULES, AccessRules
from ullage.service.access_tokens import AccessTokens
from ullage.service.accounting import Accounting
from ullage.service.allocations import AllocationRequests
from ullage.service.card_use import CardUse
from ullage.service.catalog import Catalog
from ullage.service.consolidation import Consolidations
from ullage.service.context import ServiceContext
from ullage.service.dependencies import text_of_waits, with_dependencies
from ullage.service.dispatch import Dispatcher
from ullage.service.early_signals import EarlySignals
from ullage.service.ended import with_ends
from ullage.service.engine_port import (
    Completed,
    Engine,
    EngineEvent,
    ExecutorBound,
    ExecutorGone,
    NodeLost,
    NodeReported,
    Registered,
    Returned,
    Unbound,
)
from ullage.service.events import Events
from ullage.service.executors import Executors
from ullage.service.fair_share import fair_share_of
from ullage.service.gangs import GangRequests
from ullage.service.journal import Callback, Journal, in_one_write
from ullage.service.loop import Loop
from ullage.service.nested_waits import nested_waits, with_nested
from ullage.service.news import News
from ullage.service.nodes import Nodes
from ullage.service.nominations import NominatedRequests
from ullage.service.observations import Observations
from ullage.service.preemption import Preemptions
from ullage.service.quotas import NamespaceQuotas
from ullage.service.relearning import relearn
from ullage.service.requeue import Requeue
from ullage.service.sessions import Sessions
from ullage.service.start_failures import with_failures
from ullage.service.starts import Starts
from ullage.service.state import SessionRecord, State, Submission, TaskRecord
from ullage.service.stop_rules import USUAL_STOPS, StopRules
from ullage.service.store_port import Drop, PutExecutor, Record, Snapshot, Store, StoredSession
from ullage.service.system_users import SystemUsers
from ullage.service.tasks import Tasks
from ullage.service.terminals import Terminals
from ullage.service.unmet_guarantees import with_unmet
from ullage.service.unstored import UnstoredRequests
from ullage.service.waits import Waits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of a service.

    `requests` are the rules for requests, `numa` is the alignment of requests that state none, and `zone_rules` say how
    zones are judged, `access` who may do what, and `stops` how long an ended task may clean up. `notify_hosts` are the
    patterns of hosts that notices may be sent to. With no `default_requirement` the built-in one applies. With a
    `half_life` past use changes weights.
    """

    policy: Policy = field(default_factory=Policy)
    queues: Iterable[Queue] = ()
    default_requirement: ResourceRequirement | None = None
    requests: Rules | None = None
    profiles: Profiles = SHIPPED
    numa: ZonePolicy | None = None
    zone_rules: ZoneRules = AS_USUAL
    notify_hosts: Sequence[str] = ("*",)
    access: AccessRules = NO_RULES
    stops: StopRules = USUAL_STOPS
    half_life: HalfLife | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceHost:
    """What the process of a service gives it.

    `clock` is the time in seconds since 1970, `wake` runs a callback on the thread of the service, and `on_failure`
    must end the process. `later` runs what is learned from requests (see `core/learning/learned.py`). `on_change` is
    called when a turn of `tick` is needed: soon, or with True at once. `on_event` is called with each event.
    """

    clock: Callable[[], float]
    wake: Callable[[Callback], object]
    on_failure: Callable[[BaseException], None]
    later: Later = at_once
    on_change: Callable[[bool], None] = lambda _urgent: None
    on_event: Callable[[Event], None] = lambda _event: None


class UllageService:
    """All use cases."""

    def __init__(self, store: Store, engine: Engine, settings: ServiceSettings, host: ServiceHost) -> None:
        self.learning, self.news, self.store = Learning(host.later), News(), store
        self.policy, self.numa, self.access = settings.policy, settings.numa, settings.access
        self.system_users = SystemUsers()
        self.state = _empty_state(settings, self.learning)
        self._clock, self._on_change = host.clock, host.on_change
        self.unstored = UnstoredRequests()
        self._journal = Journal(store, host.wake, host.on_failure, self._room_changed, follow=self._records_of)
        self.events = Events(self._journal, self.news, host.clock, host.on_event)
        self.accounting = Accounting(self.state, self._journal, host.clock, settings.half_life)
        self.fair_share = fair_share_of(self.state, self.accounting, host.clock, host.later, changed=self._changed)
        context = ServiceContext(
            state=self.state,
            store=store,
            journal=self._journal,
            engine=engine,
            events=self.events,
            accounting=self.accounting,
            news=self.news,
            policy=settings.policy,
            clock=host.clock,
            changed=self._changed,
        )
        self._dispatcher = Dispatcher(context)
        self.tasks = Tasks(context, self._dispatcher)
        self.executors = Executors(context, self.tasks, self._dispatcher)
        self.sessions = Sessions(
            context,
            self.tasks,
            self.executors.release_all,
            default_requirement=settings.default_requirement,
            notify_hosts=settings.notify_hosts,
        )
        self.requeue = Requeue(context, self.sessions, self.tasks)
        self.nodes = Nodes(context, self.executors.give_up)
        self._nominated = NominatedRequests(context)
        self.gangs = GangRequests(context, self._nominated)
        self.allocations = AllocationRequests(context, self._nominated, self.gangs.leave)
        self.preemptions = Preemptions(context, self.allocations, self._nominated)
        self.consolidations, self.observations = Consolidations(context, self._nominated), Observations(context)
        self.quotas, self.tokens = NamespaceQuotas(context), AccessTokens(context)
        self.card_use, self._early_signals = CardUse(), EarlySignals(context)
        self.catalog = Catalog(context, self.sessions.forget, self.quotas.follow)
        self._waits = Waits(context)
        self.loop = Loop(context, self.executors, self._waits, self.fair_share)
        self.starts, self.terminals = Starts(context, self.loop), Terminals(self.state, self.tasks, engine, self.events)
        self._recover(store.load(), self._journal)
        self.catalog.install(settings.queues)
        self.sessions.resume()

    # --- facts ---

    @in_one_write
    def on_engine_event(self, event: EngineEvent) -> None:
        """Take one report of the engine."""
        if isinstance(event, Completed):
            self.executors.completed(event)
        elif isinstance(event, Registered):
            self.executors.registered(event)
        elif isinstance(event, ExecutorBound):
            self.executors.bound(event)
        elif isinstance(event, Returned):
            self.executors.returned(event)
        elif isinstance(event, Unbound):
            self.executors.unbound(event)
        elif isinstance(event, ExecutorGone):
            self.executors.gone(event)
        elif isinstance(event, NodeReported):
            self.nodes.reported(event.node)
        elif isinstance(event, NodeLost):
            self.nodes.lost(event.node)
        else:
            assert_never(event)

    @property
    def no_room(self) -> Unavailable | None:
        """Why new work is refused: the disk is full, and reading goes on; or the store failed. None if neither is."""
        return self._journal.no_room

    def _records_of(self, records: Sequence[Record]) -> list[Record]:
        """Return the rows of the history that follow from records."""
        return self.accounting.of_records(records)

    def _room_changed(self) -> None:
        """End requests that wait for a full disk, or continue with accepted work when it has room again."""
        if self._journal.no_room is not None:
            self.unstored.end_all()
            return
        for record in self.state.sessions.values():
            self._dispatcher.dispatch(record)
        self._changed(True)

    @in_one_write
    def tick(self) -> float | None:
        """Do what is due by now, and run a cycle if anything changed. Return when the next call is due."""
        if self._journal.no_room is not None:
            return None  # `_room_changed` asks for the next turn
        now = self._clock()
        due = [
            self.allocations.expire(now),
            self._nominated.expire(now),
            self.gangs.expire(now),  # after what time frees
            self.nodes.expire(now),
            self.tasks.expire(now),
            self._early_signals.expire(now),
            self.executors.expire_gangs(now),
            self.executors.failures.expire(now),
            self.sessions.dependencies.expire(now),
            None if self.fair_share is None else self.fair_share.expire(now),
        ]
        self.quotas.watch()
        are_left = self.sessions.finish_closing()
        if self._wake_at is not None and self._wake_at <= now:
            self.loop.dirty = True
        if self.loop.dirty:
            plan = self.loop.run()
            self._wake_at = min((at for at in (plan.wake_at, self.loop.overdue_at()) if at is not None), default=None)
            if plan.actions:
                self._changed(True)  # what was done may have opened more; a cycle without actions is the end
            self.news.publish(News.EVERYTHING)
        if are_left:
            self._changed(False)
        due.append(self._wake_at)
        return min((at for at in due if at is not None), default=None)

    _wake_at: float | None = None

    def _changed(self, urgent: bool) -> None:
        self.loop.dirty = True
        self._on_change(urgent)

    # --- answers ---

    def explaining(self, session_id: str) -> Callable[[], Reasons]:
        """Return a function for another thread that returns why a session has what it has.

        It asks the code of the cycle about the present facts.

        Raises:
            NotFound: no such session.

        """
        record = self.state.session(session_id)
        why, info, last = self.loop.explaining(record.id, open_=record.open), record.session, record.last_failure
        waits, counts = text_of_waits(info, self.state), dict(record.counts)
        unmet = distinct(unmet_guarantees(self.state.queues.values(), self.state.fleet.total))
        nested = nested_waits(self.state, record)

        def explain() -> Reasons:
            reasons = with_dependencies(with_failures(why(), info, last), info, waits)
            return with_nested(with_unmet(with_ends(reasons, info.id, counts), unmet), nested)

        return explain

    # --- restart ---

    def _recover(self, snapshot: Snapshot, journal: Journal) -> None:
        state = self.state
        state.epoch = snapshot.epoch
        if self.fair_share is not None:  # before the stays that a crash left open end
            self.fair_share.past.read(self.store, self._clock())
        self.events.resume(snapshot.last_event)
        state.applications = {application.name: application for application in snapshot.applications}
        state.queues = {queue.name: queue for queue in snapshot.queues}
        self.nodes.resume(snapshot.nodes)
        for stored in snapshot.sessions:
            state.sessions[stored.session.id] = _session_of(stored)
            state.session_number = max(state.session_number, stored.session.number)
        state.session_number = max(state.session_number, snapshot.last_session)
        self._waits.recover(snapshot)
        self.sessions.notices.recover(snapshot)
        self.quotas.recover(snapshot)
        self.tokens.recover(snapshot)
        self.allocations.recover(snapshot)
        self.gangs.recover(snapshot)
        self.accounting.recover(snapshot)
        relearn(state.allocator, snapshot, self.store)
        for executor in snapshot.executors:
            journal.write(Drop(PutExecutor, executor.executor))


def _empty_state(settings: ServiceSettings, learning: Learning) -> State:
    fleet = Fleet((), profiles=settings.profiles, zone_rules=settings.zone_rules)
    return State(
        allocator=FleetAllocator(fleet, settings.requests, learning),
        stops=settings.stops,
        by_owner=settings.access.run_as_owner,
    )


def _session_of(stored: StoredSession) -> SessionRecord:
    """Return a stored session. Tasks that ran are pending again, because no executor outlives the server."""
    record = SessionRecord(stored.session, sequence=stored.last_sequence, durable=stored.last_sequence)
    for name, count in stored.counts.items():
        record.counts[TaskState(name)] = count
    for submission in stored.submissions:
        record.submissions[submission.submission] = Submission(submission.first, submission.count, 0, submission.shared)
        record.submission_keys[submission.key] = submission.submission
        record.next_task = max(record.next_task, submission.first + submission.count)
    tasks = [
        TaskRecord(record, t.task, t.submission, t.input, created_at=t.created_at, losses=t.losses, errors=t.errors)
        for t in stored.tasks
    ]
    for task in tasks:
        record.submissions[task.submission].left += 1
    record.counts[TaskState.PENDING] = record.counts[TaskState.RUNNING] = 0
    record.add_pending(sorted(tasks, key=lambda task: task.id))
    return record
