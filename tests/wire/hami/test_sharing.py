"""Containers of a pod that share cards: the cards of each, and the request for each card."""

from __future__ import annotations

import random

import pytest

from tests.wire.hami.pods import limits, pod
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.part import Part
from ullage.model.quantity import PPM
from ullage.model.topology import CARD, ZonePolicy
from ullage.wire.hami.request import read_hami
from ullage.wire.hami.sharing import (
    ContainerAmounts,
    as_one_container,
    layout,
    most_cards,
    parts_by_card,
    share_out,
    shared_cards,
)
from ullage.wire.vendors.container_request import MIB, ContainerRequest


def ask(
    mib: int = 0, cores: int = 0, cards: int = 1, stage: AlignmentStage = AlignmentStage.APP, ppm: int = 0
) -> ContainerRequest:
    return ContainerRequest("c", stage, cards, mib * MIB, ppm, cores * 10_000, counted=True)


def part(mib: int, cores: int) -> Part:
    return Part(compute_ppm=cores * 10_000, vram_bytes=mib * MIB)


def test_containers_with_unequal_numbers_of_cards_share():
    asks = [ask(2000, 10, cards=2), ask(3000, 20)]
    assert most_cards(asks) == 3
    assert shared_cards(asks) == {2: part(5000, 30)}
    assert layout(asks, 2).containers == ((0, 1), (0,))
    assert parts_by_card(asks, ["a", "b"], {"a": 8000 * MIB, "b": 8000 * MIB}) == {
        "a": part(5000, 30),
        "b": part(2000, 10),
    }


def test_an_unshared_card_is_charged_with_its_container_only():
    asks = [ask(2000, 10), ask(3000, 60)]
    found = parts_by_card(asks, ["a", "b"], dict.fromkeys("ab", 8000 * MIB))
    assert found == {"a": part(2000, 10), "b": part(3000, 60)}


def test_the_largest_containers_get_separate_cards():
    asks = [ask(1000), ask(5000), ask(4000), ask(500)]
    assert layout(asks, 2).containers == ((1,), (0,), (1,), (0,))
    assert shared_cards(asks) == {2: part(5500, 0), 1: part(10_500, 0)}


def test_init_containers_take_turns_and_sidecars_stay():
    asks = [
        ask(7000, stage=AlignmentStage.INIT),
        ask(1000, stage=AlignmentStage.SIDECAR),
        ask(6500, stage=AlignmentStage.INIT),
        ask(3000),
        ask(3000),
    ]
    found = layout(asks, 1)
    assert found.peaks == (ContainerAmounts(0, 7500 * MIB, 0),), "the sidecar and the init container after it"
    assert shared_cards(asks)[1] == part(7500, 0)


@pytest.mark.parametrize(
    "asks",
    [
        [ask(ppm=600_000), ask(ppm=600_000)],
        [ask(1000, 60), ask(1000, 60)],
        [ask(ppm=PPM), ask(1000)],
        [ask(1000, cards=2)],
    ],
    ids=["memory", "cores", "a whole memory and bytes", "one container"],
)
def test_requests_above_a_card_or_of_one_container_are_not_shared(asks: list[ContainerRequest]):
    assert shared_cards(asks) == {}


def test_of_several_numbers_of_cards_with_the_same_part_the_smallest_is_tried():
    assert shared_cards([ask(1000)] * 6) == {3: part(2000, 0), 2: part(3000, 0), 1: part(6000, 0)}


def test_a_pod_of_many_containers_is_read_with_few_tries():
    assert len(shared_cards([ask(1, 1, cards=2)] * 40)) <= 8


@pytest.mark.parametrize("seed", range(30))
def test_no_container_has_a_card_twice_and_each_card_is_charged_the_peak_of_its_containers(seed: int):
    chance = random.Random(seed)
    stages = [AlignmentStage.INIT, AlignmentStage.SIDECAR, AlignmentStage.APP]
    asks = sorted(
        (
            ask(chance.randint(1, 900), chance.randint(0, 10), chance.randint(0, 3), chance.choice(stages))
            for _ in range(chance.randint(1, 6))
        ),
        key=lambda each: each.stage is AlignmentStage.APP,
    )
    widest = max(each.count for each in asks)
    for count in range(max(widest, 1), most_cards(asks) + 2):
        cards = [f"g{at}" for at in range(count)]
        given = list(share_out(asks, cards))
        assert [len(set(each)) for each in given] == [each.count for each in asks]
        found = parts_by_card(asks, cards, dict.fromkeys(cards, 10**12))
        for card in cards:
            mine = [each for each, has in zip(asks, given, strict=True) if card in has]
            staying = peak = 0
            for each in mine:
                peak = max(peak, staying + each.vram_bytes)
                staying += 0 if each.stage is AlignmentStage.INIT else each.vram_bytes
            assert found[card].vram_bytes == max(peak, staying)


def test_containers_that_share_cards_are_aligned_as_one():
    containers = (
        ContainerNeeds("i", AlignmentStage.INIT, 6, 100, ((CARD, 1),)),
        ContainerNeeds("a", AlignmentStage.APP, 2, 10, ((CARD, 2), ("nic", 1)), ((2**21, 2**21),)),
        ContainerNeeds("b", AlignmentStage.APP, 3, 20, ((CARD, 1),)),
    )
    found = as_one_container(Alignment(ZonePolicy.SINGLE_ZONE, containers), 2)
    needs = ContainerNeeds(cpus=6, memory_bytes=100, devices=((CARD, 2), ("nic", 1)), hugepages=((2**21, 2**21),))
    assert found == Alignment(ZonePolicy.SINGLE_ZONE, (needs,))


def test_a_pod_with_a_policy_of_zones_may_share_cards_within_its_zones():
    asked = read_hami(
        pod(limits(gpu=2, mem=1000), limits(gpu=1, mem=2000), annotations={"nvidia.com/numa-bind": "true"})
    )
    assert asked is not None
    assert asked.requirement.gpu_count == 3
    (shared,) = asked.shared
    assert (shared.requirement.gpu_count, shared.requirement.part) == (2, Part(vram_bytes=3000 * MIB))
    assert shared.requirement.alignment == Alignment(ZonePolicy.SINGLE_ZONE, (ContainerNeeds(devices=((CARD, 2),)),))
    assert shared.shared == ()


def test_a_pod_that_holds_its_cards_whole_shares_none():
    asked = read_hami(pod(limits(gpu=1, cores=100), limits(gpu=1, mem=1000)))
    assert asked is not None
    assert asked.shared == ()
