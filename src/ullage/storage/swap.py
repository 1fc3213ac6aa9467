"""Putting a recovered database in the place of a damaged one, so that a kill in the middle is gone on from.

A draft is at `state.db-recovering` until it is whole, and then, with one rename, at `state.db-recovered`. From there on
it is what counts. What is at `state.db` while that file exists is damaged, and its files are moved aside.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from ullage.storage.wal import log_path
from ullage.storage.witness import sync_directory, witness_path

_SUFFIXES = ("-wal", "-shm", "-witness", "-witness.new", ".lock", "")
"""Of the files of a database; the database goes last, so that a witness without one is never of a draft."""


def draft_path(path: Path) -> Path:
    """Return where a database is recovered that is to be at `path`."""
    return path.with_name(path.name + "-recovering")


def is_there(path: Path) -> bool:
    """Return whether there is a database, or what is left of one."""
    return any(map(Path.exists, (path, witness_path(path), _whole(path))))


def swap(path: Path) -> Path:
    """Put the finished draft in place; return where the damaged files are now."""
    draft = draft_path(path)
    _sync_file(draft)
    draft.replace(_whole(path))
    sync_directory(path.parent)
    return finish_swap(path)


def finish_swap(path: Path) -> Path:
    """Go on with a swap that was killed, if there was one; return where the damaged files are moved."""
    aside = _free_name(path)
    if _whole(path).exists():
        for here, there in zip(_files(path), _files(aside), strict=True):
            if here.exists():
                here.replace(there)
        _whole(path).replace(path)
        sync_directory(path.parent)
    draft = draft_path(path)
    if witness_path(draft).exists() and not draft.exists():
        witness_path(draft).replace(witness_path(path))
        sync_directory(path.parent)
    return aside


def remove_files(path: Path) -> None:
    """Remove a database with all files beside it."""
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _whole(path: Path) -> Path:
    return path.with_name(path.name + "-recovered")


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    return next(name for name in names if not any(map(Path.exists, _files(name))))


def _files(path: Path) -> tuple[Path, Path, Path]:
    return path, log_path(path), witness_path(path)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
