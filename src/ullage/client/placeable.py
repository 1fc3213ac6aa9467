"""Refusal of new sessions that are never placed."""

from __future__ import annotations

from contextlib import suppress

from ullage.client.api import Api
from ullage.model.error import UllageError, Unplaceable
from ullage.wire.session import SessionBody


def refuse_unplaceable(api: Api, body: SessionBody) -> None:
    """Refuse a session that would wait also if all else ended: no node can hold it, or a limit never allows it.

    Raises:
        Unplaceable: so it is; the error has the amounts, and what would help.

    """
    if body.reason is None:
        return
    from ullage.model.rejection import NEVER_PLACED  # noqa: PLC0415  # most sessions have no reason yet

    if body.reason in NEVER_PLACED:
        explanation = api.why(body.id)
        error = Unplaceable(body.message or explanation.summary, tuple(explanation.suggestions))
        if error.suggestions:
            error.add_note(f"what would help: {'; '.join(error.suggestions)}")
        raise error


def withdraw(api: Api, session: str) -> None:
    """Close and delete a session that was refused, so that its id can be given again."""
    api.cancel_session(session)
    with suppress(UllageError):  # it is closed at least
        api.delete_session(session)
