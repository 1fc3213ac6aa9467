"""What happens to a cluster over minutes: thousands of pods, and the end of whatever may end meanwhile.

Every story plays in this process, with a small scheduler, and before a real control plane where there is one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kube.admission import Hook
from tests.kube.api_server import ApiServer
from tests.kube.certificates import Certificates
from tests.kube.conftest import SHORT, WEBHOOKS, until, write_kubeconfig
from tests.kube.control_plane import ControlPlane, binary
from tests.kube.small_scheduler import GPU
from tests.kube.stage import CLASSES, OWNERS, PRIORITY, Front, Stage, a_part, dies, stage, whole
from tests.ports import free_port
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import PODS
from ullage.model.error import UllageError

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NODES, CARDS = 500, 4


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A real control plane whose scheduler asks an extender at `port`."""

    plane: ControlPlane
    port: int


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    binary("kube-scheduler")
    plane, port = ControlPlane(tmp_path_factory.mktemp("stories")), free_port()
    try:
        asyncio.run(_classes(plane))
        verbs = {"preemptVerb": "preempt", "managedResources": []}
        plane.start_asking_scheduler(port, verbs, podMaxBackoffSeconds=2)
        yield Scheduled(plane, port)
    finally:
        plane.close()


async def _classes(plane: ControlPlane) -> None:
    async with connect(plane.kubeconfig) as client:
        await HttpKubeApi(client, SHORT).write(Create(CLASSES, {"metadata": {"name": "urgent"}, "value": PRIORITY}))


@pytest.fixture(params=["in-process", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, ApiServer | ControlPlane, int]:
    """Each of the two in turn: its kubeconfig, the server, and where its scheduler asks."""
    if request.param == "real":
        found: Scheduled = request.getfixturevalue("scheduled")
        return found.plane.kubeconfig, found.plane, found.port
    server: ApiServer = request.getfixturevalue("server")
    return write_kubeconfig(tmp_path, server.url), server, 0


@pytest.fixture
async def play(
    cluster: tuple[Path, ApiServer | ControlPlane, int], tmp_path: Path, anyio_backend: str
) -> AsyncIterator[Stage]:
    place, server, port = cluster
    async with connect(place) as client, stage(server, HttpKubeApi(client, SHORT), tmp_path, port) as found:
        yield found


def mixed(count: int, seed: int = 1, prefix: str = "p", **spec: Any) -> list[dict[str, Any]]:
    """Parts and whole cards, of three owners."""
    chance = random.Random(seed)

    def one(number: int) -> dict[str, Any]:
        name, owner = f"{prefix}{number}", OWNERS[number % len(OWNERS)]
        if chance.random() < 0.25:
            return whole(name, chance.choice([1, 1, 2]), owner, **spec)
        return a_part(name, chance.choice([10, 20, 25, 30, 50]), owner, **spec)

    return [one(number) for number in range(count)]


async def settled(play: Stage, front: Front) -> None:
    """What it knows is what the API says."""
    reported = await play.holdings()
    clock = asyncio.get_running_loop().time
    end = clock() + 120
    while (known := await front.known()) != reported:
        assert clock() < end, f"only it knows {known - reported}, only the API {reported - known}"
        await asyncio.sleep(0.1)


# --- many ---


async def test_many_pods_on_five_hundred_machines(play: Stage) -> None:
    play.kubelets.may_start.clear()
    await play.machines(NODES, CARDS)
    await asyncio.to_thread((await play.front()).wait_ready)
    pods = mixed(2000 if play.is_real else 800)  # the scheduler in process is slow, not what it asks
    await play.submit(pods)
    held = await play.placed(len(pods), 300)
    asked = {(each["metadata"]["namespace"], each["metadata"]["name"]): _cards(each) for each in pods}
    assert Counter((namespace, name) for namespace, name, _ in held) == asked


def _cards(pod: dict[str, Any]) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"].get(GPU, 1))


# --- killed ---


async def test_killed_again_and_again_while_pods_come(play: Stage) -> None:
    """Wherever it is killed, the next one knows what the API says, and everybody is placed in the end."""
    await play.machines(10, 4)
    front = await play.front()
    await asyncio.to_thread(front.wait_ready)
    expected = 0
    for wave, arm in enumerate(_moments(play, front)):
        pods = mixed(8, wave, f"wave{wave}-")
        expected += len(pods)
        arm()
        await play.submit(pods)
        if play.is_real:
            await play.placed(expected - len(pods) + 1 + wave)
            front.kill_now()
        await dies(front)
        there = await play.holdings()
        await asyncio.to_thread(front.start)
        await asyncio.to_thread(front.wait_ready)
        assert there <= await front.known(), "nothing that was bound before it was killed is free"
        await play.placed(expected)
        await settled(play, front)


def _moments(play: Stage, front: Front) -> list[Callable[[], None]]:
    """When it is killed: before and after it has written its bind, and while it renews its lease."""
    if play.is_real:
        return [lambda: None] * 4

    def at(path: str, *, carried_out: bool) -> Callable[[], None]:
        return lambda: play.at_write(path, front.kill_now, carried_out=carried_out)

    return [
        at("/binding", carried_out=False),
        at("/binding", carried_out=True),
        at("/leases/ullage", carried_out=False),
        at("/leases/ullage", carried_out=True),
    ]


# --- who leads ---


async def test_a_follower_takes_over_from_a_leader_that_is_killed(play: Stage) -> None:
    await play.machines(6, 4)
    first = await play.front()
    await asyncio.to_thread(first.wait_ready)
    second = await play.front()
    await play.submit(mixed(10, 1, "before-"))
    before = await play.placed(10)
    assert play.writes_of(second) == [] or all("leases" in path for path in play.writes_of(second))
    await play.submit(mixed(10, 2, "while-"))
    first.kill_now()
    await asyncio.to_thread(second.wait_ready)
    assert before <= await second.known()
    await play.placed(20)
    await settled(play, second)


async def test_a_leader_that_was_frozen_writes_nothing_when_it_goes_on(play: Stage) -> None:
    await play.machines(6, 4)
    first = await play.front()
    await asyncio.to_thread(first.wait_ready)
    second = await play.front()
    await play.submit(mixed(10, 1, "before-"))
    await play.placed(10)
    await play.submit(mixed(10, 2, "while-"))
    first.stop(stopped=True)
    try:
        await asyncio.to_thread(second.wait_ready)
        await play.placed(20)
        written = len(play.writes_of(first))
        await play.submit(mixed(6, 3, "after-"))
    finally:
        first.stop(stopped=False)
    await until(lambda: not first.is_ready(), "it notices", 60)
    await play.placed(26)
    await settled(play, second)
    await settled(play, first)  # it follows
    assert play.writes_of(first)[written:] == []


# --- who is asked ---


async def test_the_api_server_starts_again_in_the_middle(play: Stage) -> None:
    await play.machines(8, 4)
    front = await play.front()
    await asyncio.to_thread(front.wait_ready)
    await play.submit(mixed(12, 1, "before-"))
    await play.placed(4)
    await play.restart_api()
    await play.submit(mixed(12, 2, "after-"))
    await play.placed(24)
    await settled(play, front)
    assert not front.dead


# --- who gives way ---


async def test_an_urgent_pod_gets_a_card_when_its_victims_are_gone(play: Stage) -> None:
    await play.machines(3, 2)
    front = await play.front()
    await asyncio.to_thread(front.wait_ready)
    await play.submit([whole(f"low{number}", owner=OWNERS[number % 3]) for number in range(6)])
    before = await play.placed(6)
    play.kubelets.may_end.clear()
    await play.submit([play.urgent(whole("urgent", 2))])
    await play.until(lambda pods: sum(pod.terminating for pod in pods) >= 2, "somebody gives way")
    leaving = [pod for pod in await play.pods() if "deletionTimestamp" in pod["metadata"]]
    (node,) = {pod["spec"]["nodeName"] for pod in leaving}
    assert len(leaving) == 2, "no more than are needed, and of one machine"
    assert await play.node_of("urgent") == "", "they are still there"
    assert await play.holdings() == before
    play.kubelets.may_end.set()
    held = await play.bound("urgent")
    assert await play.node_of("urgent") == node
    gone = {pod["metadata"]["name"] for pod in leaving}
    freed = {card for _, name, card in before if name in gone}
    assert {card for _, name, card in held if name == "urgent"} == freed
    assert {each for each in before if each[1] not in gone} == {each for each in held if each[1] != "urgent"}
    await settled(play, front)


async def test_a_part_of_a_card_is_freed_for_a_pod_of_higher_priority(play: Stage) -> None:
    """kube-scheduler sees no reason to evict anybody: nobody asks for what it counts."""
    await play.machines(3, 1)
    front = await play.front()
    await asyncio.to_thread(front.wait_ready)
    await play.submit([a_part(f"low{number}", 50, owner=OWNERS[number % 3]) for number in range(6)])
    before = await play.placed(6)
    play.kubelets.may_end.clear()
    await play.submit([a_part("equal", 50), play.urgent(a_part("urgent", 80))])
    await play.until(lambda pods: sum(pod.terminating for pod in pods) >= 2, "somebody gives way")
    leaving = [pod for pod in await play.pods() if "deletionTimestamp" in pod["metadata"]]
    (node,) = {pod["spec"]["nodeName"] for pod in leaving}
    assert len(leaving) == 2, "no more than are needed, and of one machine"
    front.kill_now()  # the next leader sees to their eviction
    await dies(front)
    await asyncio.to_thread(front.start)
    await asyncio.to_thread(front.wait_ready)
    assert await play.holdings() == before, "they are still there"
    play.kubelets.may_end.set()
    held = await play.bound("urgent")
    assert await play.node_of("urgent") == node
    gone = {pod["metadata"]["name"] for pod in leaving}
    assert {each for each in before if each[1] not in gone} == {each for each in held if each[1] != "urgent"}
    assert await play.node_of("equal") == ""
    await settled(play, front)


async def test_many_urgent_pods_evict_as_many_pods_as_they_need(play: Stage) -> None:
    """Their pods are killed at once, and leave some time after; the next round counts them as gone."""
    await play.machines(2, 2)
    front = await play.front()
    await asyncio.to_thread(front.wait_ready)
    await play.submit([a_part(f"low{number}", 50, owner=OWNERS[number % 3]) for number in range(8)])
    await play.placed(8)
    play.kubelets.may_end.clear()
    await play.submit([play.urgent(a_part(f"urgent{number}", 50)) for number in range(5)])
    await play.until(lambda pods: sum(pod.terminating for pod in pods) >= 5, "they give way")
    play.kubelets.may_end.set()
    urgent = {f"urgent{number}" for number in range(5)}
    await play.until(
        lambda pods: urgent <= {pod.metadata.name for pod in pods if pod.spec.node_name}, "all are placed", 90.0
    )
    left = [pod["metadata"]["name"] for pod in await play.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert sum(name.startswith("low") for name in left) == 3
    await play.holdings()
    await settled(play, front)


# --- who may come in ---


async def test_pods_come_through_the_webhook(play: Stage, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    front = await play.front(f'webhook_bind = "127.0.0.1:0"\n{files.settings("webhook_")}')
    await asyncio.to_thread(front.wait_ready)
    await play.machines(2, 2)
    hook = Hook(f"{front.url('webhook')}/webhook", files.ca_file.read_bytes(), OWNERS[0])
    if isinstance(play.server, ApiServer):
        play.server.hook = hook
    else:
        await play.api.write(Create(WEBHOOKS, hook.configuration()))
    try:
        refused = whole("refused")
        refused["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        await _until_refused(play, refused)
        forged = whole("forged", schedulerName="default-scheduler")
        forged["metadata"]["annotations"] = {"ullage.io/gpu-ids": "n000/nvidia.com/gpu/0"}
        await play.submit([forged, whole("plain", 1), a_part("half", 50)])
        held = await play.placed(3)
        assert len(held) == 3
        (pod,) = (pod for pod in await play.pods() if pod["metadata"]["name"] == "forged")
        assert pod["spec"]["schedulerName"] == "ullage"
        await settled(play, front)
    finally:
        if not isinstance(play.server, ApiServer):
            await play.api.write(Delete(WEBHOOKS, hook.namespace))


async def _until_refused(play: Stage, pod: dict[str, Any]) -> None:
    """An API server takes a moment until it asks a new webhook."""
    clock = asyncio.get_running_loop().time
    end = clock() + 30
    while True:
        try:
            await play.submit([pod])
        except UllageError as error:
            if "spec.containers[0].securityContext.privileged" not in error.message:
                raise
            return
        assert clock() < end, "it is never refused"
        await play.api.write(Delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_s=0))
