"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table(titles: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Return a table; a bar in a cell is escaped."""

    def line(cells: Iterable[object]) -> str:
        return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"

    titles = list(titles)
    return "\n".join([line(titles), line("---" for _ in titles), *map(line, lines)])
