"""Others give way to pods in queues, before an API server; to a gang for enough members at once, or nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import until
from tests.kube.test_direct_binds import cards_of, direct
from tests.kube.test_front import GPU, a_node, a_pod, put
from tests.kube.test_queue_admission import Story, pods_of, story, waiting
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.evicting.preemption import PATIENCE_S, RESERVED_S
from ullage.kube.evicting.queue_preemption import ROUND_S
from ullage.model.queue import parse_queue

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

Document = dict[str, Any]
Make = Callable[..., Document]
URGENT = 1_000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def a_gang(
    server: ApiServer, make: Make, count: int, gpus: int = 2, queue: str = "y", name: str = "train", **spec: Any
) -> None:
    """Create urgent members `m0` and so on, all of which start together; other names begin with that of the gang."""
    put(server, "podgroups", {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": count}})
    first = "m" if name == "train" else name
    members = [make(f"{first}{number}", gpus, queue=queue) for number in range(count)]
    for member in members:
        member["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = name
        member["spec"] |= {"priority": URGENT} | spec
    put(server, "pods", *members)


def with_priority(pod: Document, priority: int) -> Document:
    return {**pod, "spec": {**pod["spec"], "priority": priority}}


def leaving(up: Story) -> set[str]:
    return {name for name, pod in pods_of(up.server).items() if "deletionTimestamp" in pod["metadata"]}


async def rounds(up: Story, count: int = 3) -> set[str]:
    """Let so many rounds of preemption pass; return who leaves by then."""
    for _ in range(count):
        up.clock.now += PATIENCE_S + 0.5
        await asyncio.sleep(1.2 * ROUND_S)
    return leaving(up)


async def evicted(up: Story, count: int) -> set[str]:
    """Turn the clock until so many leave."""

    def later() -> bool:
        up.clock.now += 0.05
        return len(leaving(up)) >= count

    await until(later, lambda: f"{count} leave, not {leaving(up)}")
    return leaving(up)


async def full(up: Story, *names: str) -> None:
    await until(lambda: up.bound >= set(names), lambda: f"they are bound: {up.bound}")


def bound_on(up: Story) -> dict[str, str]:
    found = pods_of(up.server)
    return {name: found[name]["spec"]["nodeName"] for name in up.bound}


@pytest.mark.parametrize("make", [waiting, direct])
async def test_others_of_lower_priority_leave_for_an_urgent_pod(
    server: ApiServer, api: HttpKubeApi, make: Make
) -> None:
    put(server, "nodes", a_node("a", 2))
    put(server, "pods", make("x0"), make("x1"))
    async with story(server, api) as up:
        await full(up, "x0", "x1")
        put(server, "pods", with_priority(make("u", queue="y"), URGENT), make("late", queue="z"))
        await up.reported("u", "insufficient-gpu: ")
        victims = await evicted(up, 1)
        assert len(victims) == 1
        up.end(*victims)
        await until(lambda: "u" in up.bound, lambda: f"it goes: {up.note('u')}")
        assert "late" not in up.bound


@pytest.mark.parametrize("make", [waiting, direct])
async def test_others_leave_for_all_members_which_start_together(
    server: ApiServer, api: HttpKubeApi, make: Make
) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 2))
    low = [f"x{number}" for number in range(4)]
    put(server, "pods", *(make(name) for name in low))
    async with story(server, api) as up:
        await full(up, *low)
        a_gang(server, make, 2)
        await up.reported("m1", "gang-does-not-fit: ")
        put(server, "pods", make("late", queue="z"))
        assert await evicted(up, 4) == set(low)
        assert {pods_of(server)[name]["metadata"]["annotations"]["ullage.io/room-on"] for name in ("m0", "m1")} == {
            "a",
            "b",
        }
        for name in low[:3]:
            up.end(name)
        await up.reported("late", "")
        await asyncio.sleep(2 * ROUND_S)
        assert up.bound == {low[3]}, "one member alone does not start, and nobody else gets its room"
        up.end(low[3])
        await until(lambda: up.bound == {"m0", "m1"}, lambda: f"both go: {up.note('m0')}")
        assert cards_of(up) == [f"{node}/{GPU}/{card}" for node in "ab" for card in range(2)]


@pytest.mark.parametrize("make", [waiting, direct])
async def test_nobody_leaves_if_some_member_would_not_start(server: ApiServer, api: HttpKubeApi, make: Make) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 2))
    low, high = [f"x{number}" for number in range(2)], with_priority(make("high", 2), URGENT)
    put(server, "pods", high, *(make(name) for name in low))
    async with story(server, api) as up:
        await full(up, "high", *low)
        a_gang(server, make, 2)
        await up.reported("m1", "gang-does-not-fit: ")
        assert await rounds(up) == set()
        assert "ullage.io/room-on" not in pods_of(server)["m0"]["metadata"].get("annotations", {})


@pytest.mark.parametrize("spec", [{"preemptionPolicy": "Never"}, {"priority": 0}])
async def test_nobody_leaves_for_members_that_may_not_preempt(
    server: ApiServer, api: HttpKubeApi, spec: Document
) -> None:
    put(server, "nodes", a_node("a", 2))
    put(server, "pods", direct("x0"), direct("x1"))
    async with story(server, api) as up:
        await full(up, "x0", "x1")
        a_gang(server, direct, 2, 1, **spec)
        await up.reported("m1", "gang-does-not-fit: ")
        assert await rounds(up) == set()


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
    ],
)
async def test_nobody_leaves_for_pods_that_kube_scheduler_may_refuse_there(
    server: ApiServer, api: HttpKubeApi, spec: Document
) -> None:
    put(server, "nodes", a_node("a", 2))
    put(server, "pods", waiting("x0"), waiting("x1"))
    async with story(server, api) as up:
        await full(up, "x0", "x1")
        alone = with_priority(waiting("u", queue="z"), URGENT)
        alone["spec"] |= spec
        put(server, "pods", alone)
        a_gang(server, waiting, 2, 1, **spec)
        await up.reported("m1", "gang-does-not-fit: ")
        assert await rounds(up) == set()


async def test_nobody_leaves_for_a_pod_that_was_refused_where_it_had_room(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    put(server, "pods", direct("x0"))
    async with story(server, api) as up:
        await full(up, "x0")
        refusal = Canned("POST", "/pods/u/binding", 403)
        server.canned.append(refusal)
        put(server, "pods", with_priority(direct("u", queue="y"), URGENT))
        await until(lambda: not refusal.times, "it is refused")
        put(server, "pods", direct("low", queue="z"))
        await full(up, "x0", "low")
        assert await rounds(up) == set()


async def test_a_budget_that_one_victim_breaks_keeps_all_of_them(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2))
    pods = [direct("x0"), direct("x1")]
    pods[1]["metadata"]["labels"]["app"] = "kept"
    put(server, "pods", *pods)
    budget = bodies.budget("b", {"app": "kept"})
    put(server, "poddisruptionbudgets", {**budget, "metadata": {"namespace": "default", "name": "b"}})
    async with story(server, api) as up:
        await full(up, "x0", "x1")
        await until(lambda: bool(up.front.followed.budgets.objects), "the budget is observed")
        a_gang(server, direct, 2, 1)
        await up.reported("m1", "gang-does-not-fit: ")
        assert await rounds(up) == set()


async def test_only_as_many_leave_as_are_needed_and_free_room_is_kept_for_the_others(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 2), a_node("c", 2))
    put(server, "pods", *(direct(f"x{number}", 2) for number in range(2)))
    async with story(server, api) as up:
        await full(up, "x0", "x1")
        a_gang(server, direct, 2)
        await up.reported("m1", "gang-does-not-fit: ")
        victims = await evicted(up, 1)
        put(server, "pods", with_priority(direct("late", queue="z"), 2 * URGENT))
        await asyncio.sleep(2 * ROUND_S)
        assert leaving(up) == victims
        assert up.bound == {"x0", "x1"}, "what is free is kept for the other member"
        up.end(*victims)
        await until(lambda: {"m0", "m1"} <= up.bound, lambda: f"both go: {up.note('m0')}")


async def test_room_is_given_up_if_the_gang_loses_a_member_meanwhile(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2))
    put(server, "pods", direct("x0"), direct("x1"))
    async with story(server, api) as up:
        await full(up, "x0", "x1")
        a_gang(server, direct, 2, 1)
        await up.reported("m1", "gang-does-not-fit: ")
        await evicted(up, 2)
        up.end("m1")
        put(server, "pods", direct("late", 2, queue="z"))
        for name in ("x0", "x1"):
            up.end(name)
        await up.reported("m0", "gang-incomplete: ")
        await asyncio.sleep(2 * ROUND_S)
        assert up.bound == set()
        up.clock.now += RESERVED_S + 1
        await until(lambda: up.bound == {"late"}, lambda: f"it goes: {up.note('late')}")


async def test_a_restart_while_others_leave_gives_the_room_to_the_gang(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 2))
    low = [f"x{number}" for number in range(4)]
    put(server, "pods", *map(direct, low))
    async with story(server, api) as up:
        await full(up, *low)
        a_gang(server, direct, 2)
        await up.reported("m1", "gang-does-not-fit: ")
        await evicted(up, 4)
    put(server, "pods", direct("late", queue="z"))
    async with story(server, api) as up:
        for name in low:
            up.end(name)
        await until(lambda: {"m0", "m1"} <= up.bound, lambda: f"both go: {up.note('m0')}")
        assert sorted(bound_on(up).values()) == ["a", "b"]


async def test_a_queue_at_its_limit_gets_no_room_that_was_made(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 1))
    put(server, "pods", direct("x0"), direct("x1"), direct("z0", queue="z"))
    async with story(server, api, parse_queue("y", "root", 1, None, "gpu=2")) as up:
        await full(up, "x0", "x1", "z0")
        a_gang(server, direct, 2, 1)
        await up.reported("m1", "gang-does-not-fit: ")
        victims = await evicted(up, 2)
        put(server, "pods", with_priority(direct("other", queue="y"), 2 * URGENT))
        (left,) = {"x0", "x1", "z0"} - victims
        up.end(left)
        await until(lambda: "other" in up.bound, lambda: f"it goes: {up.note('other')}")
        for name in victims:
            up.end(name)
        await asyncio.sleep(2 * ROUND_S)
        assert up.bound == {"other"}, "with the gang, the queue would hold three cards"


async def test_nobody_leaves_for_a_pod_whose_queue_is_at_its_limit(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2))
    put(server, "pods", direct("x0"), direct("y0", queue="y"))
    async with story(server, api, parse_queue("y", "root", 1, None, "gpu=1")) as up:
        await full(up, "x0", "y0")
        put(server, "pods", with_priority(direct("u", queue="y"), URGENT))
        await up.reported("u", "queue-limit: ")
        assert await rounds(up) == set()


async def test_nobody_leaves_if_the_queue_reaches_its_limit_before_they_would(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 1))
    put(server, "pods", direct("x0", 2), direct("z0", queue="z"))
    async with story(server, api, parse_queue("y", "root", 1, None, "gpu=2")) as up:
        await full(up, "x0", "z0")
        put(server, "pods", with_priority(direct("u", 2, queue="y"), URGENT))
        await up.reported("u", "insufficient-gpu: ")
        await asyncio.sleep(1.5 * ROUND_S)
        up.end("z0")
        put(server, "pods", direct("y0", queue="y"))
        await up.reported("u", "queue-limit: ")
        assert await rounds(up) == set()


async def test_no_more_leave_for_single_pods_than_the_limit_of_their_queue_allows(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 3))
    low = [f"x{number}" for number in range(3)]
    put(server, "pods", *map(direct, low))
    async with story(server, api, parse_queue("y", "root", 1, None, "gpu=1")) as up:
        await full(up, *low)
        put(server, "pods", *(with_priority(direct(f"u{number}", queue="y"), URGENT) for number in range(3)))
        await up.reported("u2", "insufficient-gpu: ")
        victims = await rounds(up, 4)
        assert len(victims) == 1
        up.end(*victims)
        await until(lambda: len(up.bound) == 3, lambda: f"one goes: {up.bound}")
        assert await rounds(up) == set()


async def test_others_leave_for_one_of_two_gangs_if_the_limit_allows_one(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 4))
    low = [f"x{number}" for number in range(4)]
    put(server, "pods", *map(direct, low))
    async with story(server, api, parse_queue("y", "root", 1, None, "gpu=2")) as up:
        await full(up, *low)
        a_gang(server, direct, 2, 1)
        a_gang(server, direct, 2, 1, name="k")
        await up.reported("m1", "gang-does-not-fit: ")
        await up.reported("k1", ": ")
        assert len(await rounds(up, 4)) == 2


async def test_nobody_leaves_a_node_whose_pods_keep_the_urgent_one_away(server: ApiServer, api: HttpKubeApi) -> None:
    node = a_node("a", 1)
    node["metadata"]["labels"] = {"kubernetes.io/hostname": "a"}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "r"}}}
    alone = a_pod("alone", 0)
    alone["spec"] |= {"nodeName": "a", "affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}
    put(server, "nodes", node)
    put(server, "pods", alone, direct("x0"))
    async with story(server, api) as up:
        await full(up, "alone", "x0")
        put(server, "nodes", a_node("b", 1))
        put(server, "pods", with_priority(direct("x1"), 1))
        await full(up, "x1")
        urgent = with_priority(direct("u", queue="y"), URGENT)
        urgent["metadata"]["labels"]["team"] = "r"
        put(server, "pods", urgent)
        await up.reported("u", ": ")
        assert await rounds(up) == {"x1"}, "x0 would be the cheaper victim"


async def test_nobody_leaves_twice_while_victims_take_long(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 2))
    low = [f"x{number}" for number in range(4)]
    put(server, "pods", *map(direct, low))
    async with story(server, api) as up:
        await full(up, *low)
        a_gang(server, direct, 2, 1)
        await up.reported("m1", "gang-does-not-fit: ")
        victims = await evicted(up, 2)
        for _ in range(4):
            up.clock.now += RESERVED_S / 2
            await asyncio.sleep(1.2 * ROUND_S)
        assert leaving(up) == victims
        for name in victims:
            up.end(name)
        await until(lambda: {"m0", "m1"} <= up.bound, lambda: f"both go: {up.note('m0')}")
