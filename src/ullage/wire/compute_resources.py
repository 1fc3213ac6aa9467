"""Bodies of `/compute-resources`, with the names that its clients use: memory in bytes, CPUs in thousandths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import field

from ullage.model.binding import supported_modes
from ullage.model.compute import CPU, AppKey, BoundCard, ComputeCard, ComputeNode, ComputeRequirement
from ullage.model.compute_result import (
    Availability,
    BindingQuotaUse,
    CheckType,
    ComputeCardRoom,
    FailedCheck,
    Preflight,
    Problem,
    StoppedApp,
    SwitchReport,
    Validation,
)
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT64, check_amount
from ullage.wire.body import body_of


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    """The base of all bodies; optional fields without a value are left out."""


class _Sparse(_Body, frozen=True, omit_defaults=True):
    """A body that leaves out fields that have their default."""


class Envelope(msgspec.Struct, frozen=True):
    """The envelope of every response; a failed check has the code 422 with the HTTP status 200."""

    data: Any
    code: int = 200


class FailedCheckBody(msgspec.Struct, frozen=True):
    """Which check failed, and details that help to choose differently."""

    type: str
    data: Any = field(name="Data")


class RequirementBody(_Body, frozen=True):
    """The requirement of an application."""

    accelerator: str = field(name="mode")
    cpu_milli: int = field(name="requiredCpu", default=0)
    gpu_bytes: int = field(name="requiredGpu", default=0)
    gpu_limit_bytes: int = field(name="limitedGpu", default=0)
    memory_bytes: int = field(name="requiredMemory", default=0)
    memory_limit_bytes: int = field(name="limitedMemory", default=0)
    disk_bytes: int = field(name="requiredDisk", default=0)
    several_cards: bool = field(name="supportMultiCards", default=False)
    several_nodes: bool = field(name="supportMultiNodes", default=False)


class WrittenRequirement(RequirementBody, frozen=True, forbid_unknown_fields=True):
    """The requirement of an application as a user writes it: an unknown field is an error."""


class ComputeAllocationBody(_Sparse, frozen=True):
    """An application on a card; `state` is present if it was asked to leave."""

    app_id: str
    app_name: str
    owner: str
    mode: str
    node_name: str
    device_id: str
    memory: int
    spec: RequirementBody | None = None
    state: str = ""


class ComputeDeviceBody(_Body, frozen=True):
    """A card; `available` is the amount that one more application could get of it."""

    id: str
    node: str = field(name="nodeName")
    accelerator: str = field(name="mode")
    model: str = field(name="cardModel")
    memory_bytes: int = field(name="memory")
    available: int
    health: str
    share: str = field(name="supportType")
    available_support_types: list[str]
    bindings: list[ComputeAllocationBody]
    state: str = ""


class ComputeNodeBody(_Body, frozen=True):
    """A node; older clients read only one type of accelerator."""

    name: str = field(name="nodeName")
    gpu_type: str
    accelerators: list[str] = field(name="gpuTypes")
    health: str
    devices: list[ComputeDeviceBody]
    state: str = ""


class ComputeRoomBody(_Sparse, frozen=True):
    """The room of a card for an application."""

    node: str = field(name="nodeName")
    id: str = field(name="deviceId")
    model: str = field(name="cardModel")
    share: str = field(name="supportType")
    memory_bytes: int = field(name="capacity")
    available: int
    operable: bool
    bindings: list[ComputeAllocationBody]
    fit: str = field(name="fitLevel", default="")


class NodeRoomBody(_Body, frozen=True):
    """The room of a node for an application."""

    node: str = field(name="nodeName")
    accelerator: str = field(name="gpuType")
    status: str
    cards: list[ComputeRoomBody] = field(name="devices")


class AvailabilityBody(_Sparse, frozen=True):
    """Where an application could run now."""

    schedulable: bool
    requirement: RequirementBody
    scope: str
    nodes: list[NodeRoomBody]
    reason: str = ""


class DimensionBody(_Body, frozen=True):
    """One amount of a node."""

    resource: str
    required: int
    used: int
    capacity: int
    available: int
    pressured: bool


class NodePressureBody(_Body, frozen=True):
    """The amounts that an application would use of a node."""

    node: str = field(name="nodeName")
    dimensions: list[DimensionBody]


class BindingQuotaBody(_Sparse, frozen=True):
    """One amount of a quota: of whom, of which application and model, and how much of it is used."""

    owner: str
    resource: str
    used: int
    required: int
    capacity: int
    available: int
    pressured: bool
    app: str = field(name="appName", default="")
    model: str = field(name="cardModel", default="")
    setting: str = ""
    message: str = ""


class ValidationBody(_Sparse, frozen=True):
    """Whether a choice is valid."""

    ok: bool
    code: str
    reason: str
    pressure: NodePressureBody | None = field(name="nodePressure", default=None)
    quota: BindingQuotaBody | None = None


class ValidatedBody(_Sparse, frozen=True):
    """The response to a dry run."""

    status: str
    allocations: list[ComputeAllocationBody]
    availability: AvailabilityBody | None = None
    validation: ValidationBody | None = None


class StoppedBody(_Sparse, frozen=True):
    """An application that stops, or that cannot be stopped."""

    name: str = field(name="appName")
    owner: str
    state: str
    reason: str = ""


class SwitchBody(_Body, frozen=True):
    """The result of a change of the sharing mode."""

    status: str
    device: ComputeDeviceBody
    stopped: list[StoppedBody] = field(name="stoppedApps")
    blocked: list[StoppedBody] = field(name="blockedApps")


class PressureBody(_Body, frozen=True):
    """Which resource is short, and the kind of the shortage."""

    source: str
    dimensions: list[DimensionBody]


class PreflightResultBody(_Sparse, frozen=True):
    """Whether all demands could be installed."""

    installable: bool
    failed: str = field(name="failedDemandId", default="")
    reason: str = ""
    pressure: list[PressureBody] = []
    quota: BindingQuotaBody | None = None


class ModeBody(_Sparse, frozen=True):
    """A mode in which an application can run."""

    accelerator: str = field(name="computeType")
    status: str
    reason: str = ""


class MigrationBody(_Body, frozen=True):
    """The result of the migration of older bindings, by their names."""

    kept: list[str]
    unchanged: list[str]
    dropped: list[str]
    problems: list[Problem]


# --- conversion ---

_AMOUNTS = {
    "cpu_milli": "required_cpu",
    "gpu_bytes": "required_gpu",
    "gpu_limit_bytes": "limited_gpu",
    "memory_bytes": "required_memory",
    "memory_limit_bytes": "limited_memory",
    "disk_bytes": "required_disk",
}
"""The amounts of a requirement, with their names in errors."""


def requirement_of(body: RequirementBody) -> ComputeRequirement:
    """Return the requirement in a body."""
    if not body.accelerator:
        raise invalid("mode", body.accelerator, f"write the type of accelerator, or {CPU} for none")
    if body.accelerator == CPU and (body.gpu_bytes or body.gpu_limit_bytes):
        raise invalid("requiredGpu", body.gpu_bytes or body.gpu_limit_bytes, f"the mode {CPU} has no cards; write 0")
    for name, shown in _AMOUNTS.items():
        check_amount(getattr(body, name), shown, MAX_INT64)
    for limit, least in ((body.gpu_limit_bytes, body.gpu_bytes), (body.memory_limit_bytes, body.memory_bytes)):
        if 0 < limit < least:
            raise invalid("limit", limit, f"it is below what is required ({least}); raise it, or write 0")
    return ComputeRequirement(**msgspec.structs.asdict(body))


def allocation_bodies(rows: Iterable[BoundCard]) -> list[ComputeAllocationBody]:
    return [
        body_of(
            ComputeAllocationBody,
            row,
            row.app,
            app_name=row.app.name,
            mode=row.accelerator,
            node_name=row.card.node,
            device_id=row.card.device,
            memory=row.memory_bytes,
            state="draining" if row.draining else "",
        )
        for row in rows
    ]


def device_body(card: ComputeCard, available: int, rows: Iterable[BoundCard], state: str) -> ComputeDeviceBody:
    """Return the body of a card, with the amount that is left of it, its applications and its state."""
    types = supported_modes(card.accelerator)
    own = {"available": available, "health": _yes(card.healthy), "available_support_types": types, "state": state}
    return body_of(ComputeDeviceBody, card, **own, bindings=allocation_bodies(rows))


def node_body(node: ComputeNode, devices: list[ComputeDeviceBody], state: str) -> ComputeNodeBody:
    kinds = node.accelerators
    only = next((kind for kind in kinds if kind != CPU), next(iter(kinds), ""))
    return body_of(ComputeNodeBody, node, gpu_type=only, health=_yes(node.ready), devices=devices, state=state)


Sees = Callable[[AppKey], bool]
"""Return whether the caller may see an application."""


def availability_body(found: Availability, sees: Sees) -> AvailabilityBody:
    """Return the body of an availability, with the rows that the caller may see."""
    nodes = [body_of(NodeRoomBody, node, cards=[_room_body(room, sees) for room in node.cards]) for node in found.nodes]
    return body_of(AvailabilityBody, found, nodes=nodes, reason=found.reason or "")


def validation_body(found: Validation) -> ValidationBody:
    quota = None if found.quota is None else quota_body(found.quota)
    return body_of(ValidationBody, found, reason="valid" if found.ok else "invalid", quota=quota)


def quota_body(found: BindingQuotaUse) -> BindingQuotaBody:
    """Return the body of an amount of a quota. It has a message only if more is asked than is left."""
    setting = f"kube.bindings.{found.scope.path}.{found.dimension.resource}"
    message = found.sentence if found.pressured else ""
    return body_of(BindingQuotaBody, found.dimension, found.scope, setting=setting, message=message)


def validated_body(
    availability: Availability | None, validation: Validation | None, rows: Iterable[BoundCard], sees: Sees
) -> ValidatedBody:
    """Return the response to a valid dry run; without `availability` no card is needed."""
    if availability is None or validation is None:
        return ValidatedBody("not-required", [])
    room = availability_body(availability, sees)
    return ValidatedBody("valid", allocation_bodies(rows), room, validation_body(validation))


def switch_body(report: SwitchReport, device: ComputeDeviceBody) -> SwitchBody:
    return SwitchBody(report.status, device, _stopped(report.stopped), _stopped(report.blocked))


def preflight_result_body(found: Preflight) -> PreflightResultBody:
    reason = found.reason or ""
    pressure = [body_of(PressureBody, found, source=reason)] if found.dimensions else []
    quota = None if found.quota is None else quota_body(found.quota)
    return PreflightResultBody(found.installable, found.failed or "", reason, pressure, quota=quota)


def failed_check(found: FailedCheck, sees: Sees, device: ComputeDeviceBody | None = None) -> Envelope:
    """Return the response to a failed check; one of a change of mode includes the card."""
    data: Any
    if found.type is CheckType.MODE:
        data = [body_of(ModeBody, each) for each in found.options]
    elif found.switch is not None and device is not None:
        data = switch_body(found.switch, device)
    else:
        data = {}
        if found.availability is not None:
            data["availability"] = availability_body(found.availability, sees)
        if found.validation is not None:
            data["validation"] = validation_body(found.validation)
    return Envelope(FailedCheckBody(found.type, data), 422)


def _room_body(room: ComputeCardRoom, sees: Sees) -> ComputeRoomBody:
    rows = [row for row in room.bound if sees(row.app)]
    return body_of(ComputeRoomBody, room, room.card, bindings=allocation_bodies(rows), fit=room.fit or "")


def _stopped(apps: Iterable[StoppedApp]) -> list[StoppedBody]:
    return [body_of(StoppedBody, each, each.app) for each in apps]


def _yes(so: bool) -> str:
    return "yes" if so else "no"
