"""Counting classes of tasks, the typical ones, learning them live, and how compiled code sees them."""

import random

import pytest

from ullage.core.books.fleet import Fleet
from ullage.core.strategies.workload import (
    LiveWorkload,
    TaskClass,
    class_of,
    may_come,
    rows_of,
    typical_workload,
    whole_workload,
)
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement

PART, WHOLE, WIDE, PLAIN = (
    ResourceRequirement(4000, 0, 1, Part(compute_ppm=500_000), CardSelector(isolation=Isolation.SOFT)),
    ResourceRequirement(8000, 0, 1),
    ResourceRequirement(64_000, 0, 8, cards=CardSelector(("T4",))),
    ResourceRequirement(8000, 0),
)


def parts(workload):
    return dict(zip(workload.classes, workload.popularity, strict=True))


def node(name, cpu, cards, model=None):
    return Node(name, cpu, 0, tuple(Gpu(f"{name}-{k}", k, model=model) for k in range(cards)))


def test_a_class_is_what_the_fit_of_a_task_depends_on():
    assert [class_of(asked) for asked in (PART, WHOLE, WIDE, PLAIN)] == [
        TaskClass(4000, 500, 1),
        TaskClass(8000, 1000, 1),
        TaskClass(64_000, 1000, 8, ("T4",)),
        TaskClass(8000, 0, 0),
    ]


def test_popularity_is_the_part_of_all_tasks():
    workload = whole_workload([PART] * 5 + [PLAIN] * 3 + [WIDE] * 2)
    assert workload.classes == (class_of(PART), class_of(PLAIN), class_of(WIDE))
    assert workload.popularity == pytest.approx((0.5, 0.3, 0.2))
    assert workload.tasks == 10


def test_the_order_of_the_tasks_does_not_matter():
    tasks = [PART] * 3 + [WHOLE] * 3 + [WIDE] + [PLAIN] * 2
    assert whole_workload(tasks) == whole_workload(random.Random(1).sample(tasks, len(tasks)))


def test_typical_classes_are_the_fewest_that_cover_95_percent():
    workload = typical_workload([PART] * 90 + [WHOLE] * 6 + [PLAIN] * 3 + [WIDE])
    assert parts(workload) == pytest.approx({class_of(PART): 90 / 96, class_of(WHOLE): 6 / 96})
    assert workload.tasks == 96


def test_a_live_workload_is_estimated_from_the_first_task_on_then_ever_more_rarely():
    live, made = LiveWorkload(), []
    for seen in range(1, 400):
        if live.see(PART if seen % 2 else PLAIN):
            made.append(seen)
            assert live.estimate.tasks == seen
    assert made == [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94, 141, 211, 316]
    assert parts(live.estimate) == pytest.approx({class_of(PART): 0.5, class_of(PLAIN): 0.5})


def test_a_live_estimate_is_the_count_of_what_came():
    rng, live, came = random.Random(2), LiveWorkload(), []
    for _ in range(300):
        came.append(rng.choice((PART, PART, WHOLE, WIDE, PLAIN)))
        if live.see(came[-1]):
            assert live.estimate == whole_workload(came)


def test_large_nodes_invite_wide_tasks():
    sizes = [(96_000, 8), (96_000, 8), (128_000, 8), (32_000, 4), (104_000, 2), (64_000, 0)]
    fleet = Fleet(node(f"n{number}", cpu, cards) for number, (cpu, cards) in enumerate(sizes))
    assert may_come(fleet) == (
        TaskClass(28_800, 1000, 4),
        TaskClass(86_400, 1000, 8),
        TaskClass(115_200, 1000, 8),
    )


def test_models_are_a_mask_of_the_kinds_of_cards_of_the_fleet():
    fleet = Fleet([node("a", 1000, 1, "T4"), node("b", 1000, 1, "A100"), node("c", 1000, 1)])
    classes = [TaskClass(1, 2, 1), *(TaskClass(1, 2, 1, models) for models in (("A100",), ("T4", "A100"), ("H100",)))]
    assert rows_of(classes, fleet).tolist() == [[1, 2, 1, -1], [1, 2, 1, 0b10], [1, 2, 1, 0b11], [1, 2, 1, 0]]
    mix = whole_workload([WIDE, PLAIN, PLAIN]).on(fleet)
    assert mix.classes.tolist() == [[8000, 0, 0, -1], [64_000, 1000, 8, 0b01]]
    assert mix.popularity.tolist() == pytest.approx([2 / 3, 1 / 3])
