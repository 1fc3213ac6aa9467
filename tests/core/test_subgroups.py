"""Gangs with subgroups: each starts whole and near its own, inside the domain of the gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import NOW, a_card, a_node
from tests.core.test_domain import cluster

from ullage.core.admitting.gang_state import GangPhase
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.gang import Gangs
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.draft import Misfit
from ullage.core.placing.rules import Rules
from ullage.core.placing.subgroups import fit_gang
from ullage.core.verdict.sentences import reject_text
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request, Subgroup
from ullage.model.error import InvalidRequest
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)

BOUND = AllocationState.BOUND


def members(*subgroups: Subgroup, count: int, text: str = "gpu=1", start: int = 0, **gang: object) -> list[Request]:
    """Requests of one subgroup, given with those around it."""
    stated = {"key": "g", "required": 1, "desired": 1_000, "required_subgroups": 1, **gang}
    claim = Claim("team", gang=GangClaim(subgroups=subgroups, **stated))
    name = "-".join(each.name for each in subgroups) or "own"
    return [Request(f"{name}-{n}", ResourceRequirement.from_string(text), claim) for n in range(start, start + count)]


def rack(name: str, required: int = 0) -> Subgroup:
    return Subgroup(name, required, within="rack")


def placed(fleet: Fleet, requests: Sequence[Request], **neighbours: Sequence[str]) -> dict[str, Choice] | Misfit:
    near = {(path,): nodes for path, nodes in neighbours.items()}
    return fit_gang(fleet, Rules(), requests, NOW, neighbours=near)


def racks_of(found: dict[str, Choice] | Misfit) -> dict[str, set[str]]:
    assert isinstance(found, dict), found
    racks: dict[str, set[str]] = {}
    for uid, choice in found.items():
        racks.setdefault(uid.rpartition("-")[0], set()).add(choice.node[:4])
    return racks


def text_of(found: dict[str, Choice] | Misfit) -> str:
    assert isinstance(found, Misfit)
    return reject_text(found.refusal.rejections[0])


def held(fleet: Fleet, *cards: str) -> None:
    for card in cards:
        fleet.charge(Allocation(f"x-{card}", card[:6], ResourceRequirement.of(gpu=1), (card,)))


# --- near each other ---


def test_each_subgroup_is_in_one_rack_of_its_own():
    fleet = cluster((4, 3), (2,))
    both = [*members(rack("a"), count=3), *members(rack("b"), count=4)]
    assert racks_of(placed(fleet, both)) == {"a": {"b0r1"}, "b": {"b0r0"}}
    with_more = [*both, *members(rack("c"), count=2)]
    assert racks_of(placed(fleet, with_more)) == {"a": {"b0r1"}, "b": {"b0r0"}, "c": {"b1r0"}}


def test_subgroups_are_inside_the_domain_of_the_gang():
    fleet = cluster((4, 1), (2, 3))
    both = [*members(rack("a"), count=2, within="block"), *members(rack("b"), count=3, within="block")]
    assert racks_of(placed(fleet, both)) == {"a": {"b1r0"}, "b": {"b1r1"}}
    apart = [*members(rack("a"), count=2), *members(rack("b"), count=3)]
    assert racks_of(placed(fleet, apart)) == {"a": {"b1r0"}, "b": {"b1r1"}}


def test_subgroups_inside_subgroups_have_levels_of_their_own():
    fleet = cluster((2, 1), (2, 2), (4, 3))
    pair = Subgroup("ab", 2, within="block")
    gang = [
        *members(pair, rack("a"), count=2),
        *members(pair, rack("b"), count=2),
        *members(rack("c"), count=3),
    ]
    racks = racks_of(placed(fleet, gang))
    assert racks["c"] <= {"b2r0", "b2r1"}
    assert len(racks["ab-a"]) == len(racks["ab-b"]) == 1
    assert {next(iter(racks[name]))[:2] for name in ("ab-a", "ab-b")} in ({"b1"}, {"b2"})


def test_those_that_may_be_anywhere_leave_the_only_rack_to_the_others():
    wide = Subgroup("wide", 2, within="block")
    outer = Subgroup("outer", 2)
    gang = [*members(outer, rack("a"), count=1), *members(outer, wide, count=2), *members(rack("b"), count=3)]
    assert racks_of(placed(cluster((1, 3, 2)), gang))["b"] == {"b0r1"}


def test_a_preferred_level_is_given_up_and_the_required_one_is_not():
    fleet = cluster((2, 2), (3,))
    wish = Subgroup("a", domain="block,rack", within="block")
    assert racks_of(placed(fleet, members(wish, count=3))) == {"a": {"b1r0"}}
    assert racks_of(placed(fleet, members(wish, count=4))) == {"a": {"b0r0", "b0r1"}}
    assert "4 of 5 of subgroup a would fit in one block" in text_of(placed(fleet, members(wish, count=5)))
    anywhere = Subgroup("a", domain="rack")
    assert len(racks_of(placed(fleet, members(anywhere, count=5)))["a"]) == 2


def test_a_preferred_level_of_a_subgroup_does_not_widen_the_required_one_of_the_gang():
    wish = Subgroup("a", domain="rack")
    assert racks_of(placed(cluster((3,), (2, 2)), members(wish, count=4, within="block"))) == {"a": {"b1r0", "b1r1"}}


def test_a_subgroup_goes_into_the_domain_where_others_of_the_gang_run():
    fleet = cluster((2,), (4, 4))
    late = members(rack("b"), count=1, within="block")
    assert racks_of(placed(fleet, late)) == {"b": {"b0r0"}}, "the tightest block"
    assert racks_of(placed(fleet, late, a=["b1r0n0"]))["b"] <= {"b1r0", "b1r1"}


def test_small_domains_and_large_subgroups_are_placed_first(monkeypatch):
    monkeypatch.setattr("ullage.core.placing.subgroups.MOST_RETRIES", 0)
    wide, fleet = Subgroup("wide", 2, within="block"), cluster((1, 3, 2))
    gang = [*members(wide, count=2), *members(rack("a"), count=1), *members(rack("b"), count=3)]
    assert racks_of(placed(fleet, gang)) == {"wide": {"b0r2"}, "a": {"b0r0"}, "b": {"b0r1"}}


def test_one_that_took_the_room_of_the_next_is_taken_back():
    # The largest fits best where the only rack with two cards on one node is, which the other one needs.
    fleet = Fleet(
        a_node(f"r{r}n{n}", *(a_card(f"r{r}n{n}-{k}") for k in range(cards)), labels={"rack": f"r{r}"})
        for r, nodes in enumerate(((2, 1), (1, 1, 1, 1)))
        for n, cards in enumerate(nodes)
    )
    both = [*members(rack("a"), count=3), *members(rack("b"), count=1, text="gpu=2")]
    found = placed(fleet, both)
    assert isinstance(found, dict)
    assert {uid: choice.node[:2] for uid, choice in found.items()} == {f"a-{n}": "r1" for n in range(3)} | {"b-0": "r0"}


def test_books_are_as_before_whatever_the_search_did():
    fleet = cluster((3, 3), (2,))
    before = fleet.card_users.tolist()
    placed(fleet, [*members(rack("a"), count=2), *members(rack("b"), count=3)])
    placed(fleet, [*members(rack("a"), count=3), *members(rack("b"), count=3), *members(rack("c"), count=3)])
    assert (fleet.card_users.tolist(), dict(fleet.ledger)) == (before, {})


def test_the_refusal_names_the_subgroup_and_what_the_best_domain_has():
    fleet = cluster((4, 3))
    held(fleet, "b0r0n0-0", "b0r0n1-0")
    refused = placed(fleet, [*members(rack("a"), count=4), *members(rack("b"), count=2)])
    assert isinstance(refused, Misfit)
    (rejection,) = refused.refusal.rejections
    assert (rejection.code, rejection.cure) == (Code.GANG_DOMAIN, Cure.CAPACITY)
    assert reject_text(rejection).endswith(": 3 of 4 of subgroup a would fit in one rack")
    assert text_of(placed(fleet, members(rack("a"), count=5))).endswith("in one rack on empty nodes")
    held(fleet, "b0r1n0-0")
    outer = [*members(rack("a"), count=2, within="block"), *members(rack("b"), count=3, within="block")]
    assert text_of(placed(fleet, outer)).endswith(": 4 of 5 would fit in one block")


def test_the_refusal_names_the_first_subgroup_that_the_others_leave_no_room():
    both = [*members(rack("a"), count=2, within="block"), *members(rack("b"), count=2, within="block")]
    assert text_of(placed(cluster((3, 1)), both)).endswith(": 1 of 2 of subgroup b would fit in one rack")


# --- against all ways to place it ---


def ways(fleet: Fleet, requests: Sequence[Request]) -> Iterator[dict[str, int]]:
    """Yield every way to put the requests on nodes that keeps all required levels."""
    free = Counter({row: len(node.gpus) for row, node in enumerate(fleet.nodes)})

    def domains(request: Request, row: int) -> dict[object, str]:
        gang, labels = request.claim.gang, fleet.nodes[row].labels
        stated = {(): gang.within} | {
            tuple(each.name for each in gang.subgroups[: depth + 1]): each.within
            for depth, each in enumerate(gang.subgroups)
        }
        return {path: labels[level] for path, level in stated.items() if level}

    def put(number: int, at: dict[str, int], inside: dict[object, str]) -> Iterator[dict[str, int]]:
        if number == len(requests):
            yield at
            return
        request = requests[number]
        for row in free:
            there = domains(request, row)
            if free[row] >= request.requirement.gpu_count and all(inside.get(p, d) == d for p, d in there.items()):
                free[row] -= request.requirement.gpu_count
                yield from put(number + 1, at | {request.uid: row}, inside | there)
                free[row] += request.requirement.gpu_count

    return put(0, {}, {})


SIZES = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=2)
PART = st.tuples(st.integers(1, 3), st.sampled_from(["rack", "block", None]), st.sampled_from(["", "p", "q"]))


@settings(max_examples=150)
@given(SIZES, st.lists(PART, min_size=1, max_size=3), st.sampled_from(["block", None]), st.booleans())
def test_it_is_placed_whenever_it_can_be(blocks, parts, within, wide):
    fleet = cluster(*map(tuple, blocks))
    requests = []
    for number, (count, level, nested) in enumerate(parts):
        path = (Subgroup(nested, 1, within="block"),) if nested else ()
        text = "gpu=2" if wide and number == 0 else "gpu=1"
        leaf = Subgroup(f"s{number}", count, within=level)
        requests += members(*path, leaf, count=count, text=text, within=within)
    found, possible = placed(fleet, requests), next(ways(fleet, requests), None) is not None
    if isinstance(found, Misfit):
        event("refused")
        assert wide or not possible, found
        return
    event("placed")
    assert possible
    assert found.keys() == {request.uid for request in requests}
    assert len({card for choice in found.values() for card in choice.gpus}) == sum(
        request.requirement.gpu_count for request in requests
    )
    for path in {request.claim.gang.path[:depth] for request in requests for depth in range(3)}:
        inside = [request for request in requests if request.claim.gang.path[: len(path)] == path]
        gang = inside[0].claim.gang
        level = gang.subgroups[len(path) - 1].within if path else gang.within
        nodes = {fleet.nodes[fleet.row_of[found[request.uid].node]].labels.get(level) for request in inside}
        assert level is None or len(nodes) == 1


# --- who starts ---


class Lab:
    def __init__(self, *blocks: tuple[int, ...]) -> None:
        self.allocator = FleetAllocator(cluster(*blocks))
        self.allocator.set_ready()
        self.gangs = Gangs()

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.gangs.add(request, NOW)

    def tick(self) -> GangPhase | None:
        self.gangs.tick(self.allocator, NOW)
        return self.gangs.phase("g")

    def text(self, uid: str) -> str:
        answer = self.gangs.answer(uid)
        assert isinstance(answer, Refusal)
        return reject_text(answer.rejections[0])

    @property
    def racks(self) -> dict[str, str]:
        return {uid: each.node[:4] for uid, each in sorted(self.allocator.fleet.ledger.items()) if each.state is BOUND}


def test_a_gang_starts_when_each_of_its_subgroups_has_its_members():
    lab = Lab((4, 4))
    lab.add(
        *members(rack("a", 2), count=2, required_subgroups=2), *members(rack("b", 2), count=1, required_subgroups=2)
    )
    assert lab.tick() is GangPhase.PENDING
    assert lab.text("a-0").endswith(": subgroup b has 1 of 2 members")
    assert not lab.racks
    lab.add(*members(rack("b", 2), count=1, start=1, required_subgroups=2))
    assert lab.tick() is GangPhase.RUNNING
    assert set(lab.racks) == {"a-0", "a-1", "b-0", "b-1"}


def test_subgroups_that_no_member_names_yet_are_counted():
    lab = Lab((4, 4))
    lab.add(
        *members(rack("a", 2), count=2, required_subgroups=3), *members(rack("b", 2), count=2, required_subgroups=3)
    )
    assert lab.tick() is GangPhase.PENDING
    assert lab.text("a-0").endswith(": the gang has 2 of 3 subgroups")


def test_the_reason_names_the_subgroup_that_lacks_the_least():
    lab = Lab((4, 4))
    lab.add(
        *members(rack("a", 4), count=1, required_subgroups=2), *members(rack("b", 2), count=1, required_subgroups=2)
    )
    lab.tick()
    assert lab.text("a-0").endswith(": subgroup b has 1 of 2 members")


def test_a_member_that_states_no_subgroups_does_not_undo_those_of_others():
    lab = Lab((4, 4))
    lab.add(*members(rack("a", 2), count=1), *members(count=1, required_subgroups=None))
    assert lab.tick() is GangPhase.PENDING
    lab.add(*members(rack("a", 2), count=1, start=1))
    assert lab.tick() is GangPhase.RUNNING
    assert len(lab.racks) == 3


def test_as_many_subgroups_as_are_required_start_and_the_others_follow_whole():
    lab = Lab((2, 2, 1))
    for name in "abc":
        lab.add(*members(rack(name, 2), count=2, required_subgroups=2))
    assert lab.tick() is GangPhase.RUNNING
    assert len(lab.racks) == 4
    (left,) = {"a", "b", "c"} - {uid[0] for uid in lab.racks}
    assert lab.text(f"{left}-0").endswith(f": 1 of 2 of subgroup {left} would fit in one rack")


def test_a_subgroup_without_room_is_left_out_if_the_others_suffice():
    lab = Lab((3, 2, 1, 1))
    lab.add(*members(rack("small", 2), count=2, text="gpu=2", required_subgroups=2))
    lab.add(*members(rack("a", 3), count=3, required_subgroups=2))
    lab.add(*members(rack("b", 2), count=2, required_subgroups=2))
    assert lab.tick() is GangPhase.RUNNING
    assert {uid[0] for uid in lab.racks} == {"a", "b"}


def test_a_required_number_of_members_counts_too():
    lab = Lab((2, 2))
    lab.add(*members(rack("a", 2), count=2, required=4, required_subgroups=0))
    assert lab.tick() is GangPhase.PENDING
    assert lab.text("a-0").endswith(": the gang has 2 of 4 members")
    lab.add(*members(rack("b", 2), count=2, required=4, required_subgroups=0))
    assert lab.tick() is GangPhase.RUNNING
    assert len(lab.racks) == 4


def test_late_members_go_near_their_own_subgroup():
    lab = Lab((4, 4), (8,))
    lab.add(
        *members(rack("a", 2), count=2, required_subgroups=2), *members(rack("b", 2), count=2, required_subgroups=2)
    )
    lab.tick()
    before = lab.racks
    assert before["a-0"] == before["a-1"]
    late = members(rack("a", 2), count=3, start=2, required_subgroups=2)
    lab.add(*late)
    lab.tick()
    where = {rack for uid, rack in lab.racks.items() if uid[0] == "a"}
    assert where == {before["a-0"]}


def test_members_of_no_subgroup_start_with_the_gang():
    lab = Lab((3, 2))
    lab.add(*members(rack("a", 2), count=2, required=3), *members(count=1, required=3))
    assert lab.tick() is GangPhase.RUNNING
    assert set(lab.racks) == {"a-0", "a-1", "own-0"}


def test_a_gang_whose_subgroup_loses_a_member_while_it_waits_fails():
    lab = Lab((1, 1))
    lab.add(*members(rack("a", 2), count=2))
    assert lab.tick() is GangPhase.WAITING
    lab.gangs.remove("a-1")
    assert lab.tick() is GangPhase.FAILED


# --- what is asked ---


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Subgroup(""), "subgroup.name"),
        (lambda: Subgroup("a", -1), "subgroup.required"),
        (lambda: Subgroup("a", within="a,b"), "subgroup.within"),
        (lambda: Subgroup("a", domain="rack,rack"), "subgroup.domain"),
        (lambda: GangClaim("g", 1, 1, subgroups=(Subgroup("a"),)), "gang.required_subgroups"),
        (lambda: GangClaim("g", 1, 1, preempt=True, required_subgroups=1), "gang.required_subgroups"),
    ],
)
def test_subgroups_that_mean_nothing_are_refused(make, field):
    with pytest.raises(InvalidRequest) as refused:
        make()
    assert refused.value.field == field
