"""The labels in which feature discovery states the cards of a node."""

from __future__ import annotations

PRODUCT_LABELS = {"NVIDIA": "nvidia.com/gpu.product", "AMD": "amd.com/gpu.product-name"}
"""The model of all cards of a vendor on a node."""

MEMORY_LABELS = {"NVIDIA": "nvidia.com/gpu.memory"}
"""MiB of each card."""

_MIB = 2**20
_DIGITS = 9
"""Maximum number of digits of a card's MiB."""


def bytes_of_mib(label: str) -> int | None:
    """Return the bytes that a label states in MiB; None if it states none."""
    return int(label) * _MIB if label.isascii() and label.isdigit() and len(label) <= _DIGITS else None
