"""The request for a session from Python values."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ullage.client.own_name import user_name
from ullage.model.application_default import FUNCTION_NAME
from ullage.model.choice import parse_choice
from ullage.model.dependency import parse_dependencies
from ullage.model.error import InvalidRequest, invalid
from ullage.model.nearest import did_you_mean
from ullage.model.notify_on import NotifyOn
from ullage.wire.session import CreateSession, SetupBody

if TYPE_CHECKING:
    from ullage.model.request import ResourceRequirement


class SessionOptions(TypedDict, total=False):
    """Options of a session; an omitted option has the default of the server.

    `resreq` is the requirement of one executor: a `ResourceRequirement`, a text such as `cpu=2,mem=4g,gpu=1` or
    `gpu=0.5`, or a mapping with the same keys. `min_instances` and `max_instances` count executors; with
    `batch_size` n they start n at a time or not at all. `retries` is how often a failed task is run again,
    `task_timeout_s` the longest time of one task; their defaults are those of the application. A task that is evicted,
    cancelled or too late gets SIGTERM, and SIGKILL after `grace_s` seconds; with `signal="USR1@60"` it gets SIGUSR1
    60 seconds before its time limit or an eviction ends it. With `close_when_done` the session
    closes itself once its tasks have ended. Every executor gets `common_data`, at most 6 MB, once. `environment` and
    `working_directory` are for the executors. It runs `after` other sessions have ended with
    success (`ok:ID`), ended (`end:ID`), failed (`fail:ID`) or started (`start:ID`), and not before `begin_at` (a
    `datetime`, or seconds since 1970). The URL `notify` gets a notice of its end, or with `notify_on` "fail" only if a
    task did not succeed. A request that can never be placed is refused, unless `wait` is set. An `owner` other than
    oneself is for operators. With `carry_context=False` calls have no context variables of their caller.
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
    grace_s: float | None
    signal: str | None
    close_when_done: bool
    environment: Mapping[str, str]
    working_directory: str | os.PathLike[str] | None
    after: str | Sequence[str]
    begin_at: datetime | float | None
    notify: str | None
    notify_on: Literal["end", "fail"]
    wait: bool
    carry_context: bool
    owner: str | None


_OTHER_WORDS = {
    **dict.fromkeys(("num_cpus", "num_gpus", "cpus", "gpus", "resources"), 'resreq="cpu=1,mem=1g,gpu=1"'),
    **dict.fromkeys(("cpu", "mem", "memory", "gpu", "vram"), 'resreq="cpu=1,mem=1g,gpu=1"'),
    **dict.fromkeys(("max_workers", "num_workers", "n_workers", "n_jobs", "max_concurrency"), "max_instances"),
    **dict.fromkeys(("env", "env_vars"), "environment"),
    **dict.fromkeys(("cwd", "working_dir"), "working_directory"),
    **dict.fromkeys(("initializer", "initargs"), "ullage.Executor(initializer=..., initargs=...)"),
    "runtime_env": "environment and working_directory",
    "max_retries": "retries",
    "timeout": "task_timeout_s",
    "depends_on": "after",
}
"""What other libraries name differently."""

MOST_COMMON_DATA = 6_000_000
"""The most bytes of `common_data`: the server accepts a body of 8 MiB, where they take a third more as text."""


def session_spec(name: str | None, options: SessionOptions) -> CreateSession:
    """Return the request for a session.

    Raises:
        InvalidRequest: an option is unknown, the requirement is malformed, or JSON cannot represent a value.

    """
    _refuse_unknown(options)
    _check_values(options)
    application = options.get("application", FUNCTION_NAME)
    resreq = options.get("resreq")
    given: dict[str, Any] = {key: value for key, value in options.items() if key in CreateSession.__struct_fields__}
    stated = {
        "application": application,
        "id": name,
        "resreq": None if resreq is None else _request_text(resreq),
        "owner": options.get("owner") or "",
        "user": user_name(),
        "setup": _setup(application, options),
        "after": _texts(options.get("after", ())),
        "notify_on": parse_choice(NotifyOn, options.get("notify_on", NotifyOn.END), "notify_on"),
        "begin_at": seconds_of(options.get("begin_at")),
    }
    return CreateSession(**given | stated)


def _refuse_unknown(options: SessionOptions) -> None:
    known = list(SessionOptions.__annotations__)
    for name, value in options.items():
        if name not in known:
            other = _OTHER_WORDS.get(name)
            meant = did_you_mean(name, known) if other is None else f"did you mean {other}? "
            raise invalid(name, value, f"{meant}The options of a session are {', '.join(known)}")


def _check_values(options: SessionOptions) -> None:
    """Refuse values that JSON would change."""
    grace = options.get("grace_s")
    if isinstance(grace, float) and not math.isfinite(grace):
        raise invalid("grace_s", grace, "a number of seconds is needed; omit it for the usual one")
    timeout, data = options.get("task_timeout_s"), options.get("common_data")
    if isinstance(timeout, float) and not math.isfinite(timeout):
        raise invalid("task_timeout_s", timeout, "a number of seconds is needed; omit it for no limit")
    if data is not None:
        check_bytes("common_data", data)
        _check_common_size(len(data))
    _check_environment(options.get("environment", {}))


def _check_common_size(size: int) -> None:
    if size > MOST_COMMON_DATA:
        text = f"common_data: it has {size:,} bytes, at most {MOST_COMMON_DATA:,} can be sent"
        fix = "bind a larger value to the function: functools.partial(f, data)"
        raise InvalidRequest(f"{text}; {fix}", field="common_data")


def _check_environment(environment: object) -> None:
    if not isinstance(environment, Mapping):
        raise invalid("environment", environment, 'a mapping of texts is needed, such as {"LEVEL": "3"}')
    for name, value in environment.items():
        if not isinstance(name, str) or not isinstance(value, str):
            fix = f"it and its value ({type(value).__name__}) have to be texts; convert them by str()"
            raise invalid("environment", name, fix)


def check_bytes(field: str, data: object) -> None:
    """Refuse a value that is not bytes.

    Raises:
        InvalidRequest: it is not bytes; often it is a text.

    """
    if not isinstance(data, bytes):
        raise invalid(field, data, f"bytes are needed, not {type(data).__name__}; a text becomes bytes by .encode()")


def _texts(after: str | Sequence[str]) -> list[str]:
    """Return dependencies as texts.

    Raises:
        InvalidRequest: one is malformed.

    """
    return [str(each) for each in parse_dependencies([after] if isinstance(after, str) else list(after))]


def _request_text(resreq: ResourceRequirement | Mapping[str, int | float | str] | str) -> str:
    from ullage.model.request import ResourceRequirement  # noqa: PLC0415  # many sessions state none

    return str(ResourceRequirement.from_value(resreq))


def seconds_of(at: datetime | float | None) -> float | None:
    """Return a time in seconds since 1970; a `datetime` without a zone is in local time.

    Raises:
        InvalidRequest: it is neither, or not finite.

    """
    found = at.timestamp() if isinstance(at, datetime) else at
    if found is not None and (not isinstance(found, (int, float)) or not math.isfinite(found)):
        raise invalid("begin_at", at, "a datetime, or seconds since 1970 are needed; omit it to begin at once")
    return found


def _setup(application: str, options: SessionOptions) -> SetupBody:
    environment = dict(options.get("environment", {}))
    given = options.get("working_directory")
    directory = None if given is None else os.fspath(given)
    if application != FUNCTION_NAME:
        return SetupBody(environment=environment, working_directory=directory)
    # Workers import functions as the caller does: same interpreter, same directory of scripts.
    environment.setdefault("PYTHONPATH", _import_path())
    return SetupBody(python=sys.executable, environment=environment, working_directory=directory)


def working_directory() -> str:
    """Return the directory of this process.

    Raises:
        InvalidRequest: it was deleted (`no-working-directory`).

    """
    try:
        return os.getcwd()  # noqa: PTH109  # msgpack needs text
    except FileNotFoundError:
        raise InvalidRequest(
            "the working directory was deleted; change to another one", code="no-working-directory", field="cwd"
        ) from None


def _import_path() -> str:
    """Return the PYTHONPATH of the caller, after the directory of its script."""
    script = sys.path[0] if sys.path else ""
    if not os.path.isabs(script):  # noqa: PTH117  # as below; '' is the current directory
        script = os.path.normpath(os.path.join(working_directory(), script))  # noqa: PTH118  # keeps what a link is named
    rest = os.environ.get("PYTHONPATH")
    return f"{script}{os.pathsep}{rest}" if rest else script
