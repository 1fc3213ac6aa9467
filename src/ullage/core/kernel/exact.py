"""Shares compared exactly: products of integers that do not fit into one word.

A share is (used, total, weight): used / (total * weight), with used and total below 2^62 and weights below
2^31. A total of 0 makes a share that is beyond every other.
"""

from __future__ import annotations

from ullage.core.kernel.compiled import inlined

BITS = 31
"""Of a limb: the product of two, and what is carried, fit into 64 bits with a sign."""

_LIMB = (1 << BITS) - 1

_UNSURE = 1e-14
"""Products of three doubles are closer than this to the true ones, relative to their sum: 6 roundings of 2^-53."""

_UNSURE_BITS = 48
"""The estimate of a cut is off by less than this many bits below the amount that is cut, and two."""

Limbs = tuple[int, int, int, int, int, int, int]
"""A number below 2^217, the largest limb first."""


@inlined
def compare(used: int, total: int, weight: int, used2: int, total2: int, weight2: int) -> int:
    """-1, 0 or 1: how the first share compares with the second."""
    if total == total2 and weight == weight2 and total:
        return int(used > used2) - int(used < used2)
    left, right = float(used) * float(total2) * float(weight2), float(used2) * float(total) * float(weight)
    if abs(left - right) > _UNSURE * (left + right):
        return 1 if left > right else -1
    one, other = _product(used, total2, 1, weight2), _product(used2, total, 1, weight)
    return int(one > other) - int(one < other)


@inlined
def cut(amount: int, used: int, total: int, weight: int, used2: int, total2: int, weight2: int) -> int:
    """`amount` times the first share over the second, which is larger; rounded down."""
    if not total2:
        return 0
    ratio = float(used) * float(total2) * float(weight2) / (float(used2) * float(total) * float(weight))
    guess, slack = int(float(amount) * ratio), (amount >> _UNSURE_BITS) + 2
    low, high = max(0, guess - slack), min(amount, guess + slack)
    most = _product(amount, used, total2, weight2)
    while low < high:
        middle = (low + high + 1) // 2
        if _product(middle, used2, total, weight) <= most:
            low = middle
        else:
            high = middle - 1
    return low


@inlined
def _product(a: int, b: int, c: int, weight: int) -> Limbs:
    return _times(_times(_times_limb((0, 0, 0, 0, 0, a >> BITS, a & _LIMB), weight), b), c)


@inlined
def _times(x: Limbs, factor: int) -> Limbs:
    low, high = _times_limb(x, factor & _LIMB), _times_limb(x, factor >> BITS)
    f = low[5] + high[6]
    e = low[4] + high[5] + (f >> BITS)
    d = low[3] + high[4] + (e >> BITS)
    c = low[2] + high[3] + (d >> BITS)
    b = low[1] + high[2] + (c >> BITS)
    a = low[0] + high[1] + (b >> BITS)
    return (a, b & _LIMB, c & _LIMB, d & _LIMB, e & _LIMB, f & _LIMB, low[6])


@inlined
def _times_limb(x: Limbs, factor: int) -> Limbs:
    g = x[6] * factor
    f = x[5] * factor + (g >> BITS)
    e = x[4] * factor + (f >> BITS)
    d = x[3] * factor + (e >> BITS)
    c = x[2] * factor + (d >> BITS)
    b = x[1] * factor + (c >> BITS)
    a = x[0] * factor + (b >> BITS)
    return (a, b & _LIMB, c & _LIMB, d & _LIMB, e & _LIMB, f & _LIMB, g & _LIMB)
