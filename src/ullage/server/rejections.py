"""The body of a rejection."""

from __future__ import annotations

from ullage.core.verdict.sentences import reject_text
from ullage.model.rejection import Rejection
from ullage.wire.body import body_of
from ullage.wire.explanation import RejectionBody


def rejection_body(rejection: Rejection) -> RejectionBody:
    """Return the fields of a rejection and its sentence."""
    return body_of(RejectionBody, rejection, text=reject_text(rejection))
