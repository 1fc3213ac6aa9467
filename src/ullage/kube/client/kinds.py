"""The kinds of objects that Ullage reads or writes, and their API paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from ullage.kube.client.objects import (
    METADATA_KEYS,
    KubeNode,
    Lease,
    Namespace,
    Object,
    Pod,
    PodDisruptionBudget,
    ResourceQuota,
)
from ullage.kube.client.shared_values import share_values
from ullage.kube.client.unread_fields import without_unread
from ullage.model.error import UllageError, invalid

T_co = TypeVar("T_co", bound=Object, covariant=True)


class Unreadable(UllageError):
    """A server response violates the API schema."""

    code = "kube-unreadable"


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """A kind of object. `group` is "" for the core group, `plural` is its name in paths."""

    group: str
    version: str
    name: str
    plural: str
    type: type[T_co]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str | None = None, subresource: str = "") -> str:
        """Return the API path of one object, or without a name that of all objects in a namespace ("": in all).

        Raises:
            InvalidRequest: an invalid name, or a missing namespace.

        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", _segment("namespace", namespace)]
        elif self.namespaced and name is not None:
            raise invalid("namespace", namespace, f"a {self.name} is in a namespace")
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment("name", name))
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)

    def read(self, raw: bytes | msgspec.Raw) -> T_co:
        """Parse an object from JSON. It keeps a copy of the bytes that it needs for its document.

        Raises:
            Unreadable: it is not of this kind.

        """
        try:
            found = msgspec.json.decode(raw, type=self.type)
        except msgspec.DecodeError as error:
            raise Unreadable(f"{self.name}: what the server sent cannot be read: {error}") from None
        msgspec.structs.force_setattr(found, "raw", _further_fields(raw, of_pod=isinstance(found, Pod)))
        share_values(found)
        return found


def _further_fields(raw: bytes | msgspec.Raw, *, of_pod: bool) -> bytes:
    """Return an object without the metadata that is parsed, and without the record of who wrote which field.

    That record is often half of the bytes, and nobody here reads it. The other fields stay as they were written, but
    those `of_pod` that nobody reads.
    """
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    if "metadata" in fields:  # a kubelet's answer has none
        metadata = msgspec.json.decode(fields["metadata"], type=dict[str, msgspec.Raw])
        left = {key: value for key, value in metadata.items() if key not in METADATA_KEYS and key != "managedFields"}
        fields["metadata"] = msgspec.Raw(msgspec.json.encode(left))
    return msgspec.json.encode(without_unread(fields) if of_pod else fields)


def _segment(field: str, value: str) -> str:
    if value in ("", ".", ".."):
        raise invalid(field, value, "a name is needed")
    return quote(value, safe="")


PODS = Kind("", "v1", "Pod", "pods", type=Pod)
NODES = Kind("", "v1", "Node", "nodes", type=KubeNode, namespaced=False)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", type=Namespace, namespaced=False)
EVENTS = Kind("", "v1", "Event", "events", type=Object)
LEASES = Kind("coordination.k8s.io", "v1", "Lease", "leases", type=Lease)
RESOURCE_QUOTAS = Kind("", "v1", "ResourceQuota", "resourcequotas", type=ResourceQuota)
POD_DISRUPTION_BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", type=PodDisruptionBudget)
GPU_BINDINGS = Kind("gpu.bytetrade.io", "v1alpha1", "GPUBinding", "gpubindings", type=Object, namespaced=False)
POD_GROUPS = Kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", type=Object)
VOLCANO_POD_GROUPS = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", type=Object)
KAI_POD_GROUPS = Kind("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", type=Object)
KAI_TOPOLOGIES = Kind("kai.scheduler", "v1alpha1", "Topology", "topologies", type=Object, namespaced=False)
NATIVE_POD_GROUPS = tuple(
    Kind("scheduling.k8s.io", version, "PodGroup", "podgroups", type=Object)
    for version in ("v1beta1", "v1alpha3", "v1alpha2")
)
NUMATOPOLOGIES = Kind(
    "nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies", type=Object, namespaced=False
)
NODE_RESOURCE_TOPOLOGIES = tuple(
    Kind(
        "topology.node.k8s.io", version, "NodeResourceTopology", "noderesourcetopologies", type=Object, namespaced=False
    )
    for version in ("v1alpha2", "v1alpha1")
)
HYPERNODES = Kind("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", type=Object, namespaced=False)
CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps", type=Object)
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments", type=Object)
STATEFUL_SETS = Kind("apps", "v1", "StatefulSet", "statefulsets", type=Object)
SERVICES = Kind("", "v1", "Service", "services", type=Object)
TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", type=Object, namespaced=False)
RESOURCE_SLICES = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", type=Object, namespaced=False)
DEVICE_CLASSES = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", type=Object, namespaced=False)
DEVICE_TAINT_RULES = tuple(
    Kind("resource.k8s.io", version, "DeviceTaintRule", "devicetaintrules", type=Object, namespaced=False)
    for version in ("v1", "v1beta2", "v1alpha3")
)
RESOURCE_CLAIMS = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", type=Object)
