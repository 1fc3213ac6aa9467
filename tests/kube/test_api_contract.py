"""What Ullage builds on, true of the API server in this process and of a real one."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.conftest import Cluster
from ullage.kube.client.api import EventType, Selection, WatchEvent
from ullage.kube.client.changes import Bind, Change, Create, Delete, Evict, Patch, PatchType, Replace
from ullage.kube.client.errors import ApiGone, BudgetExhausted, VersionConflict
from ullage.kube.client.kinds import GPU_BINDINGS, LEASES, NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS, Kind
from ullage.kube.client.objects import Object, Pod
from ullage.model.error import AlreadyExists, InvalidRequest, NotFound

pytestmark = pytest.mark.anyio
LINE_ENDS = "one\u0085two\u2028three\x0bfour"


async def create(cluster: Cluster, kind: Kind[Any], body: dict[str, Any]) -> Any:
    namespace = cluster.namespace if kind.namespaced else ""
    return kind.read(await cluster.api.write(Create(kind, body, namespace)))


async def patch(cluster: Cluster, pod: str, body: Any, how: PatchType = PatchType.MERGE, subresource: str = "") -> Pod:
    change = Patch(PODS, pod, body, cluster.namespace, how, subresource)
    return PODS.read(await cluster.api.write(change))


async def version(cluster: Cluster, kind: Kind[Any] = PODS) -> str:
    return [page async for page in cluster.api.pages(kind)][-1].version


async def reported(cluster: Cluster, since: str, count: int, select: Selection | None = None) -> list[WatchEvent[Pod]]:
    """The first events of pods of the test's namespace after a version, without bookmarks."""
    found: list[WatchEvent[Pod]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            async with aclosing(cluster.api.watch(PODS, since, select or Selection(cluster.namespace))) as events:
                async for event in events:
                    since = event.version
                    if event.item is not None:
                        found.append(event)
                    if len(found) == count:
                        break
    return found


async def refused(cluster: Cluster, change: Change, error: type[Exception]) -> None:
    with pytest.raises(error):
        await cluster.api.write(change)


async def test_a_created_object_has_a_uid_and_a_version(cluster: Cluster) -> None:
    one = await create(cluster, PODS, bodies.pod(generate="worker-"))
    other = await create(cluster, PODS, bodies.pod(generate="worker-"))
    assert one.metadata.name.startswith("worker-")
    assert len({one.metadata.name, other.metadata.name, "worker-"}) == 3
    assert one.metadata.uid != other.metadata.uid
    assert one.metadata.resource_version != other.metadata.resource_version
    assert one.metadata.creation_timestamp
    assert one.status.phase == "Pending"
    assert one.state == (await cluster.api.get(PODS, one.metadata.name, cluster.namespace)).state


async def test_of_an_object_all_is_kept_that_is_read(cluster: Cluster) -> None:
    pod = await create(cluster, PODS, bodies.pod("whole", annotations={"a.b/c": "d"}))
    (container,) = pod.document["spec"]["containers"]
    assert container["name"] == "main"
    assert "image" not in container
    assert pod.document["metadata"]["annotations"] == {"a.b/c": "d"} == pod.metadata.annotations


async def test_a_name_is_taken_once_and_read_while_it_lasts(cluster: Cluster) -> None:
    await create(cluster, PODS, bodies.pod("taken"))
    await refused(cluster, Create(PODS, bodies.pod("taken"), cluster.namespace), AlreadyExists)
    with pytest.raises(NotFound):
        await cluster.api.get(PODS, "never", cluster.namespace)
    await refused(cluster, Delete(PODS, "never", cluster.namespace), NotFound)
    await refused(cluster, Create(PODS, bodies.pod("taken"), "no-such-namespace"), NotFound)


@pytest.mark.parametrize("body", [bodies.pod("Not_A_Name"), bodies.pod(), {"metadata": {"name": "x"}, "spec": {}}])
async def test_an_invalid_object_is_refused(cluster: Cluster, body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await create(cluster, PODS, body)
    assert raised.value.code == "kube-invalid"


async def test_an_old_version_replaces_nothing(cluster: Cluster) -> None:
    first = await create(cluster, LEASES, bodies.lease("leader", "a"))
    newer = {**first.document, "spec": {"holderIdentity": "b"}}
    second = LEASES.read(await cluster.api.write(Replace(LEASES, "leader", newer, cluster.namespace)))
    assert second.metadata.resource_version != first.metadata.resource_version
    assert second.metadata.uid == first.metadata.uid
    late = {**first.document, "spec": {"holderIdentity": "c"}}
    await refused(cluster, Replace(LEASES, "leader", late, cluster.namespace), VersionConflict)
    assert (await cluster.api.get(LEASES, "leader", cluster.namespace)).state == second.state


async def test_a_deleted_object_is_not_replaced(cluster: Cluster) -> None:
    first = await create(cluster, LEASES, bodies.lease("gone", "a"))
    await cluster.api.write(Delete(LEASES, "gone", cluster.namespace))
    await refused(cluster, Replace(LEASES, "gone", first.document, cluster.namespace), VersionConflict)
    second = await create(cluster, LEASES, bodies.lease("gone", "b"))
    other = {**first.document, "metadata": {"name": "gone", "uid": first.metadata.uid}}
    await refused(cluster, Replace(LEASES, "gone", other, cluster.namespace), VersionConflict)
    assert (await cluster.api.get(LEASES, "gone", cluster.namespace)).state == second.state


async def test_a_lease_may_lack_a_holder_but_not_a_time(cluster: Cluster) -> None:
    await create(cluster, LEASES, bodies.lease("empty", "a"))
    for holder in ("", None):
        change = Patch(LEASES, "empty", {"spec": {"holderIdentity": holder}}, cluster.namespace)
        assert not LEASES.read(await cluster.api.write(change)).spec.holder_identity
    change = Patch(LEASES, "empty", {"spec": {"leaseDurationSeconds": 0}}, cluster.namespace)
    await refused(cluster, change, InvalidRequest)


async def test_of_two_writers_on_one_version_one_wins(cluster: Cluster) -> None:
    first = await create(cluster, LEASES, bodies.lease("race", "nobody"))

    async def write(holder: str) -> bool:
        body = {**first.document, "spec": {"holderIdentity": holder}}
        try:
            await cluster.api.write(Replace(LEASES, "race", body, cluster.namespace))
        except VersionConflict:
            return False
        return True

    won = await asyncio.gather(*(write(f"writer-{number}") for number in range(5)))
    assert sum(won) == 1
    held = await cluster.api.get(LEASES, "race", cluster.namespace)
    assert held.spec.holder_identity == f"writer-{won.index(True)}"


async def test_a_write_that_changes_nothing_makes_no_version(cluster: Cluster) -> None:
    first = await create(cluster, LEASES, bodies.lease("same", "a"))
    again = LEASES.read(await cluster.api.write(Replace(LEASES, "same", first.document, cluster.namespace)))
    assert again.metadata.resource_version == first.metadata.resource_version


async def test_a_merge_patch_sets_and_removes_fields(cluster: Cluster) -> None:
    first = await create(cluster, PODS, bodies.pod("merged", annotations={"stays": "1", "goes": "1"}))
    notes = {"goes": None, "comes": "2"}
    second = await patch(cluster, "merged", {"metadata": {"annotations": notes}})
    assert second.metadata.annotations == {"stays": "1", "comes": "2"}
    guard = {"resourceVersion": first.metadata.resource_version, "annotations": {"late": "3"}}
    await refused(cluster, Patch(PODS, "merged", {"metadata": guard}, cluster.namespace), VersionConflict)
    guard = {"uid": "another", "annotations": {"late": "3"}}
    await refused(cluster, Patch(PODS, "merged", {"metadata": guard}, cluster.namespace), InvalidRequest)
    assert second.state == (await cluster.api.get(PODS, "merged", cluster.namespace)).state


async def test_a_json_patch_applies_as_a_whole_or_not_at_all(cluster: Cluster) -> None:
    first = await create(cluster, PODS, bodies.pod("patched", annotations={"a": "1"}))
    add = {"op": "add", "path": "/metadata/annotations/ullage.dev~1gpu-ids", "value": "GPU-1"}
    false = {"op": "test", "path": "/metadata/annotations/a", "value": "2"}
    await refused(cluster, Patch(PODS, "patched", [add, false], cluster.namespace, PatchType.JSON), InvalidRequest)
    assert first.state == (await cluster.api.get(PODS, "patched", cluster.namespace)).state
    second = await patch(cluster, "patched", [{**false, "value": "1"}, add], PatchType.JSON)
    assert second.metadata.annotations == {"a": "1", "ullage.dev/gpu-ids": "GPU-1"}


async def test_status_changes_only_through_its_subresource(cluster: Cluster) -> None:
    await create(cluster, PODS, bodies.pod("door"))
    assert (await patch(cluster, "door", {"status": {"phase": "Running"}})).status.phase == "Pending"
    both = {"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Running"}}
    running = await patch(cluster, "door", both, subresource="status")
    assert running.status.phase == "Running"
    for name in ("Ready", "ContainersReady"):
        conditions = {"status": {"conditions": [{"type": name, "status": "True"}]}}
        running = await patch(cluster, "door", conditions, PatchType.STRATEGIC, "status")
    found = {item["type"] for item in running.document["status"]["conditions"]}
    assert found == {"Ready", "ContainersReady"}


async def test_an_applied_object_is_made_or_changed(cluster: Cluster) -> None:
    for value in ("1", "2"):
        body = {"metadata": {"name": "applied", "annotations": {"a": value}}, "spec": bodies.pod("x")["spec"]}
        pod = await patch(cluster, "applied", body, PatchType.APPLY)
        assert pod.metadata.annotations == {"a": value}


async def test_the_pages_of_a_list_show_the_same_state(cluster: Cluster) -> None:
    names = [f"p{number}" for number in range(7)]
    for name in names:
        await create(cluster, PODS, bodies.pod(name))
    seen, versions, sizes = [], set(), []
    async with aclosing(cluster.api.pages(PODS, Selection(cluster.namespace), 3)) as pages:
        async for page in pages:
            seen += [pod.metadata.name for pod in page.items]
            versions.add(page.version)
            sizes.append(len(page.items))
            if len(sizes) == 1:
                await create(cluster, PODS, bodies.pod("p9"))
                await cluster.api.write(Delete(PODS, "p5", cluster.namespace, grace_s=0))
    assert sorted(seen) == names
    assert sizes == [3, 3, 1]
    assert len(versions) == 1
    later = await reported(cluster, versions.pop(), 3)
    assert [(event.type.value, event.item and event.item.metadata.name) for event in later] == [
        ("ADDED", "p9"),
        ("MODIFIED", "p5"),
        ("DELETED", "p5"),
    ]


async def test_an_empty_list_has_one_page(cluster: Cluster) -> None:
    pages = [page async for page in cluster.api.pages(PODS, Selection(cluster.namespace))]
    assert [page.items for page in pages] == [()]
    assert pages[0].version


async def test_a_watch_delivers_all_events_in_order(cluster: Cluster) -> None:
    since = await version(cluster)
    await create(cluster, PODS, bodies.pod("seen"))
    changed = await patch(cluster, "seen", {"metadata": {"annotations": {"text": LINE_ENDS}}})
    await cluster.api.write(Delete(PODS, "seen", cluster.namespace, grace_s=0))
    events = await reported(cluster, since, 4)
    assert [event.type.value for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[1].item is not None
    assert events[1].item.metadata == changed.metadata
    assert events[1].version == changed.metadata.resource_version
    assert changed.metadata.annotations == {"text": LINE_ENDS}
    assert len({event.version for event in events}) == 4
    assert events[2].item is not None
    assert events[2].item.terminating
    assert events[3].item is not None
    assert events[3].item.metadata.uid == changed.metadata.uid


async def test_an_open_watch_delivers_new_events(cluster: Cluster) -> None:
    waiting = asyncio.create_task(reported(cluster, await version(cluster), 1))
    await create(cluster, PODS, bodies.pod("comes"))
    (event,) = await waiting
    assert event.item is not None
    assert event.item.metadata.name == "comes"


async def test_a_watch_is_ended_by_the_server(cluster: Cluster) -> None:
    async with asyncio.timeout(60):
        events = [event async for event in cluster.api.watch(NODES, await version(cluster, NODES))]
    assert [event for event in events if event.type is not EventType.BOOKMARK] == []


async def test_a_version_that_is_no_longer_known_is_gone(cluster: Cluster) -> None:
    cluster.forget()
    with pytest.raises(ApiGone):
        await reported(cluster, "1", 1)


async def test_a_selection_bounds_lists_and_watches(cluster: Cluster) -> None:
    since = await version(cluster)
    await create(cluster, PODS, bodies.pod("in", labels={"team": "red"}))
    await create(cluster, PODS, bodies.pod("out", labels={"team": "blue"}))
    await create(cluster, PODS, bodies.pod("placed", node="n1", labels={"team": "green"}))
    where = Selection(cluster.namespace, labels="team in (red,yellow)")
    assert await _names(cluster, where) == ["in"]
    assert await _names(cluster, Selection(cluster.namespace, fields="spec.nodeName=n1")) == ["placed"]
    assert await _names(cluster, Selection(cluster.namespace, "team!=red", "spec.nodeName=")) == ["out"]
    await patch(cluster, "in", {"metadata": {"labels": {"team": "blue"}}})
    events = await reported(cluster, since, 2, where)
    assert [event.type for event in events] == [EventType.ADDED, EventType.DELETED]


async def _names(cluster: Cluster, where: Selection) -> list[str]:
    return [pod.metadata.name async for page in cluster.api.pages(PODS, where) for pod in page.items]


async def test_a_deletion_applies_to_one_uid_and_may_apply_to_one_version(cluster: Cluster) -> None:
    first = await create(cluster, LEASES, bodies.lease("meant", "a"))
    uid, old = first.metadata.uid, first.metadata.resource_version
    await cluster.api.write(Patch(LEASES, "meant", {"spec": {"holderIdentity": "b"}}, cluster.namespace))
    await refused(cluster, Delete(LEASES, "meant", cluster.namespace, uid="another"), VersionConflict)
    await refused(cluster, Delete(LEASES, "meant", cluster.namespace, uid, old), VersionConflict)
    await cluster.api.write(Delete(LEASES, "meant", cluster.namespace, uid))
    with pytest.raises(NotFound):
        await cluster.api.get(LEASES, "meant", cluster.namespace)


async def test_finalizers_hold_an_object(cluster: Cluster) -> None:
    body = bodies.lease("held", "a")
    body["metadata"]["finalizers"] = ["ullage.dev/hold"]
    await create(cluster, LEASES, body)
    await cluster.api.write(Delete(LEASES, "held", cluster.namespace))
    held = await cluster.api.get(LEASES, "held", cluster.namespace)
    assert held.metadata.deletion_timestamp
    await cluster.api.write(Patch(LEASES, "held", {"metadata": {"finalizers": None}}, cluster.namespace))
    with pytest.raises(NotFound):
        await cluster.api.get(LEASES, "held", cluster.namespace)


async def test_a_pod_on_a_node_ends_in_its_time(cluster: Cluster) -> None:
    pod = await create(cluster, PODS, bodies.pod("running", node="n1"))
    await cluster.api.write(Delete(PODS, "running", cluster.namespace))
    ending = await cluster.api.get(PODS, "running", cluster.namespace)
    assert ending.terminating
    assert ending.metadata.uid == pod.metadata.uid
    await cluster.api.write(Delete(PODS, "running", cluster.namespace, pod.metadata.uid, grace_s=0))
    with pytest.raises(NotFound):
        await cluster.api.get(PODS, "running", cluster.namespace)


async def test_a_pod_that_waits_ends_at_once(cluster: Cluster) -> None:
    await create(cluster, PODS, bodies.pod("waiting"))
    await cluster.api.write(Delete(PODS, "waiting", cluster.namespace))
    with pytest.raises(NotFound):
        await cluster.api.get(PODS, "waiting", cluster.namespace)


async def test_a_pod_is_bound_once_with_its_annotations(cluster: Cluster) -> None:
    pod = await create(cluster, PODS, bodies.pod("bound", annotations={"own": "1"}))
    here, uid = (cluster.namespace, "bound"), pod.metadata.uid
    await refused(cluster, Bind(*here, "another", "n1"), VersionConflict)
    await refused(cluster, Bind(*here, uid, "n1", version="1"), VersionConflict)
    assert (await cluster.api.get(PODS, "bound", cluster.namespace)).state == pod.state
    await cluster.api.write(Bind(*here, uid, "n1", {"ullage.dev/gpu-ids": "GPU-1"}, pod.metadata.resource_version))
    bound = await cluster.api.get(PODS, "bound", cluster.namespace)
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations == {"own": "1", "ullage.dev/gpu-ids": "GPU-1"}
    for node in ("n1", "n2"):
        await refused(cluster, Bind(*here, uid, node), VersionConflict)
    await refused(cluster, Bind(cluster.namespace, "never", "uid", "n1"), NotFound)
    moved = {"spec": {"nodeName": "n2"}}
    await refused(cluster, Patch(PODS, "bound", moved, cluster.namespace), InvalidRequest)


async def test_a_gated_pod_is_not_bound(cluster: Cluster) -> None:
    body = bodies.pod("gated")
    body["spec"]["schedulingGates"] = [{"name": "ullage.dev/wait"}]
    pod = await create(cluster, PODS, body)
    await refused(cluster, Bind(cluster.namespace, "gated", pod.metadata.uid, "n1"), VersionConflict)


async def test_an_eviction_respects_the_disruption_budget(cluster: Cluster) -> None:
    budget = await create(cluster, POD_DISRUPTION_BUDGETS, bodies.budget("budget", {"app": "a"}))
    for name in ("one", "two"):
        await create(cluster, PODS, bodies.pod(name, node="n1", labels={"app": "a"}))
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await patch(cluster, name, {"status": ready}, subresource="status")
    uid = (await cluster.api.get(PODS, "one", cluster.namespace)).metadata.uid
    await refused(cluster, Evict(cluster.namespace, "one", uid), BudgetExhausted)
    await refused(cluster, Evict(cluster.namespace, "one", uid, dry_run=True), BudgetExhausted)
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}
    status["expectedPods"] = 2
    change = Patch(POD_DISRUPTION_BUDGETS, "budget", {"status": status}, cluster.namespace, subresource="status")
    allowed = POD_DISRUPTION_BUDGETS.read(await cluster.api.write(change))
    assert (budget.status.disruptions_allowed, allowed.status.disruptions_allowed) == (0, 1)
    await cluster.api.write(Evict(cluster.namespace, "two", dry_run=True))
    assert not (await cluster.api.get(PODS, "two", cluster.namespace)).terminating
    await cluster.api.write(Evict(cluster.namespace, "two"))
    assert (await cluster.api.get(PODS, "two", cluster.namespace)).terminating
    assert not (await cluster.api.get(PODS, "one", cluster.namespace)).terminating
    await refused(cluster, Evict(cluster.namespace, "one"), BudgetExhausted)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await patch(cluster, "one", unready, subresource="status")
    await cluster.api.write(Evict(cluster.namespace, "one"))


async def test_an_eviction_applies_to_one_uid_and_deletes_a_pod_without_a_node_at_once(cluster: Cluster) -> None:
    pod = await create(cluster, PODS, bodies.pod("free"))
    await refused(cluster, Evict(cluster.namespace, "free", "another"), VersionConflict)
    await cluster.api.write(Evict(cluster.namespace, "free", pod.metadata.uid))
    await refused(cluster, Evict(cluster.namespace, "free"), NotFound)


async def test_custom_resources_keep_what_they_are_given(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-binding"
    first: Object = await create(cluster, GPU_BINDINGS, bodies.binding(name))
    assert first.document["spec"] == {"uuid": "GPU-1", "appName": "app"}
    blind = {"metadata": {"name": name}, "spec": {"uuid": "GPU-2"}}
    await refused(cluster, Replace(GPU_BINDINGS, name, blind), InvalidRequest)
    memory = {"spec": {"memory": "8Gi"}}
    second = GPU_BINDINGS.read(await cluster.api.write(Patch(GPU_BINDINGS, name, memory)))
    assert second.document["spec"] == {"uuid": "GPU-1", "appName": "app", "memory": "8Gi"}
    strategic = Patch(GPU_BINDINGS, name, memory, type=PatchType.STRATEGIC)
    await refused(cluster, strategic, InvalidRequest)


async def test_nodes_and_namespaces_are_in_no_namespace(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-node"
    made = await create(cluster, NODES, bodies.node(name, labels={"gpu": "yes"}))
    assert made.key == ("", name)
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8"}}}
    await cluster.api.write(Patch(NODES, name, status, type=PatchType.STRATEGIC, subresource="status"))
    node = await cluster.api.get(NODES, name)
    assert node.ready
    assert [taint.key for taint in node.spec.taints or ()] == ["node.kubernetes.io/not-ready"]
    assert node.status.allocatable == {"cpu": "8"}
    assert (await cluster.api.get(NAMESPACES, cluster.namespace)).key == ("", cluster.namespace)
