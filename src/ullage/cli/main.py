"""`ullage`: finds the verb, loads only what that verb needs, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, cast

from ullage import __version__
from ullage.cli.exits import BROKEN_PIPE, FAILED, INTERRUPTED, Exit, complain, report
from ullage.model.error import UllageError


class Verb(NamedTuple):
    """A verb: the module whose `configure_<verb>` gives it its arguments, its one line of help, an example."""

    module: str
    help: str
    example: str


VERBS = {
    "up": Verb("server", "start a local server, with this machine as its node", "ullage up"),
    "kube": Verb("kube", "place the pods of a Kubernetes cluster on its cards", "ullage kube --config ullage.toml"),
    "down": Verb("server", "end the local server", "ullage down"),
    "run": Verb("run", "run a program and wait for it", "ullage run -r cpu=2,mem=4g,gpu=1 -- python train.py"),
    "submit": Verb("run", "run a program without waiting", "ullage submit -r gpu=1 -- python train.py"),
    "logs": Verb("logs", "what a program printed", "ullage logs -f command-7"),
    "queue": Verb("sessions", "who waits and who runs", "ullage queue --me"),
    "sessions": Verb("sessions", "all sessions, closed ones too", "ullage sessions --state closed -o wide"),
    "tasks": Verb("sessions", "the tasks of a session", "ullage tasks command-7"),
    "why": Verb("why", "why a session has what it has", "ullage why command-7"),
    "cancel": Verb("sessions", "cancel sessions or tasks, running ones too", "ullage cancel command-7 function-3/12"),
    "close": Verb("sessions", "close sessions whose tasks have ended", "ullage close function-3"),
    "retry": Verb("sessions", "start executors again after their failures were mended", "ullage retry function-3"),
    "plan": Verb("plan", "would it fit, where, and why", "ullage plan -r gpu=2,vram=20g"),
    "alloc": Verb("allocations", "hold cards for work that runs elsewhere", "ullage alloc pod-1 -r gpu=1,vram=8g"),
    "commit": Verb("allocations", "make what is assumed bound", "ullage commit pod-1"),
    "forget": Verb("allocations", "undo what a request holds or is kept for it", "ullage forget pod-1"),
    "adjust": Verb(
        "adjust", "change how much a request takes of its cards", "ullage adjust pod-1 -r vram=9g --dry-run"
    ),
    "allocations": Verb("allocations", "requests that hold cards", "ullage allocations -o wide"),
    "release": Verb(
        "allocations", "the owner was told to go: free the cards when it is gone", "ullage release pod-1 --within 60s"
    ),
    "free": Verb("allocations", "free the cards of a request", "ullage free pod-1"),
    "defrag": Verb("defrag", "who would move so that whole cards are free", "ullage defrag --for gpu=8 --count 2"),
    "gang": Verb("gang", "requests that get their cards together", "ullage gang submit train-1 w-0 w-1 -r gpu=1"),
    "quotas": Verb(
        "quotas", "list, set and delete quotas of namespaces", "ullage quotas set research --total-requests vram=80g"
    ),
    "nodes": Verb("fleet", "machines: what they have and what is held", "ullage nodes"),
    "gpus": Verb("fleet", "cards and who holds them", "ullage gpus -o wide"),
    "topo": Verb("topo", "what is near what in a machine: zones, cards, links", "ullage topo node-1"),
    "executors": Verb("fleet", "worker processes", "ullage executors"),
    "queues": Verb("fleet", "the share tree", "ullage queues"),
    "show": Verb("show", "every field of one thing", "ullage show task command-7/1"),
    "events": Verb("events", "what happened", "ullage events --follow"),
    "top": Verb("top", "a live view of everything", "ullage top"),
    "cordon": Verb("fleet", "place nothing new on a node", "ullage cordon node-1"),
    "uncordon": Verb("fleet", "use a node again", "ullage uncordon node-1"),
    "apps": Verb("apps", "list and register applications", "ullage apps register -f echo.toml"),
    "bindings": Verb(
        "bindings",
        "which application has which card of a cluster",
        "ullage bindings resume comfyui --compute-binding n1:GPU-1f0c:8",
    ),
    "demo": Verb("demo", "watch three tenants share this machine", "ullage demo --once"),
    "replay": Verb(
        "replay",
        "what policies would do with a trace",
        "ullage replay --nodes nodes.csv --tasks tasks.csv",
    ),
    "exporter": Verb("exporter", "tell a cluster what this node is like and who holds what", "ullage exporter"),
    "completion": Verb("completion", "completions for a shell", "ullage completion bash > ullage.bash"),
    "version": Verb("version", "the version of this program", "ullage version"),
}

_EPILOG = "`ullage VERB --help` shows the options of a verb and an example. Exit codes: 2 wrong request, 69 no server, \
75 try again later, 78 can never be placed; `run` passes the program's own."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code."""
    try:
        arguments = _parse_quickly(sys.argv[1:]) if argv is None else _parse(list(argv))
        code = cast("Callable[[argparse.Namespace], int]", arguments.act)(arguments)
        sys.stdout.flush()
    except UllageError as error:
        _raise_for_debugging()
        return report(error)
    except Exit as end:
        return end.code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        # Python flushes stdout once more when it ends: that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # a traceback is no message for people
        _raise_for_debugging()
        complain(f"{type(error).__name__}: {error}", "ULLAGE_DEBUG=1 shows where this comes from; please report it")
        return FAILED
    return code


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the arguments of the verb `only`, or of every verb (slower: loads them all)."""
    parser = argparse.ArgumentParser(
        prog="ullage",
        description="Places work on GPUs: fairly, tightly, close together, and says why.",
        epilog=_EPILOG,
        formatter_class=_VerbsInLine,
    )
    parser.add_argument("--version", action="version", version=f"ullage {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        own = verbs.add_parser(name, help=verb.help, description=verb.help, epilog=f"example: {verb.example}")
        if only in (None, name):
            module = import_module(f"ullage.cli.{verb.module}")
            getattr(module, f"configure_{name}")(own)
    return parser


class _VerbsInLine(argparse.HelpFormatter):
    """Leaves room for the longest verb: argparse does not count that verbs are indented."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(map(len, VERBS)) + 2 * self._indent_increment


def _parse_quickly(argv: list[str]) -> argparse.Namespace:
    """`_parse` for a process of its own: what is loaded now stays to its end, and no collection looks at it."""
    gc.disable()
    try:
        return _parse(argv)
    finally:
        gc.freeze()  # saves 20 ms, most of it when the interpreter ends
        gc.enable()


def _parse(argv: list[str]) -> argparse.Namespace:
    verb = argv[0] if argv and argv[0] in VERBS else ""
    try:
        return build_parser(verb).parse_args(argv)
    except SystemExit as end:  # argparse has said what is wrong, or has shown the help
        raise Exit(end.code if isinstance(end.code, int) else FAILED) from None


def _raise_for_debugging() -> None:
    """Let the present exception through if ULLAGE_DEBUG asks for it."""
    if os.environ.get("ULLAGE_DEBUG"):
        raise  # noqa: PLE0704  # called from `except` only


if __name__ == "__main__":
    sys.exit(main())
