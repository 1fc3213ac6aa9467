"""Lists of bodies, which notebooks show as tables."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class Rows(list[T]):
    """A list. A notebook shows it as a table."""

    def _repr_html_(self) -> str:
        from ullage.wire.html import html_rows  # noqa: PLC0415  # only notebooks need it

        return html_rows(self)
