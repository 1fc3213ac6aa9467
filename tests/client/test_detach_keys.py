"""The keys that leave a terminal are those of ssh(1): process_escapes in clientloop.c of OpenSSH."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.client.terminal import DetachKeys

CTRL_C, CTRL_D, ESCAPE = b"\x03", b"\x04", b"\x1b"


@pytest.mark.parametrize(
    ("typed", "passed", "leaves"),
    [
        (b"~.", b"", True),  # the beginning counts as that of a line
        (b"ls\r~.", b"ls\r", True),
        (b"ls\n~.", b"ls\n", True),
        (b"ls ~.", b"ls ~.", False),
        (CTRL_C + b"~.", CTRL_C + b"~.", False),  # as in ssh: only Enter begins a line
        (CTRL_C + b"\r~.", CTRL_C + b"\r", True),
        (b"sleep 9\r" + CTRL_C + b"~.", b"sleep 9\r" + CTRL_C + b"~.", False),
        (CTRL_D + b"~.", CTRL_D + b"~.", False),
        (b"\r~~.", b"\r~.", False),
        (b"~~~.", b"~~.", False),
        (b"~x~.", b"~x~.", False),
        (b"~\r~.", b"~\r", True),
        (b"\r~" + CTRL_C + b".", b"\r~" + CTRL_C + b".", False),
        (b"\r" + ESCAPE + b"[A~.", b"\r" + ESCAPE + b"[A~.", False),
    ],
)
def test_only_a_tilde_and_a_dot_at_the_beginning_of_a_line_leave(typed: bytes, passed: bytes, leaves: bool) -> None:
    assert DetachKeys().feed(typed) == (passed, leaves)


@given(st.lists(st.sampled_from([b"~", b".", b"\r", b"\n", b"a", CTRL_C])), st.data())
def test_it_does_not_matter_in_which_pieces_keys_arrive(keys: list[bytes], data: st.DataObject) -> None:
    typed, pieces, whole = b"".join(keys), DetachKeys(), DetachKeys().feed(b"".join(keys))
    begin, found, leaves = 0, b"", False
    while begin < len(typed) and not leaves:
        end = data.draw(st.integers(begin + 1, len(typed)))
        passed, leaves = pieces.feed(typed[begin:end])
        found, begin = found + passed, end
    assert (found, leaves) == whole
