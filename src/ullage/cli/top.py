"""`ullage top`: a live view of the whole server."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ullage.cli.keys import quit_within, single_keys
from ullage.cli.output import DATA, add_output, print_data
from ullage.cli.parts import show_cards, show_compute, show_free, show_holders, show_vram
from ullage.cli.size import show_size
from ullage.cli.times import show_age, show_time
from ullage.client.api import Api
from ullage.client.local import reach
from ullage.model.counted import counted
from ullage.model.error import UllageError, Unavailable
from ullage.model.resources import show_milli
from ullage.wire.node import GpuBody, NodeBody
from ullage.wire.overview import Overview, RoomBody

Shown = TypeVar("Shown")

_TICK_S = 0.25
"""Seconds between two checks of the keyboard."""

_PIPE_WIDTH = 200
"""Characters of a line without a terminal."""


def configure_top(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    parser.set_defaults(act=_top)


def _top(arguments: argparse.Namespace) -> int:
    api = reach(start=False)
    return show_top(api.overview(), lambda: _followed(api), _picture, arguments.output)


def show_top(first: Shown, follow: Callable[[], Iterator[Shown]], picture: Callable[[Shown], Any], output: str) -> int:
    """Show a picture of the first state and, on a terminal, of each one that follows, until `q`. Return the exit code.

    With the output `json` the first state is printed.
    """
    if output in DATA:
        print_data(first, output)
        return 0
    from rich.console import Console  # noqa: PLC0415  # slow to import, and needed only here

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(picture(first))
        return 0
    _live(_Newest(first, follow), picture, Console())
    return 0


def _live(newest: _Newest[Shown], picture: Callable[[Shown], Any], console: Any) -> None:
    from rich.live import Live  # noqa: PLC0415  # as above

    with single_keys(), Live(picture(newest.shown), console=console, screen=True, auto_refresh=False) as live:
        while True:
            if quit_within(_TICK_S):
                return
            if newest.error is not None:
                raise newest.error
            live.update(picture(newest.shown), refresh=True)


class _Newest(Generic[Shown]):
    """The latest state; a thread follows it."""

    def __init__(self, first: Shown, follow: Callable[[], Iterator[Shown]]) -> None:
        self._follow = follow
        self.shown = first
        self.error: UllageError | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for shown in self._follow():
                self.shown = shown
        except UllageError as error:
            self.error = error


def _followed(api: Api) -> Iterator[Overview]:
    """Yield overviews. A lost connection is made again for a while; then this raises Unavailable."""
    patience = api.transport.patience()
    while True:
        lost = Unavailable("the connection of the live view was lost")
        try:
            for overview in api.live():
                yield overview
                patience.renew()
        except Unavailable as error:
            lost = error
        patience.wait(lost)


def _picture(overview: Overview) -> Any:
    from rich.console import Group  # noqa: PLC0415  # as above
    from rich.text import Text  # noqa: PLC0415  # as above

    head = f"ullage {overview.server.version}   {show_time(overview.at)}   q quits"
    tables = node_table(overview.nodes), gpu_table(overview.gpus), _sessions(overview)
    return Group(Text(head, style="bold"), Text(show_room(overview.room)), *tables)


def show_room(room: RoomBody) -> str:
    """Return a line such as `idle: 5.5 cards, 9 % of it no likely task can use; room for 5 x 1, 2 x 2 cards`."""
    idle = f"idle: {show_cards(room.idle_milli)}"
    if room.fragments_milli is None:
        more = counted(room.missing, "more task")
        idle += f" ({more} must arrive before fragmentation is estimated)"
    elif room.idle_milli:
        idle += f", {100 * room.fragments_milli / room.idle_milli:.0f} % of it no likely task can use"
    fits = ", ".join(f"{units} x {cards}" for cards, units in room.fits.items())
    return f"{idle}; room for {fits} whole cards" if fits else idle


def node_table(nodes: Iterable[NodeBody], *, users: str = "EXECUTORS") -> Any:
    """Return the nodes as a table for a live view. `users` is the title of what runs on them."""
    rows = [
        (
            node.name,
            node.state,
            f"{show_milli(node.held.cpu_milli)}/{show_milli(node.allocatable.cpu_milli)}",
            f"{show_size(node.held.memory_bytes)}/{show_size(node.allocatable.memory_bytes)}",
            f"{show_milli(node.held.gpu_milli)}/{show_milli(node.allocatable.gpu_milli)}",
            f"{node.executors}/{node.max_executors}",
        )
        for node in nodes
    ]
    return table(("NODE", "STATE", "CPU", "MEM", "GPU", users), rows)


def gpu_table(gpus: Iterable[GpuBody]) -> Any:
    """Return the cards as a table for a live view."""
    rows = [
        (
            f"{gpu.node}/{gpu.index}",
            gpu.model or "-",
            "yes" if gpu.healthy else "no",
            show_free(gpu),
            show_vram(gpu) or "-",
            show_compute(gpu) or "-",
            show_holders(gpu) or "-",
        )
        for gpu in gpus
    ]
    return table(("GPU", "MODEL", "HEALTHY", "FREE", "VRAM", "TFLOPS", "HELD BY"), rows)


def _sessions(overview: Overview) -> Any:
    rows = [
        (
            session.id,
            session.queue,
            session.owner or "-",
            session.activity,
            str(session.pending),
            str(session.running),
            f"{session.held}/{session.deserved}",
            show_age(session.created_at, overview.at),
            session.reason or "-",
        )
        for session in overview.sessions
    ]
    titles = ("SESSION", "QUEUE", "OWNER", "STATE", "PENDING", "RUNNING", "HELD/DESERVED", "AGE", "REASON")
    return table(titles, rows)


def table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Any:
    """Return a table for a live view."""
    from rich.table import Table  # noqa: PLC0415  # as above
    from rich.text import Text  # noqa: PLC0415  # as above

    table = Table(*titles, expand=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # as text: a name is not markup
    return table
