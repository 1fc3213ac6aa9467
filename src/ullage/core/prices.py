"""What it costs everybody else when a placement takes room that scarce tasks need.

Prices are in thousandths of a card (milli). They depend on the whole cluster and change with every
placement; what a placement takes of each priced good depends on the node only.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.task_class import CARDS, CPU, MODELS, SHARE, Classes, Popularity

Amounts = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_NEGLIGIBLE = 1e-18
"""Terms of a sum of probabilities below this do not change it."""


@compiled
def poisson_at_least(mean: float, count: int) -> float:
    """P(N >= count) for Poisson N. Beyond 8 standard deviations it is 0 or 1."""
    if count <= 0:
        return 1.0
    if mean <= 0.0:
        return 0.0
    spread = 8.0 * math.sqrt(mean) + 8.0
    if count > mean + spread:
        return 0.0
    if count < mean - spread:
        return 1.0
    # The smaller tail, from the term at its edge outwards: terms shrink, so it stops early.
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1.0))
    total = 0.0
    if count > mean:
        at = count
        while term > _NEGLIGIBLE:
            total += term
            at += 1
            term *= mean / at
        return min(1.0, total)
    at = count
    while at > 0:
        term *= at / mean
        at -= 1
        total += term
        if term < _NEGLIGIBLE:
            break
    return max(0.0, 1.0 - total)


@compiled
def normal_above(mean: float, variance: float, limit: float) -> float:
    """P(D > limit) for normal D; without variance it is a step at the mean."""
    if variance <= 0.0:
        return 1.0 if mean > limit else 0.0
    return 0.5 * math.erfc((limit - mean) / math.sqrt(2.0 * variance))


@compiled
def slots(cpu_free: int, idle_cards: int, cpu: int, cards: int) -> int:
    """How many tasks of (cpu, cards whole cards) a node with that much free would hold (cards >= 1)."""
    held = idle_cards // cards
    if held > 0 and cpu > 0:
        held = min(held, cpu_free // cpu)
    return int(max(held, 0))


def competing(classes: Classes, popularity: Popularity) -> Popularity:
    """Per class: how popular are the classes of as many cards, as much CPU and no model more than it (with itself)."""
    cpu, cards, models = classes[:, CPU], classes[:, CARDS], classes[:, MODELS]
    rival = (cards[None, :] == cards[:, None]) & (cpu[None, :] >= cpu[:, None])
    rival &= (models[None, :] & ~models[:, None]) == 0
    found: Popularity = rival @ popularity
    return found


@compiled
def wide_prices(wide: Classes, rate: Popularity, free: Counts, arrivals: float, prices: Amounts) -> None:
    """Writes the price of one slot of each wide class (expected marginal seat revenue).

    `rate` is `competing` of the class, `free` its free slots in the cluster, `arrivals` how many tasks
    are expected until the cluster is full. A slot costs what the class uses times the chance that
    all slots will be asked for: nothing while slots are plentiful, and nothing when few tasks are to come.
    """
    for row in range(wide.shape[0]):
        chance = poisson_at_least(arrivals * rate[row], free[row])
        prices[row] = wide[row, SHARE] * wide[row, CARDS] * chance
