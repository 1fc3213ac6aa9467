"""What can never be placed: the same answer for the cycle, the explanation and whoever opens a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab import a_node

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.explaining.explain import explain
from ullage.core.placing.policy import Policy
from ullage.core.sharing.plan import Start
from ullage.core.sharing.reach import Reach
from ullage.core.sharing.world import Demand, World
from ullage.core.verdict.mismatch import mismatch_text
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement

NODES = (a_node("n1", 4, "8g", gpus=2), a_node("n2", 8, "4g"))
LAB = Queue("lab", limit=Limit(gpu_milli=1000))
SMALL = Queue("small", parent="lab", limit=Limit(cpu_milli=3000, memory_bytes=2 << 30))


def asking(resreq: str, batch: int = 1, **facts: object) -> Demand:
    return Demand("s", 1, ResourceRequirement.from_string(resreq), batch, batch_size=batch, queue="small", **facts)


def reach(*nodes: object, queues: tuple[Queue, ...] = (LAB, SMALL)) -> Reach:
    return Reach(Fleet(nodes), Policy(), queues)


@given(
    cpu=st.integers(1, 9),
    gpu=st.integers(0, 3),
    batch=st.integers(1, 3),
    most=st.integers(1, 4),
    limits=st.tuples(*[st.none() | st.integers(0, 9)] * 2),
    above=st.none() | st.integers(0, 3),
)
def test_a_session_alone_is_placed_unless_it_can_never_be(cpu, gpu, batch, most, limits, above):
    cores, cards = (None if limit is None else limit * 1000 for limit in limits)
    queues = (
        Queue("lab", limit=Limit(gpu_milli=None if above is None else above * 1000)),
        Queue("small", parent="lab", limit=Limit(cpu_milli=cores, gpu_milli=cards)),
    )
    demand = asking(f"cpu={cpu},gpu={gpu}", batch, application_max=most)
    world = World(Fleet(NODES), (demand,), queues=queues)
    plan = schedule(world, Policy(), 0.0)
    never = reach(*NODES, queues=queues).never(demand)
    assert (never is None) == any(isinstance(action, Start) for action in plan.actions)
    assert plan.waiting.get("s") is never
    assert never is None or explain(world, Policy(), 0.0, "s").code is never


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (asking("cpu=1,gpu=2"), "it asks for gpu=2; there is a limit of gpu=1 on queue lab"),
        (asking("cpu=4"), "it asks for cpu=4; there is a limit of cpu=3 on queue small"),
        (
            asking("cpu=2,mem=2g", 2),
            "it asks for cpu=4,mem=4Gi for 2 executors; there is a limit of cpu=3,mem=2Gi on queue small",
        ),
        (
            asking("cpu=1", 2, application_max=1),
            "it asks for 2 executors; there is a limit of 1 on application function",
        ),
        (asking("cpu=3,mem=2g,gpu=1"), None),
    ],
)
def test_the_limit_and_what_exceeds_it_are_named(demand, text):
    limit = reach(*NODES).limit(demand)
    assert (limit and mismatch_text([limit])) == text
    assert reach(*NODES).never(demand) is (limit and Code.ABOVE_LIMIT)


def test_without_a_node_only_a_limit_refuses_for_good():
    assert reach().never(asking("cpu=99")) is Code.ABOVE_LIMIT
    assert reach(queues=(Queue("small"),)).never(asking("cpu=99")) is None
    assert reach(*NODES, queues=(Queue("small"),)).never(asking("cpu=99")) is Code.TOO_LARGE


@pytest.mark.parametrize(
    ("demand", "suggestions"),
    [
        (
            asking("cpu=4,gpu=2"),
            (
                "cpu=3,mem=0,gpu=1 is within the limits",
                "raise the limit: ullage queues set small --limit cpu=4,mem=2Gi",
                "raise the limit: ullage queues set lab --limit gpu=2",
            ),
        ),
        (
            asking("cpu=2", 2),
            (
                "cpu=1.5,mem=0,gpu=0 is within the limits",
                "raise the limit: ullage queues set small --limit cpu=4,mem=2Gi",
            ),
        ),
        (asking("cpu=1", 2, application_max=1), ("allow application function max_instances of 2",)),
    ],
)
def test_why_says_what_helps_against_a_limit(demand, suggestions):
    world = World(Fleet(NODES), (demand,), queues=(LAB, SMALL))
    reasons = explain(world, Policy(), 0.0, "s")
    assert (reasons.code, reasons.cure, reasons.suggestions) == (Code.ABOVE_LIMIT, Cure.QUOTA, suggestions)
    assert reasons.summary.startswith("it is larger than a limit ever allows: it asks for ")
    assert [rejection.code for rejection in reasons.rejections] == [Code.ABOVE_LIMIT]
