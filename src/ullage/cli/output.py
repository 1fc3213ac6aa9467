"""The output of verbs: tables, fields or JSON, as `-o` selects."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ullage.cli.table import format_table, terminal_width
from ullage.cli.times import show_time
from ullage.model.quantity import format_bytes

_TIMES = ("at", "since", "last_update", "release_by")
FORMATS = ("table", "wide", "json")


class Column(NamedTuple):
    """A title and a function from a row to its cell; only `-o wide` shows `wide` columns."""

    title: str
    cell: Callable[[Any], object]
    wide: bool = False


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option `-o`."""
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default="table", help="how to show it (default: table; wide cuts nothing)"
    )


def print_list(rows: Sequence[Any], columns: Sequence[Column], output: str) -> None:
    """Print bodies of the API as a table or as JSON."""
    if output == "json":
        print_json(rows)
        return
    wide = output == "wide"
    chosen = [column for column in columns if wide or not column.wide]
    cells = [[_text(column.cell(row)) for column in chosen] for row in rows]
    titles = [column.title for column in chosen]
    sys.stdout.write(format_table(titles, cells, None if wide else terminal_width()))


def print_row(body: msgspec.Struct, columns: Sequence[Column], output: str) -> None:
    """Print one body of the API as a table of one row, or as JSON."""
    if output == "json":
        print_json(body)
    else:
        print_list([body], columns, output)


def print_one(body: msgspec.Struct, output: str) -> None:
    """Print every field of one body."""
    if output == "json":
        print_json(body)
        return
    fields = [(name, _field(name, getattr(body, name))) for name in body.__struct_fields__]
    width = max(len(name) for name, _ in fields)
    for name, text in fields:
        print(f"{name.ljust(width)}  {text}")


def print_json(value: object) -> None:
    """Print a value of the API as indented JSON."""
    sys.stdout.write(f"{msgspec.json.format(msgspec.json.encode(value), indent=2).decode()}\n")


def _field(name: str, value: object) -> str:
    if name in _TIMES or name.endswith("_at"):
        return show_time(value)  # type: ignore[arg-type]  # fields of these names are times
    if isinstance(value, msgspec.Struct):
        return ", ".join(f"{path}={item}" for path, item in _set_fields(value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        parted = "; " if any(isinstance(item, msgspec.Struct) for item in value) else ", "
        return parted.join(_field("", item) for item in value) or "-"
    return _text(value)


def _set_fields(body: msgspec.Struct | dict[Any, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the fields of a body that are set, with paths such as `total.vram`."""
    named = body if isinstance(body, dict) else {name: getattr(body, name) for name in body.__struct_fields__}
    for name, value in named.items():
        if isinstance(value, msgspec.Struct | dict):
            yield from _set_fields(value, f"{above}{name}.")
        elif isinstance(value, list):
            yield f"{above}{name}", ",".join(map(str, value)) or "-"
        elif value not in (None, ""):
            yield f"{above}{name}", format_bytes(value) if name == "vram" and isinstance(value, int) else value


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
