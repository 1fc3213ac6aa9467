"""The command line and the environment of a worker."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from ullage.engines.local.home import Home
from ullage.engines.local.sharing import Enforced, ExecutorLimits, Sharing, preload
from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.grant import Grant
from ullage.model.part import Isolation
from ullage.model.quantity import format_decimal
from ullage.model.resources import MILLI
from ullage.service.engine_port import LaunchOrder

_INHERITED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"})
"""Variables of the server that its workers inherit, in addition to `LC_*`: no tokens, no passwords."""

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")


def worker_environment(
    order: LaunchOrder, home: Home, server: Mapping[str, str], sharing: Sharing, *, server_id: str, secret: str
) -> dict[str, str]:
    """Return the whole environment: inherited variables, then those of the application, the session and Ullage.

    Raises:
        ValueError: hard isolation was granted, and the limits cannot be enforced; or a slice does not exist any more.

    """
    environment = {name: value for name, value in server.items() if name in _INHERITED or name.startswith("LC_")}
    environment.setdefault("PATH", _DEFAULT_PATH)
    environment.update(order.application.environment)
    environment.update(order.setup.environment)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, order.requirement.cpu_milli // MILLI)))
    if _lacks_package(order):
        paths = [str(home.package_path), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = ":".join(path for path in paths if path)
    cards = visible_devices(order.gpus, order.charges)
    limits = _limits(order, home, sharing)
    if "LD_PRELOAD" in limits.environment:
        environment["LD_PRELOAD"] = preload(limits.environment.pop("LD_PRELOAD"), environment.get("LD_PRELOAD"))
    marker_name, _, marker_value = home.marker.partition("=")
    ours = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": cards,
        "NVIDIA_VISIBLE_DEVICES": cards or "void",
        marker_name: marker_value,
        "ULLAGE_EXECUTOR": order.executor,
        "ULLAGE_HOME": str(home.clients),  # a client inside a task uses the server that runs the task
        "ULLAGE_NODE": order.node,
        "ULLAGE_SERVER_ID": server_id,
        "ULLAGE_TASK_LOGS": str(home.task_logs),
        "ULLAGE_TERMINAL_SOCKET": str(home.terminal_socket),
        "ULLAGE_WORKER_SECRET": secret,
        "ULLAGE_WORKER_SOCKET": str(home.socket),
    }
    return environment | ours | limits.environment | grant_variables(order, limits.enforced)


def grant_variables(order: LaunchOrder, enforced: Enforced) -> dict[str, str]:
    """Return the variables that describe a worker's grants in the order of its cards. Unknown amounts are empty."""
    if not order.gpus:
        return {}
    grants = _grants(order) or [Grant.of(gpu, None) for gpu in order.gpus]
    return {
        "ULLAGE_GPU_FRACTION": ",".join(format_decimal(grant.fraction_ppm) for grant in grants),
        "ULLAGE_GPU_VRAM_BYTES": ",".join(_amount_text(grant.vram_bytes) for grant in grants),
        "ULLAGE_GPU_GFLOPS": ",".join(_amount_text(grant.compute_gflops) for grant in grants),
        "ULLAGE_GPU_ENFORCED": enforced.value,
    }


def _limits(order: LaunchOrder, home: Home, sharing: Sharing) -> ExecutorLimits:
    if any(charge.slots for charge in order.charges):
        return ExecutorLimits({}, Enforced.MIG)
    limits = sharing.limits(order.gpus, _grants(order), home.new_cache(order.executor))
    if limits.enforced is Enforced.NONE and any(charge.isolation is Isolation.HARD for charge in order.charges):
        raise ValueError("isolation=hard was requested, and nothing here can enforce these parts of these cards")
    return limits


def _grants(order: LaunchOrder) -> list[Grant]:
    """Return one grant for each card that is held in part."""
    return [Grant.of(gpu, charge) for gpu, charge in zip(order.gpus, order.charges, strict=bool(order.charges))]


def _amount_text(amount: int | None) -> str:
    return "" if amount is None else str(amount)


def visible_devices(gpus: Sequence[Gpu], charges: Sequence[Charge] = ()) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES: uuids in the order granted, empty for no card.

    Slices are named by their own uuids. CUDA gives a process the first of them only.

    Declared cards have invented uuids, which CUDA does not know. CUDA accepts uuids or indices, not both,
    so one such card makes all be named by index.

    Raises:
        ValueError: a slice does not exist any more.

    """
    if any(charge.slots for charge in charges):
        return ",".join(_slice_uuids(gpus, charges))
    if all(gpu.uuid.startswith("GPU-") for gpu in gpus):
        return ",".join(gpu.uuid for gpu in gpus)
    return ",".join(str(gpu.index) for gpu in gpus)


def _slice_uuids(gpus: Sequence[Gpu], charges: Sequence[Charge]) -> Iterator[str]:
    for gpu, charge in zip(gpus, charges, strict=True):
        there = dict(gpu.slice_uuids)
        for slot in charge.slots:
            if slot.start not in there:
                raise ValueError(f"card {gpu.uuid} has no slice {slot.template} with the number {slot.start} any more")
            yield there[slot.start]


def worker_command(order: LaunchOrder, environment: Mapping[str, str]) -> list[str]:
    """Return the program and its arguments.

    The command of an application is split into words as a shell does. Variables are expanded after that, so a value
    with blanks stays one word.

    Raises:
        ValueError: the command has an unclosed quote, or no word.

    """
    application = order.application
    if not application.command:
        return [order.setup.python or sys.executable, "-m", "ullage.worker", application.name]
    words = shlex.split(application.command)
    if not words:
        raise ValueError("the application's command is blank")
    return [expand(word, environment) for word in (*words, *application.arguments)]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Return `text` with `$NAME` and `${NAME}` replaced. A name that is not set stays as it is."""
    return _VARIABLE.sub(lambda match: environment.get(match.group(1) or match.group(2), match.group()), text)


def _lacks_package(order: LaunchOrder) -> bool:
    """Return whether a built-in worker runs under an interpreter that may lack this package."""
    python = order.setup.python
    return not order.application.command and python is not None and python != sys.executable
