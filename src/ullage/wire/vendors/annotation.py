"""JSON in the annotations of nodes, and a bound on what is read of it."""

from __future__ import annotations

from typing import Any

import msgspec

from ullage.model.error import invalid_annotation

MAX_DEVICES = 1024
"""The most cards of one node that are read."""


def decoded(text: str, kind: Any, key: str) -> Any:
    """Return the value in the JSON of an annotation.

    Raises:
        InvalidAnnotation: it cannot be read.

    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise invalid_annotation(key, text, f"it cannot be read: {error}") from None
    except RecursionError:
        raise invalid_annotation(key, text, "it is nested too deeply") from None
