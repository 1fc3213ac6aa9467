"""Parts of an array of numbers as rows: in compiled code without counting who refers to them.

Counting costs more than reading the few numbers of such a part. Who has the array keeps it for as long as it reads.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np import arrayobj

from ullage.core.kernel.columns import Rows

_BYTES = 8
"""Of a number."""


def part(store: Rows, begin: int, shape: tuple[int, ...]) -> Rows:
    """The numbers from `begin` on, in this shape."""
    count = 1
    for size in shape:
        count *= size
    return store[begin : begin + count].reshape(shape)


@intrinsic
def _part(_: Any, store: Any, begin: Any, shape: Any) -> Any:
    found = types.Array(types.int64, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(types.intp)
        first = context.cast(builder, arguments[1], signature.args[1], types.intp)
        told = cgutils.unpack_tuple(builder, arguments[2])  # type: ignore[no-untyped-call]
        sizes = [context.cast(builder, *size, types.intp) for size in zip(told, signature.args[2], strict=True)]
        strides = [ir.Constant(word, _BYTES)]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        view = context.make_array(found)(context, builder)
        where = {"data": builder.gep(data, [first]), "shape": sizes, "strides": strides}
        arrayobj.populate_array(  # type: ignore[no-untyped-call]
            view, **where, itemsize=ir.Constant(word, _BYTES), meminfo=None
        )
        return view._getvalue()  # noqa: SLF001 - the value of what was just made

    return found(store, begin, shape), generate


@overload(part)
def _part_of(store: Any, begin: Any, shape: Any) -> Any:  # noqa: ARG001 - numba compares the names
    def view(store: Any, begin: Any, shape: Any) -> Any:
        return _part(store, begin, shape)  # type: ignore[call-arg]

    return view
