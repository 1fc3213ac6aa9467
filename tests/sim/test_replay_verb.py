"""`ullage replay` in a process of its own: its output, its cache, its errors."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.sim.traces import openb_nodes, openb_pods, write_csv
from ullage.cli.main import main
from ullage.sim import cells, report
from ullage.sim.chart import draw
from ullage.sim.summary import Chart, Series
from ullage.sim.waiting import Turn

COMMAND = [sys.executable, "-m", "ullage.cli.main", "replay"]


@pytest.fixture
def files(tmp_path):
    nodes, tasks = openb_nodes(tmp_path / "nodes.csv"), openb_pods(tmp_path / "tiny.csv")
    return ["--nodes", str(nodes), "--tasks", str(tasks)]


def results(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def without_seconds(found):
    return [{key: value for key, value in result.items() if key != "seconds"} for result in found]


def test_everything_is_written_and_told(files, tmp_path, capsys):
    out = tmp_path / "out"
    policies = ["--policy", "best-fit", "spread", "--against", "best-fit"]
    assert main(["replay", *files, *policies, "--seeds", "1..3", "--processes", "2", "--out", str(out)]) == 0

    found = results(out)
    assert [(r["trace"], r["policy"], r["seed"]) for r in found] == [
        ("tiny", policy, seed) for policy in ("best-fit", "spread") for seed in (1, 2, 3)
    ]
    shown, message = capsys.readouterr()
    assert "6/6 tiny" in message
    mean = sum(result["allocation"][130] for result in found[:3]) / 3
    for text in (shown, (out / "table.md").read_text(), (out / "index.html").read_text()):
        assert f"{mean:.2f}" in text
        assert "Allocation against best-fit" in text
    gain = sum(b["allocation"][100] - a["allocation"][100] for a, b in zip(found[:3], found[3:], strict=True)) / 3
    assert f"{gain:+.2f}" in shown
    for name in ("allocation-tiny.png", "fragmentation-tiny.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    page = (out / "index.html").read_text()
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "the page needs nothing else"


def test_without_matplotlib_all_but_the_plots_is_written(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda _name: None)
    out = tmp_path / "out"
    assert main(["replay", *files, "--seeds", "1", "--processes", "1", "--out", str(out)]) == 0
    assert "pip install 'ullage[replay]'" in capsys.readouterr().err
    assert {path.name for path in out.iterdir()} == {"cells", "results.jsonl", "table.md", "index.html"}


def test_churn_reports_waits_and_fairness_per_turn(files, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--churn", "--turn", "fifo", "drf", "--first", "40", "--seeds", "1", "--processes", "1", "-o", "json"]
    assert main(["replay", *files, *more, "--out", str(out)]) == 0
    use, fairness = json.loads(capsys.readouterr().out)
    assert [row[:3] for row in use["rows"]] == [["tiny", "best-fit, fifo", "1"], ["tiny", "best-fit, drf", "1"]]
    assert fairness["titles"][2:] == ["worst rho", "p90 rho", "mean rho", "rho > 1", "Jain", "gap"]
    assert [result["started"] for result in results(out)] == [40, 40]


def test_queues_of_a_file_belong_to_the_trace_and_to_the_key_of_its_runs(tmp_path):
    nodes, tasks, queues = tmp_path / "n.csv", tmp_path / "t.csv", tmp_path / "q.csv"
    nodes.write_text("name,cpu,memory,gpus\nn,8,64g,2\n")
    lines = [f'"cpu=1,gpu=1",{n},1000,{queue}' for n, queue in enumerate("aabb")]
    tasks.write_text("\n".join(["request,arrival_s,duration_s,queue", *lines]))
    queues.write_text("queue,parent,weight,priority\nteam,,3,\na,team,,\nb,,,7\n")
    trace = cells.TraceSource(nodes, tasks, queues=queues).load()
    assert [(queue.name, queue.parent, queue.weight) for queue in trace.queues] == [
        ("team", "root", 3),
        ("a", "team", 1),
        ("b", "root", 1),
    ]
    assert [task.priority for task in trace.tasks] == [0, 0, 7, 7]
    plain = cells.ReplayCell(cells.TraceSource(nodes, tasks), "best-fit", 1, Turn.DRF)
    assert plain.key() != replace(plain, source=cells.TraceSource(nodes, tasks, queues=queues)).key()


def test_a_killed_replay_goes_on_where_it_was(files, tmp_path, capsys):
    out, straight = tmp_path / "out", tmp_path / "straight"
    arguments = [*files, "--seeds", "1..12", "--processes", "2"]
    running = subprocess.Popen([*COMMAND, *arguments, "--out", str(out)], stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    first = [running.stderr.readline() for _ in range(3)]
    workers = _children(running.pid)
    running.kill()
    running.wait()
    running.stderr.close()
    assert all("kept" not in line for line in first)
    assert len(workers) >= 2
    _wait_until_gone(workers)

    finished = list((out / "cells").glob("*.json"))
    assert len(finished) >= 3
    torn = finished[0]
    torn.write_text(torn.read_text()[:100])
    (out / "cells" / "0123.77.half").write_text("{")
    again = subprocess.run([*COMMAND, *arguments, "--out", str(out)], capture_output=True, text=True, check=True)
    assert again.stderr.count("(cached)") == len(finished) - 1
    assert "12/12" in again.stderr
    assert main(["replay", *arguments, "--processes", "1", "--out", str(straight)]) == 0
    assert without_seconds(results(out)) == without_seconds(results(straight))
    assert again.stdout == capsys.readouterr().out


def _children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_until_gone(pids):
    """Wait until the children of a killed process have ended by themselves."""
    deadline = time.monotonic() + 60
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived the replay"
        os.sched_yield()


def _lives(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_ctrl_c_ends_all_runs_and_keeps_finished_ones(files, tmp_path):
    out = tmp_path / "out"
    arguments = [*files, "--seeds", "1..200", "--processes", "2", "--out", str(out)]
    running = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert running.stderr is not None
    running.stderr.readline()
    os.killpg(running.pid, signal.SIGINT)
    message = running.stderr.read()
    running.stderr.close()
    assert running.wait(timeout=60) == 130
    assert "Traceback" not in message
    assert list((out / "cells").glob("*.json"))


def test_the_key_of_a_cell_depends_on_file_contents_and_settings(tmp_path):
    nodes, tasks = openb_nodes(tmp_path / "n.csv"), openb_pods(tmp_path / "p.csv")
    source = cells.TraceSource(nodes, tasks)
    cell = cells.ReplayCell(source, "best-fit", 1)
    keys = {
        cell.key(),
        cells.ReplayCell(source, "spread", 1).key(),
        cells.ReplayCell(source, "best-fit", 2).key(),
        cells.ReplayCell(source, "best-fit", 1, cells.Turn.FIFO).key(),
        cells.ReplayCell(cells.TraceSource(nodes, tasks, 5), "best-fit", 1).key(),
    }
    assert len(keys) == 5
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "p.csv"
    copy.write_bytes(tasks.read_bytes())
    assert cells.ReplayCell(cells.TraceSource(nodes, copy), "best-fit", 1).key() == cell.key()
    cells._digest.cache_clear()
    openb_pods(tasks, seed=2)
    assert cell.key() not in keys


def test_published_curves_are_compared_where_there_are_some(files, tmp_path, capsys):
    curves = [["tiny", "05-BestFit", 1.3, seed, 15, *[str(load + seed) for load in range(131)]] for seed in (1, 3)]
    columns = ("workload", "sc_policy", "tune", "seed", "total_gpus", *map(str, range(131)))
    published = write_csv(tmp_path / "published.csv", columns, curves)
    out = tmp_path / "out"
    more = ["--seeds", "1", "--processes", "1", "--published", str(published), "-o", "json", "--out", str(out)]
    assert main(["replay", *files, "--policy", "best-fit", "spread", *more]) == 0
    table = json.loads(capsys.readouterr().out)[-1]
    assert table["title"] == "Allocation less the published mean"
    (run, _spread) = results(out)
    off = [run["allocation"][load] - (load + 2) for load in (80, 90, 95, 100, 110, 130)]
    assert table["rows"] == [["tiny", "best-fit", *(f"{each:+.2f}" for each in off), f"{max(map(abs, off)):.2f}"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "bestest"], "--policy: 'bestest' is not valid: did you mean best-fit? choose one of best-fit"),
        (["--seeds", "9..1"], "--seeds: '9..1' is not valid"),
        (["--seeds", "x"], "write a range such as 42..51"),
        (["--against", "spread"], "--against: 'spread' is not valid"),
        (["--turn", "drf"], "--turn needs --churn"),
        (["--queues", "queues.csv"], "--queues needs --tasks and --churn"),
        (["--first", "0"], "--first: 0 is not valid"),
        (["--published", "nothing.csv"], "nothing.csv cannot be read"),
    ],
)
def test_an_impossible_replay_is_refused_before_anything_is_written(files, tmp_path, capsys, arguments, message):
    out = tmp_path / "out"
    assert main(["replay", *files, *arguments, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_an_error_for_a_bad_line_passes_through_the_pool(tmp_path, capsys):
    nodes = openb_nodes(tmp_path / "n.csv")
    tasks = tmp_path / "t.csv"
    tasks.write_text("request,arrival_s\ncpu=1,0\nmany,0\n")
    arguments = ["--nodes", str(nodes), "--tasks", str(tasks), "--seeds", "1..2", "--processes", "2"]
    assert main(["replay", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert "line 3, column request: 'many'" in capsys.readouterr().err


def test_packages_that_are_missing_are_named(monkeypatch, files, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "numba" else object())
    assert main(["replay", *files]) == 69
    assert "numba not installed: pip install 'ullage[replay]'" in capsys.readouterr().err


def test_a_chart_is_well_formed_and_escapes_names():
    curve = Series("a<b & c", [0, 1, 2], [1, 1, 1], [2, 2, 2], [3, 3, 3])
    svg = ET.fromstring(draw(Chart("n", "t & u", "x", "y", (curve, Series("flat", [0], [1], [1], [1])))))
    words = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a<b & c", "flat", "t & u", "x", "y"} <= set(words)
    assert {"0", "1", "2", "3"} <= set(words), "the ticks"
