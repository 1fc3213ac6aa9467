"""Counting classes of tasks, the typical ones, and learning them live."""

import random

import pytest

from ullage.core.mix import LiveWorkload, TaskClass, count_tasks, may_come, typical

PART, WHOLE, WIDE, PLAIN = (
    TaskClass(4000, 500, 1),
    TaskClass(8000, 1000, 1),
    TaskClass(64_000, 1000, 8, models=0b10),
    TaskClass(8000, 0, 0),
)


def rows(workload):
    counted = zip(workload.classes.tolist(), workload.popularity.tolist(), strict=True)
    return {TaskClass(*row): popularity for row, popularity in counted}


def test_popularity_is_the_part_of_all_tasks():
    workload = count_tasks([PART] * 5 + [PLAIN] * 3 + [WIDE] * 2)
    assert rows(workload) == pytest.approx({PART: 0.5, PLAIN: 0.3, WIDE: 0.2})
    assert workload.tasks == 10
    assert [TaskClass(*row) for row in workload.classes.tolist()] == [PART, PLAIN, WIDE]


def test_the_order_of_the_tasks_does_not_matter():
    tasks = [PART] * 3 + [WHOLE] * 3 + [WIDE] + [PLAIN] * 2
    shuffled = random.Random(1).sample(tasks, len(tasks))
    assert count_tasks(tasks).classes.tolist() == count_tasks(shuffled).classes.tolist()


def test_typical_classes_are_the_fewest_that_cover_enough():
    tasks = [PART] * 90 + [WHOLE] * 6 + [PLAIN] * 3 + [WIDE]
    assert rows(typical(tasks)) == pytest.approx({PART: 90 / 96, WHOLE: 6 / 96})
    assert rows(typical(tasks, coverage=0.9)) == {PART: 1.0}
    assert rows(typical(tasks, coverage=1.0)) == pytest.approx(rows(count_tasks(tasks)))


def test_a_live_workload_is_cold_then_estimated_ever_more_rarely():
    live, made = LiveWorkload(), []
    for seen in range(1, 400):
        if live.see(PART if seen % 2 else PLAIN):
            made.append(seen)
            assert live.estimate.tasks == seen
        assert (live.estimate is None) == (seen < 50)
    assert made == [50, 75, 112, 168, 252, 378]
    assert rows(live.estimate) == pytest.approx({PART: 0.5, PLAIN: 0.5})


def test_a_live_estimate_is_the_count_of_what_came():
    rng, live, came = random.Random(2), LiveWorkload(), []
    for _ in range(300):
        came.append(rng.choice((PART, PART, WHOLE, WIDE, PLAIN)))
        if live.see(came[-1]):
            assert rows(live.estimate) == rows(count_tasks(came))


def test_large_nodes_invite_wide_tasks():
    nodes = [(96_000, 8), (96_000, 8), (128_000, 8), (32_000, 4), (104_000, 2), (64_000, 0)]
    assert may_come(nodes) == [
        TaskClass(28_800, 1000, 4),
        TaskClass(86_400, 1000, 8),
        TaskClass(115_200, 1000, 8),
    ]
