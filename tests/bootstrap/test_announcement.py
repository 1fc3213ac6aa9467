"""The file of a server in its home."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ullage.bootstrap.announcement import announce, listen_at_home, withdraw
from ullage.client import local_socket
from ullage.client.endpoint import SERVER_FILE, ServerFile


def test_a_server_that_ends_is_found_no_more(tmp_path: Path) -> None:
    with listen_at_home(tmp_path):
        announce(tmp_path, "http://127.0.0.1:1", {}, [])
        withdraw(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_end_of_a_server_keeps_the_files_of_another_one(tmp_path: Path) -> None:
    """Its home was removed while it ran, and another server was started there."""
    with listen_at_home(tmp_path):
        announce(tmp_path, "http://127.0.0.1:1", {}, [])
        other = msgspec.json.encode(ServerFile("http://127.0.0.1:2", os.getppid(), 1))
        (tmp_path / SERVER_FILE).write_bytes(other)
        withdraw(tmp_path)
        assert (tmp_path / SERVER_FILE).read_bytes() == other
        assert (tmp_path / local_socket.NAME).exists()
