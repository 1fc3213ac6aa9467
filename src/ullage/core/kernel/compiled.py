"""How functions are compiled: once per machine, kept on disk, and again when anything they call changes.

Integers wrap and indexes are not checked in compiled code: ranges are validated before arrays are built.
Nothing is reordered (no fast arithmetic, no parallel sums), so every CPU gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core import sigutils
from numba.extending import register_jitable

from ullage.core.kernel import tiers
from ullage.core.kernel.kept import keep, save_if_possible
from ullage.core.kernel.sources import cells_of, digest_of, in_file, own_sources

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """A function compiled when it is first called, for each combination of argument types.

    The compiler takes a number that it knows for a type of its own, and would compile for each of them.
    """
    result: Any = njit(nogil=True)(function)
    kept = keep(result) if hasattr(result, "enable_caching") else None
    if kept is not None:
        keep_apart(kept, function)
    template_for = getattr(result, "get_call_template", None)

    def template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        assert template_for is not None
        return template_for(list(map(_unliteral, args)), {name: _unliteral(kind) for name, kind in kws.items()})

    if template_for is not None:
        result.get_call_template = template
        tiers.enter(result)
    return cast("F", result)


def keep_apart(kept: Any, function: Callable[..., Any]) -> None:
    """Tie what is kept on disk to the sources it was compiled from, and to the types it is asked for.

    Functions that a function closes over belong to the key of each entry: loops over several strategies share a file.
    What closes over a function without a source file is not kept.
    """
    if not in_file(function):
        kept.disable()
        return
    file, load, key = kept._cache_file, kept.load_overload, kept._index_key  # noqa: SLF001 - numba has no other way
    file._source_stamp = own_sources(function)  # noqa: SLF001 - as above
    inner = digest_of(*cells_of(function))

    def key_with_sources(signature: Any, codegen: Any) -> Any:
        signature, target, (code, _) = key(signature, codegen)
        return signature, target, (code, inner.hex())

    def load_if_meant(signature: Any, context: Any) -> Any:
        found = load(signature, context)
        if found is None and tiers.is_read_only():
            raise tiers.NotKept(function.__qualname__)
        asked, _ = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]
        return found if found is None or found.signature.args == tuple(asked) else None

    kept.load_overload, kept._index_key = load_if_meant, key_with_sources  # noqa: SLF001 - as above
    kept.save_overload = save_if_possible(kept.save_overload)


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
    result: F = register_jitable(_nrt=False)(function)
    return result
