"""`--signal` of `run`, `submit`, job files and the SDK, with programs that save their work."""

from __future__ import annotations

import re
import signal
import sys

import cloudpickle
import pytest

import ullage
from tests.conftest import FOUR_CARDS
from tests.system.live_server import LiveServer, wait_until
from ullage.model.error import InvalidRequest

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests

TRAINER = """\
import pathlib, signal, sys, time
saved = pathlib.Path(sys.argv[1])
step = int(saved.read_text()) if saved.exists() else 0
def save(*_):
    saved.write_text(str(step))
    print("saved", step, flush=True)
signal.signal(signal.SIGUSR1, save)
print("from step", step, flush=True)
while True:
    step += 1
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on which an eviction does not take long."""
    home = tmp_path_factory.mktemp("server") / "home"
    home.mkdir()
    (home / "ullage.toml").write_text(f"{FOUR_CARDS}[policy]\nreclaim_grace_s = 3\n")
    with LiveServer(home) as live:
        yield live


@pytest.fixture
def trainer(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINER)
    return path


def test_a_program_saves_before_its_time_limit(ran, http, trainer, tmp_path):
    line = f"submit --signal USR1@58 -t 1m --cpus 1 -- {sys.executable} {trainer} {tmp_path}/checkpoint"
    code, out, error = ran(line)
    assert code == 0, error
    session = out.strip()
    wait_until((tmp_path / "checkpoint").exists, "the program saves its work")
    assert int((tmp_path / "checkpoint").read_text()) > 0
    wait_until(lambda: "saved" in ran(f"logs {session}")[1], "the program says so")
    assert ran(f"logs {session}")[2] == "ullage: USR1, 58 s before its time limit of 60 s\n"
    assert http.get(f"/v1/sessions/{session}/tasks/1").json()["state"] == "running", "the signal is not its end"
    http.post(f"/v1/sessions/{session}/cancel").raise_for_status()


def test_an_evicted_program_saves_before_and_goes_on_from_there(ran, http, trainer, tmp_path):
    line = f"submit --signal USR1@60 -r gpu=4,cpu=0 -- {sys.executable} {trainer} {tmp_path}/checkpoint"
    session = ran(line)[1].strip()
    wait_until(lambda: ran(f"logs {session}")[1] == "from step 0\n", "the program runs")
    urgent = ran("submit -p 9 -r gpu=4,cpu=0 -- true")[1].strip()
    wait_until((tmp_path / "checkpoint").exists, "the program saves its work")
    wait_until(lambda: ran(f"logs {session}")[1].count("from step") == 2, "the program runs again", 120)
    out, error = ran(f"logs {session}")[1:]
    assert f"from step {(tmp_path / 'checkpoint').read_text()}\n" in out
    first, *_ = error.splitlines()
    assert re.match(rf"ullage: USR1, \S+ s before its eviction for session {urgent}: ", first)
    http.post(f"/v1/sessions/{session}/cancel").raise_for_status()


def test_a_job_file_may_ask_for_it_and_the_line_is_named(ran, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#ULLAGE --cpus 1 --signal USR9@60\ntrue\n")
    code, _, error = ran(f"submit {script}")
    assert code == 2
    assert "--signal" in error
    assert "choose one of USR1" in error


@pytest.mark.parametrize("text", ["KILL@60", "USR1@", "USR1@60x"])
def test_bad_signals_are_refused_before_the_server_is_asked(ran, text):
    code, _, error = ran(f"run --signal {text} -- true")
    assert code == 2
    assert f"--signal: '{text}' is not valid: " in error


def test_a_signal_that_is_due_before_the_start_is_refused_by_the_server(ran):
    code, _, error = ran("submit --signal USR1@60 -t 30 -- true")
    assert code == 2
    assert "signal" in error
    assert "its time limit is 30 s" in error


def wait_and_save(path):
    caught = []
    signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
    while not caught:
        signal.pause()
    path.write_text("saved")


def test_a_function_saves_too(http, tmp_path):  # the server of the environment
    with ullage.connect() as client:
        with client.session(resreq="cpu=1", signal="USR1@58", task_timeout_s=60) as session:
            session.submit(wait_and_save, tmp_path / "saved").result(120)
        with pytest.raises(InvalidRequest, match="choose one of USR1"):
            client.session(signal="USR9")
    assert (tmp_path / "saved").read_text() == "saved"
