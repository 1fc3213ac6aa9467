"""Any history of pods, strangers and what nodes show of them, late or not at all: nothing is handed out twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.zones import kubelet, machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.observation import LAG_S
from ullage.core.kernel.columns import CARD_COLUMNS
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)

MACHINES = (
    machine("a", cpus=(4, 4), memory=(4, 4), kubelet=kubelet("best-effort")),
    machine("b", cards=(0, 1, None), cpus=(3, 3), kubelet=kubelet("none")),
    replace(machine("c", cards=(None, None), cpus=()), topology=None),
)
TEXTS = ("gpu=1", "gpu=2", "gpu=3", "cpu=2,gpu=1", "cpu=1,gpu=0.5", "gpu=0.25")
UIDS, STRANGERS = tuple("pqrstu"), ("x", "y")


class Observed(RuleBasedStateMachine):
    """`runs` is what really runs on each node: pods, by name, with the cards and CPUs that its kubelet chose."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    @initialize(nodes=st.lists(st.sampled_from(MACHINES), min_size=1, max_size=2, unique_by=lambda node: node.name))
    def begin(self, nodes):
        self.nodes = tuple(nodes)
        self.runs: dict[str, dict[str, PodHolding]] = {node.name: {} for node in nodes}
        self.reported: dict[str, Use] = {}
        self.books = FleetAllocator(Fleet(self.nodes))
        self.books.set_ready()

    def free_of(self, node: Node) -> tuple[list[str], list[int]]:
        """Cards and CPUs that no pod of a node has."""
        held = [container for pod in self.runs[node.name].values() for container in pod.containers]
        gpus = {uuid for container in held for _, ids in container.devices for uuid in ids}
        cpus = {cpu for container in held for cpu in container.cpus}
        seats = () if node.topology is None else node.topology.cpus
        return [card.uuid for card in node.gpus if card.uuid not in gpus], [c.id for c in seats if c.id not in cpus]

    def start(self, node: Node, uid: str, gpus: int, cpus: int, memory: int, data: st.DataObject, named: bool) -> None:
        """A kubelet gives a pod what it likes."""
        cards, seats = self.free_of(node)
        if len(cards) < gpus or len(seats) < cpus or uid in self.runs[node.name]:
            return
        devices = (("gpu", tuple(data.draw(st.permutations(cards))[:gpus])),) if gpus else ()
        blocks = (MemoryHolding("memory", (0,), memory),) if memory else ()
        holding = Holding("main", tuple(sorted(data.draw(st.permutations(seats))[:cpus])), devices, memory=blocks)
        self.runs[node.name][uid] = PodHolding("team", uid, "" if named else uid, (holding,))

    # --- what happens ---

    @rule(uid=st.sampled_from(UIDS), text=st.sampled_from(TEXTS))
    def alloc(self, uid, text):
        """Who is placed gets nothing that the ledger or a node has of another one."""
        self.now += 1.0
        request = Request(uid, ResourceRequirement.from_string(text), Claim("team", pod=uid))
        known = uid in self.books.fleet.ledger
        placed = self.books.alloc(request, self.now)
        if known or not isinstance(placed, Allocation):
            return
        others = [held for held in self.books.fleet.ledger.values() if held.id != uid and held.node == placed.node]
        if placed.requirement.whole:
            assert not {gpu for held in others for gpu in held.gpus} & set(placed.gpus)
        else:
            assert not {gpu for held in others if not held.charges for gpu in held.gpus} & set(placed.gpus)
        if placed.placement is not None:
            assert not {cpu for h in others if h.placement for cpu in h.placement.cpus} & set(placed.placement.cpus)
        for name, pod in self.runs[placed.node].items():
            if pod in self.reported.get(placed.node, Use()).pods and name not in UIDS:
                assert not set(self.cards_of(pod)) & set(placed.gpus)

    def cards_of(self, pod: PodHolding) -> list[str]:
        return [uuid for container in pod.containers for _, ids in container.devices for uuid in ids]

    @rule(data=st.data(), uid=st.sampled_from(UIDS), named=st.booleans())
    def pod_starts(self, data, uid, named):
        held = self.books.fleet.ledger.get(uid)
        if held is not None:
            node = next(node for node in self.nodes if node.name == held.node)
            cpus = len(held.placement.cpus) if held.placement else 0
            self.start(node, uid, held.requirement.gpu_count, cpus, 0, data, named)

    @rule(data=st.data(), uid=st.sampled_from(STRANGERS), gpus=st.integers(0, 2), cpus=st.integers(0, 2))
    def stranger_starts(self, data, uid, gpus, cpus):
        node = data.draw(st.sampled_from(self.nodes))
        self.start(node, uid, gpus, cpus, data.draw(st.sampled_from([0, 1 << 30])), data, True)

    @rule(uid=st.sampled_from(UIDS + STRANGERS), reported=st.booleans())
    def pod_ends(self, uid, reported):
        for running in self.runs.values():
            running.pop(uid, None)
        if reported or uid in STRANGERS:
            self.now += 1.0
            before = dict(self.books.fleet.ledger)
            self.books.dealloc(uid, self.now)
            before.pop(uid, None)
            assert self.books.fleet.ledger == before  # nobody else's entry is touched

    @rule(data=st.data(), stale=st.booleans())
    def observe(self, data, stale):
        """What a node shows, or an older or smaller part of it."""
        node = data.draw(st.sampled_from(self.nodes)).name
        self.now += 1.0
        pods = list(self.runs[node].values())
        shown = Use(tuple(data.draw(st.permutations(pods))[: data.draw(st.sampled_from([99, 99, 1]))]), stale)
        if data.draw(st.integers(0, 4)) == 0:
            shown = self.reported.get(node, shown)  # it lags
        self.reported[node] = shown
        seen = self.books.observe(node, shown, self.now)
        again = self.books.observe(node, shown, self.now)
        assert (again.changed, again.mismatches, again.foreign) == ((), (), seen.foreign)
        for pod in shown.pods:
            held = self.books.fleet.ledger.get(pod.name)
            cards = set(self.cards_of(pod))
            if held is not None and held.node == node and cards:
                assert held.observed
                assert set(held.gpus) == cards
                assert shown.stale or held.placement.cpus == pod.containers[0].cpus
            elif pod.name in STRANGERS:
                assert seen.foreign is None or cards <= set(seen.foreign.gpus)
                assert seen.foreign is not None or not (cards or pod.containers[0].cpus or pod.containers[0].memory)

    @rule()
    def time_passes(self):
        self.now += 2 * LAG_S

    @rule()
    def restart(self):
        """What was stored is all there is."""
        again = FleetAllocator(Fleet(()))
        again.reconcile(self.books.fleet.ledger.values(), self.now)
        again.set_nodes(self.nodes)
        again.set_ready()
        assert again.fleet.ledger == self.books.fleet.ledger
        self.books, self.reported = again, {}

    @rule(data=st.data())
    def records_of_zones_come_and_go(self, data):
        self.nodes = tuple(
            next(made for made in MACHINES if made.name == node.name)
            if data.draw(st.booleans())
            else replace(node, topology=None)
            for node in self.nodes
        )
        self.books.set_nodes(self.nodes)

    # --- laws ---

    @precondition(lambda self: hasattr(self, "books"))
    @invariant()
    def the_books_are_what_the_ledger_says(self):
        fleet = self.books.fleet
        again = Fleet(fleet.nodes, fleet.ledger.values())
        assert (fleet.card_rows[:, :CARD_COLUMNS] == again.card_rows[:, :CARD_COLUMNS]).all()
        assert (fleet.gpu_free == again.gpu_free).all()
        assert (fleet.cpu_free == again.cpu_free).all()
        assert (fleet.memory_free == again.memory_free).all()
        assert (fleet.slots_free == again.slots_free).all()
        assert (fleet.board.supplies == again.board.supplies).all()
        assert fleet.holders == again.holders
        assert fleet.usage == again.usage

    @precondition(lambda self: hasattr(self, "books"))
    @invariant()
    def nobody_is_dropped_for_not_being_shown(self):
        late = {held.id for held in self.books.unconfirmed(self.now)}
        assert late <= self.books.fleet.ledger.keys()
        assert all(not self.books.fleet.ledger[uid].observed for uid in late)


Observed.TestCase.settings = settings(max_examples=50, stateful_step_count=25)
test_any_history_of_what_nodes_show = Observed.TestCase
test_any_history_of_what_nodes_show.pytestmark = pytest.mark.long
