"""Decisions over zones for the loops of strategies: called by their address, so that no loop has them compiled into it.

A compiled function is compiled again into each of its callers. What decides over zones is large, and its callers are
many: every loop of every strategy. Here it is compiled once, and a store holds where it lies.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import cfunc, config, types
from numba.extending import intrinsic, overload

from ullage.core.kernel.alignment import aligned_room, may_settle, settle
from ullage.core.kernel.board import SEATED, opened
from ullage.core.kernel.columns import MACHINE, NAMED, NEEDS, Rows
from ullage.core.kernel.compiled import code_of
from ullage.core.kernel.taking import spend

FIT, TAKE, SPEND, ROOM = 0, 1, 2, 3
"""What is asked: `may_settle`; `settle`; to hold what `settle` decided, if
it is; `aligned_room`, of so many units at most."""

_TABLE, _LINE, _NUMBER = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C"), types.int64
_ARGUMENTS = _TABLE, _TABLE, _NUMBER, _TABLE, _LINE, _LINE, _NUMBER, _NUMBER
_STORE = 5


@cache
def _entry() -> Any:
    key = code_of(may_settle, settle, spend, aligned_room, opened)

    def entry(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, asked: int, most: int) -> int:
        key  # noqa: B018  part of the cache key, see `code_of`
        board = opened(store)
        if asked == FIT:
            return int(may_settle(nodes, cards, row, shape, units, board))
        if asked == TAKE:
            return int(settle(nodes, cards, row, shape, units, board))
        if asked == ROOM:
            return aligned_room(nodes, cards, row, shape, units, board, most)
        held = shape[len(shape) - shape[0, NAMED] - shape[0, NEEDS], SEATED]
        if held:
            spend(board.machines, board.supplies, nodes[row, MACHINE], board.taken, 1)
        return int(held)

    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # cfunc would compile all the same
        return entry
    return cfunc(_NUMBER(*_ARGUMENTS), cache=True)(entry)


def address() -> int:
    """Where the compiled decision lies; compiled, or read back, when it is first asked for. 0: nothing is compiled."""
    return int(getattr(_entry(), "address", 0))


def decide(nodes: Rows, cards: Rows, row: int, shape: Rows, units: Rows, store: Rows, asked: int, most: int) -> int:
    """The answer for one node: 1 or 0, or how many units; `units` is changed as the function says that is asked."""
    return int(_entry()(nodes, cards, row, shape, units, store, asked, most))


def _uncounted(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """An array that nobody counts the references to: whoever asks keeps it until the answer."""
    if kind is _NUMBER:
        return value
    rows = context.make_array(kind)(context, builder, value)
    rows.meminfo = rows.meminfo.type(None)
    return rows._getvalue()  # noqa: SLF001 - the value of what was just changed


@intrinsic
def _call(_: Any, nodes: Any, cards: Any, row: Any, shape: Any, units: Any, store: Any, asked: Any, most: Any) -> Any:
    """The call of what lies at the address that is the first number of the store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        told = zip(arguments, signature.args, _ARGUMENTS, strict=True)
        given = [_uncounted(context, builder, context.cast(builder, *one), one[-1]) for one in told]
        values = [context.get_value_type(kind) for kind in _ARGUMENTS]
        pointer = ir.FunctionType(context.get_value_type(_NUMBER), values).as_pointer()
        data = context.make_array(_LINE)(context, builder, given[_STORE]).data
        return builder.call(builder.inttoptr(builder.load(data), pointer), given)

    return _NUMBER(nodes, cards, row, shape, units, store, asked, most), generate


@overload(decide)
def _decide_by_address(
    nodes: Any,  # noqa: ARG001 - numba compares the names
    cards: Any,  # noqa: ARG001
    row: Any,  # noqa: ARG001
    shape: Any,  # noqa: ARG001
    units: Any,  # noqa: ARG001
    store: Any,  # noqa: ARG001
    asked: Any,  # noqa: ARG001
    most: Any,  # noqa: ARG001
) -> Any:
    def call(nodes: Any, cards: Any, row: Any, shape: Any, units: Any, store: Any, asked: Any, most: Any) -> Any:
        return _call(nodes, cards, row, shape, units, store, asked, most)  # type: ignore[call-arg]

    return call
