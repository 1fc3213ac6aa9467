"""The directory of the logs of a session's tasks."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ullage.worker.context import Context

ROOT = "ULLAGE_TASK_LOGS"
"""The variable of the environment with the directory of all logs of tasks."""


def log_directory(context: Context) -> Path:
    """Return the directory for the logs of a session.

    Raises:
        KeyError: the engine of this worker keeps no logs.

    """
    return Path(os.environ[ROOT], _file_name(context.logs or context.session))


def _file_name(session: str) -> str:
    """Return `session` as one file name that stays inside its directory."""
    return re.sub(r"[^A-Za-z0-9._@-]", "_", session).lstrip(".") or "_"
