"""What a seed decides: the order of arrivals and the order of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.model.error import InvalidRequest
from ullage.model.node import Node
from ullage.sim.rows import CODE
from ullage.sim.trace import Numbers

UNTIL_PERCENT = 130
"""Arrived load at which the inflation experiment ends, in percent of all cards."""


def inflate(shares_milli: Numbers, cards: Numbers, capacity_milli: int, rng: np.random.Generator) -> Numbers:
    """Return the tasks in the order in which they arrive: the whole trace shuffled, then draws with replacement.

    `shares_milli` is what each task takes of each of its `cards`. The first draw whose share of one card
    would pass the end is the last one looked at, and is left out: what the published curves were made with.

    Raises:
        InvalidRequest: no task asks for a card, so the load would never grow.

    """
    amounts = shares_milli * cards
    if not amounts.any():
        raise InvalidRequest("no task of the trace asks for a card: there is no load to inflate", code=CODE)
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
    """Return a fleet in a random order of nodes: policies break ties by the order of names."""
    ranks = rng.permutation(len(nodes)).tolist()
    return Fleet(replace(node, name=f"{rank:07d}-{node.name}") for rank, node in zip(ranks, nodes, strict=True))
