"""The published policies on the books: every decision is the first best by scores computed from shares alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.columns import KIND
from ullage.core.kernel.fragmentation import fgd, fgd_published
from ullage.core.kernel.packing import best_fit, clustering, dot_product, packing
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.strategies.published import published
from ullage.core.strategies.workload import TaskClass, Workload, class_of, typical_workload
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI

pytestmark = pytest.mark.timeout(900)  # the first run on a machine compiles

MODELS = ("A100", "T4")
NAMES = ("best-fit-published", "dot-product", "packing", "clustering", "fgd", "fgd-published")


def task(cpu: int, share: int, cards: int, models: tuple[str, ...] = ()) -> ResourceRequirement:
    part = Part(compute_ppm=share * 1000) if 0 < share < MILLI else None
    kept = Isolation.SOFT if part else Isolation.SHARED
    return ResourceRequirement(cpu, 0, cards, part, CardSelector(models=models if cards else (), isolation=kept))


@st.composite
def tasks(draw: st.DrawFn) -> ResourceRequirement:
    cards = draw(st.sampled_from((0, 1, 1, 1, 2, 4)))
    share = MILLI if cards > 1 else draw(st.sampled_from((150, 460, 500, 900, MILLI)))
    models = draw(st.sampled_from(((), ("A100",), ("T4",), MODELS)))
    return task(draw(st.sampled_from((1000, 4000, 16000))), share if cards else 0, cards, models)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    kinds = draw(
        st.lists(
            st.tuples(st.sampled_from(MODELS), st.integers(1, 4), st.sampled_from((16, 64))), min_size=1, max_size=5
        )
    )
    return Fleet(
        Node(f"n{i}", cpu * 1000, 1 << 40, tuple(Gpu(f"{i}-{k}", k, model=model) for k in range(cards)))
        for i, (model, cards, cpu) in enumerate(kinds)
    )


class Shares:
    """What a simulator keeps: free cpu, free shares and the sizes that run, per node."""

    def __init__(self, fleet: Fleet, mix: Workload) -> None:
        self.cpu = [node.cpu_milli for node in fleet.nodes]
        self.shares = [np.full(len(node.gpus), MILLI) for node in fleet.nodes]
        self.runs = [0] * len(fleet.nodes)
        self.models = [node.gpus[0].model for node in fleet.nodes]
        self.kinds = [int(fleet.card_rows[fleet.cards_on(row).start, KIND]) for row in range(len(fleet.nodes))]
        self.mix = mix.on(fleet)

    def fits(self, row: int, asked: TaskClass) -> bool:
        may = not asked.models or self.models[row] in asked.models
        enough = int((self.shares[row] >= asked.share_milli).sum()) >= asked.cards
        return may and enough and self.cpu[row] >= asked.cpu_milli

    def score(self, name: str, row: int, asked: TaskClass) -> float:
        cpu, shares, args = self.cpu[row], self.shares[row], (asked.cpu_milli, asked.share_milli, asked.cards)
        size = asked.cards if asked.share_milli == MILLI else 0
        return {
            "best-fit-published": lambda: best_fit(cpu, shares, *args),
            "dot-product": lambda: dot_product(cpu, shares, *args),
            "packing": lambda: packing(shares, asked.share_milli, asked.cards),
            "clustering": lambda: clustering(shares, self.runs[row], size if asked.cards else -1),
            "fgd": lambda: -fgd(cpu, shares, self.kinds[row], *args, *self.mix)[0],
            "fgd-published": lambda: fgd_published(cpu, shares, self.kinds[row], *args, *self.mix)[0],
        }[name]()

    def take(self, name: str, row: int, asked: TaskClass) -> list[int]:
        shares = self.shares[row]
        args = asked.cpu_milli, asked.share_milli, asked.cards
        if asked.share_milli in (0, MILLI):
            cards = [k for k in range(len(shares)) if shares[k] == MILLI][: asked.cards]
        elif name == "fgd":
            cards = [fgd(self.cpu[row], shares, self.kinds[row], *args, *self.mix)[1]]
        elif name == "fgd-published":
            cards = [fgd_published(self.cpu[row], shares, self.kinds[row], *args, *self.mix)[1]]
        else:
            cards = [
                min((k for k in range(len(shares)) if shares[k] >= asked.share_milli), key=lambda k: (shares[k], k))
            ]
        for k in cards:
            shares[k] -= asked.share_milli
        self.cpu[row] -= asked.cpu_milli
        if asked.cards:
            self.runs[row] |= 1 << (asked.cards if asked.share_milli == MILLI else 0)
        return cards


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@given(fleet=fleets(), arrivals=st.lists(tasks(), min_size=1, max_size=25))
@settings(max_examples=40)
def test_every_decision_is_the_first_best(name, fleet, arrivals):
    mix = typical_workload(arrivals)
    strategy, shares = published(name, mix.on(fleet), 1), Shares(fleet, mix)
    placer = Placer(fleet, Policy(), strategy)
    for number, asked in enumerate(arrivals):
        each = class_of(asked)
        rows = [row for row in range(len(fleet.nodes)) if shares.fits(row, each)]
        placed = placer.place(str(number), asked)
        assert (placed is None) == (not rows)
        if placed is not None:
            best = max(rows, key=lambda row: (shares.score(name, row, each), -row))
            cards = [f"{best}-{k}" for k in shares.take(name, best, each)]
            assert (placed.node, list(placed.gpus)) == (f"n{best}", cards)


@given(fleet=fleets(), arrivals=st.lists(tasks(), min_size=1, max_size=25), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_random_places_whatever_fits_and_repeats_itself(fleet, arrivals, seed):
    def run() -> list[tuple[str, tuple[str, ...]] | None]:
        books = Fleet(fleet.nodes)
        placer = Placer(books, Policy(), published("random", ((), ()), seed))
        found = []
        for number, asked in enumerate(arrivals):
            room = placer.room(asked).sum()
            placed = placer.place(str(number), asked)
            assert (placed is None) == (room == 0)
            found.append(None if placed is None else (placed.node, placed.gpus))
        return found

    assert run() == run()


def test_random_reaches_every_node_and_every_card():
    fleet = Fleet(Node(f"n{i}", 64000, 1 << 40, (Gpu(f"{i}-0", 0), Gpu(f"{i}-1", 1))) for i in range(4))
    placer = Placer(fleet, Policy(), published("random", ((), ()), 7))
    seen = set()
    for number in range(200):
        placed = placer.place(str(number), task(0, 100, 1))
        seen.add((placed.node, placed.gpus))
        fleet.release(placed.id)
    assert len(seen) == 8


def test_there_is_no_other_policy():
    assert published("best", ((), ()), 1) is None
