"""Rows of CSV and JSON Lines files. Errors name file, line, column, value and fix."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT64, parse_count, parse_size
from ullage.model.request import ResourceRequirement

CODE = "invalid-trace"


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of one line. Getters may have a default for an empty or missing cell."""

    path: Path
    line: int
    cells: Mapping[str, str]

    def bad(self, column: str, fix: str) -> InvalidRequest:
        """Return the error of one cell."""
        return invalid_trace(self.path, self.line, column, self.cells.get(column, ""), fix=fix)

    def text(self, column: str, default: str | None = None) -> str:
        """Return a text.

        Raises:
            InvalidRequest: `invalid-trace`; the cell is empty and has no default.

        """
        value = self.cells.get(column, "")
        if value:
            return value
        if default is None:
            raise self.bad(column, "it is needed")
        return default

    def count(self, column: str, default: int | None = None, *, maximum: int = MAX_INT64) -> int:
        """Return a whole number from 0; `12000.0` is 12000.

        Raises:
            InvalidRequest: `invalid-trace`.

        """
        value = self.text(column, None if default is None else str(default))
        whole, point, zeros = value.partition(".")
        try:
            return parse_count(whole if point and not zeros.strip("0") else value, column, maximum)
        except InvalidRequest:
            raise self.bad(column, f"write a whole number from 0 to {maximum}") from None

    def integer(self, column: str, default: int) -> int:
        """Return a whole number of either sign.

        Raises:
            InvalidRequest: `invalid-trace`.

        """
        value = self.cells.get(column, "")
        if not value:
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or abs(int(digits)) > MAX_INT64:
            raise self.bad(column, "write a whole number such as 0, 10 or -1")
        return int(value)

    def seconds(self, column: str) -> float | None:
        """Return seconds, 0 or more; None for an empty cell.

        Raises:
            InvalidRequest: `invalid-trace`.

        """
        value = self.cells.get(column, "")
        if not value:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_INT64:
            raise self.bad(column, "write seconds, 0 or more, such as 3600 or 0.5")
        return seconds

    def size(self, column: str, default: int | None = None) -> int | None:
        """Return the bytes of a size such as 16g; the default for an empty cell.

        Raises:
            InvalidRequest: `invalid-trace`.

        """
        value = self.cells.get(column, "")
        if not value:
            return default
        try:
            return parse_size(value, column)
        except InvalidRequest:
            raise self.bad(column, "write a size such as 16g or 512m") from None

    def requirement(self, column: str) -> ResourceRequirement:
        """Return the requirement in a cell.

        Raises:
            InvalidRequest: `invalid-trace`.

        """
        try:
            return ResourceRequirement.from_string(self.text(column))
        except InvalidRequest as error:
            if error.code == CODE:
                raise
            raise self.bad(column, error.message) from None


def invalid_trace(path: Path, line: int, column: str, value: object, fix: str) -> InvalidRequest:
    """Return the error of a cell, with its position and fix."""
    return InvalidRequest(f"{path}, line {line}, column {column}: {value!r} is not valid: {fix}", code=CODE)


def columns_of(path: Path) -> tuple[str, ...]:
    """Return the names of the columns; of JSON Lines the keys of the first line.

    Raises:
        InvalidRequest: `invalid-trace`; the file cannot be read, or is empty.

    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}", code=CODE) from None
    if not first.strip():
        raise InvalidRequest(f"{path} is empty: a line of column names, or of JSON, is needed", code=CODE)
    if first.lstrip().startswith("{"):
        return tuple(_json_cells(path, 1, first))
    return tuple(name.strip() for name in next(csv.reader([first])))


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file with a line of column names, or of a file with a JSON object per line.

    Raises:
        InvalidRequest: `invalid-trace`; a line is malformed.

    """
    columns = columns_of(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        json_lines = file.readline().lstrip().startswith("{")
        file.seek(0)
        try:
            yield from _json_rows(path, file) if json_lines else _csv_rows(path, csv.reader(file), columns)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{path} cannot be read: {error}", code=CODE) from None


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield Row(path, number, _json_cells(path, number, line))


def _csv_rows(path: Path, reader: Iterator[list[str]], columns: tuple[str, ...]) -> Iterator[Row]:
    *_, last = columns
    next(reader)
    for cells in reader:
        line: int = reader.line_num  # type: ignore[attr-defined]  # a csv reader has it
        if not cells:
            continue
        if len(cells) != len(columns):
            raise invalid_trace(path, line, last, ",".join(cells), fix=f"{len(columns)} columns are needed")
        yield Row(path, line, dict(zip(columns, (cell.strip() for cell in cells), strict=True)))


def _json_cells(path: Path, number: int, line: str) -> dict[str, str]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise invalid_trace(
            path, number, "-", line.strip()[:60], fix=f"each line is one JSON object ({error})"
        ) from None
    if not isinstance(value, dict):
        raise invalid_trace(path, number, "-", line.strip()[:60], fix="each line is one JSON object")
    return {key: "" if cell is None else str(cell) for key, cell in value.items()}
