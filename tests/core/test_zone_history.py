"""Any history on machines with zones: the books of zones stay true, and the order of facts does not matter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.zone_oracle import Books
from tests.core.zones import kubelet, machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.evicting.moves import Consolidation
from ullage.core.evicting.preemption import Preemption
from ullage.core.gang import Gangs
from ullage.core.kernel.board import FREE, ID
from ullage.core.placing.adjust import Adjustment, AmountsChange
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import UllageError
from ullage.model.node import Node
from ullage.model.part import Part
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CPU, Topology

pytestmark = pytest.mark.timeout(900)

QUAD = {"cards": (0, 0, 1, 1, 2, 2, 3, 3), "cpus": (4, 4, 4, 4), "zones": (0, 1, 2, 3)}
MACHINES = (
    machine("a", cpus=(6, 6), threads=2, memory=(4, 4)),
    machine("b", cpus=(4, 4), kubelet=kubelet("single-numa-node")),
    machine("c", **QUAD, distances=[[10 if a == b else 11 + (a ^ b) for b in range(4)] for a in range(4)]),
    machine("d", cards=(0, None, 1, 1), cpus=(4, 4), kubelet=kubelet("restricted", static_cpus=False), reserved=(0, 5)),
)
TEXTS = (
    *("gpu=1", "gpu=3", "cpu=2,gpu=2,numa=single-numa-node", "cpu=3,gpu=1,numa=single-numa-node"),
    *("cpu=5,gpu=3,numa=restricted", "cpu=1,gpu=4,numa=best-effort", "cpu=2,gpu=0.5,numa=single-numa-node", "gpu=0.25"),
)
UIDS = tuple("pqrstuvw")

texts, uids = st.sampled_from(TEXTS), st.sampled_from(UIDS)


def shuffled(node: Node, chance: random.Random) -> Node:
    """The same machine, reported in another order."""
    topology = node.topology
    if topology is not None:
        topology = replace(topology, cpus=tuple(chance.sample(topology.cpus, len(topology.cpus))))
    return replace(node, gpus=tuple(chance.sample(node.gpus, len(node.gpus))), topology=topology)


def ready(nodes: tuple[Node, ...]) -> FleetAllocator:
    books = FleetAllocator(Fleet(nodes))
    books.set_ready()
    return books


class ZoneHistory(RuleBasedStateMachine):
    """Two allocators get the same reports, the second one in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.chance = random.Random(0)

    @initialize(nodes=st.lists(st.sampled_from(MACHINES), min_size=1, max_size=3, unique_by=lambda node: node.name))
    def begin(self, nodes):
        self.nodes = tuple(nodes)
        self.both = ready(self.nodes), ready(self.told_again(self.nodes))

    def told_again(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(shuffled(node, self.chance) for node in reversed(nodes))

    def same(self, operation: Callable[[FleetAllocator], Any]) -> Any:
        """Do it to both; they answer the same, and raise the same."""
        self.now += 1.0
        answers = []
        for books in self.both:
            try:
                answers.append(operation(books))
            except UllageError as error:
                answers.append((type(error), error.code))
        if isinstance(answers[0], Refusal):
            assert answers[0].code == answers[1].code
        else:
            assert answers[0] == answers[1]
        return answers[0]

    def request(self, text: str, uid: str, **claim: object) -> Request:
        return Request(uid, ResourceRequirement.from_string(text), Claim(**claim))

    def check(self, placed: object) -> None:
        """What was placed has as many CPUs as asked, and lies in the zones that it says."""
        if not isinstance(placed, Allocation) or placed.placement is None:
            return
        node = next(node for node in self.nodes if node.name == placed.node)
        topology, placement = node.topology, placed.placement
        assert topology is not None
        zones = {zone for card in node.gpus if card.uuid in placed.gpus for zone in card.zones}
        zones |= {cpu.zone for cpu in topology.cpus if cpu.id in placement.cpus}
        assert placement.zones == tuple(sorted(zones | {zone for zone, _ in placement.memory}))
        asked, owner = placed.requirement, topology.kubelet
        alone = owner.static_cpus if owner else asked.alignment.policy is not None
        assert len(placement.cpus) == asked.cpu_milli // 1000 * alone

    # --- placing ---

    @rule(text=texts, uid=uids, priority=st.integers(0, 2))
    def alloc(self, text, uid, priority):
        request = self.request(text, uid, priority=priority)
        known = uid in self.both[0].fleet.ledger
        simulated = self.same(lambda books: books.simulate(request).outcome)
        placed = self.same(lambda books: books.alloc(request, self.now))
        if isinstance(placed, Allocation) and not known:
            self.check(placed)
            learned = placed.requirement.shares_cards  # where parts go follows from what was asked for, this one too
            assert learned or (simulated.gpus, simulated.placement) == (placed.gpus, placed.placement)

    @rule(text=texts, uid=uids, data=st.data(), commit=st.booleans())
    def on_named_cards(self, text, uid, data, commit):
        request = self.request(text, uid)
        node = data.draw(st.sampled_from(self.nodes))
        count = min(len(node.gpus), request.requirement.gpu_count)
        gpus = data.draw(
            st.lists(st.sampled_from([card.uuid for card in node.gpus]), min_size=count, max_size=count, unique=True)
        )
        known = uid in self.both[0].fleet.ledger
        placed = self.same(lambda books: books.assume(request, gpus, self.now))
        if not known:
            self.check(placed)
        if commit and isinstance(placed, Allocation):
            bound = self.same(lambda books: books.commit(uid, self.now))
            assert bound.placement == self.both[0].fleet.ledger[uid].placement

    @rule(text=texts, size=st.integers(2, 4), second=texts)
    def gang(self, text, size, second):
        """Placed as a whole, and bound; or nothing changed."""
        claim, before = GangClaim("g", size, size), self.both[0].fleet.board.supplies.copy()
        members = [self.request(text if number else second, f"g{number}", gang=claim) for number in range(size)]
        if any(member.uid in self.both[0].fleet.ledger for member in members):
            return

        def tick(books: FleetAllocator) -> object:
            gangs = Gangs()
            for member in members:
                gangs.add(member, self.now)
            return [outcome.placed for outcome in gangs.tick(books, self.now)]

        (placed,) = self.same(tick)
        assert len(placed) in (0, size)
        if placed:
            for one in placed:
                self.check(one)
        else:
            assert (self.both[0].fleet.board.supplies == before).all()

    # --- giving back ---

    @rule(
        uid=st.sampled_from((*UIDS, "g0", "g1", "g2")),
        how=st.sampled_from(["dealloc", "forget", "rollback", "unreserve"]),
    )
    def give_back(self, uid, how):
        self.same(lambda books: getattr(books, how)(uid, self.now))

    @rule(uid=uids)
    def release(self, uid):
        self.same(lambda books: books.release(uid))

    @rule(uid=uids, share=st.sampled_from([100_000, 250_000, 600_000]))
    def adjust(self, uid, share):
        before = self.both[0].fleet.ledger.get(uid)
        after = self.same(lambda books: books.adjust(uid, AmountsChange(Part(share, 0, 0), None)))
        if isinstance(after, Adjustment) and before is not None:
            assert self.both[0].fleet.ledger[uid].placement == before.placement

    # --- others give way ---

    @rule(text=texts, priority=st.integers(1, 3), waits=st.booleans())
    def preempt(self, text, priority, waits):
        """The victims leave, at once or while room is kept; then the request fits where the answer said."""
        request = self.request(text, "high", priority=priority)
        if "high" in self.both[0].fleet.ledger:
            return
        found = self.same(lambda books: books.preempt(request, self.now))
        if not isinstance(found, Preemption):
            return
        if waits:
            self.same(lambda books: books.nominate(found.nomination(request, self.now)))
            for uid in found.uids:
                self.same(lambda books, uid=uid: books.release(uid))
            return
        for uid in found.uids:
            self.same(lambda books, uid=uid: books.dealloc(uid, self.now))
        if not self.both[0].nominations.entries:
            placed = self.same(lambda books: books.alloc(request, self.now))
            assert isinstance(placed, Allocation)
            self.check(placed)

    @rule(uid=st.sampled_from([*UIDS, "high"]))
    def withdraw(self, uid):
        self.same(lambda books: books.withdraw(uid))

    @rule(text=st.sampled_from([text for text in TEXTS if "." not in text]), units=st.integers(1, 2))
    def consolidate(self, text, units):
        """A plan changes nothing, and nobody in it holds a CPU of another one."""
        plan = self.same(lambda books: books.consolidate(self.request(text, "wanted"), units, self.now))
        if not isinstance(plan, Consolidation) or self.both[0].nominations.entries:
            return
        moved = {move.allocation.id for move in plan.moves}
        stay = [held for uid, held in self.both[0].fleet.ledger.items() if uid not in moved]
        there = [(held.node, held.placement) for held in (*stay, *(move.to for move in plan.moves), *plan.units)]
        cpus = [(node, cpu) for node, placement in there if placement for cpu in placement.cpus]
        assert len(cpus) == len(set(cpus))

    # --- facts from outside ---

    @rule(data=st.data())
    def set_nodes(self, data):
        """Records of zones change, vanish and come back; CPUs are renumbered by nobody."""

        def changed(node: Node) -> Node:
            made = next(known for known in MACHINES if known.name == node.name)
            how = data.draw(st.sampled_from(["as before", "no record", "other owner", "fewer CPUs", "reserved"]))
            topology = made.topology
            assert isinstance(topology, Topology)
            if how == "no record":
                return replace(made, topology=None, gpus=tuple(replace(card, zones=()) for card in made.gpus))
            if how == "other owner":
                return replace(made, topology=replace(topology, kubelet=kubelet("best-effort")))
            if how == "fewer CPUs":
                return replace(made, topology=replace(topology, cpus=topology.cpus[1:], reserved_cpus=frozenset()))
            return replace(made, topology=replace(topology, reserved_count=2 * (how == "reserved")))

        self.nodes = tuple(changed(node) for node in self.nodes)
        again = self.told_again(self.nodes)
        self.same(lambda books: books.set_nodes(self.nodes if books is self.both[0] else again))

    # --- laws ---

    @precondition(lambda self: hasattr(self, "both"))
    @invariant()
    def what_is_free_is_what_the_ledger_leaves(self):
        for books in self.both:
            fleet = books.fleet
            rebuilt = Fleet(fleet.nodes, fleet.ledger.values()).board
            assert (fleet.board.supplies == rebuilt.supplies).all()
            assert fleet.board.held == rebuilt.held
            for row, node in enumerate(fleet.nodes):
                if node.topology is not None:
                    self.check_node(fleet, row, Books.of(node))

    def check_node(self, fleet: Fleet, row: int, there: Books) -> None:
        """The rows of a machine against its record and the placements on it."""
        held = [a.placement for a in fleet.ledger.values() if a.node == there.node.name and a.placement is not None]
        cpus = there.free[CPU] - {cpu for placement in held for cpu in placement.cpus}
        rows = fleet.board.cpus_of(fleet.board.machine_of[row])
        assert {int(cpu[ID]) for cpu in rows if cpu[FREE] > 0} == cpus

    @precondition(lambda self: hasattr(self, "both"))
    @invariant()
    def nobody_has_what_another_one_has(self):
        ledger = self.both[0].fleet.ledger.values()
        cpus = [(held.node, cpu) for held in ledger if held.placement for cpu in held.placement.cpus]
        assert len(cpus) == len(set(cpus))
        whole = [uuid for held in ledger if held.requirement.whole for uuid in held.gpus]
        assert len(whole) == len(set(whole))

    @precondition(lambda self: hasattr(self, "both"))
    @invariant()
    def the_order_of_facts_does_not_matter(self):
        first, second = (books.fleet.ledger for books in self.both)
        assert first == second


ZoneHistory.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
test_any_history_on_zones = ZoneHistory.TestCase
test_any_history_on_zones.pytestmark = pytest.mark.long
