"""Request bodies as model values: decoded, checked, and refused with field, value and fix."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from ullage.model.alignment import SEPARATOR
from ullage.model.application import Application, ApplicationState
from ullage.model.error import InvalidRequest, invalid
from ullage.model.part import check_vram
from ullage.model.queue import Queue, parse_queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec, Setup
from ullage.model.topology import ZonePolicy
from ullage.wire import api
from ullage.wire.unknown_field import with_known_fields

MSGPACK = "application/msgpack"
_PATH = re.compile(r" - at `\$\.?(.*?)`")
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
            raise InvalidRequest(
                f"body: it is larger than {limit_bytes} bytes; send less at a time", code="body-too-large"
            )
        chunks.append(chunk)
    return b"".join(chunks)


def decode(request: Request, raw: bytes, kind: type[_Body]) -> _Body:
    """Return a body as `kind`, from JSON or MessagePack, as the request's headers say.

    Raises:
        InvalidRequest: not decodable, or not of that shape.

    """
    packed = request.headers.get("content-type", "").startswith(MSGPACK)
    try:
        return msgspec.msgpack.decode(raw, type=kind) if packed else msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        found = _PATH.search(str(error))
        field = found.group(1) if found else "body"
        raise InvalidRequest(f"{field}: {_PATH.sub('', with_known_fields(error, kind))}", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"body: it cannot be decoded: {error}", field="body") from None


def session_spec(
    body: api.CreateSession, application: Application, default: ResourceRequirement, numa: ZonePolicy | None
) -> SessionSpec:
    """Return the specification of a session; omitted fields come from its application and the operator."""
    return SessionSpec(
        application=body.application,
        resreq=default.aligned(numa) if body.resreq is None else requirement(body.resreq, numa),
        queue=body.queue,
        owner=body.owner,
        priority=application.default_priority if body.priority is None else body.priority,
        weight=application.default_weight if body.weight is None else body.weight,
        min_instances=body.min_instances,
        max_instances=body.max_instances,
        batch_size=body.batch_size,
        common_data=body.common_data,
        setup=Setup(body.setup.python, body.setup.working_directory, body.setup.environment),
        retries=body.retries,
        task_timeout_s=body.task_timeout_s,
        close_when_done=body.close_when_done,
    )


def requirement(value: str | api.ResourceMap, numa: ZonePolicy | None) -> ResourceRequirement:
    """Return a requirement from its text or its mapping; `numa` is the operator's default."""
    found = ResourceRequirement.from_string(value) if isinstance(value, str) else _from_map(value)
    check_vram(found.part)
    return found.aligned(numa)


def _from_map(value: api.ResourceMap) -> ResourceRequirement:
    if value.mem is not None and value.memory is not None:
        raise invalid("resreq", "mem, memory", "give one of the two")
    given = {key: getattr(value, key) for key in value.__struct_fields__}
    pairs = given.pop("pairs") or {}
    for key in pairs:
        if SEPARATOR not in key:
            raise invalid("resreq.pairs", key, "write a pair such as gpu~nic")
    given |= pairs
    return ResourceRequirement.from_value({key: amount for key, amount in given.items() if amount is not None})


def application(name: str, body: api.PutApplicationBody) -> Application:
    """Return an application from its whole specification."""
    fields = {field: getattr(body, field) for field in body.__struct_fields__}
    enabled = fields.pop("enabled")
    fields["arguments"], fields["labels"] = tuple(body.arguments), tuple(body.labels)
    state = ApplicationState.ENABLED if enabled else ApplicationState.DISABLED
    return Application(name=name, state=state, **fields)


def queue(name: str, body: api.PutQueueBody) -> Queue:
    """Return a queue from its whole specification."""
    return parse_queue(name, body.parent, body.weight, body.guarantee, limit=body.limit)
