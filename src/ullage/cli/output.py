"""The output of verbs: tables, fields, JSON or YAML, as `-o` selects. Listings offer more (`listing`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ullage.cli.table import format_table, terminal_width
from ullage.cli.times import show_time
from ullage.model.quantity import format_bytes

_TIMES = ("at", "since", "running_since", "last_update", "release_by")
FORMATS = ("table", "wide", "json", "yaml")
DATA = ("json", "yaml")
"""Formats that show the body of the API, with every field."""


class Column(NamedTuple):
    """A title and a function from a row to its cell; only `-o wide` shows `wide` columns.

    `key` is what `--sort` compares, where the cell has another order. A `moving` cell changes by itself, as an age
    does. Where a terminal is too narrow, columns that can be `spared` are left out, the highest first.
    """

    title: str
    cell: Callable[[Any], object]
    wide: bool = False
    key: Callable[[Any], object] | None = None
    moving: bool = False
    spared: int = 0


def add_output(parser: argparse.ArgumentParser, *, inner: bool = False) -> None:
    """Add the option `-o`. An `inner` parser is one of an action: it leaves the option that its verb was given."""
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        default=argparse.SUPPRESS if inner else "table",
        help="how to show it (default: table; wide cuts nothing; json and yaml have every field)",
    )


def print_list(rows: Sequence[Any], columns: Sequence[Column], output: str) -> None:
    """Print bodies of the API as a table, or as data."""
    if output in DATA:
        print_data(rows, output)
        return
    wide = output == "wide"
    chosen = [column for column in columns if wide or not column.wide]
    titles = [column.title for column in chosen]
    sys.stdout.write(format_table(titles, cells(rows, chosen), None if wide else terminal_width()))


def cells(rows: Sequence[Any], columns: Sequence[Column]) -> list[list[str]]:
    """Return the texts of a table."""
    return [[cell_text(column.cell(row)) for column in columns] for row in rows]


def print_row(body: msgspec.Struct, columns: Sequence[Column], output: str) -> None:
    """Print one body of the API as a table of one row, or as data."""
    if output in DATA:
        print_data(body, output)
    else:
        print_list([body], columns, output)


def print_one(body: msgspec.Struct, output: str) -> None:
    """Print every field of one body."""
    if output in DATA:
        print_data(body, output)
        return
    print_fields([(name, field_text(name, getattr(body, name))) for name in body.__struct_fields__])


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and texts, each pair on its own line."""
    width = max(len(name) for name, _ in fields)
    for name, text in fields:
        print(f"{name.ljust(width)}  {text}")


def print_data(value: object, output: str) -> None:
    """Print a value of the API as indented JSON, or as YAML."""
    sys.stdout.write(data_text(value, output))


def data_text(value: object, output: str) -> str:
    """Return a value of the API as indented JSON, or as YAML."""
    if output == "yaml":
        from ullage.cli.yaml_text import yaml_text  # noqa: PLC0415  # needed only here

        return yaml_text(msgspec.to_builtins(value, str_keys=True))
    return f"{msgspec.json.format(msgspec.json.encode(value), indent=2).decode()}\n"


def field_text(name: str, value: object) -> str:
    """Return the value of a field of a body in one line."""
    if name in _TIMES or name.endswith("_at"):
        return show_time(value)  # type: ignore[arg-type]  # fields of these names are times
    if isinstance(value, msgspec.Struct):
        return ", ".join(f"{path}={item}" for path, item in _set_fields(value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}={cell_text(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        parted = "; " if any(isinstance(item, msgspec.Struct) for item in value) else ", "
        return parted.join(field_text("", item) for item in value) or "-"
    return cell_text(value)


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


def cell_text(value: object) -> str:
    """Return the text of a cell; `-` for nothing."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
