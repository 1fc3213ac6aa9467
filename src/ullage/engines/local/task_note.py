"""A line of Ullage in the log of a task: why its executor ended."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from ullage.wire.log_note import note_line
from ullage.wire.output_log import LogWriter

_log = logging.getLogger(__name__)


def append_note(directory: Path, task: int, text: str) -> None:
    """Append `text` to the standard error of a task whose processes have ended, on a line of its own.

    The log belongs to the owner of the directory, who may be another user than that of this process.
    """
    name = f"{task}.err"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        line = note_line(directory / name, text)
        log = LogWriter(directory, name, timed=True)
        try:
            log.write(line)
        finally:
            log.close()
        _give_to_owner(directory, name)
    except OSError as error:
        _log.warning("the log of task %d in %s cannot say why it ended: %s", task, directory, error.strerror)


def _give_to_owner(directory: Path, name: str) -> None:
    owner = directory.stat()
    if owner.st_uid == os.geteuid():
        return
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for each in (name, f"{name}.times"):
            with contextlib.suppress(FileNotFoundError):
                os.chown(each, owner.st_uid, owner.st_gid, dir_fd=opened, follow_symlinks=False)
    finally:
        os.close(opened)
