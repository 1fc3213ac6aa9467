"""The annotations that HAMi's agents write on a node besides its cards and links: cordoned cards, and the handshake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ullage.model.error import invalid_annotation
from ullage.model.gpu import Gpu
from ullage.wire.vendors.annotation import MAX_DEVICES, decoded
from ullage.wire.vendors.family import ANNOTATIONS

CORDON = f"{ANNOTATIONS}/device-cordon"


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
