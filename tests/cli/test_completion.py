"""Completions of a shell, with names from a server."""

import os
import subprocess
import sys

import pytest

from tests.fake_api import FakeSession, node, queue
from ullage.cli.main import main
from ullage.wire.session import CreateSession

pytest.importorskip("shtab", reason="shtab is not installed")


@pytest.fixture
def complete(fake, capsys, tmp_path):
    """Completes a line in bash."""
    fake.sessions["train-1"] = FakeSession(CreateSession(application="function"), "train-1")
    fake.nodes, fake.queues = [node("gpu-01")], [queue("default"), queue("vision")]
    assert main(["completion", "bash"]) == 0
    (tmp_path / "ullage.bash").write_text(capsys.readouterr().out)
    program = tmp_path / "ullage"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ullage.cli.main "$@"\n')
    program.chmod(0o755)

    def run(*words):
        line = f"source {tmp_path}/ullage.bash; COMP_WORDS=(ullage {' '.join(words)}); COMP_CWORD={len(words)}; "
        code = f'{line}_shtab_ullage; echo "${{COMPREPLY[@]}}"'
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.split()

    return run


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("why", "tr"), ["train-1"]),
        (("tasks", "train"), ["train-1"]),
        (("close", "t"), ["train-1"]),
        (("run", "-q", "vi"), ["vision"]),
        (("queue", "--queue", "vi"), ["vision"]),
        (("cordon", "gpu"), ["gpu-01"]),
        (("nod",), ["nodes"]),
    ],
)
def test_bash_completes_verbs_and_names_of_the_server(complete, words, found):
    assert complete(*words) == found


def test_names_are_left_out_where_no_server_answers(complete, monkeypatch):
    monkeypatch.setenv("ULLAGE_ENDPOINT", "http://127.0.0.1:1")
    assert complete("why", "tr") == []
