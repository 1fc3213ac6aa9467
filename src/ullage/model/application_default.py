"""The defaults of an application. Programs that only describe one need no more of it."""

from __future__ import annotations

MAX_INSTANCES = 1_000_000
DELAY_RELEASE_S = 60.0
FUNCTION_NAME, COMMAND_NAME = "function", "command"
