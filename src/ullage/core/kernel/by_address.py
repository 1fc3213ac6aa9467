"""Functions that compiled ones call by their address, so that nobody has them compiled into it.

A compiled function is compiled again into each of its callers. What decides over zones is large, and its callers are
many: every loop of every strategy, and steps of itself. Such a step is compiled once, and a store of numbers that all
of them have in hand says in its first cells where each step lies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic, overload

from ullage.core.kernel import tiers
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiled import keep_apart
from ullage.core.kernel.kept import keep

DECIDE, ALIGN, PICK, CELLS = 0, 1, 2, 3
"""The cells of a store: which step lies at the address in each, and how many they are."""

Step = Callable[[Rows, Rows, int, Rows, Rows, Rows, int, int], int]
"""Of nodes, cards, a row, a request or its needs, units, the store, and two numbers that each step names."""

_TABLE, _LINE, _NUMBER = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C"), types.int64
_ARGUMENTS = _TABLE, _TABLE, _NUMBER, _TABLE, _LINE, _LINE, _NUMBER, _NUMBER
_STORE = 5

_STEPS: dict[int, Step] = {}


def by_address(cell: int) -> Callable[[Step], Step]:
    """Make a function the step of a cell."""

    def step_of(function: Step) -> Step:
        def step(
            nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, one: int, other: int
        ) -> int:
            return int(function(nodes, cards, row, shape, units, store, one, other))

        def behind(
            nodes: Any,  # noqa: ARG001 - numba compares the names
            cards: Any,  # noqa: ARG001
            row: Any,  # noqa: ARG001
            shape: Any,  # noqa: ARG001
            units: Any,  # noqa: ARG001
            store: Any,  # noqa: ARG001
            one: Any,  # noqa: ARG001
            other: Any,  # noqa: ARG001
        ) -> Any:
            def call(nodes: Any, cards: Any, row: Any, shape: Any, units: Any, store: Any, one: Any, other: Any) -> Any:
                return _call(nodes, cards, row, shape, units, store, one, other, cell)  # type: ignore[call-arg]

            return call

        overload(step)(behind)
        step.__doc__ = function.__doc__
        _STEPS[cell] = function
        return step

    return step_of


def write_addresses(store: Rows) -> None:
    """Write where the steps lie into the cells of a store. They are compiled, or read back, when that is first asked.

    In the plain tier nothing lies anywhere: the cells are written at the change-over.
    """
    follow_change_over(store)
    if not tiers.is_plain():
        store[:CELLS] = [_compiled(cell).address for cell in range(CELLS)]


def follow_change_over(store: Rows) -> None:
    """Have the cells of a store written at the change-over, or now if that has come.

    Another thread may change over at any moment. It leaves the plain tier before it looks for stores, so a store
    that it does not find is written here.
    """
    if tiers.is_plain():
        _WAITING[id(store)] = store
    if tiers.has_changed_over():
        store[:CELLS] = [_compiled(cell).address for cell in range(CELLS)]


_WAITING: WeakValueDictionary[int, Rows] = WeakValueDictionary()
"""Stores of a process in the plain tier."""


def _write_into_all() -> None:
    for found in _WAITING.valuerefs():  # a copy, because other threads may add to it
        store = found()
        if store is not None:
            write_addresses(store)
    _WAITING.clear()


tiers.at_change_over(_write_into_all)


@cache
def _compiled(cell: int) -> Any:
    made: Any = CFunc(_STEPS[cell], normalize_signature(_NUMBER(*_ARGUMENTS)), {}, {})  # type: ignore[no-untyped-call]
    kept = keep(made)
    if kept is not None:
        keep_apart(kept, _STEPS[cell])
    made.compile()
    return made


def _uncounted(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """An array that nobody counts the references to: whoever asks keeps it until the answer."""
    if kind is _NUMBER:
        return value
    rows = context.make_array(kind)(context, builder, value)
    rows.meminfo = rows.meminfo.type(None)
    return rows._getvalue()  # noqa: SLF001 - the value of what was just changed


@intrinsic
def _call(
    _: Any, nodes: Any, cards: Any, row: Any, shape: Any, units: Any, store: Any, one: Any, other: Any, cell: Any
) -> Any:
    """The call of what lies at the address in a cell of the store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        told = zip(arguments, signature.args, _ARGUMENTS, strict=False)
        given = [_uncounted(context, builder, context.cast(builder, *each), each[-1]) for each in told]
        values = [context.get_value_type(kind) for kind in _ARGUMENTS]
        pointer = ir.FunctionType(context.get_value_type(_NUMBER), values).as_pointer()
        data = context.make_array(_LINE)(context, builder, given[_STORE]).data
        where = builder.load(builder.gep(data, [context.cast(builder, arguments[-1], signature.args[-1], _NUMBER)]))
        return builder.call(builder.inttoptr(where, pointer), given)

    return _NUMBER(nodes, cards, row, shape, units, store, one, other, cell), generate
