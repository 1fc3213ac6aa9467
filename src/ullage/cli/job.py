"""The options of `ullage run` and `ullage submit`, as one job."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import time
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from ullage.cli import program
from ullage.cli.exits import caution
from ullage.cli.job_file import SCRIPT_FROM_INPUT, OptionParser, with_job_file
from ullage.cli.standard_input import StandardInput, read_input
from ullage.cli.times import begin_at
from ullage.cli.variables import choose_environment
from ullage.client.spec import SessionOptions, working_directory
from ullage.model.array import Array, parse_request
from ullage.model.dependency import parse_dependencies
from ullage.model.duration import FORMS, parse_duration
from ullage.model.early_signal import USUAL_BEFORE_S, parse_signal
from ullage.model.error import invalid
from ullage.model.notify_on import NotifyOn
from ullage.model.queue_name import DEFAULT_QUEUE

if TYPE_CHECKING:
    from ullage.model.request import ResourceRequirement

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
"""The beginning of a request or of a variable of the environment."""

_RESREQ = (
    "its request, such as cpu=2,mem=4g,gpu=1 (cpu=0.5 and cpu=500m are half a core); parts of cards: "
    "gpu=0.5, or vram=20g, tflops=60, percent=25 of each; "
    "choice of cards: gpu_model=A100|H100, gpu_model_like, gpu_vendor, gpu_index=0|1, gpu_uuid, pool; isolation of "
    "parts: isolation=hard; alignment of CPUs and cards: numa=best-effort, restricted or "
    "single-numa-node; alignment with other devices: gpu~nic=required, switch or preferred; "
    "links between its cards: links=best or island"
)


_AMOUNTS = {"cpu": "cpus", "mem": "mem", "gpu": "gpus"}
"""Keys of a request, and the options that state them."""

_UNIQUE_BYTES = 4
"""Bytes after a name that make it unique, as the server adds to the name of an application."""

_LEAST_MEMORY = 1 << 20
"""Bytes that nobody means: Slurm counts in MiB."""


class JobRequest(NamedTuple):
    """A program, its session, and how it is started. `array` has the indices of its tasks, if there are several.

    `amounts` are what `--gpus`, `--cpus` and `--mem` state, such as `gpu=1`, in place of the option `resreq`.
    """

    argv: list[str]
    environment: dict[str, str]
    standard_input: StandardInput | None
    name: str | None
    options: SessionOptions
    array: Array | None
    wait: bool
    notify_command: str | None = None
    amounts: str | None = None
    tty: bool = False

    @property
    def program(self) -> program.Program:
        """What the executor runs. An input that was not read to its end is streamed."""
        given = self.standard_input
        stored = given.data if given is not None and given.is_all else None
        return program.Program(
            argv=self.argv,
            cwd=working_directory(),
            env=self.environment,
            stdin=stored,
            tty=self.tty,
            streamed=given is not None and not given.is_all,
        )


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job, and its program."""
    _add_options(parser)
    parser.add_argument(
        "argv",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program and its arguments; without --, a job file (.toml) or a script with #ULLAGE lines",
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--resreq", metavar="LIST", help=_RESREQ)
    rest = "what is left out of the three has the default of the queue, else of the settings"
    parser.add_argument("--gpus", metavar="N", help="instead of -r: its cards, 2 or 0.5")
    parser.add_argument("--cpus", metavar="N", help="instead of -r: its cores, 4 or 0.5")
    parser.add_argument("--mem", metavar="SIZE", help=f"instead of -r: its memory, 4g or 512m; {rest}")
    parser.add_argument("-q", "--queue", help=f"its queue (default: {DEFAULT_QUEUE})")
    parser.add_argument("-p", "--priority", type=int, metavar="N", help="higher is scheduled first within the queue")
    parser.add_argument("-t", "--time-limit", "--time", metavar="TIME", help=f"end it after {FORMS}")
    parser.add_argument(
        "--grace",
        metavar="TIME",
        help=f"time between SIGTERM and SIGKILL when it is evicted, cancelled or too late: {FORMS}",
    )
    parser.add_argument(
        "--signal",
        metavar="NAME[@TIME]",
        help="send its program a signal, such as USR1@60, so long before its time limit or an eviction ends it "
        f"(default: {USUAL_BEFORE_S:g} s)",
    )
    parser.add_argument("-n", "--name", help="id of its session (default: chosen by the server)")
    parser.add_argument(
        "-J", "--job-name", metavar="NAME", help="begin the id with NAME, so that many sessions can have it"
    )
    parser.add_argument(
        "-a",
        "--array",
        metavar="INDICES",
        help="run it once for each index of 0-99, 1,3,7-9 or 0-90:10 (a step), which it finds in ULLAGE_ARRAY_INDEX; "
        "0-99%%10 runs at most 10 at once",
    )
    parser.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="KIND:ID",
        help="run it after another session: ok:ID after its success, end:ID its end, fail:ID its failure, start:ID "
        "its start; may be repeated",
    )
    parser.add_argument(
        "--begin",
        metavar="TIME",
        help="not before 2026-12-01T08:00, the next 08:00, or +2h (two hours from now); never holds it until "
        "`ullage update ID --begin now`",
    )
    parser.add_argument("--notify", metavar="URL", help="POST a notice (JSON) to a URL when its session has ended")
    parser.add_argument(
        "--notify-command", metavar="TEXT", help="run this shell command, as a small session, when it has ended"
    )
    parser.add_argument(
        "--notify-on", choices=[str(each) for each in NotifyOn], help="which ends are notified of (default: end)"
    )
    parser.add_argument(
        "-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="pass a variable on; may be repeated"
    )
    parser.add_argument("--export-all", action="store_true", help="pass the whole environment on")
    parser.add_argument(
        "--stdin",
        action="store_true",
        help="send the standard input; of more than 16Mi `run` streams the rest",
    )
    parser.add_argument("--wait", action="store_true", help="wait also if no node, or no limit, allows it today")


def job_of(arguments: argparse.Namespace) -> JobRequest:
    """Return the job of a command line. It reads the standard input if that is sent.

    Raises:
        InvalidRequest: an option is malformed, or no program is named.

    """
    parser = OptionParser()
    _add_options(parser)
    arguments = with_job_file(arguments, parser)
    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    word = next(iter(argv), "")
    if not word:
        raise invalid(
            "program", "", "write it last, as in `ullage run -- python train.py`; - reads a script from stdin"
        )
    if arguments.argv[:1] != ["--"]:
        _refuse_option(word)
    _refuse_assignment(word)
    _refuse_command_line(word)
    array, at_once = (None, 1) if arguments.array is None else parse_request(arguments.array)
    amounts = _amounts(arguments)
    options: SessionOptions = {
        "resreq": None if arguments.resreq is None else _request_of(arguments.resreq),
        "queue": DEFAULT_QUEUE if arguments.queue is None else arguments.queue,
        "priority": arguments.priority,
        "task_timeout_s": None if arguments.time_limit is None else parse_duration(arguments.time_limit),
        "grace_s": None if arguments.grace is None else parse_duration(arguments.grace, "grace"),
        "signal": None if arguments.signal is None else _signal_of(arguments.signal),
        "max_instances": at_once,
        "after": [str(each) for each in parse_dependencies(arguments.after)],
        "notify": arguments.notify,
        "notify_on": _notify_on(arguments),
        "begin_at": None if arguments.begin is None else begin_at(arguments.begin, time.time()),
    }
    environment = choose_environment(os.environ, arguments.env, everything=arguments.export_all)
    given = _input_of(arguments)
    return JobRequest(
        argv,
        environment,
        given,
        name=_name_of(arguments),
        options=options,
        array=array,
        wait=arguments.wait,
        notify_command=arguments.notify_command,
        amounts=amounts,
        tty=getattr(arguments, "pty", False),
    )


def _input_of(arguments: argparse.Namespace) -> StandardInput | None:
    """Return the standard input of the program: the script that came there, else what `--stdin` sends."""
    if arguments.script is None:
        return read_input(send=arguments.stdin)
    if arguments.stdin:
        raise invalid("--stdin", "", "the script is the standard input; leave it out, or name the file of the script")
    return StandardInput(arguments.script, is_all=True)


def _name_of(arguments: argparse.Namespace) -> str | None:
    """Return the id of the session; None if the server chooses it."""
    if arguments.job_name is None:
        if arguments.name is not None and arguments.name.isdecimal():
            last = int(arguments.name) - 1
            caution(
                [f"-n {arguments.name} names the session; --array 0-{last} runs the program {arguments.name} times"]
            )
        return cast("str | None", arguments.name)
    if arguments.name is not None:
        raise invalid("--job-name", arguments.job_name, f"-n {arguments.name} is the whole id; leave one out")
    if not arguments.job_name:
        raise invalid("--job-name", "", "write the beginning of the id, or leave it out")
    return f"{arguments.job_name}-{os.urandom(_UNIQUE_BYTES).hex()}"


def _request_of(text: str) -> ResourceRequirement:
    from ullage.model.request import ResourceRequirement  # noqa: PLC0415  # many jobs state none

    return ResourceRequirement.from_string(text)


def _amounts(arguments: argparse.Namespace) -> str | None:
    """Return what `--gpus`, `--cpus` and `--mem` state as a part of a request.

    Raises:
        InvalidRequest: it is malformed, or `-r` states a request too.

    """
    stated = {key: getattr(arguments, option) for key, option in _AMOUNTS.items()}
    given = {key: value for key, value in stated.items() if value is not None}
    if ":" in (model := given.get("gpu", "")):
        from ullage.cli.slurm_hints import cards  # noqa: PLC0415  # only mistakes need it

        raise invalid("--gpus", model, f"write {cards(f'gpu:{model}')}")
    if arguments.resreq is not None:
        for key, value in given.items():
            fix = f"-r states the request too; leave one out, or write -r {arguments.resreq},{key}={value}"
            raise invalid(f"--{_AMOUNTS[key]}", value, fix)
    memory = given.get("mem", "")
    if memory.isdecimal() and int(memory) < _LEAST_MEMORY:
        raise invalid("--mem", memory, f"a number alone counts bytes; write {memory}m for MiB, {memory}g for GiB")
    text = ",".join(f"{key}={value}" for key, value in given.items())
    if text:
        from ullage.model.request import parse_amounts  # noqa: PLC0415  # many jobs state none

        parse_amounts(text)
    return text or None


def _notify_on(arguments: argparse.Namespace) -> Literal["end", "fail"]:
    if arguments.notify_on is not None and arguments.notify is None and arguments.notify_command is None:
        raise invalid("--notify-on", arguments.notify_on, "give --notify or --notify-command too")
    return "fail" if arguments.notify_on == NotifyOn.FAIL else "end"


def _signal_of(text: str) -> str:
    parse_signal(text, "--signal")
    return text


def _refuse_option(word: str) -> None:
    """Refuse an option of Slurm with a space in its value, which argparse takes for the program.

    Raises:
        InvalidRequest: the word begins with a minus.

    """
    if not word.startswith("-") or word == SCRIPT_FROM_INPUT:
        return
    from ullage.cli.slurm_hints import hint, meant_by  # noqa: PLC0415  # only mistakes need it

    meant = hint(meant_by("run", [word], word.__eq__))
    raise invalid("program", word, f"{meant}the options are before it; a program of this name goes after --")


def _refuse_command_line(word: str) -> None:
    """Refuse a line of a shell instead of a program.

    Raises:
        InvalidRequest: the word has spaces, and no such program exists.

    """
    if any(map(str.isspace, word)) and shutil.which(word) is None:
        raise invalid("program", word, f"a command line is for a shell: -- sh -c {shlex.quote(word)}")


def _refuse_assignment(word: str) -> None:
    """Refuse a request or a variable instead of a program.

    Raises:
        InvalidRequest: the word looks like one, and no such program exists.

    """
    if _ASSIGNMENT.match(word) and shutil.which(word) is None:
        fix = f"a request goes after -r, as in -r {word}, a variable after -e, and the program last, after --"
        raise invalid("program", word, fix)
