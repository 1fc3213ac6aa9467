"""Past use as text."""

from __future__ import annotations

_HOUR_S = 3600.0


def use_text(card_s: float, core_s: float) -> str:
    """Return past use in hours of cards, if there was any, and of cores."""
    cards = [f"{card_s / _HOUR_S:.1f} card-hours"] if card_s else []
    return ", ".join([*cards, f"{core_s / _HOUR_S:.1f} core-hours"])
