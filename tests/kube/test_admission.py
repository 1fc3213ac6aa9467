"""How an API server asks a webhook, on either kind of server."""

from pathlib import Path
from typing import Any

import pytest

from tests.kube import bodies
from tests.kube.admission import patching, webhook
from tests.kube.conftest import Cluster
from ullage.kube.changes import Create
from ullage.kube.kinds import PODS
from ullage.kube.objects import Pod
from ullage.model.error import InvalidRequest, Unavailable

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
