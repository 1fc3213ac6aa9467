"""Admission of gated pods: in which order gates open, and which places are reserved meanwhile.

A gate only decides the order. The scheduler decides where a pod runs. So a gate opens only once a place is reserved:
a nomination with `hold`, in the same books that the scheduler is answered from. For a gang all places are reserved in
one step, or none. A reservation ends when the pod has its cards, is gone, or was not placed in time. In the last case
its scheduler has reasons that are not known here, and another place is tried.

Nothing is stored: reservations follow from pods whose gate is open and that are on no node. Pods without a
kube-scheduler have no gate to open: they wait here until they are bound to the node of their promise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.core.admitting.turns import AdmissionBoard, Held, Running, Turns, Unit, in_order, may_hold, next_turns
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.rules import Rules
from ullage.model.claim import GangClaim, Request
from ullage.model.nomination import Nomination
from ullage.model.queue import Queue
from ullage.model.rejection import Cure
from ullage.model.request import ResourceRequirement
from ullage.service.cluster import Cluster
from ullage.service.gated import GatedPod, Members, QueueFigures, Standing, holds
from ullage.service.kept_away import KeptAway, Repelling
from ullage.service.place_search import PlaceSearch
from ullage.service.queue_holdings import QueueHoldings, QueueOf
from ullage.service.queue_report import QueueReport

OPEN_S = 60.0
"""Seconds for which a place is reserved for a pod whose gate is open, until its scheduler has placed it."""

AVOID_S = 300.0
"""Seconds for which a place is not reserved again for a pod that was not placed there."""

RESERVE_AFTER_S = 300.0
"""Seconds that the first pod of a queue waits before room that is not free yet is reserved for it."""

MOST_OPEN = 128
"""The most pods with a promised place that they have not taken; a gang is never split.

After that many pods in a row were not placed in time, one is admitted at a time: their scheduler may not run.
"""

_MAX_REQUIREMENTS = 4096


@dataclass(frozen=True, slots=True)
class GateTerms:
    """Seconds for which a place waits for its pod, seconds before room is reserved, and the most places at a time."""

    open_s: float = OPEN_S
    reserve_after_s: float = RESERVE_AFTER_S
    most_open: int = MOST_OPEN


GATE_TERMS = GateTerms()


class Gates:
    """Pods that wait, and admitted pods that are on no node yet. Every call is idempotent.

    `queue_of` returns the queue of a holder of cards. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue_of: QueueOf,
        clock: Callable[[], float],
        queues: Sequence[Queue] = (),
        *,
        now: Callable[[], float] = time.time,
        terms: GateTerms = GATE_TERMS,
        repelling: Repelling | None = None,
    ) -> None:
        self._cluster, self._queues, self._holdings = cluster, tuple(queues), QueueHoldings(queue_of)
        self._queue_of, self._kept_away = queue_of, KeptAway(cluster, repelling)
        self._clock, self._now = clock, now
        self._open_s, self._reserve_after_s, self._most_open = terms.open_s, terms.reserve_after_s, terms.most_open
        self._pods: dict[str, GatedPod] = {}
        self._running: dict[str, tuple[GangClaim, str]] = {}
        """The gang and the node of each member that has its cards."""
        self._reserved: dict[str, str] = {}
        """The node on which room is reserved for a waiting pod."""
        self._search = PlaceSearch(cluster, self._kept_away, pods=self._pods, running=self._running, now=now)
        self._requirements: dict[ResourceRequirement, ResourceRequirement] = {}
        self._report = QueueReport(self._pods, now)
        self._missed = 0
        """Pods that were not placed in time since the last one that was placed."""
        self._changes = 0
        self._seen: tuple[tuple[int, int], int, Fleet, Rules] | None = None
        self._due: float | None = None
        cluster.restrict(self._search.near)

    # --- pods ---

    def check(self, request: Request) -> None:
        """Refuse a request that cannot be ordered.

        Raises:
            InvalidRequest: its strategy is not known.

        """
        self._cluster.allocator.rules.strategy_of(request)

    def wait(self, request: Request, queue: str) -> None:
        """Add a pod whose gate is closed."""
        known = self._pods.get(request.uid)
        if known is not None and known.gated and (known.request, known.queue) == (request, queue):
            return
        self.drop(request.uid)
        self._changes += 1
        self._pods[request.uid] = GatedPod(self._with_shared_requirement(request), queue, gated=True)

    def opened(self, request: Request, queue: str, node: str) -> None:
        """Add a pod whose gate is open and that is on no node. `node` is its place when the gate opened."""
        known = self._pods.get(request.uid)
        if known is not None and not known.gated:
            return
        self._changes += 1
        if known is None or known.promise is None:
            self._pods[request.uid] = GatedPod(self._with_shared_requirement(request), queue, gated=False, hint=node)
            self._running.pop(request.uid, None)
            return
        known.gated, known.until = False, self._clock() + self._open_s
        self._report.count(known)

    def placed(self, uid: str, gang: GangClaim | None = None, node: str = "") -> None:
        """Note that a pod has its node. A member of a gang counts towards the quorum until it is dropped."""
        pod = self._pods.get(uid)
        if pod is not None:
            if pod.gated and pod.promise is not None:
                self._report.count(pod)
            self._missed = 0
            self._forget(uid)
        running = None if gang is None else (gang, node)
        if self._running.get(uid) != running:
            self.drop(uid)
            if running is not None:
                self._running[uid] = running
                self._changes += 1

    def refused(self, uid: str) -> None:
        """Note that a pod could not be bound to the node of its promise, which is not tried again for a while."""
        pod = self._pods.get(uid)
        if pod is not None and pod.promise is not None:
            pod.avoided[pod.promise.node] = self._clock() + AVOID_S
            self._take_back(uid, pod)

    def _with_shared_requirement(self, request: Request) -> Request:
        """Return the request, sharing its requirement with equal ones: requirements are compared in every step."""
        if len(self._requirements) >= _MAX_REQUIREMENTS:
            self._requirements.clear()
        asked = self._requirements.setdefault(request.requirement, request.requirement)
        return request if asked is request.requirement else replace(request, requirement=asked)

    def drop(self, uid: str) -> None:
        """Remove a pod that is gone or not ours. Nothing is reserved for it any more."""
        self._changes += self._running.pop(uid, None) is not None
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        self._report.refused.pop(uid, None)
        if known is None:
            return
        self._changes += 1
        if known.promise is not None or self._reserved.pop(uid, None) is not None:
            self._cluster.withdraw(uid)

    def begin(self) -> None:
        """Start again with these pods. Places are reserved only for pods whose gate is open, the oldest first."""
        for uid, pod in self._pods.items():
            pod.promise, pod.avoided = None, {}
            self._cluster.withdraw(uid)
        self._reserved.clear()
        self._seen = None
        self._promise_to_open()

    def queues_changed(self) -> None:
        """Read the queues of namespaces again."""
        self._holdings.forget()
        self._changes += 1

    # --- decisions ---

    def step(self) -> list[tuple[str, str]]:
        """Promise places in the order of admission. Return the pods that were not placed in time, and where.

        Raises:
            Unavailable: the books are not ready.

        """
        self._cluster.expire()
        lapsed = self._withdraw_expired()
        if self._is_new():
            self._withdraw_invalid()
            self._promise_to_open()
            self._promise_room()
            self._admit()
            self._seen = self._books()
        return lapsed

    def in_order(self, requests: Iterable[Request]) -> list[str]:
        """Return the order of admission of waiting requests whose gate is not ours, by uid."""
        units = [Unit(each.uid, self._queue_of(each.claim), (each,), each.claim.created_at) for each in requests]
        return [unit.key for unit in in_order(self._board(self._promised()), units, self._now())]

    def keep(self, request: Request, node: str) -> bool:
        """Reserve a place on a node for a pod that can only run there. Return whether there is one."""
        pod = self._pods.get(request.uid)
        if pod is None or pod.promise is None:
            return bool(self._cluster.offers(request, [node]).names)
        row = self._cluster.allocator.fleet.row_of.get(node)
        choice = None if row is None else self._search.choose(pod, [row])
        if choice is not None:
            self._promise(pod, choice)
        return choice is not None

    @property
    def has_news(self) -> bool:
        """Whether the books or the pods have changed since the last step."""
        self._cluster.expire()
        return self._is_new()

    def wake_in_s(self) -> float | None:
        """Return the seconds until time alone changes something; None if it never does."""
        ends = [pod.until - self._clock() for pod in self._pods.values() if pod.promise is not None]
        ends += [end - self._clock() for pod in self._pods.values() for end in pod.avoided.values()]
        ends += [self._due - self._now()] if self._due is not None else []
        return max(0.0, min(ends)) if ends else None

    def places(self) -> dict[str, str]:
        """Return the node of each reserved place that its pod has not taken; the gate of the pod may be open."""
        return {uid: pod.promise.node for uid, pod in self._pods.items() if pod.promise is not None}

    def standings(self) -> Mapping[str, Standing]:
        """Return the positions of waiting pods, as of the last step."""
        return self._report.standings(self._reserved)

    def waiting(self, uid: str) -> Request | None:
        """Return the request of a pod that is not admitted yet."""
        pod = self._pods.get(uid)
        return None if pod is None or not pod.waits else pod.request

    def refusals(self) -> Mapping[str, Refusal]:
        """Return why waiting pods are not admitted, as of the last step, where that is known."""
        return self._report.refused

    def held(self) -> Held:
        """Return what each queue holds in the books now."""
        return self._holdings.of(self._cluster.allocator.fleet)

    def figures(self) -> dict[str, QueueFigures]:
        """Return the figures of the queues."""
        return self._report.figures()

    # --- steps ---

    def _books(self) -> tuple[tuple[int, int], int, Fleet, Rules]:
        books = self._cluster.allocator
        return self._cluster.version, self._changes, books.fleet, books.rules

    def _is_new(self) -> bool:
        due = self._due is not None and self._due <= self._now()
        return bool(self._pods) and (due or self._seen is None or self._seen != self._books())

    def _withdraw_expired(self) -> list[tuple[str, str]]:
        """End promises that no pod took in time, and try nodes again that were avoided long enough."""
        clock, found = self._clock(), list[tuple[str, str]]()
        for uid, pod in self._pods.items():
            ended = [node for node, end in pod.avoided.items() if end <= clock]
            for node in ended:
                del pod.avoided[node]
                self._changes += 1
            if pod.promise is None or pod.until > clock:
                continue
            if uid in self._cluster.allocator.fleet.ledger:
                pod.until = clock + self._open_s  # it is being placed
            else:
                found.append((uid, pod.promise.node))
                if not pod.gated:
                    pod.avoided[pod.promise.node] = clock + AVOID_S
                self._report.of(pod.queue).returned += pod.counts
                self._missed += pod.counts
                self._take_back(uid, pod)
        return found

    def _take_back(self, uid: str, pod: GatedPod) -> None:
        pod.promise = None
        self._changes += 1
        self._cluster.withdraw(uid)

    def _withdraw_invalid(self) -> None:
        """End promises that no longer hold: the node is gone or refuses such pods, or a gang lacks members."""
        fleet, nominations = self._cluster.allocator.fleet, self._cluster.allocator.nominations
        for uid, pod in self._pods.items():
            if pod.promise is None or uid in fleet.ledger:
                continue
            if not holds(fleet, pod.promise) or pod.promise.node in self._cluster.rejected_by(pod.request):
                self._take_back(uid, pod)
            elif nominations.of(uid) != pod.promise:  # it was to be placed, and that failed
                self._cluster.promise(pod.promise)
        for pod in self._members().broken():
            self._take_back(pod.request.uid, pod)

    def _promise_to_open(self) -> None:
        """Promise places to pods whose gate is open and that have none, the oldest first: they were admitted before.

        A pod without a place is placed as soon as its scheduler asks and there is room.
        """
        waiting = [pod for pod in self._pods.values() if not pod.gated and pod.promise is None]
        for pod in sorted(waiting, key=lambda pod: pod.age)[: self._most_open]:
            if pod.request.uid in self._cluster.allocator.fleet.ledger:
                continue
            choice = self._search.place(pod)
            if choice is not None:
                self._promise(pod, choice)

    def _promise_room(self) -> None:
        """Promise the room that was made for waiting pods, once others have left it; that of a gang to enough members.

        A queue that has reached its limit meanwhile gets none.
        """
        for key, places in self._rooms_made().items():
            pods = [pod for pod, _ in places]
            first, *_ = pods
            lacking = 1 if first.request.claim.gang is None else self._members().lacking(key)
            if len(pods) < lacking:
                continue
            choices = [self._search.choose(pod, [row]) for pod, row in places]
            board, asked = self._board(self._promised()), [pod.request for pod in pods]
            if not may_hold(board, first.queue, asked, self._now()):
                continue
            found = [(pod, choice) for pod, choice in zip(pods, choices, strict=True) if choice is not None]
            for pod, choice in found if len(found) == len(pods) else ():
                self._promise(pod, choice)

    def _rooms_made(self) -> dict[str, list[tuple[GatedPod, int]]]:
        """Return the waiting pods for which room was made, with the row of their node; those of a gang together."""
        rows, made = self._cluster.allocator.fleet.row_of, dict[str, list[tuple[GatedPod, int]]]()
        for pod, kept in self._with_room_made():
            gang, row = pod.request.claim.gang, rows.get(kept.node)
            if row is not None:
                made.setdefault(pod.request.uid if gang is None else gang.key, []).append((pod, row))
        return made

    def _with_room_made(self) -> Iterator[tuple[GatedPod, Nomination]]:
        for kept in self._cluster.allocator.nominations.entries:
            pod = self._pods.get(kept.request.uid)
            if kept.first_come and pod is not None and pod.waits:
                yield pod, kept

    def short_of_room(self) -> list[Unit]:
        """Return who waits for room that others could make, by priority; no gang with subgroups or a fixed domain."""
        units, _ = self._units()
        short = (unit for unit in units if unit.quorum is None and self._lacks_room(unit.requests))
        return sorted(short, key=lambda unit: (-unit.priority, unit.since))

    def _lacks_room(self, requests: Sequence[Request]) -> bool:
        first, *_ = requests
        gang, refusal = first.claim.gang, self._report.refused.get(first.uid)
        if gang is not None and (gang.divided or any(within is not None for within in gang.required_levels)):
            return False
        cures = () if refusal is None or not refusal.curable else (each.cure for each in refusal.rejections)
        return next(iter(cures), None) is Cure.CAPACITY

    def may_gain_room(self, requests: Sequence[Request]) -> bool:
        """Return whether all of these still wait, and the limits allow them beside the room that is made for others.

        A pod that could not be placed where it had room gets none of others: it may be refused there too.
        """
        own = {each.uid: pod for each in requests if (pod := self._pods.get(each.uid)) is not None and pod.waits}
        if len(own) < len(requests) or any(pod.avoided for pod in own.values()):
            return False
        first = next(iter(own.values()))
        taken = [(pod.queue, kept) for pod, kept in self._with_room_made() if kept.request.uid not in own]
        return may_hold(self._board([*taken, *self._promised()]), first.queue, requests, self._now())

    def _promise(self, pod: GatedPod, choice: Choice) -> None:
        pod.promise = Nomination(pod.request, choice.node, self._now(), choice.gpus, charges=choice.charges, hold=True)
        pod.until = self._clock() + self._open_s
        self._reserved.pop(pod.request.uid, None)
        self._cluster.promise(pod.promise)

    def _admit(self) -> None:
        """Promise places in the order of admission, and reserve room for pods that have waited too long."""
        promised = self._promised()
        units, standing = self._units()
        turns = next_turns(
            self._board(promised),
            units,
            self._now(),
            reserve_after_s=self._reserve_after_s,
            most=max(0, (self._most_open if self._missed < self._most_open else 1) - len(promised)),
        )
        for _, choices in turns.granted:
            for uid, choice in choices.items():
                self._promise(self._pods[uid], choice)
        self._reserve(turns)
        self._due = turns.due
        for name, share in turns.shares.items():
            self._report.of(name).share = share
        for unit in units:
            if (refusal := turns.refused.get(unit.key)) is not None:
                for request in unit.requests:
                    kept = None if refusal.curable else self._kept_away.why(self._pods[request.uid])
                    standing[request.uid] = kept or refusal
        self._report.remember(standing)

    def _promised(self) -> list[tuple[str, Nomination]]:
        """Return the promised places that are not taken yet, each with its queue."""
        ledger = self._cluster.allocator.fleet.ledger
        return [
            (pod.queue, pod.promise) for uid, pod in self._pods.items() if pod.promise is not None and uid not in ledger
        ]

    def _board(self, promised: Sequence[tuple[str, Nomination]]) -> AdmissionBoard:
        books = self._cluster.allocator
        own = (*(each.request.uid for _, each in promised), *self._reserved)
        return AdmissionBoard(
            books.fleet,
            books.rules,
            self._queues,
            self._holdings.of(books.fleet),
            promised=promised,
            nominations=books.nominations.without(*own),
            before=frozenset(self._reserved.values()),
            running=self._running_by_gang(),
        )

    def _reserve(self, turns: Turns) -> None:
        found = [entry for each in turns.reserved.values() for entry in each]
        entries = {entry.request.uid: entry for entry in found if entry.gpus}
        for uid in self._reserved.keys() - entries.keys():
            self._cluster.withdraw(uid)
        self._reserved = {entry.request.uid: entry.node for entry in found}
        for uid, entry in entries.items():
            known = self._cluster.allocator.nominations.of(uid)
            if known is None or replace(known, since=entry.since) != entry:
                self._cluster.promise(entry)

    def _units(self) -> tuple[list[Unit], dict[str, Refusal]]:
        """Return the units that may be admitted now, and why other pods may not."""
        units, held_back = self._members().units(self._cluster.allocator.fleet)
        units += [pod.alone for pod in self._pods.values() if pod.waits and pod.request.claim.gang is None]
        if self._kept_away.from_some(self._pods.values()):
            units = [unit.with_requests(self._search.elsewhere) for unit in units]
        return units, held_back

    def _members(self) -> Members:
        return Members(self._pods, self._running_by_gang())

    def _running_by_gang(self) -> Running:
        found: dict[str, list[tuple[GangClaim, str]]] = {}
        for gang, node in self._running.values():
            found.setdefault(gang.key, []).append((gang, node))
        return found
