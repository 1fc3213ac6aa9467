"""Aligned columns that fit the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_GAP = "  "
_SHORTEST = 8
"""The least characters of a column that is cut."""

_USEFUL, _NAME = 16, 20
"""The characters that a column, and the first one with its name, are cut to only if no column can be left out."""


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
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    *,
    header: bool = True,
    spared: Sequence[int] = (),
) -> str:
    """Return titles and rows, one line each, numbers right-aligned.

    To fit `width`, columns that are `spared` (above 0) are left out, the highest first, and the widest ones are cut.
    """
    cells = [*([list(titles)] if header else []), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = list(range(len(widths)))
    if width is not None:
        shown = _spare(shown, widths, spared, width)
    chosen = [widths[n] for n in shown]
    if width is not None:
        _shrink(chosen, width, [_USEFUL if n else _NAME for n in range(len(chosen))])
        _shrink(chosen, width, [_SHORTEST] * len(chosen))
    right = [_holds_numbers([row[n] for row in rows]) for n in shown]
    return "".join(f"{_line([row[n] for n in shown], chosen, right)}\n" for row in cells)


def _spare(columns: list[int], widths: Sequence[int], spared: Sequence[int], total: int) -> list[int]:
    """Return the columns without as many of the spared ones as it takes for the others to be of use."""
    left = list(columns)
    for column in sorted((n for n, rank in enumerate(spared) if rank), key=lambda n: -spared[n]):
        if _total([min(widths[n], _USEFUL if n else _NAME) for n in left]) <= total:
            break
        left.remove(column)
    return left


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _shrink(widths: list[int], total: int, least: Sequence[int]) -> None:
    while _total(widths) > total:
        wide = [n for n, width in enumerate(widths) if width > least[n]]
        if not wide:
            return
        widths[max(wide, key=lambda n: (widths[n], n))] -= 1


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
