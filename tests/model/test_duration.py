"""Durations as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.duration import parse_duration
from ullage.model.error import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1H", 3600),
        ("2d", 172800),
        ("1w", 604800),
        ("1:30", 90),
        ("90:00", 5400),
        ("1:30:00", 5400),
        ("2-00", 172800),
        ("2-00:00", 172800),
        ("1-12:30", 131400),
        ("1-00:00:01", 86401),
    ],
)
def test_durations_have_the_forms_of_slurm_and_kubernetes(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1", "1:", ":30", "1:2:3:4", "2-", "1h30", "1 h", "soon", "1e3", "٣", "1y"]
)
def test_another_text_and_no_time_at_all_are_refused_with_examples(text):
    with pytest.raises(InvalidRequest, match=r"--within: .*90s, 30m, 1h30m, 2d, 1:30:00 or 2-00:00"):
        parse_duration(text, "--within")


@given(st.integers(1, 10**9))
def test_every_way_to_write_whole_seconds_reads_the_same(seconds):
    minutes, rest = divmod(seconds, 60)
    hours, left = divmod(minutes, 60)
    days, over = divmod(hours, 24)
    written = [str(seconds), f"{seconds}s", f"{minutes}m{rest}s", f"{days}d{over}h{left}m{rest}s"]
    if days < 10**6:
        written += [f"{days}-{over:02}:{left:02}:{rest:02}", f"{hours}:{left:02}:{rest:02}" if hours < 10**6 else "1s"]
    assert {parse_duration(text) for text in written if text != "1s"} == {float(seconds)}
