"""`ullage demo`: three tenants with different demands share this machine until the shares are fair.

The tenants are the example of the DRF paper (Ghodsi et al., NSDI 2011): a machine of 9 cpus and 18 GB, one tenant
that demands memory, one that demands cpu. A third one demands GPUs. They arrive one after the other, so the first
tenant gives borrowed resources back while the viewer watches.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Self

from ullage.cli.exits import FAILED, Exit
from ullage.cli.interrupts import Interrupts
from ullage.cli.page import link_of
from ullage.cli.table import format_table, terminal_width
from ullage.client.client import Client, connect
from ullage.client.endpoint import home, local, make_home
from ullage.client.local import INSTALL, answers, missing_packages
from ullage.client.session import Session
from ullage.model.counted import counted
from ullage.model.error import Conflict, UllageError, Unavailable
from ullage.model.resources import show_milli
from ullage.wire.overview import Overview
from ullage.wire.session import SessionBody

CARDS = 4
"""Cards declared on a machine without any."""

TICK_S = 0.5
ONCE_S = 120.0
"""Seconds within which the shares must be fair with `--once`."""

BACKLOG = 24
"""Pending and running tasks of each tenant."""


class DemoTenant(NamedTuple):
    """A tenant, its request, and its arrival in seconds after the start."""

    name: str
    request: str
    arrives_s: float


TENANTS = (
    DemoTenant("memory-hungry", "cpu=1,mem=4g", 0.0),
    DemoTenant("cpu-hungry", "cpu=3,mem=1g", 4.0),
    DemoTenant("gpu-hungry", "cpu=1,mem=1g,gpu=1", 8.0),
)


def estimate_pi(samples: int, seed: int) -> float:
    """Return an estimate of pi from random points in a square: the work of the tenants."""
    draw = random.Random(seed)  # noqa: S311 - no secrets
    hits = sum(draw.random() ** 2 + draw.random() ** 2 <= 1.0 for _ in range(samples))
    return 4.0 * hits / samples


def configure_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when the shares are fair (a private server)")
    parser.set_defaults(act=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    if missing := missing_packages():
        raise Unavailable(f"{', '.join(missing)} not installed: {INSTALL}", code="not-installed")
    with Interrupts(), ExitStack() as stack:
        if arguments.once:
            os.environ["ULLAGE_HOME"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="ullage-demo-"))
        elif answers(local()):
            raise Conflict("a server is running already; end it with `ullage down` first", code="already-running")
        server = stack.enter_context(_Server())
        client = stack.enter_context(connect())
        _print_head(client, server.note)
        loads = [_Load(client, tenant) for tenant in TENANTS]
        try:
            return _watch(client, len(loads), once=arguments.once)
        except KeyboardInterrupt:
            print("\nThe server and everything it runs end now.")
            return 0
        finally:
            for load in loads:
                load.stop()


class _Server:
    """A server that ends with the demonstration."""

    def __enter__(self) -> Self:
        cards, self.note = _cards()
        config = home() / "demo.toml"
        make_home(home())
        lines = ["[node]", "cpu = 9", 'memory = "18g"', *([f"gpus = {cards}"] if cards else [])]
        config.write_text("\n".join(lines) + "\n")
        port = ["--port=0"] if "ullage-demo-" in str(home()) else []
        command = [sys.executable, "-m", "ullage.cli.main", "up", f"--config={config}", *port]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - fixed arguments
        if done.returncode:  # the command printed the reason
            raise Exit(done.returncode)
        return self

    def __exit__(self, *_: object) -> None:
        command = [sys.executable, "-m", "ullage.cli.main", "down"]
        subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed arguments


def _cards() -> tuple[int | None, str]:
    """Return how many cards to declare (None: use the cards of the machine), and a sentence on it."""
    from ullage.inventory.machine import MachineSettings, discover  # noqa: PLC0415 - part of the server extra
    from ullage.inventory.nvml import NvmlCards  # noqa: PLC0415 - as above

    found = discover(MachineSettings(), os.environ, NvmlCards()).node
    declared = "9 cpus and 18 GB are declared, as in the DRF paper"
    if found.gpus:
        return None, f"{declared}; this machine has {counted(len(found.gpus), 'card')}, which the demonstration uses."
    return CARDS, f"{declared}; this machine has no GPUs, so {CARDS} cards are declared too."


def _print_head(client: Client, note: str) -> None:
    there = local()
    print(f"Ullage {client.server().version} is running at {there.url if there else '?'}")
    print(f"  live page   {link_of(there) if there else '?'}")
    print(f"  token       {home() / 'token'}")
    print(f"  this node   {note}")
    print(f"  limits      {client.server().isolation}")
    print("  try         ullage run -r cpu=1 -- echo hello      (in another terminal)")
    print()


class _Load:
    """A thread that submits work for one tenant."""

    def __init__(self, client: Client, tenant: DemoTenant) -> None:
        self.tenant = tenant
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        if self._stopped.wait(self.tenant.arrives_s):
            return
        session = self._client.session(self.tenant.name + f"-{os.getpid()}", resreq=self.tenant.request)
        try:
            self._submit(session)
        except UllageError:  # the server was ended from elsewhere
            self._stopped.set()

    def _submit(self, session: Session) -> None:
        submitted = 0
        while not self._stopped.is_set():
            status = session.status()
            for _ in range(BACKLOG - status.pending - status.running):
                submitted += 1
                session.submit(estimate_pi, 400_000, submitted)
            self._stopped.wait(TICK_S)
        session.cancel()


def _watch(client: Client, tenants: int, *, once: bool) -> int:
    """Draw until interrupted, or with `once` until the shares are fair and every tenant has finished a task."""
    ends_at = time.monotonic() + ONCE_S
    with _screen() as show:
        while True:
            overview = client.overview()
            show(overview)
            if once and _fair(overview, tenants):
                break
            if once and time.monotonic() > ends_at:
                print(f"The shares were not fair within {ONCE_S:g} s.")
                return FAILED
            time.sleep(TICK_S)
    print("\nEvery tenant holds what it deserves.")
    return 0


@contextmanager
def _screen() -> Iterator[Callable[[Overview], None]]:
    """Redraw in place on a terminal; elsewhere print a picture each time the shares change."""
    if not sys.stdout.isatty():
        seen: list[object] = []

        def show(overview: Overview) -> None:
            shares = [(session.id, session.held, session.deserved) for session in overview.sessions]
            if shares not in seen[-1:]:
                seen.append(shares)
                print(_picture(overview), flush=True)

        yield show
        return
    from rich.live import Live  # noqa: PLC0415 - slow to import, and needed only here
    from rich.text import Text  # noqa: PLC0415 - as above

    with Live(auto_refresh=False) as live:
        yield lambda overview: live.update(Text(_picture(overview), no_wrap=True), refresh=True)


def _fair(overview: Overview, tenants: int) -> bool:
    sessions = overview.sessions
    arrived = len(sessions) == tenants and all(session.succeed for session in sessions)
    return arrived and all(session.held == session.deserved for session in sessions)


def _picture(overview: Overview) -> str:
    node = overview.nodes[0]
    used = (
        f"in use: cpu {show_milli(node.held.cpu_milli)}/{show_milli(node.allocatable.cpu_milli)}   "
        f"memory {node.held.memory_bytes >> 30}/{node.allocatable.memory_bytes >> 30} GB   "
        f"gpu {show_milli(node.held.gpu_milli)}/{show_milli(node.allocatable.gpu_milli)}\n"
    )
    titles = ("TENANT", "EACH EXECUTOR", "HOLDS", "DESERVES", "DOMINANT SHARE", "DONE", "WHY NOT MORE")
    return used + format_table(titles, [_row(session) for session in overview.sessions], terminal_width())


def _row(session: SessionBody) -> tuple[str, ...]:
    share = f"{'█' * round(session.share * 10):<10} {session.share:4.0%}"
    return (
        session.id.rpartition("-")[0],
        session.resreq,
        str(session.held),
        str(session.deserved),
        share,
        str(session.succeed),
        session.reason or "-",
    )
