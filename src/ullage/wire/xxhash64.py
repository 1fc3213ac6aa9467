"""xxHash64 in plain Python: a fast hash that is not cryptographic, as fingerprints of pod sets use it."""

from __future__ import annotations

_BITS = (1 << 64) - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
"""The primes of the algorithm."""

_STRIPE, _LANE, _HALF = 32, 8, 4
"""Bytes that are mixed at once: four lanes, one lane, half a lane."""


def xxhash64(data: bytes, seed: int = 0) -> int:
    """Return the hash of bytes, a number of 64 bits."""
    end = len(data) - len(data) % _STRIPE
    mixed = _stripes(data[:end], seed) if end else seed + _P5
    mixed = mixed + len(data) & _BITS
    rest = data[end:]
    lanes = len(rest) - len(rest) % _LANE
    for at in range(0, lanes, _LANE):
        mixed ^= _round(0, _number(rest[at : at + _LANE]))
        mixed = _rotated(mixed, 27) * _P1 + _P4 & _BITS
    rest = rest[lanes:]
    if len(rest) >= _HALF:
        mixed ^= _number(rest[:_HALF]) * _P1 & _BITS
        mixed = _rotated(mixed, 23) * _P2 + _P3 & _BITS
        rest = rest[_HALF:]
    for byte in rest:
        mixed = _rotated(mixed ^ (byte * _P5 & _BITS), 11) * _P1 & _BITS
    return _avalanche(mixed)


def _stripes(data: bytes, seed: int) -> int:
    lanes = [seed + _P1 + _P2 & _BITS, seed + _P2 & _BITS, seed & _BITS, seed - _P1 & _BITS]
    for at in range(0, len(data), _LANE):
        lane = at // _LANE % len(lanes)
        lanes[lane] = _round(lanes[lane], _number(data[at : at + _LANE]))
    mixed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _BITS
    for lane in lanes:
        mixed = (mixed ^ _round(0, lane)) * _P1 + _P4 & _BITS
    return mixed


def _round(lane: int, value: int) -> int:
    return _rotated(lane + value * _P2 & _BITS, 31) * _P1 & _BITS


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _BITS


def _avalanche(mixed: int) -> int:
    mixed = (mixed ^ mixed >> 33) * _P2 & _BITS
    mixed = (mixed ^ mixed >> 29) * _P3 & _BITS
    return mixed ^ mixed >> 32


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
