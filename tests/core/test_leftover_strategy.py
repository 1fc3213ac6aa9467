"""Our own placement on the books: every decision is the cheapest by costs added up slowly from their definition."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.core.test_published_policies import MODELS, task

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.columns import KIND, SHARE
from ullage.core.kernel.leftover import leftover as fill_node
from ullage.core.kernel.leftover import stratified_draws
from ullage.core.kernel.leftover_cost import LeftoverState
from ullage.core.kernel.leftover_memo import CERTAIN, MEMO_SLOTS, Memo
from ullage.core.kernel.prices import bare, model_prices, named, scarce, slot_prices
from ullage.core.kernel.tree import NO_ROOM
from ullage.core.placing.placement import Placer, table_of
from ullage.core.placing.policy import Policy
from ullage.core.strategies.leftover import leftover
from ullage.core.strategies.workload import class_of, may_come, rows_of, whole_workload
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.resources import MILLI

pytestmark = pytest.mark.timeout(900)  # the first run on a machine compiles

FILLS = 8
WEIGHTS = (1, 3, 3, 3, 2, 1)


def some_tasks(rng, count):
    for _ in range(count):
        cards = rng.choices((0, 0, 1, 1, 2, 4), WEIGHTS)[0]
        share = MILLI if cards > 1 else rng.choice((150, 460, 500, 700, 900, MILLI)) if cards else 0
        models = rng.choice(((), (), ("A100",), ("T4",), MODELS))
        yield task(rng.choice((1000, 2000, 4000, 16000)), share, cards, models)


def some_nodes(rng, count):
    """Nodes that no tie is between: of each the CPU is another one. The last takes no work."""
    for i in range(count):
        cpu, model = rng.choice((12_000, 24_000, 64_000)) + 10 * i, rng.choice(MODELS)
        cards = tuple(Gpu(f"{i}-{k}", k, model=model) for k in range(rng.choice((0, 1, 2, 4, 4))))
        yield Node(f"n{i}", cpu, 1 << 40, cards, cordoned=i == count - 1)


def some_case(seed):
    rng = random.Random(seed)
    return Fleet(some_nodes(rng, 6)), list(some_tasks(rng, 24)), rng


class Slow:
    """All costs from the state of the whole cluster, every time anew."""

    def __init__(self, fleet, workload, live):
        self.rows = [row for row, node in enumerate(fleet.nodes) if node.schedulable]
        self.cpu = [node.cpu_milli for node in fleet.nodes]
        self.shares = [[MILLI] * len(node.gpus) for node in fleet.nodes]
        first = [
            fleet.card_rows[fleet.cards_on(row).start, KIND] if node.gpus else 61
            for row, node in enumerate(fleet.nodes)
        ]
        self.kinds = [int(kind) for kind in first]
        self.mix = workload.on(fleet)
        self.draws = stratified_draws(self.mix.popularity, FILLS, 0)
        invited = rows_of(may_come(fleet), fleet) if live else None
        self.scarce, self.named = scarce(self.mix, workload.tasks, invited), named(self.mix, 62)
        cpu, cards = sum(self.cpu[row] for row in self.rows), sum(len(self.shares[row]) for row in self.rows)
        self.bare = bare(self.mix, MILLI * cards / cpu)
        self.mean_cpu, self.mean_size = self.mix.popularity @ np.stack(
            [self.mix.classes[:, 0], self.mix.classes[:, 1] * self.mix.classes[:, 2]], axis=1
        )
        self.met = {}

    def leftover(self, row, cpu, shares):
        key = cpu, self.kinds[row], tuple(sorted(shares))
        if key not in self.met:
            found, space = np.zeros(1 + len(self.bare.sizes), np.int64), np.empty(2 * len(shares), np.int64)
            fill_node(
                cpu,
                np.array(shares, np.int64),
                self.kinds[row],
                self.mix.classes,
                self.draws,
                12,
                self.bare.sizes,
                space,
                found,
            )
            self.met[key] = (found / FILLS).tolist()
        return self.met[key]

    def now(self, row):
        return self.leftover(row, self.cpu[row], self.shares[row])

    def slots(self, row, cpu, shares):
        """How many tasks of each scarce class a node holds."""
        return [
            min(sum(free >= share for free in shares) // cards, cpu // needed) if models >> self.kinds[row] & 1 else 0
            for needed, share, cards, models in self.scarce.classes.tolist()
        ]

    def prices(self):
        idle = sum(sum(self.shares[row]) for row in self.rows)
        cpu = sum(self.cpu[row] for row in self.rows)
        by_cards, by_cpu = idle / max(1.0, self.mean_size), cpu / max(1.0, self.mean_cpu)
        free = np.sum([self.slots(row, self.cpu[row], self.shares[row]) for row in self.rows], axis=0)
        of_slots, of_bare, of_models = np.zeros(len(free)), np.zeros(len(self.bare.sizes)), np.zeros(62)
        slot_prices(self.scarce.rate, self.scarce.value, free, 1.6 * by_cards, of_slots)
        left = np.sum([self.now(row)[1:] for row in self.rows], axis=0)
        slot_prices(self.bare.rate, self.bare.value, left, 1.3 * min(by_cards, by_cpu), of_bare)
        usable = np.zeros(62)
        for row in self.rows:
            usable[self.kinds[row]] += sum(self.shares[row]) - self.now(row)[0]
        model_prices(*self.named, usable, max(1.0, self.mean_size), of_models)
        return of_slots.tolist(), of_bare.tolist(), of_models.tolist()

    def options(self, row, asked):
        """Every set of cards worth trying."""
        shares = self.shares[row]
        fitting = [k for k, free in enumerate(shares) if asked.cards and free >= asked.share_milli]
        if self.cpu[row] < asked.cpu_milli or len(fitting) < asked.cards:
            return
        if asked.models and self.models[self.kinds[row]] not in asked.models:
            return
        if asked.share_milli in (0, MILLI):
            yield fitting[: asked.cards]
            return
        growth = {k: self.growth(row, asked, [k]) for k in fitting}
        used = [k for k in fitting if shares[k] < MILLI]
        if used:
            yield [min(used, key=lambda k: (growth[k], shares[k], k))]
        yield from ([k] for k in [k for k in fitting if shares[k] == MILLI][:1])

    def after(self, row, asked, cards):
        left = [free - asked.share_milli * (k in cards) for k, free in enumerate(self.shares[row])]
        return self.cpu[row] - asked.cpu_milli, left

    def growth(self, row, asked, cards):
        more = self.leftover(row, *self.after(row, asked, cards))[0] - self.now(row)[0]
        return more if asked.cards else max(0, more)

    def cost(self, row, asked, cards, prices):
        of_slots, of_bare, of_models = prices
        after = self.after(row, asked, cards)
        cost = self.growth(row, asked, cards) + asked.share_milli * asked.cards * of_models[self.kinds[row]]
        before = self.slots(row, self.cpu[row], self.shares[row])
        lost = zip(of_slots, before, self.slots(row, *after), strict=True)
        cost += max([0.0, *(price * (had - has) for price, had, has in lost)])
        lost = zip(of_bare, self.now(row)[1:], self.leftover(row, *after)[1:], strict=True)
        return cost + max([0.0, *(price * (had - has) for price, had, has in lost)])

    def best(self, asked, prices):
        """(node, cards) of least cost, None if nothing fits."""
        ranked = [
            (self.cost(row, asked, cards, prices), sum(self.shares[row]), self.cpu[row], row, number, cards)
            for row in self.rows
            for number, cards in enumerate(self.options(row, asked))
        ]
        return (min(ranked)[3], min(ranked)[5]) if ranked else None

    def enter(self, row, asked, cards, sign=1):
        self.cpu[row] -= sign * asked.cpu_milli
        for k in cards:
            self.shares[row][k] -= sign * asked.share_milli


def slow_of(fleet, workload, live):
    slow = Slow(fleet, workload, live)
    slow.models = [fleet.cards[card].model for card in fleet.kinds]
    return slow


@pytest.mark.parametrize("live", [False, True])
def test_every_decision_is_the_cheapest(live):
    dearer = dropped = released = 0
    for seed in range(12):
        fleet, arrivals, rng = some_case(seed)
        workload = whole_workload(arrivals)
        placer = Placer(fleet, Policy(), leftover(fleet, workload, live=live, fills=FILLS))
        slow, held, free = slow_of(fleet, workload, live), [], ([0.0] * 99, [0.0] * 99, [0.0] * 99)
        for number, asked in enumerate(arrivals):
            each, prices = class_of(asked), slow.prices()
            best = slow.best(each, prices)
            dearer += best != slow.best(each, tuple(some[: len(of)] for some, of in zip(free, prices, strict=True)))
            placed = placer.place(str(number), asked)
            if best is None:
                assert placed is None
                dropped += 1
                continue
            row, cards = best
            assert (placed.node, list(placed.gpus)) == (f"n{row}", [f"{row}-{k}" for k in cards])
            slow.enter(row, each, cards)
            held.append((str(number), row, each, cards))
            if rng.random() < 0.2:
                key, *gone = held.pop(rng.randrange(len(held)))
                fleet.release(key)
                slow.enter(*gone, sign=-1)
                released += 1
    assert min(dearer, dropped, released) > 10, "prices decided, some found no place, and some ended"


def decisions(fleet, arrivals, names=lambda name: name, slots=MEMO_SLOTS):
    """Where each goes, by what the nodes are called here."""
    placer = Placer(fleet, Policy(), leftover(fleet, whole_workload(arrivals), slots=slots, fills=FILLS))
    found = [placer.place(str(number), asked) for number, asked in enumerate(arrivals)]
    return [placed and (names(placed.node), placed.gpus) for placed in found]


def test_what_the_memo_forgets_changes_nothing():
    for seed in range(3):
        fleet, arrivals, _ = some_case(seed)
        assert decisions(Fleet(fleet.nodes), arrivals, slots=16) == decisions(fleet, arrivals)


def test_between_two_selections_no_more_states_are_filled_than_the_budget_allows():
    fleet, arrivals, _ = some_case(2)
    strategy = leftover(fleet, whole_workload(arrivals), fills=4 * FILLS, budget=2)
    placer, memo = Placer(fleet, Policy(), strategy), Memo(*LeftoverState(*strategy.state).memo)
    width, certain, waiting = len(memo.key), [], []
    for number, asked in enumerate(arrivals):
        assert placer.place(str(number), asked) or number > 5
        value = memo.slots[memo.slots[:, 0] >= 0, width + CERTAIN]
        certain.append(int(value.sum()))
        waiting.append(len(value) - certain[-1])
    assert max(np.diff(certain)) <= 4, "before the selection of a placement what was left, and after it again"
    assert max(waiting) > 10


def test_the_order_of_names_decides_nothing_but_ties():
    for seed in range(3):
        fleet, arrivals, rng = some_case(seed)
        new = dict(zip([node.name for node in fleet.nodes], rng.sample("uvwxyz", 6), strict=True))
        old = {name: was for was, name in new.items()}
        nodes = [Node(new[n.name], n.cpu_milli, n.memory_bytes, n.gpus, cordoned=n.cordoned) for n in fleet.nodes]
        assert decisions(Fleet(nodes), arrivals, old.get) == decisions(fleet, arrivals)


def test_equal_nodes_go_by_idle_cards_then_cpu_then_name():
    whole = task(0, MILLI, 1)
    nodes = [
        Node(name, cpu, 0, tuple(Gpu(f"{name}{k}", k) for k in range(2)))
        for name, cpu in zip("abc", (3, 2, 2), strict=True)
    ]
    fleet = Fleet(nodes)
    placer = Placer(fleet, Policy(), leftover(fleet, whole_workload([whole]), fills=FILLS))
    assert [placer.place(str(number), whole).node for number in range(6)] == ["b", "b", "c", "c", "a", "a"]


@pytest.mark.long
def test_among_nodes_of_few_kinds_none_is_cheaper_than_the_first_best():
    dearer = 0
    for seed in range(8):
        rng = random.Random(seed)
        patterns = [replace(node, gpus=(), cordoned=False) for node in some_nodes(rng, 3)]
        fleet = Fleet(
            replace(
                patterns[i % 3],
                name=f"n{i:02}",
                gpus=tuple(Gpu(f"{i:02}-{k}", k, model=MODELS[i % 2]) for k in range(i % 3 * 2)),
            )
            for i in range(18)
        )
        arrivals = [replace(asked, cpu_milli=1000) if seed % 2 else asked for asked in some_tasks(rng, 60)]
        strategy = leftover(fleet, whole_workload(arrivals), fills=FILLS)
        for number, asked in enumerate(arrivals):
            table = table_of(fleet, asked, strategy)
            chosen = table.choose()
            rows = (table.ranked > NO_ROOM).nonzero()[0].tolist()
            if chosen is None:
                assert not rows
                continue
            terms = {row: table.terms(row) for row in rows}
            costs = {row: sum(each.values()) for row, each in terms.items()}
            best = [row for row in rows if costs[row] <= min(costs.values()) + 1e-9]
            idle = {row: sum(fleet.card_rows[card, SHARE] for card in fleet.cards_on(row)) for row in best}
            assert chosen[0] == min(best, key=lambda row: (idle[row], fleet.cpu_free[row], row))
            dearer += terms[chosen[0]]["prices"] > 0
            uuids, charges = fleet.uuids(chosen[1]), table.charges(chosen[1])
            fleet.charge(Allocation(str(number), fleet.nodes[chosen[0]].name, asked, uuids, charges=charges))
            if rng.random() < 0.2:
                fleet.release(rng.choice(list(fleet.ledger)))
    assert dearer > 10, "prices decided"


def test_a_trial_taken_back_leaves_no_trace():
    fleet, arrivals, _ = some_case(1)
    plain = decisions(Fleet(fleet.nodes), arrivals)
    placer, found = Placer(fleet, Policy(), leftover(fleet, whole_workload(arrivals), fills=FILLS)), []
    for number, asked in enumerate(arrivals):
        mark = fleet.checkpoint()
        for other in range(3):
            placer.place(f"trial {other}", arrivals[other])
        fleet.rollback(mark)
        found.append(placer.place(str(number), asked))
    assert [placed and (placed.node, placed.gpus) for placed in found] == plain


def test_parts_of_several_cards_take_the_fullest_and_whole_cards_come_from_one_zone():
    cards = tuple(Gpu(f"c{k}", k, zones=(k % 2,)) for k in range(4))
    fleet = Fleet([Node("a", 8000, 0, cards)])
    one, two, pair = task(0, 300, 1), task(0, 300, 2), task(0, MILLI, 2)
    placer = Placer(fleet, Policy(), leftover(fleet, whole_workload([one, pair]), fills=FILLS))
    assert [placer.place(name, asked).gpus for name, asked in (("1", one), ("2", two), ("3", pair))] == [
        ("c0",),
        ("c0", "c1"),
        ("c2", "c3"),
    ]
