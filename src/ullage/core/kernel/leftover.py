"""Expected leftover: what is left of a node when tasks keep arriving.

A node is offered tasks drawn from the workload, one after the other. A task that fits is placed: a part on the
best-fitting card, whole cards on idle ones. A fill ends after `patience` offers in a row that placed no task with
cards, or once the node has less CPU, or no card with as much share, as any class with cards needs. Leftover is the
mean of what is then idle, over many fills; so is the number of tasks without cards that the remaining CPU would hold.
Sums stand for means. Each state of a node gets the same draws (common random numbers), so differences between states
are not noise. The result is exact integer arithmetic: the same on every machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.task_class import CARDS, CPU, MODELS, SHARE, WHOLE, Cards, Classes, Popularity

Draws = npt.NDArray[np.int32]
"""One row per fill, one column per offer: the offered task class."""

_LENGTH = 256
"""Offers per fill before its draws repeat."""

_IDLE, _TASKS = 0, 1
"""In the result: idle thousandths of cards; then the number of tasks of each size."""


def stratified_draws(popularity: Popularity, fills: int, seed: int) -> Draws:
    """Return draws for `fills` fills: among the n-th offers of all fills each quantile of popularity occurs once.

    They are the same on every machine and version, because they use only the raw 64-bit output of PCG64.
    """
    raw = np.random.PCG64(seed).random_raw(2 * fills * _LENGTH).reshape(2, _LENGTH, fills)
    quantile = np.argsort(raw[0], axis=1, kind="stable")
    within = (raw[1] >> np.uint64(11)) * 2.0**-53
    edges = np.cumsum(popularity)
    drawn = np.searchsorted(edges / edges[-1], (quantile + within) / fills, side="right")
    return np.ascontiguousarray(np.minimum(drawn, len(popularity) - 1).T, dtype=np.int32)


@compiled
def sort_into(room: Cards, shares: Cards) -> None:
    """Write the shares in ascending order."""
    for card in range(shares.shape[0]):
        at = card
        while at > 0 and room[at - 1] > shares[card]:
            room[at] = room[at - 1]
            at -= 1
        room[at] = shares[card]


@compiled
def leftover(  # noqa: C901, PLR0912 - the innermost loop of the policy: calls and arrays would cost half of it
    cpu_free: int,
    shares: Cards,
    model: int,
    classes: Classes,
    draws: Draws,
    patience: int,
    sizes: Cards,
    scratch: Cards,
    left_over: Cards,
) -> None:
    """Add the sums over all fills: the idle thousandths of cards, then per size how many such tasks still fit.

    `sizes` are milli CPU (above 0) of tasks without cards, and may be empty. `scratch` has room for two such nodes.
    """
    least_cpu, least_share = cpu_free + 1, WHOLE + 1
    for row in range(classes.shape[0]):
        if classes[row, CARDS] > 0 and (classes[row, MODELS] >> model) & 1:
            least_cpu = min(least_cpu, classes[row, CPU])
            least_share = min(least_share, classes[row, SHARE])
    first, total = 0, shares.shape[0]
    room, left = scratch[:total], scratch[total : 2 * total]
    sort_into(room, shares)
    while first < total and room[first] == 0:
        first += 1
    for fill in range(draws.shape[0]):
        size = total - first
        for at in range(size):
            left[at] = room[first + at]
        cpu = cpu_free
        offer = waited = 0
        while waited < patience and size > 0 and cpu >= least_cpu and left[size - 1] >= least_share:
            task = classes[draws[fill, offer & (_LENGTH - 1)]]
            offer += 1
            waited += 1
            if cpu < task[CPU]:
                continue
            cards, share = task[CARDS], task[SHARE]
            if cards == 0:
                cpu -= task[CPU]
                continue
            if not (task[MODELS] >> model) & 1 or left[size - 1] < share:
                continue
            if share == WHOLE:
                if cards > size or left[size - cards] < WHOLE:
                    continue
                size -= cards
            else:
                at = 0
                while left[at] < share:
                    at += 1
                rest = left[at] - share
                while at > 0 and left[at - 1] > rest:
                    left[at] = left[at - 1]
                    at -= 1
                left[at] = rest
            cpu -= task[CPU]
            waited = 0
        for at in range(size):
            left_over[_IDLE] += left[at]
        for at in range(sizes.shape[0]):
            left_over[_TASKS + at] += int(cpu / sizes[at])  # exact: far from 2**53
