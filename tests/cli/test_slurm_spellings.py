"""What Slurm spells otherwise is read, or is refused with the option that is meant."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from ullage.cli import slurm
from ullage.cli.main import main
from ullage.cli.times import parse_begin, parse_past
from ullage.model.duration import parse_duration
from ullage.model.error import InvalidRequest
from ullage.model.quantity import parse_bytes


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("run -c 4 -- true", "-c 4 of Slurm is written --cpus 4 here"),
        ("run -c4 true", "-c 4 of Slurm is written --cpus 4 here"),
        ("submit --cpus-per-task=4 -- true", "--cpus-per-task=4 of Slurm is written --cpus 4 here"),
        ("run -d afterok:7 -- true", "-d afterok:7 of Slurm is written --after ok:7 here"),
        ("run --dependency=afternotok:7 -- true", "is written --after fail:7 here"),
        ("run -J train -- true", "-J train of Slurm is written -n train here"),
        ("run -p gpu -- true", "-p gpu of Slurm is written -q gpu here"),
        ("run --gres=gpu:1 -- true", "--gres=gpu:1 of Slurm is written --gpus 1 here"),
        ("run --gres gpu:a100:2 -- true", "--gres gpu:a100:2 of Slurm is written -r gpu=2,gpu_model=A100 here"),
        ("run --gres=gpu:a100 -- true", "is written -r gpu=1,gpu_model=A100 here"),
        ("run --export=ALL -- true", "--export=ALL of Slurm is written -e NAME=VALUE, or --export-all here"),
        ("queue -t PD", "-t PD of Slurm is written --state PD here"),
        ("queue -p gpu", "-p gpu of Slurm is written -q gpu here"),
        ("queue -S id", "-S id of Slurm is written --sort id here"),
        ("history -S now-2days", "-S now-2days of Slurm is written --since now-2days here"),
        ("cancel -t PD", "-t PD of Slurm is written --state PD here"),
    ],
)
def test_an_option_of_slurm_is_refused_with_the_one_that_is_meant(capsys, fake, line, meant):
    assert main(line.split()) == 2
    assert meant in capsys.readouterr().err
    assert not fake.sessions


@pytest.mark.parametrize("line", ["run -p 5 --grace", "run -x 3 -- true", "run --grase 5 -- prog -c 4", "queue --xyz"])
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
