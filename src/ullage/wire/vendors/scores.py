"""The scores of pairs of cards that HAMi's agent registers on a node, as links."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ullage.model.error import invalid_annotation
from ullage.model.quantity import MAX_INT32
from ullage.model.topology import Link, Path
from ullage.wire.vendors.annotation import MAX_DEVICES, decoded


class _Scored(msgspec.Struct, frozen=True):
    uuid: str
    score: dict[str, Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]] = {}


_PER_NVLINK = 100
_PATHS = {10: Path.SYS, 20: Path.NODE, 30: Path.PHB, 40: Path.PXB, 50: Path.PIX, 60: Path.BOARD}
"""The path between two cards by its score; from 100 on each hundred is an NVLink."""


def read_scores(text: str, key: str) -> tuple[Link, ...]:
    """Return the links between the cards of a node. Where the two ends differ, the lower score counts.

    A score of 0 is no link: also that of a pair for which HAMi's agent found different links at its two ends.
    """
    listed = decoded(text, list[_Scored], key)
    if len(listed) > MAX_DEVICES or any(len(card.score) > MAX_DEVICES for card in listed):
        raise invalid_annotation(key, f"{len(listed)} cards", f"at most {MAX_DEVICES} cards of one node are read")
    scores: dict[tuple[str, str], int] = {}
    for card in listed:
        for peer, score in card.score.items():
            if peer != card.uuid:
                pair = (min(card.uuid, peer), max(card.uuid, peer))
                scores[pair] = min(score, scores.get(pair, score))
    return tuple(_link(*pair, score) for pair, score in sorted(scores.items()) if score)


def _link(a: str, b: str, score: int) -> Link:
    nvlinks, rest = divmod(score, _PER_NVLINK)
    return Link(a, b, _PATHS.get(rest, Path.UNKNOWN), nvlinks)
