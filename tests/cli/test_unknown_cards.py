"""Requests on cards of unknown capacity, on a real server: parts of them are percentages."""

import json

import pytest

from tests.system.live_server import LiveServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("unknown") / "home"
    home.mkdir()
    (home / "ullage.toml").write_text("[node]\ngpus = 1\n")
    with LiveServer(home) as live:
        yield live


def test_a_change_of_size_is_shown_in_percent(ran):
    ran("alloc p -r gpu=0.5")
    code, out, _ = ran("adjust p -r percent=62.5 --dry-run")
    assert code == 0
    assert "+12.5 % compute, -50 % vram" in out
    assert "37.5 % compute, 100 % vram" in out
    changed = json.loads(ran("adjust p -r percent=62.5 -o json")[1])
    assert changed["delta_request"] == {
        "compute_gflops": None,
        "compute_percent": 12.5,
        "vram_bytes": None,
        "vram_percent": -50.0,
    }


def test_the_largest_possible_amounts_can_be_requested(ran):
    ran("alloc p -r gpu=0.25")
    ran("alloc q -r gpu=0.375")
    code, _, err = ran("adjust p -r percent=90")
    assert code == 75
    assert "at most percent=62.5 of each card fits" in err
    assert ran("adjust p -r percent=62.5")[0] == 0


def test_an_amount_of_unknown_capacity_is_refused(ran):
    ran("alloc p -r gpu=0.5")
    code, _, err = ran("adjust p -r tflops=60")
    assert code == 78
    assert err.startswith("ullage: gpu-capacity-unknown: ")
