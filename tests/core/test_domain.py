"""Levels of domains: a gang is put in the deepest that has room for all of it, or has to stay within one."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import NOW, a_card, a_node

from ullage.core.admitting.gang_state import GangPhase
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.gang import Gangs
from ullage.core.placing.decision import Choice
from ullage.core.placing.domain import spans
from ullage.core.placing.draft import Misfit, fit_together
from ullage.core.placing.rules import Rules
from ullage.core.verdict.sentences import reject_text
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import InvalidRequest
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)

LEVELS = "block,rack"


def cluster(*blocks: tuple[int, ...]) -> Fleet:
    """Blocks of racks, each with so many cards, two to a node."""
    return Fleet(
        a_node(
            f"b{b}r{r}n{n}",
            *(a_card(f"b{b}r{r}n{n}-{k}") for k in range(min(2, cards - 2 * n))),
            labels={"block": f"b{b}", "rack": f"b{b}r{r}"},
        )
        for b, racks in enumerate(blocks)
        for r, cards in enumerate(racks)
        for n in range(-(-cards // 2))
    )


def members(count: int, text: str = "gpu=1", **gang: object) -> list[Request]:
    claim = Claim("team", gang=GangClaim("g", count, count, **gang))
    return [Request(f"g-{text}-{n}", ResourceRequirement.from_string(text), claim) for n in range(count)]


def racks_of(found: dict[str, Choice] | Misfit) -> list[str]:
    assert isinstance(found, dict)
    return sorted({choice.node[:4] for choice in found.values()})


def reported(found: dict[str, Choice] | Misfit) -> tuple[Code, Cure, int, int]:
    assert isinstance(found, Misfit)
    (rejection,) = found.refusal.rejections
    return rejection.code, rejection.cure, rejection.needed, rejection.had


@pytest.mark.parametrize(
    ("blocks", "count", "racks"),
    [
        pytest.param([(8, 8), (6, 4)], 4, ["b1r1"], id="the tightest rack of all blocks"),
        pytest.param([(8, 8), (6, 4)], 5, ["b1r0"], id="a rack goes before a block that is tighter"),
        pytest.param([(8, 8), (6, 4)], 9, ["b1r0", "b1r1"], id="no rack: the tightest block"),
        pytest.param([(4, 4, 4), (2, 2, 2, 2, 2, 4)], 9, ["b0r0", "b0r1", "b0r2"], id="the tightest block, whole"),
        pytest.param([(4, 4, 4), (2, 2, 2, 2, 8)], 9, ["b0r0", "b0r1", "b0r2"], id="not a wider one with fewer racks"),
        pytest.param([(2, 4, 8), (2, 2, 2, 9, 9)], 10, ["b0r0", "b0r2"], id="few racks inside a block"),
        pytest.param([(4, 4), (6, 2), (1, 1)], 10, ["b0r0", "b0r1", "b2r0", "b2r1"], id="no block: as few as can be"),
    ],
)
def test_the_deepest_level_with_room_for_all(blocks, count, racks):
    assert racks_of(fit_together(cluster(*blocks), Rules(), members(count, domain=LEVELS), NOW)) == racks


def test_members_that_come_late_stay_in_the_rack_then_in_the_block():
    fleet = cluster((4, 4), (8,))
    assert racks_of(fit_together(fleet, Rules(), members(2, domain=LEVELS), NOW, neighbours=["b0r1n0"])) == ["b0r1"]
    assert racks_of(fit_together(fleet, Rules(), members(6, domain=LEVELS), NOW, neighbours=["b0r1n0"])) == [
        "b0r0",
        "b0r1",
    ]
    apart = fit_together(fleet, Rules(), members(2, domain=LEVELS), NOW, neighbours=["b0r1n0", "b1r0n0"])
    assert set(racks_of(apart)) <= {"b0r1", "b1r0"}
    assert len(racks_of(fit_together(fleet, Rules(), members(14, domain=LEVELS), NOW, neighbours=["b0r1n0"]))) == 3


def test_the_name_of_a_node_is_a_level_too():
    fleet = Fleet(
        a_node(name, *(a_card(f"{name}-{k}") for k in range(cards)), labels={"rack": name[0]})
        for name, cards in (("a1", 2), ("a2", 2), ("b1", 3), ("b2", 1))
    )
    levels = "rack, metadata.name"
    assert {choice.node for choice in fit_together(fleet, Rules(), members(3, domain=levels), NOW).values()} == {"b1"}
    assert {choice.node[0] for choice in fit_together(fleet, Rules(), members(4, domain=levels), NOW).values()} == {"a"}


# --- within one domain, or nowhere ---


def test_a_gang_that_has_to_stay_within_a_domain_is_not_spread():
    fleet = cluster((6,), (2,))
    assert len(racks_of(fit_together(fleet, Rules(), members(8, domain="rack"), NOW))) == 2
    refused = fit_together(fleet, Rules(), members(8, within="rack"), NOW)
    assert reported(refused) == (Code.GANG_DOMAIN, Cure.NODE_CHANGE, 8, 6)
    assert reject_text(refused.refusal.rejections[0]).endswith(": 6 of 8 would fit on empty nodes")
    assert racks_of(fit_together(fleet, Rules(), members(6, within="rack"), NOW)) == ["b0r0"]


def test_where_others_hold_the_domain_room_is_what_it_lacks():
    fleet = cluster((4,), (3,))
    fleet.charge(Allocation("x", "b0r0n0", ResourceRequirement.of(gpu=1), ("b0r0n0-0",)))
    refused = fit_together(fleet, Rules(), members(4, within="block"), NOW)
    assert reported(refused) == (Code.GANG_DOMAIN, Cure.CAPACITY, 4, 3)


def test_inside_the_required_domain_preferred_levels_hold():
    fleet = cluster((4, 4, 1), (8, 8, 8))
    for domain in ("rack", LEVELS):
        for count, racks in ((4, ["b0r0"]), (5, ["b1r0"]), (9, ["b0r0", "b0r1", "b0r2"]), (10, ["b1r0", "b1r1"])):
            found = fit_together(fleet, Rules(), members(count, domain=domain, within="block"), NOW)
            assert racks_of(found) == racks
        assert reported(fit_together(fleet, Rules(), members(25, domain=domain, within="block"), NOW))[3] == 24


def test_a_level_that_is_wider_than_the_required_one_does_not_widen_it():
    fleet = cluster((4, 4), (6,))
    assert racks_of(fit_together(fleet, Rules(), members(5, domain="block", within="rack"), NOW)) == ["b1r0"]
    assert reported(fit_together(fleet, Rules(), members(7, domain=LEVELS, within="rack"), NOW))[3] == 6


def test_who_comes_late_finds_room_in_the_domain_or_nowhere():
    fleet = cluster((3,), (8,))
    beside = ["b0r0n0"]
    assert racks_of(fit_together(fleet, Rules(), members(3, within="rack"), NOW, neighbours=beside)) == ["b0r0"]
    refused = fit_together(fleet, Rules(), members(4, within="rack"), NOW, neighbours=beside)
    assert reported(refused) == (Code.GANG_DOMAIN, Cure.NODE_CHANGE, 4, 3)
    apart = fit_together(fleet, Rules(), members(1, within="rack"), NOW, neighbours=["b0r0n0", "b1r0n0"])
    assert reported(apart) == (Code.GANG_DOMAIN, Cure.NODE_CHANGE, 1, 0)


def test_a_mixed_gang_stays_within_one_domain():
    fleet = cluster((4,), (2, 4))
    both = [*members(2, "gpu=2", within="block"), *members(2, within="block")]
    assert racks_of(fit_together(fleet, Rules(), both, NOW)) == ["b1r0", "b1r1"]
    assert reported(fit_together(cluster((4,), (4,)), Rules(), both, NOW))[0] is Code.GANG_ROOM


def test_the_gang_says_so_to_all_of_its_members():
    allocator = FleetAllocator(cluster((2,), (3,)))
    allocator.set_ready()
    gangs = Gangs()
    for request in members(4, within="rack"):
        gangs.add(request, NOW)
    (outcome,) = gangs.tick(allocator, NOW)
    assert outcome.phase is GangPhase.WAITING
    assert {reported(Misfit(uid, answer, 0)) for uid, answer in outcome.answers.items()} == {
        (Code.GANG_DOMAIN, Cure.NODE_CHANGE, 4, 3)
    }
    assert gangs.domain("g") == "rack"


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 14),
    st.sampled_from(["block", None]),
)
def test_the_levels_of_any_cluster(blocks, count, within):
    fleet = cluster(*map(tuple, blocks))
    found = fit_together(fleet, Rules(), members(count, domain=LEVELS, within=within), NOW)
    racks = [cards for block in blocks for cards in block]
    fitting = [sum(block) for block in blocks if sum(block) >= count]
    if isinstance(found, Misfit):
        event("does not fit")
        assert not fitting if within else sum(racks) < count
        return
    nodes = [choice.node for choice in found.values()]
    blocks_of, racks_there = spans(fleet, "block", nodes), spans(fleet, "rack", nodes)
    if any(cards >= count for cards in racks):
        event("a rack")
        assert racks_there == 1
        assert racks[_number(fleet, nodes[0])] == min(cards for cards in racks if cards >= count)
    elif fitting:
        event("a block")
        assert blocks_of == 1
        block = blocks[int(nodes[0][1])]
        assert sum(block) == min(fitting)
        assert racks_there == next(n for n in range(1, 9) if any(sum(c) >= count for c in combinations(block, n)))
    else:
        event("blocks")
        sums = [sum(block) for block in blocks]
        assert blocks_of == next(n for n in range(1, 9) if sum(sorted(sums, reverse=True)[:n]) >= count)


def _number(fleet: Fleet, node: str) -> int:
    return sorted({each.labels["rack"] for each in fleet.nodes}).index(node[:4])


# --- what is asked ---


@pytest.mark.parametrize(
    ("gang", "field"),
    [
        ({"domain": ""}, "gang.domain"),
        ({"domain": "block,,rack"}, "gang.domain"),
        ({"domain": "rack,rack"}, "gang.domain"),
        ({"within": ""}, "gang.within"),
        ({"within": "block,rack"}, "gang.within"),
        ({"within": "rack", "preempt": True}, "gang.within"),
    ],
)
def test_levels_that_mean_nothing_are_refused(gang, field):
    with pytest.raises(InvalidRequest) as refused:
        GangClaim("g", 1, 1, **gang)
    assert refused.value.field == field
