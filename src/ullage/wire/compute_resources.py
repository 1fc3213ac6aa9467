"""Bodies of `/compute-resources`, with the names that its clients use: memory in bytes, CPUs in thousandths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ullage.model.binding import supported_modes
from ullage.model.compute import CPU, BoundCard, ComputeCard, ComputeNode, ComputeRequirement
from ullage.model.compute_answer import (
    Availability,
    CheckType,
    ComputeCardRoom,
    Dimension,
    FailedCheck,
    NodePressure,
    Preflight,
    Problem,
    StoppedApp,
    SwitchReport,
    Validation,
)
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT64, check_amount


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
    data: Any = msgspec.field(name="Data")


class RequirementBody(_Body, frozen=True):
    """The requirement of an application."""

    mode: str
    required_cpu: int = 0
    required_gpu: int = 0
    limited_gpu: int = 0
    required_memory: int = 0
    limited_memory: int = 0
    required_disk: int = 0
    support_multi_cards: bool = False
    support_multi_nodes: bool = False


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
    node_name: str
    mode: str
    card_model: str
    memory: int
    available: int
    health: str
    support_type: str
    available_support_types: list[str]
    bindings: list[ComputeAllocationBody]


class ComputeNodeBody(_Body, frozen=True):
    """A node; older clients read only one type of accelerator."""

    node_name: str
    gpu_type: str
    gpu_types: list[str]
    health: str
    devices: list[ComputeDeviceBody]


class ComputeRoomBody(_Sparse, frozen=True):
    """The room of a card for an application."""

    node_name: str
    device_id: str
    card_model: str
    support_type: str
    capacity: int
    available: int
    operable: bool
    bindings: list[ComputeAllocationBody]
    fit_level: str = ""


class NodeRoomBody(_Body, frozen=True):
    """The room of a node for an application."""

    node_name: str
    gpu_type: str
    status: str
    devices: list[ComputeRoomBody]


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

    node_name: str
    dimensions: list[DimensionBody]


class ValidationBody(_Sparse, frozen=True):
    """Whether a choice is valid."""

    ok: bool
    code: str
    reason: str
    node_pressure: NodePressureBody | None = None


class ValidatedBody(_Sparse, frozen=True):
    """The response to a dry run."""

    status: str
    allocations: list[ComputeAllocationBody]
    availability: AvailabilityBody | None = None
    validation: ValidationBody | None = None


class StoppedBody(_Sparse, frozen=True):
    """An application that stops, or that cannot be stopped."""

    app_name: str
    owner: str
    state: str
    reason: str = ""


class SwitchBody(_Body, frozen=True):
    """The result of a change of the sharing mode."""

    status: str
    device: ComputeDeviceBody
    stopped_apps: list[StoppedBody]
    blocked_apps: list[StoppedBody]


class PressureBody(_Body, frozen=True):
    """Which resource is short, and the kind of the shortage."""

    source: str
    dimensions: list[DimensionBody]


class PreflightAnswer(_Sparse, frozen=True):
    """Whether all demands could be installed."""

    installable: bool
    failed_demand_id: str = ""
    reason: str = ""
    pressure: list[PressureBody] = []


class ModeBody(_Sparse, frozen=True):
    """A mode in which an application can run."""

    compute_type: str
    status: str
    reason: str = ""


class ProblemBody(_Body, frozen=True):
    """An item that could not be read, or that refers to something that no longer exists."""

    item: str
    reason: str


class MigrationBody(_Body, frozen=True):
    """The result of the migration of older bindings, by their names."""

    kept: list[str]
    unchanged: list[str]
    dropped: list[str]
    problems: list[ProblemBody]


# --- conversion ---


def requirement_body(asked: ComputeRequirement) -> RequirementBody:
    """Return the body of a requirement."""
    return RequirementBody(
        asked.accelerator,
        asked.cpu_milli,
        asked.gpu_bytes,
        asked.gpu_limit_bytes,
        required_memory=asked.memory_bytes,
        limited_memory=asked.memory_limit_bytes,
        required_disk=asked.disk_bytes,
        support_multi_cards=asked.several_cards,
        support_multi_nodes=asked.several_nodes,
    )


def requirement_of(body: RequirementBody) -> ComputeRequirement:
    """Return the requirement in a body.

    Raises:
        InvalidRequest: an amount is negative, a limit is below what is required, or the mode contradicts the rest.

    """
    if not body.mode:
        raise invalid("mode", body.mode, f"write the type of accelerator, or {CPU} for none")
    if body.mode == CPU and (body.required_gpu or body.limited_gpu):
        raise invalid("requiredGpu", body.required_gpu or body.limited_gpu, f"the mode {CPU} has no cards; write 0")
    for field in ("required_cpu", "required_gpu", "limited_gpu", "required_memory", "limited_memory", "required_disk"):
        check_amount(getattr(body, field), field, MAX_INT64)
    for limit, least in ((body.limited_gpu, body.required_gpu), (body.limited_memory, body.required_memory)):
        if 0 < limit < least:
            raise invalid("limit", limit, f"it is below what is required ({least}); raise it, or say 0")
    return ComputeRequirement(
        body.mode,
        body.required_gpu,
        body.limited_gpu,
        body.required_cpu,
        memory_bytes=body.required_memory,
        memory_limit_bytes=body.limited_memory,
        disk_bytes=body.required_disk,
        several_cards=body.support_multi_cards,
        several_nodes=body.support_multi_nodes,
    )


def allocation_bodies(rows: Iterable[BoundCard]) -> list[ComputeAllocationBody]:
    """Return the bodies of applications on cards."""
    return [
        ComputeAllocationBody(
            row.app_id,
            row.app.name,
            row.app.owner,
            row.accelerator,
            node_name=row.card.node,
            device_id=row.card.device,
            memory=row.memory_bytes,
            spec=requirement_body(row.spec) if row.spec else None,
            state="draining" if row.draining else "",
        )
        for row in rows
    ]


def device_body(card: ComputeCard, available: int, rows: Iterable[BoundCard]) -> ComputeDeviceBody:
    """Return the body of a card, with the amount that is left of it and its applications."""
    return ComputeDeviceBody(
        card.id,
        card.node,
        card.accelerator,
        card.model,
        memory=card.memory_bytes,
        available=available,
        health=_yes(card.healthy),
        support_type=card.share,
        available_support_types=list(supported_modes(card.accelerator)),
        bindings=allocation_bodies(rows),
    )


def node_body(node: ComputeNode, devices: list[ComputeDeviceBody]) -> ComputeNodeBody:
    """Return the body of a node with its cards; the one type that older clients read is that of its cards."""
    kinds = list(node.accelerators)
    only = next((kind for kind in kinds if kind != CPU), next(iter(kinds), ""))
    return ComputeNodeBody(node.name, only, kinds, _yes(node.ready), devices=devices)


def availability_body(found: Availability) -> AvailabilityBody:
    """Return the body of where an application could run."""
    nodes = [
        NodeRoomBody(node.node, node.accelerator, node.status, [_room_body(room) for room in node.cards])
        for node in found.nodes
    ]
    asked = requirement_body(found.requirement)
    return AvailabilityBody(found.schedulable, asked, found.scope, nodes, reason=found.reason or "")


def validation_body(found: Validation) -> ValidationBody:
    """Return the body of a validation."""
    pressure = None if found.pressure is None else _pressure_body(found.pressure)
    return ValidationBody(found.ok, found.code, "valid" if found.ok else "invalid", pressure)


def validated_body(
    availability: Availability | None, validation: Validation | None, rows: Iterable[BoundCard]
) -> ValidatedBody:
    """Return the response to a valid dry run; without `availability` no card is needed."""
    if availability is None or validation is None:
        return ValidatedBody("not-required", [])
    return ValidatedBody("valid", allocation_bodies(rows), availability_body(availability), validation_body(validation))


def switch_body(report: SwitchReport, device: ComputeDeviceBody) -> SwitchBody:
    """Return the body of a change of the sharing mode."""
    return SwitchBody(report.status, device, list(_stopped(report.stopped)), list(_stopped(report.blocked)))


def preflight_answer(found: Preflight) -> PreflightAnswer:
    """Return the body of a preflight: whether all demands could be installed."""
    reason = found.reason or ""
    pressure = [PressureBody(reason, _dimensions(found.dimensions))] if found.dimensions else []
    return PreflightAnswer(found.installable, found.failed or "", reason, pressure)


def failed_check(found: FailedCheck, device: ComputeDeviceBody | None = None) -> Envelope:
    """Return the response to a failed check; one of a change of mode includes the card."""
    data: Any
    if found.type is CheckType.MODE:
        data = [ModeBody(each.accelerator, each.status, each.reason) for each in found.options]
    elif found.switch is not None and device is not None:
        data = switch_body(found.switch, device)
    else:
        data = {}
        if found.availability is not None:
            data["availability"] = availability_body(found.availability)
        if found.validation is not None:
            data["validation"] = validation_body(found.validation)
    return Envelope(FailedCheckBody(found.type, data), 422)


def problem_bodies(problems: Iterable[Problem]) -> list[ProblemBody]:
    """Return the bodies of items that could not be read, or that refer to something that no longer exists."""
    return [ProblemBody(each.item, each.reason) for each in problems]


def _room_body(room: ComputeCardRoom) -> ComputeRoomBody:
    card = room.card
    return ComputeRoomBody(
        card.node,
        card.id,
        card.model,
        card.share,
        capacity=card.memory_bytes,
        available=room.available,
        operable=room.operable,
        bindings=allocation_bodies(room.bound),
        fit_level=room.fit or "",
    )


def _pressure_body(found: NodePressure) -> NodePressureBody:
    return NodePressureBody(found.node, _dimensions(found.dimensions))


def _dimensions(found: Iterable[Dimension]) -> list[DimensionBody]:
    return [
        DimensionBody(
            each.resource, each.required, each.used, each.capacity, available=each.available, pressured=each.pressured
        )
        for each in found
    ]


def _stopped(apps: Iterable[StoppedApp]) -> Iterator[StoppedBody]:
    return (StoppedBody(each.app.name, each.app.owner, each.state, each.reason) for each in apps)


def _yes(so: bool) -> str:
    return "yes" if so else "no"
