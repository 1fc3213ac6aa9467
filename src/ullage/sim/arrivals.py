"""The random parts of a run, from a seed: the order of arrivals and of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.model.error import InvalidRequest
from ullage.model.node import Node
from ullage.sim.rows import CODE
from ullage.sim.trace import Numbers

UNTIL_PERCENT = 130
"""Arrived load, in percent of all cards, at which the inflation experiment ends."""


def inflate(shares_milli: Numbers, cards: Numbers, capacity_milli: int, rng: np.random.Generator) -> Numbers:
    """Return the tasks in order of arrival: the whole trace shuffled, then draws with replacement.

    `shares_milli` is the share of each task in each of its `cards`. The draws end, as for the published curves, at
    the first one whose share of one card would exceed the end; it is left out.

    Raises:
        InvalidRequest: no task requests a card, so the load would never grow.

    """
    amounts = shares_milli * cards
    if not amounts.any():
        raise InvalidRequest("no task of the trace requests a card: there is no load to inflate", code=CODE)
    most = UNTIL_PERCENT * capacity_milli // 100
    order: list[int] = rng.permutation(len(amounts)).tolist()
    arrived = int(amounts.sum())
    while arrived <= most:
        drawn = int(rng.integers(len(amounts)))
        if arrived + int(shares_milli[drawn]) > most:
            break
        order.append(drawn)
        arrived += int(amounts[drawn])
    return np.array(order, dtype=np.int64)


def shuffled(nodes: tuple[Node, ...], rng: np.random.Generator) -> Fleet:
    """Return a fleet with its nodes in random order: policies break ties by the order of names."""
    ranks = rng.permutation(len(nodes)).tolist()
    return Fleet(replace(node, name=f"{rank:07d}-{node.name}") for rank, node in zip(ranks, nodes, strict=True))
