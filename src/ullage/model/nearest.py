"""The known word that is most similar to an unknown one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice

from ullage.model.error import NotFound

_SIMILAR = 0.6
"""The least similarity of two words of which one is taken for a misspelling of the other; 1 is equal."""


def nearest(word: str, known: Iterable[str], cutoff: float = _SIMILAR) -> str | None:
    """Return the known word that is most similar to `word`, from 0 to 1; None if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    names = {each.lstrip("-"): each for each in known}  # what all options have says nothing
    found = get_close_matches(word.lstrip("-"), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], cutoff: float = _SIMILAR) -> str:
    """Return `did you mean X? `, or nothing if no known word is similar."""
    found = nearest(word, known, cutoff)
    return "" if found is None else f"did you mean {found}? "


def one_of(word: object, known: Iterable[str]) -> str:
    """Return the fix for a word that is none of a few: the one that is meant, if one is similar, and all of them."""
    words = [*map(str, known)]
    return f"{did_you_mean(str(word), words)}choose one of {', '.join(words)}"


_OF_ARRAY = re.compile(r"(.+)_\[?([0-9]+)\]?")
"""A task of an array as Slurm names it."""

_SAME_NAME = 0.65
"""The least similarity of the names of two objects of which one is taken for the other."""

_LOOKED_AT = 300
"""The most names that are compared: a server answers others meanwhile."""

_FEW = 12
"""The most names that a message lists."""


_LISTED = ("queue", "application", "node")
"""Kinds of objects of which there are often few, and which are the same for all users."""


class Missing(NotFound):
    """The error of an object that does not exist, with the name that is meant if one is similar.

    Of many names the first ones count. `field` is the kind unless another is given; `more` ends the message.
    """

    def __init__(
        self, kind: str, name: object, known: Iterable[str], *, field: str | None = None, more: str = ""
    ) -> None:
        self.kind, self._name, self._more = kind, name, more
        self._names = list(islice(known, _LOOKED_AT))
        super().__init__(f"{self._text()}{more}", field=kind if field is None else field)

    def among(self, shown: Callable[[str], bool]) -> Missing:
        """Return the error for a reader from whom the other names are hidden."""
        return Missing(self.kind, self._name, filter(shown, self._names), field=self.field, more=self._more)

    def _text(self) -> str:
        text, names = f"{self.kind} {self._name} does not exist", self._names
        array = _OF_ARRAY.fullmatch(str(self._name)) if self.kind == "session" else None
        if array is not None and array[1] in names:
            return f"{text}; task {array[2]} of the array {array[1]} is {array[1]}:{array[2]}"
        meant = nearest(str(self._name), names, _SAME_NAME)
        if meant is not None:
            return f"{text}; did you mean {meant}?"
        if 0 < len(names) <= _FEW and self.kind in _LISTED:
            return f"{text}; known are {', '.join(sorted(names))}"
        return text
