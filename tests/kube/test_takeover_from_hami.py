"""A cluster goes from HAMi's scheduler to Ullage and back while its pods run: the steps of the how-to."""

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hami_node import GPU, HamiNode, HamiScheduler, hami_node
from tests.kube.test_device_plugins import ALLOCATED, CORES, MIB, READERS, a_pod, notes, reported, settle
from tests.kube.test_front import Running, put, running
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import PODS

pytestmark = [pytest.mark.timeout(600), pytest.mark.anyio]
Document = dict[str, Any]

CARDS = {"a": ("GPU-a0", "GPU-a1"), "b": ("GPU-b0", "GPU-b1")}
CARD_MIB, THEIR_MIB = 16000, 1000


def seen_by_hami(server: ApiServer, names: Iterable[str]) -> Counter[str]:
    """MiB of each card that HAMi's scheduler counts: the devices of all pods that have a node by its annotation."""
    held = Counter[str]()
    for name in names:
        if "hami.io/vgpu-node" in notes(server, name) and ALLOCATED in notes(server, name):
            for uuid, mib, _ in (device for container in reported(server, name) for device in container):
                held[uuid] += mib
    return held


def booked(up: Running) -> Counter[str]:
    """MiB of each card in the books."""
    held = Counter[str]()
    for allocation in up.front.cluster.allocator.fleet.ledger.values():
        for card, charge in zip(allocation.gpus, allocation.charges, strict=True):
            held[card] += charge.vram // 2**20
    return held


def runs(server: ApiServer, name: str) -> bool:
    return bool(notes(server, name).get("hami.io/bind-phase") == "success")


async def by_hami(server: ApiServer, api: HttpKubeApi, names: Iterable[str], chance: random.Random) -> None:
    """HAMi's scheduler places pods where it sees room."""
    for name in names:
        (pod,) = put(server, "pods", a_pod(name, schedulerName="hami-scheduler"))
        held = seen_by_hami(server, [found.metadata.name async for page in api.pages(PODS) for found in page.items])
        places = [(node, uuid) for node, uuids in CARDS.items() for uuid in uuids if held[uuid] + THEIR_MIB <= CARD_MIB]
        await HamiScheduler(api).place(pod, *chance.choice(places))


async def by_ullage(up: Running, names: Iterable[str], chance: random.Random) -> list[str]:
    """Ullage places pods; return those that had room."""
    placed = []
    for name in names:
        limits = {GPU: 1, MIB: chance.randint(1000, 9000), CORES: chance.randint(1, 20)}
        (pod,) = put(up.server, "pods", a_pod(name, limits))
        if await settle(up, pod, list(CARDS)):
            placed.append(name)
    return placed


@pytest.mark.parametrize("seed", range(3))
async def test_no_pod_restarts_and_no_card_is_forgotten_on_the_way_there_and_back(
    server: ApiServer, api: HttpKubeApi, seed: int
) -> None:
    chance = random.Random(seed)
    put(server, "nodes", *(hami_node(name, *uuids, mib=CARD_MIB) for name, uuids in CARDS.items()))
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(HamiNode(api, name)) for name in CARDS]

        def granted() -> dict[tuple[str, str], list[tuple[str, int, int]]]:
            return {key: devices for node in nodes for key, devices in node.granted.items()}

        async def all_run(names: Iterable[str]) -> None:
            await until(lambda: all(runs(server, name) for name in names), "the plugin has served them")

        first = [f"hami-{number}" for number in range(6)]
        await by_hami(server, api, first, chance)
        await all_run(first)
        served = granted()

        async with running(server, api, readers=READERS) as up:  # step 1
            assert sum(booked(up).values()) == len(first) * THEIR_MIB
            assert booked(up) == seen_by_hami(server, first), "what HAMi's scheduler gave away is in the books"
            ours = await by_ullage(up, (f"ours-{number}" for number in range(4)), chance)  # step 2
            assert ours
            await all_run(ours)
            beside = [f"beside-{number}" for number in range(3)]
            await by_hami(server, api, beside, chance)
            await all_run(beside)
            known = [*first, *ours, *beside]
            await until(lambda: booked(up) == seen_by_hami(server, known), "both count the same")
            assert max(booked(up).values()) <= CARD_MIB

        async with running(server, api, readers=READERS) as up:  # step 3, after a restart
            ours += await by_ullage(up, (f"later-{number}" for number in range(8)), chance)
            await all_run(ours)
            known = [*first, *ours, *beside]
            assert booked(up) == seen_by_hami(server, known)
            assert max(booked(up).values()) <= CARD_MIB

        back = [f"back-{number}" for number in range(2)]  # given back
        await by_hami(server, api, back, chance)
        await all_run(back)
        assert max(seen_by_hami(server, [*known, *back]).values()) <= CARD_MIB
        assert granted().items() >= served.items(), "nobody was served again"
        assert [error for node in nodes for error in node.errors] == []
