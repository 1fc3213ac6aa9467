"""Pods with cards of several vendors that wait: in queues, for victims, and as plans say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_cluster_page import page
from tests.kube.test_front import put, running
from tests.kube.test_preemption import URGENT, Pressed, pressed
from tests.kube.test_queue_admission import GATE, story
from tests.kube.test_vendor_stories import NOW, READERS
from tests.kube.vendor_nodes import Document, a_node, a_pod
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.evicting.preemption import PATIENCE_S
from ullage.model.queue import parse_queue
from ullage.wire.extender import ExtenderArgs, PreemptionArgs, Victims

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"


def node(name: str, nvidia: int, amd: int) -> Document:
    amounts = {GPU: str(nvidia), AMD: str(amd)}
    return a_node(name, None, **{key: value for key, value in amounts.items() if value != "0"})


def both(name: str, nvidia: int = 1, amd: int = 1, **spec: Any) -> Document:
    return a_pod(name, {GPU: nvidia}, {AMD: amd}, **spec)


def gated(pod: Document, **annotations: str) -> Document:
    pod["metadata"] |= {"labels": {GATE: "x"}, "annotations": {f"ullage.io/{k}": v for k, v in annotations.items()}}
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


def of_one_node(found: Any) -> set[str]:
    return {each.node for each in found}


async def test_a_queue_admits_a_pod_where_there_is_room_for_all_its_cards(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", node("a", 2, 1), node("b", 2, 0), node("c", 0, 2))
    put(server, "pods", gated(both("first")))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"first"}, "it goes")
        assert up.note("first", "place") == "a"
        put(server, "pods", gated(both("second")))
        await up.reported("second", "no node has room for its cards of NVIDIA and AMD together")
        assert "1 of 1 in queue x" in up.note("second"), "it is one pod"
        assert up.front.admission.gates.figures()["x"].waiting == 1
        put(server, "pods", gated(both("wide", amd=3)))
        await up.reported("wide", "no node has room for its cards of AMD")
        up.end("first")
        await until(lambda: "second" in up.bound, "there is room for it now")
        assert up.front.admission.gates.figures()["x"].opened == 2


async def test_what_a_queue_promises_is_kept_of_both_vendors_after_a_restart(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", node("a", 1, 1), node("b", 1, 1))
    (pod,) = put(server, "pods", gated(both("p")))
    uid = pod["metadata"]["uid"]
    (other,) = put(server, "pods", a_pod("other", {AMD: 1}))
    for _ in range(2):
        async with story(server, api, holds={"p", "other"}) as up:
            await until(lambda: not up.gated, "its gate is open")
            entries = up.front.cluster.allocator.nominations.entries
            assert {each.request.uid for each in entries} == {uid, f"{uid}#1"}
            (place,) = of_one_node(entries)
            assert up.note("p", "place") == place
            found = up.scheduler.extender.filter(ExtenderArgs(pod=other, node_names=["a", "b"]))
            assert set(found.node_names or ()) == {"a", "b"} - {place}
            up.front.cluster.withdraw(other["metadata"]["uid"])


async def test_a_member_of_a_gang_has_cards_of_one_family(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", node("a", 4, 4))
    words = {"gang-enabled": "true", "gang-group-key": "default/g", "gang-min-members": "2"}
    put(server, "pods", *(gated(both(name), **words) for name in ("p", "q")))
    async with story(server, api) as up:
        await up.reported("p", "a member of a gang has cards of one family")
        assert up.gated == {"p", "q"}


async def test_quotas_of_a_queue_count_the_cards_of_all_vendors(server: ApiServer, api: HttpKubeApi) -> None:
    """A pod alone takes one card of the limit, one with cards of two vendors takes two."""
    put(server, "nodes", node("a", 4, 4))
    async with story(server, api, parse_queue("x", "root", 1, None, "gpu=3")) as up:
        put(server, "pods", gated(both("first")))
        await until(lambda: up.bound == {"first"}, "it goes")
        put(server, "pods", gated(both("second")))
        await until(lambda: up.note("second") != "", "it has a reason to wait")
        put(server, "pods", gated(a_pod("alone", {AMD: 1})))
        await until(lambda: "alone" in up.bound, "one card more is allowed")
        assert up.bound == {"first", "alone"}


async def place(it: Pressed, name: str, limits: dict[str, int | str], priority: int = 0) -> None:
    pod = a_pod(name, limits, priority=priority)
    await it.place("v", pod)


async def test_pods_give_way_for_the_cards_of_each_vendor(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", node("v", 2, 1))
    async with pressed(server, api, nodes=0) as it:
        await place(it, "low", {GPU: 1})
        await place(it, "high", {GPU: 1}, priority=5)
        await place(it, "amd", {AMD: 1}, priority=3)
        it.create(both("urgent", priority=URGENT))
        assert await it.ask("urgent", "v") == []
        assert await it.look(PATIENCE_S + 0.1) == {"low", "amd"}
        await it.heard_to_leave("low", "amd")
        uid = it.pods["urgent"]["metadata"]["uid"]
        entries = it.up.front.cluster.allocator.nominations.entries
        assert {each.request.uid for each in entries} == {uid, f"{uid}#1"}
        await it.end("low")
        await it.end("amd")
        it.create(a_pod("late", {AMD: 1}))
        assert await it.ask("late", "v") == [], "the room is kept"
        assert await it.up.place(it.pods["urgent"], ["v"]) == "!v"


async def test_a_pod_with_cards_of_two_vendors_gives_way_once_and_frees_both(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", node("v", 1, 1))
    async with pressed(server, api, nodes=0) as it:
        await it.place("v", both("low"))
        it.create(a_pod("urgent", {AMD: 1}, priority=URGENT))
        assert await it.ask("urgent", "v") == []
        named = await it.extender.preempt(PreemptionArgs(it.pods["urgent"], {"v": Victims()}))
        (victims,) = named.node_name_to_meta_victims.values()
        assert victims.uids == (it.pods["low"]["metadata"]["uid"],)
        it.create(both("more", priority=URGENT))
        assert await it.ask("more", "v") == []
        named = await it.extender.preempt(PreemptionArgs(it.pods["more"], {"v": Victims()}))
        (victims,) = named.node_name_to_meta_victims.values()
        assert victims.uids == (it.pods["low"]["metadata"]["uid"],)
        await it.end("low")
        assert not it.up.front.cluster.allocator.fleet.ledger


async def test_no_pod_gives_way_where_cards_of_the_other_vendor_never_suffice(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", node("v", 1, 1))
    async with pressed(server, api, nodes=0) as it:
        await place(it, "low", {GPU: 1})
        it.create(both("urgent", amd=2, priority=URGENT))
        assert await it.ask("urgent", "v") == []
        assert await it.look(PATIENCE_S + 0.1) == set()
        named = await it.extender.preempt(PreemptionArgs(it.pods["urgent"], {"v": Victims()}))
        assert named.node_name_to_meta_victims == {}


async def test_a_plan_has_the_cards_of_both_vendors_or_names_the_one_that_lacks_some(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", node("a", 2, 1), node("b", 2, 0))
    async with page(server, api) as up:
        plan = await up.plan(pod=both("p", nvidia=2))
        assert plan.choice is not None
        assert plan.choice.node == "a"
        assert [each.uuid for each in plan.choice.gpus] == [
            "a/nvidia.com/gpu/0",
            "a/nvidia.com/gpu/1",
            "a/amd.com/gpu/0",
        ]
        plan = await up.plan(pod=both("p", amd=2))
        assert plan.refusal is not None
        assert "AMD: asks for 2 whole cards" in plan.refusal.message
        assert "NVIDIA: " not in plan.refusal.message


async def test_an_expected_place_that_no_pod_takes_ends_for_both_vendors(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", node("a", 1, 1))
    (pod,) = put(server, "pods", both("p"))
    async with running(server, api, now=lambda: NOW, readers=READERS) as up:
        assert (await up.ask("filter", Pod=pod, NodeNames=["a"]))["NodeNames"] == ["a"]
        assert len(up.front.cluster.allocator.nominations.entries) == 2
        await until(lambda: ("default", "p") in up.front.pods.objects, "it is heard of")
        server.do(lambda: server.rules.delete(("pods", "default", "p"), {"gracePeriodSeconds": 0}))
        await until(lambda: not up.front.cluster.allocator.nominations.entries, "nothing is reserved for it")
