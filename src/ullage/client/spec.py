"""What a session asks for, from Python values to the wire."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping
from typing import TypedDict

from ullage.model.application import FUNCTION
from ullage.model.queue import DEFAULT_QUEUE
from ullage.model.request import ResourceRequirement
from ullage.wire.api import CreateSession, SetupBody


class SessionOptions(TypedDict, total=False):
    """Options of a session; what is left out takes the server's default.

    `resreq` is what one executor holds: a `ResourceRequirement`, a text such as `cpu=2,mem=4g,gpu=1` or
    `gpu=0.5`, or a mapping with the same keys. `min_instances` and `max_instances` count executors; with
    `batch_size` n they start n at a time or not at all. `retries` is how often a failed task is run again,
    `task_timeout_s` how long one may run (both: as the application says, if left out); with
    `close_when_done` the session closes by itself once its tasks have ended. `common_data` is given to
    every executor once. `environment` and `working_directory` are for the executors.
    """

    application: str
    resreq: ResourceRequirement | Mapping[str, int | float | str] | str | None
    queue: str
    priority: int | None
    weight: int | None
    min_instances: int
    max_instances: int | None
    batch_size: int
    common_data: bytes | None
    retries: int | None
    task_timeout_s: float | None
    close_when_done: bool
    environment: Mapping[str, str]
    working_directory: str | None


def session_spec(name: str | None, options: SessionOptions) -> CreateSession:
    """The request for a session.

    Raises:
        InvalidRequest: the requirement cannot be read.

    """
    application = options.get("application", FUNCTION.name)
    resreq = options.get("resreq")
    return CreateSession(
        application=application,
        id=name,
        resreq=None if resreq is None else str(ResourceRequirement.from_value(resreq)),
        queue=options.get("queue", DEFAULT_QUEUE),
        owner=user_name(),
        priority=options.get("priority"),
        weight=options.get("weight"),
        min_instances=options.get("min_instances", 0),
        max_instances=options.get("max_instances"),
        batch_size=options.get("batch_size", 1),
        common_data=options.get("common_data"),
        setup=_setup(application, options),
        retries=options.get("retries"),
        task_timeout_s=options.get("task_timeout_s"),
        close_when_done=options.get("close_when_done", False),
    )


def user_name() -> str:
    """Who runs this process."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container with a number for a user
        return str(os.getuid())


def _setup(application: str, options: SessionOptions) -> SetupBody:
    environment = dict(options.get("environment", {}))
    directory = options.get("working_directory")
    if application != FUNCTION.name:
        return SetupBody(environment=environment, working_directory=directory)
    # Functions are found where the caller finds them: same interpreter, same directory of scripts.
    environment.setdefault("PYTHONPATH", _import_path())
    return SetupBody(python=sys.executable, environment=environment, working_directory=directory)


def _import_path() -> str:
    """The caller's PYTHONPATH, with the directory of its script before it."""
    script = os.path.abspath(sys.path[0] if sys.path else "")  # noqa: PTH100  # '' is the current directory
    rest = os.environ.get("PYTHONPATH")
    return f"{script}{os.pathsep}{rest}" if rest else script
