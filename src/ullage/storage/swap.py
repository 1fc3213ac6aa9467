"""Replacement of a damaged database by a recovered one, which continues after a kill.

A draft is at `state.db-recovering` until it is complete; one rename moves it to `state.db-recovered`. From then on it
is the database. While that file exists, the files of `state.db` are the damaged ones, and are moved aside.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

from ullage.storage.wal import log_path
from ullage.storage.witness import sync_path, witness_path

_SUFFIXES = ("-wal", "-shm", "-witness", "-witness.new", ".lock", "")
"""Suffixes of the files of a database. The database is removed last, so a witness alone never belongs to a draft."""


def draft_path(path: Path) -> Path:
    """Return the path of the draft for a database at `path`."""
    return path.with_name(path.name + "-recovering")


def exists(path: Path) -> bool:
    """Return whether a database or a part of one exists."""
    return any(map(Path.exists, (path, witness_path(path), _recovered(path))))


def swap(path: Path) -> Path:
    """Put the complete draft in place. Return the new path of the damaged files."""
    draft = draft_path(path)
    sync_path(draft)
    draft.replace(_recovered(path))
    sync_path(path.parent)
    return finish_swap(path)


def finish_swap(path: Path) -> Path:
    """Finish a swap that a kill interrupted, if any. Return the path for damaged files."""
    aside = _free_name(path)
    if _recovered(path).exists():
        for here, there in zip(_files(path), _files(aside), strict=True):
            if here.exists():
                here.replace(there)
        _recovered(path).replace(path)
        sync_path(path.parent)
    draft = draft_path(path)
    if witness_path(draft).exists() and not draft.exists():
        witness_path(draft).replace(witness_path(path))
        sync_path(path.parent)
    return aside


def remove_files(path: Path) -> None:
    """Remove a database with all its files."""
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _recovered(path: Path) -> Path:
    return path.with_name(path.name + "-recovered")


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    return next(name for name in names if not any(map(Path.exists, _files(name))))


def _files(path: Path) -> tuple[Path, Path, Path]:
    return path, log_path(path), witness_path(path)
