"""Request bodies as model values: decoded, checked, and refused with field, value and fix."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from msgspec import structs
from starlette.requests import Request

from ullage.model.alignment import SEPARATOR
from ullage.model.application import Application, ApplicationState
from ullage.model.dependency import parse_dependencies
from ullage.model.error import InvalidRequest, invalid
from ullage.model.part import check_vram
from ullage.model.queue import Queue, parse_bounds, parse_queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec, Setup, check_memory
from ullage.model.topology import ZonePolicy
from ullage.wire.catalog import PutApplicationBody, PutQueueBody
from ullage.wire.decoding import decode_body
from ullage.wire.requirement import ResourceMap
from ullage.wire.session import CreateSession
from ullage.wire.vendors.shipped import vendor_name

MSGPACK = "application/msgpack"
_Body = TypeVar("_Body")


async def read_body(request: Request, kind: type[_Body], limit_bytes: int) -> _Body:
    """Return the request's body as `kind`, from JSON or MessagePack.

    Raises:
        InvalidRequest: too large, not decodable, or not of that shape.

    """
    return decode(request, await read_raw(request, limit_bytes), kind)


async def read_raw(request: Request, limit_bytes: int) -> bytes:
    """Return the request's body; reading stops at the limit.

    Raises:
        InvalidRequest: it is too large.

    """
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise InvalidRequest(f"body: it exceeds {limit_bytes} bytes; send less at a time", code="body-too-large")
        chunks.append(chunk)
    return b"".join(chunks)


def decode(request: Request, raw: bytes, kind: type[_Body]) -> _Body:
    """Return a body as `kind`, from JSON or MessagePack according to the headers of the request.

    Raises:
        InvalidRequest: not decodable, or not of that shape.

    """
    return decode_body(raw, kind, packed=request.headers.get("content-type", "").startswith(MSGPACK))


def session_spec(
    body: CreateSession, application: Application, default: ResourceRequirement, numa: ZonePolicy | None
) -> SessionSpec:
    """Return the specification of a session; omitted fields come from its application and the operator."""
    stated = {
        "resreq": _requirement_of(body, default, numa),
        "priority": application.default_priority if body.priority is None else body.priority,
        "weight": application.default_weight if body.weight is None else body.weight,
        "setup": Setup(**structs.asdict(body.setup)),
        "after": parse_dependencies(body.after),
    }
    given = structs.asdict(body) | stated
    del given["id"], given["user"], given["fill_resreq"]
    return SessionSpec(**given)


def _requirement_of(body: CreateSession, default: ResourceRequirement, numa: ZonePolicy | None) -> ResourceRequirement:
    if body.resreq is None:
        return default.aligned(numa)
    if not body.fill_resreq:
        return requirement(body.resreq, numa)
    if not isinstance(body.resreq, str):
        raise invalid("fill_resreq", body.fill_resreq, "resreq has to be a text, such as gpu=1")
    return requirement(default.filling(body.resreq), numa)


def requirement(value: str | ResourceMap, numa: ZonePolicy | None) -> ResourceRequirement:
    """Return a requirement from its text or its mapping; `numa` is the operator's default."""
    found = ResourceRequirement.from_string(value) if isinstance(value, str) else _from_map(value)
    check_vram(found.part)
    check_memory(found)
    vendors = tuple(map(vendor_name, found.cards.vendors))  # as in the annotations of pods
    if vendors != found.cards.vendors:
        found = replace(found, cards=replace(found.cards, vendors=vendors))
    return found.aligned(numa)


def _from_map(value: ResourceMap) -> ResourceRequirement:
    if value.mem is not None and value.memory is not None:
        raise invalid("resreq", "mem, memory", "give one of the two")
    given = structs.asdict(value)
    pairs = given.pop("pairs") or {}
    for key in pairs:
        if SEPARATOR not in key:
            raise invalid("resreq.pairs", key, "write a pair such as gpu~nic")
    given |= pairs
    return ResourceRequirement.from_value({key: amount for key, amount in given.items() if amount is not None})


def application(name: str, body: PutApplicationBody) -> Application:
    """Return an application from its whole specification."""
    fields = structs.asdict(body) | {"arguments": tuple(body.arguments), "labels": tuple(body.labels)}
    state = ApplicationState.ENABLED if fields.pop("enabled") else ApplicationState.DISABLED
    return Application(name=name, state=state, **fields)


def queue(name: str, body: PutQueueBody) -> Queue:
    """Return a queue from its whole specification."""
    bounds = parse_bounds(body.default_resreq, body.max_resreq, body.default_time_s, body.max_time_s)
    return parse_queue(name, body.parent, body.weight, body.guarantee, limit=body.limit, bounds=bounds)
