"""Slices of cards from the register to the plugin that makes them, and back from their annotations after a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hami_node import GPU, LOCK, REGISTER, remove
from tests.kube.mig_node import A30, A100, MIG, MigNode, mig_card, mig_node
from tests.kube.test_front import Running, put, running
from tests.kube.vendor_nodes import a_pod
from ullage.kube.client.changes import Patch
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.mirror.cards import register_readers
from ullage.model.allocation import Slot
from ullage.wire.vendors.shipped import FAMILIES

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

MIB = 2**20
READERS = register_readers(FAMILIES)
ALLOCATED = "hami.io/vgpu-devices-allocated"
MODE = {"nvidia.com/vgpu-mode": "mig"}
Document = dict[str, Any]


def asks(mib: int = 0, cores: int = 0, count: int = 1) -> dict[str, int | str]:
    amounts: dict[str, int | str] = {"nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores}
    return {GPU: count} | {name: amount for name, amount in amounts.items() if amount}


def sliced(name: str, *limits: dict[str, int | str], **more: Any) -> Document:
    """A pod whose containers ask for slices."""
    return a_pod(name, *limits, annotations=MODE | more.pop("annotations", {}), **more)


def notes(server: ApiServer, name: str) -> dict[str, str]:
    found: dict[str, str] = server.do(lambda: server.rules.get(("pods", "default", name)))["metadata"]["annotations"]
    return found


def places(up: Running) -> dict[str, list[tuple[str, tuple[Slot, ...]]]]:
    """The slices of each pod by its name, as the books have them."""
    return {
        held.claim.pod: [(gpu, charge.slots) for gpu, charge in zip(held.gpus, held.charges, strict=True)]
        for held in up.front.cluster.allocator.fleet.ledger.values()
        if held.claim is not None
    }


def slot(profile: str, start: int, size: int) -> Slot:
    return Slot(profile, start, start + size)


async def placed(up: Running, api: HttpKubeApi, pod: Document, *nodes: str) -> str:
    """Place a pod where no plugin runs: its lock is taken away as the plugin would do."""
    answer = await up.place(pod, list(nodes) or ["a"])
    if answer.startswith("!"):
        await api.write(Patch(NODES, answer[1:], {"metadata": {"annotations": {LOCK: None}}}))
    return answer


async def test_a_slice_is_reserved_made_found_again_and_given_back(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    first, second, large = put(
        server, "pods", sliced("p", asks(8000)), sliced("q", asks(8000, 20)), sliced("r", asks(30000))
    )
    async with MigNode(api, "a") as node:
        async with running(server, api, readers=READERS) as up:
            assert await up.place(first, ["a"]) == "!a"
            assert notes(server, "p")[ALLOCATED] == "GPU-1,NVIDIA,9728,15:;"
            await until(lambda: "migUUID" in notes(server, "p")[MIG], "its slice is made")
            assert notes(server, "p")[MIG] == (
                '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-1","profile":"1g.10gb",'
                '"placement":{"start":6,"size":1},"migUUID":"MIG-GPU-1-6","gpuInstanceID":13,"computeInstanceID":0}]'
            )
            await until(lambda: notes(server, "p")["hami.io/bind-phase"] == "success", "it is handed out")
            assert await up.place(second, ["a"]) == "!a"
            assert notes(server, "q")[ALLOCATED] == "GPU-1,NVIDIA,19968,29:;"
            assert "refused" in await up.place(large, ["a"]), "slot 6 is taken, and slots 0 and 1"
            known = places(up)
            assert known == {
                "p": [("GPU-1", (slot("1g.10gb", 6, 1),))],
                "q": [("GPU-1", (slot("2g.20gb", 0, 2),))],
            }
        await until(lambda: node.instances.keys() == {("GPU-1", 6, 1), ("GPU-1", 0, 2)}, "both are made")
        async with running(server, api, readers=READERS) as up:  # the leader was restarted
            assert places(up) == known
            await remove(api, "q")
            await until(lambda: "q" not in places(up), "the books have its slot again")
            assert await up.place(large, ["a"]) == "!a"
            await until(lambda: notes(server, "r")["hami.io/bind-phase"] == "success", "its slice is made")
            assert ("GPU-1", 0, 4) in node.instances
            await remove(api, "p")
            await remove(api, "r")
            await until(lambda: not places(up), "all is given back")
            fleet = up.front.cluster.allocator.fleet
            assert fleet.vram_free.tolist() == fleet.vram_total.tolist()
            assert fleet.compute_free.tolist() == fleet.compute_total.tolist()
        assert node.errors == []


async def test_each_container_has_a_slice_of_its_own(server: ApiServer, api: HttpKubeApi) -> None:
    """On one card, or on several; an init container uses the slice of one that starts later."""
    put(server, "nodes", mig_node("a", mig_card("GPU-1")), mig_node("b", mig_card("GPU-2"), mig_card("GPU-3", index=1)))
    init = [{"name": "i0", "image": "x", "resources": {"limits": {GPU: "1", "nvidia.com/gpumem": "8000"}}}]
    one, two = put(
        server,
        "pods",
        sliced("one", asks(8000), asks(8000), initContainers=init),
        sliced("two", asks(8000), asks(8000, count=2)),
    )
    async with MigNode(api, "a") as a, MigNode(api, "b") as b, running(server, api, readers=READERS) as up:
        assert await up.place(one, ["a"]) == "!a"
        assert places(up)["one"] == [("GPU-1", (slot("1g.10gb", 6, 1), slot("1g.10gb", 5, 1)))]
        assert notes(server, "one")[ALLOCATED] == "GPU-1,NVIDIA,9728,15:;" * 3
        await until(lambda: notes(server, "one")["hami.io/bind-phase"] == "success", "all are handed out")
        made = [(each["containerIndex"], each["migUUID"]) for each in json.loads(notes(server, "one")[MIG])]
        assert made == [(0, "MIG-GPU-1-6"), (1, "MIG-GPU-1-6"), (2, "MIG-GPU-1-5")]
        assert await up.place(two, ["b"]) == "!b"
        await until(lambda: notes(server, "two")["hami.io/bind-phase"] == "success", "all are handed out")
        assert len(b.instances) == 3
        known = places(up)
        assert a.errors == b.errors == []
    async with running(server, api, readers=READERS) as up:
        assert places(up) == known


async def test_seven_of_the_smallest_slices_fill_a_card(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    pods = put(server, "pods", *(sliced(f"p{at}", asks(8000)) for at in range(8)))
    async with running(server, api, readers=READERS) as up:
        answers = [await placed(up, api, pod) for pod in pods]
        assert answers[:7] == ["!a"] * 7
        assert "1/1 CardMigTopologyInfeasible" in answers[7]
        starts = [places(up)[f"p{at}"] for at in range(7)]
        assert starts == [[("GPU-1", (slot("1g.10gb", 6 - at, 1),))] for at in range(7)]


async def test_a_pod_with_two_slices_hears_of_places_not_of_cards(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1", A100[2:3])))
    first, second = put(server, "pods", *(sliced(name, asks(8000), asks(8000)) for name in ("p", "q")))
    async with running(server, api, readers=READERS) as up:
        assert await placed(up, api, first) == "!a"
        assert places(up)["p"] == [("GPU-1", (slot("3g.40gb", 4, 4), slot("3g.40gb", 0, 4)))]
        assert "1/1 CardMigTopologyInfeasible" in await placed(up, api, second)


async def test_a_larger_profile_is_taken_where_the_smallest_has_no_place(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1", A30[1:], 24576)))
    pods = put(server, "pods", *(sliced(f"p{at}", asks(5000)) for at in range(3)))
    async with running(server, api, readers=READERS) as up:
        assert [await placed(up, api, pod) for pod in pods[:2]] == ["!a", "!a"]
        assert places(up) == {
            "p0": [("GPU-1", (slot("2g.12gb", 0, 2),))],
            "p1": [("GPU-1", (slot("2g.12gb", 2, 2),))],
        }
        assert "refused" in await placed(up, api, pods[2])


@pytest.mark.parametrize(
    ("limits", "profile"),
    [
        (asks(9728), "1g.10gb"),
        (asks(9729), "2g.20gb"),
        (asks(1000, 15), "1g.10gb"),
        (asks(1000, 16), "2g.20gb"),
        (asks(1000, 44), "7g.79gb"),
        ({GPU: 1, "nvidia.com/gpumem-percentage": 50}, "7g.79gb"),
        ({GPU: 1, "nvidia.com/gpumem-percentage": 49}, "3g.40gb"),
        (asks(), "7g.79gb"),
    ],
)
async def test_memory_and_cores_choose_the_profile(
    server: ApiServer, api: HttpKubeApi, limits: dict[str, int | str], profile: str
) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    (pod,) = put(server, "pods", sliced("p", limits))
    async with running(server, api, readers=READERS) as up:
        assert await placed(up, api, pod) == "!a"
        ((_, (found,)),) = places(up)["p"]
        assert found.template == profile


@pytest.mark.parametrize(
    ("words", "profile"), [({"partition-id": "3g.40gb"}, "3g.40gb"), ({"vram-request": "10Gi"}, "2g.20gb")]
)
async def test_our_own_words_ask_for_a_slice(
    server: ApiServer, api: HttpKubeApi, words: dict[str, str], profile: str
) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    annotations = {f"ullage.io/{key}": value for key, value in ({"isolation": "partitioned"} | words).items()}
    (pod,) = put(server, "pods", a_pod("p", {GPU: 1}, annotations=annotations))
    async with MigNode(api, "a") as node, running(server, api, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        await until(lambda: notes(server, "p")["hami.io/bind-phase"] == "success", "its slice is made")
        assert [name for _, name in node.instances.values()] == [profile]
        known = places(up)
    async with running(server, api, readers=READERS) as up:
        assert places(up) == known


async def test_pods_of_one_mode_do_not_get_cards_of_the_other(server: ApiServer, api: HttpKubeApi) -> None:
    soft = {key: value for key, value in mig_card("GPU-2").items() if key not in ("mode", "migProfiles")}
    put(server, "nodes", mig_node("a", mig_card("GPU-1")), mig_node("b", soft))
    pods = put(server, "pods", sliced("p", asks(8000)), a_pod("q", asks(8000)))
    async with running(server, api, readers=READERS) as up:
        assert [await placed(up, api, pod, "a", "b") for pod in pods] == ["!a", "!b"]
        assert "refused" in await placed(up, api, pods[0], "b")
        assert "refused" in await placed(up, api, pods[1])


@pytest.mark.parametrize(
    ("containers", "victims"), [([asks(30000)], {"p0", "p1", "p2"}), ([asks(8000), asks(8000)], {"p0", "p1"})]
)
async def test_the_fewest_slices_leave_for_a_pod_of_higher_priority(
    server: ApiServer, api: HttpKubeApi, containers: list[dict[str, int | str]], victims: set[str]
) -> None:
    """A slice 3g.40gb needs four slots from 4 on, of which three are held; two of 1g.10gb need any two."""
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    pods = put(server, "pods", *(sliced(f"p{at}", asks(8000), priority=at) for at in range(7)))
    (high,) = put(server, "pods", sliced("high", *containers, priority=100))
    async with running(server, api, readers=READERS) as up:
        assert [await placed(up, api, pod) for pod in pods] == ["!a"] * 7
        refused = await up.ask("filter", Pod=high, NodeNames=["a"])
        assert refused["FailedNodes"] == {"a": "1/1 CardMigTopologyInfeasible"}
        there = {"a": {"Pods": [], "NumPDBViolations": 0}}
        found = (await up.ask("preempt", Pod=high, NodeNameToMetaVictims=there))["NodeNameToMetaVictims"]
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
        assert {names[each["UID"]] for each in found["a"]["Pods"]} == victims


# --- pods that HAMi's scheduler placed ---


def of_hami(name: str, devices: str, reserved: list[Document] | None, node: str = "a") -> Document:
    words = {"hami.io/vgpu-node": node, ALLOCATED: devices}
    words |= {} if reserved is None else {MIG: json.dumps(reserved)}
    return sliced(name, asks(8000), annotations=words, nodeName=node, schedulerName="hami-scheduler")


def reservation(start: int, size: int, name: str = "1g.10gb", gpu: str = "GPU-1", **more: Any) -> Document:
    place = {"start": start, "size": size}
    about = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": gpu, "profile": name, "placement": place}
    return about | more


async def test_a_slice_of_hamis_scheduler_holds_its_place(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    other = of_hami("h", "GPU-1,NVIDIA,9728,15:;", [reservation(6, 1)])
    _, pod = put(server, "pods", other, sliced("p", asks(8000)))
    async with running(server, api, readers=READERS) as up:
        await until(lambda: "h" in places(up), "it is read")
        assert await placed(up, api, pod) == "!a"
        assert places(up) == {
            "h": [("GPU-1", (slot("1g.10gb", 6, 1),))],
            "p": [("GPU-1", (slot("1g.10gb", 5, 1),))],
        }
        ids = {"migUUID": "MIG-1", "gpuInstanceID": 9, "computeInstanceID": 0}
        written = {MIG: json.dumps([reservation(6, 1, **ids)])}
        await api.write(Patch(PODS, "h", {"metadata": {"annotations": written}}, "default"))
        (more,) = put(server, "pods", sliced("more", asks(8000)))
        assert await placed(up, api, more) == "!a"
        assert places(up)["h"] == [("GPU-1", (slot("1g.10gb", 6, 1),))]
        assert json.loads(notes(server, "h")[MIG])[0]["migUUID"] == "MIG-1"


@pytest.mark.parametrize(
    ("devices", "reserved"),
    [
        ("GPU-1,NVIDIA,9728,15:;", None),
        ("GPU-1,NVIDIA,9728,15:;", [reservation(6, 1, gpuInstanceID=9)]),
        ("GPU-1,NVIDIA,9728,15:;", [reservation(6, 1, containerIndex=1)]),
        ("GPU-1,NVIDIA,9728,15:GPU-1,NVIDIA,9728,15:;", [reservation(6, 1)]),
        ("GPU-1,NVIDIA,9728,15:;", [reservation(7, 1)]),
        ("GPU-1,NVIDIA,9728,15:;", [reservation(6, 1, "4g.40gb")]),
        ("GPU-1[1-2],NVIDIA,9728,15:;", None),
    ],
    ids=["none", "some ids", "of another container", "too few", "no such place", "no such profile", "of old HAMi"],
)
async def test_a_slice_without_a_known_place_closes_its_card(
    server: ApiServer, api: HttpKubeApi, devices: str, reserved: list[Document] | None
) -> None:
    """The other card takes slices; this one does again when the pod is gone."""
    put(server, "nodes", mig_node("a", mig_card("GPU-1"), mig_card("GPU-2", index=1)))
    _, *pods = put(server, "pods", of_hami("h", devices, reserved), *(sliced(f"p{at}", asks(8000)) for at in range(8)))
    async with running(server, api, readers=READERS) as up:
        await until(lambda: "h" in places(up), "it is read")
        answers = [await placed(up, api, pod) for pod in pods]
        assert answers[:7] == ["!a"] * 7
        assert "refused" in answers[7]
        assert {gpu for at in range(7) for gpu, _ in places(up)[f"p{at}"]} == {"GPU-2"}
        await remove(api, "h")
        await until(lambda: "h" not in places(up), "it is gone")
        assert await placed(up, api, pods[7]) == "!a"
        assert places(up)["p7"] == [("GPU-1", (slot("1g.10gb", 6, 1),))]


async def test_a_pod_with_a_slice_that_nobody_wrote_down_closes_its_node(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")), mig_node("b", mig_card("GPU-2")))
    pods = put(server, "pods", sliced("h", asks(8000), nodeName="a", schedulerName="other"), sliced("p", asks(8000)))
    async with running(server, api, readers=READERS) as up:
        assert "1/1 CardCordoned" in await placed(up, api, pods[1], "a")
        await remove(api, "h")
        await until(lambda: ("default", "h") not in up.front.mirror._pods.objects, "it is gone")
        assert await placed(up, api, pods[1], "a") == "!a"


# --- changes of a card ---


async def test_a_card_changes_its_mode_while_it_is_empty(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    first, second, soft = put(server, "pods", sliced("p", asks(8000)), sliced("q", asks(8000)), a_pod("s", asks(8000)))
    async with running(server, api, readers=READERS) as up:
        assert await placed(up, api, first) == "!a"
        await registers(up, api, mig_card("GPU-1") | {"mode": "hami-core", "migProfiles": []})
        assert "CardTypeMismatch" in await placed(up, api, soft), "a slice is there"
        assert "CardTypeMismatch" in await placed(up, api, second)
        await remove(api, "p")
        await until(lambda: not places(up), "it is empty")
        assert await placed(up, api, soft) == "!a"
        await registers(up, api, mig_card("GPU-1"))
        assert "CardTypeMismatch" in await placed(up, api, second), "a part of it is in use"
        await remove(api, "s")
        await until(lambda: not places(up), "it is empty")
        assert await placed(up, api, second) == "!a"


async def test_a_card_takes_slices_of_a_new_set_when_those_of_the_old_are_gone(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", mig_node("a", mig_card("GPU-1")))
    first, second = put(server, "pods", sliced("p", asks(15000)), sliced("q", asks(8000)))
    async with running(server, api, readers=READERS) as up:
        assert await placed(up, api, first) == "!a"
        await registers(up, api, mig_card("GPU-1", [A100[0], A100[2]]))
        assert "CardMigTopologyInfeasible" in await placed(up, api, second), "2g.20gb is not in the set"
        await remove(api, "p")
        await until(lambda: not places(up), "it is empty")
        assert await placed(up, api, second) == "!a"


async def registers(up: Running, api: HttpKubeApi, *cards: Document) -> None:
    text = json.dumps(cards)
    await api.write(Patch(NODES, "a", {"metadata": {"annotations": {REGISTER: text}}}))
    nodes = up.front.nodes.objects
    await until(lambda: (nodes["", "a"].metadata.annotations or {})[REGISTER] == text, "the register is observed")


@pytest.mark.parametrize(
    ("card", "limits", "sentence"),
    [
        (
            mig_card("GPU-1", [], type="NVIDIA A100-SXM4-80GB"),
            asks(8000),
            "there is GPU-1, of which its device plugin registers no profile",
        ),
        (mig_card("GPU-1", A100[:2]), asks(30000), "there is GPU-1 with 1g.10gb (9728Mi), 2g.20gb (19968Mi)"),
        (
            mig_card("GPU-1", A100),
            asks(80000),
            "no place for 7g.79gb or larger (1g.10gb free at 0, 1, 2, 3, 4, 5 and 2g.20gb free at 0, 2, 4 and 3g",
        ),
    ],
    ids=["no profile", "none large enough", "no place"],
)
async def test_a_refusal_names_the_profile_and_the_free_places(
    server: ApiServer, api: HttpKubeApi, card: Document, limits: dict[str, int | str], sentence: str
) -> None:
    put(server, "nodes", mig_node("a", card))
    one, pod = put(server, "pods", sliced("one", asks(8000)), sliced("p", limits))
    async with running(server, api, readers=READERS) as up:
        await placed(up, api, one)
        assert "CardMigTopologyInfeasible" in await placed(up, api, pod)
        await until(lambda: any("CardMig" in message for message in messages(server)), "it is reported", 5)
        assert sentence in next(message for message in messages(server) if "CardMig" in message)


def messages(server: ApiServer) -> list[str]:
    there = server.do(lambda: server.store.at(server.store.revision))
    return [item["message"] for key, item in there.items() if key[0] == "events"]
