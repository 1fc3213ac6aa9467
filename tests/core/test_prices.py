"""Prices of what scarce tasks need, beside slow obvious sums."""

import math

import numpy as np
import pytest

from ullage.core.kernel.task_class import ANY_MODEL, WHOLE
from ullage.core.prices import competing, normal_above, poisson_at_least, slots, wide_prices


def slow_poisson(mean, count):
    return 1 - sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count))


@pytest.mark.parametrize("mean", [0.01, 0.5, 3.0, 50.0, 700.0])
def test_the_tail_of_a_poisson_is_the_sum_of_its_terms(mean):
    spread = math.sqrt(mean)
    for count in {1, 2, int(mean), int(mean - 3 * spread), int(mean + 3 * spread), int(mean + 20 * spread) + 20}:
        if count > 0:
            assert poisson_at_least(mean, count) == pytest.approx(slow_poisson(mean, count), abs=1e-10)


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
    assert slots(cpu_free=10_000, idle_cards=7, cpu=1000, cards=2) == 3
    assert slots(cpu_free=1999, idle_cards=7, cpu=1000, cards=2) == 1
    assert slots(cpu_free=0, idle_cards=7, cpu=0, cards=2) == 3
    assert slots(cpu_free=-1000, idle_cards=7, cpu=1000, cards=2) == 0
    assert slots(cpu_free=5000, idle_cards=1, cpu=1000, cards=2) == 0


CLASSES = np.array(
    [
        (8000, WHOLE, 2, ANY_MODEL),
        (4000, WHOLE, 2, 0b01),
        (9000, WHOLE, 2, 0b01),
        (9000, WHOLE, 4, 0b01),
        (1000, 500, 1, ANY_MODEL),
    ],
    np.int64,
)
POPULARITY = np.array([0.1, 0.2, 0.3, 0.05, 0.35])


def test_classes_compete_with_those_that_need_at_least_as_much_of_the_same():
    assert competing(CLASSES, POPULARITY).tolist() == pytest.approx([0.4, 0.5, 0.3, 0.05, 0.35])


def test_a_wide_slot_costs_its_cards_times_the_chance_that_all_are_asked_for():
    rate, free, prices = competing(CLASSES, POPULARITY)[:4], np.array([5, 3, 0, 10_000]), np.empty(4)
    wide_prices(CLASSES[:4], rate, free, 10.0, prices)
    expected = [2000 * slow_poisson(4.0, 5), 2000 * slow_poisson(5.0, 3), 2000, 0]
    assert prices.tolist() == pytest.approx(expected)
    wide_prices(CLASSES[:4], rate, np.array([1, 1, 1, 1]), 0.0, prices)
    assert prices.tolist() == [0, 0, 0, 0]


def answers():
    for mean in (0.3, 2.0, 77.0, 900.0):
        for count in (0, 1, 3, 70, 80, 1000):
            yield round(poisson_at_least(mean, count), 12), round(normal_above(mean, mean, count), 12)
    prices = np.empty(4)
    wide_prices(CLASSES[:4], competing(CLASSES, POPULARITY)[:4], np.array([5, 3, 0, 7]), 10.0, prices)
    yield from np.round(prices, 9).tolist()
    yield int(slots(9000, 5, 2000, 2))
