"""The books: any history of changes and trials, and what is free after capacity shrank."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import books
from tests.lab import a_node

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import OtherUsage
from ullage.core.kernel import columns as at
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.verdict.cards import refusal_of
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim
from ullage.model.error import Conflict, NotFound
from ullage.model.request import ResourceRequirement

COLUMNS = ("cpu_free", "memory_free", "gpu_free", "slots_free", "slots_total", "card_users")
NODES = (a_node("n1", 8, "8g", 3), a_node("n2", 4, "4g"), a_node("n3", 2, "2g", 1, cordoned=True))
CARDS = {node.name: [gpu.uuid for gpu in node.gpus] for node in NODES}

WHOLE = ResourceRequirement.of(gpu=1)


def content(fleet: Fleet) -> tuple[object, ...]:
    return (*(getattr(fleet, name).tolist() for name in COLUMNS), dict(fleet.ledger), set(fleet.leaving))


def content_of_row(fleet: Fleet, row: int) -> tuple[object, ...]:
    """Return all that is known of a node, without when it changed."""
    columns = sorted(set(range(at.NODE_COLUMNS)) - {at.CHANGED, at.FREED, at.BEFORE, at.AFTER})
    cards = fleet.cards_on(row)
    held = [tuple(sorted(fleet.holders[card])) for card in cards]
    return *fleet.node_rows[row, columns].tolist(), str(fleet.card_rows[cards.start : cards.stop].tolist()), *held


def an_allocation(name: str, node: str = "n1", resreq: str = "cpu=1", *cards: str) -> Allocation:
    return Allocation(name, node, ResourceRequirement.from_string(resreq), cards)


class Journal(RuleBasedStateMachine):
    """Charges and releases inside any nesting of trials."""

    @initialize()
    def open_books(self):
        self.fleet = Fleet(NODES)
        self.trials: list[tuple[int, tuple[object, ...]]] = []
        self.named = 0
        self.numbered: dict[tuple[int, int], tuple[object, ...]] = {}

    @rule(
        node=st.sampled_from(["n1", "n2", "n3", "gone"]),
        cpu=st.integers(1, 5),
        memory=st.integers(0, 2**33),
        cards=st.integers(0, 3),
        force=st.booleans(),
        data=st.data(),
    )
    def charge(self, node, cpu, memory, cards, force, data):
        known = CARDS.get(node, ["GPU-gone-0"])
        chosen = tuple(data.draw(st.permutations(known)))[:cards]
        asked = ResourceRequirement.of(cpu, memory, len(chosen))
        before = content(self.fleet)
        taken = {uuid for held in self.fleet.ledger.values() if held.node != "gone" for uuid in held.gpus}
        allocation = Allocation(f"a{self.named}", node, asked, chosen)
        self.named += 1
        if node != "gone" and taken & set(chosen):
            with pytest.raises(Conflict):
                self.fleet.charge(allocation)
            assert content(self.fleet) == before
        else:
            self.fleet.charge(allocation, force=force)  # force: cpu and memory may go below zero

    @rule(cards=st.integers(0, 2))
    def place(self, cards):
        Placer(self.fleet, Policy()).place(f"a{self.named}", ResourceRequirement.of(cpu=1, gpu=cards))
        self.named += 1

    @precondition(lambda self: self.fleet.ledger)
    @rule(data=st.data())
    def release(self, data):
        name = data.draw(st.sampled_from(sorted(self.fleet.ledger)))
        assert self.fleet.release(name).id == name

    @precondition(lambda self: self.fleet.ledger)
    @rule(data=st.data(), state=st.sampled_from([AllocationState.BOUND, AllocationState.RELEASING]))
    def tell_to_leave_or_to_stay(self, data, state):
        name = data.draw(st.sampled_from(sorted(self.fleet.ledger)))
        self.fleet.replace(replace(self.fleet.ledger[name], state=state))
        assert (name in self.fleet.leaving) is (state is AllocationState.RELEASING)

    @precondition(lambda self: self.fleet.ledger)
    @rule(data=st.data())
    def charge_the_same_id_again(self, data):
        name = data.draw(st.sampled_from(sorted(self.fleet.ledger)))
        before = content(self.fleet)
        with pytest.raises(Conflict):
            self.fleet.charge(an_allocation(name), force=True)
        assert content(self.fleet) == before

    @precondition(lambda self: not self.trials)
    @rule(
        node=st.sampled_from(["n1", "n2", "n3", "gone"]),
        has=st.builds(OtherUsage, st.integers(0, 9000), st.integers(0, 2**70), st.integers(0, 3)),
    )
    def others_have_something_beside(self, node, has):
        clock, more = self.fleet.clock, self.fleet.other_usage.get(node, OtherUsage())
        self.fleet.set_other_usage(node, has)
        if node != "gone" and has[0] < more[0]:
            row = self.fleet.row_of[node]
            assert self.fleet.node_rows[row, at.FREED] == clock, "who had no room there is looked at again"

    @rule()
    def begin_a_trial(self):
        before = content(self.fleet)
        self.trials.append((self.fleet.checkpoint(), before))

    @precondition(lambda self: self.trials)
    @rule()
    def roll_back(self):
        mark, before = self.trials.pop()
        self.fleet.rollback(mark)
        assert content(self.fleet) == before

    @precondition(lambda self: self.trials)
    @rule()
    def keep(self):
        mark, _ = self.trials.pop()
        before = content(self.fleet)
        self.fleet.keep(mark)
        assert content(self.fleet) == before

    @rule()
    def look_ahead_in_a_copy(self):
        before = content(self.fleet)
        twin = self.fleet.copy()
        twin.charge(an_allocation("ahead"))
        for name in self.fleet.ledger:
            twin.release(name)
        assert content(self.fleet) == before

    @invariant()
    def a_row_with_the_same_number_has_the_same_content(self):
        if hasattr(self, "fleet"):
            for row, number in enumerate(self.fleet.contents.of(np.arange(len(NODES))).tolist()):
                assert number == self.fleet.contents.of_row(row)
                found = content_of_row(self.fleet, row)
                assert self.numbered.setdefault((row, number), found) == found

    @invariant()
    def columns_equal_inventory_minus_ledger(self):
        if hasattr(self, "fleet"):
            rebuilt = Fleet(NODES).rebuilt(NODES)
            for node, has in self.fleet.other_usage.items():
                rebuilt.set_other_usage(node, has)
            assert content(self.fleet.rebuilt(NODES, self.fleet.ledger.values())) == content(self.fleet)
            for held in self.fleet.ledger.values():
                rebuilt.charge(held, force=True)
            assert content(self.fleet) == content(rebuilt)
            assert content(self.fleet.emptied()) == content(Fleet(NODES))


Journal.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
test_any_history_of_trials = Journal.TestCase
test_any_history_of_trials.pytestmark = pytest.mark.long


def test_nested_trials_come_back_step_by_step():
    fleet = Fleet(NODES)
    fleet.charge(an_allocation("a", "n1", "cpu=1,gpu=1", "GPU-n1-0"))
    start = content(fleet)
    outer = fleet.checkpoint()
    fleet.release("a")
    middle = content(fleet)
    inner = fleet.checkpoint()
    fleet.charge(an_allocation("b", "n1", "cpu=2,gpu=2", "GPU-n1-0", "GPU-n1-1"))
    fleet.keep(inner)
    again = fleet.checkpoint()
    fleet.release("b")
    fleet.rollback(again)
    assert "b" in fleet.ledger
    fleet.release("b")
    assert content(fleet) == middle
    fleet.rollback(outer)
    assert content(fleet) == start


def test_a_row_that_a_trial_gave_back_has_its_number_again():
    fleet, rows = Fleet(NODES), np.arange(len(NODES))
    fleet.charge(an_allocation("a", "n1", "cpu=1,gpu=1", "GPU-n1-0"))
    before, outer = fleet.contents.of(rows).tolist(), fleet.checkpoint()
    fleet.release("a")
    within, inner = fleet.contents.of(rows).tolist(), fleet.checkpoint()
    assert within[1:] == before[1:]
    assert within[0] != before[0]
    fleet.charge(an_allocation("b", "n1", "cpu=2,gpu=2", "GPU-n1-0", "GPU-n1-1"))
    fleet.rollback(inner)
    assert fleet.contents.of(rows).tolist() == within
    fleet.rollback(outer)
    assert fleet.contents.of(rows).tolist() == before == fleet.copy().contents.of(rows).tolist()
    fleet.release("a")
    assert fleet.contents.of_row(0) not in {before[0], within[0]}


def test_capacity_that_shrank_below_its_use_is_negative_and_takes_no_work():
    held = [an_allocation(f"a{i}", "n2", "cpu=2,mem=2g") for i in range(2)]
    fleet = Fleet([replace(NODES[1], cpu_milli=1000, memory_bytes=2**30)], held)
    assert fleet.cpu_free.tolist() == [-3000]
    assert fleet.memory_free.tolist() == [-3 * 2**30]
    fleet.release("a0")
    assert fleet.cpu_free.tolist() == [-1000]


def test_a_card_that_failed_stays_with_its_holder_and_is_not_free_after_him():
    sick = replace(NODES[0], gpus=(replace(NODES[0].gpus[0], healthy=False), *NODES[0].gpus[1:]))
    fleet = Fleet([sick], [an_allocation("a", "n1", "gpu=1", "GPU-n1-0")])
    assert (fleet.gpu_total.tolist(), fleet.gpu_free.tolist()) == ([2], [2])
    fleet.release("a")
    assert fleet.gpu_free.tolist() == [2]
    assert [card for card in fleet.cards_on(0) if refusal_of(fleet, card, WHOLE) is None] == [1, 2]


def test_an_allocation_on_an_unknown_node_is_known_and_charges_nothing():
    fleet = Fleet(NODES, [an_allocation("a", "elsewhere", "cpu=4,gpu=1", "GPU-elsewhere-0")])
    assert content(fleet)[:5] == content(Fleet(NODES))[:5]
    assert fleet.release("a").node == "elsewhere"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(lambda f: f.charge(an_allocation("b", "n1", "gpu=1", "GPU-x")), NotFound, id="an unknown card"),
        pytest.param(lambda f: f.charge(an_allocation("a")), Conflict, id="an id that is there"),
        pytest.param(lambda f: f.charge(an_allocation("b", "n1", "gpu=1", "GPU-n1-0")), Conflict, id="a held card"),
        pytest.param(lambda f: f.release("b"), NotFound, id="an id that is not there"),
    ],
)
def test_a_refused_change_changes_nothing(change, error):
    fleet = Fleet(NODES, [an_allocation("a", "n1", "gpu=1", "GPU-n1-0")])
    before = content(fleet)
    with pytest.raises(error):
        change(fleet)
    assert content(fleet) == before


def test_the_total_counts_only_nodes_that_may_take_work():
    assert str(Fleet(NODES).total) == "cpu=12,mem=12Gi,gpu=3"


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 12))
def test_every_row_that_changed_since_is_told_once(rows, first):
    fleet = Fleet([a_node(f"n{n}", 1) for n in range(5)])
    clocks = []
    for number, row in enumerate(rows):
        clocks.append(fleet.clock)
        fleet.charge(an_allocation(f"a{number}", f"n{row}"), force=True)
    assert fleet.touched_since(-1) == [0, 1, 2, 3, 4]
    assert fleet.touched_since([*clocks, fleet.clock][min(first, len(rows))]) == sorted(set(rows[first:]))


def test_a_card_claimed_by_two_is_free_when_both_are_gone():
    fleet = Fleet(NODES, [an_allocation("holder", "n1", "gpu=1", "GPU-n1-0")])
    fleet.charge(an_allocation("claim", "n1", "gpu=1", "GPU-n1-0"), force=True)
    fleet.release("holder")
    assert fleet.gpu_free.tolist()[0] == 2


def test_an_allocation_counts_the_cards_that_are_known_though_another_one_is_not():
    fleet = Fleet([books.a_node("n")])
    held = Allocation("x", "n", ResourceRequirement.of(gpu=2), ("n-0", "gone"), claim=Claim(namespace="team"))
    assert fleet.last_known(held) == (fleet.cards[0], None)
    assert fleet.usage_of(held)[:2] == (100_000, 2**34)


def test_what_leaves_is_known_by_its_state():
    found = books.Books(books.a_node("n", books.a_card("n-0"), books.a_card("n-1")))
    found.run("stays", "n-0", of="tflops=1").run("goes", "n-1", of="tflops=1", state=AllocationState.RELEASING)
    assert found.fleet.leaving == {"goes"}
    found.fleet.release("goes")
    assert not found.fleet.leaving


def test_a_trial_that_is_kept_leaves_nothing_to_undo():
    found = books.Books(books.a_node("n", books.a_card("n-0"), books.a_card("n-1")))
    mark = found.fleet.checkpoint()
    found.run("in the trial", "n-0", of="tflops=1")
    found.fleet.keep(mark)
    found.run("after it", "n-1", of="tflops=1")
    assert found.fleet.checkpoint() == 0
    found.fleet.rollback(0)
    assert set(found.fleet.ledger) == {"in the trial", "after it"}


def sizes(fleet: Fleet) -> set[int]:
    """The numbers of whole cards of those that run on the first node; 0 for parts of cards."""
    bits = fleet.node_rows.item(0, at.RUNS)
    return {size for size in range(bits.bit_length()) if bits >> size & 1}


def test_a_node_knows_of_which_sizes_requests_run_there_until_the_last_of_a_size_is_gone():
    found = books.Books(books.a_node("n", *(books.a_card(f"n-{k}") for k in range(6))))
    found.run("one", "n-0", of="").run("other", "n-1", of="").run("pair", "n-2", "n-3", of="").run("part", "n-4")
    assert sizes(found.fleet) == {0, 1, 2}
    for uid, left in (("one", {0, 1, 2}), ("other", {0, 2}), ("part", {2}), ("pair", set())):
        found.fleet.release(uid)
        assert sizes(found.fleet) == left


def test_what_a_placer_puts_on_a_node_is_known_there_by_its_size():
    fleet = Fleet([books.a_node("n", *(books.a_card(f"n-{k}") for k in range(6)))])
    placer = Placer(fleet, Policy())
    for text, known in (("gpu=2,tflops=10", {0}), ("gpu=2", {0, 2}), ("gpu=1", {0, 1, 2})):
        assert placer.place(text, ResourceRequirement.from_string(text)) is not None
        assert sizes(fleet) == known


def test_both_machines_change_when_who_holds_a_card_is_recorded_on_the_one_that_it_left():
    fleet = Fleet([books.a_node("n"), books.a_node("o"), books.a_node("p")])
    placer, asked = Placer(fleet, Policy()), ResourceRequirement.of(gpu=1)
    for change in (
        lambda: fleet.charge(Allocation("x", "n", asked, ("o-0",)), force=True),
        lambda: fleet.release("x"),
    ):
        assert placer.table(asked).ranked.shape == (3,)
        clock = fleet.clock
        fleet.dirty.clear()
        change()
        assert fleet.dirty == {0, 1}
        assert fleet.touched_since(clock) == [0, 1]
        again = Placer(fleet.copy(), Policy())
        assert placer.table(asked).ranked.tolist() == again.table(asked).ranked.tolist()
        assert placer.room(asked).tolist() == again.room(asked).tolist()


def test_a_machine_on_which_a_placer_puts_something_has_changed():
    fleet = Fleet([books.a_node("n")])
    placer = Placer(fleet, Policy())
    fleet.dirty.clear()
    assert placer.place("x", ResourceRequirement.of(gpu=1)) is not None
    assert fleet.dirty == {0}


@pytest.mark.parametrize("order", list(product(range(3), repeat=4)))
def test_the_machines_touched_since_any_time_are_known_in_whatever_order_they_changed(order):
    fleet = Fleet([books.a_node(name) for name in "abc"])
    clocks = []
    for number, row in enumerate(order):
        clocks.append(fleet.clock)
        fleet.charge(Allocation(f"x{number}", "abc"[row], ResourceRequirement.of(cpu=1)))
        for first, clock in enumerate(clocks):
            assert fleet.touched_since(clock) == sorted(set(order[first : number + 1]))


@pytest.mark.parametrize(
    ("text", "share"),
    [
        pytest.param("gpu=2", 1, id="whole cards"),
        pytest.param("gpu=2,tflops=10,isolation=shared", 1, id="cards that are held whole for a part"),
        pytest.param("gpu=2,percent=25", Fraction(1, 4), id="a fraction"),
        pytest.param("gpu=2,tflops=10", Fraction(1, 10), id="compute, on the card of which that is least"),
        pytest.param("gpu=2,tflops=10,vram=8g", Fraction(1, 2), id="or vram, if it is more of each card"),
        pytest.param("gpu=2,tflops=500", 1, id="more than any card has"),
        pytest.param("cpu=1", 0, id="no cards"),
    ],
)
def test_a_request_counts_for_a_share_of_each_of_its_cards(text, share):
    fleet = Fleet([books.a_node("n", books.a_card("n-0", 100, 16), books.a_card("n-1", 50, 16))])
    asked = ResourceRequirement.from_string(text)
    assert fleet.resources(asked).gpu_milli == asked.gpu_count * share * 1000
    assert fleet.holding(asked, 3).gpu_milli == asked.gpu_count * share * 3000
    assert not asked.gpu_count or fleet.share_of_card(asked) == share
