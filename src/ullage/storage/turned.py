"""One bit that turned in a page: its sum says which."""

from __future__ import annotations

from functools import cache
from zlib import crc32


def turn_back(page: bytes, total: int) -> bytes | None:
    """Return the page with one bit turned so that its sum is `total`; None if no single bit explains it."""
    bit = _bits(len(page)).get(crc32(page) ^ total)
    if bit is None:
        return None
    mended = bytearray(page)
    mended[bit // 8] ^= 1 << bit % 8
    return bytes(mended)


@cache
def _bits(size: int) -> dict[int, int]:
    """Return the bit of a page by the change of the CRC-32 that it makes; no two bits make the same change."""
    zeros, single, found = crc32(bytes(size)), bytearray(size), {}
    for bit in range(8 * size):
        single[bit // 8] = 1 << bit % 8
        found[crc32(single) ^ zeros] = bit
        single[bit // 8] = 0
    return found
