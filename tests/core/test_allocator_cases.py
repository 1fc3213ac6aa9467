"""The allocator on small clusters, case by case; amounts are written as TFLOPS and GiB per card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.departed import Freed
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.core.placing.adjust import Adjustment, AmountsChange, ScalingRefusal
from ullage.core.placing.candidates import find, refusals_on
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.rules import WHOLE_BY, Rules
from ullage.core.strategies.load import Weights, compact_first, low_load_first
from ullage.core.strategies.strategy import Strategy
from ullage.core.verdict.cards import charges_on
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.sentences import reject_text
from ullage.core.verdict.shape import shape_of
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict, InvalidRequest, NotFound, Unavailable
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, IsolationPolicy, Part
from ullage.model.profile import Profiles
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

GIB = 2**30
MINUTE = 60.0
COLUMNS = ("compute_free", "vram_free", "card_users", "gpu_free", "slots_free", "cpu_free", "memory_free")

STRATEGIES = ("compact_first", "low_load_first", "node_compact_gpu_low_load")


# --- words ---


def gpu(name: str, tflops: float, gib: float, **facts: object) -> Gpu:
    facts = {"index": 0, "pool": "test-pool", "model": "NVIDIA A100", "vendor": "NVIDIA"} | facts
    return Gpu(name, vram_bytes=int(gib * GIB), compute_gflops=round(tflops * 1000), **facts)


def node(name: str, *gpus: Gpu) -> Node:
    return Node(name, 64_000, 2**40, gpus)


def amounts(tflops: float, gib: float) -> Part:
    return Part(round(tflops * 1000), int(gib * GIB))


def ask(uid: str, tflops: float, gib: float, count: int = 1, *, percent: int = 0, **cards: object) -> Request:
    """A request whose limit is what it asks."""
    pod, namespace = str(cards.pop("pod", "")), str(cards.pop("namespace", "default"))
    strategy = cards.pop("strategy", None)
    part = Part(round(tflops * 1000), int(gib * GIB), percent * 10_000)
    selector = CardSelector(**({"pool": "test-pool", "isolation": Isolation.SOFT} | cards))
    limit = Part(part.compute_gflops, part.vram_bytes, part.compute_ppm)
    requirement = ResourceRequirement(0, 0, count, part, selector)
    return Request(uid, requirement, Claim(namespace, pod=pod, limit=limit), strategy)


def ready(*nodes: Node, rules: Rules | None = None, held: Sequence[Allocation] = ()) -> FleetAllocator:
    allocator = FleetAllocator(Fleet(nodes, held), rules)
    allocator.set_ready()
    return allocator


def free(allocator: FleetAllocator, name: str) -> tuple[float, float]:
    """What is free on a card beside everybody, assumed ones too."""
    fleet = allocator.fleet
    card = fleet.card_of[name]
    return int(fleet.compute_free[card]) / 1000, int(fleet.vram_free[card]) / GIB


def available(allocator: FleetAllocator, name: str) -> tuple[float, float]:
    """What is free on a card beside those that are bound or releasing."""
    fleet = allocator.fleet
    compute, vram = free(allocator, name)
    for uid, charge in fleet.holders[fleet.card_of[name]].items():
        if fleet.ledger[uid].state is AllocationState.ASSUMED:
            assert charge is not None
            compute, vram = compute + charge.compute / 1000, vram + charge.vram / GIB
    return compute, vram


def content(allocator: FleetAllocator) -> tuple[object, ...]:
    fleet = allocator.fleet
    return (*(getattr(fleet, name).tolist() for name in COLUMNS), dict(fleet.ledger), dict(fleet.usage))


def bound(outcome: Allocation | Refusal) -> Allocation:
    assert isinstance(outcome, Allocation), outcome
    return outcome


def refused(outcome: object) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


def on_cards(allocator: FleetAllocator, uid: str, tflops: float, gib: float, *gpus: str, **cards: object) -> Allocation:
    return bound(allocator.bind(ask(uid, tflops, gib, len(gpus), **cards), gpus, 0.0))


def stage(refusal: Refusal, name: str) -> tuple[bool, int, int]:
    found = next(stage for stage in refusal.stages if stage.filter == name)
    return found.reached, found.before, found.after


# --- A: a pool of four cards on one node, one that is pending, and another pool ---

A_NODES = (
    node(
        "node-1",
        gpu("gpu-1", 100, 16, index=0),
        gpu("gpu-5", 100, 16, index=1),
        gpu("gpu-6", 100, 16, index=2),
        gpu("gpu-2", 100, 32, index=3),
    ),
    node("node-2", gpu("gpu-3", 120, 24, pool="other-pool")),
    node("node-3", gpu("gpu-4", 150, 48, model="NVIDIA H100", phase=GpuPhase.PENDING)),
)
A_CARDS = ("gpu-1", "gpu-5", "gpu-6", "gpu-2")
COMPACT = Rules(strategies={"test-pool": "compact_first"})


@pytest.fixture
def a() -> FleetAllocator:
    return ready(*A_NODES, rules=COMPACT)


def test_a_request_takes_its_amounts_of_one_card(a):
    got = bound(a.alloc(ask("r", 50, 8), 1.0))
    assert got.state is AllocationState.BOUND
    (name,) = got.gpus
    before = FleetAllocator(Fleet(A_NODES))
    assert [free(before, name)[i] - free(a, name)[i] for i in (0, 1)] == [50, 8]
    taken = [sum(free(before, card)[i] - free(a, card)[i] for card in A_CARDS) for i in (0, 1)]
    assert taken == [50, 8]
    assert a.fleet.usage["default"] == Usage(50_000, 8 * GIB, 50_000, 8 * GIB, 1, 500_000)


def test_two_cards_of_one_node(a):
    got = bound(a.alloc(ask("r", 20, 4, 2), 1.0))
    assert len(set(got.gpus)) == 2
    assert {a.fleet.nodes[int(a.fleet.card_row[a.fleet.card_of[name]])].name for name in got.gpus} == {"node-1"}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(ask("r", 10, 2, 10), Code.NOT_ENOUGH_CARDS, id="c3-more-cards-than-a-node-has"),
        pytest.param(ask("r", 200, 64), Code.GPU_COMPUTE, id="c4-more-than-any-card-has"),
        pytest.param(ask("r", 1, 1, models=("NonExistentModel",)), Code.WRONG_MODEL, id="c7-a-model-nobody-has"),
        pytest.param(ask("r", 1, 1, model_words=("nonexistent",)), Code.WRONG_MODEL, id="a-word-of-no-model"),
        pytest.param(ask("r", 1, 1, not_model_words=("a",)), Code.WRONG_MODEL, id="a-word-of-every-model"),
        pytest.param(ask("r", 1, 1, uuids=("nowhere",)), Code.WRONG_UUID, id="a-card-nobody-has"),
        pytest.param(ask("r", 1, 1, not_uuids=A_CARDS), Code.WRONG_UUID, id="every-card-excluded"),
        pytest.param(ask("r", 50, 8, 5), Code.NOT_ENOUGH_CARDS, id="c24-five-cards-of-four"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_charged(a, request_, code):
    before = content(a), a.version
    refusal = refused(a.alloc(request_, 1.0))
    assert refusal.code is code
    assert (content(a), a.version) == before
    assert refused(a.check_quota_and_filter(request_)).code is code


@pytest.mark.parametrize("operation", ["alloc", "check_quota_and_filter", "simulate"])
def test_an_unknown_pool_is_an_error(a, operation):
    arguments = (1.0,) if operation == "alloc" else ()
    with pytest.raises(NotFound) as error:
        getattr(a, operation)(ask("r", 1, 1, pool="no-such-pool"), *arguments)
    assert error.value.code == "unknown-pool"
    assert a.version == 0


def test_a_model_takes_such_a_card(a):
    got = bound(a.alloc(ask("r", 50, 8, models=("NVIDIA A100",)), 1.0))
    assert a.fleet.cards[a.fleet.card_of[got.gpus[0]]].model == "NVIDIA A100"


def test_what_is_given_back_leaves_no_trace(a):
    before = content(a)
    bound(a.alloc(ask("r", 30, 6), 1.0))
    assert content(a) != before
    assert a.dealloc("r", 2.0).gpus
    assert content(a) == before


@pytest.mark.parametrize(("strategy", "cards"), list(zip(STRATEGIES, (1, 3, 3), strict=True)))
def test_three_small_ones_share_a_card_or_spread_over_three(strategy, cards):
    allocator = ready(*A_NODES, rules=Rules(strategy=strategy))
    got = [bound(allocator.alloc(ask(f"r{i}", 20, 4), 1.0)) for i in range(3)]
    assert len({name for allocation in got for name in allocation.gpus}) == cards


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_of_the_inventory_does_not_matter(strategy):
    reverse = [replace(node, gpus=node.gpus[::-1]) for node in A_NODES[::-1]]
    ways = [ready(*nodes, rules=Rules(strategy=strategy)) for nodes in (A_NODES, reverse)]
    placed = [[bound(way.alloc(ask(f"r{i}", 20, 4), 1.0)).gpus for i in range(15)] for way in ways]
    assert placed[0] == placed[1]


def test_all_cards_of_the_ledger_are_freed_and_other_names_are_told(a):
    before = content(a)
    first, second = sorted(bound(a.alloc(ask("r", 20, 4, 2), 1.0)).gpus)
    freed = a.dealloc("r", 2.0, [first])
    assert (set(freed.gpus), freed.not_held, freed.not_named) == ({first, second}, (), (second,))
    assert content(a) == before


@pytest.mark.parametrize(
    ("count", "gpus"),
    [
        pytest.param(2, ("gpu-1", "gpu-1"), id="c12-a-card-named-twice"),
        pytest.param(2, ("gpu-1", "gpu-3"), id="c14-cards-of-two-pools-and-two-nodes"),
        pytest.param(2, ("gpu-1",), id="fewer-than-asked"),
        pytest.param(1, ("gpu-1", "gpu-5"), id="more-than-asked"),
        pytest.param(1, ("gpu-3",), id="a-card-of-another-pool"),
    ],
)
@pytest.mark.parametrize("operation", ["assume", "bind"])
def test_cards_that_are_named_wrongly_are_an_error_and_nothing_is_charged(a, operation, count, gpus):
    before = content(a), a.version
    with pytest.raises(InvalidRequest) as error:
        getattr(a, operation)(ask("r", 10, 2, count), gpus, 1.0)
    assert error.value.code == "invalid-request"
    assert (content(a), a.version) == before


def test_cards_of_two_nodes_are_refused_without_a_pool_too(a):
    with pytest.raises(InvalidRequest, match="one node"):
        a.assume(ask("r", 10, 2, 2, pool=None), ("gpu-1", "gpu-3"), 1.0)


def test_without_room_on_one_card_the_other_one_is_untouched(a):
    on_cards(a, "user", 50, 2, "gpu-5")
    before = content(a), a.version
    refusal = refused(a.bind(ask("r", 90, 10, 2), ("gpu-1", "gpu-5"), 1.0))
    assert [(why.code, why.gpu) for why in refusal.rejections] == [(Code.GPU_COMPUTE, "gpu-5")]
    assert (content(a), a.version) == before


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        pytest.param(ask("r", 60, 1), (Code.GPU_COMPUTE, Cure.CAPACITY, 60_000, 50_000), id="not now"),
        pytest.param(ask("r", 120, 1), (Code.GPU_COMPUTE, Cure.NODE_CHANGE, 120_000, 100_000), id="never"),
        pytest.param(ask("r", 1, 15), (Code.GPU_VRAM, Cure.CAPACITY, 15 * GIB, 14 * GIB), id="not now, vram"),
        pytest.param(ask("r", 1, 64), (Code.GPU_VRAM, Cure.NODE_CHANGE, 64 * GIB, 16 * GIB), id="never, vram"),
        pytest.param(ask("r", 60, 64), (Code.GPU_VRAM, Cure.NODE_CHANGE, 64 * GIB, 16 * GIB), id="never goes first"),
        pytest.param(
            ask("r", 60, 64, isolation=Isolation.SHARED),
            (Code.GPU_VRAM, Cure.NODE_CHANGE, 64 * GIB, 16 * GIB),
            id="never goes before a card in use",
        ),
    ],
)
def test_what_a_card_will_never_have_is_told_apart_from_what_is_not_free_now(a, request_, why):
    on_cards(a, "user", 50, 2, "gpu-1")
    (reported,) = refused(a.bind(request_, ["gpu-1"], 1.0)).rejections
    assert (reported.code, reported.cure, reported.needed, reported.had) == why


@pytest.mark.parametrize(
    ("to", "cure", "had"),
    [
        pytest.param(90, Cure.CAPACITY, 70_000, id="not now"),
        pytest.param(101, Cure.NODE_CHANGE, 100_000, id="never"),
    ],
)
def test_growth_that_a_card_will_never_have_is_told_apart_too(a, to, cure, had):
    on_cards(a, "user", 30, 2, "gpu-1")
    on_cards(a, "r", 10, 2, "gpu-1")
    refusal = refused(a.adjust("r", AmountsChange(amounts(to, 2), amounts(to, 2))))
    reported = [(why.code, why.cure, why.needed, why.had) for why in refusal.rejections]
    assert reported == [(code, cure, to * 1000, had) for code in (Code.SCALING_EXCEEDED, Code.GPU_COMPUTE)]
    assert isinstance(refusal, ScalingRefusal)
    assert refusal.max_request[0] == 70_000


@pytest.mark.parametrize("dry_run", [True, False])
def test_more_than_the_card_has_is_refused_with_what_would_pass(a, dry_run):
    (name,) = bound(a.alloc(ask("r", 50, 10), 1.0)).gpus
    before = content(a), a.version
    refusal = a.adjust("r", AmountsChange(amounts(300, 30), amounts(300, 30)), dry_run=dry_run)
    assert isinstance(refusal, ScalingRefusal)
    assert refusal.code is Code.SCALING_EXCEEDED
    assert [refusal.remain[0] / 1000, refusal.remain[1] / GIB] == list(free(a, name)) == [50, 6]
    assert refusal.max_request == (100_000, 16 * GIB)
    assert (content(a), a.version) == before
    assert isinstance(a.adjust("r", AmountsChange(Part(*refusal.max_request))), Adjustment)


def test_growing_and_shrinking_move_what_is_available_by_the_difference(a):
    (name,) = bound(a.alloc(ask("r", 50, 10), 1.0)).gpus
    compute, vram = free(a, name)
    grown = a.adjust("r", AmountsChange(amounts(90, 15), amounts(90, 15)))
    assert isinstance(grown, Adjustment)
    assert (grown.delta_request, grown.delta_limit) == ((40_000, 5 * GIB),) * 2
    assert free(a, name) == (compute - 40, vram - 5)
    a.adjust("r", AmountsChange(amounts(10, 1), amounts(10, 1)))
    assert free(a, name) == (compute + 40, vram + 9)
    assert a.fleet.usage["default"] == Usage(10_000, GIB, 10_000, GIB, 1, 100_000)


def test_half_a_tflops_is_charged_exactly(a):
    (name,) = bound(a.alloc(ask("r", 0.5, 1), 1.0)).gpus
    assert free(a, name) == (99.5, 15)


def test_a_quarter_of_a_tflops_on_two_cards_is_half_a_tflops(a):
    got = bound(a.alloc(ask("r", 0.25, 1, 2), 1.0))
    assert len(got.gpus) == 2
    assert a.fleet.usage["default"] == Usage(500, 2 * GIB, 500, 2 * GIB, 1, 5_000)


def test_with_its_last_card_a_node_its_pool_and_its_entry_vanish(a):
    assert a.pools == {"test-pool", "other-pool"}
    a.set_nodes([A_NODES[0], A_NODES[2]])
    assert "node-2" not in a.fleet.row_of
    assert a.pools == {"test-pool"}
    assert a.unused_nodes() == {"node-1", "node-3"}
    a.set_nodes([A_NODES[0], replace(A_NODES[1], gpus=())])
    assert a.unused_nodes() == {"node-1"}


def test_a_full_node_is_a_rejection_with_its_details(a):
    a.set_workers_per_node(2)
    for i in range(2):
        assert isinstance(a.assume(ask(f"r{i}", 1, 1), ["gpu-1"], 1.0), Allocation)
    refusal = refused(a.check_quota_and_filter(ask("r", 1, 1)))
    assert refusal.code is Code.WORKER_CAP
    assert {why.gpu for why in refusal.rejections} == set(A_CARDS)
    assert stage(refusal, "worker-cap") == (True, 4, 0)
    assert stage(refusal, "pool") == (True, 6, 5)
    assert refused(a.alloc(ask("r", 1, 1), 1.0)).code is Code.WORKER_CAP
    assert refused(a.assume(ask("r", 1, 1), ["gpu-2"], 1.0)).code is Code.WORKER_CAP
    a.set_workers_per_node(0)
    assert isinstance(a.alloc(ask("r", 1, 1), 1.0), Allocation)


def test_the_stages_before_the_one_that_emptied_the_list_are_told(a):
    refusal = refused(a.alloc(ask("r", 50, 8, 5), 1.0))
    assert stage(refusal, "same-node") == (True, 4, 0)
    assert [stage.filter for stage in refusal.stages if stage.before != stage.after] == ["pool", "phase", "same-node"]
    assert all(len(stage.removed) == stage.before - stage.after for stage in refusal.stages)


def test_what_is_simulated_is_always_the_same_and_changes_nothing(a):
    bound(a.alloc(ask("user", 10, 2), 1.0))
    a.take_dirty()
    before = content(a), a.version
    answers = [a.simulate(ask("r", 50, 8)) for _ in range(100)]
    assert all(answer == answers[0] for answer in answers)
    assert (content(a), a.version, a.take_dirty()) == (*before, frozenset())
    choice = answers[0].outcome
    assert isinstance(choice, Choice)
    assert bound(a.alloc(ask("r", 50, 8), 1.0)).gpus == choice.gpus


# --- single cards ---


def one(tflops: float = 100, gib: float = 24, **facts: object) -> FleetAllocator:
    return ready(node("n", gpu("g", tflops, gib, **facts)))


def test_an_idle_card_has_all_of_its_capacity():
    assert free(one(71, 24), "g") == (71, 24)


def test_a_card_without_capacity_is_known_and_no_candidate():
    allocator = ready(node("n", Gpu("g", 0, pool="test-pool")))
    assert allocator.unused_nodes() == {"n"}
    assert refused(allocator.alloc(ask("r", 1, 1), 1.0)).code is Code.CAPACITY_UNKNOWN


def test_only_users_of_the_card_take_from_it():
    allocator = ready(node("n", gpu("g", 71, 24)), node("m", gpu("h", 71, 24)))
    on_cards(allocator, "a", 20, 8, "g")
    on_cards(allocator, "b", 10, 4, "g")
    on_cards(allocator, "c", 5, 1, "h")
    assert free(allocator, "g") == (41, 12)


def test_a_binding_is_undone_without_a_trace():
    allocator = one(100, 24)
    on_cards(allocator, "r", 30, 8, "g")
    assert free(allocator, "g") == (70, 16)
    allocator.take_dirty()
    undone = allocator.rollback("r", 1.0)
    assert undone is not None
    assert undone.gpus == ("g",)
    assert free(allocator, "g") == (100, 24)
    assert (allocator.fleet.ledger, allocator.fleet.usage, allocator.fleet.holders) == ({}, {}, [{}])
    assert allocator.take_dirty() == {"g"}


@pytest.mark.parametrize("undo", ["forget", "rollback", "unreserve"])
def test_to_undo_what_nobody_knows_is_no_fault(a, undo):
    assert getattr(a, undo)("nobody", 1.0) is None
    assert a.version == 0


def test_an_assumption_past_its_time_is_swept():
    allocator = one()
    for uid, at in (("old", 0.0), ("fresh", 15 * MINUTE)):
        bound(allocator.assume(ask(uid, 1, 1), ["g"], at))
    swept = allocator.sweep(20 * MINUTE, lambda _held: True, lambda _uid: False, ttl_s=10 * MINUTE)
    assert swept == ("old",)
    assert set(allocator.fleet.ledger) == {"fresh"}


def modes(card: FleetAllocator, isolation: Isolation, policy: IsolationPolicy | None = None) -> list[Code]:
    outcome = card.check_quota_and_filter(ask("new", 1, 1, isolation=isolation, policy=policy))
    return [] if isinstance(outcome, Candidates) else [outcome.code]


def test_hard_is_refused_where_soft_runs():
    allocator = one(isolation_policy=IsolationPolicy.DYNAMIC)
    on_cards(allocator, "r", 1, 1, "g", isolation=Isolation.SOFT)
    assert modes(allocator, Isolation.HARD, IsolationPolicy.DYNAMIC) == [Code.ISOLATION_LOCKED]
    refusal = refused(allocator.alloc(ask("new", 1, 1, isolation=Isolation.HARD, policy=IsolationPolicy.DYNAMIC), 1.0))
    assert refusal.rejections[0].mode is Isolation.SOFT
    assert reject_text(refusal.rejections[0]).endswith("kept apart in another way: soft")
    allocator.dealloc("r", 1.0)
    assert modes(allocator, Isolation.HARD, IsolationPolicy.DYNAMIC) == []


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        pytest.param({"isolation": Isolation.SOFT}, [], id="c32-the-card-is-soft"),
        pytest.param({}, [], id="c32-the-card-says-nothing"),
        pytest.param(
            {"isolation_policy": IsolationPolicy.DYNAMIC}, [Code.ISOLATION_POLICY], id="c32-the-card-is-dynamic"
        ),
        pytest.param({"isolation": Isolation.HARD}, [Code.ISOLATION_POLICY], id="c32-the-card-is-hard"),
    ],
)
def test_a_static_request_takes_a_static_card_of_its_mode(facts, codes):
    assert modes(one(**facts), Isolation.SOFT, IsolationPolicy.STATIC) == codes


@pytest.mark.parametrize(
    ("lock", "asked", "codes"),
    [
        pytest.param(None, Isolation.HARD, [], id="c33-an-idle-card"),
        pytest.param(Isolation.SOFT, Isolation.SOFT, [], id="c33-soft-beside-soft"),
        pytest.param(Isolation.HARD, Isolation.SOFT, [Code.ISOLATION_LOCKED], id="c33-soft-beside-hard"),
        pytest.param(None, Isolation.PARTITIONED, [Code.ISOLATION_POLICY], id="never-partitioned"),
    ],
)
def test_a_dynamic_card_takes_the_mode_of_its_first_user(lock, asked, codes):
    allocator = one(isolation_policy=IsolationPolicy.DYNAMIC)
    if lock is not None:
        on_cards(allocator, "r", 1, 1, "g", isolation=lock)
    assert modes(allocator, asked, IsolationPolicy.DYNAMIC) == codes


@pytest.mark.parametrize("part", [Part(1000, GIB), None])
def test_the_policy_counts_for_shared_cards_too(part):
    cards = CardSelector(pool="test-pool", isolation=Isolation.SHARED, policy=IsolationPolicy.STATIC)
    request = Request("r", ResourceRequirement(0, 0, 1, part, cards))
    assert refused(one(isolation_policy=IsolationPolicy.DYNAMIC).alloc(request, 1.0)).code is Code.ISOLATION_POLICY
    assert isinstance(one().alloc(request, 1.0), Allocation)


def test_a_shared_card_is_held_whole():
    allocator = one(100, 24)
    on_cards(allocator, "r", 10, 2, "g", isolation=Isolation.SHARED)
    assert free(allocator, "g") == (0, 0)
    assert allocator.fleet.usage["default"][:2] == (100_000, 24 * GIB)
    assert refused(allocator.alloc(ask("s", 10, 2, isolation=Isolation.SHARED), 1.0)).code is Code.GPU_NOT_IDLE
    allocator.dealloc("r", 1.0)
    assert free(allocator, "g") == (100, 24)


def test_a_percentage_is_of_the_card_to_the_gflops():
    allocator = one(71, 24)
    (charge,) = bound(allocator.alloc(ask("r", 0, 1, percent=15), 1.0)).charges
    assert charge.compute == 10_650


def test_a_percentage_is_adjusted_on_its_card():
    allocator = one(1000, 20)
    bound(allocator.alloc(ask("r", 0, 2, percent=10), 1.0))
    change = AmountsChange(Part(0, 2 * GIB, 200_000), Part(0, 2 * GIB, 200_000))
    outcome = allocator.adjust("r", change)
    assert isinstance(outcome, Adjustment)
    assert outcome.delta_request == (100_000, 0)
    assert free(allocator, "g") == (800, 18)


# --- Q: what the books tell a quota ---


def test_assume_and_commit_count_once():
    cards = [gpu(f"g{i}", 50, 1, index=i) for i in range(4)]
    allocator = ready(node("n", *cards), rules=Rules(quotas=Quotas({"default": Quota(max_workers=10)})))
    bound(allocator.assume(ask("r", 30, 0.5, 2), ["g0", "g1"], 1.0))
    used = Usage(60_000, GIB, 60_000, GIB, 1, 1_200_000)
    assert allocator.fleet.usage["default"] == used
    allocator.commit("r", 2.0)
    assert allocator.fleet.usage["default"] == used
    assert [free(allocator, name) for name in ("g0", "g1", "g2")] == [(20, 0.5), (20, 0.5), (50, 1)]


# --- S: weights of one half, the sum instead of the mean ---

S_AVAILABLE = {
    "node-1": ((20, 80), ((10, 40), (12, 42), (14, 44))),
    "node-2": ((25, 100), ((20, 80), (18, 75))),
    "node-3": ((40, 120), ((30, 100),)),
}


@pytest.fixture
def s() -> Fleet:
    """Cards gpu-n-i, in use so that this much is left."""
    fleet = Fleet(
        node(name, *(gpu(f"gpu-{name[-1]}-{i}", *full, index=i) for i in range(1, len(left) + 1)))
        for name, (full, left) in S_AVAILABLE.items()
    )
    for name, (full, left) in S_AVAILABLE.items():
        for i, rest in enumerate(left, 1):
            used = ask(f"user-{name}-{i}", full[0] - rest[0], full[1] - rest[1])
            card = fleet.card_of[f"gpu-{name[-1]}-{i}"]
            charges = charges_on(fleet, [card], used.requirement)
            fleet.charge(Allocation(used.uid, name, used.requirement, fleet.uuids([card]), charges=charges))
    return fleet


def s_picks(fleet: Fleet, strategy: Strategy, count: int) -> tuple[str, ...] | None:
    allocator = FleetAllocator(fleet, Rules(strategies={"test-pool": strategy}))
    allocator.set_ready()
    placed = allocator.alloc(ask("r", 1, 1, count), 1.0)
    return placed.gpus if isinstance(placed, Allocation) else None


@pytest.mark.parametrize(
    ("strategy", "count", "cards"),
    [
        pytest.param(low_load_first, 2, ("gpu-1-3", "gpu-1-2"), id="c54-the-emptiest-two"),
        pytest.param(low_load_first, 3, ("gpu-1-3", "gpu-1-2", "gpu-1-1"), id="c54-the-emptiest-three"),
        pytest.param(low_load_first, 4, None, id="c55-no-node-has-four"),
        pytest.param(compact_first, 2, ("gpu-1-1", "gpu-1-2"), id="c56-the-fullest-two"),
        pytest.param(compact_first, 3, ("gpu-1-1", "gpu-1-2", "gpu-1-3"), id="c56-the-fullest-three"),
    ],
)
def test_cards_by_load(s, strategy, count, cards):
    assert s_picks(s, strategy(Weights(0.5, 0.5), "sum"), count) == cards


def test_a_node_scores_the_sum_of_its_cards(s):
    allocator = FleetAllocator(s, Rules(strategy=low_load_first(Weights(0.5, 0.5), "sum")))
    allocator.set_ready()
    assert allocator.simulate(ask("r", 1, 1)).scores.nodes == {"node-1": 169, "node-2": 154, "node-3": 79}


def test_a_request_goes_by_its_own_strategy_and_not_by_that_of_its_pool(s):
    rules = Rules(strategies={"test-pool": low_load_first(Weights(0.5, 0.5), "sum")})
    allocator = FleetAllocator(s, rules)
    allocator.set_ready()
    assert bound(allocator.alloc(ask("r", 1, 1, strategy="compact-first"), 1.0)).gpus == ("gpu-1-1",)


# --- F: filters by themselves ---


@pytest.fixture
def f() -> Fleet:
    return Fleet(
        [
            node(
                "n",
                gpu("f0", 10, 40, index=0),
                gpu("f1", 5, 20, index=1),
                gpu("f2", 20, 80, index=2, phase=GpuPhase.PENDING),
                gpu("f3", 3, 24, index=3),
            )
        ]
    )


def kept_until(stage: str, fleet: Fleet, request_: Request) -> tuple[str, ...]:
    stages = find(fleet, Rules(), request_).stages
    return tuple(next(each.kept for each in stages if each.filter == stage))


@pytest.mark.parametrize(
    ("stage", "request_", "cards"),
    [
        pytest.param("phase", ask("r", 8, 30), ("f0", "f1", "f3"), id="phase"),
        pytest.param("room", ask("r", 8, 30), ("f0",), id="phase-and-room"),
        pytest.param("index", ask("r", 8, 30, 2, indices=(1, 3)), ("f1", "f3"), id="indices"),
    ],
)
def test_a_stage_keeps_the_cards_that_passed_all_rules_so_far(f, stage, request_, cards):
    assert kept_until(stage, f, request_) == cards


def test_a_card_that_runs_is_judged_by_its_room(f):
    cards = [replace(each, phase=GpuPhase.RUNNING) for node_ in f.nodes for each in node_.gpus]
    assert kept_until("room", Fleet([replace(f.nodes[0], gpus=tuple(cards))]), ask("r", 8, 30)) == ("f0", "f2")


# C61 has two more cards without a node. Here a card is always one of a node (`Node.gpus`), so there is none to drop.
@pytest.mark.parametrize(("count", "left"), [pytest.param(n, k, id=f"c61-{n}") for n, k in ((1, 5), (2, 4), (3, 0))])
def test_a_node_has_as_many_candidates_as_cards_are_asked(count, left):
    nodes = [node(f"n{i}", *(gpu(f"g{i}{k}", 10, 10) for k in range(cards))) for i, cards in enumerate((2, 2, 1))]
    found = find(Fleet(nodes), Rules(), ask("r", 1, 1, count))
    assert sum(len(cards) for cards in found.by_node.values()) == left


# --- K: three nodes, one of them used by another device plugin ---


def k_gpu(name: str, tflops: float, gib: float, **facts: object) -> Gpu:
    return gpu(name, tflops, gib, pool="pool-a", **facts)


K_NODES = (
    node("node-a", k_gpu("gpu-1", 1000, 20)),
    node("node-b", k_gpu("gpu-2", 1000, 20), k_gpu("gpu-3", 2000, 40, index=1)),
    node("node-c", k_gpu("gpu-4", 2000, 40, used_by="nvidia.com/gpu")),
)


def k_ask(uid: str, tflops: float, gib: float, count: int = 1, **more: object) -> Request:
    return ask(uid, tflops, gib, count, pool="pool-a", **more)


@pytest.fixture
def k() -> FleetAllocator:
    allocator = ready(*K_NODES, rules=Rules(strategy=WHOLE_BY))
    bound(allocator.bind(k_ask("worker", 100, 2), ["gpu-1"], 0.0))
    return allocator


@pytest.mark.parametrize(
    ("request_", "nodes"),
    [
        pytest.param(k_ask("r", 100, 10), {"node-a", "node-b"}, id="c63-a-small-one"),
        pytest.param(k_ask("r", 2000, 10), {"node-b"}, id="c64-a-whole-large-card"),
        pytest.param(k_ask("r", 100, 10, 2), {"node-b"}, id="c65-two-cards"),
        pytest.param(k_ask("r", 2000, 80), set(), id="c66-too-much-vram"),
        pytest.param(k_ask("r", 100, 10, 3), set(), id="c67-three-cards"),
    ],
)
def test_candidates_are_on(k, request_, nodes):
    outcome = k.check_quota_and_filter(request_)
    assert (set(outcome.by_node) if isinstance(outcome, Candidates) else set()) == nodes
    assert isinstance(outcome, Refusal) == (not nodes)


def test_nodes_without_our_workers_are_unused(k):
    assert k.unused_nodes() == {"node-b", "node-c"}


def test_an_assumption_uses_its_node(k):
    bound(k.assume(k_ask("r", 1, 1), ["gpu-2"], 1.0))
    assert k.unused_nodes() == {"node-c"}


def test_nodes_score_by_their_use(k):
    decision = k.simulate(k_ask("r", 100, 10))
    assert decision.scores.nodes == {"node-a": 10, "node-b": 0}
    assert decision.scores.cards["node-a"] == {"gpu-1": 90}


def test_an_assumption_is_held_and_not_yet_taken(k):
    bound(k.assume(k_ask("r", 100, 10), ["gpu-1"], 1.0))
    assert available(k, "gpu-1") == (900, 18)
    assert free(k, "gpu-1") == (800, 8)
    assert k.commit("r", 2.0).gpus == ("gpu-1",)
    assert available(k, "gpu-1") == (800, 8)


def test_a_restart_finds_the_charges_of_workers():
    allocator = ready(*K_NODES)
    asked = k_ask("worker", 0, 2, percent=10)
    charges = charges_on(allocator.fleet, [0], asked.requirement)
    found = Allocation("worker", "node-a", asked.requirement, ("gpu-1",), AllocationState.BOUND, charges, asked.claim)
    assert allocator.reconcile([found], 1.0) == ("worker",)
    assert free(allocator, "gpu-1") == (900, 18)
    assert allocator.reconcile([found], 2.0) == ()


@pytest.mark.parametrize(
    ("before", "after", "asked", "wakes"),
    [
        pytest.param((50, 5), (150, 15), (100, 10), True, id="c73-it-grew-enough"),
        pytest.param((150, 15), (120, 12), (100, 10), False, id="c73-it-shrank-and-still-fits"),
        pytest.param((150, 15), (50, 5), (100, 10), False, id="c73-it-shrank"),
        pytest.param(None, (100, 10), (50, 5), True, id="c74-it-is-new"),
        pytest.param((90, 12), (100, 12), (100, 10), True, id="c75-it-fits-now"),
    ],
)
def test_a_card_fits_now_and_did_not_before(before, after, asked, wakes):
    fits = [
        size is not None and not refusals_on(Fleet([node("n", gpu("g", *size))]), Rules(), ask("r", *asked), [0])
        for size in (before, after)
    ]
    assert (fits == [False, True]) is wakes


# --- what must never come back ---


def quota(tflops: float | None, workers: int | None = None, single: float | None = None) -> Quota:
    def caps(value: float | None) -> Caps:
        return Caps(None if value is None else round(value * 1000))

    return Quota(total_requests=caps(tflops), max_workers=workers, max_requests=caps(single))


def bind_rules(allocator: FleetAllocator, limit: Quota) -> None:
    allocator.rules = replace(allocator.rules, quotas=Quotas({"default": limit}))


def test_a_quota_that_is_made_late_sees_what_was_there_before(a):
    bound(a.alloc(ask("r", 60, 4), 1.0))
    bind_rules(a, quota(100, workers=5))
    assert refused(a.alloc(ask("s", 50, 4), 1.0)).code is Code.QUOTA_TOTAL_COMPUTE_REQUEST
    a.dealloc("r", 2.0)
    assert a.fleet.usage == {}
    assert isinstance(a.alloc(ask("s", 50, 4), 3.0), Allocation)


def test_a_percentage_counts_in_quotas_on_each_card_and_is_moved_by_adjust():
    allocator = ready(node("n", gpu("big", 1000, 20, index=0), gpu("small", 100, 20, index=1)))
    bind_rules(allocator, quota(50))
    got = bound(allocator.alloc(ask("r", 0, 1, percent=20), 1.0))
    assert got.gpus == ("small",)
    assert allocator.fleet.usage["default"].compute_request == 20_000
    outcome = allocator.adjust("r", AmountsChange(Part(0, GIB, 500_000)))
    assert isinstance(outcome, Adjustment)
    assert allocator.fleet.usage["default"].compute_request == 50_000
    assert refused(allocator.adjust("r", AmountsChange(Part(0, GIB, 600_000)))).code is Code.QUOTA_TOTAL_COMPUTE_REQUEST
    assert refused(allocator.assume(ask("s", 0, 1, percent=20), ["big"], 1.0)).code is Code.QUOTA_TOTAL_COMPUTE_REQUEST


def test_a_quota_that_refuses_tells_all_its_reasons_and_every_stage(a):
    bind_rules(a, quota(10, workers=0, single=5))
    refusal = refused(a.alloc(ask("r", 20, 4), 1.0))
    assert refusal.code is Code.QUOTA_SINGLE_COMPUTE_REQUEST
    of_one_card = [why.code for why in refusal.rejections if why.gpu == "gpu-1"]
    assert of_one_card == [
        Code.QUOTA_SINGLE_COMPUTE_REQUEST,
        Code.QUOTA_TOTAL_COMPUTE_REQUEST,
        Code.QUOTA_TOTAL_WORKERS,
    ]
    assert stage(refusal, "quota") == (True, 6, 0)
    assert [stage.filter for stage in refusal.stages if stage.reached] == ["quota"]
    assert {"pool", "phase", "room", "node", "worker-cap"} <= {stage.filter for stage in refusal.stages}


def test_a_card_that_does_not_know_its_capacity_does_not_open_a_quota():
    allocator = ready(node("a", Gpu("blank", 0, pool="test-pool")), node("b", gpu("g", 100, 20)))
    bind_rules(allocator, quota(10))
    assert refused(allocator.alloc(ask("r", 20, 4), 1.0)).code is not Code.NO_CANDIDATE
    assert allocator.fleet.ledger == {}


def test_a_pod_recreated_under_its_name_does_not_shield_the_old_one(a):
    for uid in ("old", "new"):
        bound(a.alloc(ask(uid, 10, 2, pod="web"), 1.0))
    assert a.sweep(2.0, lambda held: held.id == "new", lambda _uid: False) == ("old",)
    assert [held.id for held in a.of_pod("default", "web")] == ["new"]


@pytest.mark.parametrize(("pod_uid", "freed"), [(None, {"u1", "u2"}), ("u1", {"u1"}), ("u9", set())])
def test_a_pod_frees_what_it_holds_and_no_other(a, pod_uid, freed):
    for uid, pod in (("u1", "web"), ("u2", "web"), ("u3", "other")):
        bound(a.alloc(ask(uid, 10, 2, pod=pod), 1.0))
    assert {found.uid for found in a.dealloc_by_pod("default", "web", 2.0, pod_uid)} == freed
    assert set(a.fleet.ledger) == {"u1", "u2", "u3"} - freed
    assert a.dealloc_by_pod("elsewhere", "web", 3.0) == ()


def test_the_second_deallocation_says_so_and_frees_nothing(a):
    got = bound(a.alloc(ask("r", 10, 2), 1.0))
    assert a.dealloc("r", 2.0) == Freed("r", got.gpus)
    version = a.version
    assert a.dealloc("r", 3.0) == Freed("r", already_gone=True)
    assert a.dealloc("nobody", 3.0) == Freed("nobody", unknown=True)
    assert a.version == version


def test_a_relabelled_card_is_moved_and_not_copied(a):
    got = bound(a.bind(ask("r", 10, 2), ["gpu-1"], 1.0))
    moved, *rest = A_NODES[0].gpus
    nodes = (replace(A_NODES[0], gpus=tuple(rest)), node("node-9", replace(moved, pool="other-pool")))
    a.set_nodes(nodes)
    assert a.fleet.ledger["r"] == replace(got, node="node-9")
    assert free(a, "gpu-1") == (90, 14)
    assert [len(a.on_node(name)) for name in ("node-1", "node-9")] == [0, 1]
    assert a.fleet.gpu_free.tolist() == [3, 0]
    assert "gpu-1" not in a.filter(ask("s", 1, 1), list(A_CARDS)).by_node["node-1"]
    a.dealloc("r", 2.0)
    assert content(a) == content(FleetAllocator(Fleet(nodes)))


def test_a_cordoned_card_keeps_who_holds_it_and_takes_nobody_new(a):
    held = on_cards(a, "r", 10, 2, "gpu-1")
    first, *rest = A_NODES[0].gpus
    a.set_nodes([replace(A_NODES[0], gpus=(replace(first, cordoned=True), *rest)), *A_NODES[1:]])
    assert a.fleet.ledger["r"] == held
    assert refused(a.bind(ask("s", 1, 1), ["gpu-1"], 1.0)).code is Code.GPU_CORDONED
    assert refused(a.alloc(ask("s", 1, 1, 4), 1.0)).code is Code.NOT_ENOUGH_CARDS
    a.set_nodes(A_NODES)
    assert bound(a.alloc(ask("s", 1, 1, 4), 1.0)).gpus


def test_a_card_has_no_more_users_than_it_may_have():
    one, other = gpu("g-1", 100, 16, max_users=2), gpu("g-2", 100, 16, max_users=2, index=1)
    a = ready(node("n", one, other), rules=COMPACT)
    for number in range(4):
        assert bound(a.alloc(ask(f"r{number}", 1, 1), 1.0)).gpus == (("g-1", "g-2")[number // 2],)
    assert refused(a.alloc(ask("more", 1, 1), 1.0)).code is Code.GPU_USERS
    assert refused(a.bind(ask("more", 1, 1), ["g-1"], 1.0)).code is Code.GPU_USERS
    whole = a.alloc(ask("whole", 0, 0, isolation=Isolation.SHARED), 1.0)
    assert refused(whole).code is Code.GPU_NOT_IDLE
    a.dealloc("r0", 2.0)
    assert bound(a.alloc(ask("more", 1, 1), 1.0)).gpus == ("g-1",)


def test_cards_are_chosen_among_those_that_are_named_and_not_excluded(a):
    assert bound(a.alloc(ask("one", 1, 1, uuids=("gpu-6", "gone")), 1.0)).gpus == ("gpu-6",)
    assert set(
        bound(a.alloc(ask("two", 1, 1, 2, uuids=("gpu-1", "gpu-5", "gpu-6"), not_uuids=("gpu-5",)), 1.0)).gpus
    ) == {
        *("gpu-1", "gpu-6"),
    }
    assert set(bound(a.alloc(ask("rest", 1, 1, 2, not_uuids=("gpu-1", "gpu-6")), 1.0)).gpus) == {"gpu-5", "gpu-2"}
    assert bound(a.alloc(ask("both", 1, 1, indices=(1,), uuids=("gpu-5", "gpu-6")), 1.0)).gpus == ("gpu-5",)
    assert refused(a.alloc(ask("neither", 1, 1, indices=(0,), uuids=("gpu-5",)), 1.0)).code is Code.WRONG_UUID


def test_a_card_that_vanished_while_it_is_held_stays_until_it_is_given_back(a):
    on_cards(a, "r", 10, 2, "gpu-1", "gpu-5")
    shrunk = replace(A_NODES[0], gpus=A_NODES[0].gpus[1:])
    a.set_nodes([shrunk, *A_NODES[1:]])
    assert free(a, "gpu-1") == (90, 14)
    assert a.fleet.usage["default"].compute_request == 20_000
    assert refused(a.bind(ask("s", 1, 1), ["gpu-1"], 1.0)).code is Code.GPU_MISSING
    assert isinstance(a.adjust("r", AmountsChange(amounts(5, 1))), Adjustment)
    a.dealloc("r", 2.0)
    a.set_nodes([shrunk, *A_NODES[1:]])
    assert "gpu-1" not in a.fleet.card_of


def test_a_vanished_card_of_holders_that_are_on_two_nodes_now_is_missing_on_one(a):
    on_cards(a, "r", 10, 2, "gpu-1", "gpu-2")
    on_cards(a, "s", 10, 2, "gpu-2", "gpu-5")
    cards = {card.uuid: card for card in A_NODES[0].gpus}
    nodes = node("node-1", cards["gpu-5"]), node("node-9", cards["gpu-1"])
    for _ in range(2):
        a.set_nodes(nodes)
        assert [card.uuid for card in a.fleet.cards] == ["gpu-5", "gpu-1", "gpu-2"]
    assert [a.fleet.ledger[uid].node for uid in "rs"] == ["node-9", "node-1"]
    assert free(a, "gpu-2") == (80, 28)


def test_what_is_on_a_lost_node_counts_and_cannot_be_adjusted(a):
    on_cards(a, "r", 10, 2, "gpu-1")
    a.set_nodes(A_NODES[1:])
    assert a.fleet.usage["default"].compute_request == 10_000
    assert refused(a.adjust("r", AmountsChange(amounts(5, 1)))).code is Code.NODE_UNKNOWN
    a.set_nodes(A_NODES)
    assert free(a, "gpu-1") == (90, 14)
    assert a.dealloc("r", 2.0).gpus == ("gpu-1",)


def test_the_same_capacity_told_twice_leaves_an_idle_card_whole(a):
    grown = replace(A_NODES[0], gpus=(gpu("gpu-1", 120, 20), *A_NODES[0].gpus[1:]))
    bound(a.bind(ask("r", 30, 4), ["gpu-1"], 1.0))
    for _ in range(2):
        a.set_nodes([grown, *A_NODES[1:]])
    assert free(a, "gpu-1") == (90, 16)
    a.dealloc("r", 2.0)
    assert isinstance(a.bind(ask("s", 10, 2, isolation=Isolation.SHARED), ["gpu-1"], 3.0), Allocation)


def test_a_card_that_shrank_below_its_use_takes_nothing_and_evicts_nobody(a):
    bound(a.bind(ask("r", 60, 8), ["gpu-1"], 1.0))
    a.set_nodes([replace(A_NODES[0], gpus=(gpu("gpu-1", 50, 16),)), *A_NODES[1:]])
    assert free(a, "gpu-1") == (-10, 8)
    assert a.is_bound("r")
    assert refused(a.alloc(ask("s", 1, 1), 2.0)).code is Code.GPU_COMPUTE
    exceeded = a.adjust("r", AmountsChange(amounts(61, 8)))
    assert isinstance(exceeded, ScalingRefusal)
    assert (exceeded.remain, exceeded.max_request[0]) == ((0, 8 * GIB), 60_000)
    assert isinstance(a.adjust("r", AmountsChange(amounts(55, 8))), Adjustment)


def test_a_whole_card_can_ask_for_less_than_it_did_after_the_card_shrank():
    allocator = one(100, 24)
    on_cards(allocator, "r", 80, 2, "g", isolation=Isolation.SHARED)
    allocator.set_nodes([node("n", gpu("g", 50, 24))])
    assert refused(allocator.adjust("r", AmountsChange(amounts(81, 2)))).code is Code.SCALING_EXCEEDED
    assert isinstance(allocator.adjust("r", AmountsChange(amounts(60, 2))), Adjustment)


def test_adjusting_a_whole_card_changes_what_is_asked_and_not_what_is_charged():
    allocator = one(100, 24)
    on_cards(allocator, "r", 10, 2, "g", isolation=Isolation.SHARED)
    bind_rules(allocator, quota(100))
    outcome = allocator.adjust("r", AmountsChange(amounts(30, 4)))
    assert isinstance(outcome, Adjustment)
    assert outcome.delta_request == (20_000, 2 * GIB)
    assert free(allocator, "g") == (0, 0)
    assert allocator.fleet.usage["default"].compute_request == 100_000


def test_adjusting_a_partition_leaves_its_charge_and_its_quota():
    card = gpu("g", 312, 80, model="A100-SXM4-80GB")
    allocator = ready(node("n", card))
    got = bound(allocator.alloc(ask("r", 30, 8, isolation=Isolation.PARTITIONED), 1.0))
    others = [allocator.alloc(ask(f"r{i}", 30, 8, isolation=Isolation.PARTITIONED), 1.0) for i in range(6)]
    assert all(isinstance(other, Allocation) for other in others)
    bind_rules(allocator, Quota(total_requests=Caps(allocator.fleet.usage["default"].compute_request)))
    outcome = allocator.adjust("r", AmountsChange(amounts(40, 9), amounts(40, 9)))
    assert isinstance(outcome, Adjustment)
    assert outcome.delta_request == (10_000, GIB)
    assert allocator.fleet.ledger["r"].charges == got.charges
    assert refused(allocator.adjust("r", AmountsChange(amounts(50, 9)))).code is Code.SCALING_EXCEEDED


def test_a_pinned_partition_without_amounts_is_counted_and_placed_once():
    cards = CardSelector(pool="test-pool", isolation=Isolation.PARTITIONED, template="7g.80gb")
    allocator = ready(node("n", gpu("g", 312, 80, model="A100-SXM4-80GB")))
    pinned = [Request(uid, ResourceRequirement(0, 0, 1, None, cards)) for uid in ("r", "s")]
    assert isinstance(allocator.alloc(pinned[0], 1.0), Allocation)
    assert refused(allocator.alloc(pinned[1], 1.0)).rejections
    assert isinstance(find(Fleet([node("n", Gpu("g", 0, pool="test-pool"))]), Rules(), pinned[1]), Candidates)


@pytest.mark.parametrize(
    ("limit", "request_", "after"),
    [
        pytest.param(amounts(50, 4), amounts(30, 6), amounts(50, 6), id="each-dimension-by-itself"),
        pytest.param(amounts(50, 4), Part(0, GIB, 400_000), amounts(50, 4), id="40-percent-of-100-is-less"),
        pytest.param(amounts(50, 4), Part(0, GIB, 600_000), Part(0, 4 * GIB, 600_000), id="60-percent-is-more"),
        pytest.param(Part(0, GIB, 500_000), amounts(0, 2), Part(0, 2 * GIB, 500_000), id="no-compute-asked"),
    ],
)
def test_an_omitted_limit_becomes_the_larger_of_the_old_one_and_the_request(limit, request_, after):
    allocator = one(100, 24)
    asked = ask("r", 10, 1)
    bound(allocator.alloc(replace(asked, claim=replace(asked.claim, limit=limit)), 1.0))
    outcome = allocator.adjust("r", AmountsChange(request_))
    assert isinstance(outcome, Adjustment)
    assert outcome.allocation.claim is not None
    assert outcome.allocation.claim.limit == after


def test_the_same_amounts_again_are_no_change(a):
    bound(a.alloc(ask("r", 50, 10), 1.0))
    version = a.version
    outcome = a.adjust("r", AmountsChange(amounts(50, 10), amounts(50, 10)))
    assert isinstance(outcome, Adjustment)
    assert (outcome.delta_request, outcome.delta_limit, a.version) == ((0, 0), (0, 0), version)


def test_a_card_listed_twice_is_one_candidate(a):
    found = a.filter(ask("r", 10, 2, 2), ["gpu-1", "gpu-1"])
    assert found.by_node == {}
    with pytest.raises(NotFound) as error:
        a.filter(ask("r", 10, 2), ["gpu-1", "gpu-x"])
    assert error.value.code == "unknown-gpu"


def test_a_node_that_takes_no_work_takes_no_assumption_either(a):
    a.set_nodes([replace(A_NODES[0], cordoned=True), *A_NODES[1:]])
    assert refused(a.assume(ask("r", 1, 1), ["gpu-1"], 1.0)).code is Code.CORDONED
    wants_cpu = ask("r", 1, 1)
    wants_cpu = replace(wants_cpu, requirement=replace(wants_cpu.requirement, cpu_milli=65_000))
    a.set_nodes(A_NODES)
    assert refused(a.assume(wants_cpu, ["gpu-1"], 1.0)).code is Code.CPU


def test_handlers_hear_once_of_what_is_bound_and_faults_stop_nobody(a):
    heard: list[str] = []

    def fails(_held: Allocation) -> None:
        raise RuntimeError("deaf")

    a.register_bind_handler(fails)
    stop = a.register_bind_handler(lambda held: heard.append(held.id))
    bound(a.assume(ask("r", 1, 1), ["gpu-1"], 1.0))
    assert a.notify_bound("r") == ()
    a.commit("r", 2.0)
    assert [str(fault) for fault in a.notify_bound("r")] == ["deaf"]
    assert a.notify_bound("r") == ()
    stop()
    stop()
    on_cards(a, "s", 1, 1, "gpu-1")
    a.notify_bound("s")
    assert heard == ["r"]


def test_an_uid_holds_one_set_of_cards(a):
    first = bound(a.assume(ask("r", 1, 1), ["gpu-1"], 1.0))
    assert a.assume(ask("r", 1, 1), ["gpu-1"], 9.0) == first
    with pytest.raises(Conflict) as assumed:
        a.assume(ask("r", 1, 1), ["gpu-2"], 1.0)
    done = a.commit("r", 2.0)
    assert a.commit("r", 9.0) == a.alloc(ask("r", 1, 1), 9.0) == a.bind(ask("r", 1, 1), ["gpu-1"], 9.0) == done
    with pytest.raises(Conflict) as taken:
        a.bind(ask("r", 1, 1), ["gpu-2"], 1.0)
    assert (assumed.value.code, taken.value.code) == ("already-assumed", "already-bound")
    for uid in ("nobody", "r"):
        a.release("r")
        with pytest.raises(Conflict) as error:
            a.commit(uid, 3.0)
        assert error.value.code == "not-assumed"


@pytest.mark.parametrize("state", AllocationState)
def test_a_simulation_for_an_uid_that_holds_cards_is_what_alloc_answers(a, state):
    held = bound(a.alloc(ask("r", 90, 10), 1.0))
    a.fleet.replace(replace(held, state=state))
    before, again = content(a), ask("r", 90, 10, 2)
    decision = a.simulate(again)
    assert isinstance(decision.outcome, Choice)
    answered = bound(a.alloc(again, 2.0))
    reported = decision.outcome
    assert (reported.node, reported.gpus, reported.charges) == (answered.node, answered.gpus, answered.charges)
    assert content(a) == before


def test_a_simulation_for_the_uid_of_an_executor_is_refused_as_alloc_is(a):
    a.fleet.charge(Allocation("e1", "node-1", ask("r", 1, 1).requirement, ("gpu-1",)))
    for operation in (a.simulate, lambda request: a.alloc(request, 1.0)):
        with pytest.raises(Conflict) as refused:
            operation(ask("e1", 1, 1))
        assert refused.value.code == "uid-taken"


def test_nothing_is_decided_before_it_is_ready():
    allocator = FleetAllocator(Fleet(A_NODES))
    for operation, arguments in (("alloc", (1.0,)), ("assume", (["gpu-1"], 1.0)), ("simulate", ())):
        with pytest.raises(Unavailable) as error:
            getattr(allocator, operation)(ask("r", 1, 1), *arguments)
        assert error.value.code == "not-ready"
    allocator.set_ready()
    allocator.set_ready()
    assert allocator.is_ready
    assert isinstance(allocator.alloc(ask("r", 1, 1), 1.0), Allocation)


def test_what_is_found_without_its_card_changes_nothing(a):
    held = on_cards(a, "r", 1, 1, "gpu-1")
    before = content(a), a.version
    with pytest.raises(NotFound):
        a.reconcile([replace(held, id="s", gpus=("gpu-x",))], 1.0)
    assert (content(a), a.version) == before


def test_what_is_releasing_is_not_bound_again_by_finding_it(a):
    held = on_cards(a, "r", 1, 1, "gpu-1")
    a.release("r")
    assert a.reconcile([held], 1.0) == ()
    assert a.fleet.ledger["r"].state is AllocationState.RELEASING


def test_new_facts_keep_the_profiles_of_cards():
    allocator = FleetAllocator(Fleet(A_NODES, profiles=Profiles(())))
    allocator.set_nodes(A_NODES)
    assert allocator.fleet.profiles == Profiles(())


def test_an_assumption_that_waits_for_its_gang_or_has_no_time_is_given_time(a):
    bound(a.assume(ask("gang", 1, 1), ["gpu-1"], 0.0))
    assert a.sweep(3600.0, lambda _held: True, lambda uid: uid == "gang") == ()
    assert a.fleet.ledger["gang"].assumed_at == 3600.0
    a.reconcile([replace(a.fleet.ledger["gang"], assumed_at=None)], 3601.0)
    assert a.sweep(4000.0, lambda _held: True, lambda _uid: False) == ()
    assert a.fleet.ledger["gang"].assumed_at == 4000.0


def test_a_pending_card_counts_a_quarter_in_the_score_of_its_node():
    cards = (gpu("g0", 100, 24), gpu("g1", 100, 24, index=1, phase=GpuPhase.PENDING))
    allocator = ready(node("n", *cards), rules=Rules(strategy="low_load_first"))
    scores = allocator.simulate(ask("r", 1, 1)).scores
    assert (scores.nodes, scores.cards) == ({"n": (100 + 25) // 2}, {"n": {"g0": 100}})


def test_cards_of_another_isolation_are_left_out_of_the_score_of_their_node():
    cards = (gpu("g0", 100, 24), gpu("g1", 100, 24, index=1, isolation=Isolation.HARD))
    allocator = ready(node("n", *cards), rules=Rules(strategy="compact_first"))
    on_cards(allocator, "user", 100, 24, "g1", isolation=Isolation.HARD)
    assert allocator.simulate(ask("r", 1, 1)).scores.nodes == {"n": 0}
    assert allocator.simulate(ask("r", 1, 1, isolation=Isolation.SHARED)).scores.nodes == {"n": 50}


@pytest.mark.parametrize(
    ("weight", "score"),
    [(0.005, 1), (0.015, 2), (0.025, 3), (math.nextafter(0.005, 0), 0), (0.0, 0), (-0.07, 0), (1.005, 100)],
)
def test_halves_round_away_from_zero_and_nothing_else_does(weight, score):
    """A full card scores a hundred times the weight."""
    allocator = one(100, 24)
    on_cards(allocator, "r", 100, 24, "g")
    strategy = compact_first(Weights(weight, 0.0))
    assert 100 * math.nextafter(0.005, 0) == math.nextafter(0.5, 0)
    assert strategy.card(allocator.fleet, 0, shape_of(allocator.fleet, ask("s", 1, 1).requirement)) == score


@pytest.mark.parametrize("tflops", [0, 1])
def test_a_card_below_its_use_takes_nothing_even_of_what_it_has(tflops):
    allocator = one(100, 24)
    on_cards(allocator, "r", 60, 2, "g")
    allocator.set_nodes([node("n", gpu("g", 50, 24))])
    assert refused(allocator.alloc(ask("s", tflops, 1), 1.0)).code is Code.GPU_COMPUTE


def test_what_rounds_to_nothing_does_not_go_to_a_card_held_whole():
    allocator = ready(node("n", gpu("g", 0.001, 24), gpu("h", 0.001, 24, index=1)))
    on_cards(allocator, "r", 0, 0, "g", isolation=Isolation.SHARED)
    assert bound(allocator.alloc(ask("s", 0, 0, percent=1), 1.0)).gpus == ("h",)
    on_cards(allocator, "t", 0, 0, "h", percent=1)
    allocator.unreserve("s", 2.0)
    allocator.unreserve("t", 2.0)
    on_cards(allocator, "u", 0, 0, "h", isolation=Isolation.SHARED)
    assert refused(allocator.alloc(ask("s", 0, 0, percent=1), 3.0)).code is Code.GPU_COMPUTE


def test_a_held_charge_is_what_the_books_charge():
    allocator = one(100, 24)
    got = bound(allocator.alloc(ask("r", 10, 2), 1.0))
    assert got.charges == (Charge(10_000, 2 * GIB, Isolation.SOFT),)
