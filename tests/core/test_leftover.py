"""Leftover, its draws and its memo, beside slow obvious ones in plain Python."""

import random

import numpy as np
import pytest
from tests.core.test_published_scores import column, node, workload

from ullage.core.kernel.leftover import leftover, stratified_draws
from ullage.core.kernel.memo import empty_keys, slot_of
from ullage.core.kernel.task_class import ANY_MODEL, WHOLE

SIZES = np.array([500, 8000, 32_000])


def slow_fill(cpu_free, cards, model, classes, draws, patience):
    """One fill, card by card: what is idle, and how many tasks of each size fit then."""
    cards, waited, offer = list(cards), 0, 0
    wanted = [task for task in classes.tolist() if task[2] and task[3] >> model & 1]
    while waited < patience and wanted:
        if cpu_free < min(task[0] for task in wanted) or max(cards, default=0) < min(task[1] for task in wanted):
            break
        cpu, share, count, models = (int(amount) for amount in classes[draws[offer % len(draws)]])
        offer, waited = offer + 1, waited + 1
        fitting = sorted((free, card) for card, free in enumerate(cards) if count and free >= share)
        if cpu > cpu_free or (count and not models >> model & 1) or len(fitting) < count:
            continue
        cpu_free -= cpu
        for _, card in fitting[:count]:
            cards[card] -= share
        if count:
            waited = 0
    return sum(cards), *(cpu_free // size for size in SIZES)


def fills(cpu_free, cards, model, classes, draws, patience):
    found, space = np.zeros(1 + len(SIZES), np.int64), np.empty(2 * len(cards), np.int64)
    leftover(cpu_free, cards, model, classes, draws, patience, SIZES, space, found)
    return found.tolist()


def cases(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        classes, popularity = workload(rng)
        classes[:, 1] = np.where(classes[:, 2] > 0, np.maximum(classes[:, 1], 10), 0)
        cpu_free, cards, model = node(rng)
        yield cpu_free, column(cards), model, classes, stratified_draws(popularity, 16, rng.randrange(99)), 12


def answers():
    for case in cases(30, seed=1):
        yield fills(*case)


def test_leftover_is_what_patient_fills_leave_idle():
    for cpu_free, cards, model, classes, draws, patience in cases(150, seed=2):
        slow = [slow_fill(cpu_free, cards, model, classes, draw, patience) for draw in draws]
        assert fills(cpu_free, cards, model, classes, draws, patience) == [
            sum(amounts) for amounts in zip(*slow, strict=True)
        ]


def test_the_order_of_the_cards_does_not_matter():
    for cpu_free, cards, model, classes, draws, patience in cases(50, seed=3):
        found = fills(cpu_free, cards, model, classes, draws, patience)
        assert found == fills(cpu_free, cards[::-1].copy(), model, classes, draws, patience)


def test_leftover_of_a_node_that_tasks_fill_exactly_is_nothing():
    classes = np.array([(1000, 500, 1, ANY_MODEL)], np.int64)
    draws = stratified_draws(np.ones(1), 4, 0)
    assert fills(8000, column([WHOLE] * 4), 0, classes, draws, 12) == [0, 0, 0, 0]
    assert fills(3000, column([WHOLE] * 4), 0, classes, draws, 12) == [4 * 2500, 0, 0, 0]
    assert fills(36_000, column([400]), 0, classes, draws, 12) == [4 * 400, 4 * 72, 4 * 4, 4 * 1]


def test_every_quantile_of_the_workload_is_drawn_once_at_each_offer():
    popularity = np.array([0.5, 0.25, 0.125, 0.125])
    draws = stratified_draws(popularity, 64, seed=7)
    assert draws.shape[0] == 64
    for offer in draws.T:
        assert np.bincount(offer, minlength=4).tolist() == [32, 16, 8, 8]
    assert not np.array_equal(draws[:, 0], draws[:, 1])
    assert np.array_equal(draws, stratified_draws(popularity, 64, seed=7))
    assert not np.array_equal(draws, stratified_draws(popularity, 64, seed=8))


def test_rare_classes_are_drawn_as_often_as_they_are_popular():
    popularity = np.array([0.999, 0.001])
    draws = np.concatenate([stratified_draws(popularity, 64, seed).ravel() for seed in range(20)])
    assert draws.mean() == pytest.approx(0.001, rel=0.2)


def test_a_memo_finds_what_was_put_in_and_nothing_else():
    rng = random.Random(4)
    keys, kept = empty_keys(256, 3), {}
    for number in range(200):
        key = (rng.randrange(4), rng.randrange(5) * 1000, rng.randrange(12))
        slot = slot_of(keys, column(key))
        assert (keys[slot, 0] >= 0) == (key in kept)
        if key in kept:
            assert kept[key] == slot
        keys[slot] = key
        kept[key] = slot
        assert len(set(kept.values())) == len(kept), number


def test_a_memo_with_one_empty_slot_still_answers():
    keys = empty_keys(8, 2)
    for number in range(7):
        keys[slot_of(keys, column((number, 5)))] = (number, 5)
    assert keys[slot_of(keys, column((3, 5)))].tolist() == [3, 5]
    assert keys[slot_of(keys, column((3, 6)))].tolist() == [-1, -1]
