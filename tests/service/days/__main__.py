"""Run days in several processes, report each violation with its seed, and say what the days came to."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.service.days.day import run_days
from tests.service.days.tally import Tally


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.service.days")
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--first", type=int, default=1, help="the seed of the first day")
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long a day is")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    total, began = Tally(), time.monotonic()
    one = partial(_one, given.seconds)
    with ProcessPoolExecutor(given.jobs, initializer=_begin) as pool:
        for tally in pool.map(one, range(given.first, given.first + given.days), chunksize=5):
            total.add(tally)
            sys.stdout.writelines(f"{violation}\n" for violation in tally.violations)
            if not total.days % 100:
                sys.stdout.write(f"{total}\n")
            sys.stdout.flush()
    kinds = Counter(text.split(": ", 1)[1].split(" ")[-1] for text in total.violations)
    sys.stdout.write(
        f"{total}; in {time.monotonic() - began:.0f} s; {len(total.violations)} violations {dict(kinds)}\n"
    )
    sys.exit(bool(total.violations))


def _begin() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _one(seconds: float, seed: int) -> Tally:
    return run_days([seed], seconds)


if __name__ == "__main__":
    main()
