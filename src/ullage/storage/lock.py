"""The lock that allows one process per database."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ullage.model.error import Unavailable

OWNER_ONLY = 0o600


class FileLock:
    """An exclusive `flock` on `path`. The kernel frees it when the process ends.

    The file stays: without it, two processes could lock two files of the same name.

    Raises:
        Unavailable: `storage-in-use` if another store holds it, with its process if that is known;
            `storage-failed` if the file cannot be created or locked.

    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        except OSError as error:
            raise _unlockable(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            self.release()
            raise _in_use(path, holder) from None
        except OSError as error:
            self.release()
            raise _unlockable(path, error) from error

    def release(self) -> None:
        """Release the lock. A repeat does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _in_use(path: Path, holder: str) -> Unavailable:
    who = f"process {holder}" if holder.isdecimal() else "another process"
    return Unavailable(
        f"{path.with_suffix('')} is in use by {who}; stop that one first, or choose another file",
        code="storage-in-use",
    )


def _unlockable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"{path} cannot be locked ({error.strerror or error}); the directory must be writable and on a local disk",
        code="storage-failed",
    )
