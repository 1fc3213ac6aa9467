"""Prices of the room that scarce tasks need, by which a placement that takes such room is charged.

Prices are in thousandths of a card (milli). They depend on the whole cluster and change with every placement. How
much of each good a placement takes depends on the node only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.task_class import CARDS, CPU, MODELS, SHARE, WHOLE, Classes, Mix, Popularity

Amounts = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_MANY = 30
"""Counts above this need no exact sum."""

_CHEAP = 1e-9
"""Lower prices are set to 0: they would decide between equal nodes by rounding."""

_PART = 0.02
"""The worth of a slot of a part of a card, relative to its share."""

_BARE = 0.07
"""The worth of a slot of a task without cards, relative to the cards that go with the CPU of a mean such task."""


@compiled
def poisson_at_least(mean: float, count: int) -> float:
    """Return P(N >= count) for Poisson N: exact up to a few dozen, then within 0.0002; 0 or 1 beyond 8 deviations.

    For large counts it is the probability that a gamma-distributed time is over; the cube root of the time is nearly
    normal (Wilson and Hilferty, 1931).
    """
    if count <= 0:
        return 1.0
    if mean <= 0.0:
        return 0.0
    spread = 8.0 * math.sqrt(mean) + 8.0
    if count > mean + spread:
        return 0.0
    if count < mean - spread:
        return 1.0
    if count > _MANY:
        ninth = 1.0 / (9.0 * count)
        return normal_above((mean / count) ** (1.0 / 3.0), ninth, 1.0 - ninth)
    term = math.exp(-mean)
    fewer = term
    for at in range(1, count):
        term *= mean / at
        fewer += term
    return max(0.0, 1.0 - fewer)


@compiled
def normal_above(mean: float, variance: float, limit: float) -> float:
    """Return P(D > limit) for normal D; without variance it is a step at the mean."""
    if variance <= 0.0:
        return 1.0 if mean > limit else 0.0
    return 0.5 * math.erfc((limit - mean) / math.sqrt(2.0 * variance))


@compiled
def slots(cpu_free: int, roomy: int, cpu: int, cards: int) -> int:
    """Return how many tasks of (cpu, cards) a node holds with `roomy` cards that have the share (cards >= 1)."""
    held = roomy // cards
    if held > 0 and cpu > 0:
        held = min(held, cpu_free // cpu)
    return int(max(held, 0))


@compiled
def slots_of(task: Counts, cpu_free: int, roomy: int) -> int:
    """Return the same for a row of task classes."""
    return slots(cpu_free, roomy, task[CPU], task[CARDS])


def _others(classes: Classes, known: Classes) -> Classes:
    """Return the classes that are not known."""
    found: Classes = classes[~(classes[:, None] == known[None, :]).all(axis=2).any(axis=1)]
    return found


class Scarce(NamedTuple):
    """Classes whose slots have a price, the popularity of those that compete for a slot, and the worth of a slot."""

    classes: Classes
    rate: Popularity
    value: Amounts


def scarce(mix: Mix, seen: int, invited: Classes | None = None) -> Scarce:
    """Return the classes of which a card or a node holds few: several cards, or a part of more than half a card.

    A slot of several cards is worth those cards, one of a part a fiftieth of its share. That decides between near
    equals; without it parts of nearly a card may fail early where all tasks are parts. Classes compete for a slot if
    they need as many cards and at least as much of everything else. They may be more popular than among the `seen`
    tasks, by a standard deviation. While the workload is learned live, tasks of `invited` classes may arrive though
    none has, and one more of each class than arrived.
    """
    parts = (mix.classes[:, SHARE] > WHOLE // 2) & (mix.classes[:, SHARE] < WHOLE)
    known = mix.classes[(mix.classes[:, CARDS] > 1) | parts]
    classes = known if invited is None else np.concatenate([known, _others(invited, known)])
    cpu, share, cards, models = (mix.classes[:, column][None, :] for column in (CPU, SHARE, CARDS, MODELS))
    rival = (cards == classes[:, CARDS, None]) & (cpu >= classes[:, CPU, None]) & (share >= classes[:, SHARE, None])
    rival &= (models & ~classes[:, MODELS, None]) == 0
    came = rival @ mix.popularity * seen
    rate = (came + np.sqrt(came) + (invited is not None)) / seen
    worth = np.where(classes[:, CARDS] > 1, 1.0, _PART)
    return Scarce(classes, rate, worth * classes[:, SHARE] * classes[:, CARDS])


@compiled
def slot_prices(rate: Popularity, value: Amounts, free: Counts | Amounts, arrivals: float, prices: Amounts) -> None:
    """Write the price of one slot of each scarce class (expected marginal seat revenue).

    `free` is the number of slots of the class in the cluster, `arrivals` the number of tasks expected until it is
    full. The price is the worth of a slot times the probability that all slots are requested: 0 while slots are
    plentiful, and 0 when few tasks are expected.
    """
    for row in range(rate.shape[0]):
        price = value[row] * poisson_at_least(arrivals * rate[row], int(free[row]))
        prices[row] = price if price > _CHEAP else 0.0


@compiled
def most_wanted(prices: Amounts, dear: Counts) -> int:
    """Write which goods have a price, and return their number."""
    count = 0
    for good in range(prices.shape[0]):
        if prices[good] > 0.0:
            dear[count] = good
            count += 1
    return count


@compiled
def slot_cost(
    classes: Classes,
    prices: Amounts,
    dear: Counts,
    held: Counts,
    roomy: Counts,
    cpu_left: int,
    share: int,
    cards: int,
    room: int,
    enough: float,
) -> float:
    """Return the worth of the slots that a task of (share, cards) takes from the node: that of the dearest class.

    `dear` are the classes that have a price. Per class, `held` is the number of its tasks that the node holds, and
    `roomy` the number of cards with its share free. `cpu_left` is the CPU of the node afterwards, `room` the free
    share of the card for a part (1000 for whole cards). A result of at least `enough` may be too low.
    """
    dearest = 0.0
    for row in dear:
        before = held[row]
        if prices[row] * before <= dearest:
            continue
        after, needed = before, classes[row, CPU]
        if room >= classes[row, SHARE] > room - share:
            after = min(after, (roomy[row] - cards) // classes[row, CARDS])
        if needed and after * needed > cpu_left:
            after = cpu_left // needed
        dearest = max(dearest, prices[row] * (before - after))
        if dearest >= enough:
            break
    return dearest


class Bare(NamedTuple):
    """Sizes in milli CPU of tasks without cards, the popularity of at least that size, and the worth of a slot."""

    sizes: Counts
    rate: Popularity
    value: Amounts


def bare(mix: Mix, cards_per_cpu: float) -> Bare:
    """Return the tasks without cards, smallest first, for a fleet with so many thousandths of cards per milli CPU.

    Their slots are those expected to be left when tasks with cards have filled the nodes: what `leftover` writes
    after the idle cards. All slots are worth the same, because the aim is not to drop tasks. With a worth of 0 they
    are dropped for tasks with cards; with twice as much, tasks with cards fail early instead.
    """
    classes = mix.classes
    plain = (classes[:, CARDS] == 0) & (classes[:, CPU] > 0)
    sizes = np.unique(classes[plain, CPU])
    rate = (classes[None, plain, CPU] >= sizes[:, None]) @ mix.popularity[plain]
    mean_cpu = classes[plain, CPU] @ mix.popularity[plain] / max(_CHEAP, mix.popularity[plain].sum())
    return Bare(sizes, rate, np.full(len(sizes), _BARE * cards_per_cpu * mean_cpu))


@compiled
def bare_cost(prices: Amounts, lost: Counts) -> float:
    """Return the worth of the slots without cards that a placement takes, `lost` per size: that of the dearest size."""
    dearest = 0.0
    for row in range(prices.shape[0]):
        dearest = max(dearest, prices[row] * lost[row])
    return dearest


class NamedSets(NamedTuple):
    """Sets of models that tasks require, with mean and variance of what one arriving task needs of each (milli)."""

    sets: Counts
    mean: Amounts
    variance: Amounts


def named(mix: Mix, models: int) -> NamedSets:
    """Return the sets that classes name, of `models` models; the need for a set is that of all classes within it."""
    every = (1 << models) - 1
    sets = np.unique(mix.classes[:, MODELS] & every)
    sets = sets[(sets != every) & (sets != 0)]
    within = (mix.classes[:, MODELS][None, :] & every & ~sets[:, None]) == 0
    size = (mix.classes[:, SHARE] * mix.classes[:, CARDS]).astype(np.float64)
    return NamedSets(sets, within @ (mix.popularity * size), within @ (mix.popularity * size * size))


@compiled
def model_prices(
    sets: Counts, mean: Amounts, variance: Amounts, usable: Amounts, mean_size: float, prices: Amounts
) -> None:
    """Write, per model, the price of a thousandth of one of its cards, 0 to 1.

    `usable` is, per model, what is idle less the expected leftover; `mean_size` what one arriving task needs of
    cards. As many tasks are expected as all usable room holds. The price of a set is the probability that the tasks
    which require it need more than it has; the price of a model is that of its dearest set.
    """
    prices[:] = 0.0
    total = 0.0
    for room in usable:
        total += room
    tasks = max(total, 0.0) / mean_size
    for row in range(sets.shape[0]):
        room = 0.0
        for model in range(usable.shape[0]):
            if (sets[row] >> model) & 1:
                room += usable[model]
        price = normal_above(tasks * mean[row], tasks * variance[row], room)
        for model in range(usable.shape[0]):
            if (sets[row] >> model) & 1:
                prices[model] = max(prices[model], price)
