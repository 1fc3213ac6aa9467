"""Mistakes on the command line: each message names the mistake and a fix."""

import subprocess
import sys
from pathlib import Path

import pytest

import ullage
from tests.fake_api import gpu, node
from ullage.cli.exits import report
from ullage.cli.main import main
from ullage.cli.server import _Log
from ullage.cli.several import for_each
from ullage.cli.verbs import GROUPS, VERBS
from ullage.model.error import (
    AlreadyExists,
    Conflict,
    DiskFull,
    InvalidRequest,
    NotFound,
    UllageError,
    Unavailable,
)

_VERSION = [sys.executable, "-m", "ullage.cli.main", "version"]


@pytest.mark.parametrize(("typed", "meant"), [("sessionz", "sessions"), ("rum", "run"), ("quota", "quotas")])
def test_a_verb_that_is_misspelt_is_answered_with_the_one_that_is_near(capsys, typed, meant):
    assert main([typed]) == 2
    message = capsys.readouterr().err
    assert f"did you mean {meant}?" in message
    assert "`ullage --help` lists the verbs" in message


def test_a_verb_that_is_like_none_is_answered_with_the_way_to_the_list(capsys):
    assert main(["xyzzy"]) == 2
    message = capsys.readouterr().err
    assert "did you mean" not in message
    assert "`ullage --help` lists the verbs" in message


def test_an_unknown_option_is_refused_with_the_help_of_its_verb(capsys):
    assert main(["run", "-y", "3", "--", "true"]) == 2
    assert "run does not take -y; `ullage run --help` lists its arguments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-r cpu=1 run -- true", "option: '-r' is not valid: write the verb first and its options after it"),
        ("--verison", "option: '--verison' is not valid: did you mean --version?"),
        ("--hlep", "did you mean --help?"),
    ],
)
def test_an_option_before_the_verb_is_refused_by_its_name(capsys, line, message):
    assert main(line.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("word", ["cpu=1", "mem=1g", "OMP_NUM_THREADS=1"])
def test_a_request_or_a_variable_in_the_place_of_the_program_is_named(capsys, fake, word):
    assert main(["run", "-r", "cpu=1", word, "--", "true"]) == 2
    assert f"program: '{word}' is not valid: a request goes after -r, as in -r {word}" in capsys.readouterr().err
    assert not fake.sessions


def test_a_program_whose_name_has_an_equals_sign_can_be_run(fake, tmp_path, monkeypatch):
    program = tmp_path / "a=b"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["submit", "--", "a=b"]) == 0


@pytest.mark.parametrize("verb", ["cancel", "close", "delete"])
def test_a_session_that_does_not_exist_keeps_none_of_the_others_from_their_action(capsys, fake, verb):
    with ullage.connect() as client:
        for name in ("a", "b"):
            client.session(name)
            if verb == "delete":
                client.open_session(name).close()
                fake.sessions[name].state = "closed"
    assert main([verb, "a", "nosuch", "b"]) == 2
    assert "session nosuch does not exist" in capsys.readouterr().err
    left = {name for name, session in fake.sessions.items() if session.state == "open"}
    assert left == set()
    assert verb != "delete" or not fake.sessions


def test_a_refusal_among_several_names_its_uid_and_the_first_one_sets_the_exit_code(capsys):
    def act(name):
        if name != "b":
            raise Conflict("it is busy", code="busy") if name == "a" else NotFound(f"{name} does not exist")
        return name

    assert for_each(["a", "b", "c"], act) == (75, ["b"])
    assert capsys.readouterr().err == "ullage: busy: a: it is busy\nullage: c does not exist\n"


def test_a_missing_server_is_reported_once_for_all_names():
    def act(_):
        raise Unavailable("no server answers")

    with pytest.raises(Unavailable):
        for_each(["a", "b"], act)


def test_a_key_that_is_misspelt_is_answered_with_the_one_that_is_near(capsys, fake):
    assert main(["run", "-r", "cpus=1", "--", "true"]) == 2
    assert "'cpus=1' is not valid: did you mean cpu?" in capsys.readouterr().err


def test_a_closed_standard_output_is_refused_before_anything_is_done():
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *_VERSION], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "ullage: the standard output is closed; send it to a file, or to /dev/null\n"


def test_messages_stay_out_of_the_output_if_the_standard_error_is_closed():
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *_VERSION[:-1], "xyzzy"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")


def test_output_that_finds_no_room_is_no_fault_of_ullage():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(_VERSION, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 74
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "report" not in done.stderr


def test_a_misspelt_variable_of_the_environment_is_warned_of(capsys, monkeypatch):
    monkeypatch.setenv("ULLAGE_HOEM", "/somewhere")
    assert main(["version"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith(
        "warning: ULLAGE_HOEM is set, and nothing reads it: did you mean ULLAGE_HOME? known are"
    )
    assert shown.out


def test_a_warning_of_the_client_is_one_line(fake):
    lines = "import sys, warnings\nfrom ullage.cli.main import main\nfrom ullage.client import endpoint\n"
    url = "http://ullage.invalid:1"
    code = f"{lines}sys.exit(main(['queue']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"ULLAGE_ENDPOINT": url, "ULLAGE_TOKEN": "t"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 69
    first, *rest = done.stderr.splitlines()
    assert first == (f"warning: the token goes to {url} in plain text, which others can read; use https, or a tunnel")
    assert rest[0].startswith("ullage: no server answers")


def test_the_help_shows_each_verb_once_in_its_group(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    titles = [line.strip(" :") for line in shown.splitlines() if line.startswith("  ") and line.endswith(":")]
    assert titles == list(GROUPS)
    for name in VERBS:
        assert sum(line.startswith(f"    {name} ") for line in shown.splitlines()) == 1, name


@pytest.mark.parametrize("code", ["0", "1", "2", "69", "70", "74", "75", "78"])
def test_the_help_lists_every_exit_code_of_its_own(capsys, code):
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split()).partition("Exit codes:")[2]
    assert f" {code} " in shown


@pytest.mark.parametrize("url", ["http://", "http://host:99999", "http://host:x", "http://:80", "http://host:0"])
def test_an_address_without_a_host_or_with_a_wrong_port_is_refused_by_name(capsys, home, monkeypatch, url):
    monkeypatch.setenv("ULLAGE_ENDPOINT", url)
    assert main(["queue"]) == 2
    assert f"endpoint: {url!r} is not valid: write a host, and a port from 1 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["two words", "broken\nline", "\N{SNOWMAN}", "\xe9"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(capsys, home, monkeypatch, token):
    monkeypatch.setenv("ULLAGE_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("ULLAGE_TOKEN", token)
    assert main(["queue"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("ullage: ULLAGE_TOKEN: a token has no spaces, line breaks")
    assert token not in message


def test_an_empty_program_and_a_variable_with_a_space_are_refused_before_anything_runs(capsys, fake):
    assert main(["run", "--", ""]) == 2
    assert "program: '' is not valid: write it last" in capsys.readouterr().err
    assert main(["run", "-e", "A B=1", "--", "true"]) == 2
    assert "--env: 'A B' is not valid: a name of a variable has no '=', no space" in capsys.readouterr().err
    assert not fake.sessions


def test_an_error_for_an_unknown_name_has_a_hint(capsys):
    assert report(NotFound("session nosuch does not exist", field="session")) == 2
    assert capsys.readouterr().err == (
        "ullage: session nosuch does not exist\nhint: `ullage sessions` lists all sessions\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("x"), 2),
        (NotFound("x"), 2),
        (AlreadyExists("x"), 2),
        (Conflict("x"), 75),
        (DiskFull("x"), 75),
        (Unavailable("x"), 69),
        (UllageError("x"), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_temporary_refusals_end_with_try_again(error, code):
    assert report(error) == code


def test_up_prints_the_error_of_a_server_and_not_its_log(tmp_path):
    (tmp_path / "server.log").touch()
    log = _Log(tmp_path / "server.log")
    lines = "timestamp='2026-01-31' level='info' event='node.discovered'\nullage: storage: 'x' is not valid\nhint: y\n"
    log.path.write_text(lines)
    assert log.message() == "ullage: storage: 'x' is not valid\nhint: y"
    log.path.write_text(lines.splitlines()[0])
    assert log.message() == lines.splitlines()[0]


@pytest.mark.parametrize("line", ["--help", "--version", "run --help", "version"])
def test_help_and_a_version_that_find_no_room_are_lost_output(line):
    done = subprocess.run(
        ["sh", "-c", '"$@" > /dev/full', "sh", *_VERSION[:-1], *line.split()],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 74
    assert "the output cannot be written: No space left on device" in done.stderr


def test_a_standard_error_without_room_is_lost_output_too():
    command = ["sh", "-c", '"$@" 2> /dev/full', "sh", *_VERSION[:-1], "nosuchverb"]
    assert subprocess.run(command, check=False).returncode == 74


def test_a_standard_input_that_is_closed_cannot_be_sent(tmp_path):
    command = [*_VERSION[:-1], "run", "--stdin", "--", "cat"]
    closed = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False)
    with (tmp_path / "x").open("w") as unreadable:
        done = subprocess.run(command, stdin=unreadable, stderr=subprocess.PIPE, text=True, check=False)
    assert (closed.returncode, done.returncode) == (2, 2)
    assert all("the standard input cannot be read: Bad file" in each.stderr for each in (closed, done))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("events --session nosuch", "session nosuch does not exist"),
        ("events -f --session nosuch", "session nosuch does not exist"),
        ("queue -q defaults", "queue defaults does not exist; did you mean default?"),
    ],
)
def test_a_filter_by_an_unknown_name_is_an_error(capsys, fake, line, message):
    assert main(line.split()) == 2
    assert message in capsys.readouterr().err


def test_an_impossible_operation_is_an_invalid_request():
    assert report(Conflict("application function is built in and stays", code="built-in")) == 2


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["why", ""], "session"),
        (["why", "late/"], "pod"),
        (["cancel", ""], "session"),
        (["show", "session", "x/1"], "session"),
        (["free", "../x"], "uid"),
        (["free", "x/"], "uid"),
        (["topo", ""], "node"),
        (["events", "--session", ""], "session"),
        (["apps", "unregister", "a/b"], "application"),
        (["gang", "show", ""], "gang"),
    ],
)
def test_an_id_that_is_none_is_named(capsys, fake, words, field):
    assert main(words) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"ullage: {field}: ")
    assert "is not valid: use 1 to 253 letters" in message


@pytest.mark.parametrize(
    ("key", "meant"), [("ram", "did you mean mem?"), ("cores", "did you mean cpu?"), ("cards", "did you mean gpu?")]
)
def test_a_key_that_others_use_is_answered_with_ours(capsys, fake, key, meant):
    assert main(["run", "-r", f"{key}=1", "--", "true"]) == 2
    assert meant in capsys.readouterr().err


def test_a_key_that_is_like_none_is_answered_with_all(capsys, fake):
    assert main(["run", "-r", "foo=1", "--", "true"]) == 2
    message = capsys.readouterr().err
    assert "did you mean" not in message
    assert "The keys are cpu, mem, gpu, vram" in message


def test_a_quality_of_service_that_is_none_is_answered_with_those_there_are(capsys):
    assert main(["alloc", "p", "-r", "gpu=1", "--qos", "nope"]) == 2
    assert "choose one of low, medium, high, critical" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run --prioriti 3 -- true", "ullage run does not take --prioriti; did you mean --priority?"),
        ("queue --sate=running", "ullage queue does not take --sate=running; did you mean --state?"),
        ("queues set lab --wieght 3", "did you mean --weight? `ullage queues --help`"),
        ("quotas set a --max-gpus 3", "did you mean --max-gpu-count?"),
        ("quotas sett a", "'sett' is not valid: did you mean set? choose one of list, set, delete"),
        ("show sezzion x", "'sezzion' is not valid: did you mean session? choose one of"),
        ("show session x -o jsn", "'jsn' is not valid: did you mean json? choose one of table"),
        ("alloc a -r gpu=1 --qos hihg", "did you mean high?"),
        ("alloc a -r gpu=1 --limit tflop=3", "--limit: 'tflop=3' is not valid: did you mean tflops?"),
        ("run -p high -- true", "ullage run: argument -p/--priority: invalid int value: 'high'; -p high of Slurm is"),
        ("run -q", "ullage run: argument -q/--queue: expected one argument; `ullage run --help` shows how"),
        ("show gpu n1/7", "gpu n1/7 does not exist; did you mean n1/0?"),
        ("show node n2", "node n2 does not exist; known are n1"),
    ],
)
def test_whatever_name_is_misspelt_the_message_has_the_one_that_is_near(capsys, fake, line, message):
    fake.nodes, fake.gpus = [node("n1")], [gpu("n1", 0)]
    assert main(line.split()) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "usage:" not in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("why trian-1", "session trian-1 does not exist; did you mean train-1?"),
        ("cancel trian-1", "session trian-1 does not exist; did you mean train-1?"),
        ("tasks train1", "session train1 does not exist; did you mean train-1?"),
        ("logs tain-1", "session tain-1 does not exist; did you mean train-1?"),
        ("submit -q defaultt -- true", "queue defaultt does not exist; did you mean default?"),
        ("submit -q zzz -- true", "queue zzz does not exist; known are default"),
        ("queues set lab --parent deflt", "--parent: 'deflt' is not valid: did you mean default?"),
        ("queues delete deflt", "queue deflt does not exist; did you mean default?"),
        ("show application commandd", "application commandd does not exist; did you mean command?"),
        ("apps unregister ech", "application ech does not exist; known are command, function"),
        ("topo nod-1", "node nod-1 does not exist; "),
        ("cordon nod-1", "node nod-1 does not exist; "),
        ("show allocation pod1", "allocation pod1 does not exist; did you mean pod-1?"),
        ("free pod1", "allocation pod1 does not exist"),
        ("show quota lba", "quota lba does not exist; did you mean lab?"),
    ],
)
def test_a_server_names_the_object_that_is_meant(ran, http, line, message):
    http.post("/v1/sessions/train-1/open", json={"application": "command"})
    http.put("/v1/quotas/lab", json={"total": {"max_workers": 5}})
    http.post("/v1/allocations", json={"uid": "pod-1", "resreq": "gpu=1"})
    code, _, error = ran(line)
    assert code == 2
    assert message in error


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["exec", "work"], "write it last, as in `ullage exec train-1 -- nvidia-smi`"),
        (["exec", "work", "-t", "--", "bash"], "options come before the task"),
        (["exec", "work", "-e", "A=1", "--", "env"], "options come before the task"),
    ],
)
def test_exec_says_where_its_program_and_its_options_stand(fake, capsys, words, text):
    assert main(words) == 2
    assert text in capsys.readouterr().err
