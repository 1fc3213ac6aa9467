"""Guarantees that all nodes together cannot meet are named."""

from __future__ import annotations

import pytest

from ullage.model.guarantees import distinct, unmet_guarantees
from ullage.model.queue import parse_queue
from ullage.model.resources import Resources

THERE = Resources(8000, 16 << 30, 4000)
HAVE = "all nodes together have"
FIVE = f"all queues together are guaranteed gpu=5; {HAVE} gpu=4"


@pytest.mark.parametrize(
    ("queues", "sentences"),
    [
        ([("a", "root", "gpu=4,cpu=8")], {}),
        ([("a", "root", "gpu=5,cpu=9,mem=1g")], {"a": [f"queue a is guaranteed cpu=9,gpu=5; {HAVE} cpu=8,gpu=4"]}),
        ([("a", "root", "gpu=2"), ("b", "root", "gpu=3"), ("c", "root", "cpu=1")], {"a": [FIVE], "b": [FIVE]}),
        ([("a", "root", "gpu=4"), ("b", "a", "gpu=3"), ("c", "b", "gpu=2")], {}),
        ([("a", "root", "gpu=1"), ("b", "a", "gpu=2"), ("c", "a", "gpu=3")], {name: [FIVE] for name in "abc"}),
        (
            [("a", "root", "gpu=9"), ("b", "root", "gpu=1,cpu=5"), ("c", "root", "cpu=4")],
            {
                "a": [f"queue a is guaranteed gpu=9; {HAVE} gpu=4"],
                "b": [f"all queues together are guaranteed cpu=9; {HAVE} cpu=8"],
                "c": [f"all queues together are guaranteed cpu=9; {HAVE} cpu=8"],
            },
        ),
    ],
)
def test_a_guarantee_above_all_nodes_is_named_alone_or_in_the_sum(queues, sentences):
    found = unmet_guarantees([parse_queue(name, above, 1, amount, None) for name, above, amount in queues], THERE)
    assert found == sentences
    assert len(distinct(found)) == len({text for texts in sentences.values() for text in texts})


def test_nothing_is_unmet_while_there_is_no_node():
    assert unmet_guarantees([parse_queue("a", "root", 1, "gpu=5", None)], Resources()) == {}
