"""Where compiled code is kept on disk. Where no directory can be written it goes to a temporary one, with a warning."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

from numba import config

from ullage.core.kernel.sealed import seal

_PLACES = "NUMBA_CACHE_DIR, the directory of the package, ~/.cache"
_AGAIN = "it is compiled again at each start; set NUMBA_CACHE_DIR to a directory that can be written"


def keep(made: Any) -> Any:
    """Have a compiled function kept on disk, if any directory can be written. Return its cache, or None."""
    try:
        made.enable_caching()
    except RuntimeError as error:  # the compiler found no directory
        if "cannot cache" not in str(error):
            raise
        if not _use_temporary_directory():
            return None
        made.enable_caching()
    seal(made._cache._cache_file, _warn)  # noqa: SLF001 - numba has no other way
    return made._cache  # noqa: SLF001 - as above


def save_if_possible(save: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return the same without an error where the disk is full: what is compiled serves this process in any case."""

    def saved(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError as error:
            _warn(f"compiled code cannot be kept in {error.filename or 'its directory'}: {error.strerror}; {_AGAIN}")

    return saved


def _use_temporary_directory() -> bool:
    """Have everything kept in a directory that goes with this process; False if there can be none."""
    try:
        directory = tempfile.mkdtemp(prefix="ullage-compiled-")
    except OSError as error:
        _warn(f"compiled code cannot be kept: none of {_PLACES}, {tempfile.gettempdir()} can be written ({error})")
        return False
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    _warn(f"compiled code cannot be kept: none of {_PLACES} can be written; {_AGAIN}")
    config.CACHE_DIR = directory  # type: ignore[attr-defined]
    return True


def kept_in() -> str:
    """Return the directory that is set for compiled code, or "": a process that compiles for this one needs it."""
    return str(config.CACHE_DIR)  # type: ignore[attr-defined]


_said: set[str] = set()


def _warn(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=2)
