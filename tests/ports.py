"""Ports for servers that are named one, or that start again at the same one."""

from __future__ import annotations

import random
import socket

_CHANCE = random.SystemRandom()
"""Not the one that is set to the same state before every test, in every process of a run."""

_BELOW_EPHEMERAL = 10_000, 32_000


def free_port() -> int:
    """Return a free port of 127.0.0.1 that the kernel gives to nobody who asks for any port."""
    while True:
        port = _CHANCE.randrange(*_BELOW_EPHEMERAL)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
