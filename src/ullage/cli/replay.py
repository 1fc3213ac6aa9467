"""`ullage replay`: compare policies on a trace."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.cli.output import DATA, FORMATS, print_data
from ullage.cli.table import format_table, terminal_width
from ullage.model.error import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from ullage.sim.replay import Replay

NEEDED = ("numba", "numpy")
"""Packages of the `replay` extra that every replay needs."""

INSTALL = "pip install 'ullage[replay]'"


def configure_replay(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=Path, metavar="FILE", help="the machines: a node list of openb, or of docs/reference/traces.md")
    add("--tasks", type=Path, metavar="FILE", nargs="+", help="the tasks: each file is one trace")
    add("--queues", type=Path, metavar="FILE", help="weights, parents and priorities of queues, for --churn")
    add("--from", type=Path, metavar="JOURNAL", dest="journal", help="the state.db of a server, or its saved events")
    add("--policy", metavar="NAME", nargs="+", default=["best-fit"], help=_policies())
    add("--seeds", metavar="LIST", default="42..51", help="orders of arrivals and nodes (default: 42..51)")
    add("--churn", action="store_true", help="tasks arrive and end at their own times, instead of inflating the load")
    add("--turn", choices=("fifo", "priority", "drf"), nargs="+", help="queueing order under churn (default: fifo)")
    add("--first", type=int, metavar="N", help="only the N earliest tasks of each trace")
    add("--against", metavar="NAME", help="compare the other policies with this one, seed by seed")
    add("--published", type=Path, metavar="FILE", help="compare with published curves of allocation")
    add("--published-frag", type=Path, metavar="FILE", help="compare with published curves of fragmentation")
    add("--out", type=Path, metavar="FOLDER", default=Path("replay"), help="for results and plots (default: replay)")
    add("--processes", type=int, metavar="N", default=os.cpu_count() or 1, help="how many (default: one per core)")
    add("-o", "--output", choices=FORMATS, default="table", help="how to show the tables")
    parser.set_defaults(act=_replay)


def _policies() -> str:
    from ullage.bootstrap.strategies import installed_strategies  # noqa: PLC0415 - for this verb only

    others = " ".join(installed_strategies())
    return "strategies, such as best-fit spread" + (f"; from other packages: {others}" if others else "")


def _replay(arguments: argparse.Namespace) -> int:
    require_packages()
    from ullage.bootstrap.strategies import load_strategies  # noqa: PLC0415 - NumPy and the core, for this verb only
    from ullage.sim.replay import run_replay  # noqa: PLC0415 - as above

    replay = _replay_of(arguments)
    folder: Path = arguments.out
    cells = len(replay.cells())
    with _progress(cells) as finished:
        outcome = run_replay(replay, folder, arguments.processes, finished, prepare=load_strategies)
    show_tables(outcome.tables, arguments.output)
    note_report(folder, plotted=outcome.plotted)
    return 0


def _replay_of(arguments: argparse.Namespace) -> Replay:
    from ullage.sim.cells import TraceSource  # noqa: PLC0415  heavy, and needed only here
    from ullage.sim.replay import Replay, parse_seeds  # noqa: PLC0415  heavy, and needed only here
    from ullage.sim.waiting import Turn  # noqa: PLC0415  heavy, and needed only here

    journal, files = arguments.journal, (arguments.nodes, arguments.tasks)
    if (journal is None and None in files) or (journal is not None and files != (None, None)):
        raise InvalidRequest("give --nodes and --tasks, or --from with a journal")
    for name in ("first", "processes"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise InvalidRequest(f"--{name}: {value} is not valid: 1 or more is needed")
    churn = arguments.churn or journal is not None
    if arguments.turn and not churn:
        raise InvalidRequest("--turn needs --churn: in the inflation experiment nothing waits")
    if arguments.queues is not None and (not arguments.churn or journal is not None):
        raise InvalidRequest("--queues needs --tasks and --churn: it sets the order of waiting tasks")
    published = {"allocation": arguments.published, "fragmentation": arguments.published_frag}
    return Replay(
        sources=(
            tuple(TraceSource(arguments.nodes, tasks, arguments.first, arguments.queues) for tasks in arguments.tasks)
            if journal is None
            else (TraceSource(None, _exported(journal, arguments.out)),)
        ),
        policies=tuple(dict.fromkeys(arguments.policy)),
        seeds=parse_seeds(arguments.seeds),
        turns=tuple(map(Turn, dict.fromkeys(arguments.turn or ["fifo"]))) if churn else (),
        against=arguments.against,
        published={field: path for field, path in published.items() if path is not None},
    )


def _exported(journal: Path, folder: Path) -> Path:
    from ullage.bootstrap.journal import export_journal  # noqa: PLC0415  heavy, and needed only here

    return export_journal(journal, folder)


def require_packages() -> None:
    """Check that the packages of a replay are installed.

    Raises:
        Unavailable: `not-installed`.

    """
    from importlib.util import find_spec  # noqa: PLC0415  heavy, and needed only here

    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise Unavailable(f"{', '.join(missing)} not installed: {INSTALL}", code="not-installed")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[dict[str, Any], bool], None]]:
    """Show progress on stderr: a bar on a terminal, a line per finished cell elsewhere."""
    if not sys.stderr.isatty():
        done = 0

        def print_line(result: dict[str, Any], cached: bool) -> None:
            nonlocal done
            done += 1
            print(f"{done}/{total} {_cell(result)}{' (cached)' if cached else ''}", file=sys.stderr, flush=True)

        yield print_line
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and needed only here
    from rich.progress import Progress  # noqa: PLC0415  heavy, and needed only here

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda result, _cached: bar.update(task, advance=1, description=_cell(result))


def _cell(result: dict[str, Any]) -> str:
    return f"{result['trace']} {result['policy']} {result['seed']}: {result['seconds']:.1f} s"


def show_tables(tables: Sequence[Any], output: str) -> None:
    """Print the tables of a replay."""
    if output in DATA:
        print_data([{"title": table.title, "titles": table.titles, "rows": table.rows} for table in tables], output)
        return
    width = None if output == "wide" else terminal_width()
    for table in tables:
        titles = [title.upper() for title in table.titles]
        print(f"{table.title}\n{format_table(titles, table.rows, width)}")


def note_report(folder: Path, *, plotted: bool) -> None:
    """Print the paths of the report on stderr."""
    print(f"{folder / 'index.html'} shows the curves; the tables are in table.md and results.jsonl", file=sys.stderr)
    if not plotted:
        print(f"no PNG plots were written: matplotlib is not installed: {INSTALL}", file=sys.stderr)
