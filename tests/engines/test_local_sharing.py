"""Enforcement of parts of cards, and the variables that describe them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.engines.recorder import opened
from ullage.engines.local import sharing
from ullage.engines.local.environment import grant_variables, worker_environment
from ullage.engines.local.home import Home
from ullage.engines.local.sharing import Enforced, HamiCore, Mps, Sharing, Unenforced, preload
from ullage.model.allocation import Charge
from ullage.model.application import FUNCTION, Application
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement
from ullage.model.session import Setup
from ullage.service.engine_port import ExecutorGone, LaunchOrder

GIB = 1 << 30
CARD = Gpu("GPU-a", 3, vram_bytes=40 * GIB, compute_gflops=19_500)
OTHER = Gpu("GPU-b", 1, vram_bytes=16 * GIB, compute_gflops=10_000)
UNKNOWN = Gpu("declared-n-0", 0)
HALF = Charge(9_750, 20 * GIB)


def order(*parts: tuple[Gpu, Charge], application: Application = FUNCTION) -> LaunchOrder:
    asked = ResourceRequirement.from_string("gpu=0.5")
    gpus, charges = tuple(gpu for gpu, _ in parts), tuple(charge for _, charge in parts)
    return LaunchOrder("e", "here", application, Setup(), asked, gpus, charges)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def mps(tmp_path: Path) -> Mps:
    """MPS whose control daemon is this process."""
    pipe = tmp_path / "mps"
    pipe.mkdir()
    (pipe / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    return Mps(pipe, tmp_path / "log")


@pytest.fixture
def hami(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HamiCore:
    monkeypatch.setattr(sharing, "HAMI_LOCKS", tmp_path / "locks")
    library = tmp_path / "libvgpu.so"
    library.touch()
    return HamiCore(library)


def environment(home: Home, how: Sharing, launched: LaunchOrder) -> dict[str, str]:
    return worker_environment(launched, home, {}, how, server_id="s", secret="s")


def only(found: dict[str, str], *prefixes: str) -> dict[str, str]:
    return {name: value for name, value in found.items() if name.startswith(prefixes)}


# --- what is said ---------------------------------------------------------------------------------


def test_variables_name_the_grant_of_each_card():
    assert grant_variables(order((CARD, HALF), (OTHER, Charge(0, 4 * GIB))), Enforced.NONE) == {
        "ULLAGE_GPU_FRACTION": "0.5,0.25",
        "ULLAGE_GPU_VRAM_BYTES": f"{20 * GIB},{4 * GIB}",
        "ULLAGE_GPU_GFLOPS": "9750,0",
        "ULLAGE_GPU_ENFORCED": "none",
    }


def test_unknown_amounts_are_empty_and_the_fraction_is_exact():
    found = grant_variables(order((UNKNOWN, Charge(333_300, 333_300))), Enforced.NONE)
    assert found["ULLAGE_GPU_FRACTION"] == "0.3333"
    assert (found["ULLAGE_GPU_VRAM_BYTES"], found["ULLAGE_GPU_GFLOPS"]) == ("", "")


def test_without_cards_no_variable_names_cards():
    assert grant_variables(order(), Enforced.NONE) == {}


def test_a_fraction_survives_the_rounding_of_its_amounts():
    third = Charge(333_300 * 19_500 // PPM, 333_300 * 40 * GIB // PPM)
    assert grant_variables(order((CARD, third)), Enforced.NONE)["ULLAGE_GPU_FRACTION"] == "0.3333"


# --- nobody ---------------------------------------------------------------------------------------


def test_a_part_without_a_limiter_is_visible_and_not_limited(home: Home):
    found = environment(home, Unenforced(), order((CARD, HALF)))
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert found["ULLAGE_GPU_ENFORCED"] == "none"
    assert only(found, "CUDA_MPS_", "CUDA_DEVICE_MEMORY", "CUDA_DEVICE_SM", "LD_PRELOAD") == {}
    assert not Unenforced().can_enforce(CARD)


def test_hard_isolation_without_a_limiter_is_refused(home: Home):
    hard = Charge(9_750, 20 * GIB, Isolation.HARD)
    with pytest.raises(ValueError, match="isolation=hard"):
        environment(home, Unenforced(), order((CARD, hard)))


# --- MPS ------------------------------------------------------------------------------------------


def test_mps_limits_memory_per_visible_card_and_threads_by_the_least(home: Home, mps: Mps):
    found = environment(home, mps, order((CARD, Charge(9_750, 8 * GIB)), (OTHER, Charge(3_333, 1536 << 20))))
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert only(found, "CUDA_MPS_") == {
        "CUDA_MPS_PIPE_DIRECTORY": str(mps.pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(mps.log),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G,1=1536M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "34",
    }
    assert found["ULLAGE_GPU_ENFORCED"] == "mps"


def test_mps_limits_only_amounts(home: Home, mps: Mps):
    memory = environment(home, mps, order((CARD, Charge(0, 8 * GIB))))
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in memory
    compute = environment(home, mps, order((CARD, Charge(195, 0))))
    assert (compute["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], compute["ULLAGE_GPU_ENFORCED"]) == ("1", "mps")
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in compute


def test_a_whole_card_is_used_through_mps_without_limits(home: Home, mps: Mps):
    whole = LaunchOrder("e", "here", FUNCTION, Setup(), ResourceRequirement.of(gpu=1), (CARD,))
    found = environment(home, mps, whole)
    assert sorted(only(found, "CUDA_MPS_")) == ["CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_PIPE_DIRECTORY"]
    assert (found["ULLAGE_GPU_FRACTION"], found["ULLAGE_GPU_ENFORCED"]) == ("1", "none")


def test_mps_without_its_daemon_limits_nothing(home: Home, mps: Mps):
    assert mps.can_enforce(CARD)
    pid = mps.pipe / "nvidia-cuda-mps-control.pid"
    for text in ("4194305", "no number", ""):  # the first is above the largest process id
        pid.write_text(text)
        assert not mps.can_enforce(CARD)
    found = environment(home, mps, order((CARD, HALF)))
    assert (only(found, "CUDA_MPS_"), found["ULLAGE_GPU_ENFORCED"]) == ({}, "none")


def test_unknown_memory_cannot_be_limited(home: Home, mps: Mps, hami: HamiCore):
    for how in (mps, hami):
        assert not how.can_enforce(UNKNOWN)
        found = environment(home, how, order((UNKNOWN, Charge(PPM // 2, PPM // 2))))
        assert found["ULLAGE_GPU_ENFORCED"] == "none"
        assert only(found, "CUDA_MPS_PINNED", "CUDA_MPS_ACTIVE", "CUDA_DEVICE_MEMORY", "LD_PRELOAD") == {}


# --- HAMi-core ------------------------------------------------------------------------------------


def test_hami_limits_one_card(home: Home, hami: HamiCore):
    home.open()
    found = environment(home, hami, order((CARD, Charge(9_750, 8 * GIB))))
    home.close()
    cache = Path(found["CUDA_DEVICE_MEMORY_SHARED_CACHE"])
    assert only(found, "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM", "LD_PRELOAD", "ULLAGE_GPU_ENFORCED") == {
        "LD_PRELOAD": str(hami.library),
        "CUDA_DEVICE_MEMORY_LIMIT_0": "8192m",
        "CUDA_DEVICE_SM_LIMIT": "50",
        "ULLAGE_GPU_ENFORCED": "hami",
    }
    assert cache.parent.is_dir()
    assert not cache.exists()
    assert sharing.HAMI_LOCKS.is_dir()


def test_hami_precedes_preloaded_libraries_of_the_application(home: Home, hami: HamiCore):
    application = Application("function", environment={"LD_PRELOAD": "/opt/own.so"})
    found = environment(home, hami, order((CARD, HALF), application=application))
    assert found["LD_PRELOAD"] == f"{hami.library}:/opt/own.so"
    assert preload("/a.so", None, "") == "/a.so"


def test_hami_does_not_limit_several_cards_or_cards_named_by_index(home: Home, hami: HamiCore):
    by_index = Gpu("declared-n-3", 3, vram_bytes=40 * GIB, compute_gflops=19_500)
    assert not hami.can_enforce(by_index)
    for launched in (order((CARD, HALF), (OTHER, Charge(1, GIB))), order((by_index, HALF))):
        found = environment(home, hami, launched)
        assert (found["ULLAGE_GPU_ENFORCED"], only(found, "LD_PRELOAD", "CUDA_DEVICE_MEMORY")) == ("none", {})
    hami.library.unlink()
    assert not hami.can_enforce(CARD)


def test_the_usage_file_of_an_earlier_worker_is_not_reused(home: Home, hami: HamiCore):
    home.open()
    cache = Path(environment(home, hami, order((CARD, HALF)))["CUDA_DEVICE_MEMORY_SHARED_CACHE"])
    cache.write_text("limits of another")
    assert not Path(environment(home, hami, order((CARD, HALF)))["CUDA_DEVICE_MEMORY_SHARED_CACHE"]).exists()
    cache.write_text("left behind")
    home.close()
    home.open()
    assert list(cache.parent.iterdir()) == []
    home.close()


# --- the engine -----------------------------------------------------------------------------------


def test_a_worker_whose_isolation_cannot_be_enforced_does_not_start(tmp_path: Path) -> None:
    async def main() -> str:
        async with opened(tmp_path / "data") as recorder:
            hard = Charge(9_750, 20 * GIB, Isolation.HARD)
            recorder.engine.launch(order((CARD, hard)))
            return (await recorder.first(ExecutorGone)).reason

    assert "isolation=hard was requested" in asyncio.run(main())
