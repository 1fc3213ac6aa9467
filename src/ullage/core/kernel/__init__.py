"""Compiled functions over the columns of the books.

They take arrays and numbers, one row per node or card, and hold no state. Each gives the same answer with
the compiler switched off (`NUMBA_DISABLE_JIT=1`), which the tests show.
"""
