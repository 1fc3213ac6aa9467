"""CPUs of this machine: executors with exclusive CPUs run on exactly those, also after a crash of the server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import ullage
from tests.system.live_server import LiveServer, wait_until
from ullage.cli.main import main
from ullage.inventory.nvml import NvmlCards
from ullage.inventory.topology_reader import TopologyReader
from ullage.model.idset import format_ids

CPUS = sorted(os.sched_getaffinity(0))
KNOWN = TopologyReader().read((), NvmlCards(), CPUS).topology
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        KNOWN is None or len(CPUS) < 2 or len(KNOWN.zones) > 1,
        reason="needs a machine that tells its zones, with one of them and two CPUs",
    ),
]
ALL_BUT_ONE = len(CPUS) - 1


@pytest.fixture
def extra() -> str:
    """Return further lines of the settings."""
    return ""


@pytest.fixture
def server(home: Path, tmp_path: Path, extra: str) -> Iterator[LiveServer]:
    config = tmp_path / "lab.toml"
    # So many that nothing but the CPUs themselves can run out.
    config.write_text(f"{extra}\n[node]\ncpu = 1000\ngpus = 8\n")
    with LiveServer(home, f"--config={config}") as live:
        yield live
    assert live.leftovers() == []


def runs_on() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def held_cpus(http: httpx2.Client) -> str:
    """Return the held CPUs of the only node, which has one zone."""
    (node,) = http.get("/v1/nodes").json()
    (zone,) = http.get(f"/v1/nodes/{node['name']}/topology").json()["zones"]
    return str(zone["held_cpus"])


def ask(http: httpx2.Client, uid: str, cpus: int, **more: object) -> httpx2.Response:
    return http.post("/v1/allocations", json={"uid": uid, "resreq": f"gpu=1,cpu={cpus},numa=restricted", **more})


def test_two_sessions_run_on_cpus_of_their_own_which_come_back(
    server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with ullage.connect() as client, server.client() as http:
        sessions = [client.session(name, resreq="cpu=1,numa=restricted", min_instances=1) for name in ("a", "b")]
        seen = [session.submit(runs_on).result(timeout=60) for session in sessions]
        assert sorted(map(len, seen)) == [1, 1]
        assert seen[0] != seen[1]
        bodies = http.get("/v1/executors").json()
        shown = {body["session"]: body["placement"] for body in bodies}
        assert [shown[name]["cpus"] for name in ("a", "b")] == [str(cpus[0]) for cpus in seen]
        assert {body["note"] for body in bodies} == {""}
        assert held_cpus(http) == format_ids(cpus[0] for cpus in seen)
        main(["executors", "-o", "wide"])
        table = capsys.readouterr().out
        assert "CPUS" in table.splitlines()[0]
        main(["show", "executor", bodies[0]["id"]])
        placement = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("placement"))
        assert f"cpus={bodies[0]['placement']['cpus']}, " in placement
        assert ask(http, "rest", ALL_BUT_ONE).status_code == 409
        for session in sessions:
            session.close()
        for body in bodies:  # idle ones are kept for a while
            os.kill(body["pid"], signal.SIGKILL)
        wait_until(lambda: ask(http, "rest", ALL_BUT_ONE).status_code == 201, "the CPUs come back")


def test_after_a_crash_every_cpu_has_its_former_holder(server: LiveServer) -> None:
    with server.client() as http:
        for uid, commit in (("bound", True), ("assumed", False)):
            assert ask(http, uid, 1, commit=commit).status_code == 201
        before = http.get("/v1/allocations").json()
        zones = held_cpus(http)
    server.kill()
    server.start()
    with server.client() as http:
        assert http.get("/v1/allocations").json() == before
        assert held_cpus(http) == zones
        cpus = {body["uid"]: body["placement"]["cpus"] for body in before}
        assert len({*cpus.values()}) == 2
        assert ask(http, "new", ALL_BUT_ONE).status_code == 409
        assert http.delete("/v1/allocations/bound").is_success
        assert ask(http, "new", ALL_BUT_ONE).status_code == 201
        held = [body["placement"]["cpus"] for body in http.get("/v1/allocations").json()]
        assert sorted(held) == sorted([cpus["assumed"], format_ids({*CPUS} - {int(cpus["assumed"])})])


@pytest.mark.parametrize("extra", ['numa = "best-effort"'])
def test_the_settings_have_the_default_alignment(server: LiveServer) -> None:
    with ullage.connect() as client, server.client() as http:
        silent = client.session("silent", resreq="cpu=1", min_instances=1)
        default = client.session("default", min_instances=1)
        unaligned = client.session("unaligned", resreq={"cpu": 1, "numa": "none"}, min_instances=1)
        for session in (silent, default, unaligned):
            session.submit(runs_on).result(timeout=60)
        placed = {body["session"]: body["placement"] for body in http.get("/v1/executors").json()}
        assert [len(placed[name]["cpus"].split(",")) for name in ("silent", "default")] == [1, 1]
        assert placed["unaligned"] is None or placed["unaligned"]["cpus"] == ""
        body = http.post("/v1/allocations", json={"uid": "a", "resreq": {"gpu": 1}}).json()
        assert body["resreq"].endswith(",numa=best-effort")
        plan = http.post("/v1/plan", json={"resreq": "gpu=1,numa=restricted"}).json()
        assert plan["choice"]["placement"] is None, "cards of no known zone lie in none"
