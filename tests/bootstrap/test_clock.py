"""The clock of a server, and jumps of that of the machine."""

import pytest

from ullage.bootstrap.clock import ClockWatch


def test_each_jump_of_the_clock_of_the_machine_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    wall = [1000.0]
    watch = ClockWatch(lambda: 1000.0, lambda: wall[0])
    for seconds, lines in ((1001.0, 0), (4600.0, 1), (4601.0, 0), (1000.0, 1), (998.0, 0)):
        wall[0] = seconds
        watch.check()
        assert capsys.readouterr().err.count("clock.jumped") == lines
