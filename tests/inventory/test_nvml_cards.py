from __future__ import annotations

import sys

import pytest
from fake_nvml import GIB, FakeCard, FakeNvml

from ullage.inventory.nvml import CardsUnreadable, NvmlCards
from ullage.model.card_load import CardLoad
from ullage.model.gpu import Gpu

LOST = FakeNvml.NVML_ERROR_GPU_IS_LOST


def test_a_card_has_the_facts_of_nvml():
    assert NvmlCards(FakeNvml(FakeCard("GPU-aa", near=0b10))).cards() == (
        Gpu("GPU-aa", 0, "NVIDIA H100", "NVIDIA", 80 * GIB, zones=(1,), bus_id="0000:3b:00.0"),
    )


def test_a_card_in_a_large_pci_domain_has_the_address_the_kernel_gives_it():
    (card,) = NvmlCards(FakeNvml(FakeCard("GPU-aa", bus_id="00010000:01:00.0"))).cards()
    assert card.bus_id == "10000:01:00.0"


def test_a_driver_without_topology_is_healthy():
    failing = {"nvmlDeviceGetMemoryAffinity": FakeNvml.NVML_ERROR_UNKNOWN}
    (card,) = NvmlCards(FakeNvml(FakeCard("GPU-aa", failing=failing))).cards()
    assert (card.zones, card.healthy) == ((), True)


def test_the_library_is_stopped_after_each_reading_however_it_ends():
    library = FakeNvml(FakeCard("GPU-aa"), FakeCard("GPU-bb", failing={"nvmlDeviceGetUUID": LOST}))
    cards = NvmlCards(library)
    cards.cards()
    library.failing["nvmlDeviceGetCount"] = FakeNvml.NVML_ERROR_UNKNOWN
    cards.cards()
    assert (library.starts, library.started) == (2, 0)


def test_a_library_that_does_not_stop_does_not_undo_the_reading():
    library = FakeNvml(FakeCard("GPU-aa"))
    library.failing["nvmlShutdown"] = FakeNvml.NVML_ERROR_UNKNOWN
    assert len(NvmlCards(library).cards()) == 1


def test_a_fact_that_is_not_supported_is_unknown_and_the_card_healthy():
    missing = {"nvmlDeviceGetMemoryInfo": FakeNvml.NVML_ERROR_NOT_SUPPORTED, "nvmlDeviceGetPciInfo": 13}
    (card,) = NvmlCards(FakeNvml(FakeCard("GPU-aa", failing=missing))).cards()
    assert card == Gpu("GPU-aa", 0, "NVIDIA H100", "NVIDIA")


@pytest.mark.parametrize("error", [LOST, FakeNvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize("question", ["nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPciInfo"])
def test_a_card_that_fails_a_question_is_not_healthy_and_keeps_its_name(question, error):
    (card,) = NvmlCards(FakeNvml(FakeCard("GPU-aa", failing={question: error}))).cards()
    assert (card.uuid, card.healthy) == ("GPU-aa", False)


@pytest.mark.parametrize("question", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
def test_a_card_lost_between_two_readings_keeps_its_facts_until_it_is_back(question):
    library = FakeNvml(FakeCard("GPU-aa"), FakeCard("GPU-bb"))
    cards = NvmlCards(library)
    before = cards.cards()
    library.installed[1].failing[question] = LOST
    for _ in range(2):
        during = cards.cards()
        assert [(gpu.uuid, gpu.healthy) for gpu in during] == [("GPU-aa", True), ("GPU-bb", False)]
        assert during[1].vram_bytes == 80 * GIB
    library.installed[1].failing.clear()
    assert cards.cards() == before


def test_a_card_that_never_reported_its_name_is_unhealthy_and_named_by_its_index():
    library = FakeNvml(FakeCard("GPU-aa", failing={"nvmlDeviceGetHandleByIndex": LOST}), FakeCard("GPU-bb"))
    gpus = NvmlCards(library).cards()
    assert [(gpu.uuid, gpu.index, gpu.healthy) for gpu in gpus] == [("unreadable-0", 0, False), ("GPU-bb", 1, True)]


def test_a_silent_card_does_not_take_the_name_of_one_that_has_moved():
    library = FakeNvml(FakeCard("GPU-aa"), FakeCard("GPU-bb"))
    cards = NvmlCards(library)
    cards.cards()
    library.installed = [library.installed[1], FakeCard("GPU-cc", failing={"nvmlDeviceGetUUID": LOST})]
    assert [gpu.uuid for gpu in cards.cards()] == ["GPU-bb", "unreadable-1"]


def test_a_card_this_process_may_not_use_is_not_listed_and_takes_no_index():
    forbidden = {"nvmlDeviceGetHandleByIndex": FakeNvml.NVML_ERROR_NO_PERMISSION}
    library = FakeNvml(FakeCard("GPU-aa", failing=forbidden), FakeCard("GPU-bb"))
    assert [(gpu.uuid, gpu.index) for gpu in NvmlCards(library).cards()] == [("GPU-bb", 0)]


def test_a_machine_with_a_driver_and_no_cards_has_none():
    assert NvmlCards(FakeNvml()).cards() == ()


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_does_not_answer_is_a_reason_and_not_a_crash(function):
    library = FakeNvml(FakeCard("GPU-aa"))
    library.failing[function] = FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(CardsUnreadable, match="error 9") as failure:
        NvmlCards(library).cards()
    assert failure.value.code == "cards-unreadable"
    assert library.started == 0


def test_a_driver_that_stops_answering_leaves_its_cards_known_and_not_healthy():
    library = FakeNvml(FakeCard("GPU-aa"))
    cards = NvmlCards(library)
    before = cards.cards()
    library.failing["nvmlInit"] = FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert [(gpu.uuid, gpu.healthy) for gpu in cards.cards()] == [("GPU-aa", False)]
    library.failing.clear()
    assert cards.cards() == before


def test_a_missing_library_is_a_reason_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(CardsUnreadable, match=r"ullage\[gpu\]"):
        NvmlCards().cards()


def test_the_real_library_lists_distinct_healthy_cards_twice_alike():
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    cards = NvmlCards()
    try:
        first = cards.cards()
    except CardsUnreadable as error:
        pytest.skip(f"no NVIDIA driver to read here: {error}")
    assert len({gpu.uuid for gpu in first}) == len(first)
    assert all(gpu.uuid.startswith("GPU-") and gpu.model for gpu in first if gpu.healthy)
    assert [gpu.uuid for gpu in cards.cards()] == [gpu.uuid for gpu in first]


def test_the_load_of_a_card_is_what_nvml_measures_and_never_made_up():
    silent = FakeCard("GPU-cc", failing={"nvmlDeviceGetUtilizationRates": FakeNvml.NVML_ERROR_NOT_SUPPORTED})
    lost = FakeCard("GPU-dd", failing={"nvmlDeviceGetUUID": LOST})
    cards = NvmlCards(FakeNvml(FakeCard("GPU-aa", busy=73, used=12 * GIB), FakeCard("GPU-bb"), silent, lost))
    assert cards.loads() == (
        CardLoad("GPU-aa", 73, 12 * GIB),
        CardLoad("GPU-bb", 0, 0),
        CardLoad("GPU-cc", None, 0),
    )


def test_without_a_driver_no_load_is_measured():
    library = FakeNvml()
    library.failing["nvmlInit"] = FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(CardsUnreadable):
        NvmlCards(library).loads()
