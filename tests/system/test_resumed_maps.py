"""A client that is killed in the middle of a map, and a second one that makes the same call."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ullage
from tests.system.live_server import LiveServer, wait_until

PROGRAM = """
import sys, time
from pathlib import Path
import ullage

ran, gate = Path(sys.argv[1]), Path(sys.argv[2])


def work(item):
    with (ran / str(item)).open("a") as file:
        file.write("x")
    while item >= 10 and not gate.exists():
        time.sleep(0.02)
    if item % 7 == 3:
        raise OSError(f"item {item}")
    return item * item


with ullage.connect() as client, client.open_session("runs", resreq="cpu=0.25,mem=64m", max_instances=4) as session:
    print("begins", flush=True)
    for result in session.map(work, range(300), key="run-7", ordered=True, return_exceptions=True):
        print(result, flush=True)
"""


def program(tmp_path: Path) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    (tmp_path / "ran").mkdir(exist_ok=True)
    return [sys.executable, str(file), str(tmp_path / "ran"), str(tmp_path / "gate")]


@pytest.mark.parametrize("restarts", [False, True], ids=["the client", "client and server"])
def test_a_map_goes_on_after_its_client_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts) -> None:
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    expected = [f"item {n}" if n % 7 == 3 else str(n * n) for n in range(300)]
    with LiveServer(tmp_path / "home") as server:
        with subprocess.Popen(program(tmp_path), stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            shown = [first.stdout.readline().strip() for _ in range(11)]
            first.send_signal(signal.SIGKILL)
        assert shown == ["begins", *expected[:10]]
        if restarts:
            server.kill()
            server.start()
        (tmp_path / "gate").touch()
        second = subprocess.run(program(tmp_path), capture_output=True, text=True, timeout=120, check=True)
        assert second.stdout.splitlines() == ["begins", *expected], second.stderr
        with ullage.connect() as client, client.open_session("runs") as session:
            body = session.status()
            wait_until(lambda: session.status().pending == 0, "nothing waits")
            assert (body.succeed + body.failed, body.cancelled) == (300, 0)
            session.close()
    ran = {file.name: len(file.read_text()) for file in (tmp_path / "ran").iterdir()}
    assert len(ran) == 300
    if not restarts:  # a killed server loses the executors, whose tasks run again
        assert set(ran.values()) == {1}
