"""Objects of the Kubernetes API: only the fields that are read, and the bytes that hold the rest.

A resourceVersion is opaque: it is compared for equality and handed back, never ordered or computed with.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ullage.wire.document import Document


class Owner(Struct, frozen=True, rename="camel"):
    """Who an object belongs to; `controller` is true for the one that made it."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Struct, frozen=True, rename="camel", kw_only=True):
    """What every object carries; times are RFC 3339."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Object(Struct, frozen=True, rename="camel", kw_only=True):
    """One object as a server told it. Custom resources are read as this."""

    metadata: Metadata
    raw: bytes = msgspec.field(default=b"", name="$raw")
    """The JSON it was read from; no object has a field of that name."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name; "" is the namespace of what has none."""
        return self.metadata.namespace, self.metadata.name

    @property
    def state(self) -> tuple[str, str]:
        """The uid and version: where they are equal, nothing differs."""
        return self.metadata.uid, self.metadata.resource_version

    @property
    def document(self) -> Document:
        """The whole object, decoded afresh at each call."""
        document: Document = msgspec.json.decode(self.raw)
        return document


class Gate(Struct, frozen=True):
    """What keeps a pod from being looked at by its scheduler."""

    name: str = ""


class Group(Struct, frozen=True, rename="camel"):
    """The group of pods that a pod is of."""

    pod_group_name: str | None = None


class InitContainer(Struct, frozen=True):
    """A container that starts before others of its pod."""

    name: str = ""


class PodSpec(Struct, frozen=True, rename="camel"):
    """Where a pod is, who places it, what that waits for, and whether others are evicted for it."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    scheduling_gates: tuple[Gate, ...] | None = None
    scheduling_group: Group | None = None
    init_containers: tuple[InitContainer, ...] | None = None


class Phase(Struct, frozen=True):
    """How far a pod or a namespace has come; `reason` in one word, where there is one."""

    phase: str = ""
    reason: str = ""


class Pod(Object, frozen=True):
    """A pod; `document` is what `ullage.wire.pod` reads."""

    spec: PodSpec = PodSpec()
    status: Phase = Phase()

    @property
    def finished(self) -> bool:
        """Whether its processes are gone for good: it holds no card though the object stays."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        """Whether it was told to end; it holds its cards until the object is gone."""
        return self.metadata.deletion_timestamp is not None


class Taint(Struct, frozen=True):
    """Why pods stay away from a node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """What an operator said of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class Condition(Struct, frozen=True):
    """One finding about an object: `status` is True, False or Unknown."""

    type: str
    status: str


class NodeStatus(Struct, frozen=True):
    """What a kubelet reports: amounts are Kubernetes quantities."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(Object, frozen=True):
    """A machine."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it can run pods."""
        return any(found.type == "Ready" and found.status == "True" for found in self.status.conditions or ())


class Namespace(Object, frozen=True):
    """A namespace; its labels and annotations matter."""

    status: Phase = Phase()


class LeaseSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who leads; times are RFC 3339 with six decimals. `lease_transitions` counts the leaders so far."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    """A record of who leads."""

    spec: LeaseSpec = LeaseSpec()


class PodDisruptionBudgetSpec(Struct, frozen=True):
    """Which pods a budget is for: a label selector."""

    selector: dict[str, Any] | None = None


class PodDisruptionBudgetStatus(Struct, frozen=True, rename="camel"):
    """How many more of its pods may be disrupted now."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Object, frozen=True):
    """How many pods of a set may be disrupted at once."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ResourceQuotaSpec(Struct, frozen=True, rename="camel"):
    """What a namespace may have in all, by resource; with scopes only of some pods."""

    hard: dict[str, str] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: dict[str, Any] | None = None


class ResourceQuota(Object, frozen=True):
    """What a namespace may have in all."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()


class Status(Struct, frozen=True, kw_only=True):
    """The answer of a server that is no object: mostly a refusal."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ListMetadata(Struct, frozen=True, rename="camel"):
    """The version of the state that a page shows, and where the next page starts."""

    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class ObjectList(Struct, frozen=True):
    """A page of a list, its items not yet read."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[msgspec.Raw, ...] | None = None


class EventLine(Struct, frozen=True):
    """A line of a watch, its object not yet read."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")
