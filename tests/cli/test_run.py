"""`ullage run`, `submit` and `logs`."""

import os
import signal
import threading

import msgspec
import pytest

from ullage.cli import run
from ullage.cli.main import main
from ullage.cli.program import choose_environment
from ullage.model.error import InvalidRequest
from ullage.worker.command import Command


def ends(fake, state, code=0, message=""):
    """A piece of the log at which the task ends."""
    return lambda session, task: fake.end(session, task, state, code, None, message)


def only_session(fake):
    (session,) = fake.sessions.values()
    return session


def test_run_copies_both_streams_byte_for_byte_and_closes(capfdbinary, fake):
    fake.logs["command"] = [("stdout", b"\xff\x00out\n", "1"), ("stderr", b"err\r", "2"), ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert capfdbinary.readouterr() == (b"\xff\x00out\n", b"err\r")
    assert only_session(fake).state == "closed"


def test_run_sends_the_program_its_directory_and_its_request(fake, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fake.logs["command"] = [ends(fake, "succeed")]
    arguments = ["-r", "CPU=2, gpu=1", "-q", "q", "-p", "7", "-n", "mine", "-e", "A=b=c"]
    assert main(["run", *arguments, "--", "prog", "-x", "--", "y"]) == 0
    session = only_session(fake)
    spec = session.spec
    assert (spec.application, spec.resreq, spec.queue, spec.priority) == ("command", "cpu=2,mem=0,gpu=1", "q", 7)
    assert (spec.id, spec.max_instances) == ("mine", 1)
    command = msgspec.msgpack.decode(session.tasks[0].input, type=Command)
    assert (command.argv, command.cwd) == (["prog", "-x", "--", "y"], str(tmp_path))
    assert command.env["A"] == "b=c"


@pytest.mark.parametrize("code", [1, 3, 126, 127, 137, 255])
def test_the_exit_code_is_the_programs_own(fake, code):
    fake.logs["command"] = [ends(fake, "failed", code, "text")]
    assert main(["run", "--", "prog"]) == code


@pytest.mark.parametrize(("code", "said"), [(3, ""), (127, "ullage: text\n"), (137, "ullage: text\n")])
def test_only_what_the_program_cannot_say_itself_is_said(capsys, fake, code, said):
    fake.logs["command"] = [ends(fake, "failed", code, "text")]
    main(["run", "--", "prog"])
    assert capsys.readouterr().err == said


def test_a_task_cancelled_by_somebody_else_ends_like_a_killed_one(fake):
    fake.logs["command"] = [ends(fake, "cancelled", 0, "by an operator")]
    assert main(["run", "--", "prog"]) == 143


def test_ctrl_c_cancels_and_lets_the_output_come_to_its_end(capfdbinary, fake):
    def interrupt(session, task):
        os.kill(os.getpid(), signal.SIGINT)
        with fake.changed:
            assert fake.changed.wait_for(lambda: session.state == "closed", 10)

    fake.logs["command"] = [("stdout", b"one\n", "1"), interrupt, ("stdout", b"two\n", "2")]
    assert main(["run", "--", "prog"]) == 130
    out, err = capfdbinary.readouterr()
    assert out == b"one\ntwo\n"
    assert b"cancelling command-1" in err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_leaves_at_once(fake):
    released = threading.Event()

    def interrupt_twice(session, task):
        os.kill(os.getpid(), signal.SIGINT)
        with fake.changed:
            assert fake.changed.wait_for(lambda: session.state == "closed", 10)
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(10)

    fake.logs["command"] = [interrupt_twice]
    assert main(["run", "--", "prog"]) == 130
    released.set()


def test_a_program_that_waits_is_explained_once_per_reason(capsys, fake, monkeypatch):
    monkeypatch.setattr(run, "QUIET_S", 0.0)
    monkeypatch.setattr(run, "AGAIN_S", 0.0)
    explained = threading.Event()
    why = fake.why

    def explain(session):
        if sum(path.endswith("/why") for _, path in fake.seen) > 2:  # at submission, before the line, after it
            explained.set()
        return why(session)

    fake.why = explain
    fake.logs["command"] = [lambda *_: explained.wait(10), ("stdout", b"x", "1"), ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert capsys.readouterr().err == "ullage: command-1 waits: nothing-pending: 0 of 4 gpus are free\n"


def test_a_request_that_no_node_can_hold_ends_at_once(capsys, fake):
    fake.reason = "unplaceable"
    assert main(["run", "-r", "gpu=64", "--", "prog"]) == 78
    err = capsys.readouterr().err
    assert err.startswith("ullage: unplaceable: 0 of 4 gpus are free\nhint: ask for gpu=0; ")
    assert only_session(fake).state == "closed"


def test_what_the_server_warns_of_is_said_on_stderr(capsys, fake):
    fake.warnings = ["no node here can align it"]
    assert main(["submit", "--", "prog"]) == 0
    assert capsys.readouterr().err == "warning: no node here can align it\n"


def test_such_a_request_can_be_made_to_wait(fake):
    fake.reason = "unplaceable"
    fake.logs["command"] = [ends(fake, "succeed")]
    assert main(["run", "--wait", "--", "prog"]) == 0


@pytest.mark.parametrize("arguments", [["-r", "gpu=many", "--", "prog"], ["--"], [], ["-e", "=x", "--", "prog"]])
def test_a_wrong_request_reaches_no_server(capsys, fake, arguments):
    assert main(["run", *arguments]) == 2
    assert fake.seen == []


def test_submit_prints_the_id_and_leaves_the_session_open(capsys, fake):
    assert main(["submit", "--", "prog"]) == 0
    assert capsys.readouterr().out == "command-1\n"
    assert only_session(fake).state == "open"


def test_a_submission_that_fails_leaves_no_session_behind(fake, monkeypatch):
    def refuse(*_):
        raise InvalidRequest("no")

    monkeypatch.setattr("ullage.cli.program.submit", refuse)
    assert main(["submit", "--", "prog"]) == 2
    assert only_session(fake).state == "closed"


def test_logs_show_what_is_there(capfdbinary, fake):
    main(["submit", "--", "prog"])
    capfdbinary.readouterr()
    fake.logs["command"] = [("stdout", b"\x80", "1")]
    assert main(["logs", "command-1"]) == 0
    assert capfdbinary.readouterr().out == b"\x80"


def test_following_logs_end_with_the_programs_exit_code(fake):
    main(["submit", "--", "prog"])
    fake.logs["command"] = [ends(fake, "failed", 5)]
    assert main(["logs", "-f", "command-1/1"]) == 5


def test_the_environment_is_what_programs_need_and_what_is_asked_for():
    own = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET": "s", "EXTRA": "e"}
    assert choose_environment(own, [], everything=False) == {"PATH": "/bin", "LC_ALL": "C"}
    assert choose_environment(own, ["EXTRA", "NEW="], everything=False)["NEW"] == ""
    assert choose_environment(own, ["EXTRA"], everything=False)["EXTRA"] == "e"
    assert choose_environment(own, [], everything=True) == own


def test_a_variable_that_is_not_set_is_refused():
    with pytest.raises(InvalidRequest, match="MISSING"):
        choose_environment({}, ["MISSING"], everything=False)
