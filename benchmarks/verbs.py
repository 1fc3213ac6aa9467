"""CPU time of verbs of the command line, in milliseconds and as multiples of bare Python.

A server of its own answers. CPU time says less of how busy the machine is than the time on the wall. The byte code of
all modules is written before, as an installation does.
"""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from pathlib import Path

from tests.system.live_server import LiveServer

import ullage

_ROUNDS = 10
_VERBS = (
    "version",
    "queue",
    "sessions",
    "nodes",
    "gpus",
    "queues",
    "events",
    "tasks nosuch",
    "submit -- true",
    "queue --help",
)


def cpu_ms(*arguments: str, environment: dict[str, str]) -> float:
    """Return the least CPU time of a process of this interpreter, in milliseconds."""
    nothing = os.open(os.devnull, os.O_RDWR)
    to_nothing = [(os.POSIX_SPAWN_DUP2, nothing, descriptor) for descriptor in (0, 1, 2)]
    times = []
    for _ in range(_ROUNDS):
        child = os.posix_spawn(sys.executable, [sys.executable, *arguments], environment, file_actions=to_nothing)
        _, _, usage = os.wait4(child, 0)
        times.append(usage.ru_utime + usage.ru_stime)
    os.close(nothing)
    return 1000 * min(times)


def main() -> None:
    """Measure bare Python and the verbs."""
    compileall.compile_dir(Path(ullage.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as home, LiveServer(Path(home)) as server:
        environment = {**os.environ, "ULLAGE_HOME": home}
        environment.pop("ULLAGE_ENDPOINT", None)
        bare = cpu_ms("-c", "pass", environment=environment)
        print(f"verbs: CPU time, least of {_ROUNDS}; server at {server.url}")
        print(f"  {'bare Python':14} {bare:6.0f} ms")
        for verb in _VERBS:
            taken = cpu_ms("-m", "ullage.cli.main", *verb.split(), environment=environment)
            print(f"  {verb:14} {taken:6.0f} ms  {taken / bare:4.1f} x")


if __name__ == "__main__":
    main()
