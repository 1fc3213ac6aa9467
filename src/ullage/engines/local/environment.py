"""What a worker is started with: its command line and its environment."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from ullage.engines.local.home import Home
from ullage.model.gpu import Gpu
from ullage.model.resources import MILLI
from ullage.service.ports import LaunchOrder

_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"})
"""Variables of the server that its workers see, besides `LC_*`. Tokens and passwords are not among them."""

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")


def worker_environment(
    order: LaunchOrder, home: Home, server: Mapping[str, str], *, server_id: str, secret: str
) -> dict[str, str]:
    """The whole environment: from the server what is kept, then the application's, the session's, and ours."""
    environment = {name: value for name, value in server.items() if name in _KEPT or name.startswith("LC_")}
    environment.setdefault("PATH", _DEFAULT_PATH)
    environment.update(order.application.environment)
    environment.update(order.setup.environment)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, order.requirement.cpu_milli // MILLI)))
    if _foreign(order):
        paths = [str(home.package_path), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = ":".join(path for path in paths if path)
    cards = visible_devices(order.gpus)
    marker_name, _, marker_value = home.marker.partition("=")
    return environment | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": cards,
        "NVIDIA_VISIBLE_DEVICES": cards or "void",
        marker_name: marker_value,
        "ULLAGE_EXECUTOR": order.executor,
        "ULLAGE_NODE": order.node,
        "ULLAGE_SERVER_ID": server_id,
        "ULLAGE_TASK_LOGS": str(home.task_logs),
        "ULLAGE_WORKER_SECRET": secret,
        "ULLAGE_WORKER_SOCKET": str(home.socket),
    }


def visible_devices(gpus: Sequence[Gpu]) -> str:
    """The value of CUDA_VISIBLE_DEVICES: uuids in the order granted, empty for no card.

    Cards that were declared rather than found have made-up uuids, which CUDA would not know: as
    soon as there is one, all are named by index, because a list is read as one kind or the other.
    """
    if all(gpu.uuid.startswith("GPU-") for gpu in gpus):
        return ",".join(gpu.uuid for gpu in gpus)
    return ",".join(str(gpu.index) for gpu in gpus)


def worker_command(order: LaunchOrder, environment: Mapping[str, str]) -> list[str]:
    """The program and its arguments.

    An application's command is split into words as a shell does it, so `python -m mine` works and
    a program whose path has blanks is quoted; its arguments are words already. Variables are
    expanded after that, so that a value with blanks stays one word.

    Raises:
        ValueError: the command has an open quote, or no word.

    """
    application = order.application
    if not application.command:
        return [order.setup.python or sys.executable, "-m", "ullage.worker", application.name]
    words = shlex.split(application.command)
    if not words:
        raise ValueError("the application's command is blank")
    return [expand(word, environment) for word in (*words, *application.arguments)]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`text` with `$NAME` and `${NAME}` replaced; a name that is not set stays as it is written."""
    return _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], match[0]), text)


def _foreign(order: LaunchOrder) -> bool:
    """Whether a built-in worker runs under an interpreter that may not have this package."""
    python = order.setup.python
    return not order.application.command and python is not None and python != sys.executable
