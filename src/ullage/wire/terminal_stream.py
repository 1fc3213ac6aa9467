"""The frames of terminals on asyncio's streams."""

from __future__ import annotations

import asyncio
import contextlib

from ullage.wire.terminal import HEAD, Frame, FrameKind, encode, head_of


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """Return the next frame; None at the end of the stream.

    Raises:
        BrokenStreamError: the bytes are no frame.

    """
    try:
        kind, length = head_of(await reader.readexactly(HEAD.size))
        return Frame(kind, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        return None


async def write_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Write a frame, and wait while the other side does not read. One that is gone gets nothing."""
    with contextlib.suppress(OSError, RuntimeError):  # the last from uvloop, of a transport that is closed
        writer.write(encode(*frame))
        await writer.drain()


async def write_end(writer: asyncio.StreamWriter, reason: str) -> None:
    """Tell a client why its program did not run, or did not end by itself."""
    await write_frame(writer, Frame(FrameKind.END, reason.encode()))
