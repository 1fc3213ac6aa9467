"""The chart's rules of admission on a real API server: who is asked about what, by its expressions."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.test_chart import of_kind, render
from tests.kube import bodies
from tests.kube.admission import webhook
from tests.kube.conftest import SHORT
from tests.kube.control_plane import ControlPlane
from ullage.kube.client.changes import Bind, Create, Delete, Patch, PatchType
from ullage.kube.client.connection import connect
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NAMESPACES, PODS, Kind
from ullage.kube.client.objects import Object
from ullage.model.error import UllageError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]
VALIDATING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    Object,
    namespaced=False,
)
NAMESPACE = "rules-of-admission"


async def test_only_changes_of_what_bind_wrote_are_asked_about(real: ControlPlane, tmp_path: Path) -> None:
    (found,) = of_kind(render({"hamiUsers": ["plugin"]}), "ValidatingWebhookConfiguration")
    refusal = {"allowed": False, "status": {"code": 403, "message": "not yours"}}
    async with (
        connect(real.kubeconfig) as client,
        webhook(lambda _: refusal, NAMESPACE, tmp_path) as hook,
    ):
        api = HttpKubeApi(client, SHORT)
        await api.write(Create(NAMESPACES, {"metadata": {"name": NAMESPACE}}))
        (rules,) = (each for each in found["webhooks"] if each["name"] == "results.ullage.io")
        own = {"clientConfig": hook.configuration()["webhooks"][0]["clientConfig"]}
        await api.write(Create(VALIDATING, {"metadata": {"name": NAMESPACE}, "webhooks": [rules | own]}))
        pod = PODS.read(await api.write(Create(PODS, bodies.pod("p"), NAMESPACE)))

        async def change(subresource: str = "", **notes: str | None) -> None:
            written = {f"ullage.io/{name.replace('_', '-')}": value for name, value in notes.items()}
            body: dict[str, Any] = {"metadata": {"annotations": written}}
            await api.write(Patch(PODS, "p", body, NAMESPACE, PatchType.MERGE, subresource))

        number = 0
        while not hook.asked:  # it takes a moment until the server knows
            number += 1
            try:
                await change(gpu_ids=f"probe-{number}")
            except UllageError:
                break
        await change(fence="1")
        await change(fence=None)
        asked = len(hook.asked)
        for subresource in ("", "status"):
            for name in ("gpu_ids", "allocation", "numa_placement"):
                with pytest.raises(ApiForbidden, match="not yours"):
                    await change(subresource, **{name: "forged"})
        forged = {"metadata": {"annotations": {"hami.io/vgpu-devices-to-allocate": "forged"}}}
        with pytest.raises(ApiForbidden, match="not yours"):
            await api.write(Patch(PODS, "p", forged, NAMESPACE, PatchType.MERGE, ""))
        assert len(hook.asked) == asked + 7
        bind = Bind(NAMESPACE, "p", pod.metadata.uid, "n1", {"ullage.io/gpu-ids": "GPU-1"})
        await api.write(bind)
        with pytest.raises(ApiForbidden):
            await change(gpu_ids=None)
        await change("status", other="1")
        await api.write(Delete(PODS, "p", NAMESPACE, grace_s=0))
        await api.write(Delete(VALIDATING, NAMESPACE))
        assert {(each["operation"], each["kind"]["kind"]) for each in hook.asked} == {("UPDATE", "Pod")}
