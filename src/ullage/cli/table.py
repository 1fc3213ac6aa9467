"""Aligned columns that fit the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_GAP = "  "
_SHORTEST = 8
"""The least characters of a column that is cut."""


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if stdout is a pipe or a file, where nothing is cut."""
    if not sys.stdout.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def format_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None, *, header: bool = True
) -> str:
    """Return titles and rows, one line each, numbers right-aligned. The widest columns are cut to fit `width`."""
    cells = [*([list(titles)] if header else []), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        _shrink(widths, width)
    right = [_holds_numbers([row[n] for row in rows]) for n in range(len(titles))]
    return "".join(f"{_line(row, widths, right)}\n" for row in cells)


def _shrink(widths: list[int], total: int) -> None:
    while sum(widths) + len(_GAP) * (len(widths) - 1) > total:
        widest = max(range(len(widths)), key=lambda n: (widths[n], n))
        if widths[widest] <= _SHORTEST:
            return
        widths[widest] -= 1


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        text = cell if len(cell) <= width else f"{cell[: width - 1]}…"
        parts.append(text.rjust(width) if to_right else text.ljust(width))
    return _GAP.join(parts).rstrip()


def one_line(cell: str) -> str:
    """Return the text with spaces for line breaks and control characters, which could rewrite the screen."""
    return cell if cell.isprintable() else "".join(c if c.isprintable() else " " for c in cell)


def _holds_numbers(column: Sequence[str]) -> bool:
    return any(map(str.isdecimal, column)) and all(cell == "-" or cell.isdecimal() for cell in column)
