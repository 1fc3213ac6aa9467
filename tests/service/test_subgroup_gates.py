"""Gates of gangs with subgroups: which members start, where, and what a restart finds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.service.test_gates import World, machine, pod

from ullage.model.claim import GangClaim, Request, Subgroup
from ullage.model.node import Node
from ullage.model.queue import parse_queue
from ullage.model.rejection import Code
from ullage.service.gates import OPEN_S, RESERVE_AFTER_S


def of_subgroup(uid: str, name: str, least: int, number: float, required: int, cards: int = 1) -> Request:
    """A member whose subgroup has `least` members, all in one rack; `required` subgroups start together."""
    subgroups = (Subgroup(name, least, within="rack"),)
    claim = GangClaim("g", 1, 1, subgroups=subgroups, required_subgroups=required)
    return replace(asked := pod(uid, cards, created_at=number), claim=replace(asked.claim, gang=claim))


def racked(*cards: int) -> list[Node]:
    return [replace(machine(f"r{n}", count), labels={"rack": f"r{n}"}) for n, count in enumerate(cards)]


def test_subgroups_start_together_each_in_its_rack_and_late_members_go_to_their_own() -> None:
    world = World(*racked(3, 4))
    world.come(*(of_subgroup(f"a{n}", "a", 2, n, 2) for n in range(2)), of_subgroup("b0", "b", 2, 3, 2))
    assert world.go() == []
    assert world.code("a0") is Code.GANG_INCOMPLETE
    world.come(of_subgroup("b1", "b", 2, 4, 2))
    assert sorted(world.go()) == ["a0", "a1", "b0", "b1"]
    where = {uid: held.node for uid, held in world.bound.items()}
    assert where["a0"] == where["a1"] != where["b0"] == where["b1"]
    world.restart()
    world.come(*(of_subgroup(f"{name}2", name, 2, 5, 2) for name in "ab"))
    assert sorted(world.go()) == ["a2", "b2"]
    assert {uid: world.bound[uid].node for uid in ("a2", "b2")} == {"a2": where["a0"], "b2": where["b0"]}
    world.come(of_subgroup("a3", "a", 2, 6, 2), of_subgroup("b3", "b", 2, 7, 2))
    roomy = "a3" if where["a0"] == "r1" else "b3"
    assert world.go() == [roomy], "the rack of the other one is full"


def test_a_member_that_is_not_placed_in_time_gets_another_place_in_the_rack_of_its_own() -> None:
    racks = (("r0", 4), ("r1", 3))
    nodes = [replace(machine(f"{rack}n{n}", 1), labels={"rack": rack}) for rack, count in racks for n in range(count)]
    world = World(*nodes)
    world.come(*(of_subgroup(f"a{n}", "a", 2, n, 1) for n in range(2)))
    assert sorted(world.step()) == ["a0", "a1"]
    world.bind("a0")
    assert world.bound["a0"].node.startswith("r1"), "the tightest rack"
    first = world.open["a1"][1]
    world.clock.now += OPEN_S + 1
    world.step()
    assert world.lapsed == [("a1", first)]
    assert world.gates.places()["a1"] not in (first, world.bound["a0"].node)
    assert world.gates.places()["a1"].startswith("r1")
    world.clock.now += OPEN_S + 1
    world.step()
    assert "a1" not in world.gates.places(), "no node of the rack is left to try"


def test_a_scheduler_is_offered_no_node_outside_the_rack_of_an_admitted_member() -> None:
    racks = (("r0", 4), ("r1", 3))
    nodes = [replace(machine(f"{rack}n{n}", 1), labels={"rack": rack}) for rack, count in racks for n in range(count)]
    world = World(*nodes)
    world.come(*(of_subgroup(f"a{n}", "a", 2, n, 1) for n in range(2)), pod("x", 1))
    assert sorted(world.step()) == ["a0", "a1", "x"]
    member, place = world.open["a1"]
    names = [node.name for node in nodes if node.name != place]
    offered = world.books.offers(member, names)
    assert {name[:2] for name in offered.names} == {"r1"}
    (outside,) = (there for refusal, there in offered.refused if refusal.rejections[0].code is Code.GANG_DOMAIN)
    assert sorted(outside) == [f"r0n{n}" for n in range(4)]
    plain, place = world.open["x"]
    assert len(world.books.offers(plain, [node.name for node in nodes if node.name != place]).names) == 4


def test_a_member_without_others_is_offered_any_node() -> None:
    world = World(*racked(2, 3))
    world.come(of_subgroup("a0", "a", 1, 0, 1))
    assert world.step() == ["a0"]
    member, place = world.open["a0"]
    (other,) = {"r0", "r1"} - {place}
    assert world.books.offers(member, [other]).names == [other]


def test_a_subgroup_that_loses_a_member_before_its_gates_open_loses_all_places() -> None:
    world = World(*racked(2))
    world.come(*(of_subgroup(f"a{n}", "a", 2, n, 1) for n in range(2)))
    world.gates.step()
    assert len(world.gates.places()) == 2
    world.end("a1")
    world.gates.step()
    assert not world.gates.places()
    assert world.code("a0") is Code.GANG_INCOMPLETE


def test_a_subgroup_that_finds_no_room_is_left_out_if_the_others_suffice_and_follows_whole() -> None:
    nodes = [
        replace(machine(f"r{rack}n{n}", 1), labels={"rack": f"r{rack}"}) for rack in (0, 1) for n in range(rack + 2)
    ]
    world = World(*nodes)
    world.come(of_subgroup("a0", "a", 1, 0, 2, cards=2))
    world.come(*(of_subgroup(f"b{n}", "b", 2, n, 2) for n in range(2)))
    world.come(*(of_subgroup(f"c{n}", "c", 3, n, 2) for n in range(3)))
    assert sorted(world.go()) == ["b0", "b1", "c0", "c1", "c2"]
    assert world.code("a0") is not Code.GANG_INCOMPLETE
    world.end("b0")
    world.come(of_subgroup("d0", "d", 2, 9, 2))
    assert world.go() == []
    assert world.code("d0") is Code.GANG_INCOMPLETE
    world.end("b1")
    world.come(of_subgroup("d1", "d", 2, 10, 2))
    assert sorted(world.go()) == ["d0", "d1"]


def test_room_is_reserved_for_subgroups_that_have_waited_too_long() -> None:
    world = World(*racked(2, 2))
    world.come(*(pod(f"x{n}") for n in range(4)))
    assert len(world.go()) == 4
    world.come(*(of_subgroup(f"{name}{n}", name, 2, 1000.0 + n, 2) for name in "ab" for n in range(2)))
    assert world.go() == []
    world.clock.now += RESERVE_AFTER_S + 10
    assert world.go() == []
    world.end("x0")
    world.come(pod("y", created_at=1200.0))
    assert world.go() == [], "what is free is reserved for them"
    for uid in ("x1", "x2", "x3"):
        world.end(uid)
    assert sorted(world.go()) == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize(
    ("limit", "start"), [(3, []), (4, ["c0", "c1", "c2", "y0"]), (5, ["c0", "c1", "c2", "y0", "y1"])]
)
def test_a_subgroup_that_starts_in_place_of_a_smaller_one_is_within_the_limit_of_its_queue(
    limit: int, start: list[str]
) -> None:
    queue = parse_queue("x", "root", 1, None, f"gpu={limit}")
    world = World(*(replace(machine(f"n{n}", 1), labels={"rack": "r"}) for n in range(6)), queues=(queue,))
    world.come(pod("y0"))
    assert world.go() == ["y0"]
    world.come(of_subgroup("a0", "a", 1, 1, 1, cards=2), *(of_subgroup(f"c{n}", "c", 3, 2, 1) for n in range(3)))
    world.come(pod("y1", created_at=9.0))
    world.go()
    assert sorted(uid for uid in world.bound) == (start or ["y0", "y1"])


@pytest.mark.parametrize("seed", range(12))
def test_subgroups_start_whole_and_stay_in_their_racks_in_any_history(seed: int) -> None:
    chance = random.Random(seed)
    world = World(*racked(*(chance.randint(1, 4) for _ in range(5))))
    least: dict[str, int] = {}
    required = chance.randint(0, 3)
    for step in range(25):
        kind = chance.random()
        if kind < 0.5:
            name = chance.choice("abcd")
            size = least.setdefault(name, chance.randint(0, 3))
            come = range(chance.randint(1, 3))
            world.come(*(of_subgroup(f"{name}{step}-{n}", name, size, float(step), required) for n in come))
        elif kind < 0.6:
            world.restart()
        elif kind < 0.75:
            world.come(pod(f"x{step}", chance.randint(1, 3)))
        elif others := [uid for uid in (*world.bound, *world.open) if uid.startswith("x")]:
            world.end(chance.choice(others))
        world.step()
        world.check()
        gone = [uid for uid in (*world.open, *world.bound) if not uid.startswith("x")]
        started = Counter(uid[:1] for uid in gone)
        assert all(count >= least[name] for name, count in started.items())
        assert not gone or sum(least[name] > 0 for name in started) >= required
        places = {uid: world.open[uid][1] for uid in world.open} | {uid: world.bound[uid].node for uid in world.bound}
        for name in started:
            assert len({places[uid] for uid in gone if uid.startswith(name)}) == 1
        for uid in [uid for uid in world.open if uid in world.gates.places() and chance.random() < 0.5]:
            world.bind(uid)


def test_equal_late_members_of_two_gangs_have_their_own_racks() -> None:
    world = World(*racked(1, 2))

    def member(uid: str, gang: str, number: float) -> Request:
        claim = GangClaim(gang, 1, 9, within="rack")
        return replace(asked := pod(uid, created_at=number), claim=replace(asked.claim, gang=claim))

    world.come(member("g0", "g", 0.0))
    assert world.go() == ["g0"]
    assert world.bound["g0"].node == "r0", "the tightest rack"
    world.come(member("h0", "h", 1.0))
    assert world.go() == ["h0"]
    world.come(member("g1", "g", 2.0), member("h1", "h", 3.0))
    assert world.go() == ["h1"], "the rack of the older one is full, that of the other is not"
