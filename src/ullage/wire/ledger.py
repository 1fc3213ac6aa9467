"""The stored form of the ledger of bindings: compressed JSON, because rows of one cluster repeat each other."""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from ullage.model.binding import ShareMode
from ullage.model.compute import BoundCard, CardKey
from ullage.model.compute_result import SwitchReport
from ullage.model.error import InvalidRequest

MAX_BYTES = 1_000_000
"""The size limit of one object of the API, less some room for the rest of it."""

_MAX_COUNT = 64 * 2**20
"""Bytes of the largest ledger as JSON that is read; a larger one is not ours."""


class AnsweredRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request that was answered under a key."""

    key: str
    asked: str
    switch: SwitchReport | None = None


class LedgerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ledger: its rows, the cards whose sharing mode was changed, and the responses to repeated requests."""

    version: int = 0
    rows: tuple[BoundCard, ...] = ()
    shares: tuple[tuple[CardKey, ShareMode], ...] = ()
    answered: tuple[AnsweredRecord, ...] = ()


def encode_ledger(ledger: LedgerRecord) -> str:
    """Return the ledger as compressed JSON in base64; the limit counts bytes before base64."""
    small = zlib.compress(msgspec.json.encode(ledger), 6)
    if len(small) > MAX_BYTES:
        raise InvalidRequest(f"bindings: {len(small)} bytes of them do not fit into one object", code="ledger-full")
    return base64.b64encode(small).decode()


def decode_ledger(written: str) -> LedgerRecord:
    """Return the ledger that `encode_ledger` wrote."""
    try:
        small = zlib.decompressobj()
        text = small.decompress(base64.b64decode(written, validate=True), _MAX_COUNT)
        return msgspec.json.decode(text, type=LedgerRecord)
    except (binascii.Error, zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"ledger: it cannot be read: {error}", field="ledger", code="ledger-unreadable") from None
