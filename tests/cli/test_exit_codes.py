"""One meaning for each exit code, in every verb."""

import re

import pytest

from ullage.cli import exits
from ullage.cli.main import main
from ullage.cli.verbs import VERBS

ASKS_NOBODY = {
    "completion": "completion bash",
    "demo": None,
    "doctor": "doctor",
    "down": "down",
    "exporter": None,
    "kube": None,
    "recover": None,
    "replay": None,
    "service": None,
    "settings": "settings",
    "up": None,
    "version": "version",
}
"""Verbs that need no server, with a line that is done; None for those that start programs of their own."""

ARGUMENTS = {
    "adjust": "p -r vram=1g",
    "alloc": "p -r gpu=1",
    "attach": "s",
    "cancel": "s",
    "close": "s",
    "commit": "p",
    "cordon": "n",
    "defrag": "--for gpu=1",
    "delete": "s",
    "exec": "s -- true",
    "forget": "p",
    "free": "p",
    "gang": "show g",
    "logs": "s",
    "plan": "-r gpu=1",
    "release": "p",
    "requeue": "s",
    "retry": "s",
    "run": "-- true",
    "show": "session s",
    "submit": "-- true",
    "tasks": "s",
    "uncordon": "n",
    "update": "s --begin now",
    "why": "s",
}
"""The fewest arguments of each verb that asks a server, if it takes any."""

ASKING = [verb for verb in VERBS if verb not in ASKS_NOBODY]


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_done_and_an_unknown_option_is_a_wrong_request(capsys, home, verb):
    assert main([verb, "--help"]) == 0
    assert main([verb, "--no-such-option"]) == exits.USAGE
    assert capsys.readouterr().err.startswith("ullage: ")


@pytest.mark.parametrize("verb", ASKING)
def test_without_a_server_a_verb_ends_with_69(capsys, home, monkeypatch, verb):
    monkeypatch.setenv("ULLAGE_EXECUTOR", "e1")  # where no server is started
    monkeypatch.setenv("ULLAGE_ENDPOINT", "http://127.0.0.1:1")
    code, said = main([verb, *ARGUMENTS.get(verb, "").split()]), capsys.readouterr().err
    assert (code, "waiting" in said) == (exits.UNAVAILABLE, False), said


@pytest.mark.parametrize("line", [line for line in ASKS_NOBODY.values() if line])
def test_a_verb_that_asks_nobody_is_done_without_a_server(capsys, home, line):
    home.chmod(0o700)
    assert main(line.split()) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        *(
            "logs nosuch",
            "tasks nosuch",
            "why nosuch",
            "cancel nosuch",
            "close nosuch",
            "delete nosuch",
            "retry nosuch",
        ),
        *("cordon nosuch", "uncordon nosuch", "topo nosuch", "commit nosuch", "free nosuch", "release nosuch"),
        *("adjust nosuch -r vram=1g", "gang show nosuch", "events --session nosuch", "queue -q nosuch"),
        *("queues delete nosuch", "quotas delete nosuch", "apps unregister nosuch", "submit -q nosuch -- true"),
        *(f"show {kind} nosuch" for kind in ("session", "node", "gpu", "application", "executor", "allocation")),
    ],
)
def test_a_name_that_does_not_exist_is_a_wrong_request_whatever_the_verb(ran, line):
    code, _, error = ran(line)
    assert (code, "nosuch" in error) == (exits.USAGE, True)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("plan -r gpu=1", 0),
        ("plan -r gpu=64", exits.NO),
        ("alloc p -r gpu=64", exits.UNPLACEABLE),
        ("submit -r gpu=64 -- true", exits.UNPLACEABLE),
        ("queues delete default", exits.TRY_AGAIN),
        ("apps unregister function", exits.USAGE),
        ("forget nosuch", 0),
        ("run -r cpu=1,mem=64m -- sh -c exit\t7", 7),
        ("run -r cpu=1,mem=64m -t 1s -- sleep 60", 124),
        ("run -r cpu=1,mem=64m -- nosuchprogram", 127),
    ],
)
def test_answers_and_refusals_have_their_codes(http, capsys, line, code):
    assert main([word.replace("\t", " ") for word in line.split(" ")]) == code, capsys.readouterr().err


def test_the_table_in_the_documentation_has_every_code():
    rows = " ".join(re.findall(r"^\| ([0-9n+, ]+) \|", exits.__doc__, re.MULTILINE))
    own = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert own - {exits.KILLED_BY, exits.INTERRUPTED, exits.BROKEN_PIPE} <= {int(n) for n in re.findall(r"\d+", rows)}
