"""Objects of the Kubernetes API: only the fields that are read, and the bytes with the rest.

A resourceVersion is opaque: it is compared for equality and sent back, never ordered or computed with.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ullage.wire.document import Document


class Metadata(Struct, frozen=True, rename="camel", kw_only=True):
    """The metadata of every object. Times are RFC 3339."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


_METADATA = tuple((field.encode_name, field.name) for field in msgspec.structs.fields(Metadata))

METADATA_KEYS = frozenset(name for name, _ in _METADATA)
"""The fields of metadata that a `Metadata` has."""


class Object(Struct, frozen=True, rename="camel", kw_only=True):
    """One object as a server sent it. Custom resources are read as this."""

    metadata: Metadata
    raw: bytes = msgspec.field(default=b"", name="$raw")
    """The JSON it was read from, without what `metadata` has. No object has a field of that name."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name. Cluster-scoped objects have the namespace ""."""
        return self.metadata.namespace, self.metadata.name

    @property
    def state(self) -> tuple[str, str]:
        """The uid and version. Objects with equal states are equal."""
        return self.metadata.uid, self.metadata.resource_version

    @property
    def document(self) -> Document:
        """The object, decoded at each call; of a pod without fields that nobody reads."""
        document: dict[str, Any] = msgspec.json.decode(self.raw)
        metadata = document.get("metadata") or {}
        for name, field in _METADATA:
            value = getattr(self.metadata, field)
            if value is not None and value != "":
                metadata[name] = dict(value) if type(value) is dict else value
        document["metadata"] = metadata
        return document


class SchedulingGate(Struct, frozen=True):
    name: str = ""


class SchedulingGroup(Struct, frozen=True, rename="camel"):
    pod_group_name: str | None = None


class InitContainer(Struct, frozen=True):
    name: str = ""


class PodSpec(Struct, frozen=True, rename="camel"):
    """The node of a pod, its scheduler, its gates and group, and its preemption policy."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    init_containers: tuple[InitContainer, ...] | None = None


class Phase(Struct, frozen=True, rename="camel"):
    """The phase of a pod or a namespace. `reason` is one word, if there is one."""

    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    """The node at which kube-scheduler looks first for a pod."""


class Pod(Object, frozen=True):
    """A pod. `ullage.wire.pod` reads its `document`."""

    spec: PodSpec = PodSpec()
    status: Phase = Phase()

    @property
    def finished(self) -> bool:
        """Whether its processes have ended for good: it holds no card though the object still exists."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        """Whether its deletion was requested. It holds its cards until the object is gone."""
        return self.metadata.deletion_timestamp is not None


class KubeTaint(Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """What an operator sets on a node."""

    unschedulable: bool = False
    taints: tuple[KubeTaint, ...] | None = None


class Condition(Struct, frozen=True):
    type: str
    status: str


class KubeNodeStatus(Struct, frozen=True):
    """What a kubelet reports. Amounts are Kubernetes quantities."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class KubeNode(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: KubeNodeStatus = KubeNodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet reports that it can run pods."""
        return any(found.type == "Ready" and found.status == "True" for found in self.status.conditions or ())


class Namespace(Object, frozen=True):
    status: Phase = Phase()


class LeaseSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The holder of a lease. Times are RFC 3339 with six decimals. `lease_transitions` counts the leaders so far."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


class PodDisruptionBudgetSpec(Struct, frozen=True):
    selector: dict[str, Any] | None = None


class PodDisruptionBudgetStatus(Struct, frozen=True, rename="camel"):
    disruptions_allowed: int = 0


class PodDisruptionBudget(Object, frozen=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ResourceQuotaSpec(Struct, frozen=True, rename="camel"):
    """The limits of a namespace by resource. With scopes they count only some pods."""

    hard: dict[str, str] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: dict[str, Any] | None = None


class ResourceQuota(Object, frozen=True):
    spec: ResourceQuotaSpec = ResourceQuotaSpec()


class Status(Struct, frozen=True, kw_only=True):
    """A response that is no object: mostly a refusal."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ListMetadata(Struct, frozen=True, rename="camel"):
    """The version of the state that a page shows, and the continue token of the next page."""

    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class ObjectList(Struct, frozen=True):
    """A page of a list with undecoded items."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[msgspec.Raw, ...] | None = None


class EventLine(Struct, frozen=True):
    """A line of a watch with an undecoded object."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")
