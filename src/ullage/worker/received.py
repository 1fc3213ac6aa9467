"""Globals of functions, and attributes of classes, that a worker cannot import: those of a client's main module.

The functions that a client sends in one session share the globals of their module here, as they do in the client. So
a call finds what an earlier call or an initializer has left there. Each value that the client sends has a version. It
is set when it arrives first, and again before a call of a function that was sent with another version.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

Globals = dict[str, Any]
"""The global variables of a module."""

Versions = dict[str, bytes]
"""The versions of the values that names have."""


class Received(NamedTuple):
    """Globals of one module as a client sent them."""

    space: Globals
    now: Versions
    values: Globals
    versions: Versions

    def apply(self) -> None:
        """Set the values whose versions differ from those that the module has now."""
        for name, version in self.versions.items():
            if self.now.get(name) != version:
                self.now[name] = version
                self.space[name] = self.values[name]
            elif name in self.space:  # one copy is enough
                self.values[name] = self.space[name]


class Loaded(NamedTuple):
    """An unpickled value, and the globals that came with it."""

    value: Any
    received: tuple[Received, ...]

    def with_its_globals(self) -> Any:
        """Return the value, for whose functions the globals are set to what was sent with them."""
        for each in self.received:
            each.apply()
        return self.value


class SessionGlobals:
    """What a process has of the clients of its session, until it leaves the session."""

    def __init__(self) -> None:
        self.modules: dict[str, tuple[Globals, Versions]] = {}
        self.cached: dict[str, Callable[..., Any]] = {}
        self.initialized: set[str] = set()
        self.arriving: list[Received] = []

    def clear(self) -> None:
        """Forget everything; functions that still run keep their globals."""
        for each in (self.modules, self.cached, self.initialized, self.arriving):
            each.clear()


STATE = SessionGlobals()
"""A process is in one session at a time."""

_attributes: WeakKeyDictionary[type, Versions] = WeakKeyDictionary()
"""The versions of the attributes of each class that came by value."""


def load(data: bytes) -> Loaded:
    """Return an unpickled value. It comes from a client, to run whose code is the purpose of a worker."""
    STATE.arriving.clear()
    value = pickle.loads(data)  # noqa: S301  # see above
    received = tuple(STATE.arriving)
    STATE.arriving.clear()
    return Loaded(value, received)


def shared_globals(module: str, names: Globals) -> Globals:
    """Return the globals of a module of a client; `names` are what they begin with. Pickles of functions call it."""
    space, _ = STATE.modules.setdefault(module, (names, {}))
    return space


def set_function(function: Any, state: tuple[str, Versions, Callable[..., None], Any]) -> None:
    """Complete a function, with the globals that have not arrived before. Pickles of functions call it."""
    module, versions, complete, (attributes, slots) = state
    _, now = STATE.modules.setdefault(module, (function.__globals__, {}))
    received = Received(function.__globals__, now, slots["__globals__"], versions)
    received.apply()
    STATE.arriving.append(received)
    complete(function, (attributes, {**slots, "__globals__": {}}))


def set_class(defined: type, state: tuple[Versions, Callable[..., None], Any]) -> None:
    """Set the attributes of a class that have not arrived before. Pickles of classes call it."""
    versions, complete, (attributes, slots) = state
    now = _attributes.setdefault(defined, {})
    new = {name: value for name, value in attributes.items() if now.get(name) != versions[name]}
    now.update(versions)
    complete(defined, (new, slots))


def cached_function(name: str, function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    """Return a function of `functools.lru_cache`, always the same for a name. Pickles of such functions call it."""
    known = STATE.cached.get(name)
    if known is None:
        known = STATE.cached[name] = lru_cache(**parameters)(function)
    return known
