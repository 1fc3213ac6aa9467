"""`ullage run`, `submit` and `logs`."""

import os
import signal
import threading

import msgspec
import pytest

from ullage.cli import run, submit
from ullage.cli.exits import complain
from ullage.cli.main import main
from ullage.cli.variables import choose_environment
from ullage.client import patience
from ullage.model.error import InvalidRequest
from ullage.wire.event import EventBody
from ullage.worker.command import Command


def ends(fake, state, code=0, message=""):
    """A piece of the log at which the task ends."""
    return lambda session, task: fake.end(session, task, state, code, None, message)


def only_session(fake):
    (session,) = fake.sessions.values()
    return session


@pytest.fixture(autouse=True)
def signals_are_as_at_the_start_of_a_process():
    """Also under nohup(1), which has hangups ignored, and after a test whose loop took a signal."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (3, ""),
        (123, ""),
        (124, "ullage: text\n"),
        (125, "ullage: text\n"),
        (127, "ullage: text\n"),
        (137, "ullage: text\n"),
    ],
)
def test_only_failures_that_the_program_cannot_print_are_printed(capsys, fake, code, output):
    fake.logs["command"] = [ends(fake, "failed", code, "text")]
    main(["run", "--", "prog"])
    assert capsys.readouterr().err == output


def test_a_task_cancelled_by_another_client_ends_like_a_killed_one(fake):
    fake.logs["command"] = [ends(fake, "cancelled", 0, "by an operator")]
    assert main(["run", "--", "prog"]) == 143


def test_ctrl_c_cancels_and_lets_the_output_come_to_its_end(capfdbinary, fake):
    def interrupt(session, task):
        os.kill(os.getpid(), signal.SIGINT)
        with fake.changed:
            assert fake.changed.wait_for(lambda: session.state == "closed", 60)

    fake.logs["command"] = [("stdout", b"one\n", "1"), interrupt, ("stdout", b"two\n", "2")]
    assert main(["run", "--", "prog"]) == 130
    out, err = capfdbinary.readouterr()
    assert out == b"one\ntwo\n"
    assert b"ullage: cancelling; press Ctrl-C again" in err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGQUIT, 131),
        (signal.SIGUSR1, 138),
        (signal.SIGUSR2, 140),
        (signal.SIGALRM, 142),
        (signal.SIGXCPU, 152),
        (signal.SIGRTMIN, 162),
    ],
)
def test_after_a_signal_the_exit_code_is_that_of_the_signal(fake, number, code):
    def end(session, task):
        os.kill(os.getpid(), number)
        with fake.changed:
            assert fake.changed.wait_for(lambda: session.state == "closed", 60)
        fake.end(session, task, "cancelled", 0, None, "")

    fake.logs["command"] = [end]
    assert main(["run", "--", "prog"]) == code


@pytest.mark.parametrize(
    ("first", "second", "code"), [(signal.SIGINT, signal.SIGINT, 130), (signal.SIGTERM, signal.SIGHUP, 143)]
)
def test_a_second_signal_leaves_at_once_with_the_code_of_the_first(fake, first, second, code):
    released = threading.Event()

    def interrupt_twice(session, task):
        os.kill(os.getpid(), first)
        with fake.changed:
            assert fake.changed.wait_for(lambda: session.state == "closed", 60)
        os.kill(os.getpid(), second)
        released.wait(60)

    fake.logs["command"] = [interrupt_twice]
    assert main(["run", "--", "prog"]) == code
    released.set()


def test_a_signal_before_the_program_is_submitted_leaves_no_session_behind(fake, monkeypatch):
    monkeypatch.setattr("ullage.cli.program.submit", lambda *_, **_more: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["run", "--", "prog"]) == 143
    assert only_session(fake).state == "closed"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_was_ignored_from_the_start_stays_ignored(fake, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        fake.logs["command"] = [lambda *_: os.kill(os.getpid(), number), ("stdout", b"x", "1"), ends(fake, "succeed")]
        assert main(["run", "--", "prog"]) == 0
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_cancelling_does_not_need_a_terminal_to_say_so(fake, monkeypatch):
    def gone(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("ullage.cli.interrupts.complain", gone)

    def end(session, task):
        os.kill(os.getpid(), signal.SIGHUP)
        with fake.changed:
            assert fake.changed.wait_for(lambda: session.state == "closed", 60)
        fake.end(session, task, "cancelled", 0, None, "")

    fake.logs["command"] = [end]
    assert main(["run", "--", "prog"]) == 129


def test_a_missing_server_is_reported_and_a_signal_then_ends_run_without_a_cancellation(capsys, fake, monkeypatch):
    monkeypatch.setattr(submit, "CANCEL_S", 0.0)
    monkeypatch.setattr(patience, "GONE_S", 0.0)

    def say_and_interrupt(text, hint=None):
        complain(text, hint)
        if text.startswith("no server answers; waiting up to"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(run, "complain", say_and_interrupt)
    fake.logs["command"] = [lambda *_: fake.close(), None]
    assert main(["run", "-n", "mine", "--", "prog"]) == 143
    output = capsys.readouterr().err
    assert output.count("no server answers") == 1
    assert (
        "ullage: mine is not cancelled: it runs again at the next start\nhint: `ullage cancel mine` ends it" in output
    )


def test_a_signal_while_the_server_does_not_answer_ends_run_with_a_note(capsys, fake, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(submit, "CANCEL_S", 0.01)

    def stop(session, task):
        fake.hang = released
        os.kill(os.getpid(), signal.SIGTERM)
        released.wait(60)

    fake.logs["command"] = [stop]
    assert main(["run", "-n", "mine", "--", "prog"]) == 143
    released.set()
    assert "mine is not cancelled and may still run: the server at" in capsys.readouterr().err


def test_a_cancellation_without_a_server_is_given_up_with_a_note(capsys, fake, monkeypatch):
    monkeypatch.setattr(submit, "CANCEL_S", 0.0)
    monkeypatch.setattr("ullage.client.patience.Patience.wait", refuse_to_wait)
    fake.logs["command"] = [lambda *_: fake.close(), None]
    assert main(["run", "-n", "mine", "--", "prog"]) == 69
    assert "mine is not cancelled: it runs again at the next start" in capsys.readouterr().err


def refuse_to_wait(_patience, reason):
    raise reason


def test_notes_of_the_server_about_a_log_are_printed_on_stderr(capfdbinary, fake):
    fake.logs["command"] = [("stdout", b"x", "1"), ("note", "5 bytes are not kept", None), ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert capfdbinary.readouterr() == (b"x", b"ullage: 5 bytes are not kept\n")


# --- standard input -------------------------------------------------------------------------------


@pytest.fixture
def standard_input(tmp_path):
    """Puts something else in place of the standard input."""
    before = os.dup(0)
    opened = []

    def put(kind, data=b""):
        if kind == "file":
            (tmp_path / "input").write_bytes(data)
            descriptor = os.open(tmp_path / "input", os.O_RDONLY)
        elif kind == "terminal":
            master, descriptor = os.openpty()
            os.write(master, data)
            opened.append(master)
        elif kind == "/dev/null":
            descriptor = os.open("/dev/null", os.O_RDONLY)
        else:
            descriptor, writer = os.pipe()
            os.write(writer, data)
            if kind == "ended pipe":
                os.close(writer)
            else:
                opened.append(writer)
        os.dup2(descriptor, 0)
        os.close(descriptor)

    yield put
    os.dup2(before, 0)
    for descriptor in (before, *opened):
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["file", "open pipe", "ended pipe"])
@pytest.mark.parametrize("verb", ["run", "submit"])
def test_input_that_a_program_would_not_get_is_refused_with_the_cure(capsys, fake, standard_input, verb, kind):
    standard_input(kind, b"data")
    assert main([verb, "--", "cat"]) == 2
    err = capsys.readouterr().err
    assert "--stdin sends it" in err
    assert "/dev/null" in err
    assert fake.seen == []


@pytest.mark.parametrize(
    ("kind", "data"),
    [("terminal", b"typed ahead\n"), ("/dev/null", b""), ("file", b""), ("open pipe", b""), ("ended pipe", b"")],
)
def test_a_terminal_and_an_empty_input_are_left_alone(fake, standard_input, kind, data):
    standard_input(kind, data)
    assert main(["submit", "--", "cat"]) == 0
    assert msgspec.msgpack.decode(only_session(fake).tasks[0].input, type=Command).stdin is None


@pytest.mark.parametrize("kind", ["file", "ended pipe"])
def test_input_is_sent_whole_if_asked_for(fake, standard_input, kind):
    standard_input(kind, b"\xff\x00 given\n")
    assert main(["submit", "--stdin", "--", "cat"]) == 0
    assert msgspec.msgpack.decode(only_session(fake).tasks[0].input, type=Command).stdin == b"\xff\x00 given\n"


@pytest.mark.parametrize("words", [["submit"], ["run", "--array=1-2"]])
def test_input_that_is_too_large_to_be_stored_is_refused_where_it_cannot_be_streamed(
    capsys, fake, standard_input, monkeypatch, words
):
    monkeypatch.setattr("ullage.cli.standard_input.MOST_BYTES", 4)
    standard_input("file", b"12345")
    assert main([*words, "--stdin", "--", "cat"]) == 2
    err = capsys.readouterr().err
    assert "more than 4" in err
    assert "`ullage run` without --array streams it" in err
    assert fake.seen == []


def test_a_terminal_is_refused_with_another_input_with_an_array_and_without_a_terminal_here(
    capsys, fake, standard_input
):
    standard_input("/dev/null")
    for words, text in (
        (["--stdin"], "--pty: '--stdin' is not valid"),
        (["--array=1-2"], "--pty: '--array' is not valid"),
        ([], "here it is none: run this verb in a terminal"),
    ):
        assert main(["run", "--pty", *words, "--", "sh"]) == 2
        assert text in capsys.readouterr().err
    assert fake.seen == []


def test_input_that_came_later_is_warned_of_at_the_end(capsys, fake, standard_input):
    standard_input("open pipe")

    def late(*_):
        reader, writer = os.pipe()
        os.write(writer, b"late")
        os.dup2(reader, 0)
        os.close(reader)
        os.close(writer)

    fake.logs["command"] = [late, ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert "the standard input was not sent" in capsys.readouterr().err


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
    fake.logs["command"] = [lambda *_: explained.wait(60), ("stdout", b"x", "1"), ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert explained.is_set()
    assert capsys.readouterr().err == "ullage: command-1 waits: nothing-pending: 0 of 4 gpus are free\n"


def test_a_program_with_all_its_executors_is_not_reported_as_waiting(capsys, fake, monkeypatch):
    """Its executor starts, and the task is pending until then."""
    monkeypatch.setattr(run, "QUIET_S", 0.0)
    monkeypatch.setattr(run, "AGAIN_S", 0.0)
    fake.reason = "running"
    explained = threading.Event()
    why = fake.why

    def explain(session):
        if sum(path.endswith("/why") for _, path in fake.seen) > 2:  # at submission, once, and after that
            explained.set()
        return why(session)

    fake.why = explain
    fake.logs["command"] = [lambda *_: explained.wait(60), ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert explained.is_set()
    assert capsys.readouterr().err == ""


def test_why_of_an_evicted_program_names_the_claimant_and_the_reason(capsys, fake, monkeypatch):
    monkeypatch.setattr(run, "QUIET_S", 0.0)
    monkeypatch.setattr(run, "AGAIN_S", 0.0)
    loss = EventBody(
        number=7,
        at=0.0,
        kind="executor.evicted",
        session="command-1",
        code=1004,
        message="gives way to b: why",
        data={},
    )
    explained = threading.Event()
    why = fake.why

    def explain(session):
        if sum(path.endswith("/why") for _, path in fake.seen) > 3:  # at submission, twice, and after the lines
            explained.set()
        return msgspec.structs.replace(why(session), evicted=loss)

    fake.why = explain
    fake.logs["command"] = [("stdout", b"x", "1"), lambda *_: explained.wait(60), ends(fake, "succeed")]
    assert main(["run", "--", "prog"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "ullage: command-1 was evicted: its executor gives way to b: why",
        "ullage: command-1 waits: nothing-pending: 0 of 4 gpus are free",
    ]


def test_a_request_that_no_node_can_hold_ends_at_once(capsys, fake):
    fake.reason = "unplaceable"
    assert main(["run", "-r", "gpu=64", "--", "prog"]) == 78
    err = capsys.readouterr().err
    assert err.startswith("ullage: unplaceable: 0 of 4 gpus are free\nhint: ask for gpu=0; ")
    assert fake.sessions == {}


def test_the_name_of_a_refused_session_can_be_given_again(fake):
    fake.reason = "unplaceable"
    assert main(["submit", "-n", "train", "-r", "gpu=64", "--", "prog"]) == 78
    fake.reason = None
    assert main(["submit", "-n", "train", "-r", "gpu=1", "--", "prog"]) == 0


@pytest.mark.parametrize(("option", "named"), [("-n", "session"), ("-q", "queue"), ("-J", "--job-name")])
def test_an_empty_name_is_refused(capsys, fake, option, named):
    assert main(["submit", option, "", "--", "prog"]) == 2
    assert f"ullage: {named}: '' is not valid" in capsys.readouterr().err
    assert fake.sessions == {}


def test_warnings_of_the_server_are_printed_on_stderr(capsys, fake):
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
    def refuse(*_, **_more):
        raise InvalidRequest("no")

    monkeypatch.setattr("ullage.cli.program.submit", refuse)
    assert main(["submit", "--", "prog"]) == 2
    assert only_session(fake).state == "closed"


def test_logs_show_the_present_output(capfdbinary, fake):
    main(["submit", "--", "prog"])
    capfdbinary.readouterr()
    fake.logs["command"] = [("stdout", b"\x80", "1")]
    assert main(["logs", "command-1"]) == 0
    assert capfdbinary.readouterr().out == b"\x80"


def test_following_logs_end_with_the_programs_exit_code(fake):
    main(["submit", "--", "prog"])
    fake.logs["command"] = [ends(fake, "failed", 5)]
    assert main(["logs", "-f", "command-1/1"]) == 5


def test_the_environment_has_standard_and_requested_variables():
    own = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET": "s", "EXTRA": "e"}
    assert choose_environment(own, [], everything=False) == {"PATH": "/bin", "LC_ALL": "C"}
    assert choose_environment(own, ["EXTRA", "NEW="], everything=False)["NEW"] == ""
    assert choose_environment(own, ["EXTRA"], everything=False)["EXTRA"] == "e"
    assert choose_environment(own, [], everything=True) == own


def test_a_variable_that_is_not_set_is_refused():
    with pytest.raises(InvalidRequest, match="MISSING"):
        choose_environment({}, ["MISSING"], everything=False)
