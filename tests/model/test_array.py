"""The indices of arrays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.array import Array, parse_array, parse_request
from ullage.model.error import InvalidRequest


@pytest.mark.parametrize(
    ("text", "indices"),
    [("0-3", [0, 1, 2, 3]), ("1,3,7-9", [1, 3, 7, 8, 9]), ("0-90:30", [0, 30, 60, 90]), ("9, 2", [2, 9]), ("5", [5])],
)
def test_an_array_has_the_indices_of_its_text(text: str, indices: list[int]) -> None:
    assert list(parse_array(text).indices) == indices


@given(st.sets(st.integers(0, 300), min_size=1))
def test_the_text_of_an_array_means_the_same_indices_and_each_index_has_one_task(indices: set[int]) -> None:
    array = Array(tuple(sorted(indices)))
    assert parse_array(str(array)) == array
    assert [array.task_of(index) for index in array.indices] == list(range(1, len(indices) + 1))
    assert [array.index_of(task) for task in range(1, len(indices) + 1)] == list(array.indices)


def test_a_percent_sign_says_how_many_run_at_once() -> None:
    assert parse_request("0-9%3") == (parse_array("0-9"), 3)
    assert parse_request("0-9") == (parse_array("0-9"), None)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("", "write indices such as"),
        ("a-b", "write indices such as"),
        ("-3", "write indices such as"),
        ("9-2", "the smaller index first"),
        ("0-9:0", "a step from 1"),
        ("1,1", "index 1 occurs twice"),
        ("0-5,3", "index 3 occurs twice"),
        ("0-9%0", "how many run at once"),
        ("0-9%", "how many run at once"),
        ("0-100000", "more than 100000 indices"),
        ("9999999999", "at most 2147483647"),
    ],
)
def test_a_text_that_is_no_array_is_refused_with_the_fix(text: str, fix: str) -> None:
    with pytest.raises(InvalidRequest, match=fix) as refusal:
        parse_request(text)
    assert refusal.value.field == "array"


def test_an_index_that_an_array_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(InvalidRequest, match="the array has the indices 0-3,7"):
        parse_array("0-3,7").task_of(5)
