"""The known word that is most similar to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

_SIMILAR = 0.5
"""The least similarity of two words of which one is taken for a misspelling of the other; 1 is equal."""


def nearest(word: str, known: Iterable[str], cutoff: float = _SIMILAR) -> str | None:
    """Return the known word that is most similar to `word`, from 0 to 1; None if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = _SIMILAR) -> str:
    """Return `did you mean X? `, or nothing if no known word is similar."""
    found = nearest(word, known, cutoff)
    return "" if found is None else f"did you mean {found}? "
