"""Amounts as text: byte sizes with binary suffixes, and plain counts.

All suffixes are binary and of any case: `k kb ki kib` = 1024, then m, g, t, p. A decimal is accepted only if it gives
a whole number of bytes. A displayed amount parses back to the same value.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from ullage.model.error import InvalidRequest, invalid

MAX_INT64 = 2**63 - 1
MAX_INT32 = 2**31 - 1
_DIGITS = len(str(MAX_INT64))
_DECIMALS = 60

_UNITS = "kmgtp"
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]+))?([a-z]*)", re.ASCII)
_COUNT = re.compile(r"[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?", re.ASCII)
_CPU = re.compile(r"([0-9]{1,30})(?:\.([0-9]+))?(m?)", re.ASCII)
_CPU_DECIMALS = 3
_SIZE_FIX = "write a whole number of bytes such as 1048576, 512m or 16g"


def parse_bytes(text: str, field: str = "memory") -> int:
    """Return bytes of a size text such as `16g`, `1.5Gi` or `1048576`.

    Raises:
        InvalidRequest: not a size, not a whole number of bytes, or above 2^63-1.

    """
    match = _SIZE.fullmatch(text.lower()) if text.isascii() else None
    factor = _suffix_factor(match.group(3)) if match else None
    if match is None or factor is None:
        raise invalid(field, text, _SIZE_FIX)
    whole, decimals = match.group(1), match.group(2) or ""
    if len(whole) > _DIGITS or len(decimals) > _DECIMALS:
        raise invalid(field, text, f"at most {MAX_INT64} bytes can be requested")
    scale = int("1" + "0" * len(decimals))
    total, rest = divmod(int(whole + decimals) * factor, scale)
    if rest:
        raise invalid(field, text, "it is not a whole number of bytes; use a smaller unit")
    if total > MAX_INT64:
        raise invalid(field, text, f"at most {MAX_INT64} bytes can be requested")
    return total


MIN_SIZE_BYTES = 1 << 20
"""Bytes below which an amount of memory, or of vram, lacks its unit."""


def parse_size(text: str, field: str) -> int:
    """Return `parse_bytes` of what a machine, a card or a limit has.

    Raises:
        InvalidRequest: as there, or it is above 0 and below 1 MiB.

    """
    amount = parse_bytes(text, field)
    check_size(field, amount, text)
    return amount


def check_size(field: str, amount: int, text: object = None) -> None:
    """Refuse an amount of memory above 0 and below 1 MiB; `text` is how it was written."""
    if 0 < amount < MIN_SIZE_BYTES:
        unit = f"write {amount}m for MiB, {amount}g for GiB" if amount < MIN_SIZE_BYTES >> 10 else "write 16g or so"
        raise invalid(field, amount if text is None else text, f"a number alone counts bytes; {unit}")


def format_bytes(amount: int) -> str:
    """Return the shortest exact text: the largest suffix that divides `amount` (1536 MiB is `1536Mi`)."""
    power = 0
    while amount and amount % 1024 == 0 and power < len(_UNITS):
        amount //= 1024
        power += 1
    return f"{amount}{_UNITS[power - 1].upper()}i" if power else str(amount)


def say_bytes(amount: int) -> str:
    """Return `format_bytes` for a sentence, with the unit of a number that has no suffix: `1000 bytes`."""
    text = format_bytes(amount)
    return f"{text} bytes" if amount and text.isdecimal() else text


def parse_count(text: str, field: str, maximum: int) -> int:
    """Return a plain count in ASCII digits, at most `maximum`.

    Raises:
        InvalidRequest: anything else, also a sign, a fraction or a unit suffix.

    """
    if _COUNT.fullmatch(text) is None:
        raise invalid(field, text, "write a plain whole number such as 2")
    if len(text) > _DIGITS or int(text) > maximum:
        raise invalid(field, text, f"at most {maximum} can be requested")
    return int(text)


def parse_cpu(text: str, field: str = "cpu") -> int:
    """Return thousandths of a core of a text such as `2`, `0.5` or `500m`.

    Raises:
        InvalidRequest: not such a text, finer than a thousandth of a core, or above 2^63-1 cores.

    """
    match = _CPU.fullmatch(text) if text.isascii() else None
    if match is None or len(match.group(2) or "") > _DECIMALS:
        raise invalid(field, text, "write a number of cores such as 2, 0.5 or 500m")
    whole, decimals, thousandths = match.group(1), (match.group(2) or "").rstrip("0"), match.group(3)
    if len(decimals) > (0 if thousandths else _CPU_DECIMALS):
        raise invalid(field, text, "a thousandth of a core (1m) is the finest grain")
    amount = int(whole) if thousandths else int(whole + decimals.ljust(_CPU_DECIMALS, "0"))
    if len(whole) > _DIGITS or amount > MAX_INT64 * 1000:
        raise invalid(field, text, f"at most {MAX_INT64} can be requested")
    return amount


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_range(field: str, value: object, minimum: int, maximum: int) -> None:
    """Refuse a value that is not a whole number within limits."""
    if not is_whole(value) or not minimum <= value <= maximum:
        raise invalid(field, value, f"a whole number from {minimum} to {maximum} is needed")


def check_amount(amount: object, field: str, maximum: int) -> None:
    """Refuse a value that is not a whole number from 0 to `maximum`.

    Raises:
        InvalidRequest: with the code `amount-out-of-range`.

    """
    try:
        check_range(field, amount, 0, maximum)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, code="amount-out-of-range", field=field) from None


PPM = 1_000_000
"""Millionths in one: the resolution of fractions."""


def parse_decimal(text: str, field: str, maximum: int) -> int:
    """Return millionths of a plain decimal such as `2`, `0.5` or `14.2857`; finer digits round up.

    Raises:
        InvalidRequest: a sign, an exponent, no digits, or above `maximum` millionths.

    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise invalid(field, text, "write a plain number such as 2 or 0.5")
    whole, decimals = match.group(1), match.group(2) or ""
    if len(whole) > _DIGITS or len(decimals) > _DECIMALS:
        raise invalid(field, text, f"at most {maximum // PPM} can be requested")
    scale = int("1" + "0" * len(decimals))
    amount = int(whole) * PPM + -(-int(decimals or 0) * PPM // scale)
    if amount > maximum:
        raise invalid(field, text, f"at most {maximum // PPM} can be requested")
    return amount


def format_decimal(millionths: int) -> str:
    """Return millionths as the shortest plain decimal: 500000 is `0.5`."""
    whole, part = divmod(millionths, PPM)
    return f"{whole}.{part:06d}".rstrip("0") if part else str(whole)


def format_percent(ppm: int) -> str:
    """Return millionths as a percentage without the sign: 500000 is `50`."""
    return format_decimal(ppm * 100)


def _suffix_factor(suffix: str) -> int | None:
    if suffix in ("", "b"):
        return 1
    unit, rest = suffix[:1], suffix[1:]
    if unit in _UNITS and rest in ("", "b", "i", "ib"):
        return 1 << 10 * (_UNITS.index(unit) + 1)
    return None
