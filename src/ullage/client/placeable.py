"""A session that no node can ever hold is refused when it is made, not waited for."""

from __future__ import annotations

from ullage.client.api import Api
from ullage.model.error import Unplaceable
from ullage.model.rejection import Code
from ullage.wire.api import SessionBody


def refuse_unplaceable(api: Api, body: SessionBody) -> None:
    """Refuse a session that no node can hold, also if every node were empty.

    Raises:
        Unplaceable: with what is asked, what there is, and requests that fit.

    """
    if body.reason == Code.TOO_LARGE:
        explanation = api.why(body.id)
        error = Unplaceable(body.message or explanation.summary, tuple(explanation.suggestions))
        if error.suggestions:
            error.add_note(f"what would help: {'; '.join(error.suggestions)}")
        raise error
