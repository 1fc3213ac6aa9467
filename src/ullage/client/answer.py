"""Errors of `model.error` from responses of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ullage.model.error import (
    AlreadyExists,
    Conflict,
    DiskFull,
    Forbidden,
    InvalidRequest,
    NotFound,
    UllageError,
    Unavailable,
)
from ullage.wire.schema import ErrorBody

if TYPE_CHECKING:
    from ullage.wire.allocation import RefusalBody

MSGPACK = "application/msgpack"
JSON = "application/json"

_BAD_REQUEST = 400
_UNAUTHORIZED = 401
_WRONG = {403: Forbidden, 404: NotFound}
_CONFLICT = 409
_BUSY = (429, 502, 503, 504)
_SERVER = 500
_NO_ROOM = 507
_SHOWN = 200
"""The most characters that a message quotes of a response without an `ErrorBody`."""


class RefusedAnswer(Conflict):
    """A request for cards, or a change of one, was refused; `refusal` has the reason and suggestions."""

    def __init__(self, refusal: RefusalBody) -> None:
        super().__init__(refusal.message, code=refusal.code, field=refusal.field)
        self.refusal = refusal


def error_of(status: int, content_type: str, body: bytes) -> UllageError:
    """Return the error of a response with this HTTP status."""
    answer = _error_body(status, content_type, body)
    if status == _UNAUTHORIZED:
        expired = answer.code == "token-expired"
        text = answer.message if expired else f"{answer.message}: set ULLAGE_TOKEN to a token of this server"
        return InvalidRequest(text, code=answer.code if expired else "unauthorized", field="token")
    if status == _CONFLICT:
        kind = AlreadyExists if answer.code == AlreadyExists.code else Conflict
        return _refused(body) or kind(answer.message, code=answer.code, field=answer.field)
    if status == _NO_ROOM or status in _BUSY:
        unavailable = DiskFull if status == _NO_ROOM else Unavailable
        return unavailable(answer.message, code=answer.code, field=answer.field)
    if _BAD_REQUEST <= status < _SERVER:
        wrong = _WRONG.get(status, InvalidRequest)
        return wrong(answer.message, code=answer.code, field=answer.field)
    return UllageError(answer.message, code=answer.code, field=answer.field)


def may_be_repeated(status: int) -> bool:
    """Return whether the same request may succeed soon."""
    return status in _BUSY


def _refused(body: bytes) -> RefusedAnswer | None:
    """Return the error with the whole refusal; None for any other conflict."""
    from ullage.wire.allocation import RefusalBody  # noqa: PLC0415  # only refusals need it

    try:
        return RefusedAnswer(msgspec.json.decode(body, type=RefusalBody))
    except msgspec.MsgspecError:
        return None


def _error_body(status: int, content_type: str, body: bytes) -> ErrorBody:
    decode = msgspec.msgpack.decode if content_type.startswith(MSGPACK) else msgspec.json.decode
    try:
        return decode(body, type=ErrorBody)
    except msgspec.MsgspecError:  # not from Ullage: a proxy, or another server on this port
        text = body[:_SHOWN].decode(errors="replace").strip()
        return ErrorBody(code=f"http-{status}", message=f"the server answered {status}: {text}")
