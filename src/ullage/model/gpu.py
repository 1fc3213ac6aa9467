"""One physical card, as an engine reports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card's identity and facts. What is unknown stays None and is never guessed.

    `uuid` names the card for good; `index` is its position on the node today. A card that is not
    `healthy` keeps what runs on it and receives nothing new.
    """

    uuid: str
    index: int
    model: str | None = None
    vendor: str | None = None
    vram_bytes: int | None = None
    compute_gflops: int | None = None
    numa_zone: int | None = None
    bus_id: str | None = None
    healthy: bool = True
