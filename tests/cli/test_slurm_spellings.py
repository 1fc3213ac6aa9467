"""What Slurm spells otherwise is read, or is refused with the option that is meant."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from functools import partial

import msgspec
import pytest

from ullage.cli import slurm, slurm_hints
from ullage.cli.main import build_parser, main, parser_of
from ullage.cli.program import Program
from ullage.cli.times import parse_begin, parse_past
from ullage.cli.verbs import VERBS
from ullage.model.duration import parse_duration
from ullage.model.error import InvalidRequest
from ullage.model.nearest import Missing
from ullage.model.quantity import parse_bytes


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("run -c 4 -- true", "-c 4 of Slurm is written --cpus 4 here"),
        ("run -c4 true", "-c 4 of Slurm is written --cpus 4 here"),
        ("submit --cpus-per-task=4 -- true", "--cpus-per-task=4 of Slurm is written --cpus 4 here"),
        ("run -d afterok:7 -- true", "-d afterok:7 of Slurm is written --after ok:7 here"),
        ("run --dependency=afternotok:7 -- true", "is written --after fail:7 here"),
        ("run -p gpu -- true", "-p gpu of Slurm is written -q gpu here"),
        ("run --gres=gpu:1 -- true", "--gres=gpu:1 of Slurm is written --gpus 1 here"),
        ("run --gres gpu:a100:2 -- true", "--gres gpu:a100:2 of Slurm is written -r gpu=2,gpu_model=A100 here"),
        ("run --gres=gpu:a100 -- true", "is written -r gpu=1,gpu_model=A100 here"),
        ("run --export=ALL -- true", "--export=ALL of Slurm is written --export-all here"),
        ("queue -t PD", "-t PD of Slurm is written --state PD here"),
        ("queue -p gpu", "-p gpu of Slurm is written -q gpu here"),
        ("queue -S id", "-S id of Slurm is written --sort id here"),
        ("history -S now-2days", "-S now-2days of Slurm is written --since now-2days here"),
        ("cancel -t PD", "-t PD of Slurm is written --state PD here"),
        ("run --ntasks=4 -- true", "--ntasks=4: --array 0-3 runs as many programs"),
        ("run -N 2 -- true", "-N 2: it has no counterpart: a program runs on one node"),
        ("run --requeue -- true", "--requeue: leave it out: work runs again after the loss of its executor"),
        ("run -d afterok:7:8,afterany:9 -- true", "written --after ok:7 --after ok:8 --after end:9 here"),
        ("run --gpus a100:2 -- true", "--gpus: 'a100:2' is not valid: write -r gpu=2,gpu_model=A100"),
        ("run -o out-%A_%a.log -- true", 'exec > "out-${ULLAGE_SESSION}_${ULLAGE_ARRAY_INDEX}.log" 2>&1'),
        ("run -e err.log -- true", "`ullage logs ID` shows what the program writes"),
        ("run --pty --gres=gpu:1 -p x -c 2 bash -c 3", "--gres=gpu:1 of Slurm is written --gpus 1 here; -p x of Slurm"),
        ("run --pty --gres=gpu:1 -p x -c 2 bash -c 3", "-q x here; -c 2 of Slurm is written --cpus 2 here; `"),
        ("queue --json", "--json of Slurm is written -o json here"),
        ("queue -S -p,i", "-S -p,i of Slurm is written --sort -priority,id here"),
        ("queue --states=all", "--states=all: leave it out: all are shown"),
        ("history -X -P --format=JobID%20,State", "-P of Slurm is written -o csv here; --format=JobID%20,State"),
        ("usage -A acc", "-A acc: --by user,queue has a line for each"),
        ("nodes -t idle", "-t idle of Slurm is written --state idle here"),
        ("plan --gpus 2", "--gpus 2 of Slurm is written -r gpu=2 here"),
    ],
)
def test_an_option_of_slurm_is_refused_with_the_one_that_is_meant(capsys, fake, line, meant):
    assert main(line.split()) == 2
    assert meant in capsys.readouterr().err
    assert not fake.sessions


@pytest.mark.parametrize("line", ["run -p 5 --grace", "run -y 3 -- true", "run --grase 5 -- prog -c 4", "queue --xyz"])
def test_other_mistakes_get_no_hint_of_slurm(capsys, line):
    assert main(line.split()) == 2
    assert "is written" not in capsys.readouterr().err


def test_a_job_file_with_an_option_of_slurm_gets_the_same_hint(capsys, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#ULLAGE --gres=gpu:2\ntrue\n")
    assert main(["run", str(script)]) == 2
    assert (
        "line 2: --gres=gpu:2 is not known: --gres=gpu:2 of Slurm is written --gpus 2 here" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("text", "known", "state"),
    [
        ("pd", ("pending", "running"), "pending"),
        ("cd", ("succeed", "failed"), "succeed"),
        ("cd", ("open", "closed"), "closed"),
        ("cd", ("free",), "cd"),
        ("pending", ("pending",), "pending"),
    ],
)
def test_states_of_slurm_are_those_of_the_listing(text, known, state):
    assert slurm.state_of(text, known) == state


def test_a_state_of_slurm_selects_sessions(capsys, fake):
    for name in ("a", "b"):
        main(["submit", "-n", name, "--", "true"])
    fake.sessions["a"].tasks[0].state = "pending"
    fake.sessions["b"].tasks[0].state = "running"
    for line, selected in (
        ("queue --state PD", "a"),
        ("queue --state R", "b"),
        ("cancel --state pd --yes --dry-run", "a"),
    ):
        capsys.readouterr()
        assert main([*line.split()]) == 0
        out = capsys.readouterr().out
        assert {name for name in ("a", "b") if f"{name}  " in out or f" {name}:" in out} == {selected}


NOW = datetime(2026, 11, 27, 14, 30).timestamp()  # noqa: DTZ001  # local time is meant


def local(*when: int) -> float:
    return datetime(*when).timestamp()  # noqa: DTZ001  # as above


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("now+2hours", NOW + 7200),
        ("now+1hour", NOW + 3600),
        ("now+90", NOW + 90),
        ("now+3days", NOW + 3 * 86400),
        ("tomorrow", local(2026, 11, 28)),
        ("noon", local(2026, 11, 28, 12)),
        ("teatime", local(2026, 11, 27, 16)),
        ("16:00", local(2026, 11, 27, 16)),
    ],
)
def test_begin_times_of_slurm_are_read(text, at):
    assert parse_begin(text, NOW) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("yesterday", local(2026, 11, 26)),
        ("today", local(2026, 11, 27)),
        ("now-2days", NOW - 2 * 86400),
        ("noon", local(2026, 11, 27, 12)),
        ("midnight", local(2026, 11, 27)),
        ("2d", NOW - 2 * 86400),
    ],
)
def test_past_times_of_slurm_are_read(text, at):
    assert parse_past(text, NOW, "--since") == at


@pytest.mark.parametrize("text", ["now+2fortnights", "now*2", "tomorow", "now+"])
def test_a_time_that_is_none_is_refused(text):
    for parse in (lambda: parse_begin(text, NOW), lambda: parse_past(text, NOW, "--since")):
        with pytest.raises(InvalidRequest, match="is not valid: write"):
            parse()


def test_durations_and_sizes_are_read_as_slurm_does():
    assert parse_duration("1-00:00:00") == timedelta(days=1).total_seconds()
    assert parse_bytes("4000M") == 4000 << 20


def test_a_number_of_memory_alone_is_refused_because_slurm_counts_in_mebibytes(capsys):
    assert main(["run", "--mem=4000", "--", "true"]) == 2
    assert "--mem: '4000' is not valid: a number alone counts bytes; write 4000m for MiB" in capsys.readouterr().err


def test_a_request_that_states_some_amounts_has_the_defaults_for_the_others(capsys, fake):
    assert main(["submit", "--gpus", "1", "--", "true"]) == 0
    (session,) = fake.sessions.values()
    assert (session.spec.resreq, session.spec.fill_resreq) == ("gpu=1", True)
    said = "asks for cpu=1,mem=1Gi,gpu=1: what is left out of gpu=1 has the defaults"
    assert said in capsys.readouterr().err
    assert main(["submit", "-r", "gpu=1", "--", "true"]) == 0
    *_, session = fake.sessions.values()
    assert (session.spec.resreq, session.spec.fill_resreq) == ("cpu=0,mem=0,gpu=1", False)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("sbatch job.sh", "sbatch of Slurm is `ullage submit` here"),
        ("sinfo", "sinfo of Slurm is `ullage nodes` here"),
        ("scontrol requeue 7", "scontrol requeue of Slurm is `ullage requeue` here"),
        ("scontrol", "scontrol show of Slurm is `ullage show session` here"),
        ("drain vm", "did you mean cordon?"),
    ],
)
def test_a_verb_of_slurm_is_answered_with_the_one_that_is_meant(capsys, line, meant):
    assert main(line.split()) == 2
    assert meant in capsys.readouterr().err


def _exact() -> list[tuple[str, str]]:
    """Return the words that hints offer in exchange for an option, by verb."""
    found = []
    for verb, spellings in slurm_hints._BY_VERB.items():
        for spelling in spellings:
            meant = spelling.meant("1" if not spelling.flag else "")
            if spelling.is_exact and meant.startswith("-") and not meant.startswith("-- "):
                found.append((verb, meant))
    return sorted(set(found))


@pytest.mark.parametrize(("verb", "words"), _exact())
def test_what_a_hint_offers_is_an_option_of_its_verb(verb, words):
    known = parser_of(build_parser(verb), [verb])._option_string_actions
    for word in words.split():
        assert not word.startswith("-") or word in known


def test_verbs_that_hints_offer_exist():
    offered = [*slurm_hints._VERBS.values(), *slurm_hints._ACTIONS.values()]
    assert {words.split()[1] for words in offered} | set(slurm_hints._HABITS.values()) <= set(VERBS)
    assert not set(slurm_hints._HABITS) & set(VERBS)


def test_a_script_of_slurm_is_shown_as_it_is_written_here(capsys, fake, tmp_path):
    script = tmp_path / "job.sh"
    lines = [
        "--job-name=train -c 4",
        "--mem=4000",
        "-t 90 # minutes",
        "--array=0-9%2",
        "-N 1",
        "--gres=gpu:2",
        "-t 1-0",
    ]
    head = "".join(f"#SBATCH {line}\n" for line in lines)
    script.write_text(f"#!/bin/sh\n{head}echo $SLURM_ARRAY_TASK_ID of ${{SLURM_JOB_ID}} $SLURM_FOO\n")
    assert main(["submit", str(script)]) == 0
    shown = capsys.readouterr().err
    for line in (
        "#ULLAGE -J train",
        "#ULLAGE --cpus 4",
        "#ULLAGE --mem 4000m",
        "#ULLAGE -t 90m",
        "#ULLAGE -t 1-0",
        "#ULLAGE --array 0-9%2",
        "#ULLAGE --gpus 2",
        "# -N 1: leave it out: a program runs on one node",
    ):
        assert f"\n  {line}\n" in shown
    assert "SLURM_ARRAY_TASK_ID is ULLAGE_ARRAY_INDEX here" in shown
    assert "SLURM_JOB_ID is ULLAGE_SESSION here" in shown
    assert "SLURM_FOO is not set here" in shown


def test_all_lines_of_a_script_that_are_wrong_are_shown_at_once(capsys, fake, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#ULLAGE --gres=gpu:2\n#ULLAGE -q a\n#ULLAGE --nodes=1 -c 2\ntrue\n")
    assert main(["submit", str(script)]) == 2
    shown = capsys.readouterr().err
    assert "line 2: --gres=gpu:2 is not known" in shown
    assert "line 4: --nodes=1 is not known: --nodes=1: leave it out: a program runs on one node; -c 2 of Slurm" in shown
    assert not fake.sessions


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--wrap=echo hi"], "--wrap=echo hi of Slurm is written -- sh -c 'echo hi' here"),
        (["--grave now"], "the options are before it; a program of this name goes after --"),
        (["echo hi && echo ho"], "a command line is for a shell: -- sh -c 'echo hi && echo ho'"),
        (["--", "echo hi"], "a command line is for a shell: -- sh -c 'echo hi'"),
    ],
)
def test_what_is_no_program_is_refused_before_it_waits(capsys, fake, words, message):
    assert main(["submit", *words]) == 2
    assert message in capsys.readouterr().err
    assert not fake.sessions


def test_a_number_as_a_name_is_warned_of_because_slurm_counts_tasks(capsys, fake):
    assert main(["submit", "-n", "4", "--", "true"]) == 0
    shown = capsys.readouterr().err
    assert "warning: -n 4 names the session; --array 0-3 runs the program 4 times" in shown
    assert list(fake.sessions) == ["4"]


def test_a_name_of_a_job_can_be_given_again(capsys, fake):
    for _ in range(2):
        assert main(["submit", "-J", "night", "--", "true"]) == 0
    assert len(fake.sessions) == 2
    assert all(re.fullmatch("night-[0-9a-f]{8}", name) for name in fake.sessions)
    assert main(["submit", "-J", "night", "-n", "x", "--", "true"]) == 2
    assert "-n x is the whole id; leave one out" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_script_on_the_standard_input_is_stored_with_its_options(capsys, fake, monkeypatch, tmp_path, words):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#ULLAGE -n piped -q q\necho $1\n")
    with script.open() as given:
        monkeypatch.setattr("os.fstat", partial(_instead_of_input, os.fstat, given.fileno()))
        monkeypatch.setattr("os.lseek", partial(_instead_of_input, os.lseek, given.fileno()))
        monkeypatch.setattr("os.read", partial(_instead_of_input, os.read, given.fileno()))
        assert main(["submit", *words, *(["word"] if words else [])]) == 0
    (session,) = fake.sessions.values()
    assert (session.id, session.spec.queue) == ("piped", "q")
    program = msgspec.msgpack.decode(session.tasks[0].input, type=Program)
    assert program.argv == ["/bin/sh", "/dev/stdin", *(["word"] if words else [])]
    assert program.stdin == script.read_bytes()


def _instead_of_input(call, own, descriptor, *rest):
    return call(own if descriptor == 0 else descriptor, *rest)


@pytest.mark.parametrize(
    ("fields", "titles"),
    [
        ("jobid,st,user", "ID STATE OWNER"),
        ("JobID%20,Partition", "ID QUEUE"),
        ("name,timeused,timeleft", "ID TIME TIME-LEFT"),
    ],
)
def test_fields_of_slurm_are_those_of_the_listing(capsys, fake, fields, titles):
    assert main(["queue", "-o", fields]) == 0
    assert capsys.readouterr().out.split() == titles.split()


def test_all_states_select_everything(capsys, fake):
    main(["submit", "-n", "a", "--", "true"])
    assert main(["queue", "--state", "all", "-o", "name"]) == 0
    assert capsys.readouterr().out.split()[-1] == "a"


def test_a_task_of_an_array_as_slurm_names_it_is_answered_with_its_name():
    assert str(Missing("session", "sweep_3", ["sweep"])).endswith("task 3 of the array sweep is sweep:3")
    assert str(Missing("session", "sweep_[7]", ["sweep"])).endswith("sweep:7")


@pytest.mark.parametrize("kind", ["job", "sessions", "jobs"])
def test_a_kind_of_object_has_its_names_of_elsewhere(capsys, fake, kind):
    main(["submit", "-n", "a", "--", "true"])
    assert main(["show", kind, "a"]) == 0
    assert "id" in capsys.readouterr().out
