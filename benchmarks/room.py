"""Room for wide work on a fleet that is broken up, and learning the workload background: what each takes, by nodes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.evicting.consolidation import consolidate
from ullage.core.evicting.moves import Consolidation
from ullage.core.learning.fragmentation import fits_now, fragments_of
from ullage.core.learning.learned import Learning
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

TEXTS = ("cpu=2,gpu=0.2", "cpu=2,gpu=0.3", "cpu=2,gpu=0.5", "cpu=4,gpu=1", "cpu=4,gpu=1", "cpu=8,gpu=2", "cpu=16,gpu=4")
SIZES = (100, 1000)
FILL = 0.7
"""Part of the cards that is held."""

LEARNED = 20
"""Requests, the first ones, that go by the strategy that learns."""


class Background:
    """Work that is learned by, done when it is timed."""

    def __init__(self) -> None:
        self.work: Callable[[], Any] | None = None
        self.take: Callable[[Any], None] | None = None

    def __call__(self, work: Callable[[], Any], take: Callable[[Any], None]) -> None:
        """Keep it for later."""
        self.work, self.take = work, take


def main() -> None:
    for size in SIZES:
        books, background = broken_up(size)
        print(f"{size} nodes x 8 cards, {len(books.fleet.ledger)} allocations, {FILL:.0%} of the cards held")
        for text, units in (("gpu=8,cpu=8", 1), ("gpu=8,cpu=8", size // 50), ("gpu=4,cpu=8", size // 20)):
            make_room(books, text, units)
        learn(books, background)


def make_room(books: FleetAllocator, text: str, units: int) -> None:
    wanted = Request("wide", ResourceRequirement.from_string(text))
    consolidate(books.fleet, books.rules, wanted, 1, now=0.0)  # compiled, and its tables made
    seconds, found = timed(consolidate, books.fleet, books.rules, wanted, units, 0.0)
    reported = f"{found.cost.number} moves" if isinstance(found, Consolidation) else "no plan"
    print(f"  room for {units:3} x {text}: {seconds * 1e3:7.1f} ms ({reported})")


def learn(books: FleetAllocator, background: Background) -> None:
    assert background.work is not None
    assert background.take is not None
    seconds, strategy = timed(background.work)
    print(f"  leftover made ready for an estimate, background: {seconds * 1e3:.1f} ms")
    background.take(strategy)
    first = Request("first", ResourceRequirement.from_string(TEXTS[0]), strategy="leftover")
    print(f"  the first decision after it: {timed(books.alloc, first, 0.0)[0] * 1e3:.2f} ms")
    assert books.learning.workload is not None
    seconds, fragments = timed(fragments_of, books.fleet, books.learning.workload)
    print(f"  fragmentation of all nodes: {(seconds + timed(fragments.total)[0]) * 1e3:.2f} ms")
    fits_now(books.fleet)
    seconds = timed(fragments.total)[0] + timed(fits_now, books.fleet)[0]
    print(f"  fragmentation and what fits, nothing changed: {seconds * 1e3:.2f} ms")


def broken_up(size: int) -> tuple[FleetAllocator, Background]:
    """Books on which work of all sizes was spread out, and what is to be learned from it."""
    nodes = [
        Node(f"n{k:05}", 96_000, 1 << 39, tuple(Gpu(f"n{k}-{c}", c, model="A100") for c in range(8)))
        for k in range(size)
    ]
    background, rng, held = Background(), random.Random(1), 0
    books = FleetAllocator(Fleet(nodes), Rules("spread"), Learning(background))
    books.set_ready()
    number = 0
    while held < FILL * size * 8000:
        number += 1
        asked = ResourceRequirement.from_string(rng.choice(TEXTS))
        strategy = "leftover" if number <= LEARNED else None  # so that there are tables to make ready
        if isinstance(books.alloc(Request(str(number), asked, strategy=strategy), 0.0), Allocation):
            held += books.fleet.resources(asked).gpu_milli
    return books, background


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work(*arguments)
    return time.perf_counter() - begin, found
