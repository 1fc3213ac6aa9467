"""Applications of tests on sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette


def listening(port: int = 0) -> socket.socket:
    """A socket that takes connections at that port, or at a free one.

    It says that it is TCP: then asyncio does not hold back what is written in pieces, for 40 ms each time.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@asynccontextmanager
async def served(app: Starlette, port: int = 0, **options: Any) -> AsyncIterator[int]:
    """The port at which an application answers; `options` are those of uvicorn."""
    listener = listening(port)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none", **options))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
