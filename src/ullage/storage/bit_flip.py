"""Repair of single bit flips in pages by their sums."""

from __future__ import annotations

from functools import cache
from zlib import crc32


def repair_bit_flip(page: bytes, total: int) -> bytes | None:
    """Return the page with one bit flipped so that its sum is `total`; None if no single bit does that."""
    bit = _bits(len(page)).get(crc32(page) ^ total)
    if bit is None:
        return None
    repaired = bytearray(page)
    repaired[bit // 8] ^= 1 << bit % 8
    return bytes(repaired)


@cache
def _bits(size: int) -> dict[int, int]:
    """Return the bits of a page by their change of the CRC-32; no two bits cause the same change."""
    zeros, single, found = crc32(bytes(size)), bytearray(size), {}
    for bit in range(8 * size):
        single[bit // 8] = 1 << bit % 8
        found[crc32(single) ^ zeros] = bit
        single[bit // 8] = 0
    return found
