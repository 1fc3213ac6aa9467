"""The data directory of a local engine, which holds all its files."""

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
from ullage.engines.local.run_as import give
from ullage.model.error import Unavailable
from ullage.service.system_users import SystemUser
from ullage.wire.private_file import write_private

_LONGEST_SOCKET_PATH = 107
"""Bytes; `sun_path` has 108 with its closing NUL: unix(7)."""

_MOST_ROOT_CHARACTERS = 1 << 20
"""The most characters read of the cgroup directories that an earlier run recorded."""


_PASSABLE = 0o711
_DROP = 0o1733
"""Everyone may create files there, and remove their own."""


class Home:
    """The directories of one engine. `id` identifies the data directory.

    With `clients`, the directory where clients find the server, executors run as other users. They may pass through the
    directories to what is theirs, and list none.
    """

    def __init__(self, data_dir: Path, clients: Path | None = None) -> None:
        self.is_shared = clients is not None
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = data_dir.resolve()
        self.clients = clients or self.path
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
        """Create the directories and lock them.

        Raises:
            Unavailable: another engine uses them.

        """
        for directory in (self._run, self._work, self._caches, self.executor_logs, self.task_logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.is_shared:
            for directory in (self.path, self._run, self._work, self.path / "logs", self.task_logs):
                directory.chmod(_PASSABLE)
            self._caches.chmod(_DROP)
        lock = os.open(self._run / "engine.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise Unavailable(f"{self.path} is in use by another server", code="data-dir-in-use") from None
        self._lock = lock
        for left in (*self._work.iterdir(), *self._caches.iterdir()):  # from executors of an earlier run
            remove(left)

    def close(self) -> None:
        """Unlock the directories."""
        self.socket.unlink(missing_ok=True)
        self.terminal_socket.unlink(missing_ok=True)
        if self._short is not None:
            shutil.rmtree(self._short, ignore_errors=True)
            self._short = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def marker(self) -> str:
        """NAME=VALUE in the environment of every process of this engine."""
        return f"ULLAGE_HOME_ID={self.id}"

    @property
    def socket(self) -> Path:
        """The socket for workers."""
        return self._socket("executors.sock")

    @property
    def terminal_socket(self) -> Path:
        """The socket for hosts of terminals."""
        return self._socket("terminals.sock")

    def _socket(self, name: str) -> Path:
        """Return the path of a socket: in the data directory, or in a private one if that path is too long."""
        path = self._run / name
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            return path
        if self._short is None:
            self._short = Path(tempfile.mkdtemp(prefix="ullage-"))  # 0700
            if self.is_shared:
                self._short.chmod(_PASSABLE)
        return self._short / name

    @property
    def supervisor_log(self) -> Path:
        """The standard error of the supervisor."""
        return self.path / "logs/supervisor.err"

    @property
    def package_path(self) -> Path:
        """A directory for PYTHONPATH that holds this package only.

        Another interpreter imports the worker from here. The site-packages of this interpreter may hold
        extension modules that the other one cannot load.
        """
        directory = self._run / "python"
        directory.mkdir(mode=0o700, exist_ok=True)
        if self.is_shared:
            directory.chmod(_PASSABLE | 0o044)
        link = directory / "ullage"
        package = Path(ullage.__file__).parent
        if not link.is_symlink() or link.readlink() != package:
            remove(link)
            link.symlink_to(package)
        return directory

    def make_work(self, executor: str) -> Path:
        """Create a private, empty working directory and return it."""
        directory = self._work / _file_name(executor)
        remove(directory)
        directory.mkdir(mode=0o700, parents=True)  # user code may have removed the parent
        return directory

    def make_task_logs(self, name: str, account: SystemUser) -> None:
        """Create the directory for the output of the programs of a session, which only its owner and root may read."""
        directory = self.task_logs / name
        if not directory.exists():
            directory.mkdir(mode=0o700)
            give(directory, account)

    def new_cache(self, executor: str) -> Path:
        """Return the path, not yet created, of the file in which HAMi-core counts the usage of an executor."""
        cache = self._caches / f"{_file_name(executor)}.cache"
        remove(cache)
        return cache

    def move_aside(self, directory: Path) -> Path | None:
        """Rename a directory so that its name is free at once. Return the new parent; None if it does not exist."""
        try:
            parent = Path(tempfile.mkdtemp(prefix=".gone-", dir=self._work))
            directory.rename(parent / "directory")
        except OSError:
            return None
        return parent

    def move_task_logs_aside(self, name: str) -> Path | None:
        """Rename the log directory of a session, as `move_aside`."""
        directory = self.task_logs / name
        return self.move_aside(directory) if directory.is_dir() else None

    def other_task_logs(self, names: Container[str]) -> list[Path]:
        """Return the log directories of sessions with other names."""
        return [entry for entry in self.task_logs.iterdir() if entry.name not in names]

    def logs(self, executor: str) -> tuple[Path, Path]:
        """Return the logs of a worker's standard output and standard error."""
        name = _file_name(executor)
        return self.executor_logs / f"{name}.out", self.executor_logs / f"{name}.err"

    def recorded_roots(self) -> list[Path]:
        """Return the cgroup directories recorded by this and earlier runs."""
        try:
            with os.fdopen(os.open(self._roots_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
                return [Path(line) for line in file.read(_MOST_ROOT_CHARACTERS).splitlines()]
        except OSError:
            return []

    def record_roots(self, roots: tuple[Path, ...]) -> None:
        """Record where cgroups are made. After a crash the server may run in another cgroup."""
        if self._roots_file.is_dir():
            remove(self._roots_file)
        write_private(self._roots_file, "".join(f"{root}\n" for root in roots).encode())

    @property
    def _roots_file(self) -> Path:
        return self._run / "cgroups"


def _file_name(executor: str) -> str:
    """Return `executor` as one file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", executor).lstrip(".") or "_"


def open_regular_file(path: Path) -> int:
    """Return a descriptor that appends to the regular file at `path`. Anything else at `path` is replaced.

    Raises:
        OSError: the file cannot be created.

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
    """Remove the file, link or directory at `path`, also against its permissions. Ignore errors."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=_permit_and_remove)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return  # whatever needs the path free reports the error


def _permit_and_remove(_function: Callable[[str], object], path: str, _error: object) -> None:
    """Grant the owner access to `path` and its parent, then remove it. Root has access, and may not follow links."""
    if os.geteuid() == 0:
        return
    with suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120 - names as `rmtree` has them
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - as above
            os.chmod(path, 0o700)  # noqa: PTH101 - as above
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108 - as above
