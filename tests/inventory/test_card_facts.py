"""Facts of cards in the settings and from discovery."""

from __future__ import annotations

import pytest
from fake_nvml import FakeNvml
from recorded import machine

from ullage.inventory.facts import CardFacts, absent, with_facts
from ullage.inventory.machine import MachineSettings, discover
from ullage.inventory.nvml import NvmlCards
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation

GIB = 1 << 30
CARDS = (Gpu("GPU-aa", 0, model="NVIDIA A100", vram_bytes=40 * GIB), Gpu("GPU-bb", 1))


def test_facts_without_ids_are_of_every_card_and_add_to_what_is_known():
    first, second = with_facts(CARDS, [CardFacts(compute_gflops=19_500, pool="training")])
    assert (first.model, first.vram_bytes, first.compute_gflops, first.pool) == (
        "NVIDIA A100",
        40 * GIB,
        19_500,
        "training",
    )
    assert (second.model, second.vram_bytes, second.compute_gflops) == (None, None, 19_500)


def test_later_facts_go_before_earlier_ones_and_the_operators_before_the_drivers():
    first, second = with_facts(
        CARDS, [CardFacts(model="A100", vram_bytes=30 * GIB), CardFacts(ids=("GPU-b",), model="T4")]
    )
    assert (first.model, first.vram_bytes) == ("A100", 30 * GIB)
    assert (second.model, second.vram_bytes) == ("T4", 30 * GIB)


def test_more_vram_than_the_driver_knows_is_refused():
    with pytest.raises(InvalidRequest, match=r"node.card.vram.*card 0"):
        with_facts(CARDS, [CardFacts(vram_bytes=80 * GIB)])


def test_ids_without_a_card_are_reported():
    facts = [CardFacts(ids=("0", "7")), CardFacts(ids=("GPU-cc",))]
    assert absent(CARDS, facts) == ["7", "GPU-cc"]


def test_a_declared_card_has_its_facts_and_a_note_of_missing_ones(tmp_path):
    facts = (CardFacts(ids=("0",), model="A100", vram_bytes=40 * GIB), CardFacts(ids=("5",), model="T4"))
    found = discover(MachineSettings(gpus=1, facts=facts), {}, NvmlCards(FakeNvml()), root=machine(tmp_path))
    assert (found.node.gpus[0].model, found.node.gpus[0].vram_bytes) == ("A100", 40 * GIB)
    assert found.note.endswith("The facts of 5 match no card.")


@pytest.mark.parametrize("holds", [False, True])
def test_a_card_offers_hard_isolation_only_where_it_is_enforced(tmp_path, holds):
    settings = MachineSettings(gpus=1, can_enforce=lambda _gpu: holds)
    (card,) = discover(settings, {}, NvmlCards(FakeNvml()), root=machine(tmp_path)).node.gpus
    assert card.isolations == ({Isolation.SOFT, Isolation.HARD} if holds else {Isolation.SOFT})
