"""The environment variables that Ullage reads or sets, in one table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ullage.model.nearest import nearest
from ullage.model.setting_variables import OF_SETTINGS

PREFIX = "ULLAGE_"

SETTINGS = {
    "ULLAGE_HOME": "directory of this user's local server: its state, token and logs (default `$XDG_DATA_HOME/ullage`, "
    "else `~/.local/share/ullage`)",
    "ULLAGE_SYSTEM": "directory of the socket of the system service, which clients use if this user runs no server "
    "(default `/run/ullage`)",
    "ULLAGE_ENDPOINT": "URL of the server that the command line and the SDK use instead of the local one",
    "ULLAGE_TOKEN": "its token; it goes to another machine over plain http with a warning",
    "ULLAGE_FRONT": "the front that `kubectl ullage` asks: `NAMESPACE/SERVICE`, or a URL",
    "ULLAGE_DEBUG": "`1` lets the command line show the traceback of an error",
    "ULLAGE_COMPILED": "directory with compiled code that an image brings; `ullage kube` copies it into "
    "`NUMBA_CACHE_DIR` when it starts",
}
"""The variables that a user may set, with their meaning."""

_OF_WORKERS = (
    "ULLAGE_ARRAY_COUNT",
    "ULLAGE_ARRAY_INDEX",
    "ULLAGE_ARRAY_MAX",
    "ULLAGE_ARRAY_MIN",
    "ULLAGE_EXEC",
    "ULLAGE_EXECUTOR",
    "ULLAGE_GANG_ID",
    "ULLAGE_GANG_RANK",
    "ULLAGE_GANG_SIZE",
    "ULLAGE_GPU_ENFORCED",
    "ULLAGE_GPU_FRACTION",
    "ULLAGE_GPU_GFLOPS",
    "ULLAGE_GPU_VRAM_BYTES",
    "ULLAGE_HOME_ID",
    "ULLAGE_NODE",
    "ULLAGE_NOTIFY_SESSION",
    "ULLAGE_SERVER_ID",
    "ULLAGE_SESSION",
    "ULLAGE_TASK",
    "ULLAGE_TASK_LOGS",
    "ULLAGE_TERMINAL_SECRET",
    "ULLAGE_TERMINAL_SOCKET",
    "ULLAGE_WORKER_SECRET",
    "ULLAGE_WORKER_SOCKET",
)
_OF_PODS = ("ULLAGE_CONTAINER_NAME", "ULLAGE_POD_NAME", "ULLAGE_POD_NAMESPACE", "ULLAGE_POD_UID")
_OF_TESTS = ("ULLAGE_FAIL_AT", "ULLAGE_KUBERNETES_SAMPLES", "ULLAGE_REQUIRE_KUBE")

KNOWN = frozenset((*SETTINGS, *OF_SETTINGS, *_OF_WORKERS, *_OF_PODS, *_OF_TESTS))
"""Every variable that Ullage reads or sets: those of a user, of settings, of workers, of pods, and of tests."""

_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_LINK = re.compile(r"\w+_(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)|ULLAGE_PORT\w*")
"""The variables that a kubelet sets in pods for services; a service's name may begin with `ullage`."""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return one sentence for each variable that begins like those of Ullage, and is unknown."""
    links = _IN_A_POD in environment
    return [
        f"{name} is set, and nothing reads it: {_meant(name)}known are {', '.join(SETTINGS)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in KNOWN and not (links and _LINK.fullmatch(name))
    ]


def _meant(name: str) -> str:
    """Return the question for the most similar setting; the common prefix of all names does not count."""
    found = nearest(name.removeprefix(PREFIX), (known.removeprefix(PREFIX) for known in (*SETTINGS, *OF_SETTINGS)))
    return "" if found is None else f"did you mean {PREFIX}{found}? "
