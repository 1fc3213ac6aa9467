"""Pods with cards of several vendors: from the webhook to the books of a restarted process."""

from __future__ import annotations

import random

import pytest

from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import until
from tests.kube.test_after_init import ENDED
from tests.kube.test_front import Running, binding, put, running
from tests.kube.test_vendor_stories import MUTEX, NOW, OWNED, READERS, SECONDS, both, held_by, ours, pod_of
from tests.kube.test_webhook import admitted, refused
from tests.kube.vendor_nodes import Document, a_node, a_pod, card, registered
from ullage.kube.client.changes import Patch, PatchType
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.device_plugins import PluginTerms
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.quantity import PPM

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NVIDIA = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
ASCEND = {"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": 9000}
NPU = "huawei.com/Ascend910B3"
MLU = {"cambricon.com/vmlu": 1, "cambricon.com/mlu.smlu.vmemory": 4, "cambricon.com/mlu.smlu.vcore": 10}
MLU_LOCK = "cambricon.com/dsmlu.lock"


def two_vendors(name: str, *, gpus: int = 1, npus: int = 1, mib: int = 16000, **amounts: str) -> Document:
    """A node with cards of NVIDIA and of Ascend."""
    cards = registered("hami.io/node-nvidia-register", *(card(f"{name}-G{at}", mib, index=at) for at in range(gpus)))
    cards |= registered(
        "hami.io/node-register-Ascend910B3",
        *(card(f"{name}-N{at}", 65536, 20, index=at, type="Ascend910B3") for at in range(npus)),
    )
    return a_node(name, cards, **amounts)


async def unlock(up: Running, node: str) -> None:
    """The device plugins have handed out the devices, and the kubelet reports the containers of all pods there."""
    api, server = up.front.context.api, up.server
    await api.write(Patch(NODES, node, {"metadata": {"annotations": dict.fromkeys((MUTEX, MLU_LOCK))}}))
    store = server.do(lambda: server.store.at(server.store.revision))
    for (kind, _, name), pod in store.items():
        if kind == "pods" and pod["spec"].get("nodeName") == node:
            await started(up, name)


async def started(up: Running, name: str) -> None:
    state = {"name": "c0", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    body = {"status": {"containerStatuses": [state]}}
    await up.front.context.api.write(Patch(PODS, name, body, "default", PatchType.MERGE, "status"))


def locks_of(server: ApiServer, node: str) -> dict[str, str]:
    notes = server.do(lambda: server.rules.get(("nodes", "", node)))["metadata"]["annotations"]
    return {key: value for key, value in notes.items() if "lock" in key}


def used(up: Running) -> dict[str, tuple[float, float]]:
    """The part of the compute and of the memory of each card that the books say is held."""
    fleet = up.front.cluster.allocator.fleet
    found: dict[str, tuple[float, float]] = {}
    for held in fleet.ledger.values():
        for at, uuid in enumerate(held.gpus):
            gpu = fleet.cards[fleet.card_of[uuid]]
            compute, vram = found.get(uuid, (0.0, 0.0))
            charge = held.charges[at] if held.charges else None
            whole = charge is None
            found[uuid] = (
                compute + (1 if whole or charge is None else charge.compute / gpu.compute),
                vram + (1 if whole or charge is None else charge.vram / gpu.vram),
            )
    return found


async def test_the_story_of_a_pod_with_cards_of_two_vendors(server: ApiServer, api: HttpKubeApi) -> None:
    body = admitted(a_pod("p", NVIDIA, ASCEND))
    limits = [each["resources"]["limits"] for each in body["spec"]["containers"]]
    assert limits[0] == {key: str(value) for key, value in NVIDIA.items()}
    assert limits[1] == {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "16384"}
    put(server, "nodes", two_vendors("a"))
    (pod,) = put(server, "pods", body)
    uid = pod["metadata"]["uid"]
    holds = {"a-G0": (300_000, 3000), "a-N0": (0, 16384)}
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        found = pod_of(server)["metadata"]["annotations"]
        assert found["ullage.io/gpu-ids"] == "a-G0,a-N0"
        assert {key: found[key] for key in found.keys() - ours(found).keys()} == {
            **both("vgpu", "a-G0,NVIDIA,3000,30:;;"),
            **both("Ascend910B3", ";a-N0,Ascend910B3,16384,0:;"),
            "predicate-time": SECONDS,
            "huawei.com/Ascend910B3": '[{"UUID":"a-N0","temp":"vir05_1c_16g","memory":16384}]',
            "hami.io/vgpu-node": "a",
            "hami.io/vgpu-time": SECONDS,
            "hami.io/bind-phase": "allocating",
            "hami.io/bind-time": SECONDS,
        }
        assert locks_of(server, "a") == {MUTEX: OWNED}
        assert held_by(up, uid) == holds
        before = dict(up.front.cluster.allocator.fleet.ledger)
        assert {each.claim.pod_uid for each in before.values() if each.claim} == {uid}
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert up.front.cluster.allocator.fleet.ledger == before
        await api.write(Patch(PODS, "p", {"status": {"phase": "Succeeded"}}, "default", PatchType.MERGE, "status"))
        await until(lambda: not up.front.cluster.allocator.fleet.ledger, "the pod has ended")


async def test_cards_of_a_plain_plugin_go_together_with_those_of_another_vendor(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", None, **{"nvidia.com/gpu": "2", "amd.com/gpu": "1"}))
    first, second = put(
        server,
        "pods",
        a_pod("first", {"amd.com/gpu": 1, "nvidia.com/gpu": 1}),
        a_pod("second", {"amd.com/gpu": 1}, {"nvidia.com/gpu": 1}),
    )
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(first, ["a"]) == "!a"
        assert held_by(up, first["metadata"]["uid"]) == {"a/amd.com/gpu/0": (PPM, 0), "a/nvidia.com/gpu/0": (PPM, 0)}
        assert "AMD: " in await up.place(second, ["a"])
        before = dict(up.front.cluster.allocator.fleet.ledger)
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert up.front.cluster.allocator.fleet.ledger == before


async def test_the_refusal_names_the_family_that_lacks_room(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a"), two_vendors("b", npus=0), two_vendors("c", gpus=0))
    taken, pod = put(
        server, "pods", a_pod("taken", ASCEND | {"huawei.com/Ascend910B3-memory": 65536}), a_pod("p", NVIDIA, ASCEND)
    )
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(taken, ["a"]) == "!a"
        await unlock(up, "a")
        found = await up.ask("filter", Pod=pod, NodeNames=["a", "b", "c"])
        assert found["NodeNames"] == []
        why = found["FailedNodes"] | found["FailedAndUnresolvableNodes"]
        assert why["a"] == "Ascend910B3: 1/2 CardTypeMismatch, 1/2 CardInsufficientMemory"
        assert why["b"].startswith("Ascend910B3: ")
        assert "NVIDIA" not in why["b"]
        assert why["c"].startswith("NVIDIA: ")
        event = up.front.events.latest()[pod["metadata"]["uid"]]
        assert "no node has room for its cards of NVIDIA and Ascend910B3" in event.message
        assert not up.front.cluster.allocator.nominations.entries, "nothing is reserved for it"


async def test_of_two_pods_that_race_one_has_both_cards_and_the_other_none(server: ApiServer, api: HttpKubeApi) -> None:
    """The first family has room for both pods, the second for one."""
    put(server, "nodes", two_vendors("a", gpus=2))
    whole = ASCEND | {"huawei.com/Ascend910B3-memory": 65536}
    pods = put(server, "pods", a_pod("one", NVIDIA, whole), a_pod("two", NVIDIA, whole))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        answers = []
        for pod in pods:
            answers.append((await up.ask("bind", **binding(pod, "a")))["Error"])
            await unlock(up, "a")
        assert answers[0] == ""
        assert "no room for the pod's cards of Ascend910B3" in answers[1]
        one, two = (up.front.cluster.held_by_family(pod["metadata"]["uid"]) for pod in pods)
        assert [len(each.gpus) for each in one] == [1, 1]
        assert two == ()
        assert len(used(up)) == 2


async def test_what_is_expected_of_a_pod_is_not_offered_to_another(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a", gpus=2))
    whole = ASCEND | {"huawei.com/Ascend910B3-memory": 65536}
    first, second, alone = put(
        server, "pods", a_pod("first", NVIDIA, whole), a_pod("second", NVIDIA, whole), a_pod("alone", whole)
    )
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert (await up.ask("filter", Pod=first, NodeNames=["a"]))["NodeNames"] == ["a"]
        assert (await up.ask("filter", Pod=second, NodeNames=["a"]))["NodeNames"] == []
        assert (await up.ask("filter", Pod=alone, NodeNames=["a"]))["NodeNames"] == []
        assert (await up.ask("bind", **binding(first, "a")))["Error"] == ""


@pytest.mark.parametrize("status", [403, 422])
async def test_a_bind_that_is_refused_leaves_nothing_reserved_and_no_lock(
    server: ApiServer, api: HttpKubeApi, status: int
) -> None:
    node = two_vendors("a", **{"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "80"})
    put(server, "nodes", node)
    (pod,) = put(server, "pods", a_pod("p", NVIDIA, MLU, ASCEND))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        server.canned += [Canned("POST", "/binding", status)] * 9
        assert (await up.ask("bind", **binding(pod, "a")))["Error"]
        assert not up.front.cluster.allocator.fleet.ledger
        assert locks_of(server, "a") == {}
        server.canned.clear()
        assert (await up.ask("bind", **binding(pod, "a")))["Error"] == ""
        assert locks_of(server, "a") == {MUTEX: OWNED, MLU_LOCK: OWNED.partition(",")[0]}
        assert sorted(held_by(up, pod["metadata"]["uid"])) == ["a-G0", "a-N0", "a-cambricon-mlu-0"]


async def test_a_lock_that_is_held_is_waited_for_with_no_other_lock_left(server: ApiServer, api: HttpKubeApi) -> None:
    """The locks are taken by name, so that of Cambricon's plugin comes first."""
    amounts = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "80"}
    put(server, "nodes", two_vendors("a", **amounts))
    (pod,) = put(server, "pods", a_pod("p", NVIDIA, MLU))
    (holder,) = put(server, "pods", a_pod("holder", NVIDIA, schedulerName="other"))
    lock = f"2026-01-31T12:00:00Z,default,{holder['metadata']['name']}"
    async with running(server, api, now=lambda: NOW, readers=READERS, plugins=PluginTerms(retry_s=0.0)) as up:
        await api.write(Patch(NODES, "a", {"metadata": {"annotations": {MUTEX: lock}}}))
        await until(lambda: MUTEX in (up.front.nodes.objects["", "a"].metadata.annotations or {}), "the lock is seen")
        assert "node-locked" in (await up.ask("bind", **binding(pod, "a")))["Error"]
        assert locks_of(server, "a") == {MUTEX: lock}
        assert not up.front.cluster.allocator.fleet.ledger


async def test_while_plugins_with_one_lock_serve_a_pod_no_other_one_takes_it(
    server: ApiServer, api: HttpKubeApi
) -> None:
    """The plugin that is first to finish removes the lock; the other would serve the pod that takes it next."""
    put(server, "nodes", two_vendors("a", gpus=2, npus=2))
    first, second = put(server, "pods", a_pod("first", NVIDIA, ASCEND), a_pod("second", ASCEND))
    async with running(server, api, now=lambda: NOW, readers=READERS, plugins=PluginTerms(retry_s=0.0)) as up:
        assert await up.place(first, ["a"]) == "!a"
        await api.write(Patch(NODES, "a", {"metadata": {"annotations": {MUTEX: None}}}))
        await until(lambda: MUTEX not in (up.front.nodes.objects["", "a"].metadata.annotations or {}), "it is removed")
        assert "several plugins serve pod default/first" in (await up.ask("bind", **binding(second, "a")))["Error"]
        await started(up, "first")
        await until(lambda: "containerStatuses" in up.front.pods.objects["default", "first"].document["status"], "")
        assert (await up.ask("bind", **binding(second, "a")))["Error"] == ""


async def test_a_quota_counts_the_cards_of_its_family_alone(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a", gpus=3, npus=3))
    hard = {"limits.nvidia.com/gpumem": "5000", "limits.huawei.com/Ascend910B3-memory": "40000"}
    put(server, "resourcequotas", {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}})
    first, more, npus, rest = put(
        server,
        "pods",
        a_pod("first", NVIDIA, ASCEND),
        a_pod("more", NVIDIA, ASCEND),
        a_pod("npus", ASCEND),
        a_pod("rest", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000, "nvidia.com/gpucores": 1}, ASCEND),
    )
    async with running(server, api, now=lambda: NOW, readers=READERS, resource_quotas=True) as up:
        assert await up.place(first, ["a"]) == "!a"
        await unlock(up, "a")
        answer = await up.place(more, ["a"])
        assert "NVIDIA: " in answer
        assert "ResourceQuotaNotFit" in answer
        assert "Ascend" not in answer
        assert await up.place(npus, ["a"]) == "!a"
        await unlock(up, "a")
        answer = await up.place(rest, ["a"])
        assert "Ascend910B3: " in answer
        assert "ResourceQuotaNotFit" in answer
        assert "NVIDIA" not in answer
        assert up.front.quotas is not None
        figures = {each.resource: (each.limit, each.used) for _, each in up.front.quotas.figures()}
        assert figures["nvidia.com/gpumem"] == (5000, 3000)
        assert figures["huawei.com/Ascend910B3-memory"] == (40000, 32768)


async def test_cards_of_init_containers_of_one_family_become_free(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a"))
    body = a_pod("p", ASCEND)
    (init,) = a_pod("x", NVIDIA)["spec"]["containers"]
    body["spec"]["initContainers"] = [init | {"name": "i0"}]
    (pod,) = put(server, "pods", body)
    uid = pod["metadata"]["uid"]
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        assert held_by(up, uid) == {"a-G0": (300_000, 3000), "a-N0": (0, 16384)}
        state = {"name": "i0", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ENDED}
        status = {"status": {"initContainerStatuses": [state]}}
        await api.write(Patch(PODS, "p", status, "default", PatchType.MERGE, "status"))
        await until(lambda: held_by(up, uid) == {"a-N0": (0, 16384)}, "the cards of the init container are free")
        before = dict(up.front.cluster.allocator.fleet.ledger)
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert {key: each.gpus for key, each in up.front.cluster.allocator.fleet.ledger.items()} == {
            key: each.gpus for key, each in before.items()
        }
        server.do(lambda: server.rules.delete(("pods", "default", "p"), {"gracePeriodSeconds": 0}))
        await until(lambda: not up.front.cluster.allocator.fleet.ledger, "the pod is gone")


async def test_a_pod_that_another_scheduler_bound_without_a_record_holds_cards_of_both(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", None, **{"nvidia.com/gpu": "2", "amd.com/gpu": "1"}))
    limits = {"amd.com/gpu": 1, "nvidia.com/gpu": 2}
    (pod,) = put(server, "pods", a_pod("p", limits, nodeName="a", schedulerName="other"))
    (second,) = put(server, "pods", a_pod("second", limits, nodeName="a", schedulerName="other"))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert len(held_by(up, pod["metadata"]["uid"])) == 3
        assert up.front.cluster.held_by_family(second["metadata"]["uid"]) == (), (
            "there is no room for both of its cards"
        )
        assert len(used(up)) == 3


@pytest.mark.parametrize(
    ("limits", "words", "why"),
    [
        (
            [NVIDIA | ASCEND],
            {"ullage.io/vram-request": "1Gi"},
            "the containers request cards of NVIDIA and Ascend910B3",
        ),
        ([NVIDIA, ASCEND], {"ullage.io/numa-policy": "restricted"}, "cannot be aligned to zones together"),
        ([NVIDIA, {"nvidia.com/mig-1g.10gb": 1}], {}, "slices of one profile, and no other cards"),
        ([{"amd.com/gpu": 1}, {"nvidia.com/mig-1g.10gb": 1}], {}, "slices of one profile, and no other cards"),
        (
            [NVIDIA, ASCEND, MLU, {"amd.com/gpu": 1}, {"hygon.com/dcunum": 1}],
            {},
            "a pod has cards of at most 4 families",
        ),
    ],
)
async def test_a_request_that_cannot_be_divided_is_refused_by_name(
    limits: list[Document], words: dict[str, str], why: str
) -> None:
    assert why in refused(a_pod("p", *limits, annotations=words))


async def test_the_zones_of_one_family_may_be_required(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a"))
    (pod,) = put(server, "pods", a_pod("p", ASCEND, NVIDIA, annotations={"nvidia.com/numa-bind": "true"}))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        asked = up.front.context.read_pod(pod)
        assert asked is not None
        assert [each.family for each in asked.by_family] == ["NVIDIA", "Ascend910B3"]
        assert pod_of(server)["metadata"]["annotations"]["ullage.io/gpu-ids"] == "a-G0,a-N0"


async def test_a_node_that_shows_both_cards_of_a_pod_contradicts_nothing(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a"))
    (pod,) = put(server, "pods", a_pod("p", NVIDIA, ASCEND))
    uid = pod["metadata"]["uid"]
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        before = held_by(up, uid)
        shown = PodHolding(uid=uid, containers=(Holding("c0", devices=(("gpu", ("a-N0", "a-G0")),)),))
        found = up.front.cluster.observe("a", Use((shown,)))
        assert not found.mismatches
        assert found.foreign is None
        assert held_by(up, uid) == before
        assert all(each.observed for each in up.front.cluster.held_by_family(uid))


async def test_a_pod_counts_once_on_its_node(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", None, pods="2", **{"nvidia.com/gpu": "2", "amd.com/gpu": "2"}))
    first, second = put(server, "pods", *(a_pod(name, {"nvidia.com/gpu": 1, "amd.com/gpu": 1}) for name in ("p", "q")))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        fleet = up.front.cluster.allocator.fleet
        assert await up.place(first, ["a"]) == "!a"
        await until(lambda: bool(up.front.pods.objects["default", "p"].spec.node_name), "it is known")
        up.front.mirror.settle()
        assert fleet.slots_free.tolist() == [1]
        assert await up.place(second, ["a"]) == "!a"
        await until(lambda: bool(up.front.pods.objects["default", "q"].spec.node_name), "it is known")
        up.front.mirror.settle()
        assert fleet.slots_free.tolist() == [0]


async def test_a_pod_whose_record_is_damaged_holds_all_cards_that_it_names(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", two_vendors("a"))
    (pod,) = put(server, "pods", a_pod("p", NVIDIA, ASCEND))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert await up.place(pod, ["a"]) == "!a"
        words = {"ullage.io/allocation": "{"}
        await api.write(Patch(PODS, "p", {"metadata": {"annotations": words}}, "default"))
        await until(lambda: "{" in str(up.front.pods.objects["default", "p"].metadata.annotations), "it is heard")
        await until(lambda: all(part <= (1, 1) for part in used(up).values()), "no card is held twice")
        assert sorted(used(up)) == ["a-G0", "a-N0"]
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert used(up) == {"a-G0": (1, 1), "a-N0": (1, 1)}


def free_of(server: ApiServer, cards: dict[str, int]) -> dict[str, int]:
    """The MiB of each card that the annotations of pods leave, worked out from these alone."""
    left = dict(cards)
    store = server.do(lambda: server.store.at(server.store.revision))
    for notes in (pod["metadata"]["annotations"] for (kind, _, _), pod in store.items() if kind == "pods"):
        for key in ("hami.io/vgpu-devices-allocated", "hami.io/Ascend910B3-devices-allocated"):
            for part in filter(None, notes.get(key, "").replace(";", "").split(":")):
                uuid, _, mib, _ = part.split(",")
                left[uuid] -= int(mib)
    return left


@pytest.mark.parametrize("seed", range(2))
async def test_a_pod_is_placed_if_and_only_if_a_node_has_room_for_all_its_cards(
    server: ApiServer, api: HttpKubeApi, seed: int
) -> None:
    """Random pods on small nodes against sums of what is written on pods; a restart finds what was there."""
    chance = random.Random(seed)
    shapes = {"a": (1, 2), "b": (2, 1)}
    put(server, "nodes", *(two_vendors(name, gpus=gpus, npus=npus) for name, (gpus, npus) in shapes.items()))
    cards = {f"{name}-G{at}": 16_000 for name, (count, _) in shapes.items() for at in range(count)}
    cards |= {f"{name}-N{at}": 65_536 for name, (_, count) in shapes.items() for at in range(count)}
    there, outcomes = list[str](), set[bool]()
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        for number in range(40):
            mib, (asked, slice_) = chance.randint(1000, 9000), chance.choice([(9000, 16_384), (20_000, 32_768)])
            limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}, {NPU: 1, f"{NPU}-memory": asked}
            (pod,) = put(server, "pods", a_pod(f"p{number}", *limits))
            left = free_of(server, cards)
            fits = any(
                max(left[each] for each in cards if each.startswith(f"{name}-G")) >= mib
                and max(left[each] for each in cards if each.startswith(f"{name}-N")) >= slice_
                for name in shapes
            )
            answer = await up.place(pod, list(shapes))
            outcomes.add(fits)
            assert answer.startswith("!") is fits, (answer, mib, slice_, left)
            if fits:
                there.append(f"p{number}")
                await unlock(up, answer[1:])
            assert all(amount >= 0 for amount in free_of(server, cards).values())
            assert all(max(part) <= 1 for part in used(up).values())
            while there and chance.random() < 0.4:
                name = there.pop(chance.randrange(len(there)))
                uid = pod_of(server, name)["metadata"]["uid"]
                server.do(lambda name=name: server.rules.delete(("pods", "default", name), {"gracePeriodSeconds": 0}))
                await until(lambda uid=uid: not up.front.cluster.held_by_family(uid), "it is gone")
        before = dict(up.front.cluster.allocator.fleet.ledger)
    assert outcomes == {True, False}
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert up.front.cluster.allocator.fleet.ledger == before
