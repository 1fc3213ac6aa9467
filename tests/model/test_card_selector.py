"""Conditions on cards: names, and words in the names of their models."""

import pytest

from ullage.model.error import InvalidRequest
from ullage.model.part import CardSelector
from ullage.model.request import ResourceRequirement

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def test_without_conditions_any_card_matches():
    assert CardSelector().takes_model(None)
    assert CardSelector().takes_uuid("GPU-1")


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (CardSelector(model_words=("a100",)), {A100}),
        (CardSelector(model_words=("a100", "H100")), {A100, H100}),
        (CardSelector(not_model_words=("sxm",)), {H100, None}),
        (CardSelector(model_words=("nvidia",), not_model_words=("HBM", "40gb")), {A100}),
        (CardSelector(models=(A100,), not_model_words=("A100",)), set()),
        (CardSelector(models=(A100,), model_words=("h100",)), set()),
    ],
)
def test_words_match_in_any_case_and_all_conditions_count(selector, taken):
    assert {model for model in (A100, H100, None) if selector.takes_model(model)} == taken


def test_uuids_are_exact_and_those_excluded_go_first():
    selector = CardSelector(uuids=("GPU-1", "GPU-2"), not_uuids=("GPU-2", "GPU-3"))
    assert [uuid for uuid in ("GPU-1", "GPU-2", "GPU-3", "gpu-1", "GPU-4") if selector.takes_uuid(uuid)] == ["GPU-1"]
    assert CardSelector(not_uuids=("GPU-2",)).takes_uuid("GPU-4")


def test_conditions_are_written_in_a_request_text():
    text = "gpu=1,gpu_uuid=GPU-a|GPU-b,not_gpu_uuid=GPU-c,gpu_model_like=a100|h100,not_gpu_model_like=pcie"
    asked = ResourceRequirement.from_string(text)
    assert asked.cards == CardSelector(
        uuids=("GPU-a", "GPU-b"), not_uuids=("GPU-c",), model_words=("a100", "h100"), not_model_words=("pcie",)
    )
    assert ResourceRequirement.from_string(str(asked)) == asked
    assert str(asked) == f"cpu=0,mem=0,{text}"


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("gpu_uuid", {"uuids": ("",)}),
        ("not_gpu_uuid", {"not_uuids": ("x" * 254,)}),
        ("gpu_model_like", {"model_words": ("x",) * 1025}),
        ("not_gpu_model_like", {"not_model_words": ("",)}),
        *(("gpu_model_like", {"model_words": (word,)}) for word in ("a|b", "a,b", "a=b", " a")),
        *(("gpu_model", {"models": (word,)}) for word in ("a|b", "a=b", "")),
    ],
)
def test_lists_are_bounded(field, fields):
    with pytest.raises(InvalidRequest) as caught:
        CardSelector(**fields)
    assert caught.value.field == field
