"""Claims of pods that wait behind the gate: allocated, reserved and let go, or left as they were."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from tests.kube.api_server import ApiServer, Canned
from tests.kube.at_work import at_work
from tests.kube.claims import (
    FINALIZER,
    GATE,
    MARK,
    a_card,
    a_claim,
    a_class,
    a_node,
    a_slice,
    allocated,
    claiming,
    delete,
    edit,
    furnish,
    gated,
    get,
    users,
    wants,
)
from tests.kube.conftest import until
from tests.kube.hosting import a_binding, labels_of
from tests.kube.test_front import a_pod, binding, put
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.bindings.terms import BindingTerms
from ullage.kube.claims.taint_rules import TaintRules
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.informer import Added, Changed, Removed
from ullage.kube.client.kinds import DEVICE_TAINT_RULES
from ullage.kube.client.lease import Candidate
from ullage.kube.events import PodEvent
from ullage.kube.front import Front
from ullage.kube.metrics import FrontMetrics
from ullage.wire.extender import read_args, read_bind
from ullage.wire.gpubinding import SHARE_MODE

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]


@asynccontextmanager
async def running(api: HttpKubeApi, errors: list[Any] | None = None, **settings: Any) -> AsyncIterator[Front]:
    def on_error(*said: Any) -> None:
        if errors is not None:
            errors.append(said)

    front = make_front(api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(**settings), on_error=on_error)
    async with at_work(front):
        yield front


async def let_go(server: ApiServer, *pods: str) -> None:
    await until(lambda: not any(gated(server, pod) for pod in pods), f"{pods} are let go")


async def has_event(reported: list[PodEvent], *parts: str) -> None:
    """Wait for an event with the reason; events on a missing claim may come before or after it."""
    await until(
        lambda: any(all(part in each.message for part in parts) for each in reported), lambda: f"{parts} of {reported}"
    )


def holders(front: Front) -> dict[str, tuple[str, ...]]:
    front.mirror.settle()
    return {uid: held.gpus for uid, held in front.cluster.allocator.fleet.ledger.items() if held.gpus}


async def test_a_claim_is_allocated_and_reserved_before_the_gate_of_the_pod_is_removed(
    server: ApiServer, api: HttpKubeApi
):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("one"))
    (pod,) = put(server, "pods", claiming("p", "one"))
    async with running(api) as front:
        await let_go(server, "p")
        claim = get(server, "resourceclaims", "one")
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert claim["metadata"]["annotations"] == {MARK: pod["metadata"]["uid"]}
        only = {"key": "metadata.name", "operator": "In", "values": ["a"]}
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
        assert claim["status"]["allocation"].pop("allocationTimestamp")
        assert claim["status"] == {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
        }
        await until(lambda: holders(front) == {claim["metadata"]["uid"]: ("GPU-a-0",)}, "the books have it")
    written = [(method, path) for method, path in server.asked if method == "PATCH" and "resourceclaims/one" in path]
    assert [path.rpartition("/")[2] for _, path in written] == ["one?fieldManager=ullage", "status?fieldManager=ullage"]


async def test_a_claim_with_an_endless_expression_does_not_delay_other_pods(
    server: ApiServer, api: HttpKubeApi
) -> None:
    furnish(server, a=2)
    ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    endless = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, a + b + c + d < 100))))"
    put(server, "resourceclaims", a_claim("bad", wants(selectors=[{"cel": {"expression": endless}}])), a_claim("one"))
    put(server, "pods", claiming("b", "bad"))
    reported: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = reported.append
        put(server, "pods", claiming("p", "one"))
        await let_go(server, "p")
        await has_event(reported, "no-devices")
        assert gated(server, "b")
        assert allocated(server, "bad") == []


async def test_pods_never_share_a_card_and_a_pod_without_a_free_card_waits(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2, b=1)
    names = [f"p{number}" for number in range(4)]
    put(server, "resourceclaims", *(a_claim(name) for name in names))
    put(server, "pods", *(claiming(name, name) for name in names))
    async with running(api):
        await let_go(server, *names[:3])
        assert gated(server, "p3")
        assert allocated(server, "p3") == []
        given = [device for name in names for device in allocated(server, name)]
        assert sorted(given) == ["a/gpu-0", "a/gpu-1", "b/gpu-0"]
        delete(server, "p1")
        await let_go(server, "p3")
        assert users(server, "p1") == []
        assert sorted(d for name in ("p0", "p2", "p3") for d in allocated(server, name)) == sorted(given)


def with_cpu(pod: dict[str, Any], cpu: str) -> dict[str, Any]:
    pod["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": cpu}
    return pod


async def test_a_claim_is_allocated_where_pods_without_cards_and_pods_on_their_way_leave_cpu(
    server: ApiServer, api: HttpKubeApi
):
    furnish(server, a=3, b=3)
    for node in "ab":
        edit(server, "nodes", node, allocatable={"cpu": "8", "memory": "64Gi", "pods": "110"})
    plain = {"metadata": {"name": "plain", "namespace": "default"}, "spec": {"nodeName": "a"}}
    plain["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "6"}}}]
    put(server, "pods", plain)
    reported: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = reported.append
        put(server, "resourceclaims", *map(a_claim, ("one", "two")))
        put(server, "pods", with_cpu(claiming("p", "one"), "5"))
        await let_go(server, "p")
        assert allocated(server, "one") == ["b/gpu-0"]
        put(server, "pods", with_cpu(claiming("q", "two"), "5"))
        why = "its claims cannot be allocated: 2 of 2 nodes: insufficient-cpu; they ask for 1 device of class gpu"
        await has_event(reported, why)
        assert gated(server, "q")
        server.do(lambda: server.rules.delete(("pods", "default", "plain"), {"gracePeriodSeconds": 0}))
        await let_go(server, "q")
        assert allocated(server, "two") == ["a/gpu-0"]


async def test_what_is_held_by_other_routes_is_not_claimed_and_the_other_way_round(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("one"))
    notes = {"ullage.io/gpu-ids": "GPU-a-0", "ullage.io/gpu-count": "1"}
    container = {"name": "c", "image": "x"}
    metadata = {"name": "q", "namespace": "default", "annotations": notes}
    put(server, "pods", {"metadata": metadata, "spec": {"nodeName": "a", "containers": [container]}})
    async with running(api) as front:
        put(server, "pods", claiming("p", "one"))
        await let_go(server, "p")
        assert allocated(server, "one") == ["a/gpu-1"]
        await until(lambda: len(holders(front)) == 2, "the books have both")
        asking = {"ullage.io/gpu-count": "1", "ullage.io/isolation": "shared"}
        metadata = {"name": "r", "namespace": "default", "uid": "r", "annotations": asking}
        asked = {"Pod": {"metadata": metadata, "spec": {"containers": [container]}}, "NodeNames": ["a"]}
        refused = front.extender.filter(read_args(json.dumps(asked).encode()))
        assert not refused.node_names


async def test_claims_are_given_cards_that_are_bound_for_their_application_alone(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=3)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    notes = {f"{SHARE_MODE}GPU-a-{number}": "0" for number in (1, 2)}

    def share(node: dict[str, Any]) -> dict[str, Any]:
        return {**node, "metadata": {**node["metadata"], "annotations": notes}}

    server.do(lambda: server.rules.change(("nodes", "", "a"), share))
    mine, his = claiming("p", "one"), claiming("q", "two")
    for pod, owner in ((mine, "alice"), (his, "bob")):
        pod["metadata"]["labels"] = labels_of("comfyui", owner)
    put(server, "gpubindings", a_binding("x", "GPU-a-2", owner="alice", namespace="default"))
    reported: list[PodEvent] = []
    async with running(api, bindings=BindingTerms()) as front:
        front.claims.claiming._record_event = reported.append
        put(server, "pods", mine, his)
        await let_go(server, "p")
        assert allocated(server, "one") == ["a/gpu-2"]
        await until(
            lambda: any(event.pod == "q" and "other-owner" in event.message for event in reported), "it is reported"
        )
        assert allocated(server, "two") == []
        put(server, "gpubindings", a_binding("y", "GPU-a-1", owner="bob", namespace="default"))
        await let_go(server, "q")
        assert allocated(server, "two") == ["a/gpu-1"]


async def test_claims_that_kube_scheduler_allocated_on_bound_cards_are_reported(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("theirs"), a_claim("idle"))
    put(server, "gpubindings", a_binding("x", "GPU-a-0", owner="alice", namespace="default"))
    theirs, hers = claiming("theirs", "theirs", gates=()), claiming("hers", "theirs", gates=())
    hers["metadata"]["labels"] = labels_of("comfyui", "alice")
    put(server, "pods", theirs, hers)
    uids = {name: get(server, "pods", name)["metadata"]["uid"] for name in ("theirs", "hers")}
    using = [{"resource": "pods", "name": name, "uid": uid} for name, uid in uids.items()]
    device = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
    allocation = {"devices": {"results": [device]}}
    edit(server, "resourceclaims", "theirs", allocation=allocation, reservedFor=using)
    edit(server, "resourceclaims", "idle", allocation=allocation)
    reported: list[PodEvent] = []
    async with running(api, bindings=BindingTerms()) as front:
        front.bindings.conflicting_claims._record_event = reported.append
        front.bindings.store.wake()
        await until(lambda: reported, "it is reported")
        assert {(event.pod, event.uid, event.reason) for event in reported} == {
            ("theirs", uids["theirs"], "CardBoundElsewhere")
        }
        assert reported[0].message == "claim theirs has GPU-a-0, which is bound to comfyui of alice"
        assert b"ullage_kube_binding_conflicting_claims 1.0" in await FrontMetrics(front).page()
        (problem,) = (await front.bindings.store.cluster()).problems
        assert problem.item == "default/theirs"
        edit(server, "resourceclaims", "theirs", allocation=None, reservedFor=None)
        front.bindings.store.wake()
        await until(lambda: not front.bindings.conflicting_claims.now, "it is over")


async def test_claims_that_kube_scheduler_allocated_are_in_the_books(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("theirs"), a_claim("ours"))
    device = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
    edit(server, "resourceclaims", "theirs", allocation={"devices": {"results": [device]}})
    put(server, "pods", claiming("p", "ours"))
    async with running(api) as front:
        await let_go(server, "p")
        assert allocated(server, "ours") == ["a/gpu-1"]
        await until(lambda: len(holders(front)) == 2, "the books have both")
        edit(server, "resourceclaims", "theirs", allocation=None)
        await until(lambda: len(holders(front)) == 1, "it is free again")


async def test_all_claims_of_a_pod_lie_on_one_node(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1, b=2)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one", "two"))
    async with running(api):
        await let_go(server, "p")
        assert sorted(allocated(server, "one") + allocated(server, "two")) == ["b/gpu-0", "b/gpu-1"]


async def test_a_claim_that_is_shared_keeps_its_devices_and_its_other_users(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1, b=1)
    put(server, "resourceclaims", a_claim("shared"))
    put(server, "pods", claiming("p", "shared"), claiming("q", "shared"))
    async with running(api):
        await let_go(server, "p", "q")
        assert len(allocated(server, "shared")) == 1
        assert sorted(users(server, "shared")) == ["p", "q"]
        delete(server, "p")
        await until(lambda: users(server, "shared") == ["q"], "the reservation is gone")
        assert len(allocated(server, "shared")) == 1
        delete(server, "q")
        await until(lambda: allocated(server, "shared") == [], "nobody uses it")


async def test_a_pod_that_cannot_have_all_its_claims_holds_nothing(server: ApiServer, api: HttpKubeApi):
    """Two pods with two claims each, of which one is shared by none: neither waits with one in its hands."""
    furnish(server, a=3)
    put(server, "resourceclaims", *(a_claim(name, wants(count=1)) for name in ("x1", "x2", "y1")), a_claim("y2"))
    put(server, "pods", claiming("x", "x1", "x2"), claiming("y", "y1", "y2"))
    async with running(api):
        await until(lambda: gated(server, "x") is not gated(server, "y"), "one of them is let go")
        waits = "x" if gated(server, "x") else "y"
        await asyncio.sleep(0)
        assert allocated(server, f"{waits}1") == allocated(server, f"{waits}2") == []
        other = "y" if waits == "x" else "x"
        delete(server, other)
        await let_go(server, waits)


async def test_a_claim_that_was_made_for_a_pod_is_waited_for(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    body = claiming("p", "ignored")
    body["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": "t"}]
    (pod,) = put(server, "pods", body)
    said: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = said.append
        await until(lambda: any("does not exist yet" in event.message for event in said), "it is reported")
        made = a_claim("p-c0-xyz")
        for owner, uid in (("other", "other"), ("p", pod["metadata"]["uid"])):
            made["metadata"]["name"] = f"p-c0-{owner}"
            made["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid, "controller": True}
            ]
            put(server, "resourceclaims", made)
            reported = [{"name": "c0", "resourceClaimName": f"p-c0-{owner}"}]
            edit(server, "pods", "p", resourceClaimStatuses=reported)
            if owner == "other":
                await until(lambda: any("made for another pod" in event.message for event in said), "it is reported")
        await let_go(server, "p")
        assert allocated(server, "p-c0-p") == ["a/gpu-0"]
        assert allocated(server, "p-c0-other") == []


async def test_the_gate_of_a_pod_that_needs_no_claim_after_all_is_removed(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    body = claiming("p")
    body["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": "t"}]
    put(server, "pods", body)
    edit(server, "pods", "p", resourceClaimStatuses=[{"name": "c0"}])
    async with running(api):
        await let_go(server, "p")


async def test_other_gates_come_first_and_pods_of_others_are_left_alone(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"), a_claim("three"))
    put(
        server,
        "pods",
        claiming("a-gated", "one", gates=("example.com/first", GATE)),
        claiming("an-other", "two", schedulerName="another"),
    )
    async with running(api):
        put(server, "pods", claiming("p", "three"))
        await let_go(server, "p")
        assert allocated(server, "one") == allocated(server, "two") == []
        assert gated(server, "a-gated")
        assert gated(server, "an-other")
        edit(server, "pods", "a-gated", "spec", schedulingGates=[{"name": GATE}])
        await let_go(server, "a-gated")
        assert len(allocated(server, "one")) == 1


async def test_only_nodes_where_the_pod_may_go(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1, b=1, c=1, d=1)

    def change(name: str, **spec: Any) -> None:
        server.do(
            lambda: server.rules.change(("nodes", "", name), lambda item: {**item, "spec": {**item["spec"], **spec}})
        )

    change("a", unschedulable=True)
    change("b", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one", nodeSelector={"kubernetes.io/hostname": "nowhere"}))
    only = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": only}}
    put(server, "pods", claiming("q", "two", affinity=required))
    said: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = said.append
        await until(lambda: {event.pod for event in said} == {"p", "q"}, "both are reported")
        reported = {event.pod: event.message for event in said}
        assert "3 of 4 nodes: node-affinity" in reported["p"]
        assert "1 of 4 nodes: node-tainted" in reported["q"]
        assert gated(server, "p")
        assert gated(server, "q")


async def test_configuration_comes_from_the_class_and_then_the_claim(server: ApiServer, api: HttpKubeApi):
    opaque = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": 1}}}
    put(server, "nodes", a_node("a"))
    put(server, "resourceslices", a_slice("a", a_card("a", 0), a_card("a", 1)))
    put(server, "deviceclasses", a_class(config=[opaque]))
    either = {"name": "x", "firstAvailable": [
        {"name": "big", "deviceClassName": "gpu", "count": 3},
        {"name": "small", "deviceClassName": "gpu", "count": 1, "tolerations": [{"key": "t", "operator": "Exists"}]},
    ]}  # fmt: skip
    own = [{"requests": ["x"], **opaque}, {"requests": ["x/big"], **opaque}, {**opaque}]
    put(server, "resourceclaims", a_claim("one", either, config=own))
    put(server, "pods", claiming("p", "one"))
    async with running(api):
        await let_go(server, "p")
        devices = get(server, "resourceclaims", "one")["status"]["allocation"]["devices"]
        assert [each["request"] for each in devices["results"]] == ["x/small"]
        assert devices["results"][0]["tolerations"] == [{"key": "t", "operator": "Exists"}]
        assert [(each["source"], each.get("requests")) for each in devices["config"]] == [
            ("FromClass", ["x/small"]),
            ("FromClaim", ["x"]),
            ("FromClaim", None),
        ]


async def test_conditions_of_devices_are_waited_for_and_a_failure_allocates_again(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a"))
    put(server, "deviceclasses", a_class())
    waits = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    put(server, "resourceslices", a_slice("a", a_card("a", 0, **waits)))
    put(server, "resourceclaims", a_claim("one"))
    put(server, "pods", claiming("p", "one"))

    def say(kind: str) -> None:
        of = {"driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
        condition = {"type": kind, "status": "True", "reason": "r", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        edit(server, "resourceclaims", "one", devices=[{**of, "conditions": [condition]}])

    async with running(api):
        await until(lambda: bool(allocated(server, "one")), "it is allocated")
        first = get(server, "resourceclaims", "one")
        assert first["status"]["allocation"]["allocationTimestamp"]
        assert gated(server, "p")
        say("broken")
        await until(lambda: not allocated(server, "one"), "it is taken back")
        edit(server, "resourceclaims", "one", devices=None)
        await until(lambda: bool(allocated(server, "one")), "it is allocated again")
        assert gated(server, "p")
        say("attached")
        await let_go(server, "p")


def a_taint_rule(name: str, effect: str = "NoSchedule", **selector: str) -> dict[str, Any]:
    spec = {"deviceSelector": selector, "taint": {"key": "repair", "value": "soon", "effect": effect}}
    return {"metadata": {"name": name}, "spec": spec}


async def test_rules_taint_devices_until_they_are_gone(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2)
    put(server, "devicetaintrules", a_taint_rule("zero", driver="gpu.nvidia.com", pool="a", device="gpu-0"))
    put(server, "devicetaintrules", a_taint_rule("nobody", driver="gpu.nvidia.com", pool="b"))
    put(server, "devicetaintrules", a_taint_rule("told", "None"))
    put(server, "devicetaintrules", a_taint_rule("older", deviceClassName="gpu"))
    tolerates = [{"key": "repair", "operator": "Exists"}]
    put(server, "resourceclaims", a_claim("p"), a_claim("q"), a_claim("r", wants(tolerations=tolerates)))
    put(server, "pods", claiming("p", "p"))
    errors: list[Any] = []
    async with running(api, errors):
        await let_go(server, "p")
        assert allocated(server, "p") == ["a/gpu-1"]
        assert [reported[:2] for reported in errors] == [("DeviceTaintRule", "older")]
        put(server, "pods", claiming("r", "r"))
        await let_go(server, "r")
        assert allocated(server, "r") == ["a/gpu-0"]
        put(server, "pods", claiming("q", "q"))
        delete(server, "r")
        await until(lambda: not allocated(server, "r"), "r has given it back")
        server.do(lambda: server.rules.delete(("devicetaintrules", "", "zero"), {}))
        await let_go(server, "q")
        assert allocated(server, "q") == ["a/gpu-0"]
        put(server, "devicetaintrules", a_taint_rule("all"))
        delete(server, "p")
        put(server, "resourceclaims", a_claim("s"))
        put(server, "pods", claiming("s", "s"))
        await until(lambda: not allocated(server, "p"), "p has given it back")
        assert gated(server, "s")


def test_a_rule_that_becomes_unreadable_keeps_its_earlier_taints() -> None:
    set_rules: list[tuple[str, object]] = []
    errors: list[Any] = []
    devices: Any = SimpleNamespace(set_taint_rule=lambda *reported: set_rules.append(reported))
    api: Any = None
    rules = TaintRules(api, devices, lambda: None, lambda *reported: errors.append(reported))
    selectors = ({"pool": "a", "device": "gpu-0"}, {"deviceClassName": "gpu"})
    first, then = (DEVICE_TAINT_RULES[0].read(json.dumps(a_taint_rule("zero", **each)).encode()) for each in selectors)
    rules._on_rule(Added(first))
    rules._on_rule(Changed(first, then))
    assert [name for name, _ in set_rules] == ["zero"]
    assert [reported[:2] for reported in errors] == [("DeviceTaintRule", "zero")]
    rules._on_rule(Removed(first))
    assert set_rules[-1] == ("zero", None)


async def test_a_cluster_without_claims_is_served_as_ever(server: ApiServer, api: HttpKubeApi):
    for plural in ("resourceslices", "deviceclasses", "resourceclaims"):
        server.canned.append(Canned("GET", f"/{plural}", 404, times=10_000))
    put(server, "nodes", a_node("a", **{"nvidia.com/gpu": "2"}))
    errors: list[Any] = []
    async with running(api, errors) as front:
        assert front.claims is not None
        assert not front.claims.mirror.served
        assert errors == []
        assert len(front.cluster.allocator.fleet.cards) == 2


async def test_a_cluster_without_taint_rules_is_served_as_ever(server: ApiServer, api: HttpKubeApi):
    server.canned.append(Canned("GET", "/devicetaintrules", 404, times=10_000))
    furnish(server, a=1)
    put(server, "resourceclaims", a_claim("one"))
    put(server, "pods", claiming("p", "one"))
    errors: list[Any] = []
    async with running(api, errors):
        await let_go(server, "p")
    assert errors == []


async def test_claims_that_may_not_be_read_are_reported_and_the_rest_is_served(server: ApiServer, api: HttpKubeApi):
    server.canned.append(Canned("GET", "/resourceslices", 403, times=10_000))
    errors: list[Any] = []
    async with running(api, errors) as front:
        assert front.claims is not None
        assert not front.claims.mirror.served
        assert errors[0][2].code == "kube-forbidden"


async def test_a_claim_that_asks_in_an_unknown_way_is_left_alone_and_what_it_has_counts(
    server: ApiServer, api: HttpKubeApi
):
    furnish(server, a=2)
    put(server, "resourceclaims", a_claim("odd", wants(allocationMode="Half")), a_claim("one"))
    device = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}
    put(server, "pods", claiming("p", "odd"))
    said: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = said.append
        await until(lambda: any("allocationMode" in event.message for event in said), "it is reported")
        assert gated(server, "p")
        edit(server, "resourceclaims", "odd", allocation={"devices": {"results": [device]}})
        await until(lambda: bool(holders(front)), "it counts")
        put(server, "pods", claiming("q", "one"))
        await let_go(server, "q")
        assert allocated(server, "one") == ["a/gpu-1"]


def made_by_scheduler(pod: dict[str, Any], *devices: str) -> dict[str, Any]:
    """The claim that kube-scheduler makes for the resources of a pod, and what it allocates."""
    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    found = a_claim(f"{name}-extended-resources-x", wants("container-0-request-0", len(devices)))
    found["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    found["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    ]
    results = [
        {"request": "container-0-request-0", "driver": "gpu.nvidia.com", "pool": "a", "device": device}
        for device in devices
    ]
    return {**found, "status": {"allocation": {"devices": {"results": results}}}}


async def test_cards_that_kube_scheduler_claims_for_resources_of_a_pod_are_the_pods(
    server: ApiServer, api: HttpKubeApi
):
    """It asks the extender, claims cards for the pod by itself, and then has us bind: to exactly these."""
    furnish(server, a=3)
    (pod,) = put(server, "pods", a_pod("p", 1))
    async with running(api) as front:
        asked = {"Pod": pod, "NodeNames": ["a"]}
        assert front.extender.filter(read_args(json.dumps(asked).encode())).node_names == ["a"]
        claim = made_by_scheduler(pod, "gpu-2")
        put(server, "resourceclaims", {**claim, "status": {}})
        edit(server, "resourceclaims", claim["metadata"]["name"], **claim["status"])
        made = {"requestMappings": [], "resourceClaimName": claim["metadata"]["name"]}
        edit(server, "pods", "p", extendedResourceClaimStatus=made)
        await front.extender.bind(read_bind(json.dumps(binding(pod, "a")).encode()))
        assert get(server, "pods", "p")["metadata"]["annotations"]["ullage.io/gpu-ids"] == "GPU-a-2"
        await until(lambda: holders(front) == {pod["metadata"]["uid"]: ("GPU-a-2",)}, "the pod has it, and once")
    async with running(api) as front:  # and the next leader agrees
        await until(lambda: holders(front) == {pod["metadata"]["uid"]: ("GPU-a-2",)}, "the pod has it, and once")


async def test_a_claim_that_is_given_up_before_the_pod_is_bound_leaves_nothing(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    (pod,) = put(server, "pods", a_pod("p", 1))
    claim = made_by_scheduler(pod, "gpu-0")
    put(server, "resourceclaims", {**claim, "status": {}})
    edit(server, "resourceclaims", claim["metadata"]["name"], **claim["status"])
    async with running(api) as front:
        await until(lambda: holders(front) == {pod["metadata"]["uid"]: ("GPU-a-0",)}, "the pod has it")
        server.do(lambda: server.rules.delete(("resourceclaims", "default", claim["metadata"]["name"]), {}))
        await until(lambda: not holders(front), "nobody has it")


async def test_many_equal_requests_are_refused_after_one_is_examined(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1)
    names = [f"p{number}" for number in range(6)]
    put(server, "resourceclaims", *(a_claim(name, wants(count=2)) for name in names), a_claim("small"))
    put(server, "pods", *(claiming(name, name) for name in names))
    said: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = said.append
        await until(lambda: {event.pod for event in said} == set(names), "all are reported")
        assert len({event.message for event in said}) == 1
        page = (await FrontMetrics(front).page()).decode()
        assert "ullage_kube_claims_waiting 6.0" in page
        assert 'ullage_kube_mirror_age_seconds{kind="resourceclaims"}' in page
        put(server, "pods", claiming("q", "small"))
        await let_go(server, "q")


async def test_bind_reads_the_claim_itself_though_the_watch_is_behind(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=3)
    (pod,) = put(server, "pods", a_pod("p", 1))
    async with running(api) as front:
        assert front.claims is not None
        front.claims.mirror.claims._handlers.clear()  # no event is delivered any more
        claim = made_by_scheduler(pod, "gpu-2")
        put(server, "resourceclaims", {**claim, "status": {}})
        edit(server, "resourceclaims", claim["metadata"]["name"], **claim["status"])
        made = {"requestMappings": [], "resourceClaimName": claim["metadata"]["name"]}
        edit(server, "pods", "p", extendedResourceClaimStatus=made)
        await front.extender.bind(read_bind(json.dumps(binding(pod, "a")).encode()))
        assert get(server, "pods", "p")["metadata"]["annotations"]["ullage.io/gpu-ids"] == "GPU-a-2"


# --- whose turn it is ---


def of_queue(pod: dict[str, Any], queue: str, priority: int = 0) -> dict[str, Any]:
    pod["metadata"]["labels"] = {"ullage.io/queue": queue}
    if priority:
        pod["spec"] |= {"priority": priority, "priorityClassName": "some"}
    return pod


async def test_claims_are_served_by_queue_priority_and_age_also_after_a_restart(server: ApiServer, api: HttpKubeApi):
    """Two queues, one of them earlier and longer: both get the same number of cards."""
    furnish(server, a=4)
    names = [*(f"x{number}" for number in range(4)), "y0", "y1", "y2"]
    put(server, "resourceclaims", *map(a_claim, names))
    pods = [of_queue(claiming(name, name), name[0], priority=5 if name == "x3" else 0) for name in names]
    for number, pod in enumerate(pods):
        pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
    put(server, "pods", *pods)
    async with running(api):
        await until(lambda: sum(not gated(server, name) for name in names) == 4, "four of them have a card")
    assert {name for name in names if not gated(server, name)} == {"x3", "x0", "y0", "y1"}
    assert get(server, "resourceclaims", "y0")["metadata"]["annotations"]["ullage.io/queue"] == "y"
    delete(server, "y0")
    async with running(api):
        await let_go(server, "y2")
    assert gated(server, "x1"), "what the claims of a queue have counts for it after a restart"


# --- claims, and cards asked for in other words ---


def nics(node: str, count: int) -> dict[str, Any]:
    """Adapters of a driver of which nothing is known but its name."""
    return a_slice(node, *({"name": f"nic-{number}"} for number in range(count)), driver="nic.example.com")


NIC = {"name": "nic", "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1}}


def both(name: str, claim: str, cards: int = 1) -> dict[str, Any]:
    pod = claiming(name, claim)
    pod["metadata"]["annotations"] = {"ullage.io/gpu-count": str(cards), "ullage.io/isolation": "shared"}
    return pod


async def test_a_pod_with_a_claim_and_other_cards_goes_where_there_are_both(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=4, b=2, c=0)
    put(server, "deviceclasses", a_class("nic", "device.driver == 'nic.example.com'"))
    put(server, "resourceslices", nics("b", 2), nics("c", 2))
    put(server, "resourceclaims", *(a_claim(name, NIC) for name in ("one", "two")))
    reported: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = reported.append
        put(server, "pods", both("p", "one", 2))
        await let_go(server, "p")
        assert allocated(server, "one") == ["b/nic-0"]
        assert set(front.cluster.cards_of(get(server, "pods", "p")["metadata"]["uid"])) == {"GPU-b-0", "GPU-b-1"}
        put(server, "pods", both("q", "two"))
        await has_event(reported, "1 of 3 nodes: no-devices", "reserved-for-nominated")
        assert gated(server, "q"), "the cards of b are kept for p, which is not there yet"
        assert allocated(server, "two") == []


async def test_cards_of_a_claim_and_other_cards_are_different_ones(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1, b=2)
    put(server, "resourceclaims", a_claim("one"))
    async with running(api) as front:
        put(server, "pods", both("p", "one"))
        await let_go(server, "p")
        (claimed,) = allocated(server, "one")
        assert claimed.startswith("b/")
        pod = get(server, "pods", "p")
        await front.extender.bind(read_bind(json.dumps(binding(pod, "b")).encode()))
        front.mirror.settle()
        own = front.cluster.cards_of(pod["metadata"]["uid"])
        assert len(own) == 1
        assert own[0] != claimed.replace("b/gpu", "GPU-b")


async def test_where_there_is_no_room_for_both_nothing_is_allocated(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=1, b=1)
    put(server, "resourceclaims", a_claim("one"))
    reported: list[PodEvent] = []
    async with running(api) as front:
        front.claims.claiming._record_event = reported.append
        put(server, "pods", both("p", "one"))
        await has_event(reported, "its claims cannot be allocated: 2 of 2 nodes: no-room-for-both")
    assert gated(server, "p")
    assert allocated(server, "one") == []


async def test_a_claim_that_becomes_unreadable_does_not_delay_other_pods(server: ApiServer, api: HttpKubeApi):
    furnish(server, a=2)
    (broken,) = put(server, "resourceclaims", a_claim("broken"))
    put(server, "resourceclaims", a_claim("one"))
    uid, errors = broken["metadata"]["uid"], list[Any]()
    async with running(api, errors) as front:
        assert front.claims is not None
        devices = front.claims.claiming._claims.devices
        await until(lambda: devices.named("default", "broken") is not None, "it is known")
        edit(server, "resourceclaims", "broken", allocation={"nodeSelector": "of another version"})
        await until(lambda: bool(errors), "the parse error is reported")
        devices.hold_devices(uid, ())
        # the write was sent, and nothing was heard
        devices._pending_writes[uid] = replace(devices._pending_writes[uid], until=0.0)
        put(server, "pods", claiming("p", "one"))
        await let_go(server, "p")
        assert devices.is_being_written(uid), "it is held as it was"


def written(server: ApiServer) -> dict[Any, Any]:
    return dict(server.do(lambda: server.store.at(server.store.revision)))


ON_A = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
ITS_POOL = [{"request": "r", "driver": "gpu.nvidia.com", "pool": "a", "device": "x", "consumedCapacity": "much"}]


@pytest.mark.parametrize(
    ("allocation", "what"),
    [
        ({"devices": {"results": "of another version"}, "nodeSelector": ON_A}, "any driver on a"),
        ({"devices": {"results": ITS_POOL}}, "a of gpu.nvidia.com on any node"),
        ({"devices": {"results": "of another version"}}, ""),
    ],
    ids=["its node can be read", "its pool can be read", "nothing can be read"],
)
async def test_a_claim_whose_devices_were_never_readable_keeps_what_it_can_have_from_new_work(
    server: ApiServer, api: HttpKubeApi, allocation: dict[str, Any], what: str
) -> None:
    furnish(server, a=1, b=1)
    (broken,) = put(server, "resourceclaims", a_claim("broken"))
    (user,) = put(server, "pods", claiming("user", "broken", gates=()))
    uid = user["metadata"]["uid"]
    using = [{"resource": "pods", "name": "user", "uid": uid}]
    edit(server, "resourceclaims", "broken", allocation=allocation, reservedFor=using)
    put(server, "resourceclaims", a_claim("one"), a_claim("two"))
    put(server, "pods", claiming("p", "one"), claiming("q", "two"))
    reported: list[PodEvent] = []
    async with running(api) as front:
        assert front.claims is not None
        front.claims.claiming._record_event = reported.append
        if what:
            await until(lambda: not (gated(server, "p") and gated(server, "q")), "one of them goes to the other node")
            assert [allocated(server, name) for name in ("one", "two") if allocated(server, name)] == [["b/gpu-0"]]
        else:
            await has_event(reported, "its claims cannot be allocated")
            assert gated(server, "p")
            assert gated(server, "q")
        front.mirror.settle()
        fleet = front.cluster.allocator.fleet
        assert not fleet.cards[fleet.card_of["GPU-a-0"]].usable, "nor does anybody else get its card"
        assert fleet.cards[fleet.card_of["GPU-b-0"]].usable is bool(what)

        def about(kind: str, of: str) -> list[str]:
            events = [item for key, item in written(server).items() if key[0] == "events"]
            mine = [
                each for each in events if (each["involvedObject"]["kind"], each["involvedObject"]["uid"]) == (kind, of)
            ]
            return [each["message"] for each in mine if each["reason"] == "CardsUnknown"]

        of_both = ("Pod", uid), ("ResourceClaim", broken["metadata"]["uid"])
        await until(lambda: all(about(*each) for each in of_both), "its user and it have an event")
        for each in of_both:
            (message,) = about(*each)
            assert f"no device of {what or 'any driver on any node'} takes new work while claim broken" in message
            assert "delete the pods that use it" in message
        edit(server, "resourceclaims", "broken", allocation=None, reservedFor=None)
        await let_go(server, "p", "q")
    assert broken["metadata"]["uid"] not in holders(front)
