"""Common settings of the bodies of the HTTP API.

Bodies are JSON; task inputs and results may also be MessagePack (`application/msgpack`), which carries bytes
unchanged, where JSON carries them as base64. Unknown fields are refused. Times are seconds since the epoch, amounts
are in the unit of their name, a requirement is its text form.
"""

from __future__ import annotations

import msgspec


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Common settings of all bodies."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A response body; a client ignores fields it does not know yet. A notebook shows it as a table."""

    def _repr_html_(self) -> str:
        from ullage.wire.html import html_of  # noqa: PLC0415  # only notebooks need it

        return html_of(self)


class ErrorBody(View, frozen=True, kw_only=True):
    """The body of every error: compare `code`, read `message`; `field` names the offending input."""

    code: str
    message: str
    field: str | None = None
