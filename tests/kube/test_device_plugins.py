"""Cards that HAMi's plugin hands out: the chosen ones, whatever else binds pods, and whichever process dies."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from tests.kube.at_work import at_work
from tests.kube.audience import running as informing
from tests.kube.conftest import Cluster, until
from tests.kube.hami_node import (
    GPU,
    LOCK,
    PHASE,
    HamiNode,
    HamiScheduler,
    create,
    hami_node,
    lock_of,
    put_lock,
    remove,
)
from tests.kube.test_front import Running, a_node, cards_of, put, running
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Bind, Change, Create, Delete, Patch, PatchType
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.lease import Candidate, LeaseTerms
from ullage.kube.context import KubeContext
from ullage.kube.device_plugins import DevicePlugins, PluginTerms
from ullage.kube.followed import Followed
from ullage.kube.front import Front
from ullage.kube.mirror.cards import RegisteredCards
from ullage.model.error import Conflict
from ullage.service.cluster import Cluster as Books
from ullage.wire.extender import BindArgs
from ullage.wire.hami.lock import OWNER

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

ALLOCATED = "hami.io/vgpu-devices-allocated"
MIB, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
READERS = [RegisteredCards()]


def a_pod(name: str, *containers: dict[str, int], init: tuple[dict[str, int], ...] = (), **spec: Any) -> dict[str, Any]:
    """A pod whose containers have these limits."""

    def made(prefix: str, limits: tuple[dict[str, int], ...]) -> list[dict[str, Any]]:
        amounts = [{key: str(value) for key, value in each.items()} for each in limits]
        return [
            {"name": f"{prefix}{at}", "image": "x", "resources": {"limits": each, "requests": each}}
            for at, each in enumerate(amounts)
        ]

    body = {"containers": made("c", containers or ({GPU: 1, MIB: 1000},)), "schedulerName": "ullage"} | spec
    if init:
        body["initContainers"] = made("i", init)
    return {"metadata": {"name": name, "namespace": "default"}, "spec": body, "status": {"phase": "Pending"}}


def notes(server: ApiServer, name: str) -> dict[str, str]:
    pod = server.do(lambda: server.rules.get(("pods", "default", name)))
    return pod["metadata"].get("annotations", {})


def reported(server: ApiServer, name: str) -> list[list[tuple[str, int, int]]]:
    """What was written for each container: uuid, MiB and percent."""
    return [
        [(uuid, int(mib), int(cores)) for uuid, _, mib, cores in (each.split(",") for each in part.split(":") if each)]
        for part in notes(server, name)[ALLOCATED].split(";")[:-1]
    ]


async def bind(up: Running, pod: dict[str, Any], node: str) -> str:
    meta = pod["metadata"]
    answer = await up.ask("bind", PodName=meta["name"], PodNamespace="default", PodUID=meta["uid"], Node=node)
    return str(answer["Error"])


async def settle(up: Running, pod: dict[str, Any], names: list[str]) -> bool:
    """As kube-scheduler: again and again, until it is bound or no node will do."""
    while True:
        answer = await up.place(pod, names)
        if answer.startswith("!") or "refused" in answer:
            return answer.startswith("!")
        assert "bind-no-room" in answer or "node-locked" in answer, answer


# --- whose devices ---


def random_pod(chance: random.Random, name: str) -> dict[str, Any]:
    """One to three containers, some without cards, and now and then one that runs before them."""

    def limits() -> dict[str, int]:
        amount = chance.choice([{MIB: chance.randint(500, 5000)}, {"nvidia.com/gpumem-percentage": 20}, {}])
        cores = {CORES: chance.randint(1, 30)} if chance.random() < 0.5 and amount else {}
        return {GPU: chance.choice([1, 1, 2])} | amount | cores

    containers = [limits(), *(chance.choice([{}, limits()]) for _ in range(chance.randint(0, 2)))]
    chance.shuffle(containers)
    return a_pod(name, *containers, init=(limits(),) if chance.random() < 0.3 else ())


@pytest.mark.parametrize("seed", range(4))
async def test_each_container_is_handed_what_was_chosen_for_it(server: ApiServer, api: HttpKubeApi, seed: int) -> None:
    chance = random.Random(seed)
    cards = {"a": ("GPU-a0", "GPU-a1", "GPU-a2"), "b": ("GPU-b0", "GPU-b1")}
    put(server, "nodes", *(hami_node(name, *uuids) for name, uuids in cards.items()))
    ours = put(server, "pods", *(random_pod(chance, f"p{number}") for number in range(14)))
    theirs = put(server, "pods", *(a_pod(f"hami{number}", schedulerName="hami-scheduler") for number in range(6)))
    places = [(node, chance.choice(cards[node])) for node in chance.choices(list(cards), k=len(theirs))]
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(HamiNode(api, name)) for name in cards]
        up = await stack.enter_async_context(running(server, api, readers=READERS))
        placed, _ = await asyncio.gather(
            asyncio.gather(*(settle(up, pod, list(cards)) for pod in ours)),
            asyncio.gather(*(HamiScheduler(api).place(pod, *at) for pod, at in zip(theirs, places, strict=True))),
        )
        bound = [pod for pod, is_placed in zip(ours, placed, strict=True) if is_placed]
        running_pods = [*bound, *theirs]
        await until(lambda: all(phase(server, pod) == "Running" for pod in running_pods), "every pod runs", 60)
        granted = {key: devices for node in nodes for key, devices in node.granted.items()}
        assert [error for node in nodes for error in node.errors] == []
        assert bound
        held: defaultdict[str, int] = defaultdict(int)
        for pod in bound:
            name, spec = pod["metadata"]["name"], pod["spec"]
            containers = [*spec.get("initContainers", ()), *spec["containers"]]
            for container, devices in zip(containers, reported(server, name), strict=True):
                assert granted.get((name, container["name"]), []) == devices
                assert len(devices) == int(container["resources"]["limits"].get(GPU, 0))
                assert len({uuid for uuid, _, _ in devices}) == len(devices)
            staying = [each for container in spec["containers"] for each in granted.get((name, container["name"]), ())]
            assert {uuid for uuid, _, _ in staying} <= set(cards_of(server, name))
            for uuid, mib, _ in staying:
                held[uuid] += mib
        assert all(mib <= 16000 for mib in held.values()), held
        for pod, (_, uuid) in zip(theirs, places, strict=True):
            assert [each[0] for each in granted[pod["metadata"]["name"], "c0"]] == [uuid]
        assert [await lock_of(api, name) for name in cards] == [None, None]


async def test_each_card_is_charged_with_what_its_own_containers_ask(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000))
    init = ({GPU: 1, MIB: 4000, CORES: 10},)
    pod, fits, more = put(
        server,
        "pods",
        a_pod("p", {GPU: 1, MIB: 3000, CORES: 10}, {GPU: 1, MIB: 6000, CORES: 10}, init=init),
        a_pod("fits", {GPU: 1, MIB: 4000, CORES: 10}),
        a_pod("more", {GPU: 1, MIB: 2001, CORES: 10}),
    )

    def charged(up: Running) -> list[int]:
        held = up.front.cluster.held(pod["metadata"]["uid"])
        assert held is not None
        return sorted(charge.vram // 2**20 for charge in held.charges)

    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        assert charged(up) == [4000, 6000]
        assert sorted(mib for ((_, mib, _),) in reported(server, "p")) == [3000, 4000, 6000]
        await until(lambda: phase(server, pod) == "Running", "it runs", 60)
        assert await settle(up, fits, ["a"]), "beside the smaller one there is room"
        assert not await settle(up, more, ["a"])
    async with running(server, api, readers=READERS) as up:
        assert charged(up) == [4000, 6000]


async def test_containers_of_a_pod_share_a_card_where_there_is_none_for_each(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000), hami_node("b", "B0", "B1", mib=8000))
    init = ({GPU: 1, MIB: 7000, CORES: 10},)
    both = {GPU: 1, MIB: 2000, CORES: 10}, {GPU: 1, MIB: 6000, CORES: 10}
    one, apart, much = put(
        server,
        "pods",
        a_pod("one", *both, init=init),
        a_pod("apart", *both),
        a_pod("much", {GPU: 1, MIB: 2001, CORES: 10}, {GPU: 1, MIB: 6000, CORES: 10}),
    )

    def charged(up: Running, pod: dict[str, Any]) -> list[tuple[str, int, int]]:
        held = up.front.cluster.held(pod["metadata"]["uid"])
        assert held is not None
        charges = zip(held.gpus, held.charges, strict=True)
        return [(gpu, charge.vram // 2**20, charge.compute // 3120) for gpu, charge in charges]

    async with HamiNode(api, "a"), HamiNode(api, "b"), running(server, api, readers=READERS) as up:
        assert not await settle(up, much, ["a"])
        found = await up.ask("filter", Pod=apart, NodeNames=["a", "b"])
        assert found["NodeNames"] == ["b", "a"]
        scores = {each["Host"]: each["Score"] for each in await up.ask("prioritize", Pod=apart, NodeNames=["a", "b"])}
        assert scores["b"] > scores["a"], "a card each comes first"
        assert await settle(up, one, ["a"])
        assert charged(up, one) == [("A0", 8000, 20)]
        assert reported(server, "one") == [[("A0", 7000, 10)], [("A0", 2000, 10)], [("A0", 6000, 10)]]
        assert await settle(up, apart, ["a", "b"])
        assert sorted(mib for _, mib, _ in charged(up, apart)) == [2000, 6000]
        await until(lambda: phase(server, one) == "Running", "its containers have their devices", 60)
    async with running(server, api, readers=READERS) as up:
        assert charged(up, one) == [("A0", 8000, 20)]


def charges_of(up: Running, pod: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """MiB and percent of cores by card."""
    held = up.front.cluster.held(pod["metadata"]["uid"])
    assert held is not None
    charges = zip(held.gpus, held.charges, strict=True)
    return {gpu: (charge.vram // 2**20, charge.compute // 3120) for gpu, charge in charges}


async def test_cores_of_each_card_are_those_of_its_own_containers(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000))
    containers = {GPU: 1, MIB: 1000, CORES: 30}, {GPU: 1, MIB: 1000, CORES: 80}
    pod, fits, more = put(
        server,
        "pods",
        a_pod("p", *containers),
        a_pod("fits", {GPU: 1, MIB: 1000, CORES: 70}),
        a_pod("more", {GPU: 1, MIB: 1000, CORES: 30}),
    )
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert await settle(up, pod, ["a"])
        assert sorted(charges_of(up, pod).values()) == [(1000, 30), (1000, 80)]
        await until(lambda: phase(server, pod) == "Running", "it runs", 60)
        assert await settle(up, fits, ["a"]), "70 % are left beside the smaller one"
        assert not await settle(up, more, ["a"])
    async with running(server, api, readers=READERS) as up:
        assert sorted(charges_of(up, pod).values()) == [(1000, 30), (1000, 80)]


async def test_containers_that_ask_for_other_numbers_of_cards_share_them(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", "A1", mib=8000))
    zones = {"metadata": {"annotations": {"nvidia.com/numa-bind": "true"}}}
    containers = {GPU: 2, MIB: 2000, CORES: 10}, {GPU: 1, MIB: 5000, CORES: 30}
    bound = a_pod("bound", {GPU: 2, MIB: 500, CORES: 10}, {GPU: 1, MIB: 500, CORES: 10})
    bound["metadata"] |= zones["metadata"]
    pod, much, bound = put(
        server,
        "pods",
        a_pod("p", *containers),
        a_pod("much", {GPU: 2, MIB: 4000, CORES: 10}, {GPU: 1, MIB: 5000, CORES: 10}),
        bound,
    )
    async with HamiNode(api, "a"), running(server, api, readers=READERS) as up:
        assert not await settle(up, much, ["a"]), "9000 MiB are more than a card has"
        assert await settle(up, pod, ["a"])
        charged = charges_of(up, pod)
        assert sorted(charged.values()) == [(2000, 10), (7000, 40)]
        (both,) = (card for card, amounts in charged.items() if amounts == (7000, 40))
        assert [sorted(each) for each in reported(server, "p")] == [
            [("A0", 2000, 10), ("A1", 2000, 10)],
            [(both, 5000, 30)],
        ]
        await until(lambda: phase(server, pod) == "Running", "its containers have their devices", 60)
        assert await settle(up, bound, ["a"])
        assert sorted(charges_of(up, bound).values()) == [(500, 10), (1000, 20)]
        await until(lambda: phase(server, bound) == "Running", "its containers have their devices", 60)
    async with running(server, api, readers=READERS) as up:
        assert charges_of(up, pod) == charged


async def test_victims_are_found_for_containers_that_share_a_card(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000), hami_node("b", "B0", "B1", mib=8000))
    low = [a_pod(name, {GPU: 1, MIB: 5000, CORES: 10}, priority=0) for name in ("l0", "l1", "l2")]
    both = {GPU: 1, MIB: 4000, CORES: 10}
    *lows, high = put(server, "pods", *low, a_pod("high", both, both, priority=100))
    async with HamiNode(api, "a"), HamiNode(api, "b"), running(server, api, readers=READERS) as up:
        for pod, node in zip(lows, "abb", strict=True):
            assert await settle(up, pod, [node])
        assert not await settle(up, high, ["a", "b"])
        offered = {node: {"Pods": [], "NumPDBViolations": 0} for node in "ab"}
        found = await up.ask("preempt", Pod=high, NodeNameToMetaVictims=offered)
        named = {node: len(each["Pods"]) for node, each in found["NodeNameToMetaVictims"].items()}
        assert named == {"a": 1, "b": 1}, "one card that they share takes fewer victims than two"


def phase(server: ApiServer, pod: dict[str, Any]) -> str:
    return str(server.do(lambda: server.rules.get(("pods", "default", pod["metadata"]["name"])))["status"]["phase"])


async def test_a_pod_in_our_dialect_gets_its_part(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    body = a_pod("p", {GPU: 1})
    body["metadata"]["annotations"] = {
        "ullage.io/gpu-count": "1",
        "ullage.io/vram-request": "4Gi",
        "ullage.io/compute-percent-request": "25",
    }
    (pod,) = put(server, "pods", body)
    async with running(server, api, readers=READERS) as up, HamiNode(api, "a") as node:
        assert await settle(up, pod, ["a"])
        await until(lambda: phase(server, pod) == "Running", "it runs")
        assert node.granted == {("p", "c0"): [("GPU-1", 4096, 25)]}


async def test_a_pod_that_needs_no_plugin_locks_no_node(server: ApiServer, api: HttpKubeApi) -> None:
    """A node without HAMi's plugin, and a pod whose kubelet asks it for nothing."""
    put(server, "nodes", a_node("plain", 1), hami_node("a", "GPU-1"))
    words = {"ullage.io/gpu-count": "1", "ullage.io/vram-request": "4Gi", "ullage.io/compute-percent-request": "25"}
    body = a_pod("unseen", {})
    body["metadata"]["annotations"] = words
    unseen, whole = put(server, "pods", body, a_pod("whole", {GPU: 1}))
    async with running(server, api, readers=READERS) as up:
        assert await bind(up, whole, "plain") == ""
        assert await bind(up, unseen, "a") == ""
        assert await lock_of(api, "plain") is None
        assert await lock_of(api, "a") is None
        for name in ("whole", "unseen"):
            assert not [key for key in notes(server, name) if key.startswith("hami.io/")]


async def test_everything_but_the_lock_is_written_by_the_binding_itself(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    (pod,) = put(server, "pods", a_pod("p", {GPU: 1, MIB: 3000, CORES: 30}))
    async with running(server, api, readers=READERS) as up:
        before = server.do(lambda: server.store.revision)
        assert await bind(up, pod, "a") == ""
        changes = server.do(lambda: [c for c in server.store.since(before) if c.key[0] in ("pods", "nodes")])
        assert [change.key[0] for change in changes] == ["nodes", "pods"]
        written = changes[1].reported["metadata"]["annotations"]
        assert written["hami.io/vgpu-devices-to-allocate"] == written[ALLOCATED] == "GPU-1,NVIDIA,3000,30:;"
        assert (written["hami.io/vgpu-node"], written[PHASE]) == ("a", "allocating")
        assert written["hami.io/vgpu-time"] == written["hami.io/bind-time"]
        moment, *owner = (await lock_of(api, "a") or "").split(",")
        assert owner == ["default", "p"]
        assert abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < timedelta(minutes=1)


# --- whose turn ---


def moment(ago_s: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat(timespec="seconds")


async def a_pod_that(api: HttpKubeApi, state: str) -> None:
    """The pod `holder`, as the one that a lock names may be."""
    if state == "was never":
        return
    scheduler = "ullage" if state == "was left" else "hami-scheduler"
    await create(api, a_pod("holder", schedulerName=scheduler))
    pod = await api.get(PODS, "holder", "default")
    node = {"is elsewhere": "b"}.get(state, "a")
    if state not in ("is being bound", "was left"):
        written = {PHASE: {"has its devices": "success", "was refused": "failed"}.get(state, "allocating")}
        await api.write(Bind("default", "holder", pod.metadata.uid, node, written))
    if state == "has ended":
        status = {"status": {"phase": "Failed"}}
        await api.write(Patch(PODS, "holder", status, "default", PatchType.STRATEGIC, "status"))


@pytest.mark.parametrize(
    ("named", "ago_s", "holder", "is_free"),
    [
        (",default,holder", 0, "waits for its devices", False),
        (",default,holder", 280, "waits for its devices", False),
        (",default,holder", 301, "waits for its devices", True),
        (",default,holder", 0, "is being bound", False),
        (",default,holder", 60, "is being bound", False),
        (",default,holder", 0, "was left", False),
        (",default,holder", 20, "was left", True),
        (",default,holder", 0, "was never", True),
        (",default,holder", 0, "has ended", True),
        (",default,holder", 0, "is elsewhere", True),
        (",default,holder", 0, "has its devices", True),
        (",default,holder", 0, "was refused", True),
        (",default,p", 0, "was never", True),
        ("", 0, "was never", False),
        ("", 301, "was never", True),
        ("x,default,holder", 0, "waits for its devices", True),
        (",default,holder,more", 0, "waits for its devices", True),
    ],
)
async def test_which_locks_are_valid(
    server: ApiServer, api: HttpKubeApi, named: str, ago_s: float, holder: str, *, is_free: bool
) -> None:
    lock = f"{moment(ago_s)}{named}"
    put(server, "nodes", hami_node("a", "GPU-1", "GPU-2"))
    await a_pod_that(api, holder)
    (pod,) = put(server, "pods", a_pod("p"))
    await put_lock(api, "a", lock)
    async with running(server, api, readers=READERS, plugins=PluginTerms(retry_s=0.0)) as up:
        said = await bind(up, pod, "a")
        if is_free:
            assert said == ""
            assert (await lock_of(api, "a") or "").endswith(",default,p")
        else:
            assert said.startswith("node-locked: node a is locked")
            assert await lock_of(api, "a") == lock
            assert up.front.cluster.held(pod["metadata"]["uid"]) is None


async def test_a_pod_waits_for_the_lock_of_its_node(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api, readers=READERS) as up, HamiNode(api, "a") as node:
        node.hears.clear()
        assert await bind(up, first, "a") == ""
        waiting = asyncio.create_task(bind(up, second, "a"))
        await until(lambda: ("default", "second") in up.front.plugins.waiting, "it waits")
        assert (await lock_of(api, "a") or "").endswith(",default,first")
        node.hears.set()
        assert await waiting == ""
        await until(lambda: phase(server, second) == "Running", "both run")
        assert node.errors == []


async def test_a_bind_that_fails_releases_the_lock(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    first, second = put(server, "pods", a_pod("first"), a_pod("second", {GPU: 2}))
    async with running(server, api, readers=READERS) as up:
        server.canned.append(Canned("POST", "/binding", 403, times=1))
        assert "kube-forbidden" in await bind(up, first, "a")
        assert await lock_of(api, "a") is None
        assert "bind-no-room" in await bind(up, second, "a")
        assert await lock_of(api, "a") is None
        server.canned.append(Canned("POST", "/binding", 500, times=1, carried_out=True))
        assert await bind(up, first, "a")
        assert (await lock_of(api, "a") or "").endswith(",default,first"), "it may be bound, and it is"


# --- who dies ---


class Crash(BaseException):
    """The end of a process."""


class Mortal:
    """The API of a process that dies at one of its locks and bindings: before it, or after it."""

    def __init__(self, api: HttpKubeApi, at: int, *, after: bool) -> None:
        self.pages, self.watch, self.get = api.pages, api.watch, api.get
        self._write, self._left, self._after = api.write, at, after

    async def write(self, change: Change) -> bytes:
        matters = isinstance(change, Bind) or (isinstance(change, Patch) and change.kind is NODES)
        self._left -= matters
        if not matters or self._left:
            return await self._write(change)
        if self._after:
            await self._write(change)
        raise Crash


@asynccontextmanager
async def short_lived(api: KubeApi) -> AsyncIterator[Front]:
    """A front that lets go of nothing when it ends. Its term does not end while it runs, and soon afterwards."""
    terms = LeaseTerms(lease_s=1, renew_s=0.1, give_up_s=0.8)
    candidate = Candidate(api, "ullage", "default", terms, clock=lambda: 0.0)
    front = make_front(api, candidate, Rules(), FrontSettings(readers=READERS))
    async with at_work(front, lets_go=False):
        yield front


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [1, 2], ids=["the lock", "the binding"])
@pytest.mark.parametrize("next_one", ["first", "second"])
async def test_a_process_that_dies_between_two_writes_leaves_nothing_behind(
    server: ApiServer, api: HttpKubeApi, step: int, next_one: str, *, after: bool
) -> None:
    put(server, "nodes", hami_node("a", "GPU-1", "GPU-2"))
    pods = {pod["metadata"]["name"]: pod for pod in put(server, "pods", a_pod("first"), a_pod("second"))}
    async with HamiNode(api, "a") as node:
        node.hears.clear()
        async with short_lived(Mortal(api, step, after=after)) as front:
            with pytest.raises(Crash):
                await front.extender.bind(BindArgs("first", "default", pods["first"]["metadata"]["uid"], "a"))
        lock = await lock_of(api, "a")
        if lock is not None and (step, after) != (2, True):
            await put_lock(api, "a", f"{moment(16)},default,first")  # no write of that process is on its way any more
        node.hears.set()
        async with running(server, api, readers=READERS) as up:
            order = [next_one, *({"first", "second"} - {next_one})]
            for name in order:
                assert await bind(up, pods[name], "a") == ""
            await until(lambda: all(phase(server, pod) == "Running" for pod in pods.values()), "both run")
        assert node.errors == []
        for name in pods:
            assert [node.granted[name, "c0"]] == reported(server, name)
        await until(lambda: LOCK not in (server.store.get(("nodes", "", "a"))["metadata"]["annotations"]), "no lock")


async def test_a_pod_that_is_deleted_before_it_has_its_devices_blocks_no_other(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    first, second = put(server, "pods", a_pod("first"), a_pod("second"))
    async with running(server, api, readers=READERS) as up, HamiNode(api, "a") as node:
        node.hears.clear()
        assert await bind(up, first, "a") == ""
        await until(lambda: node.knows("default", "first"), "the kubelet hears of the pod")
        await remove(api, "first")
        await until(lambda: not node.knows("default", "first"), "the kubelet hears that it is gone")
        node.hears.set()
        assert await bind(up, second, "a") == ""
        await until(lambda: phase(server, second) == "Running", "the other runs")


async def test_a_pod_that_gets_no_devices_holds_its_cards_until_it_is_gone(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    first, second = put(server, "pods", a_pod("first", {GPU: 1}), a_pod("second", {GPU: 1}))
    async with running(server, api, readers=READERS) as up:
        assert await bind(up, first, "a") == ""
        await api.write(Patch(PODS, "first", {"metadata": {"annotations": {PHASE: "failed"}}}, "default"))

        def events() -> list[dict[str, Any]]:
            there = server.do(lambda: server.store.at(server.store.revision))
            return [item for key, item in there.items() if key[0] == "events"]

        await until(lambda: any(event["reason"] == "AllocationFailed" for event in events()), "it is reported")
        (event,) = (event for event in events() if event["reason"] == "AllocationFailed")
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "first")
        assert "refused" in await up.place(second, ["a"])
        status = {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}
        await api.write(Patch(PODS, "first", status, "default", PatchType.STRATEGIC, "status"))
        await until(lambda: up.front.cluster.held(first["metadata"]["uid"]) is None, "it is over")
        assert await settle(up, second, ["a"])


# --- who is silent ---


async def offer(api: HttpKubeApi, node: str, count: int) -> None:
    amounts = {"allocatable": {GPU: str(count)}}
    await api.write(Patch(NODES, node, {"status": amounts}, type=PatchType.STRATEGIC, subresource="status"))


async def handshake(api: HttpKubeApi, text: str) -> None:
    await api.write(Patch(NODES, "a", {"metadata": {"annotations": {"hami.io/node-handshake": text}}}))


async def test_cards_of_a_plugin_that_does_not_answer_are_withdrawn_and_come_back(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "GPU-1", "GPU-2"))
    holder, asking = put(server, "pods", a_pod("holder"), a_pod("asking"))

    def shake() -> str:
        return str(server.store.get(("nodes", "", "a"))["metadata"]["annotations"].get("hami.io/node-handshake", ""))

    late = [0.0]

    def now() -> float:
        return datetime.now(UTC).timestamp() + late[0]

    readers = [RegisteredCards(now=now)]
    async with running(server, api, readers=readers, now=now, plugins=PluginTerms(check_s=0.02)) as up:
        assert await bind(up, holder, "a") == ""
        assert shake() == "", "nobody is asked who is there"
        await offer(api, "a", 0)
        await until(lambda: shake().startswith("Requesting_"), "it is asked")
        asked_at = datetime.fromisoformat(shake().removeprefix("Requesting_")).replace(tzinfo=UTC)
        assert abs(asked_at - datetime.now(UTC)) < timedelta(minutes=1)
        assert (await up.ask("filter", Pod=asking, NodeNames=["a"]))["NodeNames"] == ["a"], "it has a minute"
        late[0] = 61

        async def refused() -> dict[str, str]:
            return dict((await up.ask("filter", Pod=asking, NodeNames=["a"]))["FailedAndUnresolvableNodes"])

        await eventually(refused, {"a": "1/1 CardNotHealth"})
        await offer(api, "a", 20)
        await handshake(api, f"Reported_{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")
        await eventually(refused, {})
        uid = holder["metadata"]["uid"]
        assert list(up.front.cluster.held(uid).gpus) == cards_of(server, "holder")


async def test_a_silent_plugin_is_found_without_events_of_its_node(server: ApiServer, api: HttpKubeApi) -> None:
    """No event comes from a node while its plugin is silent, so it must be checked again."""
    put(server, "nodes", hami_node("a", "GPU-1", offered=False))
    (asking,) = put(server, "pods", a_pod("asking"))
    clock = [datetime.now(UTC).timestamp()]
    await handshake(api, f"Requesting_{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")
    options = {
        "readers": [RegisteredCards(now=lambda: clock[0])],
        "now": lambda: clock[0],
        "plugins": PluginTerms(check_s=0.02),
    }
    async with running(server, api, **options) as up:
        assert (await up.ask("filter", Pod=asking, NodeNames=["a"]))["NodeNames"] == ["a"]
        clock[0] += 61

        async def refused() -> dict[str, str]:
            return dict((await up.ask("filter", Pod=asking, NodeNames=["a"]))["FailedAndUnresolvableNodes"])

        await eventually(refused, {"a": "node unregistered"})


async def eventually(look: Any, expected: Any, deadline_s: float = 60.0) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + deadline_s
    while (found := await look()) != expected:
        assert clock() < end, f"still {found}"
        await asyncio.sleep(0.01)


async def test_exclusive_cards_are_marked_in_hami_s_word(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", hami_node("a", "GPU-1"))
    alone = a_pod("alone")
    alone["metadata"]["annotations"] = {"hami.io/gpu-scheduler-policy": "mutex"}
    first, second = put(server, "pods", a_pod("first"), alone)
    async with running(server, api, readers=READERS) as up, HamiNode(api, "a"):
        assert await settle(up, first, ["a"])
        found = await up.ask("filter", Pod=second, NodeNames=["a"])
        assert found["FailedNodes"] == {"a": "1/1 mutex busy"}


async def test_a_lock_is_taken_and_released_on_each_kind_of_server(cluster: Cluster) -> None:
    """The lock is written on the version that was read, and taken away only as it was written."""
    api, name = cluster.api, f"{cluster.namespace}-a"
    await api.write(Create(NODES, hami_node(name, "GPU-1")))
    await api.write(Create(PODS, bodies.pod("p"), cluster.namespace))
    pod = await api.get(PODS, "p", cluster.namespace)
    candidate = Candidate(api, "plugins", cluster.namespace)
    await candidate.attempt()
    assert candidate.epoch is not None
    context = KubeContext(api=api, candidate=candidate, cluster=Books(Rules(), lambda: 0.0), followed=Followed.of(api))
    plugins, nodes, pods = DevicePlugins(context), context.followed.nodes, context.followed.pods
    async with informing(nodes), informing(pods):
        await nodes.wait_synced()
        for written in (None, "somebody else's by now"):
            with suppress(Conflict):
                async with plugins.node_lock(candidate.epoch, pod, name, OWNER):
                    assert (await lock_of(api, name) or "").endswith(f",{cluster.namespace},p")
                    if written is not None:
                        await put_lock(api, name, written)
                    raise Conflict("its bind is refused")
            assert await lock_of(api, name) == written
        async with plugins.node_lock(candidate.epoch, pod, name, OWNER):
            pass
        assert (await lock_of(api, name) or "").endswith(f",{cluster.namespace},p")
    await api.write(Delete(NODES, name))
