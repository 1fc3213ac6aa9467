"""What a pod holds before, while and after its init containers run, and the same after a restart of the process."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hami_node import GPU, HamiNode, hami_node
from tests.kube.test_device_plugins import CORES, MIB, READERS, a_pod, notes, reported, settle
from tests.kube.test_front import Running, put, running
from ullage.kube.client.changes import Bind, Patch, PatchType
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import PODS

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

GONE: dict[str, tuple[int, int]] = {}
WAITING = {"waiting": {"reason": "PodInitializing"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED = {"terminated": {"exitCode": 1, "reason": "Error"}}
CRASHES = {"waiting": {"reason": "CrashLoopBackOff"}}
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def held(up: Running, pod: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """MiB and percent of the cores of each card that a pod holds by the books."""
    up.front.mirror.settle()
    found = up.front.cluster.held(pod["metadata"]["uid"])
    if found is None:
        return {}
    if not found.charges:
        return dict.fromkeys(found.gpus, (-1, -1))
    charges = zip(found.gpus, found.charges, strict=True)
    return {gpu: (charge.vram // 2**20, round(charge.compute / 3120)) for gpu, charge in charges}


async def say(up: Running, api: HttpKubeApi, name: str, *states: Any, **status: Any) -> None:
    """Report the states of init containers as a kubelet does, and wait until it is known here."""
    found = [{"name": f"i{at}", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
             for at, state in enumerate(states)]  # fmt: skip
    body = {"status": {"initContainerStatuses": found, **status}}
    await api.write(Patch(PODS, name, body, "default", PatchType.MERGE, "status"))
    pods = up.front.mirror._pods.objects

    def known() -> bool:
        seen = pods.get(("default", name))
        return seen is not None and seen.document["status"].items() >= body["status"].items()

    await until(known, "it is known here")


@asynccontextmanager
async def restarted(
    server: ApiServer, api: HttpKubeApi, pod: Mapping[str, Any], expected: Any
) -> AsyncIterator[Running]:
    async with running(server, api, readers=READERS) as up:
        assert held(up, pod) == expected
        yield up


async def test_what_init_containers_had_is_free_when_they_have_ended(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000))
    init = {GPU: 1, MIB: 7000, CORES: 60}, {GPU: 1, MIB: 4000, CORES: 10}
    pod, other = put(
        server,
        "pods",
        a_pod("p", {GPU: 1, MIB: 3000, CORES: 20}, init=init),
        a_pod("o", {GPU: 1, MIB: 5000, CORES: 80}),
    )
    peak, after = {"A0": (7000, 60)}, {"A0": (3000, 20)}
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        assert held(up, pod) == peak
        record = notes(server, "p")["ullage.io/allocation"]
    for states in ((WAITING, WAITING), (RUNS, WAITING), (ENDED, RUNS), (ENDED, FAILED), (ENDED, CRASHES)):
        async with restarted(server, api, pod, peak) as up:
            await say(up, api, "p", *states)
            assert held(up, pod) == peak
            assert not await settle(up, other, ["a"])
    async with restarted(server, api, pod, peak) as up, HamiNode(api, "a"):
        await say(up, api, "p", ENDED, ENDED)
        assert held(up, pod) == after
        assert await settle(up, other, ["a"]), "what was freed is offered"
    async with restarted(server, api, pod, after) as up:
        assert held(up, other) == {"A0": (5000, 80)}
        assert notes(server, "p")["ullage.io/allocation"] == record
        await say(up, api, "p", RUNS, WAITING)
        assert held(up, pod) == peak, "its init containers run again, as where its sandbox was replaced"
        await say(up, api, "p", ENDED, ENDED)
        assert held(up, pod) == after


async def test_sidecars_keep_what_they_have(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000))
    body = a_pod(
        "p", {GPU: 1, MIB: 1000, CORES: 20}, init=({GPU: 1, MIB: 2000, CORES: 10}, {GPU: 1, MIB: 6000, CORES: 50})
    )
    body["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    (pod,) = put(server, "pods", body)
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        assert held(up, pod) == {"A0": (8000, 60)}
        await say(up, api, "p", RUNS, ENDED)
        assert held(up, pod) == {"A0": (3000, 30)}
    async with restarted(server, api, pod, {"A0": (3000, 30)}):
        pass


async def test_the_condition_counts_where_no_init_container_is_reported(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000))
    (pod,) = put(server, "pods", a_pod("p", {GPU: 1, MIB: 1000, CORES: 5}, init=({GPU: 1, MIB: 6000, CORES: 50},)))
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        await say(up, api, "p", conditions=[{"type": "Initialized", "status": "True"}])
        assert held(up, pod) == {"A0": (1000, 5)}
        await say(up, api, "p", CRASHES, conditions=[{"type": "Initialized", "status": "True"}])
        assert held(up, pod) == {"A0": (6000, 50)}, "a status goes before the condition"


async def test_cards_of_init_containers_alone_are_free_where_the_plugin_is_directed(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000))
    two = ({GPU: 2, MIB: 6000, CORES: 50},)
    first, only, whole = put(
        server,
        "pods",
        a_pod("first", {GPU: 1, MIB: 1000, CORES: 5}, init=two),
        a_pod("only", {}, init=({GPU: 1, MIB: 2000, CORES: 5},), nodeSelector={}),
        a_pod("whole", {GPU: 1}),
    )
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, first, ["a"])
        assert sorted(held(up, first)) == ["A0", "A1"]
        assert await settle(up, only, ["a"])
        ((card, _),) = held(up, only).items()
        await say(up, api, "first", ENDED)
        (kept,) = held(up, first)
        assert held(up, first) == {kept: (1000, 5)}
        if card != kept:
            assert not await settle(up, whole, ["a"])
        await say(up, api, "only", ENDED)
        assert held(up, only) == GONE
        assert await settle(up, whole, ["a"])
        assert held(up, whole).keys() == {"A0", "A1"} - {kept}
    async with restarted(server, api, only, GONE) as up:
        assert held(up, first) == {kept: (1000, 5)}
        assert up.front.mirror.ready


async def test_a_whole_card_of_an_init_container_is_shared_afterwards(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000))
    pod, other = put(
        server, "pods", a_pod("p", {GPU: 1, MIB: 1000, CORES: 5}, init=({GPU: 1},)), a_pod("o", {GPU: 1, MIB: 7000})
    )
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        assert held(up, pod) == {"A0": (-1, -1)}
        assert not await settle(up, other, ["a"])
        await say(up, api, "p", ENDED)
        assert held(up, pod) == {"A0": (1000, 5)}
        assert await settle(up, other, ["a"])
    async with restarted(server, api, pod, {"A0": (1000, 5)}):
        pass


async def test_containers_that_stay_may_ask_in_two_units(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000))
    app = {GPU: 1, MIB: 1000, CORES: 5}, {GPU: 1, "nvidia.com/gpumem-percentage": 25, CORES: 10}
    (pod,) = put(server, "pods", a_pod("p", *app, init=({GPU: 1},)))
    after = sorted([(1000, 5), (2000, 10)])
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        assert set(held(up, pod).values()) == {(-1, -1)}
        await say(up, api, "p", ENDED)
        assert sorted(held(up, pod).values()) == after
        found = held(up, pod)
    async with restarted(server, api, pod, found):
        pass


async def test_cards_that_a_kubelet_keeps_until_the_pod_ends_stay_with_it(server: ApiServer, api: HttpKubeApi) -> None:
    node = hami_node("a", "A0", "A1", mib=8000)
    put(server, "nodes", node)
    (pod,) = put(server, "pods", a_pod("p", {GPU: 1}, init=({GPU: 2},)))
    await api.write(Bind("default", "p", pod["metadata"]["uid"], "a", {"ullage.io/gpu-ids": "A0,A1"}))
    async with running(server, api, readers=READERS) as up:
        await say(up, api, "p", ENDED)
        assert sorted(held(up, pod)) == ["A0", "A1"]


async def test_pods_that_others_placed_shrink_too(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000))
    (pod,) = put(server, "pods", a_pod("p", {GPU: 1, MIB: 1000, CORES: 5}, init=({GPU: 2, MIB: 6000, CORES: 50},)))
    written = "A0,NVIDIA,6000,50:A1,NVIDIA,6000,50:;A0,NVIDIA,1000,5:;"
    placed = {"hami.io/vgpu-devices-allocated": written, "hami.io/vgpu-node": "a"}
    await api.write(Bind("default", "p", pod["metadata"]["uid"], "a", placed))
    async with running(server, api, readers=READERS) as up:
        assert held(up, pod) == {"A0": (6000, 50), "A1": (6000, 50)}
        await say(up, api, "p", ENDED)
        assert held(up, pod) == {"A0": (1000, 5)}
    async with restarted(server, api, pod, {"A0": (1000, 5)}) as up:
        await say(up, api, "p", CRASHES)
        assert held(up, pod) == {"A0": (6000, 50), "A1": (6000, 50)}


@pytest.mark.parametrize("seed", range(3))
async def test_no_card_holds_less_than_its_running_containers_have(
    server: ApiServer, api: HttpKubeApi, seed: int
) -> None:
    """Of random pods with init containers and sidecars, on nodes where they share cards and where they do not."""
    chance = random.Random(seed)
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000), hami_node("b", "B0", mib=8000))

    def limits() -> dict[str, int]:
        memory = {MIB: chance.randint(100, 2500)}
        return {GPU: chance.choice([1, 1, 2])} | memory | {CORES: chance.randint(1, 20)}

    bodies = []
    for number in range(8):
        containers = [limits(), *(chance.choice([{}, limits()]) for _ in range(chance.randint(0, 1)))]
        body = a_pod(f"p{number}", *containers, init=tuple(limits() for _ in range(chance.randint(1, 3))))
        for each in body["spec"]["initContainers"]:
            each.update({"restartPolicy": "Always"} if chance.random() < 0.3 else {})
        bodies.append(body)
    pods = put(server, "pods", *bodies)
    async with HamiNode(api, "a"), HamiNode(api, "b"), running(server, api, readers=READERS) as up:
        placed = [pod for pod in pods if await settle(up, pod, ["a", "b"])]
        assert placed
        for pod in placed:
            init = pod["spec"]["initContainers"]
            await say(up, api, pod["metadata"]["name"], *(RUNS if "restartPolicy" in each else ENDED for each in init))
        after = {pod["metadata"]["name"]: held(up, pod) for pod in placed}
        for pod in placed:
            name, spec = pod["metadata"]["name"], pod["spec"]
            stays = ["restartPolicy" in each for each in spec["initContainers"]] + [True] * len(spec["containers"])
            needs: dict[str, tuple[int, int]] = {}
            for is_there, devices in zip(stays, reported(server, name), strict=True):
                for uuid, mib, cores in devices if is_there else ():
                    had = needs.get(uuid, (0, 0))
                    needs[uuid] = had[0] + mib, had[1] + cores
            assert after[name] == needs
    async with running(server, api, readers=READERS) as up:
        assert {pod["metadata"]["name"]: held(up, pod) for pod in placed} == after
