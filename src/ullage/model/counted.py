"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, noun: str, several: str = "") -> str:
    """Return `1 card` or `1,200 cards`; `several` is the plural if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"
