"""The ledger of bindings as it is kept: JSON, made small, as rows of one cluster are much alike."""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from ullage.model.binding import ShareMode
from ullage.model.compute import BoundCard, CardKey
from ullage.model.compute_answer import SwitchReport
from ullage.model.error import InvalidRequest

MAX_BYTES = 1_000_000
"""What one object of the API takes, with some room for the rest of it."""

_MOST = 64 * 2**20
"""Bytes of a ledger as JSON; more was not written by us."""


class AnsweredRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked under a key."""

    key: str
    asked: str
    switch: SwitchReport | None = None


class LedgerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ledger: its rows, how cards are shared where that was switched, and what repeats are answered."""

    version: int = 0
    rows: tuple[BoundCard, ...] = ()
    shares: tuple[tuple[CardKey, ShareMode], ...] = ()
    answered: tuple[AnsweredRecord, ...] = ()


def encode_ledger(ledger: LedgerRecord) -> str:
    """It as base64; who keeps it counts the bytes before that.

    Raises:
        InvalidRequest: it is larger than one object may be.

    """
    small = zlib.compress(msgspec.json.encode(ledger), 6)
    if len(small) > MAX_BYTES:
        raise InvalidRequest(f"bindings: {len(small)} bytes of them do not fit into one object", code="ledger-full")
    return base64.b64encode(small).decode()


def decode_ledger(written: str) -> LedgerRecord:
    """What was written.

    Raises:
        InvalidRequest: it is no ledger.

    """
    try:
        small = zlib.decompressobj()
        text = small.decompress(base64.b64decode(written, validate=True), _MOST)
        return msgspec.json.decode(text, type=LedgerRecord)
    except (binascii.Error, zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"ledger: it cannot be read: {error}", field="ledger", code="ledger-unreadable") from None
