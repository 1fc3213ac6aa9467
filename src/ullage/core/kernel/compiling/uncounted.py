"""Arrays without reference counts, in compiled code.

Counting the references to an array costs more than reading a few numbers of it. The caller of these functions holds
a reference to the array for as long as it uses the result.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # numba is not typed
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np import arrayobj

from ullage.core.kernel.columns import Rows

_BYTES = 8
"""Size of a number."""


def part(array: Rows, begin: int, shape: tuple[int, ...]) -> Rows:
    """Return a view of an array: the numbers from `begin` on, in this shape."""
    count = 1
    for size in shape:
        count *= size
    return array[begin : begin + count].reshape(shape)


def without_count(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Return the value of an array with its reference count removed; a number is returned as it is."""
    if not isinstance(kind, types.Array):
        return value
    rows = context.make_array(kind)(context, builder, value)
    rows.meminfo = rows.meminfo.type(None)
    return rows._getvalue()  # noqa: SLF001 - numba has no public interface to it


@intrinsic
def _part(_: Any, array: Any, begin: Any, shape: Any) -> Any:
    found = types.Array(types.int64, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(types.intp)
        rows, begin, shape = arguments
        of_rows, of_begin, of_shape = signature.args
        first = context.cast(builder, begin, of_begin, types.intp)
        given = zip(cgutils.unpack_tuple(builder, shape), of_shape, strict=True)  # type: ignore[no-untyped-call]  # numba is not typed
        sizes = [context.cast(builder, *size, types.intp) for size in given]
        strides = [ir.Constant(word, _BYTES)]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = context.make_array(of_rows)(context, builder, rows).data
        view = context.make_array(found)(context, builder)
        where = {"data": builder.gep(data, [first]), "shape": sizes, "strides": strides}
        arrayobj.populate_array(  # type: ignore[no-untyped-call]  # numba is not typed
            view, **where, itemsize=ir.Constant(word, _BYTES), meminfo=None
        )
        return view._getvalue()  # noqa: SLF001 - as above

    return found(array, begin, shape), generate


@overload(part)
def _part_in_compiled_code(array: Any, begin: Any, shape: Any) -> Any:  # noqa: ARG001 - numba compares the names
    def view(array: Any, begin: Any, shape: Any) -> Any:
        return _part(array, begin, shape)  # type: ignore[call-arg]  # numba types it

    return view
