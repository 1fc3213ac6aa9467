"""A server answers and decides at once on a machine without compiled code, and leaves no process behind."""

import os
from pathlib import Path

import pytest

from tests.conftest import FOUR_CARDS
from tests.system.live_server import LiveServer, wait_until

pytestmark = pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")


def compiling(cache: Path) -> list[str]:
    """Processes that compile into this cache."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(cache).encode() in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found += [entry.name] * (b"ullage.bootstrap.warm" in words)
        except OSError:
            continue
    return found


def test_the_first_start_on_a_machine_waits_for_no_compiler(home, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    (home / "ullage.toml").write_text(FOUR_CARDS)
    with LiveServer(home, compiled=True) as server, server.client() as http:
        made = [http.post("/v1/allocations", json={"uid": f"u{n}", "resreq": "gpu=0.5"}) for n in range(9)]
        assert [answer.status_code for answer in made] == [201] * 8 + [409]
        wait_until(lambda: bool(compiling(cache)), "a process compiles")
        log = (home / "server.log").read_text()
        assert log.count("placement.compiling") == 1
        assert "placement.compiled" not in log
    assert not compiling(cache)


def test_a_server_that_is_killed_leaves_no_compiler_behind(home, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    with LiveServer(home, compiled=True) as server:
        wait_until(lambda: bool(compiling(cache)), "a process compiles")
        server.kill()
        wait_until(lambda: not compiling(cache), "the process that compiles has ended")
