"""How busy a card is, as its driver measures it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardLoad:
    """The measured load of a card; None where its driver does not say.

    `compute_percent` is the part of the last moments in which something ran on it, `memory_bytes` what is in use.
    """

    uuid: str
    compute_percent: int | None = None
    memory_bytes: int | None = None
