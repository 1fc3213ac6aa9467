"""`--watch` of listings: drawn again in place on a terminal; elsewhere what has changed, line by line."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from ullage.cli.keys import quit_within, single_keys
from ullage.cli.listing import Form, Listing
from ullage.cli.output import DATA, cells, data_text
from ullage.cli.table import terminal_width
from ullage.cli.times import show_time

_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_TOP, _REST_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_PROGRAMS = {"kubectl-ullage": "kubectl ullage"}
"""What people type for a program."""

_HEIGHT = 24
"""Lines of a terminal that does not say how many it has."""

Rows = Callable[[], list[Any]]
Tree = Callable[[Sequence[Any]], tuple[list[Any], list[str]]]


def watch(listing: Listing, form: Form, rows: Rows, every_s: float, tree: Tree | None) -> int:
    """Show rows again and again, until `q` or Ctrl-C. Return the exit code."""
    if sys.stdout.isatty():
        return _redraw(lambda: listing.text(rows(), form, terminal_width(), tree), every_s)
    _print_changes(listing, form, rows, every_s)
    return 0


def _redraw(draw: Callable[[], str], every_s: float) -> int:
    """Draw on the second screen of the terminal, and leave the last drawing on the first one."""
    keys = sys.stdin is not None and sys.stdin.isatty()
    text = draw()
    sys.stdout.write(_OTHER_SCREEN)
    try:
        with single_keys() if keys else nullcontext():
            while True:
                sys.stdout.write(_picture(text, every_s))
                sys.stdout.flush()
                if keys and quit_within(every_s):
                    return 0
                if not keys:
                    time.sleep(every_s)
                text = draw()
    finally:
        sys.stdout.write(f"{_FIRST_SCREEN}{text}")
        sys.stdout.flush()


def _picture(text: str, every_s: float) -> str:
    """Return the escape sequences that draw a text, as far as there are lines."""
    program = _PROGRAMS.get(Path(sys.argv[0]).name, "ullage")
    command = shlex.join([*program.split(), *sys.argv[1:]])
    lines = [f"every {every_s:g} s: {command}   {show_time(time.time())}   q quits", "", *text.splitlines()]
    height = _height()
    if len(lines) > height:
        hidden = len(lines) - height + 1
        lines[height - 1 :] = [f"... {hidden} more"]
    drawn = "\r\n".join(f"{line[: terminal_width()]}{_REST_OF_LINE}" for line in lines)
    return f"{_TOP}{drawn}{_BELOW}"


def _height() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or _HEIGHT
    except OSError:
        return _HEIGHT


def _print_changes(listing: Listing, form: Form, rows: Rows, every_s: float) -> None:
    """Print all rows, then those that are new or differ, and the names of those that are gone."""
    lasting = [column for column in form.columns if not column.moving]
    seen: dict[str, object] = {}
    first = True
    while True:
        now = {listing.name(row): row for row in rows()}
        state = {name: row if form.output in DATA else cells([row], lasting) for name, row in now.items()}
        changed = [row for name, row in now.items() if seen.get(name) != state[name]]
        if first or changed:
            sys.stdout.write(_lines(listing, form._replace(header=form.header and first), changed))
        for name in seen.keys() - state.keys():
            sys.stdout.write(_gone(name, form.output))
        sys.stdout.flush()
        seen, first = state, False
        time.sleep(every_s)


def _lines(listing: Listing, form: Form, rows: Sequence[Any]) -> str:
    """Return rows as text to which more is added later: a line of JSON each, a document of YAML each."""
    if form.output == "json":
        return "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows)
    if form.output == "yaml":
        return "".join(f"---\n{data_text(row, 'yaml')}" for row in rows)
    return listing.text(rows, form)


def _gone(name: str, output: str) -> str:
    match output:
        case "json":
            return f"{msgspec.json.encode({'gone': name}).decode()}\n"
        case "yaml":
            return f"---\n{data_text({'gone': name}, 'yaml')}"
        case "csv" | "name":
            return ""
    return f"{name} is gone\n"
