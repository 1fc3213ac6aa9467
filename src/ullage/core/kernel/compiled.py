"""How functions are compiled: once per machine, kept on disk, and again when anything they call changes.

Integers wrap and indexes are not checked in compiled code: ranges are validated before arrays are built.
Nothing is reordered (no fast arithmetic, no parallel sums), so every CPU gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core import sigutils
from numba.extending import register_jitable

_COMPILES = b"ullage.core.kernel.compiled"

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """A function compiled when it is first called, for each combination of argument types.

    The compiler takes a number that it knows for a type of its own, and would compile for each of them.
    """
    result: Any = njit(cache=True, nogil=True)(function)
    kept = getattr(result, "_cache", None)
    if kept is not None:
        _keep_apart(kept)
    template_for = getattr(result, "get_call_template", None)

    def template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        assert template_for is not None
        return template_for(list(map(_unliteral, args)), {name: _unliteral(kind) for name, kind in kws.items()})

    if template_for is not None:
        result.get_call_template = template
    return cast("F", result)


def _keep_apart(kept: Any) -> None:
    """Make what is kept on disk good for these sources alone, and for the types it is asked for.

    Processes that compile a function for different types at the same moment may write under one name.
    """
    file, load = kept._cache_file, kept.load_overload  # noqa: SLF001 - numba has no other way to say what counts
    file._source_stamp = file._source_stamp, _sources()  # noqa: SLF001 - as above

    def load_if_meant(signature: Any, context: Any) -> Any:
        found = load(signature, context)
        asked, _ = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]
        return found if found is None or found.signature.args == tuple(asked) else None

    kept.load_overload = load_if_meant


@cache
def _sources() -> bytes:
    """A digest of all files that compiled functions may come from.

    The compiler keeps its work for as long as the file of the function itself is the same, whatever became of what
    it calls: after an update that may have another form.
    """
    digest, core = sha256(), Path(__file__).parents[1]
    for path in sorted(core.rglob("*.py")):
        text = path.read_bytes()
        if path.parent == Path(__file__).parent or _COMPILES in text:
            digest.update(text)
    return digest.digest()


def _unliteral(kind: Any) -> Any:
    return types.unliteral(kind)  # type: ignore[no-untyped-call]


def inlined(function: F) -> F:
    """A function that compiled ones may call or be built around; called from Python it is plain Python."""
    result: F = register_jitable(function)
    return result


def lean(function: F) -> F:
    """The same without counting who refers to an array: it may allocate none and return none, nor may what it calls.

    Counting is what takes the most time where a loop reads a few numbers of each of many rows.
    """
    vars(function)["lean"] = True  # part of what `code_of` digests
    result: F = register_jitable(_nrt=False)(function)
    return result


def code_of(*functions: Callable[..., Any]) -> bytes:
    """A digest of what these functions do, with all that they call and the constants they read.

    The compiler keeps its work by the file of the function itself and does not notice a change in another
    one. A compiled function that is a closure over this digest has another key after such a change.
    """
    digest, seen = sha256(), set[int]()
    waiting: list[object] = list(functions)
    while waiting:
        value = waiting.pop(0)
        function = getattr(value, "py_func", value)
        if not isinstance(function, FunctionType):
            digest.update(repr(value).encode() if isinstance(value, int | float | str) else b"")
        elif id(function) not in seen:
            seen.add(id(function))
            code = function.__code__
            digest.update(code.co_code + repr(vars(function)).encode())
            waiting += (const for const in code.co_consts if not isinstance(const, CodeType))
            waiting += (function.__globals__.get(name) for name in code.co_names)
    return digest.digest()
