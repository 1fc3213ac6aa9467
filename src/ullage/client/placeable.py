"""Refusal of new sessions that no node can ever hold."""

from __future__ import annotations

from ullage.client.api import Api
from ullage.model.error import Unplaceable
from ullage.model.rejection import Code
from ullage.wire.session import SessionBody


def refuse_unplaceable(api: Api, body: SessionBody) -> None:
    """Refuse a session that no node could hold even if it were empty.

    Raises:
        Unplaceable: no node can hold it; the error has the amounts, and requests that fit.

    """
    if body.reason == Code.TOO_LARGE:
        explanation = api.why(body.id)
        error = Unplaceable(body.message or explanation.summary, tuple(explanation.suggestions))
        if error.suggestions:
            error.add_note(f"what would help: {'; '.join(error.suggestions)}")
        raise error
