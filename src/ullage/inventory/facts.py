"""The operator's facts about cards, which complete or override those of drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ullage.inventory.identifier import is_card, match_cards
from ullage.model.error import invalid
from ullage.model.gpu import Gpu

_FIELD = "node.card"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Facts of the cards named by `ids` (indexes or UUIDs), or of all; None leaves a fact unchanged.

    Raises:
        InvalidRequest: an id is malformed, an amount is not above 0, or a text is empty.

    """

    ids: tuple[str, ...] = ()
    model: str | None = None
    vendor: str | None = None
    vram_bytes: int | None = None
    compute_gflops: int | None = None
    pool: str | None = None
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for text in self.ids:
            if not is_card(text):
                raise invalid(f"{_FIELD}.ids", text, "write an index such as 0 or a UUID such as GPU-8932f937")
        for path in self.devices:
            if not path.startswith("/"):
                raise invalid(f"{_FIELD}.devices", path, "write the absolute path of a device node")
        for name, amount in (("vram", self.vram_bytes), ("tflops", self.compute_gflops)):
            if amount is not None and amount <= 0:
                raise invalid(f"{_FIELD}.{name}", amount, "write an amount above 0, or leave it out")
        for name, word in (("model", self.model), ("vendor", self.vendor), ("pool", self.pool)):
            if word is not None and (not word.strip() or set(word) & set(",|=")):
                raise invalid(f"{_FIELD}.{name}", word, "write a name without ',', '|' and '='")


def with_facts(cards: Sequence[Gpu], facts: Sequence[CardFacts]) -> tuple[Gpu, ...]:
    """Return the cards with these facts. A later fact of a card overrides an earlier one.

    Raises:
        InvalidRequest: the vram exceeds that of the driver.

    """
    found = list(cards)
    for fact in facts:
        named = {gpu.uuid for text in fact.ids for gpu in match_cards(text, cards)}
        for place, gpu in enumerate(cards):
            if not fact.ids or gpu.uuid in named:
                _check_vram(gpu, fact)
                found[place] = _with(found[place], fact)
    return tuple(found)


def absent(cards: Sequence[Gpu], facts: Sequence[CardFacts]) -> list[str]:
    """Return the ids that match no card."""
    return [text for fact in facts for text in fact.ids if not match_cards(text, cards)]


def _with(gpu: Gpu, fact: CardFacts) -> Gpu:
    return replace(
        gpu,
        model=fact.model or gpu.model,
        vendor=fact.vendor or gpu.vendor,
        vram_bytes=fact.vram_bytes or gpu.vram_bytes,
        compute_gflops=fact.compute_gflops or gpu.compute_gflops,
        pool=fact.pool or gpu.pool,
        devices=fact.devices or gpu.devices,
    )


def _check_vram(gpu: Gpu, fact: CardFacts) -> None:
    if gpu.vram_bytes is not None and fact.vram_bytes is not None and fact.vram_bytes > gpu.vram_bytes:
        raise invalid(f"{_FIELD}.vram", fact.vram_bytes, f"card {gpu.index} has {gpu.vram_bytes} bytes; write no more")
