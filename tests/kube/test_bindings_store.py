"""The life of an application's binding before an API server: ledger, objects, workloads, restarts, failures."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.kube.api_server import ApiServer, Canned
from tests.kube.at_work import at_work
from tests.kube.conftest import until
from tests.kube.hosting import (
    ALONE,
    MIB,
    RESOURCES,
    ROOT,
    SLICED,
    TURNS,
    Hosting,
    a_binding,
    a_deployment,
    a_machine,
    delete,
    hosting,
    pod_of,
)
from tests.kube.test_front import cards_of, put
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.bindings.hosted_apps import REQUIREMENTS
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.bindings.upkeep import PROJECT, Upkeep
from ullage.kube.client.changes import Delete, Patch, Replace
from ullage.kube.client.errors import VersionConflict
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import CONFIG_MAPS, GPU_BINDINGS
from ullage.kube.client.lease import Candidate, NotLeading
from ullage.model.card_figures import Figure, Figures
from ullage.model.compute import OwnerQuota
from ullage.model.error import UllageError, Unavailable
from ullage.model.gpu import Gpu
from ullage.service.bindings_snapshot import Caller, NamedApp
from ullage.wire.extender import ExtenderArgs
from ullage.wire.gpubinding import REASON, binding_name

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
COMFY = f"{ROOT}/apps/comfyui"
BOUND = f"{COMFY}/compute-resources/bindings"
CHOICE = {"computeBinding": [{"nodeName": "a", "deviceId": "g1"}]}


def choose(device: str, mib: int = 0) -> dict[str, Any]:
    return {"computeBinding": [{"nodeName": "a", "deviceId": device, "memory": mib * MIB}]}


async def bound(up: Hosting, user: str = "alice") -> list[str]:
    return [row["deviceId"] for row in (await up.call("GET", BOUND, user=user))["data"]]


async def shown(up: Hosting, *expected: tuple[str, str]) -> None:
    """The objects are those of these owners and cards, as the rows are, and no others."""
    names = {binding_name("comfyui", owner, card) for owner, card in expected}

    def alike() -> bool:
        ledger = up.front.bindings.store.store.now
        rows = None if ledger is None else {(row.app.owner, row.card.device) for row in ledger.rows}
        return rows == set(expected) and set(up.objects()) == names

    await until(alike, f"the rows and objects are {sorted(names)}")


async def test_an_application_is_bound_runs_and_is_unbound(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "deployments", a_deployment(), a_deployment(owner="bob"))
    async with hosting(server, api) as up:
        asked = await up.call("POST", f"{COMFY}/resume", {})
        assert (asked["code"], asked["data"]["type"]) == (422, "computeBindingRequired")
        (row,) = (await up.call("POST", f"{COMFY}/resume", CHOICE))["data"]
        assert (row["owner"], row["deviceId"], row["memory"]) == ("alice", "g1", 0)
        assert up.replicas("comfyui-alice") == 1
        await shown(up, ("alice", "g1"))
        (found,) = up.objects().values()
        notes = found["metadata"]["annotations"]
        assert notes["ullage.io/bound-by"] == "alice"
        assert notes["ullage.io/bound-at"].endswith("Z")
        assert found["spec"] == {
            "uuid": "g1",
            "appName": "comfyui",
            "owner": "alice",
            "namespace": "default",
            "podSelector": {},
        }
        refused = await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob")
        assert refused["data"]["Data"]["validation"]["code"] == "exclusive-already-bound:g1"
        await up.call("POST", f"{COMFY}/resume", choose("g2"), user="bob")
        mine, his = put(server, "pods", pod_of("mine"), pod_of("his", owner="bob"))
        assert [await up.place(pod, ["a"]) for pod in (mine, his)] == ["!a", "!a"]
        assert (cards_of(server, "mine"), cards_of(server, "his")) == (["g1"], ["g2"])


async def test_a_card_is_given_to_another_application_after_the_earlier_pods_are_gone(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment(), a_deployment(owner="bob"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        assert await up.place(pod, ["a"]) == "!a"
        for _ in range(2):  # a second time says the same
            assert (await up.call("DELETE", BOUND))["data"] == []
            assert up.replicas("comfyui-alice") == 0
        assert await bound(up) == []
        (row,) = (await up.call("GET", RESOURCES))["data"][0]["devices"][0]["bindings"]
        assert (row["owner"], row["state"]) == ("alice", "draining")
        refused = await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob")
        assert refused["data"]["Data"]["validation"]["code"] == "exclusive-already-bound:g1"
        (late,) = put(server, "pods", pod_of("late"))
        assert (await up.offered(late, "a"))["FailedAndUnresolvableNodes"] == {"a": "device-draining"}
        delete(server, "pods", "p")
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob"))["code"] == 422
        delete(server, "pods", "p", gracePeriodSeconds=0)
        await shown(up)
        await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob")
        await shown(up, ("bob", "g1"))


async def test_pods_of_a_replaced_binding_hold_the_row_that_replaced_it(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    put(server, "deployments", a_deployment(), a_deployment(owner="bob"))
    put(server, "gpubindings", a_binding("old", "g1", owner="alice", namespace="default"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        await up.heard("old")
        assert await up.place(pod, ["a"]) == "!a"
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        await shown(up, ("alice", "g1"))
        await up.call("DELETE", BOUND)
        assert [row.draining for row in (await up.front.bindings.store.ledger()).rows] == [True]
        delete(server, "pods", "p", gracePeriodSeconds=0)
        await shown(up)


async def test_an_application_that_is_suspended_right_after_its_start_stops_though_the_watch_is_behind(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment())
    async with hosting(server, api) as up:
        for informer in up.front.bindings.store._workloads.values():
            informer._take = lambda _event: None  # no event is delivered any more
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        assert up.replicas("comfyui-alice") == 1
        await up.call("DELETE", BOUND)
        assert up.replicas("comfyui-alice") == 0
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        assert up.replicas("comfyui-alice") == 1


async def test_a_pod_that_was_just_bound_holds_its_row_though_the_watch_is_behind(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    put(server, "deployments", a_deployment())
    put(server, "gpubindings", a_binding("old", "g1", owner="alice", namespace="default"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        await up.heard("old")
        up.front.pods._handlers.clear()  # no event is delivered any more
        assert await up.place(pod, ["a"]) == "!a"
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        await shown(up, ("alice", "g1"))
        await up.call("DELETE", BOUND)
        assert [row.draining for row in (await up.front.bindings.store.ledger()).rows] == [True]


async def test_a_running_application_that_is_bound_to_another_card_restarts_there(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "deployments", a_deployment())
    (pod,) = put(server, "pods", pod_of("p"))

    def why() -> str:
        found = server.do(lambda: server.rules.get(("deployments", "default", "comfyui-alice")))
        return str(found["spec"]["template"]["metadata"]["annotations"]["ullage.io/started-for"])

    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        first = why()
        assert await up.place(pod, ["a"]) == "!a"
        server.canned += [Canned("PATCH", "/deployments/comfyui-alice", 500) for _ in range(2)]
        path = "/gpus/assignments/bulk"
        bulk = {"appName": "comfyui", "assign": [{"id": "g2"}], "unassign": [{"id": "g1"}]}
        assert (await up.status("PUT", path, bulk))[0] == 503
        assert await bound(up) == ["g2"]
        up.front.bindings.upkeep.wake()  # as it does now and then: nobody asks again
        await until(lambda: why() != first, "its pods are made again")
        second = why()
        for _ in range(3):
            await up.front.bindings.upkeep.reconcile(PROJECT)
        assert why() == second
        delete(server, "pods", "p", gracePeriodSeconds=0)
        await shown(up, ("alice", "g2"))
        assert (await up.call("POST", f"{COMFY}/resume", choose("g2")))["data"][0]["deviceId"] == "g2"
        assert why() == second


async def test_all_is_known_after_a_restart(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": SLICED}))
    put(server, "deployments", a_deployment(), a_deployment("other"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        first = await up.call("POST", f"{COMFY}/resume", CHOICE, **{"idempotency-key": "one"})
        await up.call("POST", f"{ROOT}/apps/other/resume", choose("g2", 8000))
        assert await up.place(pod, ["a"]) == "!a"
        await up.call("DELETE", BOUND)
        before = (await up.front.bindings.store.ledger(), (await up.call("GET", RESOURCES))["data"])
    async with hosting(server, api) as up:
        assert (await up.front.bindings.store.ledger(), (await up.call("GET", RESOURCES))["data"]) == before
        assert up.front.bindings.store.occupants.held(before[0]) == {first_id(before[0].rows)}
        repeated = await up.call("POST", f"{COMFY}/resume", CHOICE, **{"idempotency-key": "one"})
        assert repeated["data"] == []  # it was done, and let go since: it is not done again
        assert first["data"]


def first_id(rows: Any) -> str:
    return next(row.id for row in rows if row.draining)


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("where", ["/configmaps/ullage-bindings", "/deployments/comfyui-alice", "/gpubindings"])
async def test_a_change_that_fails_is_made_as_a_whole_or_not_at_all_and_can_be_repeated(
    server: ApiServer, api: HttpKubeApi, where: str, carried_out: bool
):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment(), a_deployment(owner="bob"))
    async with hosting(server, api) as up:
        method = {"/gpubindings": "POST", "/configmaps/ullage-bindings": "PUT"}.get(where, "PATCH")
        server.canned.append(Canned(method, where, 500, carried_out=carried_out))
        status, _ = await up.status("POST", f"{COMFY}/resume", CHOICE)
        assert status in (200, 503)
        rows, bindings = await bound(up), up.front.bindings
        assert rows in ([], ["g1"])
        assert len((await bindings.store.ledger()).rows) == len(rows)
    async with hosting(server, api) as up:
        assert await bound(up) == rows
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE))["data"][0]["deviceId"] == "g1"
        assert up.replicas("comfyui-alice") == 1
        await shown(up, ("alice", "g1"))
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob"))["code"] == 422


async def test_an_application_that_started_only_in_part_is_stopped_again(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    second = a_deployment()
    second["metadata"]["name"] = "second"
    put(server, "deployments", a_deployment(), second)
    async with hosting(server, api) as up:
        server.canned.append(Canned("PATCH", "/deployments/second", 500))
        assert (await up.status("POST", f"{COMFY}/resume", CHOICE))[0] == 503
        assert await bound(up) == []
        assert up.replicas("comfyui-alice") == 0


async def test_59_of_two_requests_for_the_rest_of_a_card_one_succeeds(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    put(server, "deployments", *(a_deployment(owner=owner) for owner in ("alice", "bob", "carol")))
    async with hosting(server, api) as up:
        found = await asyncio.gather(
            *(up.call("POST", f"{COMFY}/resume", choose("g1", 8000), user=owner) for owner in ("alice", "bob", "carol"))
        )
        assert sorted(each["code"] for each in found) == [200, 200, 422]
        (lost,) = [each for each in found if each["code"] == 422]
        assert lost["data"]["Data"]["validation"]["code"] == "device-vram-insufficient:g1"


async def test_a_pod_that_is_being_bound_keeps_its_row(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment())
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        _, reported = await asyncio.gather(up.call("DELETE", BOUND), up.place(pod, ["a"]))
        rows = (await up.front.bindings.store.ledger()).rows
        assert [row.draining for row in rows] == ([True] if reported == "!a" else [])


async def test_a_former_leader_cannot_change_the_ledger(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment())
    async with hosting(server, api) as up:
        old = await api.get(CONFIG_MAPS, "ullage-bindings", "default")
        assert up.front.bindings is not None
    async with hosting(server, api) as up:
        with pytest.raises(VersionConflict):  # however late it comes: the new term has written before it decided
            await api.write(Replace(CONFIG_MAPS, "ullage-bindings", old.document, "default"))
        await up.call("POST", f"{COMFY}/resume", CHOICE)


async def test_29_a_process_that_does_not_lead_answers_nothing_and_writes_nothing(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment())
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        await shown(up, ("alice", "g1"))
        writes = len([method for method, path in server.asked if method != "GET" and "/leases/" not in path])
        follower = make_front(api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(bindings=BindingTerms()))
        async with at_work(follower, lambda it: it.bindings.store.synced and it.mirror.ready):
            await follower.bindings.upkeep.controller.drain()
            for use in (
                follower.bindings.use.snapshot_now(),
                follower.bindings.use.suspend(Caller("alice"), NamedApp("comfyui")),
            ):
                with pytest.raises(NotLeading):
                    await use
            with pytest.raises(Unavailable):
                follower.extender.filter(ExtenderArgs(pod, node_names=["a"]))
        assert writes == len([method for method, path in server.asked if method != "GET" and "/leases/" not in path])


async def test_the_ledger_is_rebuilt_from_its_projections(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": SLICED}))
    put(server, "deployments", a_deployment(), a_deployment("other"))
    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        await up.call("POST", f"{ROOT}/apps/other/resume", choose("g2", 8000))
        await until(lambda: len(up.objects()) == 2, "both are shown")
        before = (await up.front.bindings.store.ledger()).rows
    server.do(lambda: server.rules.delete(("configmaps", "default", "ullage-bindings"), {}))
    async with hosting(server, api) as up:
        after = (await up.front.bindings.store.ledger()).rows
        facts = {(row.id, row.app, row.card, row.memory_bytes, row.share) for row in before}
        assert {(row.id, row.app, row.card, row.memory_bytes, row.share) for row in after} == facts


async def test_the_ledger_is_not_rebuilt_before_all_projections_are_synced(server: ApiServer, api: HttpKubeApi):
    front = make_front(api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(bindings=BindingTerms()))
    leading = asyncio.create_task(front.candidate.run())
    try:
        await until(lambda: front.candidate.epoch is not None, "it leads")
        for use in (
            front.bindings.use.snapshot_now(),
            front.bindings.use.suspend(Caller("alice"), NamedApp("comfyui")),
        ):
            with pytest.raises(Unavailable, match="not been read"):
                await use
        assert server.do(lambda: server.store.get(("configmaps", "default", "ullage-bindings"))) is None
    finally:
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)


async def test_a_change_that_is_too_large_for_the_ledger_is_refused(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment())
    async with hosting(server, api) as up:
        monkeypatch.setattr("ullage.wire.ledger.MAX_BYTES", 100)
        status, text = await up.status("POST", f"{COMFY}/resume", CHOICE)
        assert (status, "ledger-full" in text) == (400, True)
        assert (await bound(up), up.replicas("comfyui-alice")) == ([], 0)
        monkeypatch.undo()
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE))["code"] == 200


async def test_a_ledger_that_cannot_be_read_is_not_overwritten(server: ApiServer, api: HttpKubeApi):
    place = {"name": "ullage-bindings", "namespace": "default"}
    put(server, "configmaps", {"metadata": place, "binaryData": {"ledger": "bm8gbGVkZ2Vy"}})
    front = make_front(api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(bindings=BindingTerms()))
    async with at_work(front, lambda it: it.mirror.term is not None and it.bindings.store.synced):
        with pytest.raises(UllageError, match="it cannot be read"):
            await front.bindings.upkeep.reconcile(PROJECT)
        assert "it cannot be read" in front.extender.unready
        found = server.do(lambda: server.rules.get(("configmaps", "default", "ullage-bindings")))
        assert found["binaryData"] == {"ledger": "bm8gbGVkZ2Vy"}


async def test_an_object_that_another_client_changes_or_deletes_is_restored_from_the_ledger(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    put(server, "deployments", a_deployment())
    name = binding_name("comfyui", "alice", "g1")
    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", choose("g1", 8000))
        await shown(up, ("alice", "g1"))
        delete(server, "gpubindings", name)
        await shown(up, ("alice", "g1"))
        found = up.objects()[name]
        wrong = {**found, "spec": {**found["spec"], "memory": "16000"}}
        server.do(lambda: server.rules.replace(("gpubindings", "", name), wrong))
        await until(lambda: up.objects()[name]["spec"]["memory"] == "8000", "it is as before")


async def test_a_switch_annotates_the_node_and_stops_the_applications_of_the_card(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}))
    put(server, "deployments", a_deployment())
    path = f"{RESOURCES}/nodes/a/devices/g1/support-type"
    async with hosting(server, api) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        server.do(lambda: server.rules.change(("deployments", "default", "comfyui-alice"), _well, "status"))
        deployments = up.front.bindings.store.informers[1].objects
        await until(
            lambda: deployments["default", "comfyui-alice"].document["status"].get("readyReplicas") == 1, "it runs"
        )
        assert (await up.status("PUT", path, {"supportType": "Exclusive"}))[0] == 403
        reported = (await up.call("PUT", path, {"supportType": "Exclusive"}, user="root"))["data"]
        assert (reported["status"], reported["stoppedApps"][0]["appName"]) == ("switched", "comfyui")
        assert up.replicas("comfyui-alice") == 0
        note = "sharemode.gpu.bytetrade.io/g1"
        node = server.do(lambda: server.rules.get(("nodes", "", "a")))
        await until(
            lambda: server.do(lambda: server.rules.get(("nodes", "", "a")))["metadata"]["annotations"][note] == "0",
            f"the node says so: {node['metadata']['annotations']}",
        )
        await shown(up)


def _well(deployment: dict[str, Any]) -> dict[str, Any]:
    return {**deployment, "status": {"replicas": 1, "readyReplicas": 1}}


async def test_rows_are_shown_as_app_service_keeps_them(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    put(server, "namespaces", {"metadata": {"name": "os-framework"}})
    put(server, "deployments", a_deployment())

    def kept() -> str:
        found = server.store.get(("configmaps", "os-framework", "app-gpu-allocations"))
        return "" if found is None else str(found["data"]["allocations.json"])

    async with hosting(server, api, BindingTerms(allocations="os-framework/app-gpu-allocations")) as up:
        await up.call("POST", f"{COMFY}/resume", choose("g1", 8000))
        await until(lambda: '"deviceId":"g1"' in server.do(kept), "the row is shown")
        assert f'"memory":{8000 * MIB}' in server.do(kept)
        await up.call("DELETE", BOUND)
        await until(lambda: server.do(kept) == "[]", "no row is shown")


async def test_rows_that_app_service_kept_count_and_become_rows(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": SLICED, "g2": ALONE}))
    put(server, "namespaces", {"metadata": {"name": "os-framework"}})
    put(server, "deployments", a_deployment(replicas=1))
    row = {"appId": "x", "appName": "comfyui", "owner": "alice", "mode": "nvidia", "nodeName": "a"}
    rows = [row | {"deviceId": "g1", "memory": 8000 * MIB}]
    place = {"name": "app-gpu-allocations", "namespace": "os-framework"}
    put(server, "configmaps", {"metadata": place, "data": {"allocations.json": json.dumps(rows), "other": "kept"}})
    (pod,) = put(server, "pods", pod_of("p"))

    def kept() -> dict[str, str]:
        return dict(server.store.get(("configmaps", "os-framework", "app-gpu-allocations"))["data"])

    async with hosting(server, api, BindingTerms(allocations="os-framework/app-gpu-allocations")) as up:
        assert await up.place(pod, ["a"]) == "!a"
        assert (await up.call("GET", RESOURCES))["data"][0]["devices"][0]["available"] == 8000 * MIB
        await up.call("POST", f"{ROOT}/apps/comfyui/compute-resources/bindings/validate", choose("g2"))
        await up.front.bindings.upkeep.reconcile(PROJECT)
        assert json.loads(server.do(kept)["allocations.json"]) == rows  # nothing of theirs is lost
        done = (await up.call("POST", f"{RESOURCES}/migrate", {"dryRun": False}, user="root"))["data"]
        assert len(done["kept"]) == 1
        assert await bound(up) == ["g1"]
        await until(lambda: '"spec"' in server.do(kept)["allocations.json"], "the rows are ours")
        assert server.do(kept)["other"] == "kept"
        again = (await up.call("POST", f"{RESOURCES}/migrate", {"dryRun": False}, user="root"))["data"]
        assert again["kept"] == []


async def test_a_write_that_fails_does_not_block_the_others(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
):
    looks, look = 0, Upkeep.reconcile

    async def counted(upkeep: Upkeep, key: str) -> float:
        nonlocal looks
        looks += 1
        return await look(upkeep, key)

    monkeypatch.setattr(Upkeep, "reconcile", counted)
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    put(server, "deployments", a_deployment())
    async with hosting(server, api, BindingTerms(allocations="no-such/place")) as up:
        await up.call("POST", f"{COMFY}/resume", CHOICE)
        await shown(up, ("alice", "g1"))
        for _ in range(3):
            await up.front.bindings.upkeep.reconcile(PROJECT)
        tries = [path for method, path in server.asked if "no-such" in path and method == "POST"]
        assert 0 < len(tries) <= looks, "once at each look, whoever looks"


# --- bindings of before ---


async def test_older_bindings_become_rows_once(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE, "g3": ALONE}))
    put(server, "deployments", a_deployment(replicas=1), a_deployment("both", replicas=1))
    put(server, "deployments", a_deployment("both", "bob", replicas=1))
    put(
        server,
        "gpubindings",
        a_binding("old", "g1"),
        a_binding("nobodys", "g2", app="gone"),
        a_binding("unclear", "g3", app="both"),
    )
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        assert await up.place(pod, ["a"]) == "!a"
        assert (await up.status("POST", f"{RESOURCES}/migrate", {}))[0] == 403
        plan = (await up.call("POST", f"{RESOURCES}/migrate", {}, user="root"))["data"]
        assert (plan["kept"], plan["dropped"]) == (["old"], ["nobodys"])
        assert [each["item"] for each in plan["problems"]] == ["unclear"]
        assert set(up.objects()) == {"old", "nobodys", "unclear"}
        done = (await up.call("POST", f"{RESOURCES}/migrate", {"dryRun": False}, user="root"))["data"]
        assert done == plan
        name = binding_name("comfyui", "alice", "g1")
        await until(lambda: set(up.objects()) == {name, "unclear"}, "it has its new name")
        heard = up.front.bindings.store.objects.objects
        await until(lambda: {key[1] for key in heard} == {name, "unclear"}, "that is heard")
        assert await bound(up) == ["g1"]
        again = (await up.call("POST", f"{RESOURCES}/migrate", {"dryRun": False}, user="root"))["data"]
        assert (again["kept"], again["unchanged"], again["dropped"]) == ([], [], [])
        assert server.do(lambda: server.store.get(("pods", "default", "p"))) is not None
        await up.call("DELETE", BOUND)  # the pod of before still counts
        assert [row.draining for row in (await up.front.bindings.store.ledger()).rows] == [True]


@pytest.mark.parametrize("comes_again", [False, True])
async def test_a_binding_that_is_deleted_during_a_cleanup_is_skipped(
    server: ApiServer, api: HttpKubeApi, comes_again: bool
):
    put(server, "gpubindings", a_binding("one", "g1", app="gone"), a_binding("two", "g2", app="gone"))
    async with hosting(server, api) as up:
        await up.heard("one", "two")
        store = up.front.bindings.store
        write, heard = store._write, store.objects.objects

        async def meanwhile(change: Delete) -> None:
            await write(change)
            if change.name == "one":
                delete(server, "gpubindings", "two")
                await until(lambda: ("", "two") not in heard, "it is heard")
                put(server, "gpubindings", *([a_binding("two", "g2", app="gone")] if comes_again else []))

        store._write = meanwhile
        await store.discard(["one", "two"])
        assert set(up.objects()) == ({"two"} if comes_again else set())


async def test_a_pod_that_another_scheduler_placed_keeps_the_row(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "deployments", a_deployment(replicas=1), a_deployment(owner="bob", replicas=1))
    foreign = pod_of("foreign", gpus=0)
    foreign["spec"]["nodeName"] = "a"
    put(server, "pods", foreign)
    put(server, "gpubindings", a_binding("old", "g1", owner="alice"))
    async with hosting(server, api) as up:
        await up.call("POST", f"{RESOURCES}/migrate", {"dryRun": False}, user="root")
        await up.call("DELETE", BOUND)
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob"))["code"] == 422
        delete(server, "pods", "foreign", gracePeriodSeconds=0)
        await until(lambda: not up.front.bindings.store.store.now.rows, "the row is gone")
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE, user="bob"))["code"] == 200


async def test_a_binding_without_effect_is_listed_and_deleted_on_request(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    put(server, "deployments", a_deployment(replicas=1))
    put(server, "gpubindings", a_binding("lost", "g9"), a_binding("b-twice", "g1"), a_binding("c-twice", "g1"))
    put(server, "gpubindings", a_binding("orphan", "g2", app="gone"))
    async with hosting(server, api) as up:
        reported = (await up.call("POST", f"{RESOURCES}/clean", {}, user="root"))["data"]
        assert {each["item"]: each["reason"] for each in reported} == {
            "lost": "card-gone",
            "b-twice": "duplicate",
            "orphan": "no-application",
        }
        assert len(up.objects()) == 4
        await up.call("POST", f"{RESOURCES}/clean", {"dryRun": False}, user="root")
        await until(lambda: set(up.objects()) == {"c-twice"}, "they are gone")


async def test_rows_that_cannot_be_read_are_not_taken_for_stale(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS}))
    put(server, "namespaces", {"metadata": {"name": "os-framework"}})
    place = {"name": "app-gpu-allocations", "namespace": "os-framework"}
    put(server, "configmaps", {"metadata": place, "data": {"allocations.json": "[{"}})
    async with hosting(server, api, BindingTerms(allocations="os-framework/app-gpu-allocations")) as up:
        (problem,) = (await up.call("GET", f"{RESOURCES}/problems", user="root"))["data"]
        assert problem["item"] == "os-framework/app-gpu-allocations"
        assert (await up.call("POST", f"{RESOURCES}/clean", {"dryRun": False}, user="root"))["data"] == []
        await up.front.bindings.upkeep.reconcile(PROJECT)
        kept = server.do(lambda: server.store.get(("configmaps", "os-framework", "app-gpu-allocations")))
        assert kept["data"] == {"allocations.json": "[{"}


async def test_a_binding_that_cannot_be_read_says_what_is_wrong_and_one_of_no_card_is_a_problem(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    wrong = {"nothing": "0", "negative": "-1Gi", "text": "lots", "list": ["1"]}
    put(server, "gpubindings", *(a_binding(name, "g1", memory=memory) for name, memory in wrong.items()))
    put(server, "gpubindings", a_binding("lost", "g9"))
    async with hosting(server, api) as up:
        await up.heard(*wrong, "lost")
        found = (await up.call("GET", f"{RESOURCES}/problems", user="root"))["data"]
        reasons = {each["item"]: each["reason"] for each in found}
        assert reasons.pop("lost") == "card-gone"
        assert reasons.keys() == wrong.keys()
        for name, memory in wrong.items():
            assert reasons[name].startswith(f"spec.memory: {memory!r} is not valid: ")

        def written() -> dict[str, str]:
            return {name: up.objects()[name]["metadata"].get("annotations", {}).get(REASON, "") for name in wrong}

        await until(lambda: written() == reasons, lambda: f"the objects say so: {written()}")


async def test_bindings_of_others_take_room(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": SLICED}))
    put(server, "deployments", a_deployment())
    put(server, "gpubindings", a_binding("x", "g1", app="other"), a_binding("y", "g2", app="other", memory="12000"))
    async with hosting(server, api) as up:
        await up.heard("x", "y")
        whole, sliced = (await up.call("GET", RESOURCES))["data"][0]["devices"]
        assert (whole["available"], sliced["available"]) == (0, 4000 * MIB)
        refused = await up.call("POST", f"{COMFY}/resume", CHOICE)
        assert refused["data"]["Data"]["validation"]["code"] == "exclusive-already-bound:g1"


async def test_cards_of_a_model_whose_memory_is_declared_have_it_for_bindings_too(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("n1", {}))
    card = Gpu("g1", 0, model="RTX 6000", vendor="NVIDIA")
    figures = Figures((Figure("RTX 6000", vram_bytes=48_000 * MIB),))
    async with hosting(server, api, readers=[lambda _node: [card]], figures=figures) as up:
        (node,) = (await up.call("GET", RESOURCES))["data"]
        assert [(each["id"], each["memory"]) for each in node["devices"]] == [("g1", 48_000 * MIB)]


async def test_the_quota_of_an_owner_counts_cards_and_what_pods_ask(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    put(server, "deployments", a_deployment(), a_deployment("other"), a_deployment("other", "bob"))
    busy = pod_of("busy", gpus=0)
    busy["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3"}
    put(server, "pods", busy)
    terms = BindingTerms(quotas={"alice": OwnerQuota(cards=1, cpu_milli=4000)})
    demand = {"id": "1", "application": "new", "owner": "alice", "mode": "nvidia", "requiredCPU": "1001m"}
    demand |= dict.fromkeys(("requiredGPU", "limitedGPU", "requiredMemory", "limitedMemory", "requiredDisk"), "0")
    async with hosting(server, api, terms) as up:
        assert (await up.call("POST", f"{COMFY}/resume", CHOICE))["code"] == 200
        refused = await up.call("POST", f"{ROOT}/apps/other/resume", choose("g2"))
        assert refused["data"]["Data"]["validation"]["code"] == "owner-quota:cards"
        assert (await up.call("POST", f"{ROOT}/apps/other/resume", choose("g1")))["code"] == 200
        assert (await up.call("POST", f"{ROOT}/apps/other/resume", choose("g2"), user="bob"))["code"] == 200
        short = (await up.call("POST", f"{RESOURCES}/preflight", {"demands": [demand]}))["data"]
        pressed = {each["resource"]: each["pressured"] for each in short["pressure"][0]["dimensions"]}
        assert (short["reason"], pressed["cpu"]) == ("owner_quota", True)
        delete(server, "pods", "busy", gracePeriodSeconds=0)
        await until(lambda: not up.front.bindings.store.occupants.used_by, "nobody asks anything")


async def test_unknown_callers_are_refused(server: ApiServer, api: HttpKubeApi):
    async with hosting(server, api) as up:
        assert (await up.status("GET", RESOURCES, user=""))[0] == 401


async def test_an_invalid_binding_blocks_no_application_and_its_running_pods_stay_charged(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": SLICED}))
    put(server, "deployments", a_deployment())
    put(server, "gpubindings", a_binding("x", "g1", "other", "bob", "default", memory="6000"))
    (pod,) = put(server, "pods", pod_of("his", "other", "bob"))
    async with hosting(server, api) as up:
        await up.heard("x")
        assert await up.place(pod, ["a"]) == "!a"
        await api.write(Patch(GPU_BINDINGS, "x", {"spec": {"memory": "64Gi"}}))

        async def free() -> int:
            (node,) = (await up.call("GET", RESOURCES))["data"]
            return int(node["devices"][0]["available"]) // MIB

        await until(lambda: "annotations" in up.objects()["x"]["metadata"], "it is shown as invalid")
        assert up.objects()["x"]["metadata"]["annotations"]["ullage.io/binding-state"] == "Invalid"
        assert await free() == 10_000
        refused = await up.call("POST", f"{BOUND}/validate", choose("g1", 10_001))
        assert refused["data"]["Data"]["validation"]["code"] == "device-vram-insufficient:g1"
        delete(server, "pods", "his", gracePeriodSeconds=0)
        await until(lambda: not list(up.front.bindings.store.occupants.users()), "his pod is gone")
        assert await free() == 16_000
        assert len((await up.call("POST", f"{COMFY}/resume", choose("g1", 16_000)))["data"]) == 1


@pytest.mark.parametrize(
    ("reported", "names"),
    [
        ("[{", "compute-requirements"),
        ("{}", "compute-requirements"),
        ("[]", "name at least one way"),
        ('[{"mode": "nvidia", "requiredGPU": 1}]', "requiredGPU"),
        ('[{"mode": "", "requiredGpu": 1}]', "mode"),
        ('[{"mode": "cpu", "requiredGpu": 1}]', "requiredGpu"),
        ('[{"mode": "nvidia", "requiredGpu": "8Gi"}]', "requiredGpu"),
        ('[{"mode": "nvidia", "requiredGpu": -1}]', "required_gpu"),
    ],
)
async def test_unreadable_requirements_give_no_card_and_start_nothing_until_they_are_corrected(
    server: ApiServer, api: HttpKubeApi, reported: str, names: str
):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    workload = a_deployment()
    workload["metadata"]["annotations"][REQUIREMENTS] = reported
    put(server, "deployments", workload)
    async with hosting(server, api) as up:
        for path, body in ((f"{BOUND}/validate", {}), (f"{COMFY}/resume", CHOICE), (f"{COMFY}/install", {})):
            status, text = await up.status("POST", path, body)
            assert (status, text.partition(":")[0]) == (409, "requirements-unreadable")
            assert REQUIREMENTS in text
            assert names in text
        assert up.replicas("comfyui-alice") == 0


async def test_one_unreadable_row_of_app_service_hides_no_other(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": ALONE}))
    row = {"appId": "i", "appName": "comfyui", "owner": "alice", "mode": "nvidia"}
    rows = [{"appName": 1}, row | {"nodeName": "a", "deviceId": "g1", "memory": 0}]
    shown = {"metadata": {"name": "rows", "namespace": "default"}, "data": {"allocations.json": json.dumps(rows)}}
    put(server, "configmaps", shown)
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api, BindingTerms(allocations="default/rows")) as up:
        assert await up.place(pod, ["a"]) == "!a"
        problems = (await up.call("GET", f"{RESOURCES}/problems", user="root"))["data"]
        assert [each["item"] for each in problems] == ["default/rows[0]"]
