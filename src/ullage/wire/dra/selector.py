"""Expressions with which classes and requests select devices, in CEL as the Kubernetes API defines it for devices.

`device` has `driver`, `attributes` and `capacity` by domain, and `allowMultipleAllocations`. Quantities and versions
have the functions that they have in Kubernetes. CEL itself comes from `cel-expr-python` (`ullage[k8s]`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ullage.model.error import InvalidRequest, Unavailable
from ullage.model.resources import MILLI
from ullage.model.slice_device import Attribute, SliceDevice, ValueKind
from ullage.wire.kubernetes_quantity import exact_quantity

MAX_LENGTH = 10 * 1024
"""Characters of the longest expression, as in the API."""

_QUANTITY, _VERSION = "@quantity", "@semver"
_DOMAIN = re.compile(r"""\.(attributes|capacity)\s*\[\??\s*(["'])([^"'\\]*)\2\s*\]""")
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)


class SelectorFailed(InvalidRequest):
    """An expression cannot be compiled, or has no answer for a device."""

    code = "selector-failed"


def selects(expression: str, device: SliceDevice) -> bool:
    """Return whether an expression selects a device.

    Raises:
        SelectorFailed: it is invalid, takes too long, or has no result, such as for a device without an attribute.
        Unavailable: CEL is not installed.

    """
    compiled = _compiled(expression)
    value = compiled.value({"device": _facts(device, compiled.domains)})
    if not isinstance(value, bool):
        raise SelectorFailed(f"selector {_short(expression)}: {value} for device {'/'.join(device.id)}", field="cel")
    return value


def _short(expression: str) -> str:
    return repr(expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}...")


_SHOWN = 100
"""Characters of an expression that a message quotes."""


_BURST_S, _EACH_S = 1.0, 0.001
"""Seconds of computing that all devices together may take, and what each device adds; most take 0.00005."""


class _Compiled:
    """A compiled expression, and the domains it reads: where a device has no such domain, it is an empty one.

    Evaluation blocks the server. An expression that takes too long is not evaluated for any other device.
    """

    def __init__(self, expression: str, program: Any) -> None:
        self._expression, self._program = expression, program
        self._left_s, self._too_long = _BURST_S, ""
        self.domains = tuple((kind, domain) for kind, _, domain in _DOMAIN.findall(expression))

    def value(self, facts: dict[str, Any]) -> object:
        """Return the value of the expression; an error of the expression is a value.

        Raises:
            SelectorFailed: it takes too long.

        """
        if self._too_long:
            raise self._failed(self._too_long)
        began = _clock()
        try:
            found = self._program.eval(data=facts).value()
        except RuntimeError as error:
            if "budget" in str(error):
                self._too_long = str(error)
            raise self._failed(str(error)) from None
        self._left_s += _EACH_S - (_clock() - began)
        if self._left_s <= 0:
            self._too_long = "it takes too long"
        return found

    def _failed(self, why: str) -> SelectorFailed:
        return SelectorFailed(f"selector {_short(self._expression)}: {why}", field="cel")


_clock = time.thread_time


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> _Compiled:
    if len(expression) > MAX_LENGTH:
        raise SelectorFailed(f"selector {_short(expression)}: at most {MAX_LENGTH} characters", field="cel")
    try:
        program = _environment().compile(expression)
    except RuntimeError as error:
        raise SelectorFailed(f"selector {_short(expression)}: {error}", field="cel") from None
    return _Compiled(expression, program)


def _facts(device: SliceDevice, domains: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    fields: dict[str, dict[str, dict[str, object]]] = {"attributes": {}, "capacity": {}}
    for kind, domain in domains:
        fields[kind].setdefault(domain, {})
    for name, attribute in device.attributes.items():
        domain, _, own = name.rpartition("/")
        fields["attributes"].setdefault(domain, {})[own] = _value(attribute)
    for name, capacity in device.capacity.items():
        domain, _, own = name.rpartition("/")
        fields["capacity"].setdefault(domain, {})[own] = _of(Fraction(capacity.amount, MILLI))
    return {"driver": device.driver, "allowMultipleAllocations": device.shareable, **fields}


def _value(attribute: Attribute) -> object:
    values = [
        {_VERSION: str(each).partition("+")[0]} if attribute.kind is ValueKind.VERSION else each
        for each in attribute.values
    ]
    return values if attribute.listed else next(iter(values))


@lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        from cel_expr_python import cel  # noqa: PLC0415 - heavy, and an extra
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings  # noqa: PLC0415 - an extra, and heavy
    except ImportError:
        raise Unavailable("selectors of claims need cel-expr-python, which ullage[k8s] brings", code="no-cel") from None
    kind, functions = cel.Type, []

    def declare(name: str, result: Any, *forms: tuple[list[Any], Callable[..., object]], member: bool = True) -> None:
        overloads = [
            cel.Overload(f"{name}_{number}", result, parameters, member, impl)
            for number, (parameters, impl) in enumerate(forms)
        ]
        functions.append(cel.FunctionDecl(name, overloads))

    dyn, text = kind.DYN, kind.STRING
    declare("quantity", dyn, ([text], lambda written: _of(_quantity(written))), member=False)
    declare("isQuantity", kind.BOOL, ([text], lambda written: _holds(_quantity, written)), member=False)
    declare("semver", dyn, ([text], _semver), ([text, kind.BOOL], _semver), member=False)
    declare(
        "isSemver",
        kind.BOOL,
        ([text], lambda written: _holds(_semver, written)),
        ([text, kind.BOOL], lambda written, lenient: _holds(_semver, written, lenient)),
        member=False,
    )
    declare("compareTo", kind.INT, ([dyn, dyn], _compare))
    declare("isGreaterThan", kind.BOOL, ([dyn, dyn], lambda one, other: _compare(one, other) > 0))
    declare("isLessThan", kind.BOOL, ([dyn, dyn], lambda one, other: _compare(one, other) < 0))
    declare("add", dyn, ([dyn, dyn], lambda one, other: _of(_amount(one) + _whole_or_amount(other))))
    declare("sub", dyn, ([dyn, dyn], lambda one, other: _of(_amount(one) - _whole_or_amount(other))))
    declare("sign", kind.INT, ([dyn], lambda one: (_amount(one) > 0) - (_amount(one) < 0)))
    declare("isInteger", kind.BOOL, ([dyn], lambda one: _amount(one).denominator == 1))
    declare("asInteger", kind.INT, ([dyn], _as_integer))
    declare("asApproximateFloat", kind.DOUBLE, ([dyn], lambda one: float(_amount(one))))
    declare("major", kind.INT, ([dyn], lambda one: _order(one)[0]))
    declare("minor", kind.INT, ([dyn], lambda one: _order(one)[1]))
    declare("patch", kind.INT, ([dyn], lambda one: _order(one)[2]))
    declare(
        "includes", kind.BOOL, ([dyn, dyn], lambda one, other: other in one if isinstance(one, list) else one == other)
    )
    extensions = [ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    return cel.NewEnv(variables={"device": dyn}, extensions=[*extensions, cel.CelExtension("kubernetes", functions)])


def _holds(read: Callable[..., object], *written: object) -> bool:
    try:
        read(*written)
    except ValueError:
        return False
    return True


# --- quantities ---


def _quantity(written: str) -> Fraction:
    found = exact_quantity(written)
    if found is None:
        raise ValueError(f"{written!r} is not a quantity")
    return found


def _of(amount: Fraction) -> dict[str, str]:
    """Return an amount in CEL: equal amounts are equal texts."""
    return {_QUANTITY: str(amount)}


def _amount(value: object) -> Fraction:
    if not isinstance(value, Mapping) or _QUANTITY not in value:
        raise TypeError("not a quantity")
    return Fraction(value[_QUANTITY])


def _whole_or_amount(value: object) -> Fraction:
    return Fraction(value) if isinstance(value, int) else _amount(value)


def _as_integer(value: object) -> int:
    amount = _amount(value)
    if amount.denominator != 1:
        raise ValueError("it is not a whole number")
    return int(amount)


# --- versions ---


def _semver(written: str, lenient: bool = False) -> dict[str, str]:
    if lenient:
        core, dash, rest = written.strip().removeprefix("v").partition("-")
        parts = [str(int(part)) if part.isdecimal() else part for part in core.split(".")]
        written = ".".join([*parts, "0", "0"][: max(3, len(parts))]) + dash + rest
    if not _SEMVER.fullmatch(written):
        raise ValueError(f"{written!r} is not a semantic version")
    return {_VERSION: written.partition("+")[0]}


def _order(value: object) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
    """Return the sort key of a version: a version without a pre-release comes after those with one."""
    found = _SEMVER.fullmatch(value[_VERSION]) if isinstance(value, Mapping) and _VERSION in value else None
    if found is None:
        raise TypeError("not a version")
    major, minor, patch, release = found.group(1, 2, 3, 4)
    before = tuple(
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in (release or "").split(".")
        if part
    )
    return int(major), int(minor), int(patch), not before, before


def _compare(one: object, other: object) -> int:
    if isinstance(one, Mapping) and _VERSION in one:
        here, there = _order(one), _order(other)
        return (here > there) - (here < there)
    amount, against = _amount(one), _amount(other)
    return (amount > against) - (amount < against)
