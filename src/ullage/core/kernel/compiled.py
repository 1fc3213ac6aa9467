"""The decorators of compiled functions: `compiled`, `inlined` and `lean`.

A function is compiled once per machine and kept on disk until its sources change (`core/kernel/compiling`).

Integers wrap and indexes are not checked in compiled code: ranges are validated before arrays are built.
Nothing is reordered (no fast arithmetic, no parallel sums), so every CPU gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.extending import register_jitable

from ullage.core.kernel.compiling import tiers
from ullage.core.kernel.compiling.cache import cache_on_disk

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call, for each combination of argument types.

    The compiler treats a constant argument as a type of its own, and would compile again for each constant.
    """
    result: Any = njit(nogil=True)(function)
    template_for = getattr(result, "get_call_template", None)
    if template_for is None:  # the compiler is switched off
        return cast("F", result)
    cache_on_disk(result, function)

    def template(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        return template_for(list(map(_unliteral, args)), {name: _unliteral(kind) for name, kind in kws.items()})

    result.get_call_template = template
    tiers.enter(result)
    return cast("F", result)


def _unliteral(kind: Any) -> Any:
    return types.unliteral(kind)  # type: ignore[no-untyped-call]  # numba is not typed


def inlined(function: F) -> F:
    """Let compiled functions call a function, or be built around it; called from Python it is plain Python."""
    result: F = register_jitable(function)
    return result


def lean(function: F) -> F:
    """Do the same without counting references to arrays. It must not create or return arrays, nor may its callees.

    Counting takes most of the time in a loop that reads a few numbers of each of many rows.
    """
    result: F = register_jitable(_nrt=False)(function)
    return result
