"""Context variables and the trace of a caller, in a task.

A context variable has no name across processes. It is known by the module that has it as a global, and by the name
there. Variables of a program's main module, which a worker does not import, are made when they are first needed.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from importlib import import_module
from typing import Any, NamedTuple

_made: dict[tuple[str, str], ContextVar[Any]] = {}


class CarriedVariable(NamedTuple):
    """A context variable: the module that has it, its name there, and the pickle of its value."""

    module: str
    name: str
    value: bytes


class Carried(NamedTuple):
    """The variables of a caller, and the headers of its trace, as the W3C defines them."""

    variables: tuple[CarriedVariable, ...]
    trace: dict[str, str]


def variable(module: str, name: str, *default: Any) -> ContextVar[Any]:
    """Return the context variable of that name in a module; for a module that is not here always the same new one."""
    found = None
    if module != "__main__":
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            found = None
    if isinstance(found, ContextVar):
        return found
    made = _made.get((module, name))
    if made is None:
        if default:
            (value,) = default
            made = ContextVar(name, default=value)
        else:
            made = ContextVar(name)
        _made[module, name] = made
    return made


def run_within(carried: Carried | None, call: Callable[[], Any]) -> Any:
    """Make a call with the context of the caller of its task, which ends with the call."""
    if carried is None:
        return call()
    context = copy_context()
    context.run(_set, carried)
    return context.run(call)


def _set(carried: Carried) -> None:
    for each in carried.variables:
        try:
            variable(each.module, each.name).set(pickle.loads(each.value))  # noqa: S301  # as the arguments of the task
        except Exception as error:  # noqa: BLE001  # a class that is not here: the task may not need the variable
            print(f"the context variable {each.module}.{each.name} is not set: {error}", file=sys.stderr)  # noqa: T201  # the log of the task
    if carried.trace:
        _attach(carried.trace)


def _attach(trace: dict[str, str]) -> None:
    try:
        context, propagate = import_module("opentelemetry.context"), import_module("opentelemetry.propagate")
    except ImportError:  # the executor has another environment: its task is no part of the trace
        return
    context.attach(propagate.extract(trace))
