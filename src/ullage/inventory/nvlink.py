"""NVLinks between cards, counted from the ends that each card reports.

A link ends at another card or at a switch (NVSwitch). Cards whose links end at switches all reach each other, with as
many links as both have. If two cards disagree on the links between them, the lower number counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ullage.inventory.pci import kernel_address

_USUAL_LINKS = 18
"""The number of links to query if the library does not report how many a card may have."""


@dataclass(frozen=True, slots=True)
class NvLinkEnd:
    """The near end of one active link: the card's uuid, and the PCI address of the other end or of a switch."""

    card: str
    remote: str | None
    switch: bool = False


def read_ends(library: Any, handle: Any, uuid: str) -> tuple[NvLinkEnd, ...]:
    """Return the ends of a card's active links, by NVML; a link without an answer is left out."""
    ask = getattr(library, "nvmlDeviceGetNvLinkState", None)
    if ask is None:
        return ()
    ends = []
    for link in range(getattr(library, "NVML_NVLINK_MAX_LINKS", _USUAL_LINKS)):
        with suppress(library.NVMLError):
            if ask(handle, link):
                ends.append(_end(library, handle, uuid, link))
    return tuple(ends)


def _end(library: Any, handle: Any, uuid: str, link: int) -> NvLinkEnd:
    """Return the end of an active link. Older libraries do not report the kind of the remote device."""
    switch, remote = False, None
    kind = getattr(library, "nvmlDeviceGetNvLinkRemoteDeviceType", None)
    if kind is not None:
        with suppress(library.NVMLError):
            switch = kind(handle, link) == library.NVML_NVLINK_DEVICE_TYPE_SWITCH
    with suppress(library.NVMLError):
        remote = kernel_address(library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
    return NvLinkEnd(uuid, remote, switch)


def count_links(
    ends: Iterable[NvLinkEnd], cards: Mapping[str, str], switches: Iterable[str]
) -> tuple[dict[tuple[str, str], int], tuple[str, ...]]:
    """Return the bonded links per pair of cards, and a sentence per pair whose ends disagree.

    `cards` are uuids by PCI address, in order; a pair has the earlier one first. `switches` are the addresses of
    switches, for ends that do not report the kind of the remote device.
    """
    known = set(switches)
    direct: Counter[tuple[str, str]] = Counter()
    switched: Counter[str] = Counter()
    for end in ends:
        if end.switch or end.remote in known:
            switched[end.card] += 1
        elif (peer := cards.get(end.remote or "")) is not None:
            direct[end.card, peer] += 1
    counts, notes = {}, []
    for a, b in combinations(cards.values(), 2):
        there, back = direct[a, b], direct[b, a]
        if there != back:
            notes.append(f"{a} has {there} NVLinks to {b}, which has {back} back: the lower number counts")
        links = min(there, back) + min(switched[a], switched[b])
        if links:
            counts[a, b] = links
    return counts, tuple(notes)
