"""The verbs of the command line, in the groups that `ullage --help` shows."""

from __future__ import annotations

import argparse
from typing import NamedTuple


class Verb(NamedTuple):
    """A verb: the module with `configure_<verb>`, its line of help, an example."""

    module: str
    help: str
    example: str


GROUPS = {
    "run work": {
        "run": Verb("run", "run a program and wait for it", "ullage run -r cpu=2,mem=4g,gpu=1 -- python train.py"),
        "submit": Verb("submit", "run a program without waiting", "ullage submit -r gpu=1 -- python train.py"),
        "logs": Verb("logs", "what the tasks of a session print", "ullage logs -f --since 10m command-7"),
        "exec": Verb("execute", "run a program beside a running task", "ullage exec -t command-7 -- bash"),
        "attach": Verb("interactive", "return to a program of `run --pty`", "ullage attach command-7"),
        "queue": Verb("sessions", "waiting and running sessions", "ullage queue --me"),
        "sessions": Verb("sessions", "all sessions, closed ones too", "ullage sessions --state closed -o wide"),
        "tasks": Verb("sessions", "the tasks of a session", "ullage tasks command-7"),
        "why": Verb("why", "why a session or a pod waits or runs", "ullage why command-7"),
        "plan": Verb("plan", "whether and where a request would fit, and why", "ullage plan -r gpu=2,vram=20g"),
        "cancel": Verb("cancel", "cancel sessions or tasks, running ones too", "ullage cancel command-7 function-3/12"),
        "update": Verb("update", "change waiting or running sessions, or hold them", "ullage update a b --priority 5"),
        "requeue": Verb("cancel", "run running or failed tasks again", "ullage requeue command-7"),
        "close": Verb("sessions", "close sessions whose tasks have ended", "ullage close function-3"),
        "delete": Verb("delete", "delete closed sessions with their tasks and results", "ullage delete function-3"),
        "retry": Verb("sessions", "start executors again after repeated failures", "ullage retry function-3"),
        "apps": Verb("apps", "list and register applications", "ullage apps register -f echo.toml"),
    },
    "look": {
        "nodes": Verb("fleet", "machines and their usage", "ullage nodes"),
        "gpus": Verb("fleet", "cards and their holders", "ullage gpus -o wide"),
        "topo": Verb("topo", "the topology of a machine: zones, cards, links", "ullage topo node-1"),
        "executors": Verb("fleet", "worker processes", "ullage executors"),
        "queues": Verb("queues", "the share tree, and its changes", "ullage queues set research --weight 2"),
        "show": Verb("show", "all fields of one object", "ullage show task command-7/1"),
        "events": Verb("events", "what happened", "ullage events --follow"),
        "history": Verb("history", "what ran, deleted sessions too", "ullage history --since 2d --state failed"),
        "usage": Verb("history", "who used how much of what there was", "ullage usage --by user,queue --since 30d"),
        "top": Verb("top", "a live view of the server", "ullage top"),
    },
    "requests for cards": {
        "alloc": Verb("allocations", "hold cards for work that runs elsewhere", "ullage alloc pod-1 -r gpu=1,vram=8g"),
        "commit": Verb("allocations", "bind an assumed request", "ullage commit pod-1"),
        "forget": Verb("allocations", "undo a request or its reservation", "ullage forget pod-1"),
        "adjust": Verb(
            "adjust", "change the amounts of a request on its cards", "ullage adjust pod-1 -r vram=9g --dry-run"
        ),
        "allocations": Verb("allocations", "requests that hold cards", "ullage allocations -o wide"),
        "release": Verb(
            "allocations",
            "mark a request whose owner was asked to end",
            "ullage release pod-1 --within 60s",
        ),
        "free": Verb("allocations", "free the cards of a request", "ullage free pod-1"),
        "defrag": Verb("defrag", "find moves that free whole cards", "ullage defrag --for gpu=8 --count 2"),
        "gang": Verb("gang", "requests that are placed together", "ullage gang submit train-1 w-0 w-1 -r gpu=1"),
        "quotas": Verb(
            "quotas",
            "list, set and delete quotas of namespaces",
            "ullage quotas set research --total-requests vram=80g",
        ),
    },
    "the server": {
        "up": Verb("server", "start a local server, with this machine as its node", "ullage up"),
        "down": Verb("server", "end the local server", "ullage down"),
        "service": Verb("service", "the server as a service for all users", "ullage service install --print"),
        "page": Verb("page", "print the link to the live page; it contains the token", "ullage page"),
        "doctor": Verb("doctor", "what is wrong with this machine or its server, with fixes", "ullage doctor"),
        "whoami": Verb("people", "who you are to the server, and your role", "ullage whoami"),
        "token": Verb(
            "people",
            "list, create and revoke tokens of users",
            "ullage token create --user ann --expires 30d",
        ),
        "settings": Verb(
            "settings", "the settings of a local server, and where each comes from", "ullage settings --all -o wide"
        ),
        "recover": Verb("recover", "check and recover a damaged database", "ullage recover --keep"),
        "cordon": Verb("fleet", "exclude a node from new placements", "ullage cordon node-1"),
        "uncordon": Verb("fleet", "use a node again", "ullage uncordon node-1"),
    },
    "kubernetes": {
        "kube": Verb("kube", "place the pods of a Kubernetes cluster on its cards", "ullage kube --config ullage.toml"),
        "bindings": Verb(
            "bindings",
            "bindings of applications to cards of a cluster",
            "ullage bindings resume comfyui --compute-binding n1:GPU-1f0c:8",
        ),
        "exporter": Verb("exporter", "publish the topology and usage of this node to its cluster", "ullage exporter"),
    },
    "other": {
        "demo": Verb("demo", "watch three tenants share this machine", "ullage demo --once"),
        "replay": Verb(
            "replay",
            "compare policies on a trace",
            "ullage replay --nodes nodes.csv --tasks tasks.csv",
        ),
        "completion": Verb("completion", "completions for a shell", "ullage completion bash > ullage.bash"),
        "version": Verb("version", "the version of this program", "ullage version"),
    },
}

VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}


class VerbsInGroups(argparse.HelpFormatter):
    """Shows the verbs in groups, each with its help on its own line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        # argparse ignores the indentation of verbs, which is one level deeper here
        self._action_max_length = max(map(len, VERBS)) + 3 * self._indent_increment

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # argparse has no public name for it
            return super()._format_action(action)
        lines = {verb.dest: verb for verb in action._get_subactions()}  # noqa: SLF001  # as above
        return "\n".join(self._group(title, [lines[name] for name in verbs]) for title, verbs in GROUPS.items())

    def _group(self, title: str, verbs: list[argparse.Action]) -> str:
        self._indent()
        text = "".join(super(VerbsInGroups, self)._format_action(verb) for verb in verbs)
        self._dedent()
        return f"{'':{self._current_indent}}{title}:\n{text}"
