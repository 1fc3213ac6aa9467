"""Strategies of other packages: found, tested and registered, or refused with the name of the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_examples import blocks
from tests.installed import install
from tests.system.live_server import LiveServer

pytestmark = pytest.mark.timeout(900)
PAGE = "docs/how-to/add-a-strategy.md"
(MODULE,), (PYPROJECT,) = blocks(PAGE, "python"), blocks(PAGE, "toml")
LOAD = "from ullage.bootstrap.strategies import load_strategies; load_strategies(); load_strategies()"
CHOOSE = """
from ullage.core.strategies import strategy_named
print(strategy_named('last_cards').name)
strategy_named('nope')
"""


UNCOMPILED = {"NUMBA_DISABLE_JIT": "1"}
"""The environment where what a strategy is matters, and not that it compiles."""


def with_site(site: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def python(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    env = with_site(site) | UNCOMPILED
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def ullage(site: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ullage.cli.main", *words]
    env = with_site(site) | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)


def test_a_server_decides_by_the_strategy_of_the_page(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = install(tmp_path / "site", PYPROJECT, last_cards=MODULE)
    monkeypatch.setenv("PYTHONPATH", with_site(site)["PYTHONPATH"])
    (home / "ullage.toml").write_text(
        '[requests.pools.quiet]\nstrategy = "last-cards"\n[policy]\nstrategy = "last-cards"\n'
    )
    with LiveServer(home, "--gpus=4", compiled=True) as server, server.client() as http:
        cards = [gpu["uuid"] for gpu in http.get("/v1/gpus").json()]
        commands = [line.removeprefix("$ ").split()[1:] for line in blocks(PAGE, "console")[0].splitlines()]
        shown = [ullage(site, *words, ULLAGE_HOME=str(home)).stdout for words in commands]
        assert cards[3] in shown[0]
        assert cards[2] in shown[0]
        assert cards[1] in shown[1]
        refused = http.post("/v1/allocations", json={"uid": "x", "resreq": "gpu=1", "strategy": "nope"}).json()
        assert refused["message"].endswith("leftover, last-cards")


def test_one_that_is_loaded_twice_is_there_once(tmp_path: Path):
    site = install(tmp_path, PYPROJECT, last_cards=MODULE)
    done = python(site, LOAD + CHOOSE)
    assert done.stdout == "last-cards\n"
    assert re.search(r"choose one of best-fit, .*, leftover, last-cards\n", done.stderr)


def test_a_replay_runs_it_and_names_it_in_its_help(tmp_path: Path):
    site = install(tmp_path / "site", PYPROJECT, last_cards=MODULE)
    assert "last-cards" in ullage(site, "replay", "--help").stdout
    nodes, tasks = tmp_path / "nodes.csv", tmp_path / "tasks.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,4,T4\nn2,64000,262144,4,T4\n")
    tasks.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "t1,1000,1024,1,500,,LS,Running,0,100,0\nt2,1000,1024,2,1000,,LS,Running,1,100,1\n"
    )
    words = ["replay", "--nodes", str(nodes), "--tasks", str(tasks), "--policy", "last-cards", "best-fit"]
    done = ullage(site, *words, "--seeds", "1,2", "--processes", "2", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "last-cards" in done.stdout
    again = ullage(site, *words, "--seeds", "1,2", "--out", str(tmp_path / "out"))
    assert again.stderr.count("(cached)") == 4
    (site / "last_cards.py").write_text(MODULE.replace("CPU_FREE]", "FIRST_CARD]"))
    changed = ullage(site, *words, "--seeds", "1,2", "--out", str(tmp_path / "out"))
    assert changed.stderr.count("(cached)") == 2, "a changed strategy runs again"


BROKEN = {
    "cannot be imported": ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
    "is no strategy": ("last_cards = 7", "it is 7, and no"),
    "is of another name": (MODULE.replace('"last-cards"', '"other-cards"'), "it is named other-cards"),
    "cannot be compiled": (MODULE.replace("float(nodes[row, CPU_FREE])", "nodes.nothing"), "TypingError"),
    "makes nothing": ("def last_cards(): return None", "it is None, and no"),
    "fails when it is made": ("def last_cards(): raise OSError('no licence')", "OSError: no licence"),
    "scores with no number": (
        MODULE.replace("float(nodes[row, CPU_FREE])", "float('nan')"),
        "it scores a node with nan",
    ),
    "picks what it is not offered": (MODULE.replace("fits_per_card[k] > 0 and ", ""), "it picks the cards at"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_one_that_is_broken_stops_the_start_and_its_distribution_is_named(tmp_path: Path, fault: str):
    text, says = BROKEN[fault]
    assert text != MODULE
    site = install(tmp_path / "site", PYPROJECT, last_cards=text)
    mode = {"NUMBA_DISABLE_JIT": "0"} if "compiled" in fault else UNCOMPILED
    done = ullage(site, "up", "--foreground", "--port=0", ULLAGE_HOME=str(tmp_path / "home"), **mode)
    assert done.returncode == 2
    assert "strategy last-cards of last-cards 1.0 (last_cards:last_cards) cannot be used: " in done.stderr
    assert says in done.stderr


def test_a_name_that_is_taken_is_refused(tmp_path: Path):
    ours = PYPROJECT.replace('last-cards = "last_cards:', 'spread = "last_cards:')
    site = install(tmp_path / "ours", ours, last_cards=MODULE.replace('"last-cards"', '"spread"'))
    assert "there is a strategy spread already" in python(site, LOAD).stderr
    install(tmp_path / "two", PYPROJECT, last_cards=MODULE)
    other = PYPROJECT.replace('name = "last-cards"', 'name = "rival"').replace(
        "last_cards:last_cards", "rival:last_cards"
    )
    site = install(tmp_path / "two", other, rival=MODULE)
    message = python(site, LOAD).stderr
    assert (
        "strategy last-cards of rival 1.0 (rival:last_cards) cannot be used: there is a strategy last-cards" in message
    )


def test_a_function_may_make_it(tmp_path: Path):
    made = MODULE.replace("last_cards = Strategy(", "last_cards = lambda: Strategy(")
    assert python(install(tmp_path, PYPROJECT, last_cards=made), LOAD).returncode == 0
