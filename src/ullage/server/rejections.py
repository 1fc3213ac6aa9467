"""The body of a rejection."""

from __future__ import annotations

from ullage.core.verdict.sentences import reject_text
from ullage.model.rejection import Rejection
from ullage.wire.api import RejectionBody


def rejection_body(rejection: Rejection) -> RejectionBody:
    """Return the fields of a rejection and its sentence."""
    return RejectionBody(
        node=rejection.node,
        gpu=rejection.gpu,
        code=rejection.code.value,
        cure=rejection.cure.value,
        needed=rejection.needed,
        had=rejection.had,
        text=reject_text(rejection),
        resource=rejection.resource,
    )
