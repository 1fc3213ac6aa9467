"""`--signal NAME@TIME`: what is read, and what is refused by name."""

from __future__ import annotations

import signal

import pytest

from ullage.model.early_signal import NAMES, EarlySignal, check_signal, parse_signal
from ullage.model.error import InvalidRequest
from ullage.model.session import SessionSpec


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("USR1@60", EarlySignal("USR1", 60.0)),
        ("USR1", EarlySignal("USR1", 60.0)),
        ("sigterm@2m", EarlySignal("TERM", 120.0)),
        ("SIGUSR2@1:30", EarlySignal("USR2", 90.0)),
        (f"{signal.SIGUSR1.value}@5", EarlySignal("USR1", 5.0)),
        ("B:USR1@300", EarlySignal("USR1", 300.0)),
    ],
)
def test_a_signal_has_a_name_and_a_time(text, found):
    assert parse_signal(text) == found
    assert parse_signal(text).number == signal.Signals[f"SIG{found.name}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write a signal and the time"),
        ("@60", "write a signal and the time"),
        ("USR3@60", "did you mean USR"),
        ("KILL@60", "no program can handle KILL"),
        ("9@60", "no program can handle KILL"),
        ("99@60", "choose one of USR1"),
        ("SEGV@60", "choose one of USR1"),
        ("USR1@", "a duration above zero"),
        ("USR1@0", "a duration above zero"),
        ("USR1@soon", "a duration above zero"),
        ("USR1@-5", "a duration above zero"),
        ("R:USR1@60", "choose one of USR1"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_what_can(text, said):
    with pytest.raises(InvalidRequest) as refused:
        parse_signal(text)
    assert refused.value.field == "signal"
    assert text in str(refused.value)
    assert said in str(refused.value)


def test_a_session_has_no_other_signal():
    assert SessionSpec("command", signal="USR1@60").signal == "USR1@60"
    with pytest.raises(InvalidRequest, match="choose one of USR1"):
        SessionSpec("command", signal="NOPE@60")


def test_a_signal_is_due_after_the_start():
    check_signal("USR1@60", 61)
    check_signal("USR1@60", None)
    check_signal(None, 1)
    with pytest.raises(InvalidRequest, match="its time limit is 60 s"):
        check_signal("USR1@60", 60)


def test_every_name_is_a_signal_of_this_machine():
    assert {EarlySignal(name, 1).number for name in NAMES} <= {each.value for each in signal.Signals}
