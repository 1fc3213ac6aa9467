"""Checks of the environment variables and paths of a process."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ullage.model.error import invalid

_NAME = re.compile(r"[^\s=\x00-\x1f\x7f]+")
_MAX_BYTES = 128 * 1024
"""Linux accepts no longer string (MAX_ARG_STRLEN, see execve(2))."""


def check_environment(field: str, environment: Mapping[str, str]) -> None:
    """Refuse variables with which no process can be started: a malformed name, or a value with NUL or too long."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            raise invalid(field, name, "a name of a variable has no '=', no space and no control character")
        if "\0" in value:
            raise invalid(f"{field}.{name}", value, "a value has no NUL character")
        if len(name.encode(errors="replace")) + len(value.encode(errors="replace")) + 2 > _MAX_BYTES:
            raise invalid(f"{field}.{name}", value, f"name and value have at most {_MAX_BYTES} bytes together")


def check_absolute_path(field: str, path: str | None) -> None:
    """Refuse a path with which no process can be started: a relative one, or one with NUL."""
    if path is not None and (not path.startswith("/") or "\0" in path):
        raise invalid(field, path, "give an absolute path without NUL characters")
