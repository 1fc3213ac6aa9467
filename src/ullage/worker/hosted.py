"""A program of a task whose input comes from a client, by a host (`host/terminal.py`) that is started in its place."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from ullage.host.terminal import SOCKET, host_command, order_of
from ullage.wire.terminal import FrameKind, encode

GRACE_S = 10.0
"""Seconds that a program with a terminal goes on after its client is lost; another one may attach meanwhile."""


class HostedProgram(Protocol):
    """The parts of a command that a host needs."""

    @property
    def argv(self) -> Sequence[str]:
        """The program and its arguments."""

    @property
    def cwd(self) -> str | None:
        """Its directory."""

    @property
    def tty(self) -> bool:
        """Whether it has a terminal."""


def start_host(
    program: HostedProgram, task: int, env: Mapping[str, str], *, out: int, err: int
) -> subprocess.Popen[bytes]:
    """Start the host of a program, which prints to the logs of the task.

    Raises:
        OSError: the server takes no hosts, or no process is left.
        KeyError: its engine has no terminals (`SOCKET` is not set).

    """
    order = order_of(
        program.argv, dict(env), program.cwd, tty=program.tty, logged=True, grace_s=GRACE_S if program.tty else 0.0
    )
    given = os.memfd_create("order")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, open(given, "wb") as file:  # noqa: PTH123  # a descriptor
        file.write(order)
        file.flush()
        os.lseek(given, 0, os.SEEK_SET)
        connection.connect(os.environ[SOCKET])
        hello = {"executor": os.environ["ULLAGE_EXECUTOR"], "task": task}
        connection.sendall(encode(FrameKind.HELLO, json.dumps(hello).encode()))
        descriptor = connection.fileno()
        command = host_command(str(descriptor))
        return subprocess.Popen(command, stdin=given, stdout=out, stderr=err, pass_fds=[descriptor])  # noqa: S603  # ours
