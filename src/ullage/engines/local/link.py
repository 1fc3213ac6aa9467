"""The engine's end of the pipes to its supervisor. A supervisor that dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ullage
from ullage.engines.local.home import open_regular_file

_log = logging.getLogger(__name__)

_RUN_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); from ullage.engines.local.supervisor import main; main()"

_PAUSE_S = 0.1
_PAUSE_MAX_S = 10.0
"""Seconds before another supervisor is started: doubled for each that dies without an event."""


class SupervisorLink:
    """Sends orders, passes events on, and calls `on_lost` when the supervisor dies.

    Orders sent without a supervisor reach the next one, those of `on_lost` first.
    """

    def __init__(self, log: Path, on_event: Callable[[dict[str, Any]], None], on_lost: Callable[[], None]) -> None:
        self._log = log
        self._on_event = on_event
        self._on_lost = on_lost
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: list[bytes] = []
        self._closing = False
        self._received = False
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The supervisor's process id; None while there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the first supervisor."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, **order: object) -> None:
        """Send an order, as `supervisor.py` lists them."""
        data = json.dumps(order).encode() + b"\n"
        if self._process is None or self._process.stdin is None:
            self._waiting.append(data)
        elif not self._process.stdin.is_closing():  # it died, and its end arrives soon; uvloop refuses to write now
            self._process.stdin.write(data)

    async def close(self) -> None:
        """Close the pipe: the supervisor kills the remaining processes and ends."""
        self._closing = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._closed.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        pause = _PAUSE_S
        while await self._run_one():
            _log.warning("the supervisor ended; its workers are killed and another one is started")
            self._waiting.clear()  # orders for the one that died
            self._on_lost()
            pause = _PAUSE_S if self._received else min(2 * pause, _PAUSE_MAX_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), pause)

    async def _run_one(self) -> bool:
        """Run one supervisor from start to end. Return whether another one follows."""
        self._received = False
        try:
            process = await self._spawn()
        except OSError as error:  # no process or memory is left; that may pass
            _log.warning("the supervisor cannot be started: %s", error.strerror)
            return not self._closing
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        if self._closing:
            process.stdin.close()
        else:
            process.stdin.writelines(self._waiting)
        self._waiting.clear()
        async for line in process.stdout:
            self._received = True
            self._on_event(json.loads(line))
        process.stdin.close()
        await process.wait()
        self._process = None  # orders from now on are for the next one
        return not self._closing

    async def _spawn(self) -> asyncio.subprocess.Process:
        # Isolated: neither the environment nor the user's site-packages can slow or break its start.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ULLAGE_")}
        with os.fdopen(open_regular_file(self._log), "ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                "-c",
                _RUN_SUPERVISOR,
                str(Path(ullage.__file__).parent.parent),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd="/",
                start_new_session=True,  # Ctrl-C reaches the server only
            )
