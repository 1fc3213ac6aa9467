"""Cards whose capacity becomes known, unknown, larger or smaller while it is held, with restarts in between.

The oracle below keeps what each holder asked and what its card had by then, and adds up exact fractions. It
shares nothing with the books but the requests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.quantity import PPM
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.wire.pod.record import Record

GIB = 1 << 30
SIZES = (None, 24 * GIB, 40 * GIB, 80 * GIB)
SPEEDS = (None, 71_000, 100_000, 312_000)
TEXTS = (
    *("gpu=0.25", "gpu=0.5", "gpu=0.333333", "gpu=0.9", "percent=50", "percent=15", "percent=30,vram=8g"),
    *("vram=8g", "vram=20g", "vram=39g", "tflops=30", "tflops=71,vram=4g", "tflops=200", "gpu=1"),
)


def a_card(uuid: str, vram: int | None = None, compute: int | None = None) -> Gpu:
    return Gpu(uuid, int(uuid[-1]), vram_bytes=vram, compute_gflops=compute)


def a_node(*cards: Gpu) -> Node:
    return Node("n", 64_000, 2**40, cards)


def ask(text: str, uid: str) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim("team"))


def ready(*cards: Gpu) -> FleetAllocator:
    allocator = FleetAllocator(Fleet([a_node(*cards)]))
    allocator.set_ready()
    return allocator


def hold(allocator: FleetAllocator, text: str, uid: str = "held") -> Allocation:
    outcome = allocator.alloc(ask(text, uid), 0.0)
    assert isinstance(outcome, Allocation), outcome
    return outcome


def refused(allocator: FleetAllocator, text: str) -> Refusal:
    outcome = allocator.simulate(ask(text, "new")).outcome
    assert isinstance(outcome, Refusal)
    return outcome


def stored(held: Allocation) -> Allocation:
    """An allocation as a store gives it back."""
    return msgspec.convert(json.loads(msgspec.json.encode(held)), Allocation)


def of_pod(held: Allocation) -> Allocation:
    """An allocation as the annotation of its pod gives it back: nothing is said of its cards."""
    record = msgspec.json.decode(msgspec.json.encode(Record.of(held)), type=Record)
    return replace(held, charges=tuple(card.charge for card in record.cards), cards=())


def of_old_store(held: Allocation) -> Allocation:
    """An allocation as stores had it that knew of no basis: the charges as they are, and the cards."""
    return replace(held, charges=tuple(replace(charge, basis=None) for charge in held.charges))


# --- single cases ---


def test_a_share_of_a_card_that_learns_what_it_has_keeps_its_share():
    allocator = ready(a_card("g0"))
    hold(allocator, "gpu=0.5")
    allocator.set_nodes([a_node(a_card("g0", 40 * GIB))])
    assert refused(allocator, "vram=39g").code is Code.GPU_VRAM
    assert allocator.fleet.vram_free.tolist() == [20 * GIB]
    assert isinstance(allocator.alloc(ask("vram=20g", "new"), 1.0), Allocation)


def test_a_share_is_no_number_of_tflops_when_the_card_learns_its_speed():
    allocator = ready(a_card("g0", 40 * GIB))
    hold(allocator, "gpu=0.5")
    allocator.set_nodes([a_node(a_card("g0", 40 * GIB, 100_000))])
    assert allocator.fleet.compute_free.tolist() == [50_000]
    assert allocator.fleet.usage["team"].compute_request == 50_000


def test_an_amount_of_a_card_that_forgets_what_it_has_is_its_share_of_what_it_had():
    allocator = ready(a_card("g0", 40 * GIB, 100_000))
    hold(allocator, "vram=30g,tflops=25")
    allocator.set_nodes([a_node(a_card("g0"))])
    assert allocator.fleet.vram_free.tolist() == [PPM // 4]
    assert refused(allocator, "gpu=0.5").code is Code.GPU_SHARE
    allocator.set_nodes([a_node(a_card("g0", 40 * GIB, 100_000))])
    assert (allocator.fleet.vram_free.tolist(), allocator.fleet.compute_free.tolist()) == ([10 * GIB], [75_000])


def test_a_share_of_a_card_that_is_larger_now_is_of_what_it_has_now():
    allocator = ready(a_card("g0", 40 * GIB))
    hold(allocator, "gpu=0.5")
    allocator.set_nodes([a_node(a_card("g0", 80 * GIB))])
    assert refused(allocator, "gpu=0.75").code is Code.GPU_SHARE
    allocator.set_nodes([a_node(a_card("g0", 40 * GIB))])
    assert allocator.fleet.vram_free.tolist() == [20 * GIB]


def test_a_share_of_a_card_that_is_smaller_now_keeps_what_was_granted():
    allocator = ready(a_card("g0", 40 * GIB))
    hold(allocator, "gpu=0.5")
    allocator.set_nodes([a_node(a_card("g0", 24 * GIB))])
    assert allocator.fleet.vram_free.tolist() == [4 * GIB]
    assert refused(allocator, "vram=5g").code is Code.GPU_VRAM


def test_a_partition_of_a_card_that_learns_its_speed_takes_its_share_of_that():
    card = Gpu("g0", 0, model="A100-SXM4-80GB", vram_bytes=80 * GIB)
    allocator = ready(card)
    hold(allocator, "partition=3g.40gb")
    allocator.set_nodes([a_node(replace(card, compute_gflops=312_000))])
    assert allocator.fleet.compute_free.tolist() == [312_000 - 428_571 * 312_000 // PPM]


def test_an_executors_share_follows_its_card_too():
    allocator = ready(a_card("g0"))
    held = hold(allocator, "gpu=0.5")
    allocator.dealloc("held", 1.0)
    allocator.fleet.charge(replace(held, claim=None))
    allocator.set_nodes([a_node(a_card("g0", 40 * GIB))])
    assert allocator.fleet.vram_free.tolist() == [20 * GIB]
    allocator.leave("held")
    assert allocator.fleet.vram_free.tolist() == [40 * GIB]


def test_room_that_is_kept_follows_its_card_too():
    allocator = ready(a_card("g0"))
    held = hold(allocator, "gpu=0.5")
    allocator.dealloc("held", 1.0)
    allocator.nominate(Nomination(ask("gpu=0.5", "held"), "n", 0.0, ("g0",), held.charges, hold=True))
    allocator.set_nodes([a_node(a_card("g0", 40 * GIB))])
    assert refused(allocator, "vram=39g").code is Code.NOMINATED


def test_bytes_cannot_be_charged_to_a_card_that_does_not_say_what_it_has():
    allocator = ready(a_card("g0"))
    allocator.assume(ask("gpu=0.5", "held"), ["g0"], 0.0)
    outcome = allocator.charge_unevenly("held", {"g0": 8 * GIB})
    assert isinstance(outcome, Refusal)
    assert outcome.code is Code.CAPACITY_UNKNOWN


def test_bytes_charged_unevenly_stay_bytes_on_a_card_that_grows():
    allocator = ready(a_card("g0", 40 * GIB))
    allocator.assume(ask("gpu=0.5", "held"), ["g0"], 0.0)
    allocator.charge_unevenly("held", {"g0": 8 * GIB})
    for size in (80, 24):
        allocator.set_nodes([a_node(a_card("g0", size * GIB))])
        assert allocator.fleet.vram_free.tolist() == [(size - 8) * GIB]


@pytest.mark.parametrize("way", [stored, of_pod, of_old_store])
def test_a_restart_that_finds_other_cards_charges_the_same_as_a_change_without_one(way):
    before = ready(a_card("g0"), a_card("g1", 40 * GIB, 100_000))
    for uid, text in (("a", "gpu=0.5"), ("b", "gpu=0.75"), ("c", "vram=9g"), ("d", "percent=15")):
        hold(before, text, uid)
    nodes = [a_node(a_card("g0", 40 * GIB, 71_000), a_card("g1", 80 * GIB))]
    after = FleetAllocator(Fleet(nodes))
    assert after.reconcile(map(way, before.fleet.ledger.values()), 1.0) == ("a", "b", "c", "d")
    assert after.reconcile(map(way, before.fleet.ledger.values()), 1.0) == ()
    before.set_nodes(nodes)
    assert after.fleet.ledger == before.fleet.ledger
    assert after.fleet.vram_free.tolist() == before.fleet.vram_free.tolist()


def test_an_amount_of_which_nobody_remembers_the_card_has_all_of_one_that_says_nothing():
    allocator = ready(a_card("g0", 40 * GIB))
    old = of_old_store(replace(hold(allocator, "vram=8g"), cards=()))
    after = FleetAllocator(Fleet([a_node(a_card("g0"))]))
    after.reconcile([old], 1.0)
    assert after.fleet.vram_free.tolist() == [0]


# --- any history ---


@dataclass
class Held:
    """What one holder asked of its card, and what the card had then: compute, then vram."""

    card: str
    amounts: tuple[int, int]
    shares: tuple[Fraction, Fraction]
    had: tuple[int | None, int | None]
    whole: bool

    def fractions(self, has: tuple[int | None, int | None]) -> list[Fraction]:
        return [self._fraction(n, has[n]) for n in (0, 1)]

    def _fraction(self, n: int, has: int | None) -> Fraction:
        amount, share, had = self.amounts[n], self.shares[n], self.had[n]
        if self.whole:
            return Fraction(1)
        if has is None:
            return share if share or not amount else Fraction(amount, had or amount)
        granted = share * had if had is not None else Fraction(0)
        return max(share, (granted if share else Fraction(amount)) / has)


class Oracle:
    """Who holds what, by exact fractions."""

    def __init__(self) -> None:
        self.cards: dict[str, tuple[int | None, int | None]] = {}
        self.held: dict[str, Held] = {}

    def enter(self, held: Allocation) -> None:
        part, (card,) = held.requirement.part, held.gpus
        whole = part is None
        amounts = (0, 0) if part is None else (part.compute_gflops, part.vram_bytes)
        shares = (0, 0) if part is None else (part.compute_ppm, part.vram_ppm)
        exact = Fraction(shares[0], PPM), Fraction(shares[1], PPM)
        self.held[held.id] = Held(card, amounts, exact, self.cards[card], whole)

    def promised(self, card: str) -> list[Fraction]:
        each = [held.fractions(self.cards[card]) for held in self.held.values() if held.card == card]
        return [sum((one[n] for one in each), Fraction(0)) for n in (0, 1)]

    def rounding(self, card: str) -> list[Fraction]:
        """What rounding to whole units may come to: one unit per holder."""
        holders = sum(held.card == card for held in self.held.values()) + 1
        return [Fraction(2 * holders, PPM if total is None else total) for total in self.cards[card]]

    def takes(self, card: str, asked: ResourceRequirement) -> bool:
        """Whether a card surely takes a request: there is more room than rounding may come to."""
        part, has, promised = asked.part, self.cards[card], self.promised(card)
        others = [held for held in self.held.values() if held.card == card]
        if part is None:
            return not others
        if (part.compute_gflops and has[0] is None) or (part.vram_bytes and has[1] is None):
            return False
        new = Held(card, (part.compute_gflops, part.vram_bytes), _shares(asked), has, whole=False).fractions(has)
        room = zip(promised, new, self.rounding(card), strict=True)
        return not any(held.whole for held in others) and all(old + more + off <= 1 for old, more, off in room)


def _shares(asked: ResourceRequirement) -> tuple[Fraction, Fraction]:
    assert asked.part is not None
    return Fraction(asked.part.compute_ppm, PPM), Fraction(asked.part.vram_ppm, PPM)


facts = st.tuples(st.sampled_from(SPEEDS), st.sampled_from(SIZES))
steps = st.one_of(
    st.tuples(st.just("change"), st.sampled_from(["g0", "g1"]), facts),
    st.tuples(st.just("alloc"), st.integers(0, 9), st.sampled_from(TEXTS)),
    st.tuples(st.just("alloc"), st.integers(0, 9), st.sampled_from(TEXTS)),
    st.tuples(st.just("dealloc"), st.integers(0, 9), st.none()),
    st.tuples(st.just("restart"), st.sampled_from([stored, of_pod]), facts),
)


def _nodes(oracle: Oracle) -> list[Node]:
    return [a_node(*(a_card(uuid, vram, compute) for uuid, (compute, vram) in sorted(oracle.cards.items())))]


def _alloc(allocator: FleetAllocator, oracle: Oracle, uid: str, text: str) -> None:
    request = ask(text, uid)
    outcome = allocator.alloc(request, 0.0)
    if isinstance(outcome, Refusal):
        assert not any(oracle.takes(card, request.requirement) for card in oracle.cards)
    elif uid not in oracle.held:
        oracle.enter(outcome)
        (card,) = outcome.gpus
        for total, off in zip(oracle.promised(card), oracle.rounding(card), strict=True):
            assert total <= 1 + off


def _agree(allocator: FleetAllocator, oracle: Oracle) -> None:
    """The books hold what the oracle holds, of each card as it is now."""
    fleet = allocator.fleet
    assert {uid: held.gpus for uid, held in fleet.ledger.items()} == {
        uid: (held.card,) for uid, held in oracle.held.items()
    }
    for card, gpu in enumerate(fleet.cards):
        totals = int(fleet.compute_total[card]), int(fleet.vram_total[card])
        free = int(fleet.compute_free[card]), int(fleet.vram_free[card])
        pairs = zip(totals, free, oracle.promised(gpu.uuid), oracle.rounding(gpu.uuid), strict=True)
        for total, left, promised, off in pairs:
            assert abs(Fraction(total - left, total) - promised) <= off


@given(st.lists(steps, min_size=4, max_size=24), facts, facts)
@settings(max_examples=300)
def test_no_history_of_a_card_promises_more_than_it_has_or_loses_what_is_held(history, first, second):
    oracle = Oracle()
    oracle.cards = {"g0": first, "g1": second}
    allocator = FleetAllocator(Fleet(_nodes(oracle)))
    allocator.set_ready()
    for step, what, how in history:
        if step == "change":
            oracle.cards[what] = how
            allocator.set_nodes(_nodes(oracle))
        elif step == "alloc":
            _alloc(allocator, oracle, f"r{what}", how)
        elif step == "dealloc":
            allocator.dealloc(f"r{what}", 0.0)
            oracle.held.pop(f"r{what}", None)
        else:
            found = [what(held) for held in allocator.fleet.ledger.values()]
            oracle.cards["g0"] = how
            allocator = FleetAllocator(Fleet(_nodes(oracle)))
            allocator.reconcile(found, 0.0)
            allocator.set_ready()
        _agree(allocator, oracle)
    for uid in list(oracle.held):
        allocator.dealloc(uid, 0.0)
    assert (allocator.fleet.vram_free == allocator.fleet.vram_total).all()
    assert (allocator.fleet.compute_free == allocator.fleet.compute_total).all()
