"""The context of a caller, for its tasks: context variables, and the trace of OpenTelemetry.

A variable is carried if a module has it as a global and its value can be pickled. Others are left out: it would help
nobody to refuse a call because a library keeps a lock in a variable of its own. If such a variable belongs to the
program or to the package of the function, a warning says so, once; else a debug message of the logger `ullage`.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from importlib import import_module
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it has no types

from ullage.worker.carried import Carried, CarriedVariable, variable

Home = tuple[str, str]
"""The module of a context variable, and its name there."""

_homes: dict[int, tuple[ContextVar[Any], Home]] = {}
_homeless: dict[int, tuple[ContextVar[Any], int]] = {}
"""Variables that no module has, with the number of modules at that time."""

_reported: set[Home] = set()


def carried_for(function: Callable[..., Any]) -> Carried | None:
    """Return the present context for a task that calls `function`; None if there is nothing to carry."""
    variables = []
    for each, value in copy_context().items():
        home = home_of(each)
        if home is None:
            continue
        try:
            variables.append(CarriedVariable(*home, cloudpickle.dumps(value)))
        except Exception as error:  # noqa: BLE001  # user classes may do anything when pickled
            _report(home, value, error, function)
    trace = _trace()
    return Carried(tuple(variables), trace) if variables or trace else None


def home_of(each: ContextVar[Any]) -> Home | None:
    """Return the module that has a context variable as a global; None if there is none."""
    known = _homes.get(id(each))
    if known is not None:
        _, home = known
        return home
    modules = list(sys.modules.items())
    if _homeless.get(id(each)) == (each, len(modules)):
        return None
    for module, loaded in modules:
        for name, value in list(getattr(loaded, "__dict__", {}).items()):
            if value is each:
                _homes[id(each)] = each, (module, name)
                return module, name
    _homeless[id(each)] = each, len(modules)
    return None


def reduce_variable(each: ContextVar[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return how to find a context variable in another process, for `pickle`.

    Raises:
        TypeError: no module has it as a global.

    """
    home = home_of(each)
    if home is None:
        raise TypeError(f"no module has the context variable {each.name!r} as a global")
    try:
        default = (Context().run(each.get),)
    except LookupError:
        return variable, home
    return variable, (*home, *default)


def _report(home: Home, value: object, error: Exception, function: Callable[..., Any]) -> None:
    if home in _reported:
        return
    _reported.add(home)
    module, name = home
    text = f"the context variable {module}.{name} ({type(value).__name__}) is not carried to tasks: {error}"
    mine = {"__main__", _package(getattr(function, "__module__", None) or "")}
    if _package(module) in mine:
        warnings.warn(f"{text}; carry_context=False of a session carries none", stacklevel=4)
    else:
        logging.getLogger("ullage").debug(text)


def _package(module: str) -> str:
    package, _, _ = module.partition(".")
    return package


def _trace() -> dict[str, str]:
    """Return the headers of the present trace; none in a program that has not loaded OpenTelemetry."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        import_module("opentelemetry.propagate").inject(headers)
    return headers
