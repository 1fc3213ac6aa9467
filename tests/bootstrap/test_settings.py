"""What the settings file says of cards, and what it is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.bootstrap.settings import Settings, read_settings
from ullage.engines.local.sharing import HamiCore, Mps, Unenforced
from ullage.inventory.facts import CardFacts
from ullage.model.error import InvalidRequest


def settings(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "ullage.toml"
    file.write_text(text)
    return read_settings(file)


def test_cards_are_described_in_sections_of_their_own(tmp_path: Path):
    found = settings(
        tmp_path,
        "[node]\ngpus = 2\n"
        '[[node.card]]\nmodel = "A100"\nvendor = "NVIDIA"\nvram = "40g"\ntflops = 19.5\n'
        '[[node.card]]\nids = ["1"]\npool = "training"\ntflops = "500m"\n',
    )
    machine = found.machine(found.sharing())
    assert machine.gpus == 2
    assert machine.facts == (
        CardFacts(model="A100", vendor="NVIDIA", vram_bytes=40 << 30, compute_gflops=19_500),
        CardFacts(ids=("1",), pool="training", compute_gflops=500),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('vram = "much"', "node.card.vram"),
        ("tflops = -1", "node.card.tflops"),
        ("tflops = 0", "node.card.tflops"),
        ('ids = ["first"]', "node.card.ids"),
        ('model = "A|B"', "node.card.model"),
        ('colour = "green"', "colour"),
    ],
)
def test_a_wrong_fact_stops_the_start_and_is_named(tmp_path: Path, line: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        settings(tmp_path, f"[[node.card]]\n{line}\n").machine(Unenforced())


def test_nobody_enforces_parts_unless_it_is_said(tmp_path: Path):
    assert isinstance(settings(tmp_path, "").sharing(), Unenforced)


def test_mps_is_where_its_directories_are(tmp_path: Path):
    found = settings(tmp_path, f'[node]\nsharing = "mps"\nmps_pipe = "{tmp_path}"\n').sharing()
    assert found == Mps(tmp_path, Path("/var/log/nvidia-mps"))


def test_hami_is_where_its_library_is(tmp_path: Path):
    library = tmp_path / "libvgpu.so"
    library.touch()
    found = settings(tmp_path, f'[node]\nsharing = "hami"\nhami_library = "{library}"\n').sharing()
    assert found == HamiCore(library)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('sharing = "mps"\nmps_pipe = "/nowhere/mps"', "node.mps_pipe.*no such directory"),
        ('sharing = "hami"', "node.hami_library.*libvgpu.so"),
        ('sharing = "hami"\nhami_library = "/nowhere/libvgpu.so"', "node.hami_library.*no such file"),
        ('sharing = "hami"\nhami_library = "libvgpu.so"', "absolute path"),
        ('sharing = "both"', "node.sharing"),
    ],
)
def test_what_sharing_needs_and_does_not_find_stops_the_start(tmp_path: Path, lines: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        settings(tmp_path, f"[node]\n{lines}\n").sharing()
