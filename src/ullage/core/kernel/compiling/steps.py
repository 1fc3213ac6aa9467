"""Large functions that compiled code calls through a table of addresses, so that they are compiled once.

The compiler copies each function that a compiled function calls into it, and optimizes the copy. The decision over
zones is large and has many callers: every loop of every strategy, and its own parts. So such a function is a *step*:
it is compiled by itself, and its address is written into a table of this process. Callers contain the name of the
table, not the address, because addresses differ from process to process while cached code stays the same.

The compiler's own means do not serve. A function passed as an argument costs 50 us a call from Python. A function
that another one closes over has its address compiled in, and then the caller cannot be cached.

All steps have the same parameters (`Step`). Uncompiled, a step is a plain call of its function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]  # numba is not typed
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic, overload

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiling import tiers
from ullage.core.kernel.compiling.cache import cache_on_disk
from ullage.core.kernel.compiling.uncounted import without_count

DECIDE, ALIGN, PICK = 0, 1, 2
"""The numbers of the steps, which are their places in the table."""

_COUNT = 3
_SYMBOL = "ullage_addresses_of_steps"
_ADDRESSES = np.zeros(_COUNT, np.int64)
"""The table, by the number of the step; zeros until the steps are compiled or loaded."""

llvmlite.binding.add_symbol(_SYMBOL, _ADDRESSES.ctypes.data)

Step = Callable[[Rows, Rows, int, Rows, Rows, Rows, int, int], int]
"""Nodes, cards, a row of nodes, a shape or needs, shares per card, the arena, and two numbers that each step names."""

_TABLE, _LINE, _NUMBER = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C"), types.int64
_ARGUMENTS = _TABLE, _TABLE, _NUMBER, _TABLE, _LINE, _LINE, _NUMBER, _NUMBER

_STEPS: dict[int, Step] = {}


def step(number: int) -> Callable[[Step], Step]:
    """Make a function the step of this number."""

    def make(function: Step) -> Step:
        def call(
            nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, arena: Rows, one: int, other: int
        ) -> int:
            return int(function(nodes, cards, row, shape, units, arena, one, other))

        @overload(call, strict=False)
        def compiled_call(*_types: Any) -> Any:
            def through_table(
                nodes: Any, cards: Any, row: Any, shape: Any, units: Any, arena: Any, one: Any, other: Any
            ) -> Any:
                return _call(nodes, cards, row, shape, units, arena, one, other, number)  # type: ignore[call-arg]  # numba types it

            return through_table

        call.__doc__ = function.__doc__
        _STEPS[number] = function
        return call

    return make


def prepare_steps() -> None:
    """Compile or load the steps and write their addresses, unless this process is in the plain tier.

    Call it before compiled code may call a step.
    """
    if not _ADDRESSES.all() and not tiers.is_plain():
        _ADDRESSES[:] = [_compiled(number).address for number in range(_COUNT)]


tiers.at_change_over(prepare_steps)


@cache
def _compiled(number: int) -> Any:
    function = _STEPS[number]
    made: Any = CFunc(function, normalize_signature(_NUMBER(*_ARGUMENTS)), {}, {})  # type: ignore[no-untyped-call]  # numba is not typed
    cache_on_disk(made, function)
    made.compile()
    return made


@intrinsic
def _call(
    _: Any, nodes: Any, cards: Any, row: Any, shape: Any, units: Any, arena: Any, one: Any, other: Any, number: Any
) -> Any:
    """Call the function whose address is in this place of the table."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *arguments, place = arguments
        *given, of_place = signature.args
        cast = [context.cast(builder, *each) for each in zip(arguments, given, _ARGUMENTS, strict=True)]
        values = [without_count(context, builder, *each) for each in zip(cast, _ARGUMENTS, strict=True)]
        word = context.get_value_type(_NUMBER)
        function = ir.FunctionType(word, [context.get_value_type(kind) for kind in _ARGUMENTS])
        table = builder.module.globals.get(_SYMBOL)
        if table is None:
            table = ir.GlobalVariable(builder.module, ir.ArrayType(word, _COUNT), _SYMBOL)
        cell = builder.gep(table, [ir.Constant(word, 0), context.cast(builder, place, of_place, _NUMBER)])
        return builder.call(builder.inttoptr(builder.load(cell), function.as_pointer()), values)

    return _NUMBER(nodes, cards, row, shape, units, arena, one, other, number), generate
