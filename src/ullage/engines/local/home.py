"""Where a local engine keeps its things: everything is below one data directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import ullage
from ullage.model.error import Unavailable

_LONGEST_SOCKET_PATH = 107
"""Bytes; `sun_path` has 108 with its closing NUL: unix(7)."""


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
        for directory in self._work.iterdir():  # of executors that an earlier run did not see off
            shutil.rmtree(directory, ignore_errors=True)
        for cache in self._caches.iterdir():
            cache.unlink()

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
    def warden_log(self) -> Path:
        """What the warden has to complain of."""
        return self.path / "logs/warden.err"

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
            link.unlink(missing_ok=True)
            link.symlink_to(package)
        return directory

    def make_work(self, executor: str) -> Path:
        """A private, empty working directory."""
        directory = self._work / _file_name(executor)
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    def new_cache(self, executor: str) -> Path:
        """A file for the processes of one executor to count together what they use of a card; not there yet."""
        cache = self._caches / f"{_file_name(executor)}.cache"
        cache.unlink(missing_ok=True)
        return cache

    def bury(self, work: Path) -> Path:
        """Give a working directory another name, so that its own is free at once."""
        grave = Path(tempfile.mkdtemp(prefix=".gone-", dir=self._work)) / work.name
        work.rename(grave)
        return grave.parent

    def logs_of_tasks(self, tasks: Iterable[tuple[str, int]]) -> Iterator[Path]:
        """Where programs write that run as these tasks (session, number)."""
        for session, task in tasks:
            yield self.task_logs / session / f"{task}.out"
            yield self.task_logs / session / f"{task}.err"

    def logs(self, executor: str) -> tuple[Path, Path]:
        """Files for what a worker prints: standard output, standard error."""
        name = _file_name(executor)
        return self.executor_logs / f"{name}.out", self.executor_logs / f"{name}.err"

    def known_roots(self) -> list[Path]:
        """Cgroup directories noted by this and earlier runs."""
        try:
            return [Path(line) for line in self._note.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def note_roots(self, roots: tuple[Path, ...]) -> None:
        """Note where cgroups are made, for the run after a crash: it may itself live in another cgroup."""
        self._note.write_text("".join(f"{root}\n" for root in roots))

    @property
    def _note(self) -> Path:
        return self._run / "cgroups"


def _file_name(executor: str) -> str:
    """`executor` as one file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", executor).lstrip(".") or "_"
