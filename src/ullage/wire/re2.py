"""Patterns as Kubernetes and its controllers read them: RE2, with time linear in the length of the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ullage.model.error import InvalidRequest, Unavailable

MAX_PATTERN = 1024
"""Characters of the longest pattern."""


class BadPattern(InvalidRequest):
    """It is not an RE2 pattern, or too long."""

    code = "pattern-invalid"


def matches(text: str, pattern: str) -> bool:
    """Return whether a pattern is found anywhere in a text.

    Raises:
        BadPattern: it is malformed. Unavailable: CEL is not installed, which provides RE2.

    """
    if len(pattern) > MAX_PATTERN:
        raise BadPattern(f"pattern: {len(pattern)} characters; at most {MAX_PATTERN} are read", field="pattern")
    try:
        found = _program().eval(data={"text": text, "pattern": pattern}).value()
    except RuntimeError as error:
        found = error
    if not isinstance(found, bool):
        raise BadPattern(f"pattern {pattern!r}: {found}", field="pattern")
    return found


@lru_cache(maxsize=1)
def _program() -> Any:
    try:
        from cel_expr_python import cel  # noqa: PLC0415 - an extra, and heavy
    except ImportError:
        raise Unavailable("patterns need cel-expr-python, which ullage[k8s] brings", code="no-cel") from None
    return cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING}).compile("text.matches(pattern)")
