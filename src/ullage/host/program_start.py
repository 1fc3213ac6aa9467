"""The start of a program in an executor: its environment, and why it could not be started.

The host of a terminal runs without site-packages, so this module uses the standard library only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_GRANT_PREFIXES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "CUDA_MPS_", "NVIDIA_VISIBLE_DEVICES", "ULLAGE_")
"""Prefixes of the variables that describe the grant of an executor."""


class StartFailure(NamedTuple):
    """The exit code that a shell would have, and the reason."""

    code: int
    message: str


def program_environment(
    executor: Mapping[str, str], own: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a program: that of the executor, its own, and the `names` of its task.

    Its own cannot override what describes the grant, such as with a copied environment.
    """
    return {**executor, **own, **_grant_variables(executor), **names}


def start_failure(error: OSError | ValueError, program: str, cwd: str | None, env: Mapping[str, str]) -> StartFailure:
    """Return why a program could not be started in a directory."""
    if not isinstance(error, OSError):  # a NUL character in an argument
        return StartFailure(NOT_EXECUTABLE, f"{program}: cannot be run: {error}")
    if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112  # pathlib takes long to import
        return StartFailure(NOT_EXECUTABLE, f"{cwd}: no such working directory")
    if error.errno == errno.ENOENT:
        return StartFailure(NOT_FOUND, f"{program}: program not found; PATH is {env.get('PATH', '')}")
    is_directory = os.path.isdir(os.path.join(cwd or ".", program))  # noqa: PTH112, PTH118  # as above
    reason = "it is a directory" if is_directory else error.strerror
    return StartFailure(NOT_EXECUTABLE, f"{program}: cannot be run: {reason}")


def _grant_variables(executor: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in executor.items() if name.startswith(_GRANT_PREFIXES)}
    if executor.get("ULLAGE_GPU_ENFORCED") == "hami" and "LD_PRELOAD" in executor:
        found["LD_PRELOAD"] = executor["LD_PRELOAD"]
    return found
