"""Quantities compared with a slow reader that computes with fractions."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT64
from ullage.wire.kubernetes_quantity import parse_quantity

SCALES = {
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(["", *"kMGTPE"])},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def slow_value(text):
    """The value of a quantity, character by character; None if it is none."""
    digits = "0123456789"
    sign = 1
    if text[:1] in ("+", "-"):
        sign, text = (-1 if text[0] == "-" else 1), text[1:]
    value, seen, place = Fraction(0), 0, None
    while text and (text[0] in digits or (text[0] == "." and place is None)):
        if text[0] == ".":
            place = Fraction(1)
        elif place is None:
            value, seen = value * 10 + digits.index(text[0]), seen + 1
        else:
            place /= 10
            value, seen = value + place * digits.index(text[0]), seen + 1
        text = text[1:]
    if not seen:
        return None
    if text in SCALES:
        return sign * value * SCALES[text]
    if text[:1] not in ("e", "E"):
        return None
    exponent = text[1:]
    negative = exponent[:1] == "-"
    if exponent[:1] in ("+", "-"):
        exponent = exponent[1:]
    if not exponent or any(letter not in digits for letter in exponent):
        return None
    return sign * value * Fraction(10) ** (-int(exponent) if negative else int(exponent))


@pytest.mark.parametrize(
    ("text", "units", "expected"),
    [
        ("0", 1, 0),
        ("-0", 1, 0),
        ("+5", 1, 5),
        ("1.", 1, 1),
        (".5", 1000, 500),
        ("500m", 1000, 500),
        ("1.5", 1000, 1500),
        ("2k", 1000, 2_000_000),
        ("250m", 1000, 250),
        ("8Gi", 1, 8 * 2**30),
        ("500M", 1, 500_000_000),
        ("0.1m", 1000, 1),
        ("1n", 1, 1),
        ("1E", 1, 10**18),
        ("1e3", 1, 1000),
        ("1E3", 1, 1000),
        ("1e+3", 1, 1000),
        ("12e-1", 1, 2),
        ("0.5Ki", 1, 512),
        ("1e-999999999999", 1000, 1),
        ("0e999999999999", 1, 0),
        ("9223372036854775807", 1, MAX_INT64),
        ("7.999999Ei", 1, None),
        (2, 1000, 2000),
        (0.25, 1000, 250),
        (1e16, 1, 10**16),
    ],
)
def test_a_quantity_is_exact_and_rounds_up(text, units, expected):
    expected = math.ceil(slow_value(text) * units) if expected is None else expected
    assert parse_quantity(text, "amount", units=units) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", " 1", "1 ", "1\n", ".", "+", "Gi", "1K", "1ki", "1i", "1e", "1e1.5", "1e3k", "1.2.3", "1,5", "0x1"),
        *("1_0", "abc", "NaN", "inf", "\uff11", "--1", "1.1.M", "1+1.0M", "0.1am", "1gi", "1B", "1GiB", "1" * 600),
        *(None, True, float("inf"), float("nan"), ["1"]),
    ],
)
def test_texts_that_are_not_quantities_are_refused(text):
    with pytest.raises(InvalidRequest, match="amount") as caught:
        parse_quantity(text, "amount")
    assert "write a Kubernetes quantity" in caught.value.message


@pytest.mark.parametrize("text", ["-1", "-1n", "-1e-99999", "-.5Gi"])
def test_a_negative_quantity_is_refused(text):
    with pytest.raises(InvalidRequest, match="negative"):
        parse_quantity(text, "amount")


@pytest.mark.parametrize("text", ["9223372036854775808", "8Ei", "1e19", "1e999999999999", "10E"])
def test_too_much_is_refused_not_capped(text):
    with pytest.raises(InvalidRequest, match=f"at most {MAX_INT64}"):
        parse_quantity(text, "amount")


def test_a_message_states_the_maximum_in_whole_units():
    assert parse_quantity("100", "percent", units=10_000, maximum=1_000_000) == 1_000_000
    with pytest.raises(InvalidRequest, match="at most 100 "):
        parse_quantity("100.0001", "percent", units=10_000, maximum=1_000_000)


@given(st.text("0123456789.+-eEinumkKMGTP", max_size=9), st.sampled_from([1, 1000, 10_000]))
def test_any_text_of_its_letters_is_read_as_by_the_slow_reader(text, units):
    exponent = text.lower().rpartition("e")[2].lstrip("+-")
    if exponent.isdigit() and len(exponent) > 3:
        return
    value = slow_value(text)
    wanted = None if value is None or value < 0 else math.ceil(value * units)
    if wanted is None or wanted > MAX_INT64:
        with pytest.raises(InvalidRequest):
            parse_quantity(text, "amount", units=units)
    else:
        assert parse_quantity(text, "amount", units=units) == wanted


NUMBERS = st.from_regex(r"[+-]?([0-9]{1,22}(\.[0-9]{0,22})?|\.[0-9]{1,22})", fullmatch=True)
EXPONENTS = st.builds(
    lambda e, s, n: f"{e}{s}{n}", st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 99)
)


@given(NUMBERS, st.sampled_from(sorted(SCALES)) | EXPONENTS, st.sampled_from([1, 1000, 10_000]))
def test_well_formed_quantities_are_read_as_by_the_slow_reader(number, suffix, units):
    value = slow_value(number + suffix) * units
    if value < 0 or math.ceil(value) > MAX_INT64:
        with pytest.raises(InvalidRequest, match=r"negative|at most"):
            parse_quantity(number + suffix, "amount", units=units)
    else:
        assert parse_quantity(number + suffix, "amount", units=units) == math.ceil(value)
