"""Fragmentation, FGD and the scores it was published against, beside slow obvious ones in plain Python."""

import math
import random

import numpy as np
import pytest

from ullage.core.kernel import fragmentation as compiled
from ullage.core.kernel import packing
from ullage.core.kernel.task_class import ANY_MODEL, WHOLE

AMOUNTS = (0, 10, 125, 250, 330, 500, 750, 990, WHOLE)


def workload(rng):
    rows = []
    for _ in range(rng.randint(1, 12)):
        cards = rng.choice((0, 1, 1, 2, 4, 8))
        share = 0 if not cards else rng.choice((10, 250, 500, WHOLE)) if cards == 1 else WHOLE
        rows.append((rng.randrange(0, 40_000, 500), share, cards, rng.choice((ANY_MODEL, 0b001, 0b110))))
    weights = [rng.random() for _ in rows]
    return np.array(rows, np.int64), np.array(weights) / sum(weights)


def node(rng):
    cards = [rng.choice(AMOUNTS) for _ in range(rng.randint(0, 8))]
    return rng.randrange(0, 96_000, 500), cards, rng.randrange(3)


def fits(cpu_free, cards, model, task):
    cpu, share, count, models = (int(amount) for amount in task)
    if cpu_free < cpu:
        return False
    return not count or bool(models >> model & 1 and sum(free >= share for free in cards) >= count)


def slow_fragmentation(cpu_free, cards, model, classes, popularity):
    total = 0.0
    for task, weight in zip(classes, popularity, strict=True):
        runs = task[2] > 0 and fits(cpu_free, cards, model, task)
        total += weight * sum(free for free in cards if not runs or free < task[1])
    return total


def after(cpu_free, cards, task):
    """Every way to place the task: (card or -1, cpu left, cards left)."""
    cpu, share, count, _ = (int(amount) for amount in task)
    if count and share < WHOLE:
        for card, free in enumerate(cards):
            if free >= share:
                yield card, cpu_free - cpu, [*cards[:card], free - share, *cards[card + 1 :]]
        return
    idle = [card for card, free in enumerate(cards) if free == WHOLE][:count]
    yield -1, cpu_free - cpu, [0 if card in idle else free for card, free in enumerate(cards)]


def placements(count, seed):
    """Random nodes with a task that fits on each."""
    rng = random.Random(seed)
    while count:
        classes, popularity = workload(rng)
        cpu_free, cards, model = node(rng)
        task = rng.choice(list(workload(rng)[0]))
        if fits(cpu_free, cards, model, task):
            count -= 1
            yield cpu_free, cards, model, task, classes, popularity


def column(cards):
    return np.array(cards, np.int64)


def test_fragmentation_is_what_the_workload_cannot_use():
    rng = random.Random(1)
    for _ in range(300):
        classes, popularity = workload(rng)
        cpu_free, cards, model = node(rng)
        found = compiled.fragmentation(cpu_free, column(cards), model, classes, popularity)
        assert found == pytest.approx(slow_fragmentation(cpu_free, cards, model, classes, popularity), abs=1e-9)


def test_a_node_that_every_task_can_use_whole_has_no_fragmentation():
    classes, popularity = np.array([(1000, 500, 1, ANY_MODEL)], np.int64), np.ones(1)
    assert compiled.fragmentation(4000, column([1000, 500]), 0, classes, popularity) == 0
    assert compiled.fragmentation(4000, column([1000, 499]), 0, classes, popularity) == 499
    assert compiled.fragmentation(999, column([1000, 500]), 0, classes, popularity) == 1500


def test_fgd_takes_the_card_after_which_least_is_fragmented():
    for cpu_free, cards, model, task, classes, popularity in placements(300, seed=2):
        growth, card = compiled.fgd(cpu_free, column(cards), model, *map(int, task[:3]), classes, popularity)
        before = slow_fragmentation(cpu_free, cards, model, classes, popularity)
        ways = {
            way: slow_fragmentation(cpu, left, model, classes, popularity) - before
            for way, cpu, left in after(cpu_free, cards, task)
        }
        assert growth == pytest.approx(min(ways.values()), abs=1e-9)
        assert ways[card] == pytest.approx(growth, abs=1e-9)


def test_the_published_score_is_truncated_and_takes_the_first_of_the_best_cards():
    for cpu_free, cards, model, task, classes, popularity in placements(300, seed=3):
        score, card = compiled.fgd_published(cpu_free, column(cards), model, *map(int, task[:3]), classes, popularity)
        # The sums of the oracle are those of the compiled function: the last bit decides a truncation.
        before = compiled.fragmentation(cpu_free, column(cards), model, classes, popularity)
        ways = {
            way: compiled.fragmentation(cpu, column(left), model, classes, popularity) - before
            for way, cpu, left in after(cpu_free, cards, task)
        }
        scores = {way: math.floor(100 / (1 + math.exp(growth / 1000))) for way, growth in ways.items()}
        assert score == max(scores.values())
        assert card == next(way for way, value in scores.items() if value == score)


def test_no_change_of_fragmentation_scores_fifty():
    assert compiled.published_score(0.0) == 50
    assert compiled.published_score(1.0) == 49
    assert compiled.published_score(-40.1) == 51


def test_scoring_leaves_the_cards_of_the_node_as_they_were():
    for cpu_free, cards, model, task, classes, popularity in placements(50, seed=4):
        kept = column(cards)
        compiled.fgd(cpu_free, kept, model, *map(int, task[:3]), classes, popularity)
        compiled.fgd_published(cpu_free, kept, model, *map(int, task[:3]), classes, popularity)
        assert kept.tolist() == cards


def test_best_fit_card_is_the_fullest_that_has_room():
    assert compiled.best_fit_card(column([1000, 300, 500, 300]), 250) == 1
    assert compiled.best_fit_card(column([1000, 300]), 301) == 0
    assert compiled.best_fit_card(column([200, 100]), 201) == -1
    assert compiled.best_fit_card(column([]), 1) == -1


def test_whole_cards_are_the_first_idle_ones():
    cards = column([500, 1000, 0, 1000, 1000])
    compiled.take_whole(cards, 2)
    assert cards.tolist() == [500, 0, 0, 0, 1000]


def test_best_fit_and_dot_product_follow_their_formulas():
    for cpu_free, cards, _, task, _, _ in placements(300, seed=5):
        cpu, share, count = (int(amount) for amount in task[:3])
        asked, idle = share * count, sum(cards)
        left = (cpu_free - cpu) / 128_000 / 2 + (idle - asked) / 8000 / 2
        assert packing.best_fit(cpu_free, column(cards), cpu, share, count) == math.floor((1 - left) * 100)
        product = (cpu_free / 128_000 * (cpu / 128_000) + idle / 8000 * (asked / 8000)) / 2
        assert packing.dot_product(cpu_free, column(cards), cpu, share, count) == math.floor(100 * (1 - product))


@pytest.mark.parametrize(
    ("cards", "kinds", "kind", "score"),
    [
        ([500] * 8, 0b1, 0, 75 + 12),  # parts only, half full
        ([500] * 8, 0b11, 0, 50 + 12),  # parts beside whole cards
        ([1000] * 8, 0b0, 0, 25),  # nothing runs here
        ([1000, 0], 0b10, 0, 21),  # only whole cards run here
        ([1000, 0], 0b10, 1, 75 + 21),
        ([500] * 8, 0b1, -1, 0),  # a task without cards
    ],
)
def test_clustering_prefers_company_of_its_own_kind(cards, kinds, kind, score):
    assert packing.clustering(column(cards), kinds, kind) == score


@pytest.mark.parametrize(
    ("cards", "share", "count", "score"),
    [
        ([1000, 300, 900], 250, 1, 97),  # a card in use with room: the fullest
        ([1000, 300], 400, 1, 49),  # an idle card of a node in use
        ([1000, 1000, 1000, 0], WHOLE, 2, 48),
        ([1000] * 8, 250, 1, 25),  # an idle node
        ([1000] * 2, WHOLE, 2, 31),
        ([500, 1000], 0, 0, 0),  # no cards asked
    ],
)
def test_packing_prefers_cards_then_nodes_in_use(cards, share, count, score):
    assert packing.packing(column(cards), share, count) == score


def test_a_random_card_is_each_that_fits_as_often():
    cards = column([100, 500, 400, 1000])
    assert [packing.random_card(cards, 400, draw) for draw in range(6)] == [1, 2, 3, 1, 2, 3]
    assert packing.random_card(cards, 1001, 5) == -1


def answers():
    for cpu_free, cards, model, task, classes, popularity in placements(200, seed=6):
        shares, asked = column(cards), tuple(map(int, task[:3]))
        yield float(compiled.fragmentation(cpu_free, shares, model, classes, popularity))
        for policy in (compiled.fgd, compiled.fgd_published):
            score, card = policy(cpu_free, shares, model, *asked, classes, popularity)
            yield float(score), int(card)
        yield int(packing.best_fit(cpu_free, shares, *asked)), int(packing.dot_product(cpu_free, shares, *asked))
        yield int(packing.packing(shares, *asked[1:])), int(packing.clustering(shares, 0b101, 0))
        yield int(packing.random_card(shares, asked[1], 12345))
