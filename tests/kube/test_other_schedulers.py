"""Another scheduler on the same cards: HAMi's writes its choice on a pod, takes the lock of the node, and binds."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hami_node import ALLOCATED, GPU, HamiNode, HamiScheduler, hami_node, lock_of, remove
from tests.kube.test_device_plugins import CORES, MIB, READERS, a_pod, bind, notes, phase, settle
from tests.kube.test_front import Deaf, put, running
from ullage.kube.client.http import HttpKubeApi

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]

CARD_MIB = 16000


def half(name: str, **spec: Any) -> dict[str, Any]:
    return a_pod(name, {GPU: 1, MIB: CARD_MIB // 2, CORES: 50}, **spec)


def theirs(name: str) -> dict[str, Any]:
    return half(name, schedulerName="hami-scheduler")


def devices(uuid: str, mib: int = CARD_MIB // 2, cores: int = 50) -> str:
    return f"{uuid},NVIDIA,{mib},{cores}:;"


def cards(server: ApiServer, name: str) -> str:
    return notes(server, name).get("ullage.io/gpu-ids", "")


async def test_cards_that_hamis_scheduler_has_chosen_are_given_to_nobody_else(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=CARD_MIB))
    chosen, one, other, late = put(
        server, "pods", theirs("chosen"), a_pod("one", {GPU: 1}), a_pod("other", {GPU: 1}), half("late")
    )
    hami = HamiScheduler(api)
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        await hami.choose(chosen, "a", devices("A0"))
        await until(lambda: up.front.cluster.held(chosen["metadata"]["uid"]) is not None, "the choice is seen")
        assert await settle(up, one, ["a"])
        assert cards(server, "one") == "A1"
        assert not await settle(up, other, ["a"])
        await until(lambda: phase(server, one) == "Running", "its plugin has served it")
        assert await hami.try_lock(chosen, "a")
        await hami.bind(chosen, "a")
        await until(lambda: phase(server, chosen) == "Running", "its plugin has served it")
        assert await settle(up, late, ["a"]), "half of the card is left"
        assert cards(server, "late") == "A0"


async def test_a_choice_counts_until_it_changes_or_its_pod_is_gone(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=CARD_MIB), hami_node("b", "B0", mib=CARD_MIB))
    chosen, one, other = put(server, "pods", theirs("chosen"), a_pod("one", {GPU: 1}), a_pod("other", {GPU: 1}))
    hami, uid = HamiScheduler(api), chosen["metadata"]["uid"]
    await hami.choose(chosen, "a", devices("A0"))
    async with HamiNode(api, "a"), HamiNode(api, "b"), running(server, api, readers=READERS) as up:

        def held() -> tuple[str, ...]:
            return up.front.cluster.cards_of(uid)

        assert held() == ("A0",), "after a restart as well"
        await hami.choose(chosen, "b", devices("B0"))
        await until(lambda: held() == ("B0",), "it has chosen again")
        assert await settle(up, one, ["a", "b"])
        assert cards(server, "one") == "A0"
        assert not await settle(up, other, ["a", "b"])
        await remove(api, "chosen")
        await until(lambda: held() == (), "the pod is gone")
        assert await settle(up, other, ["a", "b"])


async def test_a_choice_that_says_nothing_closes_no_node(server: ApiServer, api: HttpKubeApi) -> None:
    """A pod without a node has nothing yet: only what can be read is kept for it."""
    put(server, "nodes", hami_node("a", "A0", mib=CARD_MIB))
    *pods, ours = put(server, "pods", *(theirs(f"p{number}") for number in range(4)), a_pod("ours", {GPU: 1}))
    written = [("a", "rubbish"), ("nowhere", devices("A0")), ("", devices("A0")), ("a", devices("X0"))]
    for pod, (node, choice) in zip(pods, written, strict=True):
        await HamiScheduler(api).choose(pod, node, choice)
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, ours, ["a"])


async def test_a_choice_of_a_scheduler_that_nobody_runs_holds_cards_for_a_limited_time(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=CARD_MIB))
    forged, ours = put(server, "pods", half("forged", schedulerName="nobody"), a_pod("ours", {GPU: 1}))
    async with HamiNode(api, "a"), running(server, api, readers=READERS, choice_s=0.5) as up:
        await HamiScheduler(api).choose(forged, "a", devices("A0"))
        pods = up.front.pods.objects
        await until(lambda: bool(pods["default", "forged"].metadata.annotations), "the choice is seen")
        await until(lambda: not up.front.cluster.cards_of(forged["metadata"]["uid"]), "no event of the pod ends it")
        assert await settle(up, ours, ["a"])


async def test_a_choice_that_a_pod_is_created_with_holds_nothing(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=CARD_MIB))
    (ours,) = put(server, "pods", a_pod("ours", {GPU: 1}))
    forged = half("forged", schedulerName="nobody")
    forged["metadata"]["annotations"] = {"hami.io/vgpu-node": "a", ALLOCATED: devices("A0")}
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        put(server, "pods", forged)
        await until(lambda: ("default", "forged") in up.front.pods.objects, "its creation is seen")
        assert await settle(up, ours, ["a"])


async def test_a_pod_of_ours_chooses_nothing_for_itself(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=CARD_MIB))
    forged, ours = put(server, "pods", half("forged"), a_pod("ours", {GPU: 1}))
    await HamiScheduler(api).choose(forged, "a", devices("A0"))
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, ours, ["a"])


@pytest.mark.parametrize("seen_before", [False, True])
async def test_what_was_bound_under_the_lock_counts_though_the_watch_is_behind(
    server: ApiServer, api: HttpKubeApi, *, seen_before: bool
) -> None:
    """The watch of pods may be behind that of nodes: a free lock does not say that its last pod is known."""
    put(server, "nodes", hami_node("a", "A0", "A1", mib=CARD_MIB))
    first, chosen, one, other = put(
        server, "pods", theirs("first"), theirs("chosen"), a_pod("one", {GPU: 1}), a_pod("other", {GPU: 1})
    )
    hami = HamiScheduler(api)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(HamiNode(api, "a"))
        if seen_before:
            await hami.choose(first, "a", devices("A1", 1000, 10))
            await remove(api, "first")
        up = await stack.enter_async_context(running(server, Deaf(api), readers=READERS))
        await hami.choose(chosen, "a", devices("A0"))
        assert await hami.try_lock(chosen, "a")
        await hami.bind(chosen, "a")
        await until(lambda: phase(server, chosen) == "Running", "its plugin has served it")
        assert await lock_of(api, "a") is None
        assert await bind(up, one, "a") == ""
        assert cards(server, "one") == "A1"
        await until(lambda: phase(server, one) == "Running", "its plugin has served it")
        assert "bind-no-room" in await bind(up, other, "a")
