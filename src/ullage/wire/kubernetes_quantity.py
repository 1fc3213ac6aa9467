"""Kubernetes quantities as exact integers: `500m`, `1.5`, `2k`, `8Gi`, `1e3`.

The grammar is that of `resource.Quantity`: an optional sign, digits with an optional point (`1.` and `.5` are
numbers), and one suffix: decimal `n u m k M G T P E`, binary `Ki Mi Gi Ti Pi Ei`, or an exponent `e3`, `E-3`. Case
counts: `K` is not a suffix, `1E` is 10^18, `1E1` is 10. Blanks are refused. A value finer than the requested unit
rounds up. Kubernetes caps values above 2^63-1; here they are refused, because a capped amount is not what was written.
"""

from __future__ import annotations

import re
from fractions import Fraction

from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT64
from ullage.model.resources import MILLI

_QUANTITY = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

_MAX_LENGTH = 512
"""Characters of the longest quantity that is read."""
_EXTRA_DIGITS = 60
"""Powers of ten beyond a number's own digits at which it exceeds every maximum, or is below every unit."""

_MAX_EXPONENT = 99
"""The largest exponent of a quantity that is computed exactly."""

_FIX = "write a Kubernetes quantity such as 500m, 1.5, 2k or 8Gi"


def parse_quantity(value: object, field: str, *, units: int = 1, maximum: int = MAX_INT64) -> int:
    """Return a quantity in units, rounded up; `units` make one whole (1000: thousandths).

    `maximum` is counted in units. A number is read as its text, as it may come from YAML and JSON.

    Raises:
        InvalidRequest: not a quantity, below 0, or above `maximum`.

    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise invalid(field, value, _FIX)
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise invalid(field, value, _FIX)
    sign, whole, decimals, only_decimals, suffix = (group or "" for group in match.groups())
    decimals = decimals or only_decimals
    amount = _scaled(int((whole or "0") + decimals) * units, suffix, len(decimals), len(text))
    if sign == "-" and amount:
        raise invalid(field, value, "an amount cannot be negative; leave the key out to request none")
    if amount > maximum:
        raise invalid(field, value, f"at most {maximum // units} can be requested")
    return amount


def exact_quantity(text: str) -> Fraction | None:
    """Return the exact value of a quantity, also a negative one; None for other texts and for far exponents."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        return None
    sign, whole, decimals, only_decimals, suffix = (group or "" for group in match.groups())
    number = Fraction(f"{sign}{whole or 0}.{decimals or only_decimals or 0}")
    if suffix in _BINARY:
        return number * Fraction(1024 ** _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    if abs(exponent) > _MAX_EXPONENT:
        return None
    scale: Fraction = Fraction(10) ** exponent
    return number * scale


def format_milli(milli: int) -> str:
    """Return thousandths as a quantity: 1500 is `1500m`, 2000 is `2`."""
    return f"{milli}m" if milli % MILLI else str(milli // MILLI)


def is_nothing(value: object) -> bool:
    """Return whether a value is None, or a quantity of 0 in any spelling."""
    if value in (None, 0, "0"):
        return True
    try:
        return not (isinstance(value, str) and value.isdigit()) and parse_quantity(value, "") == 0
    except InvalidRequest:
        return False


def _scaled(mantissa: int, suffix: str, decimals: int, digits: int) -> int:
    """Return the mantissa by the suffix and the place of its point, rounded up; far exponents are never computed."""
    factor, exponent = 1, 0
    if suffix in _BINARY:
        factor = 1024 ** _BINARY[suffix]
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    power = exponent - decimals
    shift: int = 10 ** min(abs(power), digits + _EXTRA_DIGITS)
    return mantissa * factor * shift if power >= 0 else -(-mantissa * factor // shift)
