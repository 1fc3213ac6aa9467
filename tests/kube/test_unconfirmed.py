"""Binds whose outcome is not known, one by one: what is kept, what is freed, and what comes too late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from tests.kube.faults import FaultyApi, Server
from tests.kube.test_front import a_node, a_pod
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.changes import Bind, Change, Patch
from ullage.kube.client.errors import ApiForbidden, Unreachable
from ullage.kube.client.kinds import LEASES
from ullage.kube.client.lease import Candidate
from ullage.kube.controller import ALL
from ullage.kube.leader.unconfirmed import GIVE_UP_S
from ullage.kube.mirror.cards import RegisteredCards
from ullage.model.allocation import AllocationState
from ullage.model.error import Conflict, Unavailable
from ullage.wire.extender import BindArgs

pytestmark = pytest.mark.anyio


class Process:
    """A process before the server of the test, whose clock the test moves."""

    def __init__(self, world: World) -> None:
        self.api, self.errors = FaultyApi(world.server), list[str]()
        candidate = Candidate(self.api, "ullage", "default", clock=lambda: world.now)  # type: ignore[arg-type]  # a fake of the cluster
        front = make_front(
            self.api,  # type: ignore[arg-type]  # a fake of the cluster
            candidate,
            Rules(),
            FrontSettings(readers=[RegisteredCards()]),
            clock=lambda: world.now,
            on_error=lambda _kind, name, error: self.errors.append(f"{name}: {error.code}"),
        )
        self.candidate, self.cluster, self.mirror, self.unconfirmed = (
            candidate,
            front.cluster,
            front.mirror,
            front.unconfirmed,
        )
        self.nodes, self.pods, self.extender, self.takeover = front.nodes, front.pods, front.extender, front.takeover
        self.context, self.release = front.context, front.release
        self.unconfirmed._pause = world.pause
        self.world = world

    async def sync(self) -> None:
        await self.nodes.catch_up()
        await self.pods.catch_up()

    async def lead(self) -> None:
        await self.sync()
        if not self.mirror.ready:
            self.mirror.recover()
        await self.candidate.attempt()
        if self.candidate.epoch is None:
            self.world.now += 16
            await self.candidate.attempt()
        assert self.candidate.epoch is not None
        await self.takeover.controller.drain()

    async def bind(self, pod: dict[str, Any], node: str, *faults: str) -> None:
        self.api.faults = list(faults)
        meta = pod["metadata"]
        try:
            await self.extender.bind(BindArgs(meta["name"], "default", meta["uid"], node))
        finally:
            self.api.faults = []

    def state(self, pod: dict[str, Any]) -> AllocationState | None:
        held = self.cluster.held(pod["metadata"]["uid"])
        return held.state if held is not None else None


class World:
    """One server, and its pods."""

    def __init__(self, **gpus: int) -> None:
        self.server, self.now = Server(), 1000.0
        for name, count in gpus.items():
            self.server.rules.create("nodes", "", a_node(name, count))

    async def pause(self, seconds: float) -> None:
        self.now += seconds

    async def leader(self) -> Process:
        process = Process(self)
        await process.lead()
        return process

    def pod(self, name: str, gpus: int = 1) -> dict[str, Any]:
        return self.server.rules.create("pods", "default", a_pod(name, gpus))

    def node_of(self, name: str) -> str:
        return str(self.server.rules.get(("pods", "default", name))["spec"].get("nodeName", ""))

    def cards(self, name: str) -> str:
        return str(self.server.rules.get(("pods", "default", name))["metadata"]["annotations"]["ullage.io/gpu-ids"])

    @property
    def holder(self) -> str | None:
        found = self.server.rules.get((LEASES.plural, "default", "ullage"))["spec"].get("holderIdentity")
        return found if found is None else str(found)


@pytest.mark.parametrize("fault", ["there", "failed"])
async def test_cards_of_a_bind_that_failed_stay_reserved_until_that_is_certain(fault: str):
    world = World(a=1)
    up, first, second = await world.leader(), world.pod("first"), world.pod("second")
    with pytest.raises(Unavailable):
        await up.bind(first, "a", fault)
    assert up.state(first) is AllocationState.ASSUMED
    with pytest.raises(Conflict, match="no room"):
        await up.bind(second, "a")
    await up.unconfirmed.controller.drain()
    assert up.state(first) is None
    await up.bind(second, "a")
    assert world.node_of("second") == "a"


@pytest.mark.parametrize("fault", ["back", "failed-done"])
async def test_a_bind_that_took_effect_is_found(fault: str):
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    with pytest.raises(Unavailable):
        await up.bind(pod, "a", fault)
    await up.unconfirmed.controller.drain()
    assert up.state(pod) is AllocationState.BOUND
    assert up.unconfirmed.count == 0


@pytest.mark.parametrize("fault", ["throttled"])
async def test_cards_of_a_refused_bind_are_free_at_once(fault: str):
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    with pytest.raises(Unavailable):
        await up.bind(pod, "a", fault)
    assert (up.state(pod), up.unconfirmed.count) == (None, 0)


async def test_a_bind_that_comes_late_is_refused_once_its_cards_are_free():
    world = World(a=1)
    up, first, second = await world.leader(), world.pod("first"), world.pod("second")
    with pytest.raises(Unreachable):
        await up.bind(first, "a", "late")
    await up.unconfirmed.controller.drain()
    await up.bind(second, "a")
    world.server.deliver(0)
    assert (world.node_of("first"), world.node_of("second")) == ("", "a")


async def test_a_bind_of_a_leader_that_has_gone_is_refused_when_it_comes_late():
    world = World(a=1)
    gone, first, second = await world.leader(), world.pod("first"), world.pod("second")
    with pytest.raises(Unreachable):
        await gone.bind(first, "a", "late")
    up = await world.leader()
    await up.bind(second, "a")
    world.server.deliver(0)
    assert (world.node_of("first"), world.node_of("second")) == ("", "a")


async def test_a_bind_with_an_unknown_outcome_can_be_requested_again_elsewhere():
    world = World(a=1, b=1)
    up, pod = await world.leader(), world.pod("p")
    with pytest.raises(Unreachable):
        await up.bind(pod, "a", "late")
    await up.bind(pod, "b")
    world.server.deliver(0)
    assert world.node_of("p") == "b"
    await up.sync()
    assert [held.node for held in up.cluster.allocator.fleet.ledger.values()] == ["b"]


async def test_a_bind_of_another_leader_replaces_a_reservation():
    world = World(a=2)
    old, first, second = await world.leader(), world.pod("first"), world.pod("second")
    with pytest.raises(Unreachable):
        await old.bind(first, "a", "there")
    up = await world.leader()
    await up.bind(second, "a")
    await up.bind(first, "a")
    await old.lead()
    assert {held.gpus for held in old.cluster.allocator.fleet.ledger.values()} == {
        (world.cards("first"),),
        (world.cards("second"),),
    }


async def test_nothing_is_decided_in_a_term_that_has_not_begun():
    world = World(a=1)
    up, pod = Process(world), world.pod("p")
    await up.sync()
    up.mirror.recover()
    await up.candidate.attempt()
    assert up.candidate.epoch == 1
    assert up.extender.unready
    with pytest.raises(Unavailable) as caught:
        await up.bind(pod, "a")
    assert caught.value.code == "not-ready"
    await up.takeover.controller.drain()
    await up.bind(pod, "a")


async def test_a_term_that_cannot_begin_is_tried_again_until_it_does():
    world = World(a=1)
    up = Process(world)
    await up.sync()
    up.mirror.recover()
    await up.candidate.attempt()
    up.pods.catch_up = AsyncMock(side_effect=[Unreachable("lost"), Unreachable("lost"), None])  # type: ignore[method-assign]  # the test replaces it
    for _ in range(2):
        await up.takeover.controller.drain()
        assert up.mirror.term is None
        assert str(up.takeover.controller.error_of(ALL)) == "lost"
    assert up.errors == ["all: kube-unreachable"], "it is reported once"
    await up.takeover.controller.drain()
    assert (up.mirror.term, up.takeover.controller.error_of(ALL)) == (up.candidate.epoch, None)


async def test_a_term_that_was_handed_over_begins_without_a_write_and_any_other_sees_to_all_that_wait():
    world = World(a=1)
    first, pod = await world.leader(), world.pod("p")
    await first.release()
    assert world.holder is None
    before = world.server.rules.get(("pods", "default", "p"))
    second = await world.leader()
    assert world.server.rules.get(("pods", "default", "p")) == before
    await world.leader()
    assert world.server.rules.get(("pods", "default", "p")) != before
    with pytest.raises(Unavailable) as caught:
        await second.bind(pod, "a")
    assert caught.value.code == "not-leading"


async def test_the_lease_is_kept_while_an_outcome_is_unknown_and_in_a_term_that_has_not_begun():
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    with pytest.raises(Unreachable):
        await up.bind(pod, "a", "there")
    await up.release()
    assert world.holder == up.candidate.identity
    await up.unconfirmed.controller.drain()
    await up.release()
    assert world.holder is None
    other = Process(world)
    await other.candidate.attempt()
    await other.release()
    assert world.holder == other.candidate.identity


class Guarded(FaultyApi):
    """Nobody may change a pod here."""

    async def write(self, change: Change) -> bytes:
        if isinstance(change, Patch):
            raise ApiForbidden("pods are not to be changed")
        return await super().write(change)


async def test_where_pods_cannot_be_patched_time_decides_and_it_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.kube.test_unconfirmed.FaultyApi", Guarded)
    world = World(a=1)
    pod, began = world.pod("p"), world.now
    up = Process(world)
    up.candidate._terms = type(up.candidate._terms)(10**6, 1.0, 10**5)
    await up.lead()
    assert (up.extender.unready, up.errors) == ("", ["default/p: kube-forbidden"])
    assert world.now - began >= GIVE_UP_S
    with pytest.raises(Unreachable):
        await up.bind(pod, "a", "there")
    await up.unconfirmed.controller.drain()
    assert up.state(pod) is AllocationState.ASSUMED
    assert len(up.errors) == 2, "the first attempt is reported"
    world.now += GIVE_UP_S
    await up.unconfirmed.controller.drain()
    assert up.state(pod) is None
    assert len(up.errors) == 3, "the last one too"


async def test_a_pod_that_was_deleted_before_the_watch_reported_it_holds_nothing():
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    await up.bind(pod, "a")
    world.server.rules.delete(("pods", "default", "p"), {"gracePeriodSeconds": 0})
    await up.sync()
    for _ in range(9):
        await up.candidate.attempt()
        await up.unconfirmed.controller.drain()
        world.now += 8
    assert up.state(pod) is None


class Slow(FaultyApi):
    """Binds wait until they may go on; what is done before each of them comes from the test."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.gate, self.asked, self.before = asyncio.Event(), asyncio.Event(), list[Callable[[], Any]]()
        self.binds = 0

    async def write(self, change: Change) -> bytes:
        if isinstance(change, Bind):
            self.binds += 1
            self.asked.set()
            await self.gate.wait()
            if self.before:
                self.before.pop(0)()
        return await super().write(change)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.kube.test_unconfirmed.FaultyApi", Slow)


async def test_two_concurrent_binds_are_answered_twice_and_bind_once(slow: None):
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    both = [asyncio.create_task(up.bind(pod, "a")) for _ in range(2)]
    await up.api.asked.wait()
    up.api.gate.set()
    await asyncio.gather(*both)
    assert up.api.binds == 1


async def test_a_bind_that_is_cancelled_has_an_unknown_outcome(slow: None):
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    asked = asyncio.create_task(up.bind(pod, "a"))
    await up.api.asked.wait()
    assert not up.unconfirmed.quiet
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (up.state(pod), up.unconfirmed.count) == (AllocationState.ASSUMED, 1)
    await up.unconfirmed.controller.drain()
    assert up.state(pod) is None


def annotated(world: World, name: str, **notes: str) -> Callable[[], Any]:
    """What gives a pod other annotations."""
    metadata = {"annotations": {"new": "yes", **notes}}
    return lambda: world.server.rules.change(
        ("pods", "default", name), lambda pod: {**pod, "metadata": pod["metadata"] | metadata}
    )


@pytest.mark.parametrize(
    ("cards", "more"), [(1, {"ullage.io/gpu-model": "B200"}), (0, {"ullage.io/gpu-count": "1"})], ids=["cards", "none"]
)
async def test_a_pod_that_changed_meanwhile_is_bound_if_it_asks_for_the_same(
    slow: None, cards: int, more: dict[str, str]
):
    world = World(a=2)
    up, same, other = await world.leader(), world.pod("same", cards), world.pod("other", cards)
    up.api.gate.set()

    up.api.before = [annotated(world, "same")]
    await up.bind(same, "a")
    assert world.node_of("same") == "a"
    up.api.before = [annotated(world, "other", **more)]
    with pytest.raises(Conflict):
        await up.bind(other, "a")
    assert (world.node_of("other"), up.state(other), up.unconfirmed.count) == ("", None, 0)


async def test_an_answer_that_the_watch_has_overtaken_enters_nothing():
    world = World(a=1)
    up, first, second = await world.leader(), world.pod("first"), world.pod("second")
    await up.bind(first, "a")
    await up.sync()
    get = up.api.get

    async def overtaken(*asked: Any) -> Any:
        found = await get(*asked)
        world.server.rules.delete(("pods", "default", "first"), {"gracePeriodSeconds": 0})
        await up.sync()
        return found

    up.api.get = overtaken  # type: ignore[method-assign]  # the test replaces it
    await up.bind(first, "a")
    assert up.state(first) is None
    up.api.get = get  # type: ignore[method-assign]  # the test replaces it
    await up.bind(second, "a")
    assert world.node_of("second") == "a"


async def test_an_answer_of_before_a_pod_has_finished_enters_nothing():
    world = World(a=1)
    up, pod = await world.leader(), world.pod("p")
    await up.bind(pod, "a")
    await up.sync()
    get = up.api.get

    async def overtaken(*asked: Any) -> Any:
        found = await get(*asked)
        finished = {"status": {"phase": "Succeeded"}}
        world.server.rules.change(("pods", "default", "p"), lambda item: item | finished, "status")
        await up.sync()
        return found

    up.api.get = overtaken  # type: ignore[method-assign]  # the test replaces it
    await up.bind(pod, "a")
    assert up.state(pod) is None
