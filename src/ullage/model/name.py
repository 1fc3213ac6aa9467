"""Names of applications, queues, sessions and nodes: one rule for all."""

from __future__ import annotations

import re

from ullage.model.error import invalid

MAX_NAME = 253
NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME = re.compile(NAME_PATTERN, re.ASCII)


def check_name(field: str, name: object) -> str:
    """Return `name` if it is 1..253 of [A-Za-z0-9._-], not starting with `.` or `-`, without `..`."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or ".." in name or not _NAME.fullmatch(name):
        raise invalid(
            field, name, f"use 1 to {MAX_NAME} letters, digits, '.', '_' or '-', not starting with '.' or '-', no '..'"
        )
    return name
