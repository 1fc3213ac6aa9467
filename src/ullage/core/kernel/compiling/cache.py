"""The cache of compiled code on disk: an entry is used only if it is whole and comes from the present sources.

The compiler keeps an index file per function, which names a data file for each combination of argument types. It
trusts both. A file that a crash or a disk has damaged would end the process. Two processes that compile at the same
time, one of them perhaps from an edited source, may write different code under one name. So each entry here carries
its key, a digest of its content and a digest of its sources (`digests.py`). Any other entry counts as absent: the
function is compiled again.

Where no directory can be written, the cache is a temporary directory of this process, with a warning.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from numba import config
from numba.core import sigutils
from numba.core.serialize import dumps

from ullage.core.kernel.compiling import tiers
from ullage.core.kernel.compiling.digests import closure_of, digest_of, is_in_file, sources_of_function

_PLACES = "NUMBA_CACHE_DIR, the directory of the package, ~/.cache"
_AGAIN = "it is compiled again at each start; set NUMBA_CACHE_DIR to a directory that can be written"


def cache_on_disk(made: Any, function: Callable[..., Any]) -> None:
    """Cache the code compiled for a function, if any directory can be written.

    A function without a source file is not cached, nor is one that closes over such a function.
    """
    if not _enabled(made):
        return
    cache = made._cache  # noqa: SLF001 - numba has no public interface to it
    if not is_in_file(function):
        cache.disable()
        return
    _check_entries(cache._cache_file)  # noqa: SLF001 - as above
    _tie_to_sources(cache, function)
    cache.save_overload = _save_if_possible(cache.save_overload)


def directory() -> str:
    """Return the configured directory of the cache, or "": a process that compiles for this one needs it."""
    return str(config.CACHE_DIR)  # type: ignore[attr-defined]  # numba is not typed


def _enabled(made: Any) -> bool:
    """Enable the compiler's cache. Return False if no directory can be written."""
    try:
        made.enable_caching()
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        if not _use_temporary_directory():
            return False
        made.enable_caching()
    return True


def _use_temporary_directory() -> bool:
    """Cache in a directory that is deleted at the end of this process. Return False if it cannot be created."""
    try:
        path = tempfile.mkdtemp(prefix="ullage-compiled-")
    except OSError as error:
        _warn(f"compiled code cannot be cached: none of {_PLACES}, {tempfile.gettempdir()} can be written ({error})")
        return False
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    _warn(f"compiled code cannot be cached: none of {_PLACES} can be written; {_AGAIN}")
    config.CACHE_DIR = path  # type: ignore[attr-defined]  # numba is not typed
    return True


def _tie_to_sources(cache: Any, function: Callable[..., Any]) -> None:
    """Make the sources part of the cache's keys.

    A file of the cache belongs to the closure of imports of the function's file. The functions that it closes over
    are in the key of each entry, because the loops over several strategies share a file.
    """
    cache._cache_file._source_stamp = sources_of_function(function)  # noqa: SLF001 - numba has no public interface
    load, key, inner = cache.load_overload, cache._index_key, digest_of(*closure_of(function)).hex()  # noqa: SLF001 - not public

    def key_with_sources(signature: Any, codegen: Any) -> Any:
        signature, target, (code, _) = key(signature, codegen)
        return signature, target, (code, inner)

    def load_if_same_types(signature: Any, context: Any) -> Any:
        found = load(signature, context)
        if found is None and tiers.is_read_only():
            raise tiers.NotCached(function.__qualname__)
        types, _ = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]  # numba is not typed
        return found if found is None or found.signature.args == tuple(types) else None

    cache.load_overload, cache._index_key = load_if_same_types, key_with_sources  # noqa: SLF001 - as above


def _check_entries(file: Any) -> None:
    """Write each entry of a cache file with its sources, its key and a digest, and read it only if they match."""
    load_index, load, save = file._load_index, file.load, file.save  # noqa: SLF001 - numba has no public interface

    def load_checked_index() -> Any:
        found = _read_or_warn(load_index, file._index_path)  # noqa: SLF001 - as above
        return found if isinstance(found, dict) else {}

    def load_checked(key: Any) -> Any:
        name = load_checked_index().get(key)
        path = "" if name is None else file._data_path(name)  # noqa: SLF001 - as above
        return None if name is None else _read_or_warn(lambda: _checked(load(key), file._source_stamp, key), path)  # noqa: SLF001 - not public

    def save_with_digest(key: Any, data: Any) -> None:
        content: bytes = dumps(data)  # type: ignore[no-untyped-call]  # numba is not typed
        save(key, (file._source_stamp, key, sha256(content).digest(), content))  # noqa: SLF001 - as above

    file._load_index, file.load, file.save = load_checked_index, load_checked, save_with_digest  # noqa: SLF001 - not public


def _checked(entry: Any, sources: bytes, key: Any) -> Any:
    """Return the content of an entry; None if there is none, or it is of other sources or another key."""
    if entry is None:
        return None
    its_sources, its_key, digest, content = entry
    if sha256(content).digest() != digest:
        raise ValueError("its digest is another one")
    return pickle.loads(content) if (its_sources, its_key) == (sources, key) else None  # noqa: S301 - our own file


def _read_or_warn(read: Callable[[], Any], path: str) -> Any:
    """Return what is read, or None with a warning: damaged files raise errors of many kinds."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - as above
        _warn(f"compiled code in {path} cannot be used ({type(error).__name__}: {error}); it is compiled again")
        return None


def _save_if_possible(save: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return the same function, which warns where the disk is full: the code serves this process in any case."""

    def saved(signature: Any, data: Any) -> None:
        try:
            save(signature, data)
        except OSError as error:
            _warn(f"compiled code cannot be cached in {error.filename or 'its directory'}: {error.strerror}; {_AGAIN}")

    return saved


_warned: set[str] = set()


def _warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=2)
