"""The states of executors, nodes and tasks: every cell of their tables."""

from __future__ import annotations

from itertools import product

import pytest
from tests.lab import a_node

from ullage.model.error import Conflict
from ullage.model.executor import BindCode, ExecutorOperation, ExecutorState, apply
from ullage.model.gpu import Gpu
from ullage.model.node import Node, NodeState, move_node
from ullage.model.resources import Resources
from ullage.model.task import TaskState

S, O = ExecutorState, ExecutorOperation  # noqa: E741 - the columns of the table

TABLE = {
    S.VOID: {O.REGISTER: S.IDLE},
    S.IDLE: {O.BIND: S.BINDING, O.RELEASE: S.RELEASING},
    S.BINDING: {
        O.BIND: S.BINDING,
        O.BIND_COMPLETED: S.BOUND,
        O.BIND_FAILED: S.UNBINDING,
        O.UNBIND: S.UNBINDING,
        O.UNBIND_COMPLETED: S.IDLE,
        O.UNREGISTER: S.RELEASED,
    },
    S.BOUND: {O.LAUNCH_TASK: S.BOUND, O.COMPLETE_TASK: S.BOUND, O.UNBIND: S.UNBINDING},
    S.UNBINDING: {
        O.LAUNCH_TASK: S.UNBINDING,
        O.COMPLETE_TASK: S.UNBINDING,
        O.UNBIND: S.UNBINDING,
        O.UNBIND_COMPLETED: S.IDLE,
    },
    S.RELEASING: {O.UNREGISTER: S.RELEASED},
    S.RELEASED: {},
}
"""Section 2 of the reference, written down a second time."""


@pytest.mark.parametrize(
    ("state", "operation", "after"),
    [pytest.param(s, o, TABLE[s].get(o), id=f"{s} {o}") for s, o in product(ExecutorState, ExecutorOperation)],
)
def test_transitions_of_an_executor(state, operation, after):
    if after is None:
        with pytest.raises(Conflict) as refusal:
            apply(state, operation, "s")
        assert refusal.value.code == "wrong-state"
        assert f"that is {state} refuses {operation}" in refusal.value.message
    else:
        assert apply(state, operation, "s") is after


def test_a_bind_cannot_complete_without_a_session():
    with pytest.raises(Conflict, match="without a session"):
        apply(S.BINDING, O.BIND_COMPLETED, None)


def test_a_full_life():
    state = S.VOID
    steps = [O.REGISTER, O.BIND, O.BIND_COMPLETED, O.LAUNCH_TASK, O.COMPLETE_TASK, O.UNBIND, O.UNBIND_COMPLETED]
    for step in [*steps, O.RELEASE, O.UNREGISTER]:
        state = apply(state, step, "s")
    assert state is S.RELEASED


def test_bind_codes_are_those_of_the_reference():
    assert {code.name: int(code) for code in BindCode} == {
        "OK": 0,
        "INSTALL_FAILED": 10,
        "WORKER_FAILED": 11,
        "ENTER_FAILED": 12,
        "UNKNOWN": 19,
    }


@pytest.mark.parametrize(
    ("state", "to", "allowed"),
    [
        pytest.param(s, t, s is t or (s, t) != (NodeState.READY, NodeState.NOT_READY), id=f"{s} to {t}")
        for s, t in product(NodeState, NodeState)
        if (s, t) != (NodeState.NOT_READY, NodeState.UNKNOWN)
    ],
)
def test_transitions_of_a_node(state, to, allowed):
    if allowed:
        assert move_node(state, to) is to
    else:
        with pytest.raises(Conflict, match=f"from {state} to {to}"):
            move_node(state, to)


def test_a_node_that_is_not_ready_does_not_become_unknown():
    with pytest.raises(Conflict):
        move_node(NodeState.NOT_READY, NodeState.UNKNOWN)


@pytest.mark.parametrize(
    ("facts", "schedulable"),
    [
        ({}, True),
        ({"cordoned": True}, False),
        ({"state": NodeState.UNKNOWN}, False),
        ({"state": NodeState.NOT_READY}, False),
    ],
    ids=["ready", "cordoned", "unknown", "not ready"],
)
def test_work_is_placed_only_on_a_ready_node_that_is_not_cordoned(facts, schedulable):
    assert a_node(**facts).schedulable is schedulable


def test_allocatable_is_capacity_less_reserved_amounts_and_unhealthy_cards():
    cards = (Gpu("a", 0), Gpu("b", 1, healthy=False))
    node = Node("n", 8000, 100, cards, reserved=Resources(3000, 30))
    assert node.capacity == Resources(8000, 100, 2000)
    assert node.allocatable == Resources(5000, 70, 1000)


def test_more_reserved_than_there_is_leaves_nothing():
    assert Node("n", 8000, 100, reserved=Resources(9000, 101)).allocatable == Resources()


def test_a_task_ends_in_one_of_three_ways():
    assert {state for state in TaskState if state.terminal} == {
        TaskState.SUCCEED,
        TaskState.FAILED,
        TaskState.CANCELLED,
    }
