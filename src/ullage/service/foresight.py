"""When waiting sessions start: a range from simulated futures.

If the real start and those of n futures were equally likely in any order, the real one would lie between the first and
the last of n with the chance (n - 1) / (n + 1): 9 times of 10 for 19 futures. But futures do not know what users will
do: on replayed days (`make bench ARGS=starts`) about 8 of 10 starts lay in the range. That is what an estimate states.

Some futures may end before a session starts in them: they cost too much, or what it waits for is not foreseen. Its
start is then taken to be after all others, so the range is that of the others, and its chance is less by their part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ullage.core.verdict.sentences import CURES, MEANINGS
from ullage.model.counted import counted
from ullage.model.rejection import Cure
from ullage.service.future import Future, FutureStarts, Present

CONFIDENCE = 0.8
"""How often the real start lies in the range."""

RUNS = 19
"""Futures of an estimate; its range is that of their starts."""

MOST_WORK = 100_000
"""The work of the futures of an estimate together (see `FutureStarts`): they take some seconds."""


MOST_WAITING = 500
"""Sessions of the queue that are looked at, by priority and number; Slurm looks at as many (bf_max_job_test)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a session gets its first executor: as likely before as after `at`, and from `earliest` to `latest`.

    It lies in the range with the chance `confidence`. All are None where less than half of the futures know it; `text`
    says why, or what the estimate is based on.
    """

    at: float | None = None
    earliest: float | None = None
    latest: float | None = None
    confidence: float | None = None
    text: str = ""


def foresee(present: Present, sessions: Iterable[str]) -> dict[str, Estimate]:
    """Return the estimates for these sessions, which wait."""
    names = set(sessions)
    wanted = frozenset(names & present.prospects.keys())
    beyond = Estimate(text=f"no estimate: {MOST_WAITING} sessions wait before it, and no more are looked at")
    found = dict.fromkeys(names - wanted, beyond)
    if not wanted:
        return found
    futures = [Future(present, seed).run(wanted, MOST_WORK // RUNS) for seed in range(RUNS)]
    unknown = sum(not each.durations.known for each in present.prospects.values())
    judge = Judge(present, futures, unknown)
    return found | {name: judge.estimate(name) for name in wanted}


@dataclass(frozen=True, slots=True)
class Judge:
    """Makes estimates of the starts in futures of one present."""

    present: Present
    futures: Sequence[FutureStarts]
    unknown: int
    """Sessions of whose tasks nothing is known. They may be hidden from a reader, so they are not named."""

    def estimate(self, name: str) -> Estimate:
        starts = sorted(each.started[name] for each in self.futures if name in each.started)
        runs = len(self.futures)
        if len(starts) <= runs // 2:
            return Estimate(text=f"no estimate: {self._reason(name)}")
        earliest, *_, latest = starts
        arrivals = f", and {len(self.present.arrivals)} past arrivals" if self.present.arrivals else ""
        later = f"; in {runs - len(starts)} of them it starts later than that, or never" if len(starts) < runs else ""
        text = f"from {runs} simulated futures of the queue, with {self.present.source}{arrivals}{later}"
        confidence = round(CONFIDENCE * (len(starts) - 1) / (runs - 1), 1)
        return Estimate(at=starts[runs // 2], earliest=earliest, latest=latest, confidence=confidence, text=text)

    def _reason(self, name: str) -> str:
        """Return why a session is not foreseen to start."""
        missed = [each for each in self.futures if name not in each.started]
        codes = {each.waiting[name] for each in missed if name in each.waiting}
        never = sorted(code for code in codes if CURES.get(code) in (Cure.NODE_CHANGE, Cure.NEVER))
        if never:
            return MEANINGS[never[0]]
        cuts = [each.cut_at - self.present.now for each in missed if each.cut_at is not None]
        if len(cuts) == len(missed):
            share = f"{len(missed)} of {len(self.futures)} futures"
            return f"in {share} it does not start within the {min(cuts) / 60:,.0f} minutes that can be foreseen"
        if self.unknown:
            tasks = f"the tasks of {counted(self.unknown, 'session')}"
            return f"nothing is known of how long {tasks} run, and they have no time limit"
        return "what it waits for is not foreseen to end"
