"""Job files: TOML files, and scripts with `#ULLAGE` lines."""

from pathlib import Path

import pytest

from ullage.cli.job import JobRequest, add_job, job_of
from ullage.cli.main import Parser
from ullage.model.error import InvalidRequest
from ullage.model.request import ResourceRequirement


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(*words: str) -> JobRequest:
    parser = Parser()
    add_job(parser)
    return job_of(parser.parse_args(words))


def write(name: str, text: str, mode: int = 0o644) -> str:
    Path(name).write_text(text)
    Path(name).chmod(mode)
    return name


SCRIPT = """#!/bin/sh
# A comment of its author.
#ULLAGE --gpus 1 --cpus 0.5 --mem 4g
#ULLAGE -q research --array 0-3%2   # a comment
#ULLAGE -e NAME="two words" --after ok:prep

echo hello
"""


def test_a_script_has_the_options_of_its_lines(here: Path) -> None:
    found = job(write("job.sh", SCRIPT, 0o755), "argument")
    assert found.argv == [f"{here}/job.sh", "argument"]
    assert (found.options["resreq"], found.amounts) == (None, "cpu=0.5,mem=4g,gpu=1")
    assert (found.options["queue"], str(found.array), found.options["max_instances"]) == ("research", "0-3", 2)
    assert (found.environment["NAME"], found.options["after"]) == ("two words", ["ok:prep"])


def test_the_command_line_wins_over_the_file_and_what_may_be_repeated_adds_up() -> None:
    script = write("job.sh", SCRIPT, 0o755)
    found = job("-q", "default", "--gpus", "2", "-e", "NAME=mine", "--after", "end:b", "--array", "7", script)
    assert found.amounts == "cpu=0.5,mem=4g,gpu=2"
    assert (found.options["queue"], str(found.array), found.environment["NAME"]) == ("default", "7", "mine")
    assert found.options["after"] == ["ok:prep", "end:b"]
    replaced = job("-r", "cpu=1", script)
    assert (replaced.options["resreq"], replaced.amounts) == (ResourceRequirement.from_string("cpu=1"), None)


def test_a_script_that_is_not_executable_runs_with_the_program_of_its_first_line(here: Path) -> None:
    assert job(write("job.py", "#!/usr/bin/env python3\n#ULLAGE -q q\n")).argv == [
        "/usr/bin/env",
        "python3",
        f"{here}/job.py",
    ]
    with pytest.raises(InvalidRequest, match=r"make it executable, or begin it with a line such as #!/bin/bash"):
        job(write("job.txt", "#ULLAGE -q q\n"))


def test_what_has_no_effect_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    job(write("late.sh", "#!/bin/sh\n#ULLAGE -q q\necho\n#ULLAGE -p 3\n", 0o755))
    assert "warning: late.sh: line 4: #ULLAGE has no effect after the first command" in capsys.readouterr().err
    job(write("near.sh", "#!/bin/sh\n# ULLAGE -p 3\n#ullage -q q\n# ullage is a scheduler\n#ULLAGE -q q\n", 0o755))
    assert [line[:35] for line in capsys.readouterr().err.splitlines()] == [
        "warning: near.sh: line 2 is not rea",
        "warning: near.sh: line 3 is not rea",
    ]
    job(write("slurm.sh", "#!/bin/sh\n#SBATCH --array=1-3\necho\n", 0o755))
    assert (
        "warning: slurm.sh: its #SBATCH lines have no effect; here they are\n  #ULLAGE --array 1-3\n"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--gpu 1", "job.sh: line 2: --gpu is not known: did you mean --gpus?"),
        ("-p high", "job.sh: line 2: argument -p/--priority: invalid int value: 'high'"),
        ("-q", "job.sh: line 2: argument -q/--queue: expected one argument"),
        ("echo", "job.sh: line 2: echo is not known: only options are possible here"),
        ('-n "open', "job.sh: line 2: No closing quotation"),
    ],
)
def test_a_wrong_line_of_a_script_is_refused_by_its_number(line: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        job(write("job.sh", f"#!/bin/sh\n#ULLAGE {line}\n", 0o755))
    assert refusal.value.message.startswith(text)


def test_a_program_after_two_dashes_is_no_job_file() -> None:
    script = write("job.sh", SCRIPT, 0o755)
    found = job("--", f"./{script}")
    assert (found.argv, found.array) == (["./job.sh"], None)


def test_a_toml_file_has_the_long_options_as_keys() -> None:
    found = job(
        write(
            "job.toml",
            """program = ["python", "train.py"]
gpus = 0.5
cpus = 2
queue = "research"
priority = 5
time_limit = "2h"
array = "0-9%3"
after = ["ok:a", "end:b"]
wait = true
env = { SEED = 7 }
""",
        ),
        "--fast",
    )
    assert found.argv == ["python", "train.py", "--fast"]
    assert found.amounts == "cpu=2,gpu=0.5"
    assert (found.options["priority"], found.options["task_timeout_s"], found.wait) == (5, 7200.0, True)
    assert (str(found.array), found.options["max_instances"], found.environment["SEED"]) == ("0-9", 3, "7")
    assert found.options["after"] == ["ok:a", "end:b"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("gpu = 1", "job.toml: line 2: gpu is not known: did you mean gpus?"),
        ('wait = "yes"', "job.toml: line 2: wait: write true or false"),
        ("queue = true", "job.toml: line 2: queue: write a text"),
        ("queue = ['a', 'b']", "job.toml: line 2: queue: write a text"),
        ('priority = "high"', "job.toml: line 2: argument -p/--priority: invalid int value"),
        ("queue", "job.toml: it is not valid TOML"),
    ],
)
def test_a_wrong_key_of_a_toml_file_is_refused_by_its_line(line: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        job(write("job.toml", f'program = "true"\n{line}\n'))
    assert refusal.value.message.startswith(text)


def test_a_toml_file_without_a_program_or_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r'job.toml: write program = \["python", "train.py"\]'):
        job(write("job.toml", "gpus = 1\n"))
    with pytest.raises(InvalidRequest, match="the job file cannot be read: No such file"):
        job("other.toml")


def test_a_request_that_is_stated_twice_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"--gpus: '1' is not valid: -r states the request too; leave one out"):
        job("-r", "cpu=2", "--gpus", "1", "--", "true")
    file = write("job.toml", 'program = "true"\nresreq = "cpu=1"\n')
    with pytest.raises(InvalidRequest, match=r"--mem: '4g' is not valid: job.toml states resreq"):
        job("--mem", "4g", file)
