"""Bytes in tables."""

from __future__ import annotations

from ullage.model.quantity import format_bytes

_GI, _MI = 1 << 30, 1 << 20


def show_size(amount: int) -> str:
    """Return bytes as exact Gi if that is short, else in tenths of Gi or Mi."""
    exact = format_bytes(amount)
    if not exact.isdecimal() and amount < (1 << 10) * _GI and amount % _GI == 0:
        return exact
    if amount >= _GI:
        return f"{amount / _GI:.1f}Gi"
    return f"{amount / _MI:.1f}Mi" if amount >= _MI else exact
