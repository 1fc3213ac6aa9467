"""The options of `Session.map`, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from ullage.client.deadline import Deadline
from ullage.client.pickling import check_callable
from ullage.client.resume import KeyedMap, require_open_session
from ullage.client.retry import Retries, check_retries
from ullage.model.error import invalid
from ullage.model.nearest import did_you_mean


class MapOptions(TypedDict, total=False):
    """Options of `map`.

    `ordered=False` yields results as they end. `chunksize` calls make one task. At most `buffersize`
    tasks are submitted whose results the iterator has not yielded, and the iterables are read when they are needed, so
    that they may be endless; without it all are read at once. `timeout` is in seconds from the call
    of `map` to the last result. `progress` shows how many calls have ended: a bar where stderr is a terminal, and in
    notebooks. A call that raises one of `retry_on` (an exception class or a tuple, by default `Exception`) is tried
    again up to `retries` times, in a chunk by the same executor. With `key`, in a session from `open_session`, the same
    call of `map` resumes after the end of its client: item n of the key, for a function of the same name and the same
    `chunksize`, is submitted once, whoever asks for its result. `logs` shows what the calls print while they run, each
    line after the number of its task.
    """

    ordered: bool
    chunksize: int
    buffersize: int | None
    progress: bool
    logs: bool
    timeout: float | None
    retries: int
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    key: str | None


class MapPlan(NamedTuple):
    """What one call of `map` does. `keyed` is its place for later clients."""

    ordered: bool
    chunksize: int
    buffersize: int | None
    progress: bool
    deadline: Deadline
    retries: Retries
    keyed: KeyedMap | None
    keeps_failures: bool
    shows_logs: bool


def plan_map(function: Callable[..., Any], options: MapOptions, *, keeps_failures: bool, stays_open: bool) -> MapPlan:
    """Return the checked options. The time of `timeout` starts now.

    Raises:
        InvalidRequest: an option is unknown or has a wrong value, or `function` is not callable.

    """
    known = [*MapOptions.__annotations__, "return_exceptions"]
    for name, value in options.items():
        if name not in known:
            raise invalid(name, value, f"{did_you_mean(name, known)}The options of map are {', '.join(known)}")
    chunksize, key = options.get("chunksize", 1), options.get("key")
    if not isinstance(chunksize, int) or chunksize < 1:
        raise invalid("chunksize", chunksize, "a whole number from 1 is needed")
    buffersize = options.get("buffersize")
    if buffersize is not None and (not isinstance(buffersize, int) or buffersize < 1):
        raise invalid("buffersize", buffersize, "a whole number from 1 is needed, or None to submit all calls at once")
    check_callable(function)
    retries = check_retries(options.get("retries", 0), options.get("retry_on", Exception))
    keyed = None
    if key is not None:
        keyed = KeyedMap(key, function, chunksize)
        require_open_session(key, stays_open=stays_open)
    return MapPlan(
        ordered=options.get("ordered", True),
        chunksize=chunksize,
        buffersize=buffersize,
        progress=options.get("progress", False),
        deadline=Deadline(options.get("timeout")),
        retries=retries,
        keyed=keyed,
        keeps_failures=keeps_failures,
        shows_logs=options.get("logs", False),
    )
