"""The chart's rules of admission on a real API server: who is asked about what, by its expressions."""

import itertools
from contextlib import AsyncExitStack, suppress
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
POLICIES = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    Object,
    namespaced=False,
)
POLICY_BINDINGS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    Object,
    namespaced=False,
)
ROLES = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", Object)
ROLE_BINDINGS = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", Object)
NAMESPACE = "rules-of-admission"
REFUSED = "only a scheduler writes"
NAMING_CARDS = ("vgpu_node", "vgpu_devices_allocated", "vgpu_devices_to_allocate", "amd_devices_allocated")


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


async def test_only_who_may_bind_pods_writes_which_cards_are_chosen_for_one(real: ControlPlane) -> None:
    """A choice holds cards before the pod is bound: tenants may write pods, and schedulers bind them."""
    space = "choices-of-cards"
    documents = render()
    (policy,) = of_kind(documents, "ValidatingAdmissionPolicy")
    (binding,) = of_kind(documents, "ValidatingAdmissionPolicyBinding")
    mine = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}}
    policy["spec"]["matchConstraints"] |= mine  # the control plane is shared with other tests
    users = {"tenant": "tenants", "scheduler": "schedulers"}
    async with connect(real.kubeconfig) as client, AsyncExitStack() as stack:
        api = HttpKubeApi(client, SHORT)
        await api.write(Create(NAMESPACES, {"metadata": {"name": space}}))
        write = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "patch", "update"]}
        bind = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
        for name, rules in (("tenant", [write]), ("scheduler", [write, bind])):
            await api.write(Create(ROLES, {"metadata": {"name": name}, "rules": rules}, space))
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": users[name]}
            await api.write(
                Create(ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}, space)
            )
        tenant, scheduler = [
            HttpKubeApi(await stack.enter_async_context(connect(real.user(name, group))), SHORT)
            for name, group in users.items()
        ]
        await api.write(Create(POLICIES, policy))
        await api.write(Create(POLICY_BINDINGS, binding))
        pod = PODS.read(await api.write(Create(PODS, bodies.pod("p"), space)))

        def writing(subresource: str = "", **notes: str | None) -> Patch:
            written = {f"hami.io/{name.replace('_', '-')}": value for name, value in notes.items()}
            return Patch(PODS, "p", {"metadata": {"annotations": written}}, space, PatchType.MERGE, subresource)

        with suppress(ApiForbidden):
            for number in itertools.count():  # it takes a moment until the server knows
                await tenant.write(writing(vgpu_node=f"probe-{number}"))
        for subresource in ("", "status"):
            for name in NAMING_CARDS:
                with pytest.raises(ApiForbidden, match=REFUSED):
                    await tenant.write(writing(subresource, **{name: "forged"}))
                await scheduler.write(writing(subresource, **{name: "chosen"}))
                await scheduler.write(writing(subresource, **{name: None}))
        await tenant.write(writing(other="1"))
        await tenant.write(writing("status", other="2"))
        await scheduler.write(Bind(space, "p", pod.metadata.uid, "n1"))
        await tenant.write(writing(vgpu_devices_to_allocate=";"))
        await api.write(Delete(PODS, "p", space, grace_s=0))
        await api.write(Delete(POLICY_BINDINGS, binding["metadata"]["name"]))
        await api.write(Delete(POLICIES, policy["metadata"]["name"]))
