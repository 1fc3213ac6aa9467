"""Numbers lent to pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.core.books.lease import (
    DEVICE_INDICES,
    NODE_PORTS,
    NodePorts,
    NumberRange,
    NumberTaken,
    cluster_ports,
    device_indices,
)
from ullage.model.error import InvalidRequest


def test_the_lowest_free_port_is_lent_again():  # C88
    ports = NodePorts()
    assert [ports.take("node", "team", f"pod-{n}") for n in range(4)] == [40_000, 40_001, 40_002, 40_003]
    assert ports.release("team", "pod-2") == {"node": 40_002}
    assert ports.take("node", "team", "other") == 40_002
    assert ports.take("node", "team", "next") == 40_004


def test_after_the_last_device_index_comes_the_first():  # C89
    indices = device_indices()
    for n in range(128):
        assert indices.take("team", f"pod-{n}") == n + 1
        indices.release("team", f"pod-{n}")
    assert indices.take("team", "one more") == 1


def test_an_index_that_is_free_again_is_not_lent_at_once():
    indices = device_indices()
    assert indices.take("team", "a") == 1
    indices.release("team", "a")
    assert indices.take("team", "b") == 2


def test_round_robin_passes_over_what_is_lent_and_ends_when_all_is():
    indices = device_indices()
    first, last = DEVICE_INDICES
    assert [indices.take("team", f"{n}") for n in range(last)] == list(range(first, last + 1))
    assert indices.take("team", "too many") is None
    indices.release("team", "76")
    assert indices.take("team", "too many") == 77


def test_taking_again_and_giving_back_twice_change_nothing():
    ports = cluster_ports()
    assert ports.take("team", "pod") == ports.take("team", "pod") == 42_000
    assert (ports.release("team", "pod"), ports.release("team", "pod"), ports.lent) == (42_000, None, {})


def test_pods_of_one_name_in_two_namespaces_are_two():
    ports = cluster_ports()
    assert (ports.take("a", "pod"), ports.take("b", "pod")) == (42_000, 42_001)
    assert ports.release("a", "pod") == 42_000
    assert ports.lent == {("b", "pod"): 42_001}


def test_nodes_have_ports_of_their_own_and_a_pod_gives_all_of_them_back():
    ports = NodePorts(1, 2)
    assert (ports.take("x", "team", "pod"), ports.take("y", "team", "pod")) == (1, 1)
    assert (ports.take("x", "team", "other"), ports.take("x", "team", "third")) == (2, None)
    assert ports.release("team", "pod") == {"x": 1, "y": 1}
    assert ports.release("team", "pod") == {}
    assert ports.take("x", "team", "third") == 1


def test_what_was_recorded_is_lent_and_what_cannot_be_is_told():
    lease = NumberRange(1, 4)
    a, b, c = ("team", "a"), ("team", "b"), ("team", "c")
    misfits = lease.restore([(b, 2), (a, 2), (c, 9), (a, 2), (a, 3)])
    assert misfits == (NumberTaken(a, 3, a), NumberTaken(b, 2, a), NumberTaken(c, 9))
    assert lease.lent == {a: 2}
    assert [lease.take("team", pod) for pod in "abcde"] == [2, 1, 3, 4, None]


def test_restoring_node_ports_forgets_what_was_before():
    ports = NodePorts()
    ports.take("node", "team", "old")
    assert ports.restore([("node", ("team", "a"), NODE_PORTS[0]), ("node", ("team", "b"), 1)]) == (
        NumberTaken(("team", "b"), 1),
    )
    assert ports.take("node", "team", "old") == NODE_PORTS[0] + 1


def test_indices_go_on_after_the_largest_recorded_one():
    indices = device_indices()
    indices.restore([(("team", "a"), 7), (("team", "b"), 3)])
    assert indices.take("team", "c") == 8
    indices.restore([(("team", "a"), 128), (("team", "b"), 1)])
    assert indices.take("team", "c") == 2


def test_an_empty_range_is_invalid():
    with pytest.raises(InvalidRequest, match="last"):
        NumberRange(2, 1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))), st.booleans())
def test_no_number_is_lent_twice_and_restoring_what_is_lent_changes_nothing(steps, round_robin):
    lease, twin = NumberRange(1, 6, round_robin=round_robin), NumberRange(1, 6, round_robin=round_robin)
    for take, pod in steps:
        before = set(lease.lent.values())
        if not take:
            lease.release("team", str(pod))
        elif ("team", str(pod)) not in lease.lent:
            number = lease.take("team", str(pod))
            assert (number is None) == (len(before) == 6)
            assert number not in before
            if not round_robin and number is not None:
                assert number == min(set(range(1, 7)) - before)
        assert len(set(lease.lent.values())) == len(lease.lent)
    assert twin.restore([(pod, number) for pod, number in lease.lent.items()]) == ()
    assert twin.lent == lease.lent
