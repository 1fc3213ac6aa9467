"""Frames to clients that are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ullage.wire.terminal_stream import write_end


@pytest.mark.parametrize("error", [ConnectionResetError(), RuntimeError("the handler is closed")])
def test_a_client_that_is_gone_is_no_error_of_the_server(error: Exception) -> None:
    """A closed transport of uvloop raises a RuntimeError."""

    class Gone:
        def write(self, _data: bytes) -> None:
            raise error

    writer: Any = Gone()
    asyncio.run(write_end(writer, "why"))
