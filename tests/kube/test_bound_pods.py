"""Bindings before the extender: which pod gets which card, over HTTP and an API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hosting import (
    ALONE,
    MIB,
    RESOURCES,
    SLICED,
    TURNS,
    Hosting,
    a_binding,
    a_machine,
    delete,
    hosting,
    pod_of,
)
from tests.kube.test_front import cards_of, put
from tests.kube.test_webhook import admitted, refused
from ullage.kube.bindings.filter import SCOPE_LABEL
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.objects import Pod
from ullage.kube.webhook.admission import bound_counts
from ullage.kube.webhook.webhook import Webhook
from ullage.model.allocation import Allocation
from ullage.model.compute import AppQuota, CardQuota, OwnerQuota
from ullage.model.part import Isolation

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


def held(up: Hosting, pod: dict[str, Any]) -> Allocation:
    found = up.front.cluster.held(pod["metadata"]["uid"])
    assert found is not None
    return found


async def test_30_two_owners_of_one_application_are_kept_apart(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "gpubindings", a_binding("x", "g1", owner="alice", namespace="default"))
    put(server, "gpubindings", a_binding("y", "g2", owner="bob", namespace="default"))
    his, hers, hers_too = put(server, "pods", pod_of("his", owner="bob"), pod_of("hers"), pod_of("hers-too"))
    async with hosting(server, api) as up:
        assert await up.place(his, ["a"]) == "!a"
        assert await up.place(hers, ["a"]) == "!a"
        assert (cards_of(server, "his"), cards_of(server, "hers")) == (["g2"], ["g1"])
        found = await up.offered(hers_too, "a")
        assert found["FailedNodes"] == {"a": "InsufficientGPU: requested=1, bound=0"}


@pytest.mark.parametrize(
    ("binding", "pod", "why"),
    [
        pytest.param({"owner": "alice"}, {"owner": ""}, "other-owner", id="31"),
        pytest.param({"namespace": "elsewhere"}, {}, "other-namespace", id="32"),
        pytest.param({"podSelector": None}, {}, "not-selected", id="34-null"),
        pytest.param({"podSelector": {"matchLabels": {"tier": "a"}}}, {}, "not-selected", id="34-labels"),
        pytest.param({"uuid": ""}, {}, "binding-invalid", id="36"),
        pytest.param({"app": "another"}, {}, "not-bound", id="other application"),
        pytest.param({"memory": "0"}, {}, "binding-invalid", id="no memory"),
        pytest.param({"memory": "16001"}, {}, "binding-invalid", id="more than the card has"),
    ],
)
async def test_a_binding_that_does_not_match_a_pod_gives_it_nothing(
    server: ApiServer, api: HttpKubeApi, binding: dict[str, Any], pod: dict[str, Any], why: str
):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    said = {"uuid": "g1", "memory": "8000"} | binding
    put(server, "gpubindings", a_binding("x", **said))
    (asking,) = put(server, "pods", pod_of("p", **pod))
    async with hosting(server, api) as up:
        await up.heard("x")
        found = await up.offered(asking, "a", "b")
        assert found["FailedAndUnresolvableNodes"] == {"a": why, "b": why}
        assert (found["NodeNames"], found["FailedNodes"]) == ([], {})


async def test_34_a_selector_wants_labels_and_expressions(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    expressions = [{"key": "new", "operator": "DoesNotExist"}]
    selector = {"matchLabels": {"tier": "a"}, "matchExpressions": expressions}
    put(server, "gpubindings", a_binding("x", "g1", podSelector=selector))
    good, bad = put(
        server, "pods", pod_of("good", labels={"tier": "a"}), pod_of("bad", labels={"tier": "a", "new": "1"})
    )
    async with hosting(server, api) as up:
        assert (await up.offered(bad, "a"))["NodeNames"] == []
        assert await up.place(good, ["a"]) == "!a"


async def test_33_a_binding_without_an_owner_matches_any_owner_unless_strict(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}))
    put(server, "gpubindings", a_binding("x", "g1"))
    one, other = put(server, "pods", pod_of("one"), pod_of("other", owner="bob"))
    async with hosting(server, api) as up:
        assert [await up.place(pod, ["a"]) for pod in (one, other)] == ["!a", "!a"]
    (third,) = put(server, "pods", pod_of("third"))
    async with hosting(server, api, BindingTerms(strict=True)) as up:
        assert (await up.offered(third, "a"))["FailedAndUnresolvableNodes"] == {"a": "binding-names-no-owner"}


async def test_a_pod_with_bindings_of_two_owners_is_refused_and_both_bindings_show_it(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    put(server, "gpubindings", a_binding("x", "g1"), a_binding("y", "g2", owner="alice"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        found = await up.offered(pod, "a")
        assert found["FailedAndUnresolvableNodes"] == {"a": "bindings-of-several-owners:nobody and alice"}
        await until(lambda: all("annotations" in up.objects()[name]["metadata"] for name in "xy"), "both say so")
        for name in ("x", "y"):
            notes = up.objects()[name]["metadata"]["annotations"]
            assert notes["ullage.io/binding-state"] == "Conflict"
            assert "alice" in notes["ullage.io/binding-reason"]


async def test_a_pod_that_waits_for_a_binding_is_retried_when_it_is_created(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    pod, other = put(server, "pods", pod_of("p"), pod_of("other", owner="bob"))

    def woken(name: str) -> bool:
        notes = server.do(lambda: server.rules.get(("pods", "default", name)))["metadata"].get("annotations", {})
        return "ullage.io/bindings-changed" in notes

    async with hosting(server, api) as up:
        for each in (pod, other):
            assert (await up.offered(each, "a"))["FailedAndUnresolvableNodes"] == {"a": "not-bound"}
        put(server, "gpubindings", a_binding("x", "g1", owner="alice", namespace="default"))
        await until(lambda: woken("p"), "its scheduler hears that something has changed")
        assert await up.place(pod, ["a"]) == "!a"
        assert not woken("other")
        writes = len([path for method, path in server.asked if method == "PATCH" and path.endswith("/pods/p")])
        put(server, "gpubindings", a_binding("y", "g2", owner="bob", namespace="default"))
        await until(lambda: woken("other"), "the other one, too")
        assert len([path for method, path in server.asked if method == "PATCH" and path.endswith("/pods/p")]) == writes


async def test_35_memory_is_mib_and_replaces_what_a_pod_asks(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": SLICED, "g2": SLICED}))
    put(server, "gpubindings", a_binding("x", "g1", memory="8192"), a_binding("y", "g2", app="other"))
    capped, free = put(server, "pods", pod_of("capped", mib=15_000), pod_of("free", "other", mib=3000))
    async with hosting(server, api) as up:
        assert [await up.place(pod, ["a"]) for pod in (capped, free)] == ["!a", "!a"]
        assert held(up, capped).charges[0].vram == 8192 << 20
        assert held(up, free).charges[0].vram == 3000 << 20


async def test_a_claim_of_kube_scheduler_gives_no_access_to_cards_of_others(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "gpubindings", a_binding("x", "g1", owner="alice"), a_binding("y", "g2", owner="bob"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        claimed = ["g2"]

        async def of(_pod: Pod) -> tuple[str, ...]:
            return tuple(claimed)

        assert up.front.claims is not None
        up.front.claims.mirror.claimed = of  # type: ignore[method-assign] # claims of resources of its containers
        assert "claimed g2 for it" in await up.place(pod, ["a"])
        assert up.front.cluster.held(pod["metadata"]["uid"]) is None
        claimed[:] = ["g1"]
        assert await up.place(pod, ["a"]) == "!a"
        assert cards_of(server, "p") == ["g1"]


async def test_a_users_own_choice_of_cards_narrows_and_does_not_widen(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE, "g3": ALONE}))
    put(server, "gpubindings", a_binding("x", "g1"), a_binding("y", "g2"))
    inside, outside = pod_of("inside", consume="single"), pod_of("outside", consume="single")
    inside["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": "g2,g3"}
    outside["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": "g3"}
    inside, outside = put(server, "pods", inside, outside)
    async with hosting(server, api) as up:
        assert await up.place(inside, ["a"]) == "!a"
        assert cards_of(server, "inside") == ["g2"]
        assert (await up.offered(outside, "a"))["NodeNames"] == []


async def test_37_an_exclusive_card_is_for_one_application(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "gpubindings", a_binding("x", "g1"))
    put(server, "gpubindings", a_binding("y", "g1", app="other"))
    first, second = put(server, "pods", pod_of("first"), pod_of("second", "other"))
    async with hosting(server, api) as up:
        found = await up.offered(second, "a")  # though nobody runs there yet
        assert found["FailedAndUnresolvableNodes"] == {"a": "exclusive-already-bound:g1"}
        assert await up.place(first, ["a"]) == "!a"
        assert held(up, first).requirement.cards.isolation is Isolation.SHARED
        await until(lambda: "annotations" in up.objects()["y"]["metadata"], "it says so")
        assert up.objects()["y"]["metadata"]["annotations"]["ullage.io/binding-state"] == "Conflict"
        delete(server, "gpubindings", "x")
        await until(lambda: ("", "x") not in up.front.bindings.store.objects.objects, "it is heard")
        assert (await up.offered(second, "a"))["FailedNodes"] == {"a": "1/1 ExclusiveDeviceAllocateConflict"}


async def test_a_binding_that_selects_no_pod_takes_no_room_and_says_why(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "gpubindings", a_binding("x", "g1", podSelector=None), a_binding("y", "g1", app="other"))
    (pod,) = put(server, "pods", pod_of("p", "other"))
    async with hosting(server, api) as up:
        assert await up.place(pod, ["a"]) == "!a"
        await until(lambda: "annotations" in up.objects()["x"]["metadata"], "it says why it is not in force")
        notes = up.objects()["x"]["metadata"]["annotations"]
        assert notes["ullage.io/binding-state"] == "Invalid"
        assert notes["ullage.io/binding-reason"].startswith("spec.podSelector: it is null")


async def test_38_memory_is_sliced_to_the_end_and_no_further(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    for name, memory in (("one", "8000"), ("two", "8000"), ("zero", "1")):
        put(server, "gpubindings", a_binding(name, "g1", app=name, memory=memory))
    pods = put(server, "pods", *(pod_of(name, name) for name in ("one", "two", "zero")))
    async with hosting(server, api) as up:
        assert [await up.place(pod, ["a"]) for pod in pods[:2]] == ["!a", "!a"]
        assert (await up.offered(pods[2], "a"))["FailedAndUnresolvableNodes"] == {"a": "device-vram-insufficient:g1"}

        def says_how_much() -> bool:
            events = server.do(lambda: server.store.at(server.store.revision))
            texts = [item["message"] for (plural, *_), item in events.items() if plural == "events"]
            return any("device-vram-insufficient:g1: 1Mi are bound, 0 are left" in text for text in texts)

        await until(says_how_much, "the event of the pod has the amounts")


async def test_39_a_time_sliced_pod_sees_the_whole_card(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}))
    put(server, "gpubindings", *(a_binding(f"b{n:02}", "g1", app=f"app{n}") for n in range(11)))
    pods = put(server, "pods", *(pod_of(f"p{n}", f"app{n}", mib=15_000) for n in range(11)))
    async with hosting(server, api) as up:
        assert [await up.place(pod, ["a"]) for pod in pods[:3]] == ["!a"] * 3
        assert held(up, pods[0]).charges[0].vram == 0
        assert (await up.offered(pods[10], "a"))["FailedAndUnresolvableNodes"] == {"a": "tenants-exhausted:g1"}


@pytest.mark.parametrize(("kind", "reported", "mode"), [("nvidia", "", "TimeSlice"), ("nvidia", "7", "TimeSlice")])
async def test_40_how_a_card_is_shared_by_default(
    server: ApiServer, api: HttpKubeApi, kind: str, reported: str, mode: str
):
    put(
        server,
        "nodes",
        a_machine("a", {"g1": reported}, kind=kind),
        a_machine("b", {"g2": reported}, kind="nvidia-gb10"),
    )
    async with hosting(server, api) as up:
        nodes = (await up.call("GET", "/app-service/v1/compute-resources"))["data"]
        assert [node["devices"][0]["supportType"] for node in nodes] == [mode, "MemorySlice"]


async def test_41_a_pod_with_cards_says_its_application(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}))
    nameless, plain = put(server, "pods", pod_of("nameless", ""), pod_of("plain", "", gpus=0))
    async with hosting(server, api) as up:
        never = (await up.offered(nameless, "a", "b"))["FailedAndUnresolvableNodes"]
        assert set(never) == {"a", "b"}
        assert all("applications.app.bytetrade.io/name" in why for why in never.values())
        assert (await up.offered(plain, "a", "b"))["NodeNames"] == ["a", "b"]


async def test_42_all_that_is_bound_on_a_node_is_taken(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE, "g3": ALONE}), a_machine("b", {"g4": ALONE}))
    put(server, "gpubindings", *(a_binding(f"b-{card}", card) for card in ("g1", "g2", "g4")))
    pod, large = put(server, "pods", pod_of("p"), pod_of("large", gpus=3))
    async with hosting(server, api) as up:
        assert (await up.offered(pod, "a", "b"))["NodeNames"] == ["a", "b"]
        assert (await up.ask("bind", PodName="p", PodNamespace="default", PodUID=pod["metadata"]["uid"], Node="a"))[
            "Error"
        ] == ""
        assert sorted(cards_of(server, "p")) == ["g1", "g2"]
        assert (await up.offered(large, "a", "b"))["FailedNodes"] == {
            "a": "InsufficientGPU: requested=3, bound=0",
            "b": "InsufficientGPU: requested=3, bound=1",
        }


async def test_each_card_of_a_pod_gives_what_is_bound_of_it(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", dict.fromkeys(("g1", "g2", "g3"), SLICED)), a_machine("b", {"g4": SLICED}))
    put(server, "gpubindings", a_binding("x", "g1", memory="12000"), a_binding("y", "g2", memory="4000"))
    put(server, "gpubindings", a_binding("z", "g3"))
    put(server, "namespaces", {"metadata": {"name": "free", "labels": {SCOPE_LABEL: "disabled"}}})
    free = pod_of("free", "other", namespace="free", mib=5000)
    free["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": "g1"}
    pod = pod_of("p", gpus=1, mib=3000)
    pod["spec"]["containers"].append({**pod["spec"]["containers"][0], "name": "d"})
    pod, free = put(server, "pods", pod, free)
    expected = {"g1": 12_000 * MIB, "g2": 4000 * MIB, "g3": 3000 * MIB}
    async with hosting(server, api) as up:
        assert await up.place(free, ["a"]) == "!a"
        found = await up.offered(pod, "a", "b")
        assert (found["NodeNames"], found["FailedNodes"]) == ([], {"a": "1/3 CardInsufficientMemory"})
        bind = {"PodName": "p", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "a"}
        assert "insufficient-vram" in (await up.ask("bind", **bind))["Error"]
        assert up.front.cluster.held(pod["metadata"]["uid"]) is None
        server.do(lambda: server.rules.delete(("pods", "free", "free"), {"gracePeriodSeconds": 0}))
        await until(lambda: up.front.cluster.held(free["metadata"]["uid"]) is None, "there is room")
        assert await up.place(pod, ["a"]) == "!a"
        there = held(up, pod)
        assert {uuid: charge.vram for uuid, charge in zip(there.gpus, there.charges, strict=True)} == expected

        def notes() -> dict[str, str]:
            return dict(server.do(lambda: server.rules.get(("pods", "default", "p")))["metadata"]["annotations"])

        await until(lambda: notes()["hami.io/bind-phase"] == "success", "its node has handed out the cards")
        devices = [each.split(",") for each in notes()["hami.io/vgpu-devices-allocated"].replace(";", "").split(":")]
        assert [(uuid, int(mib)) for uuid, _, mib, _ in filter(any, devices)] == [("g1", 12_000), ("g2", 4000)]
    async with hosting(server, api) as up:
        there = held(up, pod)
        assert {uuid: charge.vram for uuid, charge in zip(there.gpus, there.charges, strict=True)} == expected


async def test_a_new_pod_asks_its_kubelet_for_as_many_cards_as_are_bound(server: ApiServer, api: HttpKubeApi):
    machines = {"a": ("g1", "g2"), "b": ("g3",), "c": ("g4", "g5", "g6")}
    put(server, "nodes", *(a_machine(name, dict.fromkeys(cards, ALONE)) for name, cards in machines.items()))
    put(server, "gpubindings", a_binding("x", "g1"), a_binding("y", "g2"), a_binding("z", "g3", app="other"))
    put(server, "gpubindings", *(a_binding(f"b-{card}", card, app="big") for card in machines["c"]))

    def asks(pod: dict[str, Any]) -> list[str]:
        containers = admitted(pod, webhook)["spec"]["containers"]
        return [each["resources"]["limits"]["nvidia.com/gpu"] for each in containers if "resources" in each]

    async with hosting(server, api) as up:
        webhook = Webhook(bound=bound_counts(up.front.bindings.filter, up.front.cluster))
        assert asks(pod_of("p")) == ["2"]
        assert asks(pod_of("other", "other")) == ["1"]
        assert asks(pod_of("single", consume="single")) == ["1"]
        assert asks(pod_of("many", gpus=3)) == ["3"], "it waits for another binding"
        beside, double = pod_of("beside"), pod_of("double", "big")
        beside["spec"]["containers"].insert(0, {"name": "d", "image": "x"})
        assert asks(beside) == ["2"]
        assert asks(pod_of("alone", "big")) == ["3"]
        double["spec"]["containers"].append({**double["spec"]["containers"][0], "name": "d"})
        message = refused(double, webhook)
        assert "spec.containers.nvidia.com/gpu: 2 is not valid: its application has 3 cards bound on a node" in message
        assert "hami.io/app-gpu-consume=single" in message
        (pod,) = put(server, "pods", admitted(pod_of("p"), webhook))
        assert await up.place(pod, ["a"]) == "!a"
        note = "hami.io/vgpu-devices-allocated"
        written = server.do(lambda: server.rules.get(("pods", "default", "p")))["metadata"]["annotations"][note]
        assert sorted(each.split(",")[0] for each in written.strip(";:").split(":")) == sorted(held(up, pod).gpus)


async def test_43_single_takes_as_many_as_it_asks(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    put(server, "gpubindings", a_binding("x", "g1"), a_binding("y", "g2"))
    pods = put(server, "pods", *(pod_of(f"p{n}", consume="single") for n in range(3)))
    async with hosting(server, api) as up:
        first, second = [await up.offered(pod, "a") for pod in pods[:2]]  # the place of the first is kept
        assert first["NodeNames"] == second["NodeNames"] == ["a"]
        assert [await up.place(pod, ["a"]) for pod in pods[:2]] == ["!a", "!a"]
        assert sorted(cards_of(server, "p0") + cards_of(server, "p1")) == ["g1", "g2"]
        assert (await up.offered(pods[2], "a"))["FailedNodes"] == {"a": "InsufficientGPU: requested=1, bound=0"}

        def reported() -> bool:
            events = [item for (kind, _, _), item in server.store.at(server.store.revision).items() if kind == "events"]
            return any(
                e["reason"] == "InsufficientGPU" and e["message"].startswith("requested=1, bound=0; bind 1 more card")
                for e in events
            )

        await until(lambda: server.do(reported), "the event is there")


async def test_bindings_count_where_their_namespace_says_so(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}))
    put(server, "namespaces", {"metadata": {"name": "bound", "labels": {SCOPE_LABEL: "enabled"}}})
    here, there = put(server, "pods", pod_of("p"), pod_of("p", namespace="bound"))
    async with hosting(server, api, BindingTerms(scope=BindingScope.LABELLED)) as up:
        assert (await up.offered(here, "a"))["NodeNames"] == ["a"]
        assert (await up.offered(there, "a"))["FailedAndUnresolvableNodes"] == {"a": "not-bound"}


async def test_cards_of_other_nodes_are_never_named(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}), a_machine("b", {"g2": TURNS}))
    put(server, "gpubindings", a_binding("x", "g2"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        found = await up.offered(pod, "a", "b")
        assert (found["NodeNames"], found["FailedAndUnresolvableNodes"]) == (["b"], {"a": "no-bound-card"})
        scores = await up.ask("prioritize", Pod=pod, NodeNames=["b"])
        assert scores == [{"Host": "b", "Score": 10}]
        bind = {"PodName": "p", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"]}
        assert "no-bound-card" in (await up.ask("bind", **bind, Node="a"))["Error"]


async def test_what_stands_for_a_nodes_cards_is_bound_in_their_place(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("b", {"real": ""}, kind="nvidia-gb10"))
    put(server, "gpubindings", a_binding("x", "b-nvidia-gb10-0", memory="4096"))
    pod, second = put(server, "pods", pod_of("p", consume="single"), pod_of("second", consume="single"))
    async with hosting(server, api) as up:
        assert await up.place(pod, ["b"]) == "!b"
        assert cards_of(server, "p") == ["real"]
        assert held(up, pod).charges[0].vram == 4096 << 20
        assert (await up.offered(second, "b"))["FailedNodes"] == {"b": "InsufficientGPU: requested=1, bound=0"}


async def test_pods_of_a_shared_server_belong_to_the_owner_its_namespace_names(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    shared = {"name": "shared", "labels": {"applications.app.bytetrade.io/install_user": "alice"}}
    put(server, "namespaces", {"metadata": shared})
    put(server, "gpubindings", a_binding("x", "g1", owner="alice", namespace="shared"))
    pod, other = put(
        server, "pods", pod_of("p", owner="", namespace="shared"), pod_of("other", owner="", namespace="shared")
    )
    async with hosting(server, api) as up:
        assert await up.place(pod, ["a"]) == "!a"
        assert (await up.offered(other, "a"))["FailedNodes"] == {"a": "InsufficientGPU: requested=1, bound=0"}


async def test_a_binding_of_another_writer_beyond_a_quota_gives_no_pod_its_card(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": SLICED}))
    quota = OwnerQuota(models={"RTX": CardQuota(cards=1)}, apps={"comfyui": AppQuota(vram_bytes=4000 * MIB)})
    put(server, "gpubindings", a_binding("first", "g2", owner="alice", namespace="default", memory="3000"))
    put(server, "gpubindings", a_binding("second", "g1", "other", owner="alice", namespace="default"))
    put(server, "gpubindings", a_binding("third", "g2", owner="bob", namespace="default", memory="9000"))
    mine, beyond = put(server, "pods", pod_of("mine"), pod_of("beyond", "other"))
    async with hosting(server, api, BindingTerms(quotas={"alice": quota})) as up:
        await up.heard("first", "second", "third")

        def note(name: str) -> str:
            return str((up.objects()[name]["metadata"].get("annotations") or {}).get("ullage.io/binding-reason", ""))

        await until(lambda: bool(note("second")), "the second is not in force")
        assert note("second").startswith("owner-quota:cards:RTX: the quota of alice of RTX is 1 (cards): 1 used")
        assert (note("first"), note("third")) == ("", "")
        found = await up.offered(beyond, "a")
        assert found["FailedAndUnresolvableNodes"] == {"a": "owner-quota:cards:RTX"}
        assert await up.place(mine, ["a"]) == "!a"
        assert cards_of(server, "mine") == ["g2"]
        delete(server, "pods", "mine", gracePeriodSeconds=0)
        delete(server, "gpubindings", "first")
        await until(lambda: not note("second"), "its quota has room again")
        assert await up.place(beyond, ["a"]) == "!a"


async def test_cordoned_cards_and_nodes_drain_until_their_pods_end(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "gpubindings", a_binding("x", "g1", owner="alice", namespace="default"))
    (pod,) = put(server, "pods", pod_of("p"))

    async def becomes(up: Hosting, *wanted: str) -> None:
        found: list[str] = []
        for _ in range(1000):  # a watch may be behind what was written
            (node,) = (await up.call("GET", RESOURCES))["data"]
            found = [node["state"], *(card["state"] for card in node["devices"])]
            if found == list(wanted):
                return
            await asyncio.sleep(0.005)
        assert found == list(wanted)

    def write(cards: str, **spec: Any) -> None:
        def changed(node: dict[str, Any]) -> dict[str, Any]:
            metadata = node["metadata"]
            annotations = metadata["annotations"] | {"hami.io/device-cordon": cards}
            return node | {"metadata": metadata | {"annotations": annotations}, "spec": spec}

        server.do(lambda: server.rules.change(("nodes", "", "a"), changed))  # the front writes to the node meanwhile

    async with hosting(server, api) as up:
        await up.heard("x")
        await becomes(up, "ready", "bound", "free")
        assert await up.place(pod, ["a"]) == "!a"
        write("g1,g2")
        await becomes(up, "ready", "draining", "cordoned")
        write("", unschedulable=True)
        await becomes(up, "draining", "draining", "cordoned")
        delete(server, "pods", "p", gracePeriodSeconds=0)
        await becomes(up, "cordoned", "cordoned", "cordoned")
