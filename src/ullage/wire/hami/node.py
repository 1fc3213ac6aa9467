"""The annotations that HAMi's agents write on a node besides its cards: links, cordoned cards, and the handshake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from ullage.model.error import invalid_annotation
from ullage.model.gpu import Gpu
from ullage.model.quantity import MAX_INT32
from ullage.model.topology import Link, Path
from ullage.wire.vendors.family import ANNOTATIONS
from ullage.wire.vendors.registers import MAX_DEVICES, decoded

SCORE = f"{ANNOTATIONS}/node-nvidia-score"
CORDON = f"{ANNOTATIONS}/device-cordon"


# --- links ---


class _Scored(msgspec.Struct, frozen=True):
    uuid: str
    score: dict[str, Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]] = {}


_PER_NVLINK = 100
_PATHS = {10: Path.SYS, 20: Path.NODE, 30: Path.PHB, 40: Path.PXB, 50: Path.PIX, 60: Path.BOARD}
"""The path between two cards by its score; from 100 on each hundred is an NVLink."""


def read_scores(text: str, *, key: str = SCORE) -> tuple[Link, ...]:
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


# --- cordon and handshake ---


def read_cordon(text: str, *, key: str = CORDON) -> frozenset[str]:
    """Return the cards that take no new work: a JSON list of uuids, or uuids with commas between them."""
    written = text.strip()
    uuids = decoded(written, list[str], key) if written[:1] == "[" else written.split(",")
    found = frozenset(uuid.strip() for uuid in uuids if uuid.strip())
    if len(found) > MAX_DEVICES:
        raise invalid_annotation(key, f"{len(found)} cards", f"at most {MAX_DEVICES} cards of one node are read")
    return found


def cordoned(cards: Iterable[Gpu], uuids: frozenset[str]) -> tuple[Gpu, ...]:
    return tuple(replace(card, cordoned=card.uuid in uuids) for card in cards)


RESPONSE_S = 60.0
"""Seconds in which an agent has to respond."""

_REQUESTING = "Requesting"


@dataclass(frozen=True, slots=True)
class Handshake:
    """The last state between scheduler and agent, `Requesting` or another, and its time (None: unreadable)."""

    state: str
    at: float | None = None

    @classmethod
    def request(cls, now: float) -> Handshake:
        """Return the request; a live agent replaces it by its own state."""
        return cls(_REQUESTING, now)

    @property
    def pending(self) -> bool:
        return self.state == _REQUESTING

    def overdue(self, now: float, within_s: float = RESPONSE_S) -> bool:
        """Return whether the agent has not responded in time.

        Only then, and if the kubelet offers no cards, its cards are gone.
        """
        return self.pending and self.at is not None and now - self.at > within_s

    def encode(self) -> str:
        """Return the state and the time, as `read_handshake` reads them."""
        return f"{self.state}_{datetime.fromtimestamp(self.at or 0.0, UTC).strftime('%Y-%m-%d %H:%M:%S')}"


def read_handshake(text: str) -> Handshake:
    """Return the handshake of a node, such as `Requesting_2026.01.31 12:00:00`; any text is a handshake."""
    state, _, moment = text.strip().partition("_")
    try:
        at = datetime.fromisoformat(moment.replace(".", "-", 2))
        return Handshake(state, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return Handshake(state)
