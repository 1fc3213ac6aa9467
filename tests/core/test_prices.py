"""Prices of what scarce tasks need, beside slow obvious sums."""

import math
import random

import numpy as np
import pytest

from ullage.core.kernel.prices import (
    bare,
    bare_cost,
    model_prices,
    most_wanted,
    named,
    normal_above,
    poisson_at_least,
    scarce,
    slot_cost,
    slot_prices,
    slots,
)
from ullage.core.kernel.task_class import ANY_MODEL, WHOLE, Mix


def slow_poisson(mean, count):
    return 1 - sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count))


@pytest.mark.parametrize("mean", [0.01, 0.5, 3.0, 50.0, 700.0])
def test_the_tail_of_a_poisson_is_the_sum_of_its_terms(mean):
    spread = math.sqrt(mean)
    for count in {1, 2, int(mean), int(mean - 3 * spread), int(mean + 3 * spread), int(mean + 20 * spread) + 20}:
        if count > 0:
            near = 1e-10 if count <= 30 else 2e-4
            assert poisson_at_least(mean, count) == pytest.approx(slow_poisson(mean, count), abs=near)


def test_a_poisson_at_its_edges():
    assert poisson_at_least(0.0, 0) == 1
    assert poisson_at_least(0.0, 1) == 0
    assert poisson_at_least(1e6, 10) == 1
    assert poisson_at_least(10.0, 10**6) == 0


def test_the_tail_of_a_normal():
    assert normal_above(5.0, 4.0, 5.0) == pytest.approx(0.5)
    assert normal_above(5.0, 4.0, 5.0 + 1.96 * 2) == pytest.approx(0.025, abs=1e-3)
    assert normal_above(5.0, 0.0, 4.0) == 1
    assert normal_above(5.0, 0.0, 5.0) == 0


def test_slots_are_bounded_by_cards_and_by_cpu():
    assert slots(cpu_free=10_000, roomy=7, cpu=1000, cards=2) == 3
    assert slots(cpu_free=1999, roomy=7, cpu=1000, cards=2) == 1
    assert slots(cpu_free=0, roomy=7, cpu=0, cards=2) == 3
    assert slots(cpu_free=-1000, roomy=7, cpu=1000, cards=2) == 0
    assert slots(cpu_free=5000, roomy=1, cpu=1000, cards=2) == 0


MIX = Mix(
    np.array(
        [
            (8000, WHOLE, 2, ANY_MODEL),
            (4000, WHOLE, 2, 0b01),
            (9000, WHOLE, 2, 0b01),
            (9000, WHOLE, 4, 0b10),
            (1000, 700, 1, ANY_MODEL),
            (2000, WHOLE, 1, ANY_MODEL),
            (1000, 500, 1, 0b01),
            (1000, 0, 0, ANY_MODEL),
        ],
        np.int64,
    ),
    np.array([0.1, 0.2, 0.1, 0.05, 0.15, 0.1, 0.2, 0.1]),
)


def with_a_deviation(*came, more=0):
    return pytest.approx([(each + math.sqrt(each) + more) / 400 for each in came])


def test_scarce_are_classes_of_several_cards_and_parts_of_more_than_half_a_card():
    found = scarce(MIX, 400)
    assert found.classes.tolist() == MIX.classes[:5].tolist()
    assert found.value.tolist() == pytest.approx([2000, 2000, 2000, 4000, 14])


def test_classes_compete_with_those_that_need_at_least_as_much_of_the_same():
    assert scarce(MIX, 400).rate.tolist() == with_a_deviation(80, 120, 40, 20, 100)


def test_invited_classes_are_priced_and_one_more_of_each_may_come():
    invited = np.array([(7000, WHOLE, 4, ANY_MODEL), (9000, WHOLE, 4, 0b10)])
    found = scarce(MIX, 400, invited)
    assert found.classes[5:].tolist() == [invited[0].tolist()]
    assert found.rate.tolist() == with_a_deviation(80, 120, 40, 20, 100, 20, more=1)


def test_a_slot_costs_its_worth_times_the_chance_that_all_are_asked_for():
    rate, value, prices = np.array([0.4, 0.5, 0.3, 0.05]), np.array([2000.0, 2000, 2000, 4000]), np.empty(4)
    slot_prices(rate, value, np.array([5, 3, 0, 10_000]), 10.0, prices)
    assert prices.tolist() == pytest.approx([2000 * slow_poisson(4.0, 5), 2000 * slow_poisson(5.0, 3), 2000, 0])
    slot_prices(rate, value, np.array([1, 1, 1, 1]), 0.0, prices)
    assert prices.tolist() == [0, 0, 0, 0]


def held(cpu_free, cards, task):
    cpu, share, count, _ = task
    roomy = sum(free >= share for free in cards) // count
    return max(0, min(roomy, cpu_free // cpu if roomy else 0))


def test_what_a_task_takes_is_the_dearest_loss_of_slots():
    rng, classes = random.Random(1), MIX.classes[:6]
    for _ in range(300):
        cards = [rng.choice((0, 300, 700, 800, WHOLE)) for _ in range(8)]
        cpu_free, model = rng.randrange(4000, 40_000, 500), rng.randrange(3)
        prices = np.array([rng.choice((0.0, rng.random())) for _ in classes])
        cpu, share, count = rng.choice(((1000, 300, 1), (2000, WHOLE, 2), (3000, 0, 0)))
        fitting = [card for card, free in enumerate(cards) if free >= max(share, 1)]
        if len(fitting) < count:
            continue
        taken = rng.sample(fitting, count)
        left = [free - share if card in taken else free for card, free in enumerate(cards)]
        losses = [
            price * (held(cpu_free, cards, task) - held(cpu_free - cpu, left, task))
            for task, price in zip(classes.tolist(), prices, strict=True)
            if task[3] >> model & 1
        ]
        roomy = np.array([sum(free >= task[1] for free in cards) for task in classes])
        slots_now = np.array([held(cpu_free, cards, task) * (task[3] >> model & 1) for task in classes.tolist()])
        room, dear = cards[taken[0]] if taken else 0, np.empty(len(classes), np.int64)
        dear = dear[: most_wanted(prices, dear)]
        asked = slots_now, roomy, cpu_free - cpu, share, count, room
        assert slot_cost(classes, prices, dear, *asked, np.inf) == pytest.approx(max([0.0, *losses]))
        enough = slot_cost(classes, prices, dear, *asked, 0.5)
        assert enough == pytest.approx(max([0.0, *losses])) or 0.5 <= enough <= max(losses)


def test_a_class_that_needs_no_cpu_loses_no_slot_on_a_node_whose_cpu_is_overdrawn():
    classes = np.array([[0, 300, 1, 1]])
    with np.errstate(all="raise"):
        cost = slot_cost(classes, np.ones(1), np.array([0]), np.array([2]), np.array([2]), -500, 0, 0, 0, np.inf)
    assert cost == 0


def test_tasks_without_cards_are_worth_a_part_of_the_cards_that_go_with_the_cpu_of_their_mean():
    classes = np.array([(8000, 0, 0, -1), (32_000, 0, 0, -1), (0, 0, 0, -1), (4000, 500, 1, -1)], np.int64)
    found = bare(Mix(classes, np.array([0.3, 0.2, 0.1, 0.4])), cards_per_cpu=0.06)
    assert found.sizes.tolist() == [8000, 32_000]
    assert found.rate.tolist() == pytest.approx([0.5, 0.2])
    assert found.value.tolist() == pytest.approx([0.07 * 0.06 * (0.3 * 8000 + 0.2 * 32_000) / 0.5] * 2)


def test_a_placement_pays_for_the_dearest_size_without_cards_that_it_displaces():
    prices = np.array([10.0, 100.0])
    assert bare_cost(prices, np.array([6, 0])) == 60
    assert bare_cost(prices, np.array([6, 1])) == 100
    assert bare_cost(prices, np.array([-6, 0])) == 0


def test_named_sets_need_what_the_classes_within_them_need():
    found = named(MIX, models=2)
    assert found.sets.tolist() == [0b01, 0b10]
    assert found.mean.tolist() == pytest.approx([0.3 * 2000 + 0.2 * 500, 0.05 * 4000])
    assert found.variance.tolist() == pytest.approx([0.3 * 2000**2 + 0.2 * 500**2, 0.05 * 4000**2])


def test_a_model_costs_the_chance_that_its_dearest_set_asks_for_more_than_it_has():
    sets, prices = np.array([0b001, 0b011]), np.empty(3)
    mean, variance, usable = np.array([300.0, 500.0]), np.array([1e5, 2e5]), np.array([4000.0, 5000.0, 6000.0])
    model_prices(sets, mean, variance, usable, 1000.0, prices)
    first, second = normal_above(15 * 300.0, 15 * 1e5, 4000.0), normal_above(15 * 500.0, 15 * 2e5, 9000.0)
    assert prices.tolist() == pytest.approx([max(first, second), second, 0])


def test_models_that_nobody_names_cost_nothing():
    prices = np.ones(2)
    model_prices(np.empty(0, np.int64), np.empty(0), np.empty(0), np.array([1.0, 2.0]), 500.0, prices)
    assert prices.tolist() == [0, 0]


def answers():
    for mean in (0.3, 2.0, 77.0, 900.0):
        for count in (0, 1, 3, 70, 80, 1000):
            yield round(float(poisson_at_least(mean, count)), 12), round(float(normal_above(mean, mean, count)), 12)
    classes, rate, value = scarce(MIX, 400)
    prices = np.empty(len(rate))
    slot_prices(rate, value, np.array([5, 3, 0, 7, 2]), 10.0, prices)
    yield from np.round(prices, 9).tolist()
    roomy, dear = np.array([5, 5, 5, 6, 5]), np.empty(5, np.int64)
    dear = dear[: most_wanted(prices, dear)]
    yield dear.tolist()
    yield round(float(slot_cost(classes, prices, dear, roomy // 2, roomy, 26_000, 300, 1, WHOLE, np.inf)), 9)
    shares, costs = named(MIX, 3), np.empty(3)
    model_prices(*shares, np.array([1000.0, 2000.0, 3000.0]), 900.0, costs)
    yield from np.round(costs, 12).tolist()
    sizes, popular, worth = bare(MIX, 0.058)
    yield sizes.tolist(), np.round(popular, 12).tolist(), np.round(worth, 9).tolist()
    yield float(bare_cost(np.array([3.0, 0.5]), np.array([2, 13])))
    yield int(slots(9000, 5, 2000, 2))
