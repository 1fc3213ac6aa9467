"""How often sessions really start in the range that was estimated, on random days.

`python -m tests.service.start_days --days 100` prints the figures of days without disturbances, and of days on which
nodes are cordoned and lost, executors killed, priorities changed, tasks added and sessions cancelled.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.service.days.day import Day
from tests.service.days.tally import Tally

from ullage.model.history import HistoryQuery, PastState
from ullage.service.foresight import Estimate

LEARNT_S = 1200.0
"""Seconds of a day after which estimates are made: nothing is known before."""


class ForetoldDay(Day):
    """A day on which the starts of waiting sessions are estimated, at most `most` times."""

    def __init__(self, seed: int, path: str, *, quiet: bool, most: int) -> None:
        super().__init__(seed, Tally(), path)
        self.quiet, self.most = quiet, most
        self.estimates: dict[str, Estimate] = {}
        self.agenda.after(LEARNT_S, self._foretell_again)

    def _foretell_again(self) -> None:
        service, states = self.service, (PastState.SUCCEED, PastState.FAILED)
        waiting = [name for name in service.starts.waiting() if name not in self.estimates]
        if waiting and len(self.estimates) < self.most:
            past = self.store.history(HistoryQuery(states=states, limit=10_000), self.now)
            self.estimates |= service.starts.estimating(waiting, past)()
        self.agenda.after(300.0, self._foretell_again)

    def _disturb(self) -> None:
        if not self.quiet:
            super()._disturb()

    def _leave(self) -> None:
        if not self.quiet:
            super()._leave()

    def _more(self) -> None:
        if not self.quiet:
            super()._more()


def outcome(estimate: Estimate, started_at: float | None, end: float) -> str:
    """Return how an estimate turned out; one whose end is not known by the end of the day does not count."""
    if estimate.at is None or estimate.earliest is None:
        return "none"
    if started_at is None:
        return "open" if estimate.latest is None or end <= estimate.latest else "later"
    if started_at < estimate.earliest - 1:
        return "earlier"
    return "inside" if estimate.latest is None or started_at <= estimate.latest + 1 else "later"


def foretold(seed: int, *, quiet: bool, seconds: float, most: int) -> Counter[str]:
    """Return how the estimates of a day turned out."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "state.db")
        day = ForetoldDay(seed, path, quiet=quiet, most=most)
        real: dict[str, float | None] = {}

        def remember() -> None:
            rows = day.store.history(HistoryQuery(limit=10_000), day.now)
            real.update({row.history.session: row.history.started_at for row in rows})

        day.agenda.after(seconds - 1.0, remember)
        day.run(seconds)
        return Counter(outcome(each, real.get(name), seconds) for name, each in day.estimates.items())


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--most", type=int, default=8)
    asked = parser.parse_args()
    for quiet in (True, False):
        found: Counter[str] = Counter()
        for seed in range(asked.first, asked.first + asked.days):
            found += foretold(seed, quiet=quiet, seconds=asked.seconds, most=asked.most)
            judged = found["inside"] + found["earlier"] + found["later"]
            share = found["inside"] / judged if judged else 0.0
            kind = "quiet" if quiet else "disturbed"
            sys.stdout.write(f"{kind} days to {seed}: {share:.0%} of {judged} inside; {dict(found)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
