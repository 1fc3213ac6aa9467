"""Shares compared exactly, with products of integers that do not fit into one word."""

from __future__ import annotations

from typing import NamedTuple

from ullage.core.kernel.compiled import inlined

BITS = 31
"""Bits of a limb: the product of two limbs plus a carry fits into 64 bits with a sign."""

_LIMB = (1 << BITS) - 1

_UNSURE = 1e-14
"""Products of three doubles are closer than this to the exact ones, relative to their sum: 6 roundings of 2^-53."""

_UNSURE_BITS = 48
"""The estimate of a cut is off by less than two plus the amount shifted right by these bits."""

Limbs = tuple[int, int, int, int, int, int, int]
"""A number below 2^217, the most significant limb first."""


class Share(NamedTuple):
    """The share used / (total * weight), with used and total below 2^62 and weight below 2^31.

    A total of 0 makes it larger than every other share.
    """

    used: int
    total: int
    weight: int


@inlined
def compare(one: Share, other: Share) -> int:
    """Return -1, 0 or 1 if the first share is less than, equal to or larger than the other."""
    if one.total == other.total and one.weight == other.weight and one.total:
        return int(one.used > other.used) - int(one.used < other.used)
    left = float(one.used) * float(other.total) * float(other.weight)
    right = float(other.used) * float(one.total) * float(one.weight)
    if abs(left - right) > _UNSURE * (left + right):
        return 1 if left > right else -1
    exact_left = _product(one.used, other.total, 1, other.weight)
    exact_right = _product(other.used, one.total, 1, one.weight)
    return int(exact_left > exact_right) - int(exact_left < exact_right)


@inlined
def cut(amount: int, one: Share, other: Share) -> int:
    """Return `amount` times the first share over the other, which is larger, rounded down."""
    if not other.total:
        return 0
    ratio = float(one.used) * float(other.total) * float(other.weight)
    ratio /= float(other.used) * float(one.total) * float(one.weight)
    guess, slack = int(float(amount) * ratio), (amount >> _UNSURE_BITS) + 2
    low, high = max(0, guess - slack), min(amount, guess + slack)
    most = _product(amount, one.used, other.total, other.weight)
    while low < high:
        middle = (low + high + 1) // 2
        if _product(middle, other.used, one.total, one.weight) <= most:
            low = middle
        else:
            high = middle - 1
    return low


@inlined
def _product(x: int, y: int, z: int, weight: int) -> Limbs:
    return _times(_times(_times_limb((0, 0, 0, 0, 0, x >> BITS, x & _LIMB), weight), y), z)


@inlined
def _times(x: Limbs, factor: int) -> Limbs:
    a, b, c, d, e, f, g = _times_limb(x, factor & _LIMB)
    _, a2, b2, c2, d2, e2, f2 = _times_limb(x, factor >> BITS)  # counts one limb more to the left
    f += f2
    e += e2 + (f >> BITS)
    d += d2 + (e >> BITS)
    c += c2 + (d >> BITS)
    b += b2 + (c >> BITS)
    a += a2 + (b >> BITS)
    return (a, b & _LIMB, c & _LIMB, d & _LIMB, e & _LIMB, f & _LIMB, g)


@inlined
def _times_limb(x: Limbs, factor: int) -> Limbs:
    a, b, c, d, e, f, g = x
    g *= factor
    f = f * factor + (g >> BITS)
    e = e * factor + (f >> BITS)
    d = d * factor + (e >> BITS)
    c = c * factor + (d >> BITS)
    b = b * factor + (c >> BITS)
    a = a * factor + (b >> BITS)
    return (a, b & _LIMB, c & _LIMB, d & _LIMB, e & _LIMB, f & _LIMB, g & _LIMB)
