"""Cards of one node by their links: microseconds for each pick.

Work: a machine of 8 cards with NVLinks in a cube mesh, every set of free cards and every number asked for; and
one of 16 cards in two such meshes, of which 9 to 16 are free, drawn with a fixed seed. *First* is a pick of
which nothing is remembered, *again* the same ones once more, called from compiled code as a strategy does.
Beside it the rule in plain Python over the same cases, which must take the same cards. Time is that of the
process, so that neighbours on the machine count less.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from ullage.core.kernel.columns import NODE_COLUMNS, Rows
from ullage.core.kernel.compiled import compiled
from ullage.core.kernel.links import Links, pick_linked
from ullage.core.kernel.nearest import NEAREST
from ullage.core.topology.links import layout_of, links_over
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Link, Path, Topology

_DOUBLE = "0-3 0-4 1-2 1-5 2-3 4-7 5-6 6-7"
_SINGLE = "0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7"
_CASES_OF_16, _PLAIN_OF_16 = 400, 40

Case = tuple[tuple[int, ...], int]
"""The free cards, and how many are asked for."""


def mesh(first: int = 0) -> list[Link]:
    """Eight cards from the first on: NVLinks in a cube mesh, two to a switch, four to a zone."""
    nvlinks = dict.fromkeys(_DOUBLE.split(), 2) | dict.fromkeys(_SINGLE.split(), 1)
    links = []
    for a, b in combinations(range(8), 2):
        path = Path.PIX if a // 2 == b // 2 else Path.PHB if a // 4 == b // 4 else Path.SYS
        links.append(Link(f"g{first + a:02}", f"g{first + b:02}", path, nvlinks.get(f"{a}-{b}", 0)))
    return links


def machine(cards: int) -> Node:
    links = [link for first in range(0, cards, 8) for link in mesh(first)]
    gpus = tuple(Gpu(f"g{k:02}", k, zones=(k // 4,)) for k in range(cards))
    return Node("n", 128_000, 1 << 40, gpus, topology=Topology(links=tuple(links)))


@compiled
def pick_all(links: Links, nodes: Rows, units: Rows, counts: Rows, none: Rows, out: Rows) -> None:
    """Many picks on one node, in compiled code."""
    for case in range(len(counts)):
        pick_linked(links, nodes, 0, units[case], none, out[case, : counts[case]], NEAREST)


# --- the rule in plain Python ---


def splits(cards: Sequence[int], count: int) -> Iterator[list[tuple[int, ...]]]:
    """All ways to split cards into sets of `count`; what is over is a set too."""
    if not cards:
        yield []
        return
    for size in {count, len(cards) % count} - {0}:
        for others in combinations(cards[1:], size - 1):
            part = (cards[0], *others)
            for more in splits([card for card in cards if card not in part], count):
                yield [part, *more]


def plain(node: Node, free: Sequence[int], count: int) -> list[int]:
    """The cards to take."""
    layout = layout_of(node.gpus, node.topology.links if node.topology else ())
    weights, island = layout.weights.tolist(), layout.places[0].tolist()

    def own(cards: Iterable[int]) -> int:
        return sum(weights[a][b] for a, b in combinations(cards, 2))

    def rank(cards: Iterable[int]) -> tuple[int, int]:
        groups = {island[card] for card in cards}
        return len(groups), sum(island[card] in groups for card in free)

    def order(split: list[tuple[int, ...]]) -> tuple[int, list[tuple[int, ...]]]:
        return -sum(map(own, split)), [(*part, *[99] * (count - len(part))) for part in split]

    sets = list(combinations(free, count))
    if count == 1:
        return [min(free, key=lambda card: sum(weights[card][other] for other in free))]
    best = min(map(rank, sets))
    able = [part for part in sets if rank(part) == best]
    if len(free) > 8:

        def both(part: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
            rest = [card for card in free if card not in part]
            beside = max(map(own, combinations(rest, count)), default=own(rest))
            return -own(part) - beside, -own(part), part

        best_pair = min(able, key=both)
        return list(best_pair)
    known = set(able)
    split = min((split for split in splits(free, count) if known & set(split)), key=order)
    return list(min((part for part in split if part in known), key=lambda part: -own(part)))


# --- both ---


def cases_of_8() -> list[Case]:
    sets = [free for size in range(1, 9) for free in combinations(range(8), size)]
    return [(free, count) for free in sets for count in range(1, len(free) + 1)]


def cases_of_16() -> list[Case]:
    rng, found = random.Random(1), dict[Case, None]()
    while len(found) < _CASES_OF_16:
        free = tuple(sorted(rng.sample(range(16), rng.randint(9, 16))))
        found[free, rng.randint(1, len(free))] = None
    return list(found)


def measured(cards: int, cases: list[Case], in_plain: int) -> None:
    """Print what the cases took; `in_plain` of them are done in plain Python too."""
    node, run = machine(cards), pick_all
    nodes, none = np.zeros((1, NODE_COLUMNS), np.int64), np.zeros(0, np.int64)
    units, counts = np.zeros((len(cases), cards), np.int64), np.array([count for _, count in cases])
    for case, (free, _) in enumerate(cases):
        units[case, list(free)] = 1
    out = np.zeros((len(cases), cards), np.int64)
    run(links_over([node]), nodes, units[:1], counts[:1], none, out)
    links, taken = links_over([node]), []
    for _ in range(2):
        started = time.process_time()
        run(links, nodes, units, counts, none, out)
        taken.append((time.process_time() - started) / len(cases) * 1e6)
    slowest = 0.0
    links = links_over([node])
    for case in range(len(cases)):
        started = time.process_time()
        run(links, nodes, units[case : case + 1], counts[case : case + 1], none, out[case : case + 1])
        slowest = max(slowest, time.process_time() - started)
    chosen = random.Random(2).sample(range(len(cases)), in_plain)
    started = time.process_time()
    for case in chosen:
        assert out[case, : counts[case]].tolist() == plain(node, *cases[case])
    slow = (time.process_time() - started) / in_plain * 1e6
    print(
        f"  {cards:3} cards {len(cases):6,} cases  first {taken[0]:8.2f} us (slowest {slowest * 1e6:8.1f})  "
        f"again {taken[1]:6.3f} us  plain Python {slow:10,.0f} us"
    )


def main() -> None:
    """Both machines."""
    print("A pick of cards by their links on one node")
    measured(8, cases_of_8(), len(cases_of_8()))
    measured(16, cases_of_16(), _PLAIN_OF_16)


if __name__ == "__main__":
    main()
