"""Hardware partitions: which one covers a request, where it lies, what it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.books import found_with

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.candidates import find
from ullage.core.placing.nomination import Nomination, Nominations
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.verdict.cards import refusal_of
from ullage.core.verdict.partition import fit, fitting, template_for
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation, AllocationState, Charge, Slot
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict, InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.profile import Profiles
from ullage.model.profile_table import load_profiles
from ullage.model.profiles import SHIPPED
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

GIB = 1 << 30
MIB = 1 << 20


def row(name: str, gigabytes: int, percent: str, most: int, more: str = "") -> str:
    head = f'name = "{name}", memory_gigabytes = {gigabytes}, compute_percent = {percent}, max_partition = {most}'
    return f"{{ {head}, {more} }}" if more else f"{{ {head} }}"


TWO_KINDS = f"""
[[model]]
name = "T"
vendor = "NVIDIA"
max_placement_slots = 8
templates = [
  {row("1g.24gb", 24, "14.2857", 7, "placement_limit = [0, 1, 2, 3, 4, 5, 6], placement_offset = 1")},
  {row("4g.94gb", 94, "57.1428", 1, "placement_limit = [0], placement_offset = 4")},
]
"""

TABLE = load_profiles(TWO_KINDS)
PROFILES = SHIPPED.overridden_by(TABLE.entries)

T = Gpu("t", 0, "T", "NVIDIA", 192 * GIB, 312_000)
M = Gpu("m", 0, "NVIDIA A100 80GB PCIe", "NVIDIA", 80 * GIB, 312_000)
N = Gpu("n", 0, "Ascend 310P", "Ascend", 24 * GIB, 22_000)


def request(text: str) -> ResourceRequirement:
    return ResourceRequirement.from_string(text)


def partition(text: str) -> ResourceRequirement:
    return request(f"gpu=1,{text},isolation=partitioned")


def fleet_of(*cards: Gpu, held: tuple[Allocation, ...] = (), profiles: Profiles = PROFILES) -> Fleet:
    return Fleet([Node("n1", 64_000, 1 << 40, cards)], held, profiles=profiles)


def holding(name: str, asked: ResourceRequirement, charge: Charge, card: Gpu, at: float | None = None) -> Allocation:
    return Allocation(name, "n1", asked, (card.uuid,), charges=(charge,), assumed_at=at)


def place(fleet: Fleet, name: str, text: str) -> Charge | Code:
    asked = request(f"gpu=1,partition={text}")
    found = fit(fleet, 0, asked)
    if isinstance(found, Rejection):
        return found.code
    fleet.charge(holding(name, asked, found, fleet.cards[0]))
    return found


def starts(fleet: Fleet, *texts: str) -> list[int | Code | None]:
    found = [place(fleet, f"{text}/{fleet.clock}", text) for text in texts]
    return [charge if isinstance(charge, Code) else charge.slot and charge.slot.start for charge in found]


def chosen(card: Gpu, text: str) -> str | None:
    template = template_for(fleet_of(card), 0, request(text))
    return None if template is None else template.name


# --- the cases ---


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("tflops=30,vram=20g", "1g.24gb", id="C77"),
        pytest.param("partition=mig-4g-94gb", "4g.94gb", id="C78"),
        pytest.param("tflops=300,vram=100g", None, id="C79"),
        pytest.param("percent=10,vram=20g", "1g.24gb", id="C80"),
        pytest.param("percent=50,vram=50g", "4g.94gb", id="C81"),
        pytest.param("partition=1g.24gb,vram=25g", None, id="a pinned template must cover what is asked"),
        pytest.param("partition=1g.24gb,vram=24g", "1g.24gb", id="all that the pinned one has"),
        pytest.param("partition=3g.70gb", None, id="no such template"),
    ],
)
def test_a_request_gets_the_template(asked, expected):
    assert chosen(T, f"gpu=1,{asked},isolation=partitioned") == expected


def test_a_partition_takes_its_template_rounded_down():
    charge = place(fleet_of(T), "a", "1g.24gb")
    assert charge == Charge(44_571, 24 * GIB, Isolation.PARTITIONED, Slot("1g.24gb", 0, 1))


def test_a_third_small_partition_lies_behind_the_second():
    assert starts(fleet_of(M), "4g.40gb", "1g.10gb", "1g.10gb", "1g.10gb") == [0, 4, 5, 6]


def test_seven_small_partitions_fit_and_no_eighth():
    assert starts(fleet_of(M), *["1g.10gb"] * 8) == [0, 1, 2, 3, 4, 5, 6, Code.PARTITION_COUNT]


def test_shared_partitions_of_one_template_fill_a_group_before_the_next():
    fleet = fleet_of(N)
    charges = [place(fleet, str(n), "vir01") for n in range(8)]
    groups = [charge.slot.group for charge in charges[:7]]
    assert (groups, charges[7]) == ([0, 0, 1, 1, 2, 2, 3], Code.PARTITION_COUNT)
    assert charges[0] == Charge(2750, 3 * GIB, Isolation.PARTITIONED, Slot("vir01", group=0))


# --- which template ---


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("vram=20g", "1g.20gb", id="least waste"),
        pytest.param("vram=10g", "1g.10gb", id="ties go by name"),
        pytest.param("tflops=60", "2g.20gb", id="compute alone"),
        pytest.param("vram=80g", "7g.80gb", id="as much as the largest is named for"),
        pytest.param("vram=81g", None, id="more than any"),
        pytest.param("percent=14.2857", "1g.10gb", id="a seventh as the table writes it"),
        pytest.param("percent=14.3", "2g.20gb", id="a little more than a seventh"),
        pytest.param("partition=19", "1g.10gb", id="by the number of the driver"),
        pytest.param("partition=MIG 1G_10GB", "1g.10gb", id="any case and any separator"),
        pytest.param("partition=1g.10gb+me", "1g.10gb+me", id="with media engines"),
    ],
)
def test_the_smallest_that_covers(asked, expected):
    assert chosen(M, f"gpu=1,{asked},isolation=partitioned") == expected


def test_a_fraction_of_a_card_is_covered_in_both_dimensions():
    assert chosen(M, "gpu=0.5,isolation=partitioned") == "4g.40gb"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param("tflops=60,vram=10g", "roomy", id="0.6 * 96/60 is more than 0.6 * 2.4/60 + 0.4 * 20/10"),
        pytest.param("tflops=60,vram=8g", "fast", id="0.6 * 96/60 + 0.4 * 2/8 is less than 0.6 * 2.4/60 + 0.4 * 22/8"),
    ],
)
def test_waste_weighs_compute_and_vram(asked, expected):
    either = load_profiles(f"""
[[model]]
name = "T"
vendor = "NVIDIA"
max_placement_slots = 2
templates = [
  {row("fast", 10, "50", 1, "placement_limit = [0], placement_offset = 1")},
  {row("roomy", 30, "20", 1, "placement_limit = [0], placement_offset = 1")},
]
""")
    template = template_for(fleet_of(T, profiles=either), 0, partition(asked))
    assert template is not None
    assert template.name == expected


def test_percent_is_resolved_on_each_card():
    fleet = fleet_of(M, replace(M, uuid="m2", index=1, compute_gflops=1_000_000))
    asked = partition("percent=20")
    charges = [fit(fleet, card, asked) for card in (0, 1)]
    assert [charge.compute for charge in charges] == [89_142, 285_714]


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        pytest.param({}, True, id="as it is"),
        pytest.param({"vendor": None}, True, id="the model says the vendor"),
        pytest.param({"vendor": "nvidia"}, True, id="vendor in any case"),
        pytest.param({"model": "nvidia_a100.80gb pcie"}, True, id="model in any writing"),
        pytest.param({"vendor": "AMD"}, False, id="a vendor whose partitions cannot be placed"),
        pytest.param({"vendor": "Ascend"}, False, id="a vendor that does not make this model"),
        pytest.param({"model": "NVIDIA L4"}, False, id="a model without partitions"),
        pytest.param({"model": None}, False, id="model not known"),
        pytest.param({"vram_bytes": None}, False, id="vram not known"),
        pytest.param({"compute_gflops": None}, True, id="compute not known: in millionths"),
    ],
)
def test_a_card_has_the_profile_of_its_model(facts, known):
    card = replace(M, **facts)
    assert (chosen(card, "gpu=1,vram=8g,isolation=partitioned") is not None) is known
    found = fit(fleet_of(card), 0, partition("vram=8g"))
    assert isinstance(found, Charge) is known
    if isinstance(found, Rejection):
        assert (found.code, found.cure) == (Code.NO_PARTITION_TEMPLATE, Cure.NODE_CHANGE)


@pytest.mark.parametrize("profile", SHIPPED.entries, ids=lambda profile: profile.name)
def test_every_name_finds_its_shipped_profile_and_template(profile):
    for name in (profile.name, *profile.aliases):
        assert SHIPPED.of(Gpu("g", 0, name.upper().replace("-", "_"))) is profile
    for template in profile.templates:
        for text in (template.name, template.id or template.name, f"MIG-{template.name}".replace(".", "-")):
            assert profile.template(text) is template


# --- checks in their order ---

CHECKS = load_profiles(f"""
[[model]]
name = "S"
vendor = "THead"
max_partitions = 3
max_placement_slots = 4
total_extended_resources = {{ DEC = 2 }}
templates = [
  {row("a", 1, "10", 2, "placement_limit = [3, 0, 1, 2], placement_offset = 1")},
  {row("dec", 1, "10", 3, "placement_limit = [0, 1, 2, 3], placement_offset = 1, extended_resources = { DEC = 2 }")},
  {row("two", 2, "20", 2, "placement_limit = [0, 2], placement_offset = 2")},
  {row("big", 3, "100", 1, "placement_limit = [0], placement_offset = 3")},
]

[[model]]
name = "G"
vendor = "Ascend"
max_partitions = 9
max_isolation_groups = 2
templates = [
  {row("own", 1, "10", 5)},
  {row("own2", 1, "10", 5, 'isolation_group_sharing = "exclusive"')},
  {row("share", 1, "10", 5, 'isolation_group_sharing = "shared"')},
  {row("three", 1, "10", 5, 'isolation_group_sharing = "shared", max_partitions_per_isolation_group = 3')},
]
""")
S = Gpu("s", 0, "S", "THead-PPU", 4 * GIB, 1000)
G = Gpu("g", 0, "G", None, 64 * GIB, 1000)


@pytest.mark.parametrize(
    ("held", "asked", "expected"),
    [
        pytest.param([], "a", 3, id="starts are tried in the order of the table"),
        pytest.param(["a"], "a", 0, id="the next in the list"),
        pytest.param(["a", "a", "dec"], "a", Code.PARTITION_COUNT, id="the count of the card first"),
        pytest.param(["a", "a"], "a", Code.TEMPLATE_MAX, id="then that of the template"),
        pytest.param(["dec", "two"], "dec", Code.EXTENDED_RESOURCE, id="then what is counted besides"),
        pytest.param(["two", "a"], "two", Code.NO_PARTITION_SLOT, id="then the place"),
        pytest.param(["a"], "big", Code.GPU_COMPUTE, id="then compute"),
    ],
)
def test_the_first_failing_check_is_told(held, asked, expected):
    fleet = fleet_of(S, profiles=CHECKS)
    for name in held:
        assert not isinstance(starts(fleet, name)[0], Code)
    assert starts(fleet, asked) == [expected]


def test_vram_is_checked_last():
    fleet = fleet_of(G, profiles=CHECKS)
    fleet.charge(holding("x", partition("partition=own"), Charge(0, 64 * GIB, Isolation.PARTITIONED), G), force=True)
    lost = Charge(0, 64 * GIB, Isolation.PARTITIONED, Slot("own", group=0))
    fleet.replace(holding("x", partition("partition=own"), lost, G))
    refusal = fit(fleet, 0, request("gpu=1,partition=own"))
    assert refusal == Rejection(Code.GPU_VRAM, Cure.CAPACITY, GIB, 0, "n1", "g")


def test_what_is_assumed_counts_in_every_check():
    fleet, taken = fleet_of(S, profiles=CHECKS), []
    for name, expected in (("a", 3), ("dec", 0), ("dec", Code.EXTENDED_RESOURCE), ("a", 1), ("a", None)):
        found = fit(fleet, 0, request(f"gpu=1,partition={name}"), taken)
        if isinstance(found, Charge):
            assert found.slot == Slot(name, expected, expected + 1)
            taken.append(found)
        else:
            assert found.code is (expected or Code.PARTITION_COUNT)


def test_assumed_vram_counts():
    small = replace(G, vram_bytes=5 * GIB // 2)
    fleet, asked = fleet_of(small, profiles=CHECKS), request("gpu=1,partition=share")
    taken = [Charge(100, GIB, Isolation.PARTITIONED, Slot("share", group=0))] * 2
    refusal = fit(fleet, 0, asked, taken)
    assert refusal == Rejection(Code.GPU_VRAM, Cure.CAPACITY, GIB, GIB // 2, "n1", "g")
    assert fitting(fleet, 0, asked) == 2


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        pytest.param(["own", "own", "own"], [0, 1, None], id="exclusive partitions are alone in their group"),
        pytest.param(["share"] * 5, [0, 0, 1, 1, None], id="two to a group by default"),
        pytest.param(["three"] * 4, [0, 0, 0, 1], id="as many as the template says"),
        pytest.param(["own", "share", "three"], [0, 1, None], id="only partitions of one template share"),
        pytest.param(["share", "three", "share"], [0, 1, 0], id="a group with room before an empty one"),
        pytest.param(["own", "own2", "own2"], [0, 1, None], id="exclusive of every kind"),
    ],
)
def test_isolation_groups(names, groups):
    fleet = fleet_of(G, profiles=CHECKS)
    charges = [place(fleet, str(index), name) for index, name in enumerate(names)]
    expected = [Code.NO_ISOLATION_GROUP if group is None else group for group in groups]
    assert [charge if isinstance(charge, Code) else charge.slot.group for charge in charges] == expected


def test_a_freed_place_is_taken_again():
    fleet = fleet_of(M)
    starts(fleet, "1g.10gb", "1g.10gb", "1g.10gb")
    fleet.release("1g.10gb/1")
    assert starts(fleet, "1g.10gb", "1g.10gb") == [1, 3]


def test_a_card_held_whole_takes_no_partition():
    whole = Allocation("w", "n1", request("gpu=1"), ("m",))
    refusal = fit(fleet_of(M, held=(whole,)), 0, request("gpu=1,partition=1g.10gb"))
    assert refusal == Rejection(Code.GPU_COMPUTE, Cure.CAPACITY, 44_571, 0, "n1", "m")


def test_a_card_of_no_capacity_that_is_held_whole_takes_no_partition():
    nothing = replace(M, compute_gflops=0, vram_bytes=0)
    fleet = fleet_of(nothing, held=(Allocation("w", "n1", request("gpu=1"), ("m",)),))
    refusal = fit(fleet, 0, request("gpu=1,partition=1g.10gb"))
    assert isinstance(refusal, Rejection)
    assert refusal.code is Code.GPU_COMPUTE


# --- no place is given twice ---


def at(name: str, card: Gpu, slot: Slot) -> Allocation:
    asked = request(f"gpu=1,partition={slot.template}")
    charge = Charge(1, GIB, Isolation.PARTITIONED, slot)
    return replace(holding(name, asked, charge, card), claim=Claim(), cards=(card,))


VIR = Slot("vir01", group=0)
PLACES = [
    pytest.param(M, [Slot("2g.20gb", 0, 2), Slot("2g.20gb", 0, 2)], True, id="the same slots"),
    pytest.param(M, [Slot("2g.20gb", 0, 2), Slot("1g.10gb", 1, 2)], True, id="a slot inside"),
    pytest.param(M, [Slot("2g.20gb", 0, 2), Slot("2g.20gb", 2, 4)], False, id="slots beside each other"),
    pytest.param(M, [Slot("9g.99gb", 0, 2), Slot("8g.88gb", 1, 4)], True, id="of templates that nobody knows"),
    pytest.param(M, [Slot("1g.10gb", 0, 1), Slot("1g.10gb")], False, id="a place that is not recorded"),
    pytest.param(N, [VIR, VIR], False, id="two that share a group"),
    pytest.param(N, [VIR, VIR, VIR], True, id="one more than share a group"),
    pytest.param(N, [VIR, Slot("vir02", group=0)], True, id="templates that do not share a group"),
    pytest.param(N, [VIR, Slot("vir02", group=1)], False, id="in groups of their own"),
]


@pytest.mark.parametrize(("card", "slots", "twice"), PLACES)
def test_the_books_give_no_place_twice(card, slots, twice):
    *held, late = [at(str(n), card, slot) for n, slot in enumerate(slots)]
    fleet = fleet_of(card, held=tuple(held))
    before = (list(fleet.ledger), fleet.compute_free.tolist(), fleet.vram_free.tolist())
    if not twice:
        fleet.charge(late)
        return
    with pytest.raises(Conflict) as refused:
        fleet.charge(late)
    assert refused.value.code == "card-held"
    assert (list(fleet.ledger), fleet.compute_free.tolist(), fleet.vram_free.tolist()) == before


@pytest.mark.parametrize(("card", "slots", "twice"), PLACES)
@pytest.mark.parametrize("nodes", [True, False], ids=["with nodes", "before there are nodes"])
def test_a_replay_gives_no_place_twice(card, slots, twice, nodes):
    allocator = FleetAllocator(fleet_of(card) if nodes else Fleet(()))
    found = [at(str(n), card, slot) for n, slot in enumerate(slots)]
    if not twice:
        assert len(allocator.reconcile(found, 1.0)) == len(found)
        return
    with pytest.raises(Conflict, match="0, 1") as refused:
        allocator.reconcile(found, 1.0)
    assert refused.value.code == "card-held"
    assert not allocator.fleet.ledger


def test_a_replay_gives_no_card_to_two_that_hold_it_whole():
    allocator = FleetAllocator(fleet_of(M))
    whole = [Allocation(name, "n1", request("gpu=1"), ("m",), claim=Claim()) for name in "ab"]
    with pytest.raises(Conflict, match="a, b"):
        allocator.reconcile(whole, 1.0)
    assert not allocator.fleet.ledger


def test_what_is_assumed_keeps_its_place_when_another_is_found_there():
    allocator = FleetAllocator(fleet_of(M))
    assumed = replace(at("a", M, Slot("2g.20gb", 0, 2)), state=AllocationState.ASSUMED)
    allocator.reconcile([assumed], 1.0)
    with pytest.raises(Conflict, match="a, b"):
        allocator.reconcile([at("b", M, Slot("1g.10gb", 0, 1))], 2.0)
    assert list(allocator.fleet.ledger) == ["a"]


def test_a_partition_may_lie_elsewhere_in_books_that_look_ahead():
    now, ahead = fleet_of(M), fleet_of(M)
    starts(ahead, "1g.10gb")
    placed = Placer(now, Policy()).place("x", request("gpu=1,partition=1g.10gb"), Placer(ahead, Policy()))
    assert placed is not None
    assert placed.id in ahead.ledger


# --- records without a place ---


def old(name: str, template: str, at: float | None, slot: Slot | None = None) -> Allocation:
    charge = Charge(44_571, 10 * GIB, Isolation.PARTITIONED, slot or Slot(template))
    return holding(name, request(f"gpu=1,partition={template}"), charge, M, at)


def test_old_records_are_placed_by_age_and_id_around_the_recorded_ones():
    recorded = old("z", "1g.10gb", 9.0, Slot("1g.10gb", 0, 1))
    three, two = old("young", "3g.40gb", 2.0), old("old", "2g.20gb", 1.0)
    fleet = fleet_of(M, held=(three, recorded, two))
    assert starts(fleet, "1g.10gb", "1g.10gb") == [1, Code.NO_PARTITION_SLOT]
    same_age = (old("b", "3g.40gb", None), old("a", "2g.20gb", None))
    assert starts(fleet_of(M, held=same_age), "1g.20gb") == [2]


ages = st.tuples(*[st.sampled_from([None, 1.0, 2.0, 3.0])] * 2)


@given(st.lists(ages, min_size=3, max_size=3), st.lists(st.tuples(st.integers(0, 2), ages), max_size=6))
def test_where_old_records_are_placed_follows_each_change_of_an_age(first, changes):
    """An allocation that was assumed is as old as that, whenever it was bound."""

    def aged(name: str, when: tuple[float | None, float | None]) -> Allocation:
        record = old(name, {"a": "3g.40gb", "b": "2g.20gb", "c": "1g.10gb"}[name], None)
        return replace(record, assumed_at=when[0], bound_at=when[1])

    texts = [request(f"gpu=1,partition={template}") for template in ("1g.10gb", "1g.20gb", "3g.40gb")]
    times = dict(zip("abc", first, strict=True))
    fleet = fleet_of(M, held=tuple(aged(name, when) for name, when in times.items()))
    placer = Placer(fleet, Policy())
    for name, when in [("a", times["a"]), *(("abc"[at], when) for at, when in changes)]:
        times[name] = when
        fleet.replace(aged(name, when))
        by_age = sorted(times, key=lambda each: (_first_time(times[each]), each))
        timeless = [aged(name, (float(rank), None)) for rank, name in enumerate(by_age)]
        again = Placer(fleet_of(M, held=tuple(timeless)), Policy())
        for asked in texts:
            assert placer.room(asked).tolist() == again.room(asked).tolist()
            assert placer.table(asked).ranked.tolist() == again.table(asked).ranked.tolist()


def _first_time(when: tuple[float | None, float | None]) -> float:
    assumed, bound = when
    return next((at for at in (assumed, bound) if at is not None), -1.0)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([old("a", "7g.80gb", 1.0), old("b", "1g.10gb", 2.0)], id="there is no place for it"),
        pytest.param([old("a", "9g.99gb", 1.0)], id="a template that the profile does not have"),
        pytest.param(
            [holding("a", request("gpu=1,partition=19"), Charge(1, 1, Isolation.PARTITIONED), M)], id="no record at all"
        ),
        pytest.param([old("a", "9g.99gb", 1.0, Slot("9g.99gb", group=0))], id="a group on a card with slots"),
        pytest.param([old("a", "9g.99gb", 1.0, Slot("9g.99gb", 3, 3))], id="an empty run of slots"),
        pytest.param([old("a", "9g.99gb", 1.0, Slot("9g.99gb", 4, 1 << 60))], id="slots that the card does not have"),
    ],
)
def test_a_partition_that_nobody_knows_the_place_of_has_the_whole_card(records):
    assert starts(fleet_of(M, held=tuple(records)), "1g.10gb") == [Code.NO_PARTITION_SLOT]


def test_a_record_of_an_unknown_template_keeps_its_slots_and_others_may_lie_beside_it():
    fleet = fleet_of(M, held=(old("a", "9g.99gb", 1.0, Slot("9g.99gb", 0, 4)),))
    assert starts(fleet, "4g.40gb", "3g.40gb") == [Code.NO_PARTITION_SLOT, 4]


def test_old_records_of_groups():
    vir = partition("partition=vir01")
    lost = holding("a", vir, Charge(2750, 3 * GIB, Isolation.PARTITIONED, Slot("vir01")), N)
    assert place(fleet_of(N, held=(lost,)), "b", "vir01").slot == Slot("vir01", group=0)
    unknown = holding("a", vir, Charge(2750, 3 * GIB, Isolation.PARTITIONED, Slot("vir9")), N)
    assert place(fleet_of(N, held=(unknown,)), "b", "vir01") is Code.NO_ISOLATION_GROUP


# --- any history ---


class Oracle:
    """Sets of slots and lists of groups, nothing of compute and vram: rounding may never refuse."""

    def __init__(self, profile):
        self.profile = profile
        self.held = {}

    def place(self, name, template):
        mine = [place for kind, place in self.held.values() if kind is template]
        if len(self.held) >= self.profile.max_partitions or len(mine) >= template.max_partitions:
            return False
        for resource, amount in template.extended:
            used = sum(dict(kind.extended).get(resource, 0) for kind, _ in self.held.values())
            if used + amount > dict(self.profile.extended)[resource]:
                return False
        where = self._where(template)
        if where is not None:
            self.held[name] = (template, where)
        return where is not None

    def _where(self, template):
        if self.profile.vendor.by_slots:
            occupied = {slot for _, run in self.held.values() for slot in run}
            runs = [range(start, start + template.size) for start in template.starts]
            return next((run for run in runs if not occupied & set(run)), None)
        groups = {group: [k for k, g in self.held.values() if g == group] for group in range(self.profile.groups)}
        joined = [g for g, kinds in groups.items() if set(kinds) == {template} and len(kinds) < template.per_group]
        return min(joined or [g for g, kinds in groups.items() if not kinds], default=None)


@pytest.mark.parametrize("profile", [*SHIPPED.entries, *TABLE.entries, CHECKS.entries[1]], ids=lambda p: p.name)
@settings(max_examples=60)
@given(data=st.data())
def test_any_history_is_what_slots_and_groups_allow_and_never_refused_by_rounding(profile, data):
    widest = max(template.memory_bytes for template in profile.templates)
    ample = widest if profile.vendor.by_slots else 64 * GIB
    vram = data.draw(st.integers(ample * 95 // 100, ample * 105 // 100))
    card = Gpu("card", 0, profile.name, None, vram, data.draw(st.integers(1, 2_000_000)))
    fleet, oracle = fleet_of(card, profiles=Profiles((profile,))), Oracle(profile)
    for step in range(data.draw(st.integers(0, 40))):
        if oracle.held and data.draw(st.integers(0, 2)) == 0:
            name = data.draw(st.sampled_from(sorted(oracle.held)))
            del oracle.held[name]
            fleet.release(name)
            continue
        template = data.draw(st.sampled_from(profile.templates))
        asked = request(f"gpu=1,partition={template.name}")
        fits = oracle.place(str(step), template)
        found = fit(fleet, 0, asked)
        assert isinstance(found, Charge) is fits, (found, oracle.held)
        assert (refusal_of(fleet, 0, asked) is None) is fits
        if isinstance(found, Charge):
            where = oracle.held[str(step)][1]
            by_slots = profile.vendor.by_slots
            slot = Slot(template.name, where.start, where.stop) if by_slots else Slot(template.name, group=where)
            assert found.slot == slot
            fleet.charge(holding(str(step), asked, found, card))
    assert fleet.compute_free[0] >= 0
    assert fleet.vram_free[0] >= 0
    asked, taken = request(f"gpu=1,partition={data.draw(st.sampled_from(profile.templates)).name}"), []
    while isinstance(found := fit(fleet, 0, asked, taken), Charge):
        taken.append(found)
    assert fitting(fleet, 0, asked) == len(taken)


@pytest.mark.parametrize(
    ("model", "vram_mib", "full"),
    [
        pytest.param("NVIDIA H100 80GB HBM3", 81_559, ["3g.40gb", "3g.40gb"], id="H100"),
        pytest.param("NVIDIA H100 80GB HBM3", 81_559, ["7g.80gb"], id="all of an H100"),
        pytest.param("NVIDIA H200", 143_771, ["3g.71gb", "3g.71gb"], id="H200"),
        pytest.param("NVIDIA H200", 143_771, ["1g.35gb"] * 4, id="H200 by memory"),
        pytest.param("A100-SXM4-40GB", 40_536, ["4g.20gb", "3g.20gb"], id="A100"),
        pytest.param("NVIDIA A30", 24_258, ["1g.6gb+me", "1g.6gb", "2g.12gb"], id="A30"),
    ],
)
def test_a_full_set_fits_a_card_that_reports_less_than_its_name_says(model, vram_mib, full):
    card = Gpu("c", 0, model, "NVIDIA", vram_mib * MIB, 989_000)
    assert not any(isinstance(start, Code) for start in starts(fleet_of(card), *full))


# --- with everything else ---


def place_all(fleet: Fleet, text: str, most: int = 99) -> list[Allocation]:
    placer, placed = Placer(fleet, Policy()), []
    while len(placed) < most:
        allocation = placer.place(f"{text}/{len(fleet.ledger)}", request(text))
        if allocation is None:
            break
        placed.append(allocation)
    return placed


def test_room_is_what_can_be_placed():
    fleet = fleet_of(M, replace(M, uuid="m2", index=1))
    placer, small = Placer(fleet, Policy()), request("gpu=1,partition=1g.10gb")
    assert placer.room(small)[0] == 14
    assert placer.room(request("gpu=1,vram=20g,isolation=partitioned"))[0] == 8
    assert placer.room(request("gpu=2,partition=3g.40gb"))[0] == 2
    assert len(place_all(fleet, "gpu=1,partition=4g.40gb")) == 2
    assert placer.room(small)[0] == 6
    assert len(place_all(fleet, "gpu=1,partition=1g.10gb")) == 6
    assert placer.room(small)[0] == 0
    fleet.release(next(name for name in fleet.ledger if "4g.40gb" in name))
    assert placer.room(small)[0] == 4


def test_each_card_of_each_node_has_its_own_room():
    nodes = [
        Node(name, 64_000, 1 << 40, tuple(replace(M, uuid=f"{name}{n}", index=n) for n in (0, 1))) for name in "ab"
    ]
    fleet, small = Fleet(nodes, profiles=PROFILES), request("gpu=1,partition=1g.10gb")
    for number, (card, template) in enumerate([("a0", "4g.40gb"), ("b1", "7g.80gb")]):
        charge = fit(fleet, fleet.card_of[card], request(f"gpu=1,partition={template}"))
        assert isinstance(charge, Charge)
        fleet.charge(
            Allocation(f"v{number}", card[0], request(f"gpu=1,partition={template}"), (card,), charges=(charge,))
        )
    assert Placer(fleet, Policy()).room(small).tolist() == [3 + 7, 7 + 0]
    assert Placer(fleet, Policy()).room(request("gpu=2,partition=3g.40gb")).tolist() == [1, 0]


def test_room_for_a_partition_is_reserved():
    fleet, whole = fleet_of(M), Request("later", partition("partition=7g.80gb"), Claim())
    nominations = Nominations((Nomination(Request("first", partition("partition=3g.40gb"), Claim(priority=1)), "n1"),))
    assert found_with(fleet, Rules(), whole, Nominations()).by_node == {"n1": ("m",)}
    assert found_with(fleet, Rules(), whole, nominations).by_node == {}
    half = Request("later", partition("partition=3g.40gb"), Claim())
    assert found_with(fleet, Rules(), half, nominations).by_node == {"n1": ("m",)}


def test_a_placed_partition_records_its_slot():
    allocation = Placer(fleet_of(M), Policy()).place("x", request("gpu=1,vram=20g,isolation=partitioned"))
    assert allocation is not None
    assert allocation.charges == (Charge(44_571, 20 * GIB, Isolation.PARTITIONED, Slot("1g.20gb", 0, 2)),)


@pytest.mark.parametrize(("less", "taken"), [(0, {"n1": ("m2",)}), (1, {})])
def test_a_quota_counts_a_partition_on_each_card_by_itself(less, taken):
    """The first card has no place for it, so it counts nothing there; that is no answer for the second."""
    fleet = fleet_of(M, replace(M, uuid="m2", index=1))
    starts(fleet, *["1g.10gb"] * 7)
    amount = next(iter(fleet.ledger.values())).charges[0].compute
    quotas = Quotas({"team": Quota(total_requests=Caps(amount - less))})
    asked = Request("x", request("gpu=1,partition=1g.10gb"), Claim(namespace="team"))
    assert find(fleet, Rules(quotas=quotas), asked).by_node == taken


@pytest.mark.parametrize("strategy", ["best-fit", "spread", "compact-first", "node-compact-gpu-low-load"])
def test_every_strategy_places_partitions(strategy):
    fleet = fleet_of(M, replace(M, uuid="m2", index=1))
    placer = Placer(fleet, Policy(strategy=strategy))
    placed = [placer.place(str(n), request("gpu=1,partition=1g.10gb")) for n in range(15)]
    assert [allocation is None for allocation in placed] == [False] * 14 + [True]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        pytest.param("gpu=0.1", "gpu=1,partition=1g.10gb", Code.ISOLATION_LOCKED, id="no partition beside a share"),
        pytest.param("gpu=1,partition=1g.10gb", "gpu=0.1", Code.ISOLATION_LOCKED, id="no share beside a partition"),
        pytest.param("gpu=1,partition=1g.10gb", "gpu=0.1,isolation=hard", Code.ISOLATION_LOCKED, id="not a hard one"),
        pytest.param("gpu=1,partition=1g.10gb", "gpu=1", Code.GPU_NOT_IDLE, id="not the whole card"),
        pytest.param("gpu=1", "gpu=1,partition=1g.10gb", Code.GPU_COMPUTE, id="no partition of a card held whole"),
        pytest.param("gpu=1,partition=1g.10gb", "gpu=1,partition=4g.40gb", Code.NO_PARTITION_SLOT, id="taken slots"),
        pytest.param("gpu=0.1", "gpu=0.1", None, id="shares beside shares"),
        pytest.param("gpu=1,partition=1g.10gb", "gpu=1,partition=3g.40gb", None, id="partitions beside partitions"),
    ],
)
def test_partitions_and_other_shares_are_never_on_one_card(first, second, code):
    fleet = fleet_of(M)
    assert len(place_all(fleet, first, 1)) == 1
    refusal = refusal_of(fleet, 0, request(second))
    assert (refusal and refusal.code) == code
    assert refusal is None or refusal.cure is Cure.CAPACITY
    fleet.release(next(iter(fleet.ledger)))
    assert refusal_of(fleet, 0, request(second)) is None


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        pytest.param({"isolation": Isolation.PARTITIONED}, None, id="the runtime is set to partitions"),
        pytest.param({"isolation": Isolation.SOFT}, Code.ISOLATION_POLICY, id="it is set to another mode"),
        pytest.param({"isolation_policy": IsolationPolicy.DYNAMIC}, Code.ISOLATION_POLICY, id="dynamic has none"),
        pytest.param({"isolations": frozenset({Isolation.SOFT})}, Code.ISOLATION_UNSUPPORTED, id="not supported"),
        pytest.param({"vendor": "AMD"}, Code.NO_PARTITION_TEMPLATE, id="another vendor"),
        pytest.param({"vram_bytes": None}, Code.CAPACITY_UNKNOWN, id="nobody knows its vram"),
    ],
)
def test_a_card_takes_partitions(facts, code):
    refusal = refusal_of(fleet_of(replace(M, **facts)), 0, request("gpu=1,partition=1g.10gb"))
    assert (refusal and refusal.code) == code


def test_books_keep_their_profiles():
    fleet = Fleet([Node("n1", 1000, GIB, (T,))], profiles=TABLE)
    assert fleet.profiles is fleet.copy().profiles is fleet.emptied().profiles is TABLE
    assert Fleet(()).profiles is SHIPPED


@pytest.mark.parametrize(
    ("text", "share"),
    [
        pytest.param("gpu=1,partition=1g.10gb", 143, id="a seventh of the compute"),
        pytest.param("gpu=1,partition=1g.20gb", 250, id="a quarter of the vram"),
        pytest.param("gpu=2,partition=3g.40gb", 1000, id="half of two cards"),
        pytest.param("gpu=0.5,isolation=partitioned", 572, id="what it takes, not what is asked"),
        pytest.param("gpu=1,partition=9g.99gb", 1000, id="no card has it: a whole one"),
    ],
)
def test_a_partition_counts_in_shares_as_what_it_takes(text, share):
    fleet = fleet_of(M, replace(M, uuid="other", index=1, model="NVIDIA L4"))
    assert fleet.resources(request(text)).gpu_milli == share


# --- tables of an operator ---


def test_an_operators_table_goes_before_what_is_shipped():
    mine = load_profiles(TWO_KINDS.replace('"T"', '"nvidia h200"'))
    both = SHIPPED.overridden_by(mine.entries)
    assert both.of(replace(M, model="NVIDIA H200")) is mine.entries[0]
    assert both.of(replace(M, model="NVIDIA H200 NVL")) is SHIPPED.of(replace(M, model="NVIDIA H200"))


def test_amounts_are_exact():
    (profile,) = load_profiles(
        TWO_KINDS.replace("memory_gigabytes = 24,", "memory_gigabytes = 9.75,").replace("14.2857", "14.285714285714")
    ).entries
    assert (profile.templates[0].memory_bytes, profile.templates[0].compute_ppm) == (9984 * MIB, 142_857)


@pytest.mark.parametrize(
    ("before", "after", "field", "says"),
    [
        pytest.param('"T"', "5", "name", "text in quotes", id="a name is text"),
        pytest.param('name = "T"', "", "name", "missing", id="a model without name"),
        pytest.param('"T"', '" "', "name", "driver names it", id="an empty name"),
        pytest.param('"NVIDIA"', '"AMD"', "vendor", "nvidia, alibaba-ppu, ascend", id="a vendor without placement"),
        pytest.param('"NVIDIA"', '"Ascend"', "max_placement_slots", "no such field", id="slots on a card of groups"),
        pytest.param("max_placement_slots = 8", "", "max_placement_slots", "missing", id="no slots"),
        pytest.param("slots = 8", "slots = 7.5", "max_placement_slots", "whole number", id="half a slot"),
        pytest.param("slots = 8", "slots = 6", "placement_limit", "max_placement_slots = 6", id="beyond the card"),
        pytest.param("[0]", "[0, 0]", "placement_limit", "once", id="a start twice"),
        pytest.param("[0]", "[]", "placement_limit", "placement_offset", id="no start"),
        pytest.param("[0]", "0", "placement_limit", "list", id="not a list"),
        pytest.param("[0]", "[-1]", "placement_limit", "from 0", id="a negative start"),
        pytest.param("= 94,", "= 0,", "memory_gigabytes", "above 0", id="no memory"),
        pytest.param("= 94,", "= nan,", "memory_gigabytes", "above 0", id="not a number"),
        pytest.param("= 94,", '= "94",', "memory_gigabytes", "plain number", id="a number in quotes"),
        pytest.param("= 94,", "= 0.1,", "memory_gigabytes", "whole number of bytes", id="not whole bytes"),
        pytest.param("57.1428", "101", "compute_percent", "1000000", id="more than a card"),
        pytest.param("57.1428", "0.00001", "compute_percent", "from 1", id="less than a millionth"),
        pytest.param("14.2857", "14.29", "compute_percent", "round it down", id="seven are more than a card"),
        pytest.param("max_partition = 1,", "", "max_partition", "missing", id="no maximum"),
        pytest.param("max_partition = 1,", "max_partition = true,", "max_partition", "whole number", id="a truth"),
        pytest.param("placement_offset = 4", "placement_ofset = 4", "placement_offset", "missing", id="misspelt"),
        pytest.param("placement_offset = 4", "placement_offset = 4, x = 1", "x", "no such field", id="unknown field"),
        pytest.param("4g.94gb", "1G_24GB", "templates", "name or id", id="a template twice"),
        pytest.param("templates = [", "templates = [1,", "templates", "list of tables", id="not a template"),
        pytest.param("templates = [", "x = [", "x", "no such field", id="no templates"),
        pytest.param(
            "placement_offset = 4", "placement_offset = 4, extended_resources = { DEC = 1 }", "extended_resources.DEC",
            "total_extended_resources", id="a resource that the card does not have",
        ),
        pytest.param("[[model]]", "x = 1\n[[model]]", "x", "no such field", id="something beside the models"),
        pytest.param("[[model]]", "[[model", "profiles", "TOML", id="not TOML"),
    ],
)  # fmt: skip
def test_a_table_with_an_error_is_refused_whole(before, after, field, says):
    assert before in TWO_KINDS
    with pytest.raises(InvalidRequest) as caught:
        load_profiles(TWO_KINDS.replace(before, after))
    assert caught.value.field == field
    assert says in caught.value.message
    assert field in caught.value.message


def test_an_error_names_model_and_template():
    with pytest.raises(InvalidRequest, match=r"^model 'T': template '1g\.24gb': compute_percent: 14\.29 is not valid"):
        load_profiles(TWO_KINDS.replace("14.2857", "14.29"))


def test_two_models_of_one_name_are_refused():
    with pytest.raises(InvalidRequest, match="keep one"):
        load_profiles(TWO_KINDS + TWO_KINDS.replace('"T"', '"t2"\naliases = ["t"]'))


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        pytest.param('"shared"', '"both"', "isolation_group_sharing", id="a way of sharing that there is not"),
        pytest.param("groups = 2", "groups = 0", "max_isolation_groups", id="no groups"),
        pytest.param("group = 3", "group = 0", "max_partitions_per_isolation_group", id="nobody in a group"),
        pytest.param('"exclusive"', '"exclusive", placement_limit = [0]', "placement_limit", id="slots"),
    ],
)
def test_errors_of_groups(before, after, field):
    text = f"""
[[model]]
name = "G"
vendor = "Ascend"
max_isolation_groups = 2
templates = [
  {row("own", 1, "10", 5, 'isolation_group_sharing = "exclusive"')},
  {row("three", 1, "10", 5, 'isolation_group_sharing = "shared", max_partitions_per_isolation_group = 3')},
]
"""
    assert load_profiles(text).entries[0].templates[1].per_group == 3
    with pytest.raises(InvalidRequest) as caught:
        load_profiles(text.replace(before, after))
    assert caught.value.field == field
