"""A cluster whose own scheduler picks nodes: what each can take, and which cards a request gets where it is sent.

What is true of the cluster is in its API; here are the books of it, which can be made anew from that at any
time. The scheduler asks about one request after the other, and sends each to a node some time after it has
asked about the next. So the place that a request will probably have is kept for it meanwhile, for a short time:
nobody who is asked about later is offered the same cards, and nothing is held for a request that never comes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Column, Fleet, OtherUsage
from ullage.core.books.observation import Observation, foreign_id
from ullage.core.evicting.preemption import Preemption
from ullage.core.evicting.victims import NO_BUDGETS, Budgets
from ullage.core.explaining.nowhere import nowhere
from ullage.core.explaining.nowhere_text import nowhere_text
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.offers import NodeRefusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.uneven import NO_AMOUNTS, lacking
from ullage.core.topology.rules import AS_USUAL, ZoneRules
from ullage.core.verdict.filters import charge_on
from ullage.core.verdict.quota import Quotas, asked_of
from ullage.model.affinity import ANY_NODE
from ullage.model.alignment import Alignment
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict, NotFound, invalid
from ullage.model.gpu import Gpu
from ullage.model.holding import Use
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.part import Isolation, Part
from ullage.model.profile import Profiles
from ullage.model.profiles import SHIPPED
from ullage.model.quantity import PPM
from ullage.model.quota import Quota
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.topology import ZonePolicy
from ullage.service.node_offers import NodeOffers

EXPECTED_S = 10.0
"""How long the place is kept that a request will probably have; a scheduler binds within a second or two."""

_NOWHERE: frozenset[str] = frozenset()
_REFUSED_THERE = NodeRefusal((Rejection(Code.REFUSED_THERE, Cure.NODE_CHANGE),), 0, helps=False)
_NOT_KNOWN = NodeRefusal((Rejection(Code.NODE_UNKNOWN, Cure.NODE_CHANGE),), 0, helps=False)


class _Asked(NamedTuple):
    """Names of nodes as they were asked about last, and their rows in these books, -1 where there is none."""

    fleet: Fleet
    names: Sequence[str]
    array: npt.NDArray[np.object_]
    rows: Column


class Cluster:
    """The books of a cluster. `clock` counts seconds and never goes back; `now` is the time, in seconds since 1970."""

    def __init__(
        self,
        rules: Rules,
        clock: Callable[[], float],
        now: Callable[[], float] = time.time,
        *,
        profiles: Profiles = SHIPPED,
        zone_rules: ZoneRules = AS_USUAL,
    ) -> None:
        self.allocator = FleetAllocator(
            Fleet((), profiles=profiles, zone_rules=zone_rules), replace(rules, any_pool=True)
        )
        self._clock, self._now = clock, now
        self._expected: dict[str, float] = {}
        self._owed: dict[str, Nomination] = {}
        """What was kept for those who have it reserved now, for when that comes to nothing."""
        self._shielded: dict[str, float] = {}
        """Until when those stay to whom others gave way, since 1970."""
        self._asked: _Asked | None = None
        self._left: _Asked | None = None
        """Of those that were asked about last those that would do."""
        self._held_back: dict[ResourceRequirement, frozenset[str]] = {}
        self._looks = 0
        self._other_usage: dict[str, OtherUsage] = {}
        """What pods without cards have of each node."""

    # --- what is true ---

    def set_nodes(self, nodes: Iterable[Node]) -> tuple[Allocation, ...]:
        """The nodes there are now, as `FleetAllocator.set_nodes`."""
        return self.allocator.set_nodes(nodes)

    def recover(self, allocations: Iterable[Allocation]) -> tuple[str, ...]:
        """All that the API tells to be held, whatever was held here before; from now on it decides.

        Raises:
            NotFound, Conflict: as `FleetAllocator.reconcile`.

        """
        changed = self.allocator.reconcile(allocations, self._now())
        self.allocator.set_ready()
        return changed

    def found(self, *allocations: Allocation) -> dict[str, Conflict]:
        """The API tells that these are held; by uid what one of them contradicts, see `FleetAllocator.adopt`.

        Raises:
            Conflict: an id is that of what is foreign on a node; nothing is changed then.

        """
        for allocation in allocations:
            self._forget_expected(allocation.id)
        return self.allocator.adopt(*map(self._as_shielded, allocations))

    def _as_shielded(self, allocation: Allocation) -> Allocation:
        until = self._shielded.get(allocation.id)
        if until is None or allocation.claim is None:
            return allocation
        return replace(allocation, claim=allocation.claim.shielded(until))

    def observe(self, node: str, use: Use) -> Observation:
        """A node itself shows what is held there: it goes before what was decided.

        Raises:
            NotFound: the node is not known.

        """
        found = self.allocator.observe(node, use, self._now())
        self._enter_other_usage(node)
        return found

    def set_other_usage(self, node: str, has: OtherUsage) -> None:
        """What pods without cards have of a node by now; what it shows of strangers is among it."""
        self._other_usage.pop(node, None)
        if has != OtherUsage():
            self._other_usage[node] = has
        self._enter_other_usage(node)

    def _enter_other_usage(self, node: str) -> None:
        has, shown = self._other_usage.get(node, OtherUsage()), self.allocator.fleet.ledger.get(foreign_id(node))
        if shown is not None:
            strangers = shown.requirement.cpu_milli, shown.requirement.memory_bytes, 1
            has = OtherUsage(*(max(0, amount - known) for amount, known in zip(has, strangers, strict=True)))
        self.allocator.set_other_usage(node, has)

    def leaving(self, uid: str) -> None:
        """Its owner was told to end: what it holds is free when it is gone, not before."""
        self.allocator.release(uid)

    def gone(self, uid: str) -> None:
        """Its owner is gone, or has finished."""
        self._forget_expected(uid)
        self._owed.pop(uid, None)
        self._shielded.pop(uid, None)
        self.allocator.dealloc(uid, self._now())

    def hold_back(self, uid: str) -> None:
        """The node refused it although it was thought to fit: nobody who asks the same is sent there for now."""
        known = self.held(uid)
        if known is not None:
            before = self._held_back.get(known.requirement, frozenset())
            self._held_back[known.requirement] = before | {known.node}

    def look_again(self, node: str) -> None:
        """Something has changed on a node: whom it refused may fit."""
        for asked, nodes in list(self._held_back.items()):
            if node in nodes:
                self._looks += 1
                self._held_back[asked] = nodes - {node}
                if not self._held_back[asked]:
                    del self._held_back[asked]

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever somebody may be placed who could not be before."""
        return self.allocator.version, self._looks

    @property
    def holds_back(self) -> bool:
        """Whether any node has refused somebody."""
        return bool(self._held_back)

    def kept_back(self, request: Request) -> frozenset[str]:
        """The nodes that have refused another one that asked the same."""
        return self._held_back.get(request.requirement, _NOWHERE) if self._held_back else _NOWHERE

    def held(self, uid: str) -> Allocation | None:
        """What a request holds, or has reserved."""
        return self.allocator.held(uid)

    def cards_of(self, uid: str) -> tuple[str, ...]:
        """The cards that a request holds, or for which a place is kept."""
        known = self.held(uid) or self.allocator.nominations.of(uid)
        return () if known is None else known.gpus

    def charge_on(self, asked: ResourceRequirement, gpu: str) -> Charge:
        """What a part takes of a card, by its uuid: all of it at most.

        Raises:
            InvalidRequest: the card is not known, or a partition is asked, of which nobody told the place.

        """
        fleet = self.allocator.fleet
        if gpu not in fleet.card_of:
            raise invalid("gpu", gpu, "no machine has this card")
        if asked.cards.isolation is Isolation.PARTITIONED:
            raise invalid("gpu", gpu, "the place of a partition on its card must be told")
        card = fleet.cards[fleet.card_of[gpu]]
        charge = charge_on(fleet, fleet.card_of[gpu], asked)
        at_most = Charge(min(charge.compute, card.compute), min(charge.vram, card.vram), charge.isolation)
        return charge if at_most == charge else at_most.known_from(card, asked.part)

    def cards(self, allocation: Allocation) -> tuple[Gpu, ...]:
        """The cards that it holds."""
        return self.allocator.fleet.gpus(allocation.gpus)

    def capacities(self, allocation: Allocation) -> dict[str, int]:
        """GFLOPS of the cards that it holds, where they are known."""
        cards = self.cards(allocation)
        return {gpu.uuid: gpu.compute_gflops for gpu in cards if gpu.compute_gflops is not None}

    def stand_in(self, request: Request, node: str) -> bool:
        """Hold the best cards for one that somebody else has sent to a node; whether there are enough.

        It is there: what speaks against it by these books, but that there are no such cards, says not that it is not.
        """
        if node not in self.allocator.fleet.row_of:
            return False
        try:
            refused = isinstance(self.reserve(request, node), Refusal)
        except NotFound:  # the pool that it names
            refused = True
        if refused and not self._reserve_anyhow(request, node):
            return False
        self.confirm(request.uid)
        return True

    def _reserve_anyhow(self, request: Request, node: str) -> bool:
        """Reserve cards whatever quotas, pools, labels of the node, its zones, and its room beside cards say of it."""
        rules, asked = self.allocator.rules, request.requirement
        own = replace(asked.cards, pool=None)
        cards = replace(
            asked, cpu_milli=0, memory_bytes=0, cards=own, nodes=ANY_NODE, alignment=Alignment(ZonePolicy.NONE)
        )
        self.allocator.set_other_usage(node, OtherUsage())
        self.allocator.rules = replace(rules, quotas=Quotas(), oversubscription={})
        try:
            return not isinstance(self.reserve(replace(request, requirement=cards), node), Refusal)
        finally:
            self.allocator.rules = rules
            self._enter_other_usage(node)

    # --- decisions ---

    def offers(self, request: Request, nodes: Sequence[str], *, expected: bool = True) -> NodeOffers:
        """What these nodes offer a request; with `expected` the best place is kept for it a short while.

        A request that is placed is offered the node where it is, and no other.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self.expire()
        known = self.held(request.uid)
        if known is not None:
            there = [name for name in nodes if name == known.node]
            elsewhere = NodeRefusal.of(Code.RUNNING, Cure.NODE_CHANGE), [name for name in nodes if name != known.node]
            return NodeOffers(there, np.zeros(len(there)), [elsewhere])
        back = self.kept_back(request)
        asked = self._rows_of([name for name in nodes if name not in back] if back else nodes)
        is_known = asked.rows >= 0
        rows, names = asked.rows[is_known], asked.array[is_known]
        found = self.allocator.offers(request, rows)
        numbers = found.refused[rows]
        fits = numbers < 0
        refused = [(found.refusals[number], names[numbers == number].tolist()) for number in np.unique(numbers[~fits])]
        if not is_known.all():
            refused.append((_NOT_KNOWN, asked.array[~is_known].tolist()))
        if there := [name for name in nodes if name in back] if back else []:
            refused.append((_REFUSED_THERE, there))
        left, at = names[fits], rows[fits]
        offered = NodeOffers(left.tolist(), self._scores(request, left, found.scores[at]), refused)
        self._left = _Asked(asked.fleet, offered.names, left, at)
        if expected:
            self._expect(request, offered.best)
        return offered

    def nowhere(self, asked: Sequence[tuple[Request, Sequence[str]]], found: NodeOffers) -> str:
        """Say in one line why a request fits on none of the nodes that it was not offered."""
        names = {name for _, refused in found.refused for name in refused}
        request = max(asked, key=lambda pair: len(names.intersection(pair[1])))[0]
        books = self.allocator
        return nowhere_text(nowhere(books.fleet, books.rules, request, found.refused, books.nominations))

    def offers_of(self, asked: Sequence[tuple[Request, Sequence[str]]], *, expected: bool = True) -> NodeOffers:
        """As `offers`, where one request asks for other things on some nodes than on others.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        if len(asked) == 1:
            return self.offers(*asked[0], expected=expected)
        found = [self.offers(request, nodes, expected=False) for request, nodes in asked]
        scores = np.concatenate([np.empty(0), *(each.scores for each in found)])
        names = [name for each in found for name in each.names]
        offered = NodeOffers(names, scores, [refused for each in found for refused in each.refused])
        if expected:
            best = offered.best
            for (request, _), each in zip(asked, found, strict=True):
                if best is not None and best in each.names:
                    self._expect(request, best)
        return offered

    def _scores(
        self, request: Request, names: npt.NDArray[np.object_], scores: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """The node on which a place is promised goes before all others, which are alike then."""
        promised = self.allocator.nominations.of(request.uid)
        if promised is None or not promised.hold or request.uid in self._expected or promised.node not in names:
            return scores
        return np.array([float(name == promised.node) for name in names])

    def _rows_of(self, nodes: Sequence[str]) -> _Asked:
        """A scheduler asks about all nodes again and again, and then about those of them that are left."""
        fleet = self.allocator.fleet
        for known in (self._asked, self._left):
            if known is not None and known.fleet is fleet and known.names == nodes:
                return known
        rows = np.fromiter(map(fleet.row_of.get, nodes, repeat(-1)), np.int64, len(nodes))
        asked, last = _Asked(fleet, nodes, np.array(nodes, dtype=np.object_), rows), self._asked
        if last is None or last.fleet is not fleet or len(nodes) >= len(last.names):
            self._asked = asked
        return asked

    def reserve(self, request: Request, node: str) -> Allocation | Refusal:
        """The best cards of a node for a request, assumed until `confirm` or `undo`; a repeat has the same.

        `bound_at` is what it will be when it is confirmed, so that it can be written down beforehand.

        Raises:
            Unavailable: not ready. NotFound: the node, or the pool, is not known. Conflict: it is elsewhere.

        """
        self.expire()
        self._forget_expected(request.uid)
        kept = self.allocator.nominations.of(request.uid)
        found = self.allocator.assume_on(request, node, self._now())
        if isinstance(found, Refusal):
            return found
        if kept is not None and kept.owed:
            self._owed[request.uid] = kept
            self._shielded[request.uid] = self._now() + self.allocator.rules.protected_s
        return replace(found, bound_at=_since(found))

    def lacks(self, uid: str, vram: Mapping[str, int]) -> tuple[Rejection, ...]:
        """Which cards have less than these bytes left, by uuid; what the request has there itself counts as left."""
        return lacking(self.allocator.fleet, vram, self.held(uid))

    def charge_unevenly(
        self, uid: str, vram: Mapping[str, int], compute_ppm: Mapping[str, int] = NO_AMOUNTS
    ) -> Allocation | Refusal:
        """Have what is reserved take these amounts of the cards that are named; refused, it is reserved no more.

        `vram` is in bytes, `compute_ppm` in millionths of the card. Nothing is changed if it is held by now.

        Raises:
            Conflict: nothing is reserved.

        """
        known = self.held(uid)
        if known is not None and known.state is not AllocationState.ASSUMED:
            return known
        found = self.allocator.charge_unevenly(uid, vram, compute_ppm)
        if isinstance(found, Refusal):
            self.undo(uid)
            return found
        return replace(found, bound_at=_since(found))

    def assume(self, request: Request, gpus: Sequence[str]) -> Allocation | Refusal:
        """Reserve these cards for a request, until `confirm`, `undo` or `found`.

        Raises:
            As `FleetAllocator.assume`.

        """
        return self.allocator.assume(request, gpus, self._now())

    def confirm(self, uid: str) -> None:
        """What was reserved is held; nothing is changed if it is already, or if nothing is reserved."""
        known = self.held(uid)
        self._owed.pop(uid, None)
        if known is not None and known.state is AllocationState.ASSUMED:
            self.allocator.commit(uid, _since(known))

    def undo(self, uid: str) -> None:
        """What was reserved is free again, or kept on if others gave way to it.

        Nothing is changed if nothing was reserved, or if it is held by now.
        """
        kept = self._owed.pop(uid, None)
        if self.allocator.forget(uid, self._now()) is not None and kept is not None:
            self.promise(kept)

    def promise(self, nomination: Nomination) -> None:
        """Keep a place for a request until it is placed or `withdraw` ends it: nobody else is offered it."""
        self._expected.pop(nomination.request.uid, None)
        self.allocator.nominate(nomination)

    def withdraw(self, uid: str) -> None:
        """Keep no place for a request any more; nothing is changed if none is kept."""
        self._expected.pop(uid, None)
        self.allocator.withdraw(uid)

    def set_quota(self, namespace: str, quota: Quota | None, fault: str = "") -> None:
        """What the requests of a namespace may hold from now on; None: as much as there is. Nobody is evicted.

        `fault` says what of the quota cannot be read; refusals by the quota show it.
        """
        rules = self.allocator.rules
        left = rules.quotas.without(namespace)
        if quota is not None:
            left = replace(left, quotas={**left.quotas, namespace: quota})
        if fault:
            left = replace(left, faults={**left.faults, namespace: fault})
        if left != rules.quotas:
            self.allocator.rules = replace(rules, quotas=left)

    def over_quota(self, requirement: ResourceRequirement, claim: Claim) -> Rejection | None:
        """What the quotas say against one more such request; None if nothing does.

        What is a part of some card, and so depends on which, counts nothing here; it does where it is placed.
        """
        part, limit = requirement.part or Part(), claim.limit
        asked = asked_of(
            Part(part.compute_gflops, part.vram_bytes),
            None if limit is None else Part(limit.compute_gflops, limit.vram_bytes),
            requirement.gpu_count,
            requirement.gpu_count * (PPM if requirement.whole else part.compute_ppm),
        )
        refused = self.allocator.rules.quotas.check(self.allocator.fleet.usage, claim.namespace, asked)
        return refused[0] if refused else None

    def victims(
        self, request: Request, candidates: Mapping[str, Sequence[str]], budgets: Budgets = NO_BUDGETS
    ) -> dict[str, Preemption]:
        """Per node who must leave so that the request fits, among those that the scheduler would evict there first.

        Those who leave anyway count as gone; if that is enough, nobody must. Where these are too few, or not who holds
        what is needed, any of the node may be named; nodes where nobody who may be evicted helps are left out.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        return self.allocator.check_nodes_preempt(request, candidates, self._now(), budgets)

    def holders_on(self, nodes: Iterable[str]) -> list[Allocation]:
        """What is held on these nodes."""
        fleet = self.allocator.fleet
        rows = [fleet.row_of[node] for node in nodes if node in fleet.row_of]
        return [fleet.ledger[uid] for row in rows for uid in fleet.card_holders(fleet.cards_on(row))]

    def being_left(self, nodes: Iterable[str]) -> list[str]:
        """Those of these nodes that somebody leaves."""
        fleet = self.allocator.fleet
        return sorted({fleet.ledger[uid].node for uid in fleet.leaving}.intersection(nodes))

    def goes(self, uid: str) -> bool:
        """Whether it leaves, or holds nothing any more."""
        fleet = self.allocator.fleet
        return uid in fleet.leaving or uid not in fleet.ledger

    def give_way(self, request: Request, preemption: Preemption) -> None:
        """Keep the room for a request that its victims leave: nobody else is offered it.

        Where nobody had to leave, who goes before it is offered it.
        """
        self.promise(replace(preemption.nomination(request, self._now()), first_come=True))

    def keep_room(self, request: Request, node: str) -> None:
        """As `give_way`, where it is only known on which node: the cards are those that fit best."""
        self.promise(Nomination(request, node, self._now(), first_come=True, owed=True))

    def takes_pods(self, node: str) -> bool:
        """Whether a node is there, ready and open."""
        fleet = self.allocator.fleet
        return node in fleet.row_of and fleet.nodes[fleet.row_of[node]].schedulable

    def leaves(self, node: str, below: float = math.inf) -> bool:
        """Whether somebody of a priority below that leaves this node."""
        fleet = self.allocator.fleet
        there = (held for uid in fleet.leaving if (held := fleet.ledger[uid]).node == node)
        return any(held.claim is None or held.claim.priority < below for held in there)

    @property
    def lowest_priority(self) -> float:
        """The lowest priority of those that hold cards; infinite if nobody does."""
        claims = (held.claim for held in self.allocator.fleet.ledger.values())
        return min((claim.priority for claim in claims if claim is not None), default=math.inf)

    def with_lower_priority(self, request: Request, nodes: Iterable[str]) -> list[str]:
        """Those of these nodes where somebody of lower priority holds cards; where it is lowest comes first."""
        own, asked = request.claim.priority, set(nodes)
        highest: dict[str, int] = {}
        for held in self.allocator.fleet.ledger.values():
            if held.node in asked and held.claim is not None and held.claim.priority < own:
                highest[held.node] = max(highest.get(held.node, held.claim.priority), held.claim.priority)
        return sorted(highest, key=lambda node: (highest[node], node))

    # --- what will probably be ---

    def _expect(self, request: Request, node: str | None) -> None:
        books, uid = self.allocator, request.uid
        if books.nominations.of(uid) is not None and uid not in self._expected:
            return  # somebody gave way to it, or it is promised: that stays
        self._forget_expected(uid)
        choice = books.choose_on(request, node) if node is not None else None
        if isinstance(choice, Choice):
            self._expected[uid] = self._clock() + EXPECTED_S
            books.nominate(Nomination(request, choice.node, self._now(), choice.gpus, choice.charges, hold=True))

    def _forget_expected(self, uid: str) -> None:
        if self._expected.pop(uid, None) is not None:
            self.allocator.withdraw(uid)

    def expire(self) -> None:
        """Keep no place any more that was kept for a request for `EXPECTED_S`."""
        now = self._clock()
        for uid in [uid for uid, until in self._expected.items() if until <= now]:
            self._forget_expected(uid)


def _since(allocation: Allocation) -> float:
    """When it was bound, or will be said to have been: a place is held from the moment it is reserved."""
    return allocation.bound_at or allocation.assumed_at or 0.0
