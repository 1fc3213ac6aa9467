"""A replay from files to report: which cells there are, and what they say together."""

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

AS_IT_HAPPENED = "as it happened"
_MOST_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class Replay:
    """What to run: every trace under every policy with every seed; under churn with every turn too.

    `against` is a policy of these that the others are compared with, `published` are files of published
    curves by the field they are of (`allocation`, `fragmentation`).
    """

    sources: tuple[TraceSource, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    turns: tuple[Turn, ...] = ()
    against: str | None = None
    published: dict[str, Path] = field(default_factory=dict)

    def cells(self) -> list[ReplayCell]:
        """Return all of them; those of one trace stand together."""
        turns = self.turns or (None,)
        return [
            ReplayCell(source, policy, seed, turn)
            for source in self.sources
            for policy in self.policies
            for turn in turns
            for seed in self.seeds
        ]

    def check(self) -> dict[str, Curves]:
        """Refuse what cannot run, before anything does; the published curves.

        Raises:
            InvalidRequest: a policy is not known, two traces have one name, or a file is wrong.

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
    """What was found, and whether PNG plots were written."""

    tables: list[SummaryTable]
    plotted: bool


def run_replay(
    replay: Replay,
    folder: Path,
    processes: int,
    finished: Callable[[Result, bool], None],
    prepare: Callable[[], object],
) -> ReplayOutcome:
    """Run what the folder does not hold yet, and write the report there.

    `prepare` is called first, in every process that runs a part: it registers strategies from outside.

    Raises:
        InvalidRequest: as `Replay.check` and `run_cells`.

    """
    prepare()
    published = replay.check()
    happened = [_happened(source) for source in replay.sources if source.nodes is None]
    results = [*happened, *run_cells(replay.cells(), folder, processes, finished, prepare=prepare)]
    if replay.turns:
        tables, charts = churn_tables(results), churn_charts(results)
    else:
        tables, charts = inflation_tables(results, replay.against, published), inflation_charts(results)
    return ReplayOutcome(tables, write_report(folder, results, tables, charts))


def _happened(source: TraceSource) -> Result:
    """Return what a server did itself, to compare with what policies would have done."""
    recorded = run_recorded(read_history(source.tasks))
    mode = {"mode": "recorded", "trace": source.name, "policy": AS_IT_HAPPENED, "seed": 0, "turn": None}
    return {**mode, **asdict(recorded)}


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds such as `42..51` or `1,2,7`.

    Raises:
        InvalidRequest: anything else.

    """
    first, dots, last = text.partition("..")
    numbers = [first, last] if dots else text.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise invalid("--seeds", text, "write a range such as 42..51, or numbers such as 1,2,7")
    seeds = range(int(first), int(last) + 1) if dots else dict.fromkeys(map(int, numbers))
    if not 0 < len(seeds) <= _MOST_SEEDS:
        raise invalid("--seeds", text, f"1 to {_MOST_SEEDS} seeds are needed")
    return tuple(seeds)
