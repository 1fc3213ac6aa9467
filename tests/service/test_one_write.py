"""What one use case, one report of the engine, or one turn of the loop changes is stored in one write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab import Lab, a_node
from tests.service.test_refused_writes import HISTORIES, a_server

from ullage.service.engine_port import NodeLost, NodeReported
from ullage.service.nodes import DRAIN_S
from ullage.service.store_port import AddEvent, Drop, Record


def watched_writes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Record, ...]]:
    """Return a list that gets the records of each later write."""
    writes: list[tuple[Record, ...]] = []
    write = lab.store.write

    def watched(*records: Record) -> object:
        if records:
            writes.append(records)
        return write(*records)

    monkeypatch.setattr(lab.store, "write", watched)
    return writes


@pytest.mark.parametrize("name", HISTORIES)
def test_a_use_case_stores_its_records_and_its_events_in_one_write(name, tmp_path, monkeypatch):
    with a_server(tmp_path / "server" / "state.db", monkeypatch) as server:
        writes = watched_writes(server, monkeypatch)
        for what, step in HISTORIES[name].items():
            server.pump()
            writes.clear()
            step(server, lambda *_: None)
            assert len(writes) == 1, (what, writes)


def test_a_cordon_is_stored_with_its_event(monkeypatch):
    with Lab(a_node()) as lab:
        writes = watched_writes(lab, monkeypatch)
        lab.service.nodes.cordon("n1", True)
        (records,) = writes
        assert [record.event.kind for record in records if isinstance(record, AddEvent)] == ["node.cordoned"]
        assert len(records) == 2


def test_a_report_of_the_engine_is_stored_with_all_that_follows_from_it(monkeypatch):
    with Lab(a_node(cpu=1)) as lab:
        lab.session("s", tasks=1)
        (executor,) = lab.engine.alive
        lab.engine.kill(executor)
        writes = watched_writes(lab, monkeypatch)
        lab.service.on_engine_event(lab.engine.events.popleft())
        (records,) = writes
        assert {type(record) for record in records} >= {Drop, AddEvent}


def test_a_turn_of_the_loop_is_one_write(monkeypatch):
    with Lab(a_node(cpu=1), a_node("n2", cpu=1)) as lab:
        lab.session("s", tasks=2)
        lab.service.on_engine_event(NodeLost("n1"))
        lab.service.on_engine_event(NodeReported(replace(a_node("n2", cpu=1), labels={"rack": "1"})))
        lab.now += DRAIN_S
        writes = watched_writes(lab, monkeypatch)
        lab.service.tick()
        (records,) = writes
        kinds = [record.event.kind for record in records if isinstance(record, AddEvent)]
        assert {"node.not-ready", "executor.gone"} <= set(kinds)
