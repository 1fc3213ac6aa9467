"""The best connected cards, with an oracle over all sets; NVIDIA's plugin as predicted; cards of one island."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from tests.core.test_linked_cards import (
    SWITCHED,
    TWO_FOURS,
    TWO_ZONES,
    Picked,
    any_machine,
    beside_rest,
    by_splits,
    dgx_1,
    machine,
    within,
)

from ullage.core.kernel.nearest import CONNECTED, ISLANDS, PARTITION
from ullage.core.topology.links import layout_of
from ullage.model.topology import Path

pytestmark = pytest.mark.timeout(900)


def weights_of(node):
    return layout_of(node.gpus, node.topology.links).weights.tolist()


def score(node, cards):
    """The score by which HAMi compares sets of cards: the sum over their pairs."""
    weights = weights_of(node)
    return sum(weights[a][b] for a, b in combinations(sorted(cards), 2))


def others(node, card, free):
    return sum(weights_of(node)[card][other] for other in free if other != card)


def check_connected(node, free, count):
    chosen, _ = Picked(node)(free, count, rule=CONNECTED)
    assert len(chosen) == count
    assert set(chosen) <= set(free)
    if count == 1:
        assert others(node, chosen[0], free) == min(others(node, card, free) for card in free)
    else:
        assert score(node, chosen) == max(score(node, each) for each in combinations(free, count))


@pytest.mark.parametrize("seed", range(3))
def test_the_best_connected_cards_have_the_best_score_of_all_sets(seed):
    rng = random.Random(seed)
    for _ in range(15):
        node = any_machine(rng, rng.randint(2, 7))
        for _ in range(4):
            free = sorted(rng.sample(range(len(node.gpus)), rng.randint(1, len(node.gpus))))
            check_connected(node, free, rng.randint(1, len(free)))


@pytest.mark.long
@pytest.mark.parametrize("node", [dgx_1(), dgx_1(TWO_ZONES), TWO_FOURS, SWITCHED])
def test_known_machines_give_the_best_score_for_all_free_cards(node):
    for size in range(1, 9):
        for free in combinations(range(8), size):
            for count in range(1, size + 1):
                check_connected(node, free, count)


def test_required_cards_are_in_the_best_connected_set():
    node, rng = dgx_1(), random.Random(4)
    for _ in range(20):
        free = sorted(rng.sample(range(8), 6))
        required = set(rng.sample(free, 2))
        chosen, _ = Picked(node)(free, 3, required, rule=CONNECTED)
        able = [each for each in combinations(free, 3) if required <= set(each)]
        assert required < set(chosen)
        assert score(node, chosen) == max(score(node, each) for each in able)


def test_the_rules_differ_where_the_best_set_costs_the_rest():
    """0-1 and 2-3 have 3 links each, 1-2 has 4: the best pair leaves two cards without links."""
    chain = machine(4, [(0, 1, Path.UNKNOWN, 3), (1, 2, Path.UNKNOWN, 4), (2, 3, Path.UNKNOWN, 3)])
    assert Picked(chain)(range(4), 2, rule=CONNECTED)[0] == [1, 2]
    assert Picked(chain)(range(4), 2)[0] == [0, 1]
    assert Picked(chain)(range(4), 2, rule=PARTITION)[0] == [0, 1]


def test_behind_an_nvswitch_the_score_still_counts_the_path():
    assert Picked(SWITCHED)((0, 2, 4, 5, 6), 2, rule=CONNECTED)[0] == [4, 5]
    assert Picked(SWITCHED)((0, 3, 4, 6, 7), 2)[0] == [0, 3]
    assert Picked(SWITCHED)((0, 3, 4, 6, 7), 2, rule=CONNECTED)[0] == [6, 7]


def test_of_equally_connected_sets_the_smallest_island_is_broken():
    node = machine(8, within([range(5), range(5, 8)], Path.UNKNOWN, 2))
    chosen, damage = Picked(node)(range(8), 2, rule=CONNECTED)
    assert (set(chosen) < {5, 6, 7}, damage) == (True, 1)
    assert Picked(node)(range(8), 3, rule=CONNECTED) == ([5, 6, 7], 0)


def test_for_the_best_connected_cards_an_unknown_zone_does_not_count():
    node = machine(4, [(0, 1, Path.PIX, 0)], ((), (), (0,), (0,)))
    assert Picked(node)(range(4), 2, rule=CONNECTED)[0] == [0, 1]
    assert Picked(node)(range(4), 2)[0] == [2, 3]
    assert Picked(node)((0, 1, 2), 1, rule=CONNECTED)[0] == [2]
    assert Picked(machine(3, [(1, 2, Path.PIX, 0)], ((), (0,), (0,))))(range(3), 1, rule=CONNECTED)[0] == [0]
    assert Picked(machine(3, [(1, 2, Path.PIX, 0)], ((), (0,), (0,))))(range(3), 1)[0] == [1]


@pytest.mark.parametrize("seed", range(3))
def test_of_many_cards_the_best_connected_ones_are_found_by_exchange(seed):
    """Groups that are linked inside only have one best answer, at any size."""
    rng = random.Random(seed)
    cards = list(range(24))
    rng.shuffle(cards)
    groups = [cards[:4], cards[4:10], cards[10:18], cards[18:]]
    node = machine(24, [(*pair, Path.UNKNOWN, 2) for group in groups for pair in combinations(sorted(group), 2)])
    for count in (2, 4, 6, 8):
        chosen, _ = Picked(node)(range(24), count, rule=CONNECTED)
        assert score(node, chosen) == 200 * count * (count - 1) // 2
    required = sorted(rng.sample(groups[0], 2))
    chosen, _ = Picked(node)(range(24), 4, required, rule=CONNECTED)
    assert sorted(chosen) == sorted(groups[0])
    chosen, _ = Picked(node)(range(24), 1, rule=CONNECTED)
    assert chosen[0] in groups[0]


def test_an_exchange_leaves_the_card_that_growth_takes_first():
    """From card 0 growth takes 1, and then 2; with 3 in place of 1 the sum is higher."""
    links = [(0, 1, Path.UNKNOWN, 9), (0, 2, Path.UNKNOWN, 5), (0, 3, Path.UNKNOWN, 5), (2, 3, Path.UNKNOWN, 9)]
    node = machine(17, links)
    assert Picked(node)(range(17), 3, (0,), rule=CONNECTED)[0] == [0, 2, 3]
    assert Picked(node)(range(17), 2, (0,), rule=CONNECTED)[0] == [0, 1]


# --- NVIDIA's plugin ---


def plugin(node, free, count):
    """The best-effort policy of the plugin: the best split of all free cards, and its best set."""
    if count == 1:
        return [free[0]]
    every = set(combinations(free, count))

    def own(cards):
        return score(node, cards)

    found = by_splits(free, count, every, own) if len(free) <= 8 else beside_rest(free, count, every, own)
    return list(found)


@pytest.mark.parametrize("seed", range(3))
def test_the_plugin_of_nvidia_is_predicted(seed):
    rng = random.Random(seed)
    for _ in range(12):
        node = any_machine(rng, rng.randint(2, 7))
        free = sorted(rng.sample(range(len(node.gpus)), rng.randint(1, len(node.gpus))))
        count = rng.randint(1, len(free))
        assert Picked(node)(free, count, rule=PARTITION)[0] == plugin(node, free, count)


def test_the_plugin_of_nvidia_takes_the_first_card_and_the_first_ones_without_links():
    assert Picked(dgx_1())((2, 5, 6), 1, rule=PARTITION)[0] == [2]
    assert Picked(machine(8, (), TWO_ZONES))((3, 4, 5), 2, rule=PARTITION)[0] == [3, 4]
    assert Picked(machine(8, (), TWO_ZONES))((1, 3, 4, 5), 2, (4,), rule=PARTITION)[0] == [1, 4]


# --- one island ---


def test_islands_come_before_cards_of_unknown_zone():
    zones = ((), (), (0,), (0,))
    node = machine(4, [(0, 1, Path.UNKNOWN, 2)], zones)
    assert Picked(node)((0, 1, 2), 2, rule=ISLANDS)[0] == [0, 1]
    assert Picked(node)((0, 1, 2), 2)[0] == [0, 2]
    many = machine(18, within([range(6)], Path.UNKNOWN, 1), [() if k < 6 else (0,) for k in range(18)])
    assert Picked(many)(range(18), 6, rule=ISLANDS)[0] == [*range(6)]


def test_the_memo_knows_the_rule():
    picked = Picked(machine(4, [(0, 1, Path.UNKNOWN, 3), (1, 2, Path.UNKNOWN, 4), (2, 3, Path.UNKNOWN, 3)]))
    first = [picked(range(4), 2, rule=rule)[0] for rule in (CONNECTED, PARTITION, CONNECTED, PARTITION)]
    assert first == [[1, 2], [0, 1], [1, 2], [0, 1]]
