"""What is kept on disk of compiled code is believed only if it is whole, and is what was asked for.

The compiler keeps an index file per function, which names a data file for each combination of types. It trusts both:
a file that a crash or a disk has damaged ends the process, and two processes that compile at the same moment, one of
them perhaps from an edited source, may write different code under one name. So each entry carries what it is of and a
digest. What is damaged or of something else counts as not there: it is compiled again and written in its place.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from numba.core.serialize import dumps

Warn = Callable[[str], None]


def seal(file: Any, warn: Warn) -> None:
    """Have the entries of a cache file sealed. `warn` is called with a sentence for each file that is damaged."""
    index, load, save = file._load_index, file.load, file.save  # noqa: SLF001 - numba has no other way

    def load_index() -> Any:
        found = _or_warn(index, file._index_path, warn)  # noqa: SLF001 - as above
        return found if isinstance(found, dict) else {}

    def load_sealed(key: Any) -> Any:
        name = load_index().get(key)
        path = "" if name is None else file._data_path(name)  # noqa: SLF001 - as above
        return None if name is None else _or_warn(lambda: _opened(load(key), file, key), path, warn)

    def save_sealed(key: Any, data: Any) -> None:
        content: bytes = dumps(data)  # type: ignore[no-untyped-call]
        save(key, (file._source_stamp, key, sha256(content).digest(), content))  # noqa: SLF001 - as above

    file._load_index, file.load, file.save = load_index, load_sealed, save_sealed  # noqa: SLF001 - as above


def _opened(sealed: Any, file: Any, key: Any) -> Any:
    """Return what was sealed for this key and these sources; None if it is of others, or not there any more."""
    if sealed is None:
        return None
    stamp, of, digest, content = sealed
    if sha256(content).digest() != digest:
        raise ValueError("its digest is another one")
    return pickle.loads(content) if (stamp, of) == (file._source_stamp, key) else None  # noqa: S301, SLF001 - our own


def _or_warn(read: Callable[[], Any], path: str, warn: Warn) -> Any:
    """Return what is read, or None with a warning: damaged files raise errors of many kinds."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - as above
        warn(f"compiled code in {path} cannot be used ({type(error).__name__}: {error}); it is compiled again")
        return None
