"""Which cards of a node go together, beside the rule in plain Python: all sets and all splits of the free cards."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from ullage.core.kernel.columns import FIRST_CARD, NODE_COLUMNS
from ullage.core.kernel.links import MEMO_COLUMNS, pick_linked
from ullage.core.kernel.memo import empty_keys
from ullage.core.kernel.nearest import NEAREST
from ullage.core.topology.links import layout_of, links_over
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Link, Path, Topology

pytestmark = pytest.mark.timeout(900)

PATHS = list(Path)


# --- machines ---


def machine(cards, links=(), zones=()):
    """A node; links are (card, card, path, NVLinks), zones a tuple per card."""
    gpus = tuple(Gpu(f"g{k:03}", k, zones=zones[k] if zones else ()) for k in range(cards))
    reported = tuple(Link(f"g{a:03}", f"g{b:03}", path, nvlinks) for a, b, path, nvlinks in links)
    return Node("n", 64_000, 1 << 36, gpus, topology=Topology(links=reported))


def within(groups, path, nvlinks=0):
    return [(a, b, path, nvlinks) for group in groups for a, b in combinations(group, 2)]


def pairs(text):
    return [tuple(map(int, pair.split("-"))) for pair in text.split()]


def dgx_1(zones=()):
    """Eight V100: NVLinks in a cube mesh, four switches, two zones."""
    nvlinks = dict.fromkeys(pairs("0-3 0-4 1-2 1-5 2-3 4-7 5-6 6-7"), 2)
    nvlinks |= dict.fromkeys(pairs("0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7"), 1)
    switches = pairs("0-1 2-3 4-5 6-7")

    def path(pair):
        if pair in switches:
            return Path.PIX
        return Path.PHB if pair[0] // 4 == pair[1] // 4 else Path.SYS

    return machine(8, [(*pair, path(pair), nvlinks.get(pair, 0)) for pair in combinations(range(8), 2)], zones)


def bridged():
    """Four cards, two and two of them joined by NVLink bridges."""
    ways = [*((0, 1, Path.NODE, 0), (2, 3, Path.NODE, 0)), *((0, 2, Path.SYS, 0), (1, 3, Path.SYS, 0))]
    return machine(4, [(0, 3, Path.UNKNOWN, 2), (1, 2, Path.UNKNOWN, 2), *ways])


TWO_FOURS = machine(8, within([range(4), range(4, 8)], Path.UNKNOWN, 1))
"""Two groups of four with links inside only, as HCCS joins them."""

TWO_ZONES = ((0,),) * 4 + ((1,),) * 4

SWITCHED = machine(
    8,
    [
        (a, b, Path.PIX if a // 2 == b // 2 else Path.NODE if a // 4 == b // 4 else Path.SYS, 12)
        for a, b in combinations(range(8), 2)
    ],
    TWO_ZONES,
)
"""Eight cards behind an NVSwitch; two to a PCIe switch, four to a zone."""


def any_machine(rng, cards):
    """Few kinds of links, so that there are ties; some cards of no known zone or of several."""
    paths, most = rng.sample(PATHS, 2), rng.choice((0, 0, 1, 2))
    joined = [pair for pair in combinations(range(cards), 2) if rng.random() < rng.choice((0.2, 0.9))]
    links = [(*pair, rng.choice(paths), rng.randint(0, most)) for pair in joined]
    zones = [rng.choice([(), (0,), (0,), (1,), (2,), (1, 2)]) for _ in range(cards)]
    return machine(cards, links, zones if rng.random() < 0.6 else [(rng.randrange(2),) for _ in range(cards)])


# --- the compiled answer ---


class Picked:
    """Cards picked on one machine."""

    def __init__(self, *nodes):
        self.links = links_over(nodes)
        self.counts = [len(node.gpus) for node in nodes]
        self.rows = np.zeros((len(nodes), NODE_COLUMNS), np.int64)
        self.rows[:, FIRST_CARD] = np.cumsum([0, *self.counts[:-1]])

    def __call__(self, free, count, required=(), row=0, rule=NEAREST):
        units, must, out = self._marked(free, row), self._marked(required, row), np.zeros(count, np.int64)
        must = must if required else must[:0]
        damage = pick_linked(self.links, self.rows, row, units, must, out, rule)
        return (out - self.rows[row, FIRST_CARD]).tolist(), damage

    def _marked(self, cards, row):
        units = np.zeros(self.counts[row], np.int64)
        units[list(cards)] = 3
        return units


# --- the rule in plain Python ---


def first_best(sets, key):
    return min(sets, key=lambda chosen: (key(chosen), chosen))


def slow(node, free, count, required=()):
    """The cards, and the damage; sets are ascending tuples."""
    gpus, free = node.gpus, sorted(free)
    layout = layout_of(gpus, node.topology.links)
    weights, island, _, switch, *_ = layout.weights.tolist(), *layout.places.tolist()
    between = {pair: weights[pair[0]][pair[1]] for pair in combinations(free, 2)}
    nvlinks = {weights[a][b] // 100 for a, b in combinations(range(len(gpus)), 2)}
    linked = len(set(between.values())) > 1 and not (len(nvlinks) == 1 and nvlinks != {0})
    zones = [gpus[card].zones for card in range(len(gpus))]

    def own(cards):
        return sum(between[pair] for pair in combinations(cards, 2))

    def touched(cards, group_of):
        groups = {group_of[card] for card in cards}
        return len(groups), sum(group_of[card] in groups for card in free)

    def rank(cards):
        unknown = sum(not zones[card] for card in cards)
        if linked:
            return unknown, *touched(cards, island)
        span = {zone for card in cards for zone in zones[card]}
        return unknown, len(span), touched(cards, zones)[1], *touched(cards, switch)

    able = [chosen for chosen in combinations(free, count) if set(required) <= set(chosen)]
    if linked and count == 1:
        chosen = first_best(able, lambda one: (not zones[one[0]], own(free) - own([c for c in free if c != one[0]])))
    elif linked:
        best = min(map(rank, able))
        able = {chosen for chosen in able if rank(chosen) == best}
        chosen = by_splits(free, count, able, own) if len(free) <= 8 else beside_rest(free, count, able, own)
    else:
        chosen = first_best(able, rank)
    return list(chosen), touched(chosen, island if linked else zones)[1] - count


def splits(cards, count, over):
    """All ways to split cards into sets of `count`, with what is over (so many) in one set."""
    if not cards:
        yield []
        return
    for size in {count, over} - {0}:
        for others in combinations(cards[1:], size - 1):
            part = (cards[0], *others)
            rest = [card for card in cards if card not in part]
            for more in splits(rest, count, 0 if size == over != count else over):
                yield [part, *more]


def by_splits(free, count, able, own):
    counted = [split for split in splits(free, count, len(free) % count) if able & set(split)]

    def order(split):
        return -sum(map(own, split)), [(*part, *[99] * (count - len(part))) for part in split]

    split = min(counted, key=order)
    return min((part for part in split if part in able), key=lambda part: -own(part))


def beside_rest(free, count, able, own):
    def both(chosen):
        rest = [card for card in free if card not in chosen]
        return own(chosen) + max((own(other) for other in combinations(rest, count)), default=own(rest))

    return first_best(able, lambda chosen: (-both(chosen), -own(chosen)))


def all_free(cards):
    for size in range(1, cards + 1):
        yield from combinations(range(cards), size)


# --- they agree ---


def answers():
    """For the test without the compiler."""
    picked, rng = Picked(dgx_1(), TWO_FOURS, SWITCHED), random.Random(9)
    for _ in range(60):
        free = sorted(rng.sample(range(8), rng.randint(1, 8)))
        yield picked(free, rng.randint(1, len(free)), row=rng.randrange(3))
    many = Picked(machine(10, within([range(3), range(3, 10)], Path.PIX), [(k % 2,) for k in range(10)]))
    yield from (many(range(10), count) for count in (1, 2, 3, 5, 9))


@pytest.mark.long
@pytest.mark.parametrize("node", [dgx_1(), dgx_1(TWO_ZONES), bridged(), TWO_FOURS, SWITCHED, machine(8, (), TWO_ZONES)])
def test_known_machines_give_the_answer_of_the_rule_for_all_free_cards(node):
    picked = Picked(node)
    for free in all_free(len(node.gpus)):
        for count in range(1, len(free) + 1):
            assert picked(free, count) == slow(node, free, count), (free, count)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_machines_give_the_answer_of_the_rule(seed):
    rng = random.Random(seed)
    for _ in range(60):
        node = any_machine(rng, rng.randint(2, 8))
        picked = Picked(node)
        for _ in range(12):
            free = sorted(rng.sample(range(len(node.gpus)), rng.randint(1, len(node.gpus))))
            count = rng.randint(1, len(free))
            required = sorted(rng.sample(free, rng.choice((0, 1, rng.randint(0, count)))))
            assert picked(free, count, required) == slow(node, free, count, required), (node, free, count, required)


@pytest.mark.long
@pytest.mark.parametrize(("cards", "most"), [(9, 8), (10, 9), (12, 11), (16, 2)])
def test_above_eight_free_cards_the_best_set_beside_the_best_that_remains(cards, most):
    rng = random.Random(cards)
    for _ in range(6):
        node = any_machine(rng, cards)
        picked = Picked(node)
        for _ in range(4):
            count = rng.randint(1, most)
            required = sorted(rng.sample(range(cards), rng.choice((0, 0, 1, count))))
            assert picked(range(cards), count, required) == slow(node, range(cards), count, required)


# --- cases by hand ---


@pytest.mark.parametrize(
    ("node", "free", "count", "chosen"),
    [
        (dgx_1(), (0, 2, 4, 5), 2, [4, 5]),
        (dgx_1(), (0, 1, 3), 2, [0, 3]),
        (dgx_1(), range(8), 4, [0, 1, 2, 3]),
        (bridged(), (0, 1, 2, 3), 2, [0, 3]),
        (bridged(), (1, 2), 2, [1, 2]),
        (machine(8, (), TWO_ZONES), range(8), 3, [0, 1, 2]),
        (machine(8, (), TWO_ZONES), (1, 2, 4, 5, 6, 7), 4, [4, 5, 6, 7]),
    ],
)
def test_cases(node, free, count, chosen):
    assert Picked(node)(free, count)[0] == chosen


def test_six_and_two_free_cards_of_two_groups_are_not_eight():
    groups = machine(16, within([range(8), range(8, 16)], Path.UNKNOWN, 1))
    picked = Picked(groups)
    free = (0, 1, 2, 3, 4, 5, 8, 9)
    assert picked(free, 2) == ([8, 9], 0)
    assert picked(free, 3) == ([0, 1, 2], 3)
    assert picked(free, 6) == ([0, 1, 2, 3, 4, 5], 0)
    assert picked((0, 1, 2, 3, 4, 5, *range(8, 16)), 8) == ([*range(8, 16)], 0)


def test_wide_room_stays_whole():
    assert Picked(TWO_FOURS)((0, 1, 2, 3, 6, 7), 2) == ([6, 7], 0)
    assert Picked(TWO_FOURS)((0, 1, 2, 3, 7), 1) == ([7], 0)
    assert Picked(machine(8, (), TWO_ZONES))((0, 1, 2, 3, 6, 7), 2) == ([6, 7], 0)
    assert Picked(SWITCHED)((0, 1, 2, 3, 4, 6), 2) == ([4, 6], 0)


def test_behind_an_nvswitch_zones_come_first_then_switches():
    assert Picked(SWITCHED)((0, 2, 3, 4, 5, 6, 7), 2) == ([2, 3], 1)
    assert Picked(SWITCHED)(range(8), 5) == ([0, 1, 2, 3, 4], 3)


def test_a_card_of_unknown_zone_comes_last():
    zones = ((), (0,), (0,), (1,))
    linked = within([(0, 1, 2)], Path.PIX)
    for node in (machine(4, (), zones), machine(4, linked, zones)):
        assert Picked(node)(range(4), 2)[0] == [1, 2]
        assert Picked(node)((0, 1), 1)[0] == [1]


def test_required_cards_are_taken_wherever_they_are():
    assert Picked(TWO_FOURS)(range(8), 2, (1, 6))[0] == [1, 6]
    assert Picked(TWO_FOURS)((0, 1, 2, 3, 6, 7), 2, (3,))[0] == [2, 3]


# --- large nodes ---


def large(cards, links=()):
    """Four zones and eight switches' worth of cards, in turn."""
    return machine(cards, links, [(k * 4 // cards,) for k in range(cards)])


@pytest.mark.parametrize("cards", [17, 40, 62, 63, 64, 130])
def test_many_cards_come_from_few_groups(cards):
    picked, size = Picked(large(cards)), [sum(k * 4 // cards == zone for k in range(cards)) for zone in range(4)]
    for count in (1, 3, size[0], size[0] + 1, 2 * size[0] + 2, cards):
        chosen, damage = picked(range(cards), count)
        zones = {card * 4 // cards for card in chosen}
        assert len(chosen) == len(set(chosen)) == count
        assert len(zones) == next(n for n in range(1, 5) if sum(sorted(size)[-n:]) >= count)
        assert damage == sum(size[zone] for zone in zones) - count


def test_many_cards_come_from_the_smallest_group_that_is_enough():
    picked = Picked(large(40))
    free = [*range(9), *range(10, 17), *range(20, 30), *range(30, 36)]
    assert picked(free, 6) == ([*range(30, 36)], 0)
    assert picked(free, 7) == ([*range(10, 17)], 0)
    assert picked(free, 8) == ([*range(8)], 1)
    assert picked(free, 12, (31,)) == ([*range(10, 16), *range(30, 36)], 1)
    assert picked(free, 2, (31,)) == ([30, 31], 4)


def test_of_many_linked_cards_one_island_is_taken_and_one_alone_leaves_good_groups():
    node = large(24, within([range(10), range(10, 21), range(21, 24)], Path.UNKNOWN, 4))
    assert Picked(node)(range(24), 3) == ([21, 22, 23], 0)
    assert Picked(node)(range(24), 10) == ([*range(10)], 0)
    assert Picked(node)(range(24), 1) == ([21], 2)


def test_of_many_cards_those_of_unknown_zone_come_last():
    node = machine(20, (), [()] * 10 + [(0,)] * 6 + [(1,)] * 4)
    assert Picked(node)(range(20), 7)[0] == [*range(10, 17)]
    assert Picked(node)(range(20), 12)[0] == [0, 1, *range(10, 20)]


# --- what is remembered ---


@pytest.mark.long
def test_what_is_remembered_is_what_is_found_anew():
    node, rng = dgx_1(), random.Random(3)
    picked = Picked(node)
    picked.links = picked.links._replace(memo=empty_keys(16, MEMO_COLUMNS))
    for _ in range(400):
        free = sorted(rng.sample(range(8), rng.randint(4, 8)))
        count = rng.randint(1, 4)
        required = free[: rng.randint(0, 1)]
        assert picked(free, count, required) == Picked(node)(free, count, required)
    assert picked.links.used[0] <= 12


def test_nodes_of_other_layouts_do_not_mix():
    picked = Picked(dgx_1(), TWO_FOURS, bridged(), dgx_1())
    assert picked.links.layout_of.tolist() == [0, 1, 2, 0]
    for row, node in enumerate((dgx_1(), TWO_FOURS, bridged(), dgx_1())):
        assert picked(range(4), 2, row=row) == slow(node, range(4), 2)
    assert picked((0, 2, 4, 5), 2, row=3) == ([4, 5], 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_cards_and_links_are_told_does_not_matter(seed):
    rng, node = random.Random(seed), dgx_1(TWO_ZONES)
    gpus, links = list(node.gpus), list(node.topology.links)
    rng.shuffle(gpus)
    rng.shuffle(links)
    links = tuple(rng.choice((link, Link(link.b, link.a, link.path, link.nvlinks))) for link in links)
    shuffled = Node("n", 64_000, 1 << 36, tuple(gpus), topology=Topology(links=links))
    position = {gpu.index: at for at, gpu in enumerate(gpus)}
    straight, turned = Picked(node), Picked(shuffled)
    for free in all_free(8):
        for count in (1, 2, 3, 4):
            if count <= len(free):
                chosen, damage = turned([position[card] for card in free], count)
                assert ([gpus[at].index for at in chosen], damage) == straight(free, count)
