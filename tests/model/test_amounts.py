"""Arithmetic of resources, in every field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import Conflict, InvalidRequest
from ullage.model.part import Part
from ullage.model.queue import Limit
from ullage.model.resources import Resources, show_milli

GIB = 2**30
amounts = st.builds(Resources, *(st.integers(0, 2**63),) * 3)


@pytest.mark.parametrize(
    ("less", "text"),
    [
        pytest.param(Resources(6000, 0, 0), "cpu=6", id="cpu"),
        pytest.param(Resources(0, 11, 0), "mem=11", id="memory"),
        pytest.param(Resources(0, 0, 2000), "gpu=2", id="cards"),
        pytest.param(Resources(1000, 1, 1001), "gpu=1.001", id="a thousandth of a card"),
    ],
)
def test_subtracting_more_than_there_is_fails_and_names_both(less, text):
    held = Resources(5000, 10, 1000)
    with pytest.raises(Conflict) as refusal:
        held - less
    assert refusal.value.code == "below-zero"
    assert text in refusal.value.message
    assert "cpu=5,mem=10,gpu=1" in refusal.value.message
    assert held == Resources(5000, 10, 1000)


def test_the_smaller_and_the_larger_in_each_field():
    one, other = Resources(5000, 10, 1000), Resources(8000, 4, 0)
    assert one.min(other) == Resources(5000, 4, 0)
    assert one.max(other) == Resources(8000, 10, 1000)


def test_the_four_times_of_an_allocation():
    assert Resources(2000, GIB, 1000) * 4 == Resources(8000, 4 * GIB, 4000)


@pytest.mark.parametrize(
    ("one", "other", "less", "at_most"),
    [
        pytest.param((1, 1, 1), (1, 2, 3), False, True, id="equal in one field"),
        pytest.param((0, 1, 2), (1, 2, 3), True, True, id="smaller in every field"),
        pytest.param((1, 2, 3), (1, 2, 3), False, True, id="equal"),
        pytest.param((0, 9, 0), (1, 2, 3), False, False, id="larger in one field"),
    ],
)
def test_a_comparison_holds_only_in_every_field(one, other, less, at_most):
    one, other = Resources(*one), Resources(*other)
    assert (one < other, one <= other) == (less, at_most)
    assert (other > one, other >= one) == (less, at_most)


@given(amounts, amounts)
def test_subtraction_undoes_addition(one, other):
    assert (one + other) - other == one
    assert one.min(other) <= one <= one.max(other)
    assert one.min(other) + one.max(other) == one + other


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (2000, "2"), (1500, "1.5"), (1, "0.001"), (1050, "1.05")], ids=str
)
def test_thousandths_are_shown_as_plain_decimals(amount, text):
    assert show_milli(amount) == text


@pytest.mark.parametrize(
    ("held", "over"),
    [
        pytest.param(Resources(4000, 9, 1000), None, id="at the limit"),
        pytest.param(Resources(4001, 0, 0), "cpu", id="over in cpu"),
        pytest.param(Resources(0, 2**70, 0), None, id="memory is not limited"),
        pytest.param(Resources(0, 0, 1001), "gpu", id="over in cards"),
        pytest.param(Resources(9000, 0, 9000), "cpu", id="over in two, the first is named"),
    ],
)
def test_a_limit_names_the_field_that_exceeds_it(held, over):
    limit = Limit(cpu_milli=4000, gpu_milli=1000)
    assert limit.exceeded(held) == over


@pytest.mark.parametrize(
    ("amounts", "field"),
    [
        ({"compute_gflops": -1}, "tflops"),
        ({"vram_bytes": 2**63}, "vram"),
        ({"compute_gflops": 2**63}, "tflops"),
        ({"compute_ppm": 1_000_001}, "percent"),
    ],
)
def test_amounts_of_a_claim_are_within_a_card_and_within_64_bits(amounts, field):
    with pytest.raises(InvalidRequest) as error:
        Part(**amounts)
    assert error.value.field == field
