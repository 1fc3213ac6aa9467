"""What the books have of a pod that was bound here, when it is seen on its node for the first time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.hami_node import GPU, hami_node
from tests.kube.test_after_init import ENDED
from tests.kube.test_device_plugins import CORES, MIB
from tests.kube.test_device_plugins import a_pod as sharing
from tests.kube.test_unconfirmed import Process, World
from ullage.kube.client.errors import Unreachable
from ullage.model.allocation import AllocationState

pytestmark = pytest.mark.anyio

IDS = "ullage.io/gpu-ids"


def change(world: World, name: str, make: Any) -> None:
    world.server.rules.change(("pods", "default", name), make)


async def bound(world: World, fault: str) -> tuple[Process, dict[str, Any]]:
    """Have a pod bound to node `a`; with a `fault` the process does not learn that."""
    process, pod = await world.leader(), world.pod("p")
    await process.sync()
    if fault:
        with pytest.raises(Unreachable):
            await process.bind(pod, "a", fault)
    else:
        await process.bind(pod, "a")
    return process, pod


def held(process: Process, pod: dict[str, Any]) -> set[str]:
    process.mirror.settle()
    found = process.cluster.held(pod["metadata"]["uid"])
    assert found is not None
    assert found.state is AllocationState.BOUND
    return set(found.gpus)


@pytest.mark.parametrize("fault", ["", "back"])
async def test_a_record_that_was_changed_before_it_was_seen_adds_to_what_was_written(fault: str) -> None:
    world = World(a=4)
    process, pod = await bound(world, fault)
    given = world.cards("p")
    other = next(card for n in range(4) if (card := f"a/{GPU}/{n}") != given)
    change(
        world,
        "p",
        lambda item: {
            **item,
            "metadata": item["metadata"] | {"annotations": item["metadata"]["annotations"] | {IDS: other}},
        },
    )
    await process.sync()
    assert held(process, pod) >= {other}
    if not fault:
        assert held(process, pod) == {given, other}


async def test_a_pod_whose_init_containers_ended_before_it_was_seen_holds_what_they_left() -> None:
    world = World()
    world.server.rules.create("nodes", "", hami_node("a", "A0", mib=8000))
    process = await world.leader()
    body = sharing("p", {GPU: 1, MIB: 3000, CORES: 20}, init=({GPU: 1, MIB: 7000, CORES: 60},))
    pod = world.server.rules.create("pods", "default", body)
    await process.sync()
    with pytest.raises(Unreachable):
        await process.bind(pod, "a", "", "back")
    ended = {"name": "i0", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": ENDED}
    key = ("pods", "default", "p")
    world.server.rules.change(
        key, lambda item: {**item, "status": item["status"] | {"initContainerStatuses": [ended]}}, "status"
    )
    await process.sync()
    assert held(process, pod) == {"A0"}
    (charge,) = process.cluster.held(pod["metadata"]["uid"]).charges
    assert charge.vram // 2**20 == 3000


@pytest.mark.parametrize("fault", ["", "back", "there"])
async def test_nothing_is_kept_of_a_write_once_the_pod_is_seen_or_free(fault: str) -> None:
    world = World(a=1)
    process, _ = await bound(world, fault)
    await process.unconfirmed.controller.drain()
    await process.sync()
    assert not process.mirror._requests._written


async def test_a_pod_counts_the_same_in_its_quota_after_a_restart_while_its_node_is_away() -> None:
    world = World(a=4, b=1)
    process, pod = await world.leader(), world.pod("p", 2)
    await process.sync()
    await process.bind(pod, "a")
    world.server.rules.delete(("nodes", "", "a"), {})
    again = Process(world)
    for each in (process, again):
        await each.sync()
        if each is again:
            each.mirror.recover()
        each.mirror.settle()
    before, after = (each.cluster.allocator.fleet.usage["default"] for each in (process, again))
    assert before == after
    assert (after.compute_request, after.cores_ppm) == (0, 2_000_000)
