"""The events of a server become a trace, with the same measures as simulated placements."""

import json

import pytest

from tests.lab import Lab, a_node
from ullage.cli.main import main
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import InvalidRequest
from ullage.model.request import ResourceRequirement
from ullage.service.store_port import AddEvent, Page
from ullage.sim.churn import run_churn
from ullage.sim.journal import read_history
from ullage.sim.recorded import run_recorded
from ullage.storage.open import open_store


def nobody():
    """Ignore the answer."""


@pytest.fixture
def events():
    """Two cards: ann takes both, bob waits for one of them, a request comes 70 s late although there is room."""
    with Lab(a_node(gpus=2)) as lab:
        lab.session("ann", "cpu=1,gpu=1", tasks=2)
        lab.pass_time(10)
        lab.session("bob", "cpu=1,gpu=1", tasks=1, priority=4)
        lab.pass_time(10)
        lab.finish("ann")
        lab.pass_time(30)
        lab.finish("bob")
        lab.finish("ann")
        for name in ("ann", "bob"):
            lab.service.sessions.close(name, nobody)
        lab.pump()
        lab.pass_time(60)
        claim = Claim(namespace="team", priority=3, created_at=1040.0)
        lab.service.allocations.alloc(Request("r1", ResourceRequirement(500, 0, 1), claim), nobody)
        lab.pump()
        lab.pass_time(20)
        lab.service.allocations.dealloc("r1", None, nobody)
        lab.pump()
        return lab.store.events(Page(0, 1000))


def as_json(event):
    return {name: getattr(event, name) for name in ("number", "at", "kind", "session", "code", "message", "data")}


@pytest.fixture
def journal(events, tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(f"{json.dumps(as_json(event))}\n" for event in events))
    return path


def test_each_allocation_is_a_task_with_its_queue_its_wait_and_its_end(journal):
    history = read_history(journal)
    assert [(node.name, node.cpu_milli, len(node.gpus)) for node in history.trace.nodes] == [("n1", 8000, 2)]
    tasks = history.trace.tasks
    assert [(task.name, task.arrival_s, task.duration_s) for task in tasks] == [
        ("e1-1", 1000, 20),
        ("e1-2", 1000, 50),
        ("e1-1", 1010, 30),
        ("r1", 1040, 20),
    ]
    assert [(task.queue, task.priority) for task in tasks] == [("default", 0)] * 2 + [("default", 4), ("team", 3)]
    assert [str(task.requirement) for task in tasks] == ["cpu=1,mem=0,gpu=1"] * 3 + ["cpu=0.5,mem=0,gpu=1"]
    assert [placed.start_s for placed in history.placed] == [1000, 1000, 1020, 1110]
    assert {gpu for placed in history.placed for gpu in placed.gpus} == {"GPU-n1-0", "GPU-n1-1"}


def test_recorded_and_simulated_placements_have_the_same_measures(journal):
    history = read_history(journal)
    happened, would = run_recorded(history), run_churn(history.trace, "best-fit", 1)
    assert (happened.waits.mean_s, happened.waits.worst_s, happened.ended_s) == (20, 70, 130)
    assert (would.waits.mean_s, would.waits.worst_s, would.ended_s) == (5, 10, 70)
    assert happened.mean_allocation == would.mean_allocation == 100
    assert happened.fragmentation == would.fragmentation == [0.0] * 201
    assert happened.fairness.worst_rho > would.fairness.worst_rho


def test_a_list_of_events_is_read_as_their_lines_are(journal, tmp_path):
    listed = tmp_path / "listed" / "journal.json"
    listed.parent.mkdir()
    listed.write_text(json.dumps([json.loads(line) for line in journal.read_text().splitlines()], indent=2))
    assert read_history(listed) == read_history(journal)


def test_the_verb_reads_the_database_of_a_server_that_has_it_open(events, tmp_path, capsys):
    store = open_store(str(tmp_path / "state.db"))
    store.load()
    store.write(*map(AddEvent, events)).result()
    out = tmp_path / "out"
    arguments = ["--from", str(tmp_path / "state.db"), "--policy", "best-fit", "spread", "--seeds", "1"]
    try:
        assert main(["replay", *arguments, "--processes", "1", "--out", str(out), "-o", "json"]) == 0
    finally:
        store.close()
    use = json.loads(capsys.readouterr().out)[0]
    waits = {row[1]: row[use["titles"].index("mean wait")] for row in use["rows"]}
    assert waits == {"recorded": "20", "best-fit, fifo": "5", "spread, fifo": "5"}
    assert "recorded" in (out / "index.html").read_text()


def test_a_restarted_server_has_lost_its_executors_and_kept_its_requests(events, tmp_path):
    lines = [as_json(event) for event in events if event.at < 1020]
    request = as_json(next(event for event in events if event.kind == "allocation.bound")) | {"at": 1005.0}
    again = as_json(events[0]) | {"at": 1015.0}
    stop = as_json(events[0]) | {"at": 1100.0, "kind": "node.unknown", "data": {}}
    path = tmp_path / "j.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in [*lines, request, again, stop]))
    tasks = read_history(path).trace.tasks
    assert [(task.name, task.duration_s) for task in tasks] == [("e1-1", 15), ("e1-2", 15), ("r1", 95)]


def test_the_members_of_a_gang_are_listed():
    with Lab(a_node(gpus=2)) as lab:
        claim = Claim(gang=GangClaim("g", 2, 2))
        members = [Request(uid, ResourceRequirement.of(1, gpu=1), claim) for uid in ("m1", "m2")]
        lab.service.gangs.put("g", members, nobody)
        lab.pump()
        lab.service.gangs.drop("g", nobody)
        lab.pump()
        recorded = [
            (e.kind, e.data.get("uid")) for e in lab.store.events(Page(0, 100)) if e.kind.startswith("allocation.")
        ]
    assert recorded == [(f"allocation.{what}", uid) for what in ("bound", "freed") for uid in ("m1", "m2")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{oops", "is no list of events"),
        ('{"kind": "node.ready"}', "event 1: at, kind and data are needed"),
        ('{"at": 1, "kind": "node.ready", "data": {"node": "n1", "gpus": 2}}', "earlier versions did not record it"),
    ],
)
def test_a_file_without_placements_is_refused(tmp_path, content, message):
    path = tmp_path / "journal.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=message):
        read_history(path)


@pytest.mark.parametrize("content", [b"SQLite format 3\0 and then nothing", None])
def test_a_database_that_is_none_is_refused(tmp_path, capsys, content):
    path = tmp_path / "state.db"
    if content is not None:
        path.write_bytes(content)
    assert main(["replay", "--from", str(path), "--out", str(tmp_path / "out")]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_journal_and_a_trace_are_not_given_together(tmp_path, capsys):
    assert main(["replay", "--from", "x", "--nodes", "y"]) == 2
    assert "or --from with a journal" in capsys.readouterr().err
