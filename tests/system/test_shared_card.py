"""Two sessions on one card of a real server: the variables of their processes, and the view of others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import ullage
from tests.system.live_server import LiveServer, wait_until
from ullage.cli.main import main

UUID = "GPU-11111111-2222-3333-4444-555555555555"
CARD = f'[node]\ngpus = ["{UUID}"]\ncpu = 4\n[[node.card]]\nmodel = "A100"\nvram = "40g"\ntflops = 19.5\n'


def grant_variables() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """In the place of HAMi-core's; the loader complains of it and goes on."""
    library = tmp_path / "libvgpu.so"
    library.touch()
    return library


@pytest.fixture(params=["none", "hami"])
def sharing(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(home: Path, tmp_path: Path, library: Path, sharing: str) -> Iterator[LiveServer]:
    config = tmp_path / "lab.toml"
    how = f'sharing = "{sharing}"\nhami_library = "{library}"\n' if sharing == "hami" else ""
    config.write_text(CARD.replace("cpu = 4\n", f"cpu = 4\n{how}"))
    with LiveServer(home, f"--config={config}") as live:
        yield live
    assert live.leftovers() == []


def test_two_sessions_share_a_card_and_their_processes_know_their_parts(
    server: LiveServer, sharing: str, library: Path, capsys: pytest.CaptureFixture[str]
):
    with ullage.connect() as client:
        half = client.session("half", resreq={"cpu": 1, "gpu": 0.5}, min_instances=1)
        quarter = client.session("quarter", resreq="cpu=1,vram=10g", min_instances=1)
        first, second = (
            half.submit(grant_variables).result(timeout=60),
            quarter.submit(grant_variables).result(timeout=60),
        )
        for seen in (first, second):
            assert seen["CUDA_VISIBLE_DEVICES"] == UUID
            assert seen["ULLAGE_GPU_ENFORCED"] == sharing
        assert (first["ULLAGE_GPU_FRACTION"], second["ULLAGE_GPU_FRACTION"]) == ("0.5", "0.25")
        assert (first["ULLAGE_GPU_VRAM_BYTES"], second["ULLAGE_GPU_VRAM_BYTES"]) == (str(20 << 30), str(10 << 30))
        assert (first["ULLAGE_GPU_GFLOPS"], second["ULLAGE_GPU_GFLOPS"]) == ("9750", "0")
        if sharing == "hami":
            assert first["LD_PRELOAD"] == str(library)
            assert (first["CUDA_DEVICE_MEMORY_LIMIT_0"], first["CUDA_DEVICE_SM_LIMIT"]) == ("20480m", "50")
            assert second["CUDA_DEVICE_MEMORY_LIMIT_0"] == "10240m"
            assert first["CUDA_DEVICE_MEMORY_SHARED_CACHE"] != second["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
        else:
            assert "LD_PRELOAD" not in first
        (card,) = client.gpus()
        assert {holder.session: holder.fraction for holder in card.holders} == {"half": 0.5, "quarter": 0.25}
        assert (card.free.fraction, card.free.vram_bytes) == (0.25, 10 << 30)
        capsys.readouterr()
        assert main(["gpus"]) == 0
        assert "half 0.5, quarter 0.25" in capsys.readouterr().out
        late = client.session("late", resreq="cpu=1,gpu=0.5", min_instances=1)
        wait_until(lambda: late.status().reason is not None, "the third session waits")
        assert main(["why", "late"]) == 0
        assert f"it needs 0.5 of a card, the best card ({UUID} on" in capsys.readouterr().out


def test_hard_isolation_is_offered_only_where_it_is_enforced(server: LiveServer, sharing: str):
    with ullage.connect() as client:
        session = client.session("kept", resreq="cpu=1,gpu=0.5,isolation=hard", wait=True)
        if sharing == "hami":
            assert session.submit(grant_variables).result(timeout=60)["ULLAGE_GPU_ENFORCED"] == "hami"
        else:
            assert session.status().reason == "unplaceable"
            assert "cannot keep its users apart in this way" in session.status().message
