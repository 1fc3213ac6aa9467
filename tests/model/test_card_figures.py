"""The compute of card models, by the start of their names; an operator's figures override the shipped ones."""

import pytest

from ullage.model.card_figures import SHIPPED_FIGURES, Figure
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu


@pytest.mark.parametrize(
    ("model", "tflops"),
    [
        ("NVIDIA-NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA-Tesla V100-SXM2-32GB", 125),
        ("Tesla T4", 65),
        ("nvidia geforce rtx 4090", 165.2),
        ("AMD_Instinct_MI300X_OAM", 1307.4),
        ("A10", 125),
        ("A1000", None),
        ("NVIDIA", None),
        ("", None),
        (None, None),
    ],
)
def test_a_model_is_known_by_the_longest_name_that_it_starts_with(model, tflops):
    found = SHIPPED_FIGURES.of(model)
    assert (None if found is None else found.compute_gflops / 1000) == tflops


def test_figures_of_an_operator_override_the_shipped_ones():
    figures = SHIPPED_FIGURES.overridden_by([Figure("H100", 900_000), Figure("Acme X1", 7_000, 2**30)])
    assert figures.of("NVIDIA H100 PCIe").compute_gflops == 900_000
    assert figures.of("NVIDIA A100-SXM4-80GB").compute_gflops == 312_000
    assert figures.complete(Gpu("a", 0, "acme x1")) == Gpu("a", 0, "acme x1", vram_bytes=2**30, compute_gflops=7_000)


def test_the_reported_capacity_of_a_card_is_kept():
    card = Gpu("a", 0, "NVIDIA A100-SXM4-80GB", vram_bytes=5, compute_gflops=1)
    assert SHIPPED_FIGURES.complete(card) == card


@pytest.mark.parametrize(("name", "figures"), [("", (1,)), ("NVIDIA-", (1,)), ("A100", ()), ("A100", (0,))])
def test_a_figure_has_a_name_and_an_amount(name, figures):
    with pytest.raises(InvalidRequest):
        Figure(name, *figures)
