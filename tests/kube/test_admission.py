"""How an API server asks a webhook, on either kind of server."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kube import bodies
from tests.kube.admission import patching, webhook
from tests.kube.conftest import Cluster
from ullage.kube.client.changes import Create, Patch, PatchType
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod
from ullage.kube.webhook.webhook import AdmissionSettings, Webhook
from ullage.model.error import InvalidRequest, UllageError, Unavailable
from ullage.wire.admission import read_review
from ullage.wire.json_patch import PatchOperation
from ullage.wire.pod.gate import open_gate, set_reason

pytestmark = pytest.mark.anyio


async def create(cluster: Cluster, **metadata: Any) -> Pod:
    return PODS.read(await cluster.api.write(Create(PODS, bodies.pod(**metadata), cluster.namespace)))


async def test_a_webhook_changes_what_is_created(cluster: Cluster, tmp_path: Path) -> None:
    notes = {"op": "add", "path": "/metadata/annotations", "value": {"ullage.dev/seen": "yes"}}
    wanted = patching(notes, {"op": "replace", "path": "/spec/schedulerName", "value": "ullage"})
    async with webhook(lambda _: wanted, cluster.namespace, tmp_path) as hook, cluster.asks(hook):
        pod = await create(cluster, generate="worker-")
        (request,) = hook.asked
    assert pod.metadata.annotations == {"ullage.dev/seen": "yes"}
    assert pod.spec.scheduler_name == "ullage"
    assert (request["operation"], request["namespace"], request["dryRun"]) == ("CREATE", cluster.namespace, False)
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["object"]["metadata"]["generateName"] == "worker-"
    assert "uid" not in request["object"]["metadata"]
    assert "annotations" not in request["object"]["metadata"]


async def test_a_webhook_refuses(cluster: Cluster, tmp_path: Path) -> None:
    refusal = {"allowed": False, "status": {"code": 422, "message": "no cards for you"}}
    async with webhook(lambda _: refusal, cluster.namespace, tmp_path) as hook, cluster.asks(hook):
        with pytest.raises(InvalidRequest, match="denied the request: no cards for you"):
            await create(cluster, name="refused")


@pytest.mark.parametrize("fail", [True, False])
async def test_a_webhook_that_answers_nonsense(cluster: Cluster, tmp_path: Path, fail: bool) -> None:
    another = {"allowed": True, "uid": "another"}
    async with webhook(lambda _: another, cluster.namespace, tmp_path, fail=fail) as hook, cluster.asks(hook):
        if fail:
            with pytest.raises(Unavailable, match="failed calling webhook"):
                await create(cluster, name="stopped")
        else:
            assert (await create(cluster, name="passed")).metadata.uid


async def test_the_gate_that_our_webhook_closes_is_one_that_we_open(cluster: Cluster, tmp_path: Path) -> None:
    ours = Webhook(AdmissionSettings(queues="all"))

    def review(request: dict[str, Any]) -> Any:
        asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        answer, _ = ours.answer(read_review(json.dumps(asked).encode()))
        return json.loads(answer)["response"]

    body = bodies.pod("p", labels={"ullage.io/queue": "x"})
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    async with webhook(review, cluster.namespace, tmp_path) as hook, cluster.asks(hook):
        pod = PODS.read(await cluster.api.write(Create(PODS, body, cluster.namespace)))
    assert [gate.name for gate in pod.spec.scheduling_gates or ()] == ["ullage.io/queue"]

    async def write(changes: list[PatchOperation]) -> Pod:
        patch = Patch(PODS, "p", msgspec.to_builtins(changes), cluster.namespace, PatchType.JSON)
        return PODS.read(await cluster.api.write(patch))

    reported = await write(set_reason(pod.document, "no room"))
    opened = open_gate(reported.document, "a")
    with pytest.raises(UllageError):
        await write(open_gate(pod.document, "a"))  # it was decided on another version
    done = await write(opened)
    assert not done.spec.scheduling_gates
    assert done.metadata.annotations == {"ullage.io/queue-place": "a"}
    with pytest.raises(UllageError):
        await write(opened)
