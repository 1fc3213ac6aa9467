"""Calls within calls that hold all executors: the client that waits, and `why`, say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.system.live_server import LiveServer, wait_until
from tests.system.terminals import Shell

PROGRAM = """
import ullage

def inner(n):
    return n * n

def outer(n):
    with ullage.connect() as client:
        return client.open_session("nested").submit(inner, n).result()

if __name__ == "__main__":
    with ullage.connect() as client:
        session = client.open_session("nested", resreq="cpu=0.1,mem=128m", max_instances=1)
        print(session.submit(outer, 3).result())
"""


def test_a_task_that_waits_for_its_own_session_is_named_to_who_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with LiveServer(tmp_path / "home", NUMBA_DISABLE_JIT="1") as server:
        shell = Shell(server, PYTHONPATH=os.pathsep.join(sys.path))
        with (tmp_path / "said").open("wb") as said:
            program = subprocess.Popen(
                [sys.executable, str(tmp_path / "program.py")], env=shell.environment, stdout=said, stderr=said
            )
        text = b"1 executor of nested runs a task that waits for tasks of the same session, and nothing runs these"
        wait_until(lambda: text in (tmp_path / "said").read_bytes(), "the waiting client says so")
        assert text in shell.run("why", "nested").stdout
        assert shell.run("update", "nested", "--at-once", "2").returncode == 0
        assert program.wait(60) == 0
        assert (tmp_path / "said").read_bytes().endswith(b"\n9\n")
        assert text not in shell.run("why", "nested").stdout
