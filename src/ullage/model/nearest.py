"""The known word that an unknown one is most like."""

from __future__ import annotations

from collections.abc import Iterable

_ALIKE = 0.5
"""How much of two words agrees where one is taken for a misspelling of the other; 1 is equal."""


def nearest(word: str, known: Iterable[str], likeness: float = _ALIKE) -> str | None:
    """Return the known word that `word` is most like, from 0 to 1; None if there is none like it."""
    from difflib import get_close_matches  # noqa: PLC0415  # needed only where something is wrong

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=likeness)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X? `, or nothing if no known word is like `word`."""
    found = nearest(word, known)
    return "" if found is None else f"did you mean {found}? "
