"""The text form of a request: its meaning, its errors, and that it is read as it was written."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT32, MAX_INT64, format_bytes, parse_bytes
from ullage.model.request import DEFAULT_REQUIREMENT, ResourceRequirement, parse_amounts
from ullage.model.topology import ZonePolicy

KIB, MIB, GIB, TIB, PIB = (1024**power for power in range(1, 6))


def amounts(text: str) -> tuple[int, int, int]:
    asked = ResourceRequirement.from_string(text)
    return asked.cpu, asked.memory, asked.gpu


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("cpu=4,mem=16g,gpu=2", (4, 17179869184, 2), id="all three"),
        pytest.param("cpu=8", (8, 0, 0), id="what is omitted is none"),
        pytest.param("  CPU = 2 , Mem = 4g , gpu = 1 ", (2, 4 * GIB, 1), id="blanks and case"),
        pytest.param("gpu=1,memory=1g,cpu=3", (3, GIB, 1), id="any order, and the long key"),
        pytest.param("GPU=1", (0, 0, 1), id="only cards"),
        pytest.param("\tcpu=1\n", (1, 0, 0), id="other blanks around"),
        pytest.param("cpu=0,mem=1,gpu=0", (0, 1, 0), id="zeros beside something"),
        pytest.param("cpu=007", (7, 0, 0), id="leading zeros"),
        pytest.param(f"cpu={MAX_INT64}", (MAX_INT64, 0, 0), id="the most cpus"),
        pytest.param(f"mem={MAX_INT64}", (0, MAX_INT64, 0), id="the most bytes"),
        pytest.param(f"gpu={MAX_INT32}", (0, 0, MAX_INT32), id="the most cards"),
    ],
)
def test_a_request_text_means(text, expected):
    assert amounts(text) == expected


@pytest.mark.parametrize(
    ("texts", "size"),
    [
        pytest.param(["512b", "512", "512B"], 512, id="bytes"),
        pytest.param(["1024k", "1m", "1048576"], MIB, id="1024k is 1m"),
        pytest.param(["1k", "1K", "1kb", "1KB", "1ki", "1Ki", "1kib", "1KiB"], KIB, id="kilo"),
        pytest.param(["8g", "8Gi", "8GiB", "8GB", "8192m"], 8 * GIB, id="giga"),
        pytest.param(["2TB", "2Ti", "2t", "2tib"], 2 * TIB, id="tera"),
        pytest.param(["1PB", "1Pi", "1p", "1024t"], PIB, id="peta"),
        pytest.param(["1.5g", "1536m", "1.50Gi"], 1536 * MIB, id="a decimal that is whole"),
        pytest.param(["0.5k", "512"], 512, id="half a kilo"),
        pytest.param(["2.0", "2"], 2, id="a decimal without a fraction"),
    ],
)
def test_sizes_are_binary_in_every_spelling(texts, size):
    assert {parse_bytes(text) for text in texts} == {size}
    assert {amounts(f"mem={text}")[1] for text in texts} == {size}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("", "''", id="empty"),
        pytest.param("   ", "'   '", id="only blanks"),
        pytest.param("cpu=1,", "''", id="an empty entry at the end"),
        pytest.param(",cpu=1", "''", id="an empty entry at the start"),
        pytest.param("cpu=1,,gpu=1", "''", id="an empty entry inside"),
        pytest.param("cpu", "'cpu'", id="no sign of equality"),
        pytest.param("cpu=1=2", "'cpu=1=2'", id="two signs of equality"),
        pytest.param("cpu==2", "'cpu==2'", id="two signs in a row"),
        pytest.param("gpu=", "'gpu='", id="no value"),
        pytest.param("=4", "'=4'", id="no key"),
        pytest.param("foo=1", "'foo=1'", id="an unknown key"),
        pytest.param("cpu=1,cpus=2", "'cpus=2'", id="nearly a key"),
        pytest.param("cpu=1,cpu=2", "'cpu=2'", id="a key twice"),
        pytest.param("mem=1g,memory=2g", "'memory=2g'", id="mem and memory are one key"),
        pytest.param("cpu=abc", "'abc'", id="cpu in words"),
        pytest.param("cpu=+1", "'+1'", id="a plus"),
        pytest.param("cpu=-1", "'-1'", id="a minus"),
        pytest.param("gpu=-1", "'-1'", id="cards below zero"),
        pytest.param("mem=-1g", "'-1g'", id="memory below zero"),
        pytest.param("mem=+1g", "'+1g'", id="memory with a plus"),
        pytest.param("cpu=1_000", "'1_000'", id="an underscore"),
        pytest.param("mem=1_000", "'1_000'", id="an underscore in memory"),
        pytest.param("cpu=1 0", "'1 0'", id="a blank inside"),
        pytest.param("mem=1 g", "'1 g'", id="a blank before the suffix"),
        pytest.param("cpu=\u0663", "'\u0663'", id="digits of another script"),
        pytest.param("mem=\u0663g", "'\u0663g'", id="digits of another script in memory"),
        pytest.param(
            "mem=1\u212a",
            "\u212a",
            id="a Kelvin sign is no k",
        ),
        pytest.param("cpu=1.0005", "'1.0005'", id="finer than a thousandth of a core"),
        pytest.param("cpu=0.5m", "'0.5m'", id="part of a thousandth of a core"),
        pytest.param("cpu=1.", "'1.'", id="no digits after the point"),
        pytest.param("cpu=m", "'m'", id="a suffix alone"),
        pytest.param("gpu=1.5", "'1.5'", id="a card and a part"),
        pytest.param("gpu=500m", "'500m'", id="thousandths of a card"),
        pytest.param("gpu=a100:2", "'a100:2'", id="a model of card"),
        pytest.param("gpu=1g", "'1g'", id="a suffix on cards"),
        pytest.param("mem=bogus", "'bogus'", id="memory in words"),
        pytest.param("mem=512X", "'512X'", id="an unknown suffix"),
        pytest.param("mem=1e", "'1e'", id="a suffix beyond peta"),
        pytest.param("mem=1kbb", "'1kbb'", id="a suffix too long"),
        pytest.param("mem=1bi", "'1bi'", id="binary bytes"),
        pytest.param("mem=1e9", "'1e9'", id="an exponent"),
        pytest.param("mem=g", "'g'", id="a suffix alone"),
        pytest.param("mem=.5g", "'.5g'", id="no digit before the point"),
        pytest.param("mem=1.g", "'1.g'", id="no digit after the point"),
        pytest.param("mem=1.5", "'1.5'", id="half a byte"),
        pytest.param("mem=0.3k", "'0.3k'", id="not a whole number of bytes"),
        pytest.param(f"cpu={MAX_INT64 + 1}", str(MAX_INT64 + 1), id="too many cpus"),
        pytest.param(f"mem={MAX_INT64 + 1}", str(MAX_INT64 + 1), id="too many bytes"),
        pytest.param("mem=8192p", "'8192p'", id="a product that overflows"),
        pytest.param("mem=99999999999999999999p", "99999999999999999999p", id="a product far beyond"),
        pytest.param(f"gpu={MAX_INT32 + 1}", str(MAX_INT32 + 1), id="too many cards"),
        pytest.param("cpu=0,mem=0,gpu=0", "cpu=0,mem=0,gpu=0", id="nothing at all"),
        pytest.param("mem=0", "cpu=0,mem=0,gpu=0", id="nothing of one kind"),
    ],
)
def test_a_request_text_is_refused_with_its_entry_named(text, named):
    with pytest.raises(InvalidRequest) as refusal:
        ResourceRequirement.from_string(text)
    assert named in refusal.value.message
    assert "is not valid: " in refusal.value.message
    assert refusal.value.field in {"resreq", "cpu", "memory", "gpu"}
    assert refusal.value.code == "invalid-request"


@pytest.mark.parametrize(
    ("text", "milli", "shown"),
    [
        ("cpu=0.5", 500, "cpu=0.5,"),
        ("cpu=500m", 500, "cpu=0.5,"),
        ("cpu=2.250", 2250, "cpu=2.25,"),
        ("cpu=1500m", 1500, "cpu=1.5,"),
        ("cpu=0.001", 1, "cpu=0.001,"),
        ("cpu=3.0000", 3000, "cpu=3,"),
    ],
)
def test_cores_are_counted_in_thousandths(text, milli, shown):
    asked = ResourceRequirement.from_string(text)
    assert asked.cpu_milli == milli
    assert str(asked).startswith(shown)
    assert ResourceRequirement.from_string(str(asked)) == asked


@pytest.mark.parametrize("text", [None, 4, b"cpu=1", ["cpu=1"]], ids=["none", "a number", "bytes", "a list"])
def test_values_that_are_not_strings_are_refused(text):
    with pytest.raises(InvalidRequest, match="resreq"):
        ResourceRequirement.from_string(text)


def test_a_very_long_value_is_shortened_in_the_message():
    with pytest.raises(InvalidRequest) as refusal:
        parse_bytes("9" * 100_000)
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize(
    ("field", "values"),
    [
        pytest.param("cpu", {"cpu": -1}, id="cpu below zero"),
        pytest.param("memory", {"memory": -1}, id="memory below zero"),
        pytest.param("gpu", {"gpu": -1}, id="cards below zero"),
        pytest.param("cpu", {"cpu": 1.5}, id="part of a cpu"),
        pytest.param("cpu", {"cpu": True}, id="a truth value as cpu"),
        pytest.param("gpu", {"gpu": True}, id="a truth value as cards"),
        pytest.param("memory", {"memory": 1.5}, id="part of a byte"),
        pytest.param("cpu", {"cpu": 2**63}, id="too many cpus"),
        pytest.param("memory", {"memory": 2**63}, id="too many bytes"),
        pytest.param("gpu", {"gpu": 2**31}, id="too many cards"),
        pytest.param("resreq", {}, id="nothing at all"),
    ],
)
def test_numbers_are_checked_like_text(field, values):
    with pytest.raises(InvalidRequest) as refusal:
        ResourceRequirement.of(**values)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(ResourceRequirement.of(2, "4g", 1), id="a requirement"),
        pytest.param("cpu=2,mem=4g,gpu=1", id="its text"),
        pytest.param({"cpu": 2, "mem": "4g", "gpu": 1}, id="a dictionary with mem"),
        pytest.param({"cpu": "2", "memory": 4 * GIB, "gpu": "1"}, id="a dictionary with memory in bytes"),
        pytest.param(MappingProxyType({"GPU": 1, "Mem": "4GiB", "CPU": 2}), id="another mapping, keys of any case"),
        pytest.param(OrderedDict(gpu=1, cpu=2, mem="4096m"), id="an ordered mapping"),
    ],
)
def test_every_form_of_a_requirement_means_the_same(value):
    assert ResourceRequirement.from_value(value) == ResourceRequirement.of(2, 4 * GIB, 1)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="an empty mapping"),
        pytest.param({"cpu": 1, "disk": 2}, id="an unknown key"),
        pytest.param({"cpu": None}, id="a value of none"),
        pytest.param({"cpu": True}, id="a truth value"),
        pytest.param({"cpu": -1}, id="below zero"),
        pytest.param({"mem": "1g", "memory": "1g"}, id="memory twice"),
        pytest.param({"cpu": 0}, id="nothing at all"),
        pytest.param(None, id="none"),
        pytest.param(4, id="a number"),
        pytest.param((2, 4, 1), id="a tuple"),
    ],
)
def test_any_other_value_is_refused(value):
    with pytest.raises(InvalidRequest):
        ResourceRequirement.from_value(value)


def test_a_value_in_a_mapping_is_one_value():
    with pytest.raises(InvalidRequest):
        ResourceRequirement.from_value({"cpu": "1,gpu=4"})


@pytest.mark.parametrize(
    ("size", "text"),
    [
        pytest.param(1536 * MIB, "1536Mi", id="the largest suffix that divides"),
        pytest.param(0, "0", id="none"),
        pytest.param(1023, "1023", id="less than a kilo"),
        pytest.param(1025, "1025", id="no suffix divides"),
        pytest.param(KIB, "1Ki", id="a kilo"),
        pytest.param(5 * PIB, "5Pi", id="peta"),
        pytest.param(1024 * PIB, "1024Pi", id="nothing is above peta"),
    ],
)
def test_a_size_is_shown_with_the_largest_exact_suffix(size, text):
    assert format_bytes(size) == text
    assert parse_bytes(text) == size


@given(st.integers(0, MAX_INT64))
def test_a_shown_size_parses_back(size):
    assert parse_bytes(format_bytes(size)) == size


@given(
    st.builds(
        ResourceRequirement.of,
        cpu=st.integers(0, MAX_INT64),
        memory=st.integers(0, MAX_INT64) | st.integers(0, 2**13 - 1).map(lambda n: n * PIB),
        gpu=st.integers(1, MAX_INT32),
    )
)
def test_a_shown_requirement_parses_back(asked):
    assert ResourceRequirement.from_string(str(asked)) == asked
    assert ResourceRequirement.from_value(str(asked).upper()) == asked
    assert ResourceRequirement.from_value({"cpu": asked.cpu, "memory": asked.memory, "gpu": asked.gpu}) == asked


@pytest.mark.parametrize("text", ["tflops=0", "gpu=2,vram=0,isolation=hard", "vram=0,isolation=shared"])
def test_a_part_without_amounts_is_not_shown_as_a_whole_card(text):
    asked = ResourceRequirement.from_string(text)
    assert ResourceRequirement.from_string(str(asked)) == asked


@given(st.text(max_size=20) | st.text("cpumemgpu=,0123456789kib. ", max_size=30))
def test_any_text_is_a_requirement_or_refused_by_name(text):
    try:
        asked = ResourceRequirement.from_string(text)
    except InvalidRequest as refusal:
        assert refusal.field  # noqa: PT017 - either outcome is right
    else:
        assert ResourceRequirement.from_string(str(asked)) == asked


def test_the_default_requirement_is_one_cpu_and_one_gib():
    assert str(DEFAULT_REQUIREMENT) == "cpu=1,mem=1Gi,gpu=0"


# --- pairs ---


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("gpu=2,gpu~nic=required", "gpu~nic=required"),
        ("gpu=2, NIC1 ~ GPU = preferred", "gpu~NIC1=preferred"),
        ("gpu=2,gpu~mem=required,gpu~cpu=preferred", "gpu~cpu=preferred,gpu~memory=required"),
        ("gpu=0.5,gpu~intel.com/sriov_a=required,numa=restricted", "numa=restricted,gpu~intel.com/sriov_a=required"),
    ],
)
def test_pairs_name_resources_near_the_cards(text, back):
    asked = ResourceRequirement.from_string(text)
    assert str(asked).endswith(f",{back}")
    assert ResourceRequirement.from_string(str(asked)) == asked


def test_pairs_are_keys_of_a_mapping_too():
    asked = ResourceRequirement.from_value({"gpu": 2, "gpu~nic": "required"})
    assert asked == ResourceRequirement.from_string("gpu=2,gpu~nic=required")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu=2,cpu~nic=required", r"cpu~nic.*such as gpu~nic=required"),
        ("gpu=2,gpu~gpu=required", r"gpu~gpu.*a pair is of gpu and something else"),
        ("gpu=2,gpu~nic~cpu=required", "a pair is of gpu and something else"),
        ("gpu=2,gpu~=required", "a pair is of gpu and something else"),
        ("gpu=2,gpu~a b=required", "a pair is of gpu and something else"),
        ("gpu=2,gpu~nic=best-effort", r"gpu~nic: 'best-effort' .*choose one of preferred, required"),
        ("gpu=2,gpu~nic=required,nic~gpu=preferred", "name each resource once"),
        ("gpu=2,gpu~nic=required,gpu~nic=preferred", "given twice"),
        ("gpu=2,gpu~nic=required,numa=none", r"numa: 'none' .*leave numa out"),
        ("cpu=2,gpu~nic=required", r"gpu: 0 .*gpu~nic=required is about cards"),
    ],
)
def test_an_invalid_pair_is_refused(text, said):
    with pytest.raises(InvalidRequest, match=said):
        ResourceRequirement.from_string(text)


def test_texts_of_amounts_accept_no_pairs():
    with pytest.raises(InvalidRequest, match="only cpu, mem and gpu"):
        parse_amounts("gpu=2,gpu~nic=required")


def test_pairs_work_where_the_operator_aligns_nothing():
    asked = ResourceRequirement.from_string("gpu=2,gpu~nic=required")
    assert asked.aligned(ZonePolicy.NONE) == asked
    assert asked.aligned(ZonePolicy.RESTRICTED).alignment.policy is ZonePolicy.RESTRICTED
