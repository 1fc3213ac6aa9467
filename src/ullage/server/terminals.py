"""Routes to programs in the executors of running tasks, by a stream of frames (`wire/terminal.py`)."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request

from ullage.model.application import COMMAND
from ullage.model.environment import check_environment
from ullage.model.error import Conflict, InvalidRequest, UllageError, invalid
from ullage.model.identity import Role
from ullage.server.access import Authorizer, Whose, caller_of, needs
from ullage.server.parameters import session_of, task_of
from ullage.server.routes import route
from ullage.server.upgrade import Upgraded, require_upgrade
from ullage.service.engine_port import ExecOrder
from ullage.service.service import UllageService
from ullage.service.terminals import RunningTask
from ullage.wire.decoding import decode_body
from ullage.wire.session import ExecBody
from ullage.wire.terminal import BrokenStreamError, FrameKind
from ullage.wire.terminal_stream import read_frame, write_end
from ullage.worker.command import Command, command_of

_HOST_S = 30.0
"""Seconds within which the host of a running task connects."""

_POLL_S = 0.05
_ORDER_S = 10.0
"""Seconds within which a client names its program."""


class TerminalApi:
    """Handlers of terminals."""

    def __init__(self, service: UllageService) -> None:
        self._service = service
        self._authorizer = Authorizer(service)

    @route("POST", "/v1/sessions/{session}/tasks/{task}/exec", "tasks", id="exec_in_task", status=101)
    @needs(Role.USER, Whose.OWN)
    async def execute(self, request: Request) -> Upgraded:
        """Run another program in the executor of a running task: with its user, limits, environment and directory.

        The connection becomes a stream of frames (`Upgrade: ullage-terminal`), of which the first one names the
        program. It ends with the executor.
        """
        session, task = session_of(request), task_of(request)
        self._service.terminals.running(session, task)
        self._check_account(request, session)
        require_upgrade(request)
        caller = caller_of(request)

        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                body = await _read_order(reader)
                terminal = await self._service.terminals.execute(self._order(session, task, body), caller.user)
            except UllageError as error:
                await write_end(writer, error.message)
            else:
                await terminal.relay(reader, writer)

        return Upgraded(run)

    @route("POST", "/v1/sessions/{session}/tasks/{task}/attach", "tasks", id="attach_to_task", status=101)
    @needs(Role.USER, Whose.OWN)
    async def attach(self, request: Request) -> Upgraded:
        """Attach to the terminal of a running task; another client is taken off it.

        The connection becomes a stream of frames (`Upgrade: ullage-terminal`).
        """
        session, task = session_of(request), task_of(request)
        command = self._command_of(self._service.terminals.running(session, task))
        self._check_account(request, session)
        ends_at = asyncio.get_running_loop().time() + _HOST_S
        while (terminal := self._service.terminals.of_task(session, task)) is None:
            if command is None or not command.is_hosted or asyncio.get_running_loop().time() > ends_at:
                fix = (
                    "`ullage run --pty` starts a program with one, and `ullage exec -t` another program beside this one"
                )
                raise Conflict(f"task {task} of {session} has no terminal: {fix}", code="no-terminal", field="task")
            await self._service.news.wait(session, _POLL_S)  # its host is about to connect
        require_upgrade(request)
        self._service.terminals.attach(session, task, caller_of(request).user)
        return Upgraded(terminal.relay)

    def _check_account(self, request: Request, session: str) -> None:
        """Check that the caller may act as the user that the session runs as."""
        self._authorizer.check_account(request, self._service.state.session(session).session.spec.owner)

    def _order(self, session: str, task: int, body: ExecBody) -> ExecOrder:
        """Return the order of a program beside a task; the task may have ended by now."""
        running = self._service.terminals.running(session, task)
        command = self._command_of(running)
        environment = ({} if command is None else command.env) | body.env
        cwd = None if command is None else command.cwd
        return ExecOrder(running.executor, session, task, tuple(body.argv), env=environment, cwd=cwd, tty=body.tty)

    def _command_of(self, running: RunningTask) -> Command | None:
        """Return the program of a task; None if its executor runs something else."""
        if self._service.state.session(running.session).session.spec.application != COMMAND.name:
            return None
        try:
            return command_of(running.input, running.shared)
        except msgspec.MsgspecError:  # the program cannot start, and its task fails next
            return None


async def _read_order(reader: asyncio.StreamReader) -> ExecBody:
    """Return the first frame of a client: the program that it wants to run.

    Raises:
        InvalidRequest: it is something else, or is not valid.

    """
    try:
        frame = await asyncio.wait_for(read_frame(reader), _ORDER_S)
    except (BrokenStreamError, TimeoutError):
        frame = None
    if frame is None or frame.kind is not FrameKind.ORDER:
        raise InvalidRequest("the first frame is no program to run", code="upgrade-needed", field="argv")
    body = decode_body(frame.data, ExecBody, packed=False)
    if not body.argv or not body.argv[0]:
        raise invalid("argv", body.argv, "name a program")
    check_environment("env", body.env)
    return body
