from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.inventory.gpus import detect
from ullage.inventory.nvml import CardsUnreadable
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"


class Cards:
    """A reader that has these cards, or cannot be read."""

    def __init__(self, *uuids, reason=None):
        self._uuids = uuids
        self._reason = reason

    def cards(self):
        if self._reason is not None:
            raise CardsUnreadable(self._reason)
        return tuple(
            Gpu(
                uuid,
                index,
                model="NVIDIA H100",
                vendor="NVIDIA",
                vram_bytes=80 * 2**30,
                zones=(0,),
                bus_id="0000:3b:00.0",
            )
            for index, uuid in enumerate(self._uuids)
        )


class Untouchable:
    def cards(self):
        raise AssertionError("the driver must not be asked")


EIGHT = Cards(*(f"GPU-{index}a000000" for index in range(8)))
NO_NVML = Cards(reason="no driver")


def found(override=None, value=None, nvml=EIGHT):
    environment = {} if value is None else {VARIABLE: value}
    return detect(override, environment, nvml, node="n1")


def indexes(detection):
    return [gpu.index for gpu in detection.gpus]


# The order of the sources.


def test_configuration_of_two_beats_an_environment_of_four_and_an_nvml_of_eight():
    detection = found(2, "0,1,2,3")
    assert indexes(detection) == [0, 1]
    assert detection.source == "configuration"
    assert detection.note == "2 cards: the configuration has 2."


def test_an_environment_of_two_beats_an_nvml_of_eight():
    detection = found(value="0,1")
    assert indexes(detection) == [0, 1]
    assert (detection.source, detection.note) == ("environment", "2 cards: CUDA_VISIBLE_DEVICES is '0,1'.")


def test_without_settings_nvml_decides():
    detection = found()
    assert indexes(detection) == list(range(8))
    assert (detection.source, detection.note) == ("nvml", "8 cards: NVML lists them all.")


def test_without_settings_and_nvml_there_are_no_cards_and_a_note():
    detection = found(nvml=NO_NVML)
    assert (detection.gpus, detection.source) == ((), "none")
    assert detection.note == (
        "No cards: nothing is configured, CUDA_VISIBLE_DEVICES is not set and NVML cannot be read (no driver)."
    )


def test_an_nvml_without_cards_is_an_answer():
    assert found(nvml=Cards()).source == "nvml"


@pytest.mark.parametrize("nvml", [EIGHT, NO_NVML])
@pytest.mark.parametrize("value", ["", "  ", "-1"])
def test_an_environment_that_is_empty_or_minus_one_shows_no_cards(value, nvml):
    detection = found(value=value, nvml=nvml)
    assert (detection.gpus, detection.source) == ((), "environment")


# The environment, read as CUDA reads it.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" 2 , 1 ", [2, 1]),
        ("0,2,-1,1", [0, 2]),
        ("0,,1", [0]),
        (",0", []),
        ("0,8,1", [0]),
        ("0,1,0,2", [0, 1, 2]),
        ("1,01", [1]),
        ("+1", []),
        ("1_0", []),
        ("\u0661", []),
        ("0x1", []),
        ("all", []),
        ("NoDevFiles", []),
        ("9" * 5000, []),
        ("GPU-3a", [3]),
        ("GPU-3a000000,3,GPU-3", [3]),
        ("GPU-", []),
        ("gpu-3a", []),
        ("0,GPU-ff,1", [0]),
    ],
)
def test_the_list_holds_each_card_once_and_ends_at_its_first_invalid_entry(value, expected):
    assert indexes(found(value=value)) == expected


def test_the_beginning_of_two_uuids_ends_the_list():
    nvml = Cards("GPU-aa01", "GPU-aa02", "GPU-bb01")
    detection = found(value="GPU-bb,GPU-aa,0", nvml=nvml)
    assert indexes(detection) == [2]
    assert "the list ends at 'GPU-aa', which is not one card" in detection.note


def test_a_mig_slice_is_skipped_with_a_note():
    detection = found(value="MIG-6f1c,1,MIG-GPU-3a000000/1/0")
    assert indexes(detection) == [1]
    assert "2 MIG slices are not counted as cards" in detection.note


def test_a_card_chosen_by_the_environment_has_the_facts_of_nvml():
    assert found(value="GPU-5").gpus == (EIGHT.cards()[5],)


def test_without_nvml_the_cards_of_the_environment_are_declared_without_facts():
    detection = found(value="6,GPU-8932f937,6", nvml=NO_NVML)
    assert detection.gpus == (Gpu("declared-n1-6", 6), Gpu("GPU-8932f937", 1))
    assert "; declared because NVML cannot be read (no driver)" in detection.note


def test_a_long_environment_is_cut_in_the_note():
    assert len(found(value=",".join(["0"] * 1000)).note) < 200


@given(st.lists(st.integers(-3, 12)))
def test_any_list_of_indexes_gives_the_distinct_ones_before_the_first_that_is_out_of_range(entries):
    valid = []
    for entry in entries:
        if not 0 <= entry < 8:
            break
        valid.append(entry)
    assert indexes(found(value=",".join(map(str, entries)))) == list(dict.fromkeys(valid))


@given(st.text(), st.sampled_from([EIGHT, NO_NVML]))
def test_no_environment_is_an_error_and_no_card_comes_twice(value, nvml):
    uuids = [gpu.uuid for gpu in found(value=value, nvml=nvml).gpus]
    assert len(set(uuids)) == len(uuids)


@given(st.text(alphabet="0123456789abcdefGPU-MI, ", max_size=40))
def test_cards_of_cuda_are_a_subset_of_those_of_nvml(value):
    assert set(found(value=value).gpus) <= set(EIGHT.cards())


# The operator's word.


def test_cards_above_the_number_of_nvml_are_declared():
    detection = found(3, nvml=Cards("GPU-aa"))
    assert [gpu.uuid for gpu in detection.gpus] == ["GPU-aa", "declared-n1-1", "declared-n1-2"]
    assert [gpu.model for gpu in detection.gpus] == ["NVIDIA H100", None, None]
    assert all(gpu.healthy for gpu in detection.gpus)
    assert detection.note == "3 cards: the configuration has 3, 2 of them declared because NVML lists only 1."


def test_a_count_without_nvml_declares_the_same_cards_every_time():
    detection = found(2, nvml=NO_NVML)
    assert detection.gpus == (Gpu("declared-n1-0", 0), Gpu("declared-n1-1", 1))
    assert detection == found(2, nvml=NO_NVML)
    assert "all declared because NVML cannot be read (no driver)" in detection.note


@pytest.mark.parametrize("none", [0, ()])
def test_a_configuration_of_no_cards_leaves_the_driver_alone(none):
    detection = detect(none, {VARIABLE: "0"}, Untouchable(), node="n1")
    assert (detection.gpus, detection.source) == ((), "configuration")


def test_listed_ids_may_be_indexes_and_beginnings_of_uuids():
    assert indexes(found(("GPU-7", "2"))) == [7, 2]


def test_a_listed_id_that_nvml_misses_keeps_its_name_and_is_not_healthy():
    detection = found(("GPU-1a000000", "GPU-ffff", "9"))
    assert [(gpu.uuid, gpu.healthy) for gpu in detection.gpus] == [
        ("GPU-1a000000", True),
        ("GPU-ffff", False),
        ("declared-n1-9", False),
    ]
    assert "NVML does not list GPU-ffff, 9" in detection.note


def test_listed_ids_without_nvml_are_declared():
    assert found(("4", "GPU-8932f937"), nvml=NO_NVML).gpus == (Gpu("declared-n1-4", 4), Gpu("GPU-8932f937", 1))


def test_declared_cards_of_two_nodes_have_different_names():
    names = [detect(1, {}, NO_NVML, node=node).gpus[0].uuid for node in ("n1", "n2")]
    assert len(set(names)) == 2


@pytest.mark.parametrize(
    "override",
    [
        -1,
        True,
        False,
        1025,
        1.0,
        "2",
        ["0"],
        ("0", "0"),
        ("",),
        (" ",),
        ("0", "card-a"),
        ("-1",),
        (0,),
        ("MIG-6f1c",),
        ("gpu-3a",),
        ("3", "GPU-3a"),
        ("03", "3"),
        tuple(map(str, range(1025))),
    ],
)
def test_a_bad_override_is_refused_with_the_field_and_a_fix(override):
    with pytest.raises(InvalidRequest, match=r"^node\.gpus: .* is not valid: \w+") as refusal:
        found(override)
    assert refusal.value.field == "node.gpus"


def test_a_listed_id_that_begins_several_uuids_is_refused():
    with pytest.raises(InvalidRequest, match="write more of the UUID"):
        found(("GPU-aa",), nvml=Cards("GPU-aa01", "GPU-aa02"))


@given(st.integers(0, 1024), st.sampled_from([EIGHT, NO_NVML]))
def test_a_count_gives_exactly_that_many_distinct_cards(count, nvml):
    gpus = found(count, nvml=nvml).gpus
    assert len({gpu.uuid for gpu in gpus}) == count
    assert [gpu.index for gpu in gpus] == list(range(count))
