"""Dominant resource fairness: published numbers, an exact slow oracle, and order independence."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab import a_node

from ullage.core.books.fleet import Fleet
from ullage.core.placing.policy import Order, Policy
from ullage.core.sharing.entitlement import entitlement
from ullage.core.sharing.world import Demand, World
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

MANY = 1000
GIB = 2**30


def a_demand(name: str, number: int, resreq: str, pending: int = MANY, **facts: object) -> Demand:
    return Demand(name, number, ResourceRequirement.from_string(resreq), pending, **facts)


def deserve(nodes: list[Node], *demands: Demand, queues: tuple[Queue, ...] = (Queue("default"),), **policy: object):
    return entitlement(World(Fleet(nodes), demands, (), queues), Policy(**policy))


@pytest.mark.parametrize(
    ("node", "demands", "expected"),
    [
        pytest.param(
            a_node(cpu=9, memory="18g"),
            [a_demand("A", 0, "cpu=1,mem=4g"), a_demand("B", 1, "cpu=3,mem=1g")],
            {"A": 3, "B": 2},
            id="the example of the DRF paper",
        ),
        pytest.param(
            a_node(cpu=100, memory="100g", gpus=10),
            [a_demand("A", 0, "cpu=1,mem=4g,gpu=2"), a_demand("B", 1, "cpu=4,mem=1g")],
            {"A": 5, "B": 23},
            id="ten cards are all used and the rest goes to who asks for none",
        ),
        pytest.param(
            a_node(cpu=64, memory="256g", gpus=8),
            [a_demand("A", 0, "cpu=4,mem=16g,gpu=1"), a_demand("B", 1, "cpu=4,mem=4g")],
            {"A": 6, "B": 10},
            id="all cpus are busy, the older first at a tie",
        ),
        pytest.param(
            a_node(cpu=64, memory="256g", gpus=8),
            [a_demand("A", 1, "cpu=4,mem=16g,gpu=1"), a_demand("B", 0, "cpu=4,mem=4g")],
            {"A": 5, "B": 11},
            id="the same with the other one older",
        ),
        pytest.param(
            a_node(gpus=6),
            [a_demand("A", 0, "gpu=1", batch_size=4), a_demand("B", 1, "gpu=1")],
            {"A": 4, "B": 2},
            id="batches are whole",
        ),
        pytest.param(
            a_node(cpu=22),
            [
                a_demand("A", 0, "cpu=1", pending=8, batch_size=2, priority=100),
                a_demand("B", 1, "cpu=1", pending=6, batch_size=2, priority=100),
                a_demand("C", 2, "cpu=1", pending=20, batch_size=4, priority=10),
            ],
            {"A": 8, "B": 6, "C": 8},
            id="what the high priority does not use flows down",
        ),
        pytest.param(
            a_node(cpu=8),
            [a_demand(name, i, "cpu=1", pending=20 if name == "D" else 0) for i, name in enumerate("ABCD")],
            {"A": 0, "B": 0, "C": 0, "D": 8},
            id="idle sessions count for nothing",
        ),
        pytest.param(
            a_node(cpu=16),
            [a_demand("A", 0, "cpu=1", max_instances=2), a_demand("B", 1, "cpu=1"), a_demand("C", 2, "cpu=1")],
            {"A": 2, "B": 7, "C": 7},
            id="a maximum leaves the rest to the others",
        ),
        pytest.param(
            a_node(cpu=12),
            [a_demand("A", 0, "cpu=1", weight=2), a_demand("B", 1, "cpu=1", weight=1)],
            {"A": 8, "B": 4},
            id="weights divide in proportion",
        ),
        pytest.param(
            a_node(cpu=4),
            [a_demand("A", 0, "cpu=1", min_instances=3, pending=0), a_demand("B", 1, "cpu=1", priority=9)],
            {"A": 3, "B": 1},
            id="minima go before everything",
        ),
        pytest.param(
            a_node(cpu=4),
            [a_demand("A", 0, "gpu=1", priority=9), a_demand("B", 1, "cpu=1")],
            {"A": 0, "B": 4},
            id="a GPU where there is none blocks nobody",
        ),
    ],
)
def test_each_session_deserves(node, demands, expected):
    assert deserve([node], *demands) == expected


def test_ten_sessions_share_22_cpus_to_within_one():
    shares = deserve([a_node(cpu=22)], *(a_demand(str(i), i, "cpu=1", 100) for i in range(10)))
    assert sum(shares.values()) == 22
    assert set(shares.values()) == {2, 3}


def test_without_nodes_nobody_deserves_anything():
    assert deserve([], a_demand("A", 0, "cpu=1", min_instances=2)) == {"A": 0}


def test_an_application_limit_holds_over_its_sessions():
    limited = [a_demand(n, i, "cpu=1", application="x", application_max=5) for i, n in enumerate("AB")]
    shares = deserve([a_node(cpu=16)], *limited, a_demand("C", 2, "cpu=1"))
    assert shares["A"] + shares["B"] == 5
    assert shares["C"] == 11


def test_fifo_serves_the_oldest_to_the_end():
    demands = [a_demand("A", 0, "cpu=1", 6), a_demand("B", 1, "cpu=1", 6)]
    assert deserve([a_node(cpu=8)], *demands, order=Order.FIFO) == {"A": 6, "B": 2}


# --- the tree -------------------------------------------------------------------------------------


def test_queues_share_by_weight_however_many_sessions_they_have():
    queues = (Queue("a", weight=3), Queue("b"))
    crowd = [a_demand(f"a{i}", i, "cpu=1", queue="a") for i in range(9)]
    shares = deserve([a_node(cpu=12)], *crowd, a_demand("b", 99, "cpu=1", queue="b"), queues=queues)
    assert shares["b"] == 3


def test_a_guarantee_comes_before_weights_and_is_lent_while_unused():
    queues = (Queue("small", guarantee=Resources(cpu_milli=6000)), Queue("big", weight=9))
    big, small = a_demand("big", 0, "cpu=1", queue="big"), a_demand("small", 1, "cpu=1", queue="small")
    assert deserve([a_node(cpu=10)], big, small, queues=queues) == {"big": 4, "small": 6}
    assert deserve([a_node(cpu=10)], big, queues=queues) == {"big": 10}


def test_a_guarantee_binds_in_the_dimensions_it_names():
    queues = (Queue("small", guarantee=Resources(gpu_milli=2000)), Queue("big", weight=9))
    big = a_demand("big", 0, "cpu=1,mem=1g,gpu=1", queue="big")
    small = a_demand("small", 1, "cpu=1,mem=1g,gpu=1", queue="small")
    assert deserve([a_node(cpu=8, gpus=4)], big, small, queues=queues) == {"big": 2, "small": 2}


def test_of_two_queues_at_a_tie_the_one_whose_session_is_older_goes_first():
    queues = (Queue("a"), Queue("b"))
    young, old = a_demand("young", 2, "gpu=1", queue="a"), a_demand("old", 1, "gpu=1", queue="b")
    assert deserve([a_node(gpus=1)], young, old, queues=queues) == {"young": 0, "old": 1}


def test_a_limit_of_a_parent_binds_all_below_it():
    queues = (Queue("team", limit=Limit(gpu_milli=3000)), Queue("x", "team"), Queue("y", "team"), Queue("z"))
    demands = [a_demand(name, i, "gpu=1", queue=name) for i, name in enumerate("xyz")]
    shares = deserve([a_node(gpus=8)], *demands, queues=queues)
    assert shares["x"] + shares["y"] == 3
    assert shares["z"] == 5


def test_a_queue_whose_session_took_the_only_gpu_still_gets_cpus():
    """Hierarchical DRF, section 4: a saturated child does not starve its siblings."""
    queues = (Queue("left"), Queue("right"))
    demands = [
        a_demand("gpu", 0, "gpu=1", queue="left"),
        a_demand("left", 1, "cpu=1", queue="left"),
        a_demand("right", 2, "cpu=1", queue="right"),
    ]
    assert deserve([a_node(cpu=10, gpus=1)], *demands, queues=queues) == {"gpu": 1, "left": 5, "right": 5}


# --- the oracle -----------------------------------------------------------------------------------


def slow_drf(node: Node, demands: list[Demand]) -> dict[str, int]:
    """Progressive filling as the paper states it: one node, fractions, everything computed again at each step."""
    total = node.allocatable
    free, given = list(total), dict.fromkeys((d.session for d in demands), 0)

    def share(demand: Demand) -> Fraction:
        held = demand.requirement.resources * given[demand.session]
        parts = [Fraction(used, whole) for used, whole in zip(held, total, strict=True) if whole]
        return max(parts, default=Fraction(0)) / demand.weight

    def unit(demand: Demand) -> Resources:
        return demand.requirement.resources * demand.batch_size

    def fits(demand: Demand) -> bool:
        return all(asked <= left for asked, left in zip(unit(demand), free, strict=True))

    slots = node.max_executors
    while True:
        hungry = [d for d in demands if given[d.session] + d.batch_size <= d.want and fits(d)]
        hungry = [d for d in hungry if sum(given.values()) + d.batch_size <= slots]
        if not hungry:
            return given
        chosen = min(hungry, key=lambda d: (-d.priority, share(d), d.number, d.session))
        given[chosen.session] += chosen.batch_size
        free = [left - asked for asked, left in zip(unit(chosen), free, strict=True)]


requirements = st.builds(
    ResourceRequirement.of,
    cpu=st.integers(1, 6),
    memory=st.integers(0, 8).map(lambda n: n * GIB),
    gpu=st.integers(0, 3),
)


@st.composite
def small_worlds(draw):
    node = a_node(cpu=draw(st.integers(0, 30)), memory=f"{draw(st.integers(1, 40))}g", gpus=draw(st.integers(0, 8)))
    count = draw(st.integers(1, 6))
    demands = [
        Demand(
            f"s{number}",
            draw(st.integers(0, 3)),
            draw(requirements),
            pending=draw(st.integers(0, 12)),
            priority=draw(st.sampled_from([0, 0, 5])),
            weight=draw(st.integers(1, 4)),
            batch_size=draw(st.sampled_from([1, 1, 2, 3])),
            max_instances=draw(st.sampled_from([None, 3, 6])),
        )
        for number in range(count)
    ]
    return node, demands


@pytest.mark.long
@settings(max_examples=1500)
@given(small_worlds())
def test_filling_equals_the_slow_oracle(world):
    node, demands = world
    assert deserve([node], *demands) == slow_drf(node, demands)


@pytest.mark.long
@settings(max_examples=300)
@given(small_worlds(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_order_of_input_changes_nothing(world, random, copies):
    node, demands = world
    nodes = [
        Node(f"n{i}", node.cpu_milli, node.memory_bytes, a_node(f"n{i}", gpus=len(node.gpus)).gpus)
        for i in range(copies)
    ]
    expected = deserve(nodes, *demands)
    random.shuffle(nodes)
    random.shuffle(demands)
    assert deserve(nodes, *demands) == expected
