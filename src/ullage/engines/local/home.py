"""Where a local engine keeps its things: everything is below one data directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

import ullage
from ullage.model.error import Unavailable
from ullage.wire.private_file import write_private

_LONGEST_SOCKET_PATH = 107
"""Bytes; `sun_path` has 108 with its closing NUL: unix(7)."""

_MOST_OF_NOTE = 1 << 20
"""Characters that are read of what an earlier run noted."""


class Home:
    """The directories of one engine. `id` is the same for the same directory, and for no other."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = data_dir.resolve()
        facts = self.path.stat()
        self.id = hashlib.sha256(f"{self.path}:{facts.st_dev}:{facts.st_ino}".encode()).hexdigest()[:16]
        self.executor_logs = self.path / "logs/executors"
        self.task_logs = self.path / "logs/tasks"
        self._run = self.path / "run"
        self._work = self.path / "work"
        self._caches = self._run / "hami"
        self._lock: int | None = None
        self._short: Path | None = None

    def open(self) -> None:
        """Make the directories and take them for this process alone.

        Raises:
            Unavailable: another engine uses them.

        """
        for directory in (self._run, self._work, self._caches, self.executor_logs, self.task_logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._run / "engine.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise Unavailable(f"{self.path} is in use by another server", code="data-dir-in-use") from None
        self._lock = lock
        for left in (*self._work.iterdir(), *self._caches.iterdir()):  # by executors of an earlier run
            remove(left)

    def close(self) -> None:
        """Let others use the directories."""
        self.socket.unlink(missing_ok=True)
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)
            self._short = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def marker(self) -> str:
        """NAME=VALUE in the environment of every process that comes from here."""
        return f"ULLAGE_HOME_ID={self.id}"

    @property
    def socket(self) -> Path:
        """Where workers connect: in the data directory, or, if that path is too long, in a private one."""
        path = self._run / "executors.sock"
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            return path
        if self._short is None:
            self._short = Path(tempfile.mkdtemp(prefix="ullage-"))  # 0700
        return self._short / "executors.sock"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor has to complain of."""
        return self.path / "logs/supervisor.err"

    @property
    def package_path(self) -> Path:
        """A directory for PYTHONPATH that holds this package and nothing else.

        Another interpreter may import the worker from here; our own site-packages, compiled for
        this interpreter, would only stand in its way.
        """
        directory = self._run / "python"
        directory.mkdir(mode=0o700, exist_ok=True)
        link = directory / "ullage"
        package = Path(ullage.__file__).parent
        if not link.is_symlink() or link.readlink() != package:
            remove(link)
            link.symlink_to(package)
        return directory

    def make_work(self, executor: str) -> Path:
        """Return a private, empty working directory."""
        directory = self._work / _file_name(executor)
        remove(directory)
        directory.mkdir(mode=0o700, parents=True)  # user code may have removed the one of all
        return directory

    def new_cache(self, executor: str) -> Path:
        """Return a file for the processes of one executor to count together what they use of a card; not there yet."""
        cache = self._caches / f"{_file_name(executor)}.cache"
        remove(cache)
        return cache

    def bury(self, directory: Path) -> Path | None:
        """Give a directory another name, so that its own is free at once; None if its user has removed it."""
        try:
            grave = Path(tempfile.mkdtemp(prefix=".gone-", dir=self._work))
            directory.rename(grave / "directory")
        except OSError:
            return None
        return grave

    def bury_task_logs(self, name: str) -> Path | None:
        """Give the directory of a session's logs another name; None if there is none."""
        directory = self.task_logs / name
        return self.bury(directory) if directory.is_dir() else None

    def logs_of_others(self, names: Container[str]) -> list[Path]:
        """Directories of logs whose name is none of these."""
        return [entry for entry in self.task_logs.iterdir() if entry.name not in names]

    def logs(self, executor: str) -> tuple[Path, Path]:
        """Files for what a worker prints: standard output, standard error."""
        name = _file_name(executor)
        return self.executor_logs / f"{name}.out", self.executor_logs / f"{name}.err"

    def known_roots(self) -> list[Path]:
        """Cgroup directories noted by this and earlier runs."""
        try:
            with os.fdopen(os.open(self._note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
                return [Path(line) for line in file.read(_MOST_OF_NOTE).splitlines()]
        except OSError:
            return []

    def note_roots(self, roots: tuple[Path, ...]) -> None:
        """Note where cgroups are made, for the run after a crash: it may itself live in another cgroup."""
        if self._note.is_dir():
            remove(self._note)
        write_private(self._note, "".join(f"{root}\n" for root in roots).encode())

    @property
    def _note(self) -> Path:
        return self._run / "cgroups"


def _file_name(executor: str) -> str:
    """`executor` as one file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", executor).lstrip(".") or "_"


def open_plainly(path: Path) -> int:
    """Return a descriptor that appends to the regular file at `path`; anything else that is there is replaced.

    Raises:
        OSError: the file cannot be made.

    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    remove(path)
    return os.open(path, flags | os.O_EXCL, 0o600)


def remove(path: Path) -> None:
    """Remove whatever user code has put at `path`: a file, a link, a tree that forbids to be removed. No error."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=_permit_and_remove)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return  # what needs the place free says so itself


def _permit_and_remove(_function: Callable[[str], object], path: str, _error: object) -> None:
    """Try once more after giving the owner's rights back to `path` and its parent."""
    with suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120 - names as `rmtree` has them
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - as above
            os.chmod(path, 0o700)  # noqa: PTH101 - as above
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108 - as above
