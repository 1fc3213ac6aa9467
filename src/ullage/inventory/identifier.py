"""Identifiers of cards in the form of users and CUDA: the index or the beginning of the UUID.

Source: CUDA C++ Programming Guide, CUDA environment variables, CUDA_VISIBLE_DEVICES: an index "as determined by
nvidia-smi", or a UUID as nvidia-smi prints it, cut short anywhere as long as no other card begins the same. NVML and
nvidia-smi count in PCI order, and so does Ullage. CUDA itself does so only with CUDA_DEVICE_ORDER=PCI_BUS_ID, which
matters where cards of a machine differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ullage.model.gpu import Gpu

MAX_CARDS = 1024
"""The most cards of a node; also the first index that no card has."""

SLICE = "MIG-"
"""The prefix of a slice of a card, in either form (MIG-<uuid>, MIG-GPU-<uuid>/<gi>/<ci>)."""

_INDEX = re.compile(r"0*([0-9]{1,4})", re.ASCII)
_UUID = re.compile(r"GPU-[0-9A-Fa-f][0-9A-Fa-f-]*", re.ASCII)


def is_card(text: str) -> bool:
    """Return whether `text` has the form of a whole card's index or UUID."""
    return _index(text) is not None or _UUID.fullmatch(text) is not None


def match_cards(text: str, cards: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the cards that match `text`: none, one, or several when a UUID is cut too short."""
    if not is_card(text):
        return ()
    index = _index(text)
    if index is not None:
        return tuple(gpu for gpu in cards if gpu.index == index)
    return tuple(gpu for gpu in cards if gpu.uuid.startswith(text))


def declare(text: str, node: str, position: int, *, healthy: bool = True) -> Gpu:
    """Return a card of which only the given name is known: all facts None, with a stable identity.

    A UUID is kept, and `index` is then its `position` in the list. A card named by index is `declared-<node>-<index>`,
    so a worker must address it by its index.
    """
    index = _index(text)
    if index is None:
        return Gpu(text, position, healthy=healthy)
    return Gpu(f"declared-{node}-{index}", index, healthy=healthy)


def _index(text: str) -> int | None:
    match = _INDEX.fullmatch(text)
    index = int(match.group(1)) if match else MAX_CARDS
    return index if index < MAX_CARDS else None
