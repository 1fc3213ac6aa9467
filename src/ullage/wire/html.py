"""Bodies as HTML, for notebooks: a table for one, a table for many. Nothing is loaded from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ullage.model.quantity import format_bytes

MOST_ROWS = 50
"""Rows of a table that are shown."""

_EMPTY: tuple[object, ...] = (None, "", [], {})
_CELL = "text-align:left;vertical-align:top"
_LEADING = ("summary", "message")
"""Fields that are sentences; they stand above the others."""


def html_of(body: msgspec.Struct) -> str:
    """Return a body as HTML: its sentences, its plain fields, and a table for each list. Empty fields are left out."""
    fields = {name: value for name, value in msgspec.structs.asdict(body).items() if value not in _EMPTY}
    parts = [f"<p><b>{_text(name, fields.pop(name))}</b></p>" for name in _LEADING if name in fields]
    lists = {name: fields.pop(name) for name, value in list(fields.items()) if _is_long(value)}
    parts.append(facts(fields.items()))
    for name, values in lists.items():
        parts += [f"<p>{name.replace('_', ' ')}:</p>", html_rows(values)]
    return "".join(parts)


def html_rows(rows: Sequence[Any]) -> str:
    """Return bodies as a table, without columns that are empty in all of them; other values as a list."""
    if not rows:
        return "<p>none</p>"
    shown = rows[:MOST_ROWS]
    rest = f"<p>and {len(rows) - MOST_ROWS:,} more</p>" if len(rows) > MOST_ROWS else ""
    if not all(isinstance(row, msgspec.Struct) for row in shown):
        items = "".join(f"<li>{_text('', row)}</li>" for row in shown)
        return f"<ul>{items}</ul>{rest}"
    first = next(iter(shown))
    names = [name for name in first.__struct_fields__ if any(getattr(row, name, None) not in _EMPTY for row in shown)]
    head = "".join(f'<th style="{_CELL}">{html.escape(name.replace("_", " "))}</th>' for name in names)
    lines = (
        "".join(f'<td style="{_CELL}">{_text(name, getattr(row, name, None))}</td>' for name in names) for row in shown
    )
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{rest}"


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return names and values as a table of two columns."""
    lines = (
        f'<tr><th style="{_CELL}">{html.escape(name.replace("_", " "))}</th>'
        f'<td style="{_CELL}">{_text(name, value)}</td></tr>'
        for name, value in pairs
    )
    return f"<table>{''.join(lines)}</table>"


def bar(done: int, total: int | None, text: str) -> str:
    """Return a bar with a text after it; it has no length where the total is unknown."""
    length = "" if total is None else f' value="{done}" max="{max(total, 1)}"'
    return f'<progress{length} style="width:20em;vertical-align:middle"></progress> <span>{html.escape(text)}</span>'


def _is_long(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, msgspec.Struct) or " " in str(each) for each in value)


def _text(name: str, value: Any) -> str:
    return html.escape(_plain(name, value))


def _plain(name: str, value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        value = {each: part for each, part in msgspec.structs.asdict(value).items() if part not in _EMPTY}
    if isinstance(value, dict):
        return ", ".join(f"{_key(key)}={_plain(str(key), part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_plain(name, each) for each in value)
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(name, value)
    if value is None:
        return ""
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


def _number(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    if name.endswith("_milli"):
        return f"{value / 1000:g}"
    if name in {"at", "since"} or name.endswith("_at"):
        return f"{datetime.fromtimestamp(value, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _key(name: object) -> str:
    return str(name).removesuffix("_milli").removesuffix("_bytes")
