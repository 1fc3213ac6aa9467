"""Messages of protocol buffers: written messages are read, and malformed ones refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.pod_resources import message
from ullage.model.error import InvalidRequest
from ullage.wire.protobuf import Field, Scalar, decode

INNER = {1: Field("number", Scalar.SIGNED)}
TABLE = {
    1: Field("text", Scalar.TEXT),
    2: Field("signed", Scalar.SIGNED, repeated=True),
    3: Field("big", Scalar.UNSIGNED),
    4: Field("inner", INNER, repeated=True),
}
SIGNED = st.integers(-(2**63), 2**63 - 1)


@given(st.text(), st.lists(SIGNED, min_size=1), st.integers(0, 2**64 - 1), st.lists(SIGNED, min_size=1), st.booleans())
def test_written_results_are_read(text, numbers, big, inner, packed):
    some = [(2, numbers)] if packed else [(2, number) for number in numbers]
    written = message((1, text), (99, "unknown"), *some, (3, big), *((4, message((1, each))) for each in inner))
    fixed = b"\x51" + bytes(8) + b"\x5d" + bytes(4)  # fields 10 and 11, of eight and four bytes, which nobody knows
    assert decode(written + fixed, TABLE) == {
        "text": text,
        "signed": numbers,
        "big": big,
        "inner": [{"number": each} for each in inner],
    }


def test_an_omitted_field_is_absent_and_the_last_of_several_counts():
    assert decode(b"", TABLE) == {}
    assert decode(message((1, "a"), (1, "b")), TABLE) == {"text": "b"}


@given(st.binary(max_size=64))
def test_bytes_of_any_kind_are_read_or_refused(data):
    with suppress(InvalidRequest):
        assert set(decode(data, TABLE)) <= {"text", "signed", "big", "inner"}


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x80" * 11, b"\x08\x01", b"\x12\x01\x80", b"\x21\0\0", b"\x25" + bytes(4)],
)
def test_malformed_messages_are_refused(data):
    with pytest.raises(InvalidRequest) as caught:
        decode(data, TABLE)
    assert caught.value.code == "protobuf-malformed"
