"""The cards that another scheduler chose for a pod it has not bound: for how long and of whom a choice is believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kube.fake_informer import FakeInformer
from tests.kube.test_mirror import GPU, a_node
from ullage.core.placing.rules import Rules
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.context import KubeContext
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.mirror.mirror import Mirror
from ullage.kube.mirror.nodes import CardSources
from ullage.model.claim import Claim, Request
from ullage.model.request import ResourceRequirement
from ullage.service.cluster import Cluster

pytestmark = pytest.mark.anyio

CARD_MIB, NOW, LIMIT_S = 16_000, 1_700_000_000, 60.0


def devices(*cards: str, mib: int | str = CARD_MIB // 2) -> str:
    return "".join(f"{card},NVIDIA,{mib},50:" for card in cards) + ";"


def chosen(
    written: str = devices("A0"), *, name: str = "p", node: str = "a", at: int | str = NOW, **limits: str
) -> dict[str, Any]:
    """A pod of a scheduler that nobody runs."""
    notes = {"hami.io/vgpu-node": node, "hami.io/vgpu-time": str(at), "hami.io/vgpu-devices-allocated": written}
    container = {"name": "c", "resources": {"limits": limits or {GPU: "1", "nvidia.com/gpumem": str(CARD_MIB // 2)}}}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {"schedulerName": "nobody", "containers": [container]},
        "status": {"phase": "Pending"},
    }


def blank(pod: dict[str, Any]) -> dict[str, Any]:
    """The same pod before its scheduler has seen it."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {}}}


class World:
    """A mirror whose clocks the test sets."""

    def __init__(self) -> None:
        self.nodes, self.pods, self.passed_s = FakeInformer(NODES), FakeInformer(PODS), 0.0
        self.nodes.put(a_node("a", "A0", "A1", mib=CARD_MIB))
        self.nodes.put(a_node("b", "B0", mib=CARD_MIB))
        self.begin()

    def begin(self) -> None:
        """A process that starts now."""
        self.cluster = Cluster(Rules(workers_per_node=None), lambda: self.passed_s, lambda: NOW + self.passed_s)
        context = KubeContext(
            api=cast("Any", None),
            candidate=cast("Any", None),
            cluster=self.cluster,
            followed=cast("Any", SimpleNamespace(nodes=self.nodes, pods=self.pods, topologies=None)),
            clock=lambda: self.passed_s,
            now=lambda: NOW + self.passed_s,
        )
        self.mirror = Mirror(context, CardSources([RegisteredCards()]), choice_s=LIMIT_S)
        self.mirror.recover()

    async def after(self, seconds: float) -> None:
        """Let time pass, without any event of a pod."""
        self.passed_s += seconds
        await self.mirror.choices.controller.drain()

    def write(self, pod: dict[str, Any]) -> None:
        """Its scheduler writes its choice on a pod that it has seen."""
        self.pods.put(blank(pod), created=True)
        self.pods.put(pod)

    @property
    def held(self) -> tuple[str, ...]:
        return self.cluster.cards_of("uid-p")


async def test_a_choice_that_is_not_bound_counts_at_once_and_for_a_limited_time() -> None:
    world = World()
    world.write(chosen())
    assert world.held == ("A0",)
    await world.after(LIMIT_S - 1)
    assert world.held == ("A0",)
    world.pods.put(chosen() | {"status": {"phase": "Pending", "reason": "Waits"}})
    await world.after(1)
    assert world.held == (), "an event of the pod that changes no choice gives it no more time"
    world.pods.put(chosen() | {"status": {"phase": "Pending"}})
    assert world.held == ()


async def test_what_is_freed_when_a_choice_ends_changes_the_version_of_the_books() -> None:
    world = World()
    world.write(chosen())
    before = world.cluster.version
    await world.after(LIMIT_S)
    assert world.cluster.version != before, "else a queue would not decide again"


async def test_a_scheduler_that_chooses_again_has_its_time_again() -> None:
    world = World()
    world.write(chosen())
    await world.after(LIMIT_S - 1)
    world.pods.put(chosen(at=NOW + 59))
    await world.after(LIMIT_S - 1)
    assert world.held == ("A0",)
    world.pods.put(chosen(devices("B0"), node="b"))
    assert world.held == ("B0",)
    await world.after(LIMIT_S)
    assert world.held == ()


async def test_a_pod_that_is_bound_after_its_choice_has_ended_holds_its_cards() -> None:
    world = World()
    world.write(pod := chosen())
    await world.after(LIMIT_S)
    world.pods.put(pod | {"spec": {**pod["spec"], "nodeName": "a"}})
    await world.after(LIMIT_S)
    assert world.held == ("A0",)


def test_a_choice_that_a_pod_was_created_with_is_not_one() -> None:
    world = World()
    world.pods.put(chosen(), created=True)
    assert world.held == ()
    world.pods.put(chosen() | {"status": {"phase": "Pending", "reason": "Waits"}})
    assert world.held == ()
    world.pods.put(chosen(at=NOW + 1))
    assert world.held == ("A0",), "its scheduler has chosen"


@pytest.mark.parametrize(
    ("at", "left_s"), [(NOW - 20, 40), (NOW - 60, 0), (NOW + 10**9, 60), ("", 60), ("9" * 400, 60), ("-5", 60)]
)
async def test_at_a_restart_the_time_that_a_choice_states_counts_unless_it_is_still_to_come(
    at: int | str, left_s: int
) -> None:
    world = World()
    world.write(chosen(at=at))
    world.begin()
    assert world.held == (("A0",) if left_s else ())
    await world.after(left_s / 2)
    assert world.held == (("A0",) if left_s else ())
    await world.after(left_s / 2)
    assert world.held == ()


@pytest.mark.parametrize(
    "pod",
    [
        chosen(cpu="1"),
        chosen(devices("A0", "A1")),
        chosen(devices("A0", "A1"), **{GPU: "1", "nvidia.com/gpumem": "1.5"}),
        chosen(devices("A0", "B0"), **{GPU: "2"}),
        chosen(devices("B0")),
        chosen(devices("X0")),
        chosen(devices("A0", mib="-1")),
        chosen(devices("A0", mib="9" * 30)),
        chosen(devices(*["A0"] * 5000)),
        chosen("A0"),
        chosen(node="nowhere"),
        chosen(node=""),
    ],
    ids=[
        *("no card requested", "more cards than requested", "more than an unreadable request", "cards of two nodes"),
        *("another node's card", "nobody's card", "a negative amount", "a huge amount", "a huge number of devices"),
        *("not readable", "no such node", "no node"),
    ],
)
def test_a_choice_that_no_scheduler_would_make_holds_nothing(pod: dict[str, Any]) -> None:
    world = World()
    world.write(pod)
    assert world.held == ()
    assert not world.cluster.allocator.fleet.ledger


def test_more_memory_than_the_card_has_is_all_of_it() -> None:
    world = World()
    world.write(chosen(devices("A0", mib=2**31 - 1)))
    (held,) = world.cluster.held_by_family("uid-p")
    assert [charge.vram for charge in held.charges] == [CARD_MIB * 2**20]


def test_a_choice_of_a_pod_whose_request_cannot_be_read_counts_for_the_devices_that_it_requests() -> None:
    world = World()
    world.write(chosen(**{GPU: "1", "nvidia.com/gpumem": "1.5"}))
    assert world.held == ("A0",)
    world.write(chosen(devices("A1"), name="p", **{"nvidia.com/gpumem": "1.5"}))
    assert world.held == ("A1",)


def test_a_pod_with_a_choice_is_no_victim() -> None:
    """It is on no node yet: kube-scheduler refuses to evict a pod from a node where it does not find it."""
    world = World()
    world.write(chosen(devices("B0"), node="b"))
    asked = Request("asks", ResourceRequirement(gpu_count=1), Claim("default", priority=10))
    assert not world.cluster.victims(asked, {"b": ()})
    pod = chosen(devices("B0"), node="b")
    world.pods.put(pod | {"spec": {**pod["spec"], "nodeName": "b"}})
    assert list(world.cluster.victims(asked, {"b": ()})) == ["b"]


async def test_choices_of_pods_that_are_gone_leave_nothing_behind() -> None:
    world = World()
    world.write(chosen())
    world.pods.drop("p", "default")
    assert world.held == ()
    await world.after(LIMIT_S)
    assert len(world.mirror.choices.controller) == 0
