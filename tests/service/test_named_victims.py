"""Victims that kube-scheduler names go in any case: as few others as possible go with them."""

import pytest

from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.service.cluster import Cluster

SOFT = CardSelector(isolation=Isolation.SOFT)


def a_part(uid, percent, priority, card="g0"):
    ppm = percent * PPM // 100
    asked = ResourceRequirement(0, 0, 1, Part(compute_ppm=ppm, vram_ppm=ppm), SOFT)
    charge = Charge(ppm, ppm, Isolation.SOFT)
    claim = Claim("team", priority=priority)
    return Allocation(uid, "n", asked, (card,), AllocationState.BOUND, (charge,), claim)


def victims(asked, named, *held, cards=1):
    cluster = Cluster(Rules(), lambda: 0.0)
    cluster.set_nodes([Node("n", 64_000, 2**40, tuple(Gpu(f"g{index}", index) for index in range(cards)))])
    cluster.recover(held)
    requirement = ResourceRequirement(0, 0, 1, Part(compute_ppm=asked * PPM // 100, vram_ppm=asked * PPM // 100), SOFT)
    request = Request("u", requirement, claim=Claim("team", priority=100))
    found = cluster.victims(request, {"n": named})
    return set(found["n"].uids) if found else None


THREE = a_part("dear", 30, 9), a_part("cheap", 30, 1), a_part("other", 40, 2)


def test_other_victims_are_searched_as_if_the_named_ones_had_gone():
    assert victims(60, ["dear"], *THREE) == {"dear", "cheap"}, "not both cheap ones as well"


def test_the_named_alone_are_enough_where_they_are():
    assert victims(60, ["dear", "cheap"], *THREE) == {"dear", "cheap"}
    assert victims(30, ["dear", "cheap"], *THREE) <= {"dear", "cheap"}


def test_without_names_the_cheapest_go():
    assert victims(60, [], *THREE) == {"cheap", "other"}


def test_a_named_victim_on_another_card_does_not_help_and_still_counts_as_gone():
    held = a_part("away", 100, 1, "g1"), a_part("here", 100, 9)
    assert victims(60, ["away"], *held, cards=2) == {"away"}
    assert victims(100, ["here"], a_part("here", 40, 1), a_part("also", 60, 1)) == {"here", "also"}


@pytest.mark.parametrize("named", [[], ["equal"]])
def test_nothing_is_evicted_at_equal_priority(named):
    assert victims(60, named, a_part("equal", 90, 100)) is None
