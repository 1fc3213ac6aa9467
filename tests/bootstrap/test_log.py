"""Lines that a process logs."""

import io
import re
import sys

import pytest

from ullage.bootstrap import log


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text):
        raise OSError(28, "No space left on device")


def test_a_line_begins_with_time_level_and_event(capsys):
    log.info("server.ready", url="http://127.0.0.1:7480", port=7480)
    log.warning("node.unreadable", error="two\nlines")
    ready, unreadable = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"timestamp='\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z' level='info' event='server.ready' "
        r"url='http://127.0.0.1:7480' port=7480",
        ready,
    )
    assert unreadable.endswith(r"level='warning' event='node.unreadable' error='two\nlines'")


@pytest.mark.parametrize("place", [Full(), None])
def test_a_line_that_cannot_be_written_is_dropped(monkeypatch, capsys, place):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", place)
        log.error("server.failed", error="no room")
    log.error("server.failed", error="room again")
    assert "room again" in capsys.readouterr().err
