"""A program to run, as one task of a session of the application `command`."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from ullage.client.api import Api
from ullage.client.spec import SessionOptions, session_spec, working_directory
from ullage.model.application_default import COMMAND_NAME
from ullage.model.array import Array
from ullage.model.error import Conflict
from ullage.model.queue_name import DEFAULT_QUEUE
from ullage.wire.session import SessionBody, SubmitTasks

_OF_NOTIFIER = "cpu=0.1,mem=128m"
"""The request of the command of `--notify-command`."""


_KEY_BYTES = 16
"""Bytes of the key of a submission: the server takes one with the same key for a repetition."""


class Program(msgspec.Struct, frozen=True):
    """The input of a `command` task; see `worker/command.py`."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    stdin: bytes | None = None
    tty: bool = False
    streamed: bool = False


def create(
    api: Api, name: str | None, options: SessionOptions, *, array: Array | None = None, amounts: str | None = None
) -> SessionBody:
    """Create the session. `amounts` are a part of its request, such as `gpu=1`, whose rest has the defaults."""
    spec = session_spec(name, {**options, "application": COMMAND_NAME, "close_when_done": True})
    if amounts is not None:
        spec = msgspec.structs.replace(spec, resreq=amounts, fill_resreq=True)
    return api.create_session(msgspec.structs.replace(spec, array=None if array is None else str(array)))


def submit(
    api: Api,
    session: str,
    program: Program,
    *,
    array: Array | None = None,
) -> None:
    """Submit the program: one task, or one for each index of an array, which share the program."""
    encoded, key = msgspec.msgpack.encode(program), os.urandom(_KEY_BYTES).hex()
    if array is None:
        api.submit(session, SubmitTasks(inputs=[encoded], key=key))
        return
    inputs = [msgspec.msgpack.encode({"env": array.variables(index)}) for index in array.indices]
    api.submit(session, SubmitTasks(inputs=inputs, key=key, shared=encoded))


def notify(api: Api, session: str, command: str, options: SessionOptions, environment: Mapping[str, str]) -> None:
    """Have a shell command run once the session has ended, as a small session of the same user in the same queue.

    The server runs no command of its own: this one has the user, the directory and the limits of any program.
    """
    own: SessionOptions = {
        "resreq": _OF_NOTIFIER,
        "queue": options.get("queue", DEFAULT_QUEUE),
        "after": f"{options.get('notify_on', 'end')}:{session}",
        "max_instances": 1,
    }
    try:
        notifier = create(api, None, own).id
    except Conflict as refusal:
        if refusal.code == "dependency-failed":  # it has succeeded already, and only a failure is notified of
            return
        raise
    own_environment = {**environment, "ULLAGE_NOTIFY_SESSION": session}
    submit(api, notifier, Program(argv=["sh", "-c", command], cwd=working_directory(), env=own_environment))
