"""Command lines of Slurm: what is meant here by each word that is refused.

They are not read, because some letters have another meaning here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ullage.model.dependency import OF_SLURM

# --- verbs ---

_VERBS = {
    "sbatch": "ullage submit",
    "srun": "ullage run",
    "salloc": "ullage run --pty -- bash",
    "squeue": "ullage queue",
    "sacct": "ullage history",
    "sstat": "ullage tasks",
    "seff": "ullage history -o wide",
    "sinfo": "ullage nodes",
    "scancel": "ullage cancel",
    "sreport": "ullage usage",
    "sshare": "ullage usage --fair-share",
    "sprio": "ullage why",
    "sattach": "ullage exec -t",
    "sdiag": "ullage top",
    "sview": "ullage page",
    "sacctmgr": "ullage queues",
    "strigger": "ullage submit --notify-command",
}
_ACTIONS = {
    "show": "ullage show session",
    "hold": "ullage update ID --begin never",
    "uhold": "ullage update ID --begin never",
    "release": "ullage update ID --begin now",
    "top": "ullage update ID --priority N",
    "update": "ullage update",
    "requeue": "ullage requeue",
    "requeuehold": "ullage requeue",
    "ping": "ullage doctor",
}
"""Actions of `scontrol`."""

_HABITS = {
    "drain": "cordon",
    "resume": "uncordon",
    "undrain": "uncordon",
    "partitions": "queues",
    "partition": "queues",
    "jobs": "queue",
    "ps": "queue",
    "ls": "sessions",
    "list": "sessions",
    "status": "top",
    "kill": "cancel",
    "hold": "update",
    "suspend": "update",
    "rm": "delete",
    "log": "logs",
    "tail": "logs",
    "start": "up",
    "stop": "down",
    "mpirun": "run",
    "mpiexec": "run",
    "info": "nodes",
}
"""Words for verbs that are common elsewhere."""


def verb_of(words: Sequence[str]) -> str:
    """Return the hint for a verb of Slurm, or one that is common elsewhere; nothing for others."""
    word, *rest = words
    if word == "scontrol":
        action = next(iter(rest), "show")
        return f"scontrol {action} of Slurm is `{_ACTIONS.get(action, 'ullage show session')}` here; "
    if word in _VERBS:
        return f"{word} of Slurm is `{_VERBS[word]}` here; "
    return f"did you mean {_HABITS[word]}? " if word in _HABITS else ""


# --- options ---


class Spelling(NamedTuple):
    """Options of Slurm, and a function from their value to what is meant here.

    That is words of a command line if it `is_exact`, else what a person has to know. A `flag` has no value.
    """

    options: tuple[str, ...]
    meant: Callable[[str], str]
    is_exact: bool = True
    flag: bool = False


def _as(words: str, value: str) -> str:
    return words.format(value=value or "VALUE")


def _says(options: str, *, words: str, flag: bool = False) -> Spelling:
    """Return options that are written in other words here."""
    return Spelling(tuple(options.split()), partial(_as, words), flag=flag)


def _tells(options: str, *, text: str, flag: bool = False) -> Spelling:
    """Return options for which there is no word, and what serves instead."""
    return Spelling(tuple(options.split()), partial(_as, text), is_exact=False, flag=flag)


def _useless(options: str, *, text: str, flag: bool = False) -> Spelling:
    return _tells(options, text=f"leave it out: {text}", flag=flag)


def _dependency(value: str) -> str:
    """Return `--after ok:7 --after ok:8` for `afterok:7:8`."""
    found = []
    for part in re.split(r"[,?]", value or "afterok:ID"):
        kind, *jobs = part.split(":")
        found += [f"--after {OF_SLURM.get(kind, 'end')}:{job.partition('+')[0]}" for job in jobs or ["ID"]]
    return " ".join(found)


def cards(value: str) -> str:
    """Return `--gpus 2` for `gpu:2`, and a request for `gpu:a100:2`."""
    kind, *rest = value.removeprefix("gres/").replace("=", ":").split(":")
    if kind != "gpu":
        return "-r gpu=0.5"
    *models, count = rest or ["1"]
    if not count.isdecimal():
        models, count = [count], "1"
    return f"-r gpu={count},gpu_model={models[0].upper()}" if models else f"--gpus {count}"


def _cards_of_nodes(value: str) -> str:
    return cards(f"gpu:{value or 1}")


_PLACES = {
    "%j": "${ULLAGE_SESSION}",
    "%A": "${ULLAGE_SESSION}",
    "%x": "${ULLAGE_SESSION}",
    "%J": "${ULLAGE_SESSION}",
    "%a": "${ULLAGE_ARRAY_INDEX}",
    "%u": "${USER}",
    "%N": "${ULLAGE_NODE}",
}
"""Patterns in names of files, and the variables of a program that have their values."""


def _output(value: str) -> str:
    """Return how to have the output in a file, whose name may have patterns such as `%A_%a`."""
    name = re.sub(r"%[0-9]*([a-zA-Z])", lambda found: _PLACES.get(f"%{found.group(1)}", found.group()), value or "FILE")
    return f'`ullage logs ID` shows it; for a file write exec > "{name}" 2>&1 in the script'


def _export(value: str) -> str:
    """Return the variables to pass on."""
    words = [word for word in value.split(",") if word]
    named = [f"-e {shlex.quote(word)}" for word in words if word not in ("ALL", "NONE", "NIL")]
    return " ".join(["--export-all"] * ("ALL" in words) + named) or "-e NAME=VALUE"


def _tasks(value: str) -> str:
    if value == "1":
        return "leave it out: a session runs one program, or one for each index of --array"
    last = f"{int(value) - 1}" if value.isdecimal() and int(value) else "N-1"
    return (
        f"--array 0-{last} runs as many programs, each with its own request; ranks that talk to each other are of one "
        f"program, such as --cpus {value or 'N'} -- mpirun -n {value or 'N'} PROGRAM"
    )


def _nodes(value: str) -> str:
    if value in ("1", "1-1"):
        return "leave it out: a program runs on one node"
    return "it has no counterpart: a program runs on one node"


def _minutes(value: str) -> str:
    """Return a time limit, in which a number alone counts minutes."""
    if not value or value.lower() in ("infinite", "unlimited", "0"):
        return "leave it out: without -t there is no limit"
    return f"-t {value}m" if value.isdecimal() else f"-t {value}"


def _mebibytes(value: str) -> str:
    return f"--mem {value}m" if value.isdecimal() else f"--mem {value or 'SIZE'}"


def _fields(value: str) -> str:
    """Return columns for `%.18i %.9P` or `JobID%20,State`."""
    letters = re.findall(r"%[.0-9]*([a-zA-Z])", value)
    if letters and "," not in value:
        return f"-o {','.join(_LETTERS[each] for each in letters if each in _LETTERS) or 'FIELD,FIELD'}"
    return f"-o {re.sub(r'[%:][.0-9]*', '', value) or 'FIELD,FIELD'}"


_LETTERS = {
    "i": "id",
    "j": "id",
    "A": "id",
    "F": "id",
    "P": "queue",
    "a": "queue",
    "u": "owner",
    "t": "state",
    "T": "state",
    "p": "priority",
    "Q": "priority",
    "M": "age",
    "V": "created",
    "r": "reason",
    "R": "reason",
}
"""Letters of `squeue -o`, and fields of sessions."""


def _order(value: str) -> str:
    """Return the order of `-S -p,i`."""
    fields = ((each[:1] if each[:1] in "+-" else "", each.lstrip("+-")) for each in value.split(",") if each)
    found = ",".join(f"{sign.replace('+', '')}{_LETTERS.get(name, name)}" for sign, name in fields)
    return f"--sort {found or 'FIELD'}"


def _states(value: str) -> str:
    return "leave it out: all are shown" if value.lower() == "all" else f"--state {value or 'STATE'}"


_QUEUE = _says("-p --partition -A --account", words="-q {value}")
_STATES = Spelling(("-t", "--states"), _states)
_ONE = _says("-j --jobs --job -n --name --jobname", words="ullage show session {value}")
_FORMAT = Spelling(("-O", "--format", "--Format"), _fields)
_WITHOUT_TITLES = _says("--noheader", words="--no-header", flag=True)
_JSON = _says("--json", words="-o json", flag=True)
_YAML = _says("--yaml", words="-o yaml", flag=True)
_SHOWN = (_FORMAT, _WITHOUT_TITLES, _JSON, _YAML)
_LONG = _says("-l --long", words="-o wide", flag=True)
_NO_VERBOSE = _useless("-v --verbose -Q --quiet", text="errors and warnings are always shown", flag=True)
_ELSEWHERE = _tells("-M --clusters --cluster", text="ULLAGE_ENDPOINT names another server")

_OF_JOBS = (
    _says("-c --cpus-per-task", words="--cpus {value}"),
    Spelling(("-d", "--dependency"), _dependency),
    Spelling(("--gres", "--tres-per-task", "--tres-per-job"), cards),
    Spelling(("-G", "--gpus-per-node", "--gpus-per-task"), _cards_of_nodes),
    _tells("--mem-per-cpu --mem-per-gpu", text="--mem SIZE, for all of it"),
    _tells("--cpus-per-gpu --cores-per-socket --threads-per-core", text="--cpus N, for all of it"),
    Spelling(("-o", "--output", "--error"), _output, is_exact=False),
    _tells("-D --chdir --workdir", text="cd {value} before the start: the directory is yours"),
    Spelling(("--export",), _export),
    _tells("--mail-type --mail-user", text="--notify URL, or --notify-command with a command that sends mail"),
    _tells("--qos --nice", text="-p N is the priority within the queue"),
    _says("--wrap", words="-- sh -c '{value}'"),
    _tells("-w --nodelist -x --exclude", text="a server has one node; -r gpu=1,gpu_index=N chooses a card"),
    _tells("-C --constraint", text="-r gpu=1,gpu_model=MODEL chooses cards"),
    _QUEUE,
    Spelling(("--ntasks", "--ntasks-per-node", "--ntasks-per-gpu"), _tasks, is_exact=False),
    Spelling(("-N", "--nodes"), _nodes, is_exact=False),
    _tells("--exclusive", text="--cpus and --mem of all that the node has, as `ullage nodes` shows", flag=True),
    _tells("-s --oversubscribe", text="-r gpu=0.5 is half of a card, cpu=0.5 half of a core", flag=True),
    _tells("--jobid", text="`ullage exec {value} -- PROGRAM` runs a program beside a running task"),
    _says("-H --hold", words="--begin never", flag=True),
    _tells("--overlap", text="`ullage exec ID -- PROGRAM` runs a program beside a running task", flag=True),
    _tells("--mpi -m --distribution", text="there is no launcher: -- mpirun -n N PROGRAM starts ranks itself"),
    _tells("--multi-prog", text="--array has a program for each index; it finds its own in ULLAGE_ARRAY_INDEX"),
    _tells("--cpu-bind --mem-bind --gpu-bind --hint", text="-r ...,numa=single-numa-node binds CPUs and cards"),
    _useless("--requeue", text="work runs again after the loss of its executor", flag=True),
    _tells("--no-requeue", text="it has no counterpart: work that was lost runs again", flag=True),
    _tells("--test-only", text="`ullage plan -r LIST` says whether and where it would fit", flag=True),
    _tells("-I --immediate", text="`ullage plan -r LIST` says whether it would start now"),
    _useless("--parsable", text="submit prints the id alone", flag=True),
    _NO_VERBOSE,
    _useless("-l --label", text="`ullage logs -f ID` shows the task before each line", flag=True),
    _useless("-u --unbuffered", text="output is shown as it arrives", flag=True),
    _useless("--kill-on-invalid-dep", text="it is always cancelled"),
    _useless("-K --kill-on-bad-exit --get-user-env --propagate --profile", text="it has no effect here"),
    _useless("--open-mode", text="logs of a task that runs again are appended"),
    _tells("-i --input", text="--stdin, with < {value}"),
    _tells("-W", text="`ullage run` waits for the end", flag=True),
    _tells("--time-min --deadline --tmp -L --licenses --reservation", text="it has no counterpart"),
    _tells("--comment --wckey --uid --gid --x11 --bcast --container", text="it has no counterpart"),
    _ELSEWHERE,
)
_OF_SESSIONS = (
    Spelling(("-S",), _order),
    _says("-i --iterate", words="--watch --every {value}s"),
    _LONG,
    _ONE,
    _STATES,
    _QUEUE,
    *_SHOWN,
    _tells("-r --array", text="`ullage tasks ID` lists the tasks of an array", flag=True),
    _tells("-R --reservation -L --licenses", text="it has no counterpart"),
    _tells("--nodelist", text="`ullage executors` shows nodes and sessions"),
    _useless("-a --all", text="all of them are shown", flag=True),
    _says("--user", words="-u {value}"),
    _ELSEWHERE,
    _NO_VERBOSE,
)
_OF_REPORTS = (
    _says("-S --starttime start Start --start", words="--since {value}"),
    _says("-E --endtime end End --end", words="--until {value}"),
    _says("-P -p --parsable --parsable2", words="-o csv", flag=True),
    _useless("-a --allusers -X --allocations -L --allclusters", text="all of them are shown", flag=True),
    _useless("--units", text="sizes have their units"),
    *_SHOWN,
    _NO_VERBOSE,
)
_OF_HISTORY = (
    Spelling(("-s", "--states"), _states),
    _says("-j --jobs --name", words="ullage history {value}"),
    _says("-r --partition -A --account --accounts --qos -q", words="-q {value}"),
    _says("-n", words="--no-header", flag=True),
    _LONG,
    _says("-b --brief", words="-o id,state", flag=True),
    _says("-o", words="-o FIELD,FIELD"),
    _tells("-N --nodelist", text="`ullage show node NAME` shows one; a server has one node"),
    *_OF_REPORTS,
)
_OF_USAGE = (
    _useless("-t", text="hours of cards and cores are shown, with percentages"),
    _tells("-A --account --accounts -u --user --users", text="--by user,queue has a line for each"),
    *_OF_REPORTS,
)
_OF_NODES = (
    _LONG,
    _STATES,
    *_SHOWN,
    _useless("-N --Node -s --summarize -a --all", text="each node has its line", flag=True),
    _tells("-p --partition", text="`ullage queues -o wide` shows queues with their limits"),
    _tells("-n --nodes", text="`ullage show node {value}`"),
    _tells("-R --list-reasons", text="`ullage events` shows who changed what", flag=True),
)
_OF_CANCELS = (
    _STATES,
    _QUEUE,
    _tells("-n --name --jobname", text="`ullage cancel {value}`: a name is the id"),
    _tells("-s --signal", text="`ullage exec ID -- kill -{value} PID` sends a signal to a process of the program"),
    _useless("-i --interactive", text="what is selected is listed, and asked for", flag=True),
    _useless("-f --full -b --batch", text="all processes of the program get the signal", flag=True),
    _NO_VERBOSE,
)
_OF_REQUESTS = (
    _says("--gpus -G", words="-r gpu={value}"),
    _says("-c --cpus --cpus-per-task", words="-r cpu={value}"),
    _says("--mem", words="-r mem={value}"),
    Spelling(("--gres",), cards),
    _useless("-t --time", text="a plan has no time"),
)
_BY_VERB: dict[str, Sequence[Spelling]] = {
    "run": _OF_JOBS,
    "submit": _OF_JOBS,
    "queue": _OF_SESSIONS,
    "sessions": _OF_SESSIONS,
    "history": _OF_HISTORY,
    "usage": _OF_USAGE,
    "nodes": _OF_NODES,
    "tasks": (_STATES, *_SHOWN),
    "cancel": _OF_CANCELS,
    "plan": _OF_REQUESTS,
    "alloc": _OF_REQUESTS,
}


class Meant(NamedTuple):
    """An option of Slurm as it was typed, and what is meant by it."""

    typed: str
    words: str
    is_exact: bool

    def __str__(self) -> str:
        return f"{self.typed} of Slurm is written {self.words} here" if self.is_exact else f"{self.typed}: {self.words}"


def meant_by(verb: str, words: Sequence[str], wrong: Callable[[str], bool], flags: Container[str] = ()) -> list[Meant]:
    """Return what is meant by the options of Slurm in a command line, before its program.

    `wrong` says which words are refused, and `flags` are options of the verb without a value.
    """
    known = {option: spelling for spelling in _BY_VERB.get(verb, ()) for option in spelling.options}
    found = []
    for option, value, typed, word in _options(words, known, flags):
        if option in known and wrong(word):
            spelling = known[option]
            meant = spelling.meant(value)
            found.append(Meant(typed, meant, spelling.is_exact and "leave it out" not in meant))
    return found


def hint(found: Sequence[Meant]) -> str:
    """Return the beginning of a sentence for what is meant: `-c 4 of Slurm is written --cpus 4 here; `."""
    return "".join(f"{each}; " for each in found)


def _options(
    words: Sequence[str], known: dict[str, Spelling], flags: Container[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield each option before the program: its name, its value, how it was typed, its word."""
    rest = list(words)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        option, joined, value = word.partition("=")
        if word.startswith("-") and not word.startswith("--") and len(word) > len("-c"):  # -c4
            option, joined, value = word[:2], "", word[2:]
        if not word.startswith("-") and option not in known:
            return
        has_value = option not in flags and not (option in known and known[option].flag)
        signed = option == _SIGNED or not next(iter(rest), "-").startswith("-")
        if word.startswith("-") and has_value and not joined and not value and rest and signed:
            value = rest.pop(0)
        yield option, value, f"{option}={value}" if joined else f"{option} {value}".strip(), word


_SIGNED = "-S"
"""The option whose value may begin with a minus."""

# --- scripts ---

_OF_SCRIPTS = (
    Spelling(("-t", "--time"), _minutes),
    Spelling(("--mem",), _mebibytes),
    Spelling(("-n",), _tasks, is_exact=False),
    Spelling(("--gpus",), lambda value: f"--gpus {value}" if ":" not in value else cards(f"gpu:{value}")),
    _says("-a --array", words="--array {value}"),
    _says("--begin", words="--begin {value}"),
    _says("--signal", words="--signal {value}"),
    _says("-J --job-name", words="-J {value}"),
    Spelling(("-e",), _output, is_exact=False),
    *_OF_JOBS,
)
_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")


def translated(lines: Sequence[str]) -> list[str]:
    """Return `#ULLAGE` lines for the `#SBATCH` lines of a script; what has no counterpart is a comment."""
    known = {option: spelling for spelling in reversed(_OF_SCRIPTS) for option in spelling.options}
    found: dict[str, None] = {}
    for line in lines:
        if (match := _DIRECTIVE.match(line)) is None:
            continue
        for option, value, typed, _ in _options(_split(match[1]), known, ()):
            spelling = known.get(option)
            meant = "it has no counterpart" if spelling is None else spelling.meant(value)
            exact = spelling is not None and spelling.is_exact and meant.startswith("-")
            found.setdefault(f"#ULLAGE {meant}" if exact else f"# {typed}: {meant}")
    return list(found)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


_VARIABLES = {
    "SLURM_JOB_ID": "ULLAGE_SESSION",
    "SLURM_JOBID": "ULLAGE_SESSION",
    "SLURM_JOB_NAME": "ULLAGE_SESSION",
    "SLURM_ARRAY_JOB_ID": "ULLAGE_SESSION",
    "SLURM_ARRAY_TASK_ID": "ULLAGE_ARRAY_INDEX",
    "SLURM_ARRAY_TASK_COUNT": "ULLAGE_ARRAY_COUNT",
    "SLURM_ARRAY_TASK_MIN": "ULLAGE_ARRAY_MIN",
    "SLURM_ARRAY_TASK_MAX": "ULLAGE_ARRAY_MAX",
    "SLURM_PROCID": "ULLAGE_ARRAY_INDEX",
    "SLURM_NTASKS": "ULLAGE_ARRAY_COUNT",
    "SLURMD_NODENAME": "ULLAGE_NODE",
    "SLURM_JOB_NODELIST": "ULLAGE_NODE",
    "SLURM_NODELIST": "ULLAGE_NODE",
    "SLURM_JOB_GPUS": "CUDA_VISIBLE_DEVICES",
    "SLURM_SUBMIT_DIR": "PWD",
}
_VARIABLE = re.compile(r"\bSLURMD?_[A-Z_]+\b")


def unset_variables(lines: Sequence[str]) -> list[str]:
    """Return a text for each variable of Slurm that a script uses: `SLURM_JOB_ID is ULLAGE_SESSION here`."""
    used = dict.fromkeys(name for line in lines if not line.startswith("#") for name in _VARIABLE.findall(line))
    return [f"{name} is {_VARIABLES[name]} here" if name in _VARIABLES else f"{name} is not set here" for name in used]
