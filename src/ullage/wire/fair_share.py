"""Bodies of fair share over time: what was used in the past, and what follows for weights."""

from __future__ import annotations

from ullage.wire.schema import View


class ShareBody(View, frozen=True, kw_only=True):
    """What is left of the past use of a queue, or of an owner in it (`owner` None: the queue with those below it).

    `card_s`, `core_s` and `memory_byte_s` are seconds, of which each counts half after a half-life. `part` is its part
    of what its siblings with work used together, by the dominant resource, and `due` what its weight gives; both are
    None without work. `factor` multiplies its weight now.
    """

    queue: str
    owner: str | None
    card_s: float
    core_s: float
    memory_byte_s: float
    part: float | None
    due: float | None
    factor: float


class FairShareBody(View, frozen=True, kw_only=True):
    """A page of the queues and owners with past use or work, at a time. Without a half-life (None) nothing is counted.

    `total` is how many there are in all pages. The shares of who may only read its own come first, then the queues.
    """

    half_life_s: float | None
    at: float
    shares: list[ShareBody]
    total: int = 0
