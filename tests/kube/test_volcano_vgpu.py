"""Cards that Volcano's vGPU device plugin serves, whether Ullage or Volcano's scheduler placed their pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_device_plugins import notes, settle
from tests.kube.test_front import Running, put, running
from tests.kube.test_vendor_stories import held_by
from tests.kube.test_webhook import a_pod as new_pod
from tests.kube.test_webhook import admitted, answered, refused
from tests.kube.vendor_nodes import a_pod, card, registered
from tests.kube.volcano_node import (
    CORES,
    LOCK,
    MEMORY,
    NUMBER,
    PHASE,
    VolcanoNode,
    placed_by_volcano,
    volcano_node,
)
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES
from ullage.kube.mirror.cards import register_readers
from ullage.wire.vendors.shipped import FAMILIES

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NOW = 1_769_860_800.0
READERS = register_readers(FAMILIES, lambda: NOW)


def a_part(name: str, mib: int, cores: int = 10, number: int = 1, **more: Any) -> dict[str, Any]:
    return a_pod(name, {NUMBER: number, MEMORY: mib, CORES: cores}, **more)


def held(up: Running, pod: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """MiB and percent of the cores of each card that a pod holds by the books."""
    up.front.mirror.settle()
    found = held_by(up, pod["metadata"]["uid"])
    return {uuid: (amounts[1], amounts[0] // 10_000) for uuid, amounts in found.items() if amounts is not None}


def reasons(server: ApiServer) -> set[str]:
    """Those of all events."""
    there = server.do(lambda: server.store.at(server.store.revision))
    return {item["reason"] for (kind, *_), item in there.items() if kind == "events"}


async def lock_of(api: HttpKubeApi) -> str | None:
    return ((await api.get(NODES, "a")).metadata.annotations or {}).get(LOCK)


async def test_the_plugin_hands_out_the_cards_of_the_books(server: ApiServer, api: HttpKubeApi) -> None:
    """Two pods share a card, one has two cards, and one has its cards in the second of two containers."""
    put(server, "nodes", volcano_node("a", "G0", "G1", "G2"))
    second = a_pod("second", {"cpu": 1}, {NUMBER: 1, MEMORY: 9000})
    pods = put(server, "pods", a_part("one", 9000), a_part("two", 7000), a_part("pair", 6000, number=2), second)
    async with VolcanoNode(api, "a") as node, running(server, api, readers=READERS) as up:
        for pod in pods:
            assert await settle(up, pod, ["a"])
        await until(lambda: len(node.granted) == len(pods), "the plugin has answered")
        for pod in pods:
            name = pod["metadata"]["name"]
            granted = node.granted[name, "c1" if name == "second" else "c0"]
            assert {uuid: (mib, cores) for uuid, mib, cores in granted} == held(up, pod)
        assert not node.errors
        assert await lock_of(api) is None
        books = [held(up, pod) for pod in pods]
    async with running(server, api, readers=READERS) as up:
        assert [held(up, pod) for pod in pods] == books


async def test_one_pod_at_a_time_waits_for_its_devices(server: ApiServer, api: HttpKubeApi) -> None:
    """The plugin takes the oldest pod with that number of devices, whichever pod the kubelet admits."""
    put(server, "nodes", volcano_node("a", "G0", "G1"))
    first, next_ = put(server, "pods", a_part("first", 9000), a_part("next", 9000))
    async with VolcanoNode(api, "a") as node, running(server, api, readers=READERS) as up:
        node.hears.clear()
        assert await settle(up, first, ["a"])
        assert "node-locked" in await up.place(next_, ["a"])
        node.hears.set()
        assert await settle(up, next_, ["a"])
        await until(lambda: len(node.granted) == 2, "both have their devices")
        for pod in (first, next_):
            ((uuid, mib, cores),) = node.granted[pod["metadata"]["name"], "c0"]
            assert {uuid: (mib, cores)} == held(up, pod)


async def test_a_plugin_that_fails_is_an_event(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", volcano_node("a", "G0"))
    (pod,) = put(server, "pods", a_part("p", 9000))
    async with VolcanoNode(api, "a") as node, running(server, api, readers=READERS) as up:
        node.fails = True
        assert await settle(up, pod, ["a"])
        await until(lambda: notes(server, "p").get(PHASE) == "failed", "the plugin has answered")

        await until(lambda: "AllocationFailed" in reasons(server), "there is an event")
        assert await lock_of(api) is None


@pytest.mark.parametrize(
    "devices",
    ["G0,NVIDIA,9000,20:", "G0,NVIDIA,9000,20:;", "G0,NVIDIA,4000,10:;G0,NVIDIA,5000,10:", ";G0,NVIDIA,9000,20:"],
)
async def test_what_volcanos_scheduler_hands_out_is_held(server: ApiServer, api: HttpKubeApi, devices: str) -> None:
    put(server, "nodes", volcano_node("a", "G0"))
    limits = {NUMBER: 1, MEMORY: 9000, CORES: 20}
    notes = placed_by_volcano("a", devices, int(NOW))
    theirs, small, large = put(
        server,
        "pods",
        a_pod("theirs", limits, annotations=notes, nodeName="a", schedulerName="volcano"),
        a_part("small", 7000, 80),
        a_part("large", 1),
    )
    async with running(server, api, readers=READERS) as up:
        assert held(up, theirs) == {"G0": (9000, 20)}
        assert await up.place(small, ["a"]) == "!a"
        assert "refused" in await up.place(large, ["a"])


async def test_a_choice_of_another_node_closes_the_node(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", volcano_node("a", "G0"), volcano_node("b", "G1"))
    notes = placed_by_volcano("b", "G1,NVIDIA,9000,20:", int(NOW))
    put(server, "pods", a_part("theirs", 9000, annotations=notes, nodeName="a", schedulerName="volcano"))
    (pod,) = put(server, "pods", a_part("p", 1000))
    async with running(server, api, readers=READERS) as up:
        assert "refused" in await up.place(pod, ["a"])
        assert await up.place(pod, ["b"]) == "!b"


async def test_cards_in_slices_take_no_parts(server: ApiServer, api: HttpKubeApi) -> None:
    """Volcano's plugin divides such cards itself, by a protocol that is not spoken here."""
    put(server, "nodes", volcano_node("a", "G0", mode="mig"))
    (pod,) = put(server, "pods", a_part("p", 1000))
    async with running(server, api, readers=READERS) as up:
        assert "refused" in await up.place(pod, ["a"])
        assert "CardTypeMismatch" in str(await up.ask("filter", Pod=pod, NodeNames=["a"]))


async def test_a_card_that_two_plugins_register_is_served_by_one(server: ApiServer, api: HttpKubeApi) -> None:
    node = volcano_node("a", "G0")
    node["metadata"]["annotations"] |= registered("hami.io/node-nvidia-register", card("G0", 16000))
    put(server, "nodes", node)
    hami = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    pod, other = put(server, "pods", a_pod("p", hami), a_part("o", 1000))
    async with running(server, api, readers=READERS) as up:
        assert "refused" in await up.place(other, ["a"])
        assert await up.place(pod, ["a"]) == "!a"


async def test_cards_of_another_plugin_are_not_its_cards(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", volcano_node("a", "G0"))
    (pod,) = put(server, "pods", a_pod("p", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}))
    async with running(server, api, readers=READERS) as up:
        assert "refused" in await up.place(pod, ["a"])


# --- new pods ---


def container(**limits: int) -> dict[str, Any]:
    words = {"number": NUMBER, "memory": MEMORY, "cores": CORES}
    return {"name": "c", "resources": {"limits": {words[key]: str(value) for key, value in limits.items()}}}


def test_a_pod_that_states_an_amount_alone_gets_one_card() -> None:
    found = admitted(new_pod(containers=[container(memory=3000)]))
    assert found["spec"]["containers"][0]["resources"]["limits"] == {NUMBER: "1", MEMORY: "3000"}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (
            new_pod(containers=[container(number=1)], initContainers=[container(number=1) | {"name": "i"}]),
            "app containers",
        ),
        (
            new_pod(containers=[container(number=1)], initContainers=[container(memory=1) | {"name": "i"}]),
            "app containers",
        ),
        (new_pod(containers=[container(number=1)], annotations={"volcano.sh/vgpu-mode": "mig"}), "hami-core"),
        (new_pod(containers=[container(number=1, cores=101)]), "100"),
    ],
)
def test_what_cannot_be_meant_is_refused(pod: dict[str, Any], words: str) -> None:
    assert words in refused(pod)


def test_what_only_a_scheduler_writes_is_removed() -> None:
    forged = placed_by_volcano("a", "G0,NVIDIA,1,1:", int(NOW))
    found = admitted(new_pod(containers=[container(number=1)], annotations=forged))
    assert not forged.keys() & found["metadata"]["annotations"].keys()


def test_a_policy_of_volcanos_scheduler_has_no_effect() -> None:
    key = "volcano.sh/vgpu-podgroup-policy"
    (warning,) = answered(new_pod(containers=[container(number=1)], annotations={key: "spread"}))["warnings"]
    assert f"{key} has no effect" in warning
