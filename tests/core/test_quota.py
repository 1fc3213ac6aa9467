"""Quotas: what the ledger says is used, against what a namespace may hold; amounts as TFLOPS and MiB."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.core.placing.candidates import find
from ullage.core.placing.offers import offers
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import decided_by_sums
from ullage.core.verdict.quota import (
    SINGLE,
    TOTAL,
    Quotas,
    alerts,
    asked_of,
    available_percent,
    taken,
    with_pre_scheduled,
)
from ullage.core.verdict.sentences import CURES, alarm_text, condition_text, reject_text
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure, QuotaFigures, Rejection
from ullage.model.request import ResourceRequirement

MIB = 2**20
GIB = 2**30


def amounts(tflops: float = 0, mib: int = 0) -> Part:
    return Part(round(tflops * 1000), mib * MIB)


def caps(tflops: float | None = None, mib: int | None = None) -> Caps:
    return Caps(None if tflops is None else round(tflops * 1000), None if mib is None else mib * MIB)


def usage(tflops: float = 0, mib: int = 0, workers: int = 0) -> Usage:
    """On cards of 50 TFLOPS."""
    asked = amounts(tflops, mib)
    each = asked.compute_gflops, asked.vram_bytes
    return Usage(*each, *each, workers, asked.compute_gflops * PPM // 50_000)


def codes(rejections: tuple[Rejection, ...]) -> list[Code]:
    return [rejection.code for rejection in rejections]


Q = Quota(total_requests=caps(100, 1000), total_limits=caps(100, 1000), max_workers=10)
"""The quota of the cases that do not say another one."""


class Books:
    """One namespace over cards of 50/500: a request is checked, then takes the first cards with room."""

    def __init__(self, quota: Quota | None = Q, cards: int = 4) -> None:
        gpus = tuple(Gpu(f"g{k}", k, vram_bytes=500 * MIB, compute_gflops=50_000) for k in range(cards))
        self.fleet = Fleet([Node("n1", 64_000, 2**40, gpus)])
        self.quotas = Quotas({} if quota is None else {"team": quota})
        self.named = 0

    @property
    def used(self) -> Usage:
        return self.fleet.usage.get("team", Usage())

    def ask(self, tflops: float, mib: int, count: int = 1) -> list[Code]:
        cores = round(tflops * 1000) * count * PPM // 50_000
        return codes(
            self.quotas.check(self.fleet.usage, "team", asked_of(amounts(tflops, mib), count=count, cores_ppm=cores))
        )

    def alloc(self, tflops: float, mib: int, count: int = 1, state: AllocationState = AllocationState.BOUND) -> str:
        assert self.ask(tflops, mib, count) == []
        each = amounts(tflops, mib)
        fleet = self.fleet
        room = [
            card
            for card in range(len(fleet.cards))
            if fleet.compute_free[card] >= each.compute_gflops and fleet.vram_free[card] >= each.vram_bytes
        ]
        charges = (Charge(each.compute_gflops, each.vram_bytes),) * count
        name = f"a{self.named}"
        self.named += 1
        requirement = ResourceRequirement.of(gpu=count)
        claim = Claim(namespace="team")
        fleet.charge(Allocation(name, "n1", requirement, fleet.uuids(room[:count]), state, charges, claim))
        return name


# --- the cases, through the books ---


def test_one_worker_of_two_cards_counts_twice_its_amounts():
    books = Books()
    books.alloc(30, 300, 2)
    assert books.used == usage(60, 600, 1)


def test_more_than_the_total_is_refused_and_the_first_code_decides():
    assert Books().ask(60, 600, 2) == list(TOTAL[:4])
    assert TOTAL[0] == "total.max.tflops.request"


def test_what_is_given_back_is_no_longer_used():
    books = Books()
    books.fleet.release(books.alloc(30, 300, 2))
    assert books.fleet.usage == {}
    assert books.used == usage()


def test_ten_tenths_are_exactly_the_quota():
    books = Books()
    assert books.ask(10, 100, 10) == []
    for _ in range(10):
        books.alloc(10, 100)
    assert books.used == usage(100, 1000, 10)
    assert books.ask(0, 0) == [Code.QUOTA_TOTAL_WORKERS]


@pytest.mark.parametrize("quota", [Quota(caps(0, 0), caps(0, 0), max_workers=0, max_cores_ppm=0)])
def test_a_quota_of_nothing_allows_nothing(quota):
    assert Books(quota).ask(1, 1) == list(TOTAL)


def test_what_is_assumed_counts_and_stays_when_it_is_bound():
    books = Books()
    name = books.alloc(30, 300, 2, AllocationState.ASSUMED)
    assert books.used == usage(60, 600, 1)
    books.fleet.replace(replace(books.fleet.ledger[name], state=AllocationState.BOUND))
    assert books.used == usage(60, 600, 1)
    assert books.fleet.compute_free.tolist() == [20_000, 20_000, 50_000, 50_000]
    assert books.fleet.vram_free.tolist() == [200 * MIB, 200 * MIB, 500 * MIB, 500 * MIB]
    books.fleet.replace(replace(books.fleet.ledger[name], state=AllocationState.RELEASING))
    assert books.used == usage(60, 600, 1)


def test_halves_of_a_tflops_add_up():
    books = Books(Quota(total_requests=caps(1)))
    books.alloc(0.5, 1)
    books.alloc(0.5, 1)
    assert books.ask(0.5, 1) == [Code.QUOTA_TOTAL_COMPUTE_REQUEST]


@pytest.mark.parametrize("quota", [Quota(total_requests=caps(mib=8192)), Quota(max_requests=caps(mib=8192))])
@pytest.mark.parametrize(
    "other",
    [
        Gpu("other", 1, vram_bytes=0, compute_gflops=0),
        Gpu("other", 1),
        Gpu("other", 1, vram_bytes=4 * GIB, compute_gflops=1000),
        Gpu("other", 1, vram_bytes=80 * GIB, compute_gflops=1000, cordoned=True),
    ],
    ids=["no capacity", "unknown capacity", "too small", "cordoned"],
)
def test_a_card_that_can_never_take_a_request_does_not_hide_that_a_quota_refuses_the_other(quota, other):
    good = Gpu("good", 0, vram_bytes=80 * GIB, compute_gflops=100_000)
    fleet = Fleet([Node("n", 8000, GIB, (good,)), Node("o", 8000, GIB, (other,))])
    refusal = find(fleet, Rules(quotas=Quotas({"default": quota})), Request.of("r", "vram=10g")).refusal
    assert refusal.code in (Code.QUOTA_TOTAL_VRAM_REQUEST, Code.QUOTA_SINGLE_VRAM_REQUEST)


def test_a_quota_is_no_reason_where_the_cards_that_it_refuses_are_of_another_pool():
    large, small = (
        Gpu("large", 0, vram_bytes=80 * GIB, compute_gflops=100_000, pool="other"),
        Gpu("small", 0, pool="own"),
    )
    small = replace(small, vram_bytes=8 * GIB, compute_gflops=1000, cordoned=True)
    fleet = Fleet([Node("n", 8000, GIB, (large,)), Node("o", 8000, GIB, (small,))])
    rules = Rules(quotas=Quotas({"default": Quota(total_requests=caps(mib=8 * 1024))}))
    assert find(fleet, rules, Request.of("r", "gpu=0.5,pool=own")).refusal.code is Code.GPU_CORDONED


def test_a_quota_that_comes_late_sees_what_was_there():
    books = Books(quota=None)
    books.alloc(40, 400, 2)
    assert books.ask(1000, 10_000) == []
    books.quotas = books.quotas.updated("team", lambda: Q)
    assert books.ask(30, 100) == [Code.QUOTA_TOTAL_COMPUTE_REQUEST, Code.QUOTA_TOTAL_COMPUTE_LIMIT]
    assert books.quotas.status(books.fleet.usage, "team", 0.0).used == usage(80, 800, 1)


# --- the cases, on usage alone ---


def check(quota: Quota, used: Usage, tflops: float, mib: int = 0, count: int = 1) -> list[Code]:
    return codes(Quotas({"team": quota}).check({"team": used}, "team", asked_of(amounts(tflops, mib), count=count)))


def test_as_many_workers_as_allowed():
    assert check(replace(Q, max_workers=5), usage(10, 10, 5), 1, 1) == [Code.QUOTA_TOTAL_WORKERS]
    assert check(replace(Q, max_workers=5), usage(10, 10, 4), 1, 1) == []


def test_a_request_counts_once_per_card():
    assert check(Q, usage(50), 20, count=3) == [TOTAL[0], TOTAL[2]]
    assert check(Q, usage(50), 20, count=2) == []


def test_more_cards_than_one_request_may_have_is_beyond_cure():
    quotas = Quotas({"team": Quota(max_gpu_count=2)})
    (rejection,) = quotas.check({}, "team", asked_of(amounts(1), count=3))
    assert rejection.code == "single.max.gpuCount.limit"
    assert rejection.cure is Cure.NEVER
    assert rejection.quota == QuotaFigures("team", requested=3, limit=2)
    assert quotas.check({}, "team", asked_of(amounts(1), count=2)) == ()


@pytest.mark.parametrize(
    ("total", "used", "percent"),
    [
        pytest.param(100, 50, "50.00", id="half"),
        pytest.param(0, 0, "100", id="nothing counted"),
        pytest.param(None, 50, "100", id="no quota"),
        pytest.param(100, 120, "0.00", id="above it"),
        pytest.param(3, 1, "66.66", id="rounded down"),
        pytest.param(100_000, 95_001, "4.99", id="just below a whole percentage"),
        pytest.param(32768, 0, "100.00", id="all"),
    ],
)
def test_available_percent(total, used, percent):
    assert available_percent(total, used) == percent


@pytest.mark.parametrize(
    ("available", "threshold", "alert"),
    [
        ("4", 95, True),
        ("5", 95, False),
        ("10", 95, False),
        ("", 95, True),
        ("8", 90, True),
        ("4.99", 95, True),
        ("5.00", 95, False),
        ("0.00", 100, False),
        ("99.99", 0, True),
        ("100", 0, False),
    ],
)
def test_alert(available, threshold, alert):
    assert alerts(available, threshold) is alert


def test_an_alert_needs_a_number():
    with pytest.raises(InvalidRequest, match="available_percent"):
        alerts("many", 95)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 100))
def test_the_text_alerts_exactly_when_the_amounts_do(total, used, threshold):
    left = max(0, total - used)
    assert alerts(available_percent(total, used), threshold) is (left * 100 < (100 - threshold) * total)


def test_a_quota_that_contradicts_itself_leaves_the_last_one_in_force():
    quotas = Quotas({"team": Q}).updated("team", lambda: Quota(caps(100), caps(50)))
    assert quotas.quotas == {"team": Q}
    assert "total_limits.compute_gflops: 50000" in quotas.faults["team"]
    quotas = quotas.updated("team", lambda: replace(Q, alert_threshold_percent=150))
    assert "alert_threshold_percent: 150" in quotas.faults["team"]
    status = quotas.status({}, "team", 0.0)
    assert status.fault == quotas.faults["team"]
    mended = quotas.updated("team", lambda: Quota(max_workers=1))
    assert (mended.quotas, mended.faults) == ({"team": Quota(max_workers=1)}, {})
    assert quotas.without("team") == Quotas()


def test_usage_never_falls_below_zero_and_says_when_it_would():
    rest, alarms = taken("team", usage(10, 30, 1), usage(20, 20, 1))
    assert rest == usage(0, 10, 0)
    assert [(alarm.resource, alarm.had, alarm.taken) for alarm in alarms] == [
        ("requests.tflops", 10_000, 20_000),
        ("limits.tflops", 10_000, 20_000),
        ("cores", 200_000, 400_000),
    ]
    assert alarm_text(alarms[0]) == (
        "requests.tflops of namespace team would fall below zero: 20 given back, 10 held; counted as 0"
    )
    assert taken("team", usage(20), usage(20)) == (usage(), ())


def test_books_below_zero_show_zero_and_an_alarm():
    status = Quotas({"team": Q}).status({"team": Usage(workers=-1)}, "team", 0.0)
    assert status.used == Usage()
    assert [alarm.resource for alarm in status.alarms] == ["workers"]
    assert status.available_percent.workers == "100.00"


# --- order, numbers and units ---


def test_all_that_fails_is_told_in_order():
    nothing = Quota(caps(0, 0), caps(0, 0), 0, caps(0, 0), caps(0, 0), 0, max_cores_ppm=0)
    found = Quotas({"team": nothing}).check({}, "team", asked_of(amounts(1, 1), count=2, cores_ppm=1))
    assert codes(found) == [*SINGLE, *TOTAL]
    assert {CURES[code] for code in SINGLE} == {Cure.NEVER}
    assert {CURES[code] for code in TOTAL} == {Cure.QUOTA}


def cures(found: tuple[Rejection, ...]) -> list[Cure]:
    return [rejection.cure for rejection in found]


def test_a_request_above_a_total_by_itself_is_not_cured_by_what_others_give_back():
    quotas, cap = Quotas({"team": Quota(total_requests=caps(10, 10))}), asked_of(amounts(10, 10))
    above = asked_of(amounts(10.001, 11))
    for used in ({}, {"team": usage(1, 1, 1)}):
        assert cures(quotas.check(used, "team", above)) == [Cure.NEVER, Cure.NEVER]
    assert cures(quotas.check({"team": usage(1, 1, 1)}, "team", cap)) == [Cure.QUOTA, Cure.QUOTA]


def test_a_change_to_more_than_a_total_is_not_cured_by_what_others_give_back():
    quotas, held = Quotas({"team": Quota(total_requests=caps(10))}), usage(4, 0, 1)
    used = {"team": usage(6, 0, 2)}
    assert cures(quotas.check_change(used, "team", held, asked_of(amounts(9)))) == [Cure.QUOTA]
    assert cures(quotas.check_change(used, "team", held, asked_of(amounts(11)))) == [Cure.NEVER]


def test_a_cap_on_one_request_looks_at_each_card_and_not_at_the_sum():
    single = Quota(max_requests=caps(50, 500), max_limits=caps(60, 600))
    assert check(single, usage(1000, 1000, 1), 50, 500, 8) == []
    quotas = Quotas({"team": single})
    too_much = [(50_000, 0), (50_001, 0)]
    assert codes(quotas.check({}, "team", asked_of(too_much, count=2))) == [Code.QUOTA_SINGLE_COMPUTE_REQUEST]
    limit = amounts(60.001, 601)
    assert codes(quotas.check({}, "team", asked_of(amounts(1), limit))) == [SINGLE[2], SINGLE[3]]


def test_figures_say_who_asked_what_of_how_much():
    used = {"team": usage(80, 0, 3)}
    first = Quotas({"team": Q}).check(used, "team", asked_of(amounts(15), amounts(15), 2))[0]
    assert first == Rejection(
        Code.QUOTA_TOTAL_COMPUTE_REQUEST,
        Cure.QUOTA,
        30_000,
        20_000,
        quota=QuotaFigures("team", 30_000, 100_000, 80_000),
    )
    assert reject_text(first) == (
        "the compute that its namespace requests would exceed the quota: "
        "it asks 30 TFLOPS, 80 TFLOPS of 100 TFLOPS used (namespace team)"
    )
    (single,) = Quotas({"team": Quota(max_limits=caps(mib=1024))}).check({}, "team", asked_of(amounts(0, 2048)))
    assert reject_text(single).endswith("it asks 2Gi, at most 1Gi (namespace team)")


def test_cores_are_told_in_percent_of_a_card():
    used = {"team": Usage(workers=1, cores_ppm=1_500_000)}
    quotas = Quotas({"team": Quota(max_cores_ppm=2 * PPM)})
    (refused,) = quotas.check(used, "team", asked_of(amounts(), cores_ppm=505_000))
    assert reject_text(refused).endswith("it asks 50.5 %, 150 % of 200 % used (namespace team)")
    assert quotas.check(used, "team", asked_of(amounts(), cores_ppm=500_000)) == ()
    _, (alarm,) = taken("team", Usage(cores_ppm=100_000), Usage(cores_ppm=200_000))
    assert (
        alarm_text(alarm) == "cores of namespace team would fall below zero: 20 % given back, 10 % held; counted as 0"
    )


@pytest.mark.parametrize(("gflops", "cards", "fits"), [(50_000, ("slow", "fast"), "fast"), (50_000, ("slow",), "")])
def test_cores_are_those_of_the_card_that_is_given(gflops: int, cards: tuple[str, ...], fits: str):
    """Half of one card is all of another: a quota of cores decides which of them will do."""
    there = {"slow": Gpu("slow", 0, compute_gflops=50_000), "fast": Gpu("fast", 1, compute_gflops=100_000)}
    fleet = Fleet([Node(name, 64_000, 2**40, (there[name],)) for name in cards])
    rules = Rules(quotas=Quotas({"team": Quota(max_cores_ppm=PPM // 2)}))
    soft = CardSelector(isolation=Isolation.SOFT)
    asked = ResourceRequirement(gpu_count=1, part=Part(compute_gflops=gflops), cards=soft)
    request = Request("r", asked, Claim("team"))
    assert list(find(fleet, rules, request).by_node) == ([fits] if fits else [])
    assert decided_by_sums(fleet, rules, request) is False
    found = offers(fleet, rules, request)
    assert [fleet.nodes[row].name for row in range(len(cards)) if found.refused[row] < 0] == ([fits] if fits else [])


def test_a_lowered_quota_leaves_no_room_and_none_is_owed():
    (rejection,) = Quotas({"team": Quota(caps(10))}).check({"team": usage(80)}, "team", asked_of(amounts(1)))
    assert (rejection.needed, rejection.had) == (1000, 0)


def test_a_percentage_counts_as_its_amount_on_each_card():
    quotas = Quotas({"team": Quota(caps(20))})
    share = Part(vram_bytes=MIB, compute_ppm=150_000)
    each = [share.on(compute, 24 * GIB) for compute in (71_000, 66_000)]
    assert each == [(10_650, MIB), (9_900, MIB)]
    (rejection,) = quotas.check({}, "team", asked_of(each, count=2))
    assert rejection.needed == 20_550
    with pytest.raises(InvalidRequest, match="resolve it"):
        quotas.check({}, "team", asked_of(Part(compute_ppm=150_000)))


@pytest.mark.parametrize("count", [0, 2])
def test_amounts_are_given_for_each_card(count):
    with pytest.raises(InvalidRequest):
        Quotas({"team": Q}).check({}, "team", asked_of([(1, 1)], count=count))


def test_a_worker_has_at_least_one_card():
    with pytest.raises(InvalidRequest, match="count"):
        asked_of(amounts(1), count=0)


def test_without_a_quota_everything_is_allowed():
    assert Quotas({"other": Quota(caps(0))}).check({}, "team", asked_of(amounts(10**6), count=128)) == ()


def test_what_is_ordered_counts_as_used():
    quotas = Quotas({"team": Q})
    used = {"team": usage(50, 0, 9)}
    assert quotas.check(used, "team", asked_of(amounts(30))) == ()
    pending = with_pre_scheduled(used, {"team": usage(30, 0, 1), "new": usage(1)})
    assert codes(quotas.check(pending, "team", asked_of(amounts(30)))) == [TOTAL[0], TOTAL[2], TOTAL[4]]
    assert pending["new"] == usage(1)


# --- nested quotas ---

TREE = {"red": "lab", "blue": "lab", "lab": "site"}


def test_every_level_must_hold():
    quotas = Quotas({"red": Q, "lab": Quota(caps(120))}, TREE)
    used = {"red": usage(40), "blue": usage(70)}
    assert quotas.used(used, "lab") == quotas.used(used, "site") == usage(110)
    (above,) = quotas.check(used, "red", asked_of(amounts(20)))
    assert above.quota == QuotaFigures("lab", 20_000, 120_000, 110_000)
    assert quotas.check(used, "red", asked_of(amounts(10))) == ()
    assert codes(quotas.check(used, "blue", asked_of(amounts(20)))) == [TOTAL[0]]
    assert quotas.check({"red": usage(40), "blue": usage(60)}, "red", asked_of(amounts(20))) == ()


def test_cores_count_where_a_quota_of_the_namespace_or_of_one_above_it_has_them():
    quotas = Quotas({"red": Q, "lab": Quota(max_cores_ppm=PPM)}, TREE)
    assert [name for name in (*TREE, "site", "other") if quotas.count_cores(name)] == ["red", "blue", "lab"]
    assert not Quotas({"red": Q}).count_cores("red")


def test_what_no_victim_cures_decides_first_at_any_level():
    quotas = Quotas({"red": Quota(caps(0)), "site": Quota(max_requests=caps(10))}, TREE)
    assert codes(quotas.check({}, "red", asked_of(amounts(20)))) == [SINGLE[0], TOTAL[0]]


def test_of_equal_codes_the_nearest_level_decides():
    quotas = Quotas({"red": Quota(caps(0)), "site": Quota(caps(0))}, TREE)
    assert [r.quota.namespace for r in quotas.check({}, "red", asked_of(amounts(20))) if r.quota] == ["red", "site"]


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "a"}, {"x": "a", "a": "b", "b": "a"}])
def test_nothing_stands_above_itself(parents):
    with pytest.raises(InvalidRequest, match="above itself"):
        Quotas(parents=parents)


# --- changes of what runs ---


def change(quota: Quota, used: Usage, old: Part, new: Part, count: int = 1) -> list[Code]:
    held = Usage(
        old.compute_gflops * count, old.vram_bytes * count, old.compute_gflops * count, old.vram_bytes * count, 1
    )
    return codes(Quotas({"team": quota}).check_change({"team": used}, "team", held, asked_of(new, count=count)))


def test_growing_counts_the_difference_of_every_card_and_no_worker():
    full = replace(Q, max_workers=1)
    assert change(full, usage(80, 0, 1), amounts(40), amounts(50), 2) == []
    assert change(full, usage(80, 0, 1), amounts(40), amounts(50.5), 2) == [TOTAL[0], TOTAL[2]]


def test_only_what_exceeds_its_cap_on_one_request_is_a_reason():
    quotas = Quotas({"team": Quota(max_requests=caps(50, 100))})
    assert codes(quotas.check({}, "team", asked_of(amounts(50, 101)))) == [SINGLE[1]]
    assert codes(quotas.check({}, "team", asked_of(amounts(51, 100)))) == [SINGLE[0]]
    assert codes(quotas.check({}, "team", asked_of(amounts(50, 100)))) == []


def test_growing_compares_the_new_amounts_with_the_caps_on_one_request():
    single = Quota(max_requests=caps(50))
    assert change(single, usage(40, 0, 1), amounts(40), amounts(50)) == []
    assert change(single, usage(40, 0, 1), amounts(40), amounts(51)) == [SINGLE[0]]


def test_a_namespace_above_its_quota_may_shrink_and_may_grow_where_there_is_room():
    assert change(Q, usage(200, 100, 20), amounts(100, 100), amounts(90, 100)) == []
    assert change(Q, usage(200, 100, 20), amounts(100, 100), amounts(100, 200)) == []
    assert change(Q, usage(200, 100, 20), amounts(100, 100), amounts(101, 100)) == [TOTAL[0], TOTAL[2]]


def test_the_same_amounts_again_are_no_change():
    assert change(Q, usage(200, 100, 20), amounts(100, 100), amounts(100, 100)) == []


# --- status ---


def test_each_resource_is_named_with_its_own_percentage():
    used = {"team": Usage(97_000, 0, 50_000, 990 * MIB, 3)}
    status = Quotas({"team": Q}).status(used, "team", 5.0)
    assert status.available_percent == ("3.00", "100.00", "50.00", "1.00", "70.00", "100")
    assert not status.condition.ready
    assert status.condition.reason == "AlertThresholdReached"
    assert status.condition.alerts == (("requests.tflops", "3.00"), ("limits.vram", "1.00"))
    assert condition_text(status.condition) == "less than 5 % is left: 3.00 % of requests.tflops, 1.00 % of limits.vram"


def test_a_condition_is_rewritten_only_when_its_facts_change():
    quotas = Quotas({"team": Q})
    calm = quotas.status({"team": usage(10)}, "team", 1.0)
    assert calm.condition.reason == "CapacitySufficient"
    assert condition_text(calm.condition) == "at least 5 % is left of everything the quota counts"
    assert quotas.status({"team": usage(10)}, "team", 2.0, calm) is calm

    busier = quotas.status({"team": usage(95)}, "team", 3.0, calm)
    assert busier.condition is calm.condition
    assert busier.last_update == 3.0

    tight = quotas.status({"team": usage(96)}, "team", 4.0, busier)
    assert (tight.condition.ready, tight.condition.since) == (False, 4.0)
    tighter = quotas.status({"team": usage(97)}, "team", 5.0, tight)
    assert tighter.condition != tight.condition
    assert tighter.condition.since == 4.0

    stricter = Quotas({"team": replace(Q, alert_threshold_percent=99)}).status(
        {"team": usage(97)}, "team", 6.0, tighter
    )
    assert (stricter.condition.ready, stricter.condition.since) == (True, 6.0)


def test_a_namespace_without_quota_has_all_of_it():
    status = Quotas().status({"team": usage(10, 0, 1)}, "team", 0.0)
    assert set(status.available_percent) == {"100"}
    assert status.condition.ready


def test_status_of_a_level_counts_all_below_it():
    status = Quotas({"lab": Quota(caps(100))}, TREE).status({"red": usage(30), "blue": usage(20)}, "lab", 0.0)
    assert status.available_percent.compute_request == "50.00"


# --- any history ---

GPUS = tuple(Gpu(f"g{k}", k, vram_bytes=500 * MIB, compute_gflops=50_000) for k in range(4))
NAMESPACES = ("red", "blue", "green")


class History(RuleBasedStateMachine):
    """Charges, changes and releases inside any nesting of trials."""

    @initialize()
    def open_books(self):
        self.fleet = Fleet([Node("n1", 64_000, 2**40, GPUS)])
        self.trials: list[int] = []
        self.named = 0

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        each=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 2**27)), min_size=1, max_size=4),
        limit=st.none() | st.builds(Part, st.integers(0, 30_000), st.integers(0, 2**28)),
        state=st.sampled_from(AllocationState),
        whole=st.booleans(),
        owned=st.booleans(),
    )
    def charge(self, namespace, each, limit, state, whole, owned):
        gpus = tuple(gpu.uuid for gpu in GPUS[: len(each)])
        charges = () if whole else tuple(Charge(*one) for one in each)
        claim = Claim(namespace=namespace, limit=limit) if owned else None
        requirement = ResourceRequirement.of(gpu=len(each))
        self.fleet.charge(Allocation(f"a{self.named}", "n1", requirement, gpus, state, charges, claim), force=True)
        self.named += 1

    @precondition(lambda self: self.fleet.ledger)
    @rule(data=st.data())
    def release(self, data):
        self.fleet.release(data.draw(st.sampled_from(sorted(self.fleet.ledger))))

    @precondition(lambda self: self.fleet.ledger)
    @rule(data=st.data(), amount=st.integers(0, 20_000))
    def change(self, data, amount):
        held = self.fleet.ledger[data.draw(st.sampled_from(sorted(self.fleet.ledger)))]
        self.fleet.replace(replace(held, charges=(Charge(amount, amount),) * len(held.gpus)))

    @rule()
    def begin_a_trial(self):
        self.trials.append(self.fleet.checkpoint())

    @precondition(lambda self: self.trials)
    @rule()
    def roll_back(self):
        self.fleet.rollback(self.trials.pop())

    @precondition(lambda self: self.trials)
    @rule()
    def keep(self):
        self.fleet.keep(self.trials.pop())

    @invariant()
    def usage_is_the_sum_over_what_lives(self):
        if not hasattr(self, "fleet"):
            return
        expected: dict[str, list[int]] = {}
        for held in self.fleet.ledger.values():
            if held.claim is None:
                continue
            each = [(charge.compute, charge.vram) for charge in held.charges] or [(50_000, 500 * MIB)] * len(held.gpus)
            limit = held.claim.limit
            written = (0, 0) if limit is None else (limit.compute_gflops, limit.vram_bytes)
            most = [(max(compute, written[0]), max(vram, written[1])) for compute, vram in each]
            sums = expected.setdefault(held.claim.namespace, [0] * 6)
            for compute, vram in each:
                sums[0] += compute
                sums[1] += vram
            for compute, vram in most:
                sums[2] += compute
                sums[3] += vram
            sums[4] += 1
            sums[5] += sum(min(PPM, compute * 20) for compute, _ in each)
        assert {name: list(used) for name, used in self.fleet.usage.items()} == expected
        level = Quotas(parents=TREE).used(self.fleet.usage, "lab")
        nothing = [0] * 6
        red, blue = expected.get("red", nothing), expected.get("blue", nothing)
        assert list(level) == [one + other for one, other in zip(red, blue, strict=True)]
        assert min(level) >= 0


History.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestHistory = History.TestCase

small = st.integers(0, 6)
some_caps = st.builds(Caps, st.none() | small, st.none() | small)
some_quota = st.builds(
    lambda requests, workers, single, cards, cores: Quota(
        total_requests=requests, max_workers=workers, max_requests=single, max_gpu_count=cards, max_cores_ppm=cores
    ),
    some_caps,
    st.none() | small,
    some_caps,
    st.none() | small,
    st.none() | small,
)
some_usage = st.builds(Usage, small, small, small, small, small, small)
some_cards = st.lists(st.tuples(small, small), min_size=1, max_size=3)


@given(st.dictionaries(st.sampled_from(["red", "lab"]), some_quota), some_usage, some_usage, some_cards, some_cards)
def test_more_used_or_more_asked_is_never_less_refused(quotas, used, extra, cards, more):
    """What is refused stays refused when usage grows, when cards are added and when a card asks more."""
    rules = Quotas(quotas, TREE)

    def refused(used_now: Usage, each: list[tuple[int, int]]) -> set[tuple[Code, str]]:
        found = rules.check({"red": used_now}, "red", asked_of(each, count=len(each)))
        return {(rejection.code, rejection.quota.namespace) for rejection in found if rejection.quota}

    now = refused(used, cards)
    assert now <= refused(used.plus(extra), cards)
    assert now <= refused(used, cards + more)
    assert now <= refused(used, [(cards[0][0] + more[0][0], cards[0][1] + more[0][1]), *cards[1:]])
    assert now >= refused(taken("red", used, extra)[0], cards)


@given(st.dictionaries(st.sampled_from(["red", "lab"]), some_quota), some_usage, some_cards, small, st.booleans())
def test_what_is_allowed_keeps_every_total(quotas, used, cards, cores, change):
    rules = Quotas(quotas, TREE)
    held = Usage(workers=1) if change else Usage()
    books = {"red": used.plus(held)}
    sums = sum(compute for compute, _ in cards), sum(vram for _, vram in cards)
    asked = Usage(*sums, *sums, 1, cores)
    if change:
        allowed = not rules.check_change(books, "red", held, asked_of(cards, count=len(cards), cores_ppm=cores))
    else:
        allowed = not rules.check(books, "red", asked_of(cards, count=len(cards), cores_ppm=cores))
    after = rules.used(with_pre_scheduled({"red": used}, {"red": asked}), "lab")
    grown = [*(n > 0 for n in asked[:4]), not change, cores > 0]
    for name in quotas:
        for cap, total, grows in zip(quotas[name].total, after, grown, strict=True):
            assert not allowed or cap is None or total <= cap or (change and not grows)
