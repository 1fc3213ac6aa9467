"""What a session can never have is said, and what it may have later is not."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.limits import unreachable
from ullage.core.placing.policy import Policy
from ullage.core.sharing.reach import Reach
from ullage.core.sharing.world import Demand
from ullage.model.allocation import Allocation
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement

NODES = [a_node("n1", cpu=8, gpus=2), a_node("n2", cpu=4, gpus=1)]
TIGHT = (Queue("above", limit=Limit(cpu_milli=6000)), Queue("tight", parent="above"))
FIVE = "min_instances 5 is more than the nodes in service hold, even empty"


def never(resreq: str, queues: tuple[Queue, ...] = (Queue("default"),), **facts: object) -> str | None:
    demand = Demand("s", 1, ResourceRequirement.from_string(resreq), **facts)
    busy = [Allocation("other", "n1", ResourceRequirement.from_string("cpu=8,gpu=2"), ("GPU-n1-0", "GPU-n1-1"))]
    texts = {unreachable(Reach(Fleet(NODES, held), Policy(), queues), demand) for held in ([], busy)}
    (text,) = texts  # what others hold makes no difference
    return text


@pytest.mark.parametrize(
    ("resreq", "facts", "said"),
    [
        ("cpu=1,gpu=1", {"min_instances": 3}, None),
        ("cpu=1,gpu=1", {"min_instances": 5}, f"{FIVE}: 3 executors"),
        ("cpu=1,gpu=1", {"min_instances": 5, "batch_size": 2}, f"{FIVE}: 2 executors"),
        ("cpu=1", {"min_instances": 12}, None),
        ("cpu=1", {"batch_size": 12}, None),
        ("cpu=1,gpu=1", {"batch_size": 4}, None),  # the reason of the session is that it is too large
        ("cpu=1", {"min_instances": 3, "application_max": 3}, None),
        (
            "cpu=1",
            {"min_instances": 4, "application_max": 3},
            (
                "min_instances 4 never fits, even alone: "
                "it asks for 4 executors; there is a limit of 3 on application function"
            ),
        ),
    ],
)
def test_a_minimum_above_what_all_nodes_or_the_application_may_hold_is_named(
    resreq: str, facts: dict[str, object], said: str | None
):
    assert never(resreq, **facts) == said


def test_a_limit_above_the_queue_that_the_minimum_never_fits_is_named():
    assert never("cpu=2", TIGHT, queue="tight", batch_size=3) is None
    assert never("cpu=7", TIGHT, queue="tight", min_instances=2) is None  # the reason of the session is the limit
    assert never("cpu=2", TIGHT, queue="tight", min_instances=4) == (
        "min_instances 4 never fits, even alone: it asks for cpu=8 for 4 executors; "
        "there is a limit of cpu=6 on queue above"
    )


def test_the_answer_to_why_warns_of_a_minimum_that_is_never_reached():
    with Lab(a_node(cpu=2)) as lab:
        lab.session("s", min_instances=5)
        assert lab.why("s").warnings == (f"{FIVE}: 2 executors",)
        lab.service.sessions.update("s", {"min_instances": 2}, lambda: None)
        lab.pump()
        assert lab.why("s").warnings == ()
