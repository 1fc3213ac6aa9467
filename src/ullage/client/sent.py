"""What a client sends of modules and classes that workers cannot import: its main module above all.

`cloudpickle` sends such a function with the globals that it uses. Here the functions of one session also say whose
globals these are, and each value has a version, so that a worker keeps what it has set itself
(`ullage.worker.received`).
"""

from __future__ import annotations

import functools
import hashlib
import io
import sys
import uuid
from collections import ChainMap
from contextvars import ContextVar
from enum import Enum
from itertools import count
from operator import attrgetter
from types import FunctionType
from typing import Any, ClassVar
from weakref import ref

import cloudpickle  # type: ignore[import-untyped]  # it has no types
from cloudpickle.cloudpickle import list_registry_pickle_by_value  # type: ignore[import-untyped]  # as above

from ullage.client.carrying import reduce_variable
from ullage.worker import received

Cached = type(functools.lru_cache(len))
"""The type of functions of `functools.lru_cache`."""

_BY_VALUE = (FunctionType, type, Cached)
"""Types of what workers may not be able to import."""

Reduced = Any
"""What `object.__reduce__` may return, or NotImplemented."""


class SentGlobals:
    """The modules whose functions one session has sent, and versions of values."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        self._numbers = count()
        # By identity, with the dictionary itself, so that its id is not reused.
        self._modules: dict[int, tuple[received.Globals, str]] = {}
        self._known: dict[int, tuple[ref[Any], str]] = {}

    def dump(self, value: object) -> bytes:
        """Return the pickle of a value."""
        file = io.BytesIO()
        _SentPickler(file, self).dump(value)
        return file.getvalue()

    def module(self, space: received.Globals) -> str:
        """Return the name under which workers have these globals."""
        _, name = self._modules.setdefault(id(space), (space, self._name()))
        return name

    def name_of(self, value: Any) -> str:
        """Return the name of a function or a class, which no other one has."""
        known = self._known.get(id(value))
        if known is not None:
            reference, name = known
            if reference() is value:
                return name
        name = self._name()
        self._known[id(value)] = ref(value), name
        return name

    def versions(self, values: received.Globals) -> received.Versions:
        """Return the versions of values: of a function or a class another for each, of others for each content."""
        return {name: self._version(value) for name, value in values.items()}

    def _version(self, value: object) -> bytes:
        digest = _Digest()
        _VersionPickler(digest, self).dump(value)
        return digest.hash.digest()

    def _name(self) -> str:
        return f"{self._id}.{next(self._numbers)}"


class _Digest:
    """A file that only hashes what is written."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()  # processors compute it

    def write(self, data: bytes) -> None:
        self.hash.update(data)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles context variables by their names, so that functions that use them can be sent."""

    dispatch_table: ClassVar[Any] = ChainMap({ContextVar: reduce_variable}, cloudpickle.Pickler.dispatch_table)

    def __init__(self, file: Any, sent: SentGlobals) -> None:
        super().__init__(file)
        self._sent = sent


class _VersionPickler(_Pickler):
    """Pickles functions and classes as their names."""

    def persistent_id(self, value: object) -> str | None:
        return self._sent.name_of(value) if isinstance(value, _BY_VALUE) else None


class _SentPickler(_Pickler):
    """Pickles functions and classes that workers cannot import."""

    def __init__(self, file: Any, sent: SentGlobals) -> None:
        super().__init__(file, sent)
        self._spaces: dict[str, _Space] = {}

    def reducer_override(self, value: Any) -> Reduced:
        if not isinstance(value, _BY_VALUE):  # as cloudpickle, which takes longer to say so
            return NotImplemented
        if isinstance(value, Cached):
            return self._reduce_cached(value)
        reduced = super().reducer_override(value)
        if not isinstance(reduced, tuple) or len(reduced) != _LENGTH:  # it is imported
            return reduced
        if isinstance(value, FunctionType):
            return self._with_globals(value, reduced)
        return self._with_versions(value, reduced)

    def _reduce_cached(self, value: Any) -> Reduced:
        """Reduce a function of `functools.lru_cache`, which cloudpickle would look for in the main module."""
        if _is_imported(value):
            return NotImplemented
        return received.cached_function, (self._sent.name_of(value), value.__wrapped__, value.cache_parameters())

    def _with_globals(self, function: FunctionType, reduced: Reduced) -> Reduced:
        make, (code, space, *rest), state, *_, complete = reduced
        _, slots = state
        module = self._sent.module(function.__globals__)
        shared = self._spaces.setdefault(module, _Space(module, space))
        state = module, self._sent.versions(slots["__globals__"]), complete, state
        return make, (code, shared, *rest), state, None, None, received.set_function

    def _with_versions(self, defined: type, reduced: Reduced) -> Reduced:
        make, arguments, state, *_, complete = reduced
        attributes, _ = state
        if "__slots__" in attributes and not issubclass(defined, Enum):
            # cloudpickle sets this attribute later: objects would have a `__dict__` there, and not come back.
            kind, name, bases, namespace, *rest = arguments
            arguments = (kind, name, bases, {**namespace, "__slots__": attributes["__slots__"]}, *rest)
        return make, arguments, (self._sent.versions(attributes), complete, state), None, None, received.set_class


_LENGTH = 6
"""Parts of what cloudpickle makes of a function or a class by value; the last one completes it."""


class _Space:
    """The globals of functions in one pickle, which a worker replaces by those that it has."""

    def __init__(self, module: str, names: received.Globals) -> None:
        self._module = module
        self._names = names

    def __reduce__(self) -> Reduced:
        return received.shared_globals, (self._module, self._names)


def _is_imported(value: Any) -> bool:
    """Return whether a worker finds a value by its name, as cloudpickle decides it for functions."""
    module = getattr(value, "__module__", None) or "__main__"
    by_value = {"__main__", *list_registry_pickle_by_value()}
    if any(module == each or module.startswith(f"{each}.") for each in by_value):
        return False
    try:
        return attrgetter(value.__qualname__)(sys.modules[module]) is value
    except (KeyError, AttributeError):
        return False
