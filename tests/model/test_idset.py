"""Sets of ids, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import InvalidRequest
from ullage.model.idset import MAX_ID, format_ids, parse_ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ()),
        ("\n", ()),
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("8,0-1", (0, 1, 8)),
        ("0-3,2-5,1", (0, 1, 2, 3, 4, 5)),
        ("0-9,2-3,10", tuple(range(11))),
        ("5-5", (5,)),
    ],
)
def test_a_set_is_read_in_order_each_id_once(text, ids):
    assert parse_ids(text, "cpus") == ids


@pytest.mark.parametrize(
    "text",
    ["a", "1,", ",", "-1", "1-", "3-1", "1 2", "\uff11", "0-99999999999", "99999999999", f"{MAX_ID + 1}"],
)
def test_texts_that_are_not_sets_are_refused_with_their_field(text):
    with pytest.raises(InvalidRequest) as refused:
        parse_ids(text, "cpulist")
    assert refused.value.field == "cpulist"


@pytest.mark.parametrize("value", [None, 7, b"0-3", ["0"]])
def test_values_that_are_not_strings_are_refused(value):
    with pytest.raises(InvalidRequest):
        parse_ids(value, "cpulist")


def test_repeated_ranges_count_once():
    assert len(parse_ids(",".join([f"0-{MAX_ID}"] * 5000), "cpus")) == MAX_ID + 1


def test_a_reader_may_limit_the_number_of_ids():
    assert parse_ids("0-3,2-7", "ids", count=8) == tuple(range(8))
    with pytest.raises(InvalidRequest, match="at most 7"):
        parse_ids("0-3,2-7", "ids", count=7)


def test_a_reader_may_lower_the_largest_id():
    assert parse_ids("0-63", "nodes", most=63) == tuple(range(64))
    with pytest.raises(InvalidRequest, match="at most 63"):
        parse_ids("0-64", "nodes", most=63)


@pytest.mark.parametrize(("ids", "text"), [((), ""), ((1, 3), "1,3"), ((0, 1), "0-1"), ((8, 3, 2, 1, 0, 0), "0-3,8")])
def test_a_set_is_written_with_its_ranges_joined(ids, text):
    assert format_ids(ids) == text


@given(st.sets(st.integers(0, MAX_ID)))
def test_written_text_is_read_again(ids):
    assert parse_ids(format_ids(ids), "ids") == tuple(sorted(ids))


@given(st.text(alphabet="0123456789-, \n", max_size=30))
def test_any_text_is_a_set_or_refused(text):
    try:
        ids = parse_ids(text, "ids")
    except InvalidRequest:
        return
    assert parse_ids(format_ids(ids), "ids") == ids
    assert list(ids) == sorted(set(ids))
