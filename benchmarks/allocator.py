"""Decisions of the allocator: quota, filter, score, choice, books, on thousands of cards.

The fixture is the one whose figures are published for the allocator of TensorFusion (480 us a decision
and 2,346 a second at 3,000 cards, Apple M4 Pro, August 2025): k-th card of a node is of kind k mod 4,
i-th request of kind i mod 5, one pool, no more than 256 workers a node.
"""

from __future__ import annotations

import statistics
import time

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement

_GIB = 1 << 30
_CARDS = ((2250, 141), (989, 80), (450, 48), (312, 40))
_REQUESTS = (
    "tflops=20,vram=4g",
    "tflops=40,vram=8g",
    "tflops=100,vram=16g",
    "gpu=2,tflops=30,vram=4g",
    "gpu=2,tflops=200,vram=32g",
)
_PUBLISHED_US, _PUBLISHED_RATE = 480, 2346


def machines(nodes: int, cards: int) -> list[Node]:
    """Nodes with `cards` cards each."""
    return [
        Node(
            f"node-{n:05}",
            1_000_000,
            1 << 50,
            tuple(
                Gpu(f"gpu-{n:05}-{k}", k, vram_bytes=_CARDS[k % 4][1] * _GIB, compute_gflops=_CARDS[k % 4][0] * 1000)
                for k in range(cards)
            ),
        )
        for n in range(nodes)
    ]


def requests(count: int) -> list[Request]:
    """Requests of the five kinds in turn, limit equal to request."""
    asked = [ResourceRequirement.from_string(text) for text in _REQUESTS]
    return [Request(f"pod-{i}", asked[i % 5], Claim("team")) for i in range(count)]


def run(nodes: int, cards: int, count: int, strategy: str, *, quota: bool) -> None:
    """Place all requests one after the other and print what it took."""
    rules = Rules(strategy=strategy)
    if quota:
        caps = Quota(total_requests=Caps(10**12, 1 << 60), max_requests=Caps(10**9, 1 << 50), max_workers=10**6)
        rules = Rules(strategy=strategy, quotas=Quotas({"team": caps}))
    allocator = FleetAllocator(Fleet(machines(nodes, cards)), rules)
    allocator.set_ready()
    waiting = requests(count)
    for request in waiting[:5]:  # the tables of the shapes
        allocator.simulate(request)
    taken: list[float] = []
    placed = 0
    started = time.perf_counter()
    for request in waiting:
        before = time.perf_counter()
        outcome = allocator.alloc(request, 0.0)
        taken.append(time.perf_counter() - before)
        placed += isinstance(outcome, Allocation)
        assert not isinstance(outcome, Refusal) or strategy == "low-load-first", outcome.code
    whole = time.perf_counter() - started
    p50, p99 = (statistics.quantiles(taken, n=100)[q] * 1e6 for q in (49, 98))
    print(
        f"  {nodes} nodes {nodes * cards:5} cards {strategy:26} {'quota' if quota else '     '} "
        f"placed {placed:6} of {count}   p50 {p50:6.0f} us  p99 {p99:6.0f} us  {count / whole:8,.0f}/s  "
        f"{_PUBLISHED_US / p50:5.1f} x the published latency"
    )


def main() -> None:
    """Both sizes, every strategy that must place everything."""
    print("One decision at a time: quota, filter, score, choice, books")
    for nodes, cards in ((500, 6), (1000, 4)):
        for strategy in ("node-compact-gpu-low-load", "compact-first", "best-fit"):
            run(nodes, cards, 10_000, strategy, quota=True)


if __name__ == "__main__":
    main()
