"""Applications: how to start a worker, and the rules for its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ullage.model.application_default import COMMAND_NAME, DELAY_RELEASE_S, FUNCTION_NAME, MAX_INSTANCES
from ullage.model.environment import check_absolute_path, check_environment
from ullage.model.error import invalid
from ullage.model.name import check_name
from ullage.model.queue import MAX_PRIORITY, check_weight

__all__ = ["BUILT_IN", "COMMAND", "DELAY_RELEASE_S", "FUNCTION", "MAX_INSTANCES", "Application", "ApplicationState"]


class ApplicationState(StrEnum):
    """A disabled application keeps its sessions and takes no new ones."""

    ENABLED = "enabled"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Application:
    """A worker command and its rules.

    `command` empty means a built-in worker: `function` runs Python callables, `command` runs programs.
    `retries` is how often a task that reported an error is run again; `task_timeout_s` ends a task
    that runs longer (None: never); an executor without a task is kept for `delay_release_s`.

    Raises:
        InvalidRequest: a bad name, a relative working directory, or a negative number.

    """

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    description: str = ""
    labels: tuple[str, ...] = ()
    max_instances: int = MAX_INSTANCES
    delay_release_s: float = DELAY_RELEASE_S
    retries: int = 0
    task_timeout_s: float | None = None
    default_priority: int = 0
    default_weight: int = 1
    state: ApplicationState = ApplicationState.ENABLED

    def __post_init__(self) -> None:
        check_name("application", self.name)
        check_absolute_path("working_directory", self.working_directory)
        check_environment("environment", self.environment)
        if self.max_instances < 1:
            raise invalid("max_instances", self.max_instances, "at least 1 is needed")
        if self.retries < 0:
            raise invalid("retries", self.retries, "0 or more is needed")
        if self.delay_release_s < 0:
            raise invalid("delay_release_s", self.delay_release_s, "0 seconds or more is needed")
        if not 0 <= self.default_priority <= MAX_PRIORITY:
            raise invalid("default_priority", self.default_priority, f"0 (lowest) to {MAX_PRIORITY} is needed")
        check_weight("default_weight", self.default_weight)
        if self.task_timeout_s is not None and self.task_timeout_s <= 0:
            raise invalid("task_timeout_s", self.task_timeout_s, "more than 0 seconds is needed; omit it for no limit")


FUNCTION = Application(name=FUNCTION_NAME, description="runs Python callables sent by the SDK")
COMMAND = Application(name=COMMAND_NAME, description="runs a program; its exit code is the result", delay_release_s=0.0)
BUILT_IN = (FUNCTION, COMMAND)
