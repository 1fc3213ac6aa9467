"""Requests placed together: as one after the other, near each other where a domain is named, and refused by count."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import NOW, a_card, a_node, frozen

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.domain import spans
from ullage.core.placing.draft import Misfit, enter, fit_together
from ullage.core.placing.feasibility import ever, quota_allows, room, runs
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.sentences import reject_text
from ullage.model.affinity import Expression, NodeAffinity, Operator
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.node import Node
from ullage.model.part import IsolationPolicy
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)

TEXTS = (
    "gpu=1",
    "gpu=2",
    "tflops=40,vram=4g",
    "gpu=2,tflops=30,vram=2g",
    "percent=30",
    "cpu=20,gpu=1",
    "gpu=1,tflops=1",
)
STRATEGIES = ("best-fit", "spread", "compact-first", "low-load-first", "node-compact-gpu-low-load")


def members(count: int, text: str = "gpu=1", key: str = "g", **gang: object) -> list[Request]:
    asked = ResourceRequirement.from_string(text)
    claim = Claim("team", gang=GangClaim(key, max(1, count), max(1, count), **gang))
    return [Request(f"{key}-{text}-{n}", asked, claim) for n in range(count)]


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    nodes = []
    for n in range(draw(st.integers(1, 5))):
        policies = st.sampled_from([IsolationPolicy.STATIC, IsolationPolicy.STATIC, IsolationPolicy.DYNAMIC])
        cards = [
            a_card(f"{n}-{k}", draw(st.sampled_from([60, 100])), zones=(k % 2,), isolation_policy=draw(policies))
            for k in range(draw(st.integers(0, 4)))
        ]
        labels = draw(st.sampled_from([{}, {"rack": "r1"}, {"rack": "r2"}, {"rack": "r3"}]))
        facts = {"cordoned": draw(st.integers(0, 9)) == 0, "max_executors": draw(st.sampled_from([3, 128]))}
        nodes.append(Node(f"n{n}", 64_000, 2**40, tuple(cards), labels=labels, **facts))
    fleet = Fleet(nodes)
    for n in range(draw(st.integers(0, 4))):
        request = Request(f"old-{n}", ResourceRequirement.from_string(draw(st.sampled_from(TEXTS))), Claim("team"))
        found = place(fleet, Rules(), request)
        if isinstance(found, Choice):
            enter(fleet, [request], [found], NOW)
    return fleet


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    cap = Quota(
        total_requests=Caps(draw(st.sampled_from([None, 250_000]))), max_workers=draw(st.sampled_from([100, 5]))
    )
    return Rules(
        strategy=draw(st.sampled_from(STRATEGIES)),
        workers_per_node=draw(st.sampled_from([0, 2, 256])),
        quotas=Quotas(draw(st.sampled_from([{}, {"team": cap}, {"other": cap}]))),
    )


def one_by_one(fleet: Fleet, rules: Rules, requests: list[Request]) -> dict[str, Choice] | tuple[str, int]:
    """The slow and obvious way."""
    choices: dict[str, Choice] = {}
    with trial(fleet):
        for request in requests:
            found = place(fleet, rules, request)
            if isinstance(found, Refusal):
                return request.uid, len(choices)
            choices[request.uid] = found
            enter(fleet, [request], [found], NOW)
    return choices


kinds = st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(1, 9)), min_size=1, max_size=3, unique_by=lambda k: k[0])


@pytest.mark.long
@settings(max_examples=300)
@given(fleets(), rules(), kinds)
def test_together_is_as_one_after_the_other(fleet, judged, asked):
    requests = [request for text, count in asked for request in members(count, text)]
    before = frozen(fleet), fleet.node_rows[:, :10].tolist(), fleet.card_rows.tolist()
    tight = [replace(request, strategy="compact-first") for request in requests]
    wanted = one_by_one(fleet, judged, requests)
    wanted = wanted if isinstance(wanted, dict) else one_by_one(fleet, judged, tight)
    found = fit_together(fleet, judged, requests, NOW)
    assert (frozen(fleet), fleet.node_rows[:, :10].tolist(), fleet.card_rows.tolist()) == before
    event("fits" if isinstance(wanted, dict) else "does not fit")
    assert found == wanted if isinstance(wanted, dict) else isinstance(found, Misfit)


@pytest.mark.long
@settings(max_examples=200)
@given(fleets(), rules(), st.sampled_from(TEXTS), st.integers(1, 12))
def test_no_more_fit_than_are_counted_and_as_many_where_units_do_not_hinder_each_other(fleet, judged, text, count):
    requests = members(count, text)
    counted = int(room(fleet, judged, requests[0]).sum())
    placed = one_by_one(fleet, replace(judged, quotas=Quotas()), requests)
    fitted = len(placed) if isinstance(placed, dict) else placed[1]
    asked = requests[0].requirement
    assert fitted <= min(counted, count)
    if asked.whole or asked.gpu_count == 1:
        assert fitted == min(counted, count)
    assert counted <= ever(fleet, judged, requests[0]) or fleet.ledger


@pytest.mark.long
@settings(max_examples=150)
@given(fleets(), rules(), st.sampled_from([text for text in TEXTS if "gpu=2" not in text]), st.integers(1, 8))
def test_what_the_quotas_certainly_allow_is_never_refused_for_them(fleet, judged, text, count):
    requests = members(count, text)
    if quota_allows(fleet, judged, requests[0], count):
        free, bound = (one_by_one(fleet, each, requests) for each in (replace(judged, quotas=Quotas()), judged))
        assert free == bound


def test_requests_that_are_alike_and_follow_each_other_are_one_run():
    a, b = members(3, "gpu=1"), members(2, "gpu=2")
    high = [replace(request, uid="high", claim=replace(request.claim, priority=5)) for request in a[:1]]
    assert [len(run) for run in runs([*a, *b, *high])] == [3, 2, 1]


# --- domains ---


def racks(*sizes: int, cards: int = 4) -> Fleet:
    """Racks of so many nodes each."""
    return Fleet(
        a_node(f"r{r}n{n}", *(a_card(f"r{r}n{n}-{k}") for k in range(cards)), labels={"rack": f"r{r}"})
        for r, size in enumerate(sizes)
        for n in range(size)
    )


def racks_of(found: dict[str, Choice]) -> list[str]:
    return sorted({choice.node[:2] for choice in found.values()})


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(4, ["r1"], id="the tightest that has room for all"),
        pytest.param(9, ["r0"], id="the only one that has room for all"),
        pytest.param(13, ["r0", "r1"], id="the roomiest and the tightest for the rest"),
        pytest.param(18, ["r0", "r2"], id="a roomier one for a larger rest"),
        pytest.param(21, ["r0", "r1", "r2"], id="all of them"),
    ],
)
def test_a_gang_is_put_in(count, expected):
    found = fit_together(racks(3, 1, 2), Rules(), members(count, domain="rack"), NOW)
    assert isinstance(found, dict)
    assert racks_of(found) == expected


def test_without_a_domain_the_strategy_alone_decides():
    found = fit_together(racks(1, 1, 1, 1), Rules(strategy="spread"), members(4), NOW)
    assert len(racks_of(found)) == 4
    found = fit_together(racks(1, 1, 1, 1), Rules(strategy="spread"), members(4, domain="rack"), NOW)
    assert len(racks_of(found)) == 1


def test_inside_the_domain_the_strategy_decides():
    found = fit_together(racks(4), Rules(strategy="spread"), members(4, domain="rack"), NOW)
    assert len({choice.node for choice in found.values()}) == 4


def test_nodes_without_the_label_are_taken_last_and_one_by_one():
    bare, wide = (a_node(name, *(a_card(f"{name}-{k}") for k in range(n))) for name, n in (("bare", 2), ("wide", 5)))
    nodes = [*racks(1, 1).nodes, bare, wide]
    fleet = Fleet(nodes)
    assert spans(fleet, "rack", ["r0n0", "bare", "wide", "gone"]) == 4
    found = fit_together(fleet, Rules(), members(5, domain="rack"), NOW)
    assert {choice.node for choice in found.values()} == {"wide"}
    everywhere = fit_together(fleet, Rules(), members(15, domain="rack"), NOW)
    assert len(everywhere) == 15


def test_a_domain_that_nobody_names_leaves_nodes_alone():
    found = fit_together(racks(2), Rules(strategy="spread"), members(4, domain="row"), NOW)
    assert len({choice.node for choice in found.values()}) == 1


def test_members_that_come_late_are_put_beside_those_that_run():
    found = fit_together(racks(3, 1, 2), Rules(), members(4, domain="rack"), NOW, neighbours=["r2n0"])
    assert racks_of(found) == ["r2"]
    found = fit_together(racks(1, 1, 1), Rules(), members(6, domain="rack"), NOW, neighbours=["r2n0"])
    assert racks_of(found) == ["r0", "r2"]


def test_terms_and_what_is_held_count_in_a_domain():
    fleet = racks(1, 1, 1)
    fleet.charge(Allocation("x", "r0n0", ResourceRequirement.of(gpu=1), ("r0n0-0",)))
    found = fit_together(fleet, Rules(), members(4, domain="rack"), NOW)
    assert racks_of(found) == ["r1"]
    only = NodeAffinity(((Expression("rack", Operator.NOT_IN, ("r1",)),),))
    asked = [replace(each, requirement=replace(each.requirement, nodes=only)) for each in members(4, domain="rack")]
    assert racks_of(fit_together(fleet, Rules(), asked, NOW)) == ["r2"]


def test_a_mixed_gang_is_put_where_all_kinds_fit():
    fleet = Fleet(
        [
            a_node("a0", *(a_card(f"a0-{k}") for k in range(2)), labels={"rack": "a"}),
            a_node("a1", *(a_card(f"a1-{k}") for k in range(2)), labels={"rack": "a"}),
            a_node("b0", *(a_card(f"b0-{k}") for k in range(6)), labels={"rack": "b"}),
        ]
    )
    both = [*members(1, "gpu=2", domain="rack"), *members(2, "gpu=1", domain="rack")]
    assert {choice.node[0] for choice in fit_together(fleet, Rules(), both, NOW).values()} == {"a"}
    both = [*members(2, "gpu=2", domain="rack"), *members(2, "gpu=1", domain="rack")]
    assert {choice.node[0] for choice in fit_together(fleet, Rules(), both, NOW).values()} == {"b"}


def test_parts_of_cards_are_put_near_each_other_too():
    requests = members(5, "tflops=50,vram=4g", domain="rack")
    assert not Rules().strategy_of(requests[0]).stateless
    assert racks_of(fit_together(racks(3, 1, 2), Rules(), requests, NOW)) == ["r1"]
    capped = Rules(quotas=Quotas({"team": Quota(max_workers=5)}))
    assert racks_of(fit_together(racks(3, 1, 2), capped, requests, NOW)) == ["r1"]


def test_a_strategy_that_follows_the_fleet_is_asked_for_one_after_the_other_in_the_same_domains(monkeypatch):
    monkeypatch.setattr("ullage.core.placing.draft.countable", lambda *_: False)
    for count, expected in ((4, ["r1"]), (13, ["r0", "r1"])):
        found = fit_together(racks(3, 1, 2), Rules(), members(count, domain="rack"), NOW)
        assert racks_of(found) == expected


@pytest.mark.long
@settings(max_examples=150)
@given(fleets(), st.sampled_from(["gpu=1", "gpu=2", "tflops=40,vram=4g"]), st.integers(2, 12))
def test_equal_members_are_in_as_few_domains_as_can_be(fleet, text, count):
    judged, requests = Rules(), members(count, text, domain="rack")
    found = fit_together(fleet, judged, requests, NOW)
    rooms = room(fleet, judged, requests[0])
    of = fleet.exclusion.labels.domains("rack").tolist()
    per_domain = [sum(int(r) for r, d in zip(rooms, of, strict=True) if d == domain) for domain in sorted(set(of))]
    if isinstance(found, Misfit):
        assert sum(per_domain) < count
        return
    fewest = next(n for n in range(1, len(per_domain) + 1) if any(sum(c) >= count for c in combinations(per_domain, n)))
    assert spans(fleet, "rack", [choice.node for choice in found.values()]) == fewest


# --- refused by count ---


def test_a_gang_that_does_not_fit_now_is_told_how_many_would():
    fleet = racks(1)
    fleet.charge(Allocation("x", "r0n0", ResourceRequirement.of(gpu=1), ("r0n0-0",)))
    found = fit_together(fleet, Rules(), members(4), NOW)
    assert isinstance(found, Misfit)
    (reported,) = found.refusal.rejections
    assert (found.placed, reported.code, reported.cure, reported.needed, reported.had) == (
        3,
        Code.GANG_ROOM,
        Cure.CAPACITY,
        4,
        3,
    )


def test_a_gang_that_never_fits_is_told_that_room_is_not_what_it_lacks():
    found = fit_together(racks(1), Rules(), members(5), NOW)
    assert isinstance(found, Misfit)
    (reported,) = found.refusal.rejections
    assert (reported.cure, reported.needed, reported.had) == (Cure.NODE_CHANGE, 5, 4)
    assert reject_text(reported).endswith(": 4 of 5 would fit on empty nodes")
    assert not found.refusal.curable


def test_nobody_is_placed_on_cards_that_are_too_small():
    found = fit_together(racks(1), Rules(), members(2, "gpu=1,vram=17g"), NOW)
    assert isinstance(found, Misfit)
    assert (found.placed, found.refusal.rejections[0].cure) == (0, Cure.NODE_CHANGE)
