"""The books of a cluster whose own scheduler picks nodes: the offers of nodes, and the cards on the chosen node.

The API of the cluster is the source of truth, and the books can be rebuilt from it at any time. The scheduler asks
about one request after the other, and binds each after it has asked about the next. So the probable place of a
request is reserved for a short time: no later request is offered the same cards, and nothing stays reserved for a
request that is never bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.observation import Observation, foreign_id
from ullage.core.books.usage import OtherUsage
from ullage.core.evicting.preemption import Preemption
from ullage.core.evicting.victims import NO_BUDGETS, Budgets
from ullage.core.explaining.nowhere import nowhere
from ullage.core.explaining.nowhere_text import asked_text, nowhere_text
from ullage.core.placing.decision import Refusal
from ullage.core.placing.offers import NodeRefusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.uneven import NO_AMOUNTS, lacking
from ullage.core.topology.rules import AS_USUAL, ZoneRules
from ullage.core.verdict.cards import charge_on
from ullage.core.verdict.partition import slices_on
from ullage.core.verdict.quota import Quotas
from ullage.model.affinity import EVERY_NODE
from ullage.model.alignment import Alignment
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.claim import Request
from ullage.model.compute import HostRoom
from ullage.model.error import Conflict, NotFound, invalid
from ullage.model.family_ids import family_ids, further_ids
from ullage.model.gpu import Gpu
from ullage.model.holding import Use
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.part import Isolation
from ullage.model.profile import Profiles
from ullage.model.profiles import SHIPPED
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.topology import ZonePolicy
from ullage.service.asked_nodes import AskedNodes, NodeRows
from ullage.service.expected_places import ExpectedPlaces
from ullage.service.holders import Holders
from ullage.service.node_offers import NodeOffers
from ullage.service.pod_quotas import PodQuotas
from ullage.service.rejected_nodes import RejectedNodes

_REFUSED_THERE = NodeRefusal((Rejection(Code.REFUSED_THERE, Cure.NODE_CHANGE),), 0, helps=False)
_OUTSIDE = NodeRefusal((Rejection(Code.GANG_DOMAIN, Cure.NODE_CHANGE),), 0, helps=False)
_NOT_KNOWN = NodeRefusal((Rejection(Code.NODE_UNKNOWN, Cure.NODE_CHANGE),), 0, helps=False)


Near = Callable[[str], Container[str] | None]


class Cluster:
    """The books of a cluster. `clock` is monotonic and `now` is the time since 1970, both in seconds."""

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
        self.holders = Holders(self.allocator)
        self.quotas = PodQuotas(self.allocator)
        self._now = now
        self._expected = ExpectedPlaces(self.allocator, clock, now)
        self._owed: dict[str, Nomination] = {}
        """Nominations of requests that are reserved now, to be restored if the bind fails."""
        self._shielded: dict[str, float] = {}
        """Until when requests that evicted others are protected, by uid, in seconds since 1970."""
        self._rows = NodeRows()
        self._rejected = RejectedNodes()
        self._near: Near = lambda _uid: None
        self._other_usage: dict[str, OtherUsage] = {}
        """The usage of each node by pods without cards."""

    # --- the state of the cluster ---

    def set_nodes(self, nodes: Iterable[Node]) -> tuple[Allocation, ...]:
        """Replace the nodes, as `FleetAllocator.set_nodes`."""
        return self.allocator.set_nodes(nodes)

    def recover(self, allocations: Iterable[Allocation]) -> tuple[str, ...]:
        """Replace the ledger by what the API reports. From now on decisions may be made.

        Raises:
            NotFound, Conflict: as `FleetAllocator.reconcile`.

        """
        changed = self.allocator.reconcile(allocations, self._now())
        self.allocator.set_ready()
        return changed

    def adopt(self, *allocations: Allocation) -> dict[str, Conflict]:
        """Enter allocations that the API reports. Return contradictions by uid, see `FleetAllocator.adopt`.

        Raises:
            Conflict: an id is that of foreign usage on a node. Nothing changes then.

        """
        for allocation in allocations:
            self._expected.forget(allocation.id)
        return self.allocator.adopt(*map(self._as_shielded, allocations))

    def _as_shielded(self, allocation: Allocation) -> Allocation:
        until = self._shielded.get(allocation.id)
        if until is None or allocation.claim is None:
            return allocation
        return replace(allocation, claim=allocation.claim.protected(until))

    def observe(self, node: str, use: Use) -> Observation:
        """Enter what a node reports to be held there. It takes precedence over decisions.

        Raises:
            NotFound: the node is not known.

        """
        found = self.allocator.observe(node, use, self._now())
        self.enter_other_usage(node)
        return found

    def set_other_usage(self, node: str, has: OtherUsage) -> None:
        """Enter what pods without cards use of a node. This includes unknown owners that the node reports."""
        self._other_usage.pop(node, None)
        if has != OtherUsage():
            self._other_usage[node] = has
        self.enter_other_usage(node)

    def enter_other_usage(self, node: str) -> None:
        has, shown = self._other_usage.get(node, OtherUsage()), self.allocator.fleet.ledger.get(foreign_id(node))
        if shown is not None:
            strangers = shown.requirement.cpu_milli, shown.requirement.memory_bytes, 1
            has = OtherUsage(*(max(0, amount - known) for amount, known in zip(has, strangers, strict=True)))
        self.allocator.set_other_usage(node, has)

    def release(self, uid: str) -> None:
        """Mark the allocations of a pod as releasing: it terminates, and its cards are free once it is gone."""
        for each in self._held_ids(uid):
            self.allocator.release(each)

    def free(self, uid: str) -> None:
        """Free the allocations of a pod that is gone or has finished."""
        self.free_one(uid)
        for each in further_ids(uid):
            if self.held(each) is not None or self.allocator.nominations.of(each) is not None:
                self.free_one(each)

    def free_one(self, id_: str) -> None:
        """Free the cards that a pod has of one family."""
        self._expected.forget(id_)
        self._owed.pop(id_, None)
        self._shielded.pop(id_, None)
        self.allocator.dealloc(id_, self._now())

    def note_rejection(self, uid: str) -> None:
        """Note that a node rejected a request that should fit. Equal requests are not offered the node for now."""
        known = self.held(uid)
        if known is not None:
            self._rejected.add(known.requirement, known.node)

    def drop_rejections(self, node: str) -> None:
        """Drop the rejections of a node that has changed: the requests may fit now."""
        self._rejected.drop(node)

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes whenever a request may fit that did not fit before."""
        return self.allocator.version, self._rejected.changes

    @property
    def has_rejections(self) -> bool:
        """Whether any node has rejected a request."""
        return bool(self._rejected)

    def restrict(self, near: Near) -> None:
        """Offer requests only the nodes that `near` returns for their uid; None for any."""
        self._near = near

    def rejected_by(self, request: Request) -> frozenset[str]:
        """Return the nodes that have rejected an equal request."""
        return self._rejected.of(request.requirement)

    def use_of(self, node: str) -> HostRoom:
        """Return the CPU and memory in use on a node by all users; zero for an unknown node."""
        fleet, row = self.allocator.fleet, self.allocator.fleet.row_of.get(node)
        if row is None:
            return HostRoom()
        cpu = fleet.cpu_total.item(row) - fleet.cpu_free.item(row)
        return HostRoom(cpu, fleet.memory_total.item(row) - fleet.memory_free.item(row))

    def held(self, uid: str) -> Allocation | None:
        """Return what a request holds or has reserved; None if nothing."""
        return self.allocator.held(uid)

    def held_by_family(self, uid: str) -> tuple[Allocation, ...]:
        """Return what a pod holds or has reserved, for each family of its cards."""
        return tuple(map(self.allocator.fleet.ledger.__getitem__, self._held_ids(uid)))

    def _held_ids(self, uid: str) -> list[str]:
        ledger = self.allocator.fleet.ledger
        return [each for each in family_ids(uid) if each in ledger]

    def cards_of(self, uid: str) -> tuple[str, ...]:
        """Return the cards that a pod holds, or that are reserved for it."""
        known = (self.held(each) or self.allocator.nominations.of(each) for each in family_ids(uid))
        return tuple(gpu for each in known if each is not None for gpu in each.gpus)

    def charge_on(self, asked: ResourceRequirement, gpu: str, slots: Sequence[Slot] | None = None) -> Charge:
        """Return what a part takes of a card, by its uuid: at most all of it; of slices, with these places.

        Raises:
            InvalidRequest: the card is unknown, or a partition is requested whose position is not given.

        """
        fleet = self.allocator.fleet
        if gpu not in fleet.card_of:
            raise invalid("gpu", gpu, "no machine has this card")
        if asked.cards.isolation is Isolation.PARTITIONED:
            if slots is None:
                raise invalid("gpu", gpu, "the position of a partition on its card must be given")
            return slices_on(fleet, fleet.card_of[gpu], slots)
        card = fleet.cards[fleet.card_of[gpu]]
        charge = charge_on(fleet, fleet.card_of[gpu], asked)
        at_most = Charge(min(charge.compute, card.compute), min(charge.vram, card.vram), charge.isolation)
        return charge if at_most == charge else at_most.with_basis(card, asked.part)

    def cards(self, allocation: Allocation) -> tuple[Gpu, ...]:
        """Return the cards that an allocation holds."""
        return self.allocator.fleet.gpus(allocation.gpus)

    def capacities(self, allocation: Allocation) -> dict[str, int]:
        """Return the GFLOPS of the cards that an allocation holds, where they are known."""
        cards = self.cards(allocation)
        return {gpu.uuid: gpu.compute_gflops for gpu in cards if gpu.compute_gflops is not None}

    def adopt_bound(self, request: Request, node: str) -> bool:
        """Hold the best cards for a request that another scheduler has bound to a node; return whether they suffice.

        It already runs there, so only missing cards can refuse it.
        """
        if node not in self.allocator.fleet.row_of:
            return False
        try:
            refused = isinstance(self.reserve(request, node), Refusal)
        except NotFound:  # the pool that it names
            refused = True
        if refused and not self._reserve_regardless(request, node):
            return False
        self.confirm(request.uid)
        return True

    def _reserve_regardless(self, request: Request, node: str) -> bool:
        """Reserve cards regardless of quotas, pools, labels, taints, zones, and cpu and memory of the node."""
        rules, asked = self.allocator.rules, request.requirement
        own = replace(asked.cards, pool=None)
        cards = replace(
            asked, cpu_milli=0, memory_bytes=0, cards=own, nodes=EVERY_NODE, alignment=Alignment(ZonePolicy.NONE)
        )
        self.allocator.set_other_usage(node, OtherUsage())
        self.allocator.rules = replace(rules, quotas=Quotas(), oversubscription={})
        try:
            return not isinstance(self.reserve(replace(request, requirement=cards), node), Refusal)
        finally:
            self.allocator.rules = rules
            self.enter_other_usage(node)

    # --- decisions ---

    def offers(self, request: Request, nodes: Sequence[str], *, expected: bool = True) -> NodeOffers:
        """Return the offers of these nodes for a request. With `expected`, the best place is reserved for a short time.

        A request that is placed, or for which a place is reserved on one of these, is offered that node and no other.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        self._expected.expire()
        known = self.held(request.uid)
        if known is not None:
            there = [name for name in nodes if name == known.node]
            elsewhere = NodeRefusal.of(Code.RUNNING, Cure.NODE_CHANGE), [name for name in nodes if name != known.node]
            return NodeOffers(there, np.zeros(len(there)), [elsewhere])
        back, near = self.rejected_by(request), self._near(request.uid)
        tried = [name for name in nodes if name not in back] if back else nodes
        tried = tried if near is None else [name for name in tried if name in near]
        asked = self._rows.of(self.allocator.fleet, tried)
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
        if near is not None and (outside := [name for name in nodes if name not in near and name not in back]):
            refused.append((_OUTSIDE, outside))
        left, at = names[fits], rows[fits]
        if (reserved := left == self._reserved_node(request)).any():
            left, at = left[reserved], at[reserved]
        offered = NodeOffers(left.tolist(), found.scores[at], refused)
        self._rows.fitted(AskedNodes(asked.fleet, offered.names, left, at))
        if expected:
            self._expected.expect(request, offered.best)
        return offered

    def nowhere(
        self,
        asked: Sequence[tuple[Request, Sequence[str]]],
        found: NodeOffers,
        wording: Callable[[ResourceRequirement], str] = asked_text,
    ) -> str:
        """Say in one line why a request fits on none of the nodes that it was not offered.

        `wording` returns the words for a request that would fit.
        """
        names = {name for _, refused in found.refused for name in refused}
        counts = [len(names.intersection(nodes)) for _, nodes in asked]
        request, _ = asked[counts.index(max(counts))]
        books = self.allocator
        why = nowhere(books.fleet, books.rules, request, found.refused, nominations=books.nominations)
        return nowhere_text(why, wording)

    def offers_of(self, asked: Sequence[tuple[Request, Sequence[str]]], *, expected: bool = True) -> NodeOffers:
        """Return offers as `offers` for one request that differs between groups of nodes.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        if len(asked) == 1:
            return self.offers(*next(iter(asked)), expected=expected)
        found = [self.offers(request, nodes, expected=False) for request, nodes in asked]
        scores = np.concatenate([np.empty(0), *(each.scores for each in found)])
        names = [name for each in found for name in each.names]
        offered = NodeOffers(names, scores, [refused for each in found for refused in each.refused])
        if expected:
            best = offered.best
            for (request, _), each in zip(asked, found, strict=True):
                if best is not None and best in each.names:
                    self._expected.expect(request, best)
        return offered

    def _reserved_node(self, request: Request) -> str | None:
        reserved = self.allocator.nominations.of(request.uid)
        return reserved.node if reserved is not None and reserved.hold and request.uid not in self._expected else None

    def reserve(self, request: Request, node: str) -> Allocation | Refusal:
        """Reserve the best cards of a node for a request, until `confirm` or `undo`. A repeat returns the same.

        `bound_at` has the value that it will have when confirmed, so that it can be written before.

        Raises:
            Unavailable: not ready. NotFound: the node or the pool is unknown. Conflict: it is on another node.

        """
        self._expected.expire()
        self._expected.forget(request.uid)
        kept = self.allocator.nominations.of(request.uid)
        found = self.allocator.assume_on(request, node, self._now())
        if isinstance(found, Refusal):
            return found
        if kept is not None and kept.owed:
            self._owed[request.uid] = kept
            self._shielded[request.uid] = self._now() + self.allocator.rules.protected_s
        return replace(found, bound_at=_since(found))

    def shortages(self, uid: str, vram: Mapping[str, int]) -> tuple[Rejection, ...]:
        """Return what is missing on cards for these bytes by uuid. What the request itself holds counts as free."""
        return lacking(self.allocator.fleet, vram, self.held(uid))

    def charge_unevenly(
        self, uid: str, vram: Mapping[str, int], compute_ppm: Mapping[str, int] = NO_AMOUNTS
    ) -> Allocation | Refusal:
        """Charge these amounts of the named cards to a reservation. If that is refused, the reservation ends.

        `vram` is in bytes, `compute_ppm` in millionths of the card. An allocation that is bound stays as it is.

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
        """Reserve these cards for a request, until `confirm`, `undo` or `adopt`.

        Raises:
            As `FleetAllocator.assume`.

        """
        return self.allocator.assume(request, gpus, self._now())

    def confirm(self, uid: str) -> None:
        """Bind what was reserved. Nothing changes if it is bound already, or if nothing is reserved."""
        self._owed.pop(uid, None)
        for known in self.held_by_family(uid):
            self._owed.pop(known.id, None)
            if known.state is AllocationState.ASSUMED:
                self.allocator.commit(known.id, _since(known))

    def undo(self, uid: str) -> None:
        """Free what was reserved; if others were evicted for it, it stays nominated.

        Nothing changes if nothing was reserved, or if it is bound by now.
        """
        for each in dict.fromkeys((uid, *self._held_ids(uid))):
            kept = self._owed.pop(each, None)
            if self.allocator.forget(each, self._now()) is not None and kept is not None:
                self.promise(kept)

    def promise(self, nomination: Nomination) -> None:
        """Reserve a place for a request until it is placed or `withdraw` is called. No other request is offered it."""
        self._expected.replaced(nomination.request.uid)
        self.allocator.nominate(nomination)

    def withdraw(self, uid: str) -> None:
        """End the reservation of a place for a request, if there is one."""
        self._expected.replaced(uid)
        self.allocator.withdraw(uid)

    def victims(
        self, request: Request, candidates: Mapping[str, Sequence[str]], budgets: Budgets = NO_BUDGETS
    ) -> dict[str, Preemption]:
        """Return for each node who must be evicted, preferring the candidates of the scheduler there.

        Leaving allocations count as gone. If the candidates do not suffice, others of the node may be named. Nodes
        where no eviction helps are left out.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        named = {
            node: [id_ for uid in uids for id_ in self._held_ids(uid) or [uid]] for node, uids in candidates.items()
        }
        return self.allocator.check_nodes_preempt(request, named, self._now(), budgets)

    def victims_of_gang(self, requests: Sequence[Request], budgets: Budgets = NO_BUDGETS) -> dict[str, Preemption]:
        """Return the place of each request, by uid, with who must be evicted for it; nothing if that does not suffice.

        Leaving allocations count as gone.

        Raises:
            Unavailable: not ready. NotFound: the pool is not known.

        """
        return self.allocator.preempt_gang(requests, self._now(), budgets)

    def reserve_room_of(self, request: Request, preemption: Preemption) -> None:
        """Reserve the room of victims for a request: no other request is offered it.

        If there were no victims, requests that come before it are offered the room.
        """
        self.promise(replace(preemption.nomination(request, self._now()), first_come=True))

    def reserve_room_on(self, request: Request, node: str) -> None:
        """Do as `reserve_room_of` if only the node is known: the cards are those that fit best."""
        self.promise(Nomination(request, node, self._now(), first_come=True, owed=True))

    def expire(self) -> None:
        """End the reservations of expected places whose time is over."""
        self._expected.expire()


def _since(allocation: Allocation) -> float:
    """Return the time of its bind, which is that of its reservation."""
    return allocation.bound_at or allocation.assumed_at or 0.0
