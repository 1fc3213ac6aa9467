"""The annotations that HAMi's agents write on a node: its cards, links, cordoned cards and the agent's handshake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from ullage.model.error import invalid_annotation
from ullage.model.gpu import Gpu
from ullage.model.name import MAX_NAME
from ullage.model.part import Isolation
from ullage.model.quantity import MAX_INT32
from ullage.model.topology import Link, Path
from ullage.wire.hami.container_request import MIB
from ullage.wire.hami.vendor import ANNOTATIONS, NVIDIA, HamiVendor

REGISTER = f"{ANNOTATIONS}/node-nvidia-register"
SCORE = f"{ANNOTATIONS}/node-nvidia-score"
HANDSHAKE = f"{ANNOTATIONS}/node-handshake"
CORDON = f"{ANNOTATIONS}/device-cordon"
"""Keys of annotations of a node; for other vendors they have the vendor's name in place of `nvidia`."""

MAX_DEVICES = 1024
_MAX_MIB = 2**30
_MIG = "mig"
_SOFTLY = frozenset({Isolation.SHARED, Isolation.SOFT})
_ISOLATIONS = {_MIG: frozenset({Isolation.PARTITIONED}), "mps": _SOFTLY | {Isolation.HARD}}
"""The isolation modes of a card by its mode; in any other mode a library in the containers isolates users."""

_FIELDS = (7, 9, 10)


class _Registered(msgspec.Struct, frozen=True):
    """A card as its agent writes it; Go omits no field here, so a missing field is its zero."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    devmem: Annotated[int, msgspec.Meta(ge=0, le=_MAX_MIB)] = 0
    devcore: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)] = 0
    type: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    numa: Annotated[int, msgspec.Meta(ge=-MAX_INT32, le=MAX_INT32)] = 0
    mode: str = ""
    health: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredCard:
    """A card, and its cores in percent (above 100 where they are oversold)."""

    gpu: Gpu
    cores: int


def read_register(text: str, vendor: HamiVendor = NVIDIA, *, key: str = REGISTER) -> tuple[RegisteredCard, ...]:
    """Return the cards of a node: JSON, or the older `uuid,count,MiB,cores,type,numa,health[,index,mode]:` of each."""
    written = text.strip()
    found: list[_Registered]
    found = _decoded(written, list[_Registered], key) if written[:1] in ("[", "{") else _from_fields(written, key)
    if len(found) > MAX_DEVICES:
        raise invalid_annotation(key, f"{len(found)} cards", f"at most {MAX_DEVICES} cards of one node are read")
    if len({card.id for card in found}) != len(found):
        raise invalid_annotation(key, text, "each card is there once")
    return tuple(_card(card, vendor) for card in found)


def _card(card: _Registered, vendor: HamiVendor) -> RegisteredCard:
    gpu = Gpu(
        card.id,
        card.index,
        model=card.type or None,
        vendor=vendor.name,
        vram_bytes=card.devmem * MIB,
        zones=(card.numa,) if card.numa >= 0 else (),
        healthy=card.health,
        isolation=Isolation.PARTITIONED if card.mode == _MIG else None,
        isolations=_ISOLATIONS.get(card.mode, _SOFTLY),
        max_users=card.count,
    )
    return RegisteredCard(gpu, card.devcore)


def _from_fields(text: str, key: str) -> list[_Registered]:
    found = []
    for number, entry in enumerate(filter(None, (part.strip() for part in text.split(":")))):
        fields = [field.strip() for field in entry.split(",")]
        if len(fields) not in _FIELDS or number == MAX_DEVICES + 1:
            raise invalid_annotation(key, entry, "write JSON, or 7, 9 or 10 fields for each of the cards")
        id_, count, memory, cores, type_, numa, health, *rest = fields
        index, mode = (rest[0], rest[1]) if rest else (str(number), "")
        card: dict[str, Any] = {"id": id_, "type": type_, "mode": mode}
        card |= {"count": count, "devmem": memory, "devcore": cores, "numa": numa, "index": index}
        card["health"] = health.lower() == "true"
        try:
            found.append(msgspec.convert(card, _Registered, strict=False))
        except msgspec.ValidationError as error:
            raise invalid_annotation(key, entry, str(error)) from None
    return found


# --- links ---


class _Scored(msgspec.Struct, frozen=True):
    uuid: str
    score: dict[str, Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]] = {}


_PER_NVLINK = 100
_PATHS = {10: Path.SYS, 20: Path.NODE, 30: Path.PHB, 40: Path.PXB, 50: Path.PIX, 60: Path.BOARD}
"""The path between two cards by its score; from 100 on each hundred is an NVLink."""


def read_scores(text: str, *, key: str = SCORE) -> tuple[Link, ...]:
    """Return the links between the cards of a node. Where the two ends differ, the lower score counts."""
    listed = _decoded(text, list[_Scored], key)
    if len(listed) > MAX_DEVICES or any(len(card.score) > MAX_DEVICES for card in listed):
        raise invalid_annotation(key, f"{len(listed)} cards", f"at most {MAX_DEVICES} cards of one node are read")
    scores: dict[tuple[str, str], int] = {}
    for card in listed:
        for peer, score in card.score.items():
            if peer != card.uuid and score:
                pair = (min(card.uuid, peer), max(card.uuid, peer))
                scores[pair] = min(score, scores.get(pair, score))
    return tuple(_link(*pair, score) for pair, score in sorted(scores.items()))


def _link(a: str, b: str, score: int) -> Link:
    nvlinks, rest = divmod(score, _PER_NVLINK)
    return Link(a, b, _PATHS.get(rest, Path.UNKNOWN), nvlinks)


# --- cordon and handshake ---


def read_cordon(text: str, *, key: str = CORDON) -> frozenset[str]:
    """Return the cards that take no new work: a JSON list of uuids, or uuids with commas between them."""
    written = text.strip()
    uuids = _decoded(written, list[str], key) if written[:1] == "[" else written.split(",")
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


def _decoded(text: str, kind: Any, key: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise invalid_annotation(key, text, f"it cannot be read: {error}") from None
    except RecursionError:
        raise invalid_annotation(key, text, "it is nested too deeply") from None
