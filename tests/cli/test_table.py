"""Tables and times."""

import pytest

from ullage.cli.table import format_table
from ullage.cli.times import show_span, show_time


def test_columns_are_aligned_and_numbers_are_to_the_right():
    assert format_table(("ID", "N"), [("a", "1"), ("long", "100")]) == "ID      N\na       1\nlong  100\n"


def test_the_widest_column_is_cut_to_fit():
    text = format_table(("ID", "REASON"), [("a", "x" * 100)], width=30)
    assert max(map(len, text.splitlines())) == 30
    assert "…" in text


def test_nothing_is_cut_without_a_width():
    assert "x" * 300 in format_table(("REASON",), [("x" * 300,)])


def test_a_terminal_too_narrow_for_all_is_overrun_rather_than_emptied():
    text = format_table(("A" * 9, "B" * 9), [], width=3)
    assert text == "AAAAAAA…  BBBBBBB…\n"


def test_line_breaks_and_control_characters_do_not_reach_the_terminal():
    assert format_table(("A",), [("x\n\x1b[31my",)]) == "A\nx  [31my\n"


def test_a_table_without_rows_is_its_titles():
    assert format_table(("A", "B"), []) == "A  B\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (7500, "2h05m"), (356400, "4d03h")],
)
def test_spans_have_two_units(seconds, text):
    assert show_span(seconds) == text


def test_no_time_is_a_dash():
    assert show_time(None) == "-"


def test_a_narrow_terminal_leaves_out_what_can_be_spared_and_cuts_the_name_last():
    titles = ("ID", "APP", "REQUEST", "REASON")
    row = ("sweep-of-learning-rates", "command", "cpu=0.2,mem=100Mi,gpu=1", "insufficient-gpu")
    spared = (0, 2, 1, 0)
    assert format_table(titles, [row], 80, spared=spared).splitlines()[0].split() == list(titles)
    assert format_table(titles, [row], 60, spared=spared).splitlines()[0].split() == ["ID", "REQUEST", "REASON"]
    assert format_table(titles, [row], 41, spared=spared).splitlines()[1] == "sweep-of-learning-rates  insufficient-gpu"
    assert format_table(titles, [row], 38, spared=spared).splitlines()[1] == "sweep-of-learning-r…  insufficient-gpu"
