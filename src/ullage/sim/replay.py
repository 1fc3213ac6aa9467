"""A replay from files to report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ullage.model.error import invalid
from ullage.sim.cells import ReplayCell, Result, TraceSource, run_cells
from ullage.sim.journal import read_history
from ullage.sim.placing import policy_named
from ullage.sim.published import Curves, read_curves
from ullage.sim.recorded import run_recorded
from ullage.sim.report import write_report
from ullage.sim.summary import SummaryTable, churn_charts, churn_tables, inflation_charts, inflation_tables
from ullage.sim.waiting import Turn

RECORDED = "recorded"
_MOST_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class Replay:
    """Runs of every trace under every policy with every seed, and under churn with every turn.

    `against` is the policy that the others are compared with. `published` are files of published curves by field
    (`allocation`, `fragmentation`).
    """

    sources: tuple[TraceSource, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    turns: tuple[Turn, ...] = ()
    against: str | None = None
    published: dict[str, Path] = field(default_factory=dict)

    def cells(self) -> list[ReplayCell]:
        """Return all cells. Those of one trace follow each other."""
        turns = self.turns or (None,)
        return [
            ReplayCell(source, policy, seed, turn)
            for source in self.sources
            for policy in self.policies
            for turn in turns
            for seed in self.seeds
        ]

    def check(self) -> dict[str, Curves]:
        """Check the settings before the first run. Return the published curves.

        Raises:
            InvalidRequest: a policy is unknown, two traces have one name, or a file is malformed.

        """
        for policy in self.policies:
            policy_named(policy, "--policy")
        if self.against is not None and self.against not in self.policies:
            raise invalid("--against", self.against, f"name one of the policies that run: {', '.join(self.policies)}")
        names = [source.name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise invalid("--tasks", twice, "each list of tasks needs a file name of its own")
        return {name: read_curves(path) for name, path in self.published.items()}


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The tables of a replay, and whether PNG plots were written."""

    tables: list[SummaryTable]
    plotted: bool


def run_replay(
    replay: Replay,
    folder: Path,
    processes: int,
    finished: Callable[[Result, bool], None],
    prepare: Callable[[], object],
) -> ReplayOutcome:
    """Run the cells that the folder lacks, and write the report there.

    `prepare` is called first in every process: it registers strategies of other packages.

    Raises:
        InvalidRequest: as `Replay.check` and `run_cells`.

    """
    prepare()
    published = replay.check()
    recorded = [_recorded(source) for source in replay.sources if source.nodes is None]
    results = [*recorded, *run_cells(replay.cells(), folder, processes, finished, prepare=prepare)]
    if replay.turns:
        tables, charts = churn_tables(results), churn_charts(results)
    else:
        tables, charts = inflation_tables(results, replay.against, published), inflation_charts(results)
    return ReplayOutcome(tables, write_report(folder, results, tables, charts))


def _recorded(source: TraceSource) -> Result:
    """Return the measures of the server itself, for comparison with the policies."""
    settings = {"mode": "recorded", "trace": source.name, "policy": RECORDED, "seed": 0, "turn": None}
    return {**settings, **asdict(run_recorded(read_history(source.tasks)))}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `42..51` or `1,2,7`.

    Raises:
        InvalidRequest: the text has another form.

    """
    first, dots, last = text.partition("..")
    numbers = [first, last] if dots else text.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise invalid("--seeds", text, "write a range such as 42..51, or numbers such as 1,2,7")
    seeds = range(int(first), int(last) + 1) if dots else dict.fromkeys(map(int, numbers))
    if not 0 < len(seeds) <= _MOST_SEEDS:
        raise invalid("--seeds", text, f"1 to {_MOST_SEEDS} seeds are needed")
    return tuple(seeds)
