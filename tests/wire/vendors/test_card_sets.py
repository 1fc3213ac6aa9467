"""Cards of a node that go together, worked out by hand from the rules of HAMi's scheduler."""

import pytest

from ullage.wire.vendors.card_sets import SETS, CardState, SetRequest, boards, links, modules, networks, rows, wings
from ullage.wire.vendors.load import families_of, shipped


def states(free, count=8, facts=None):
    return [CardState(str(at), at, at in free, (facts or {}).get(at, {})) for at in range(count)]


def chosen(rule, free, count, *, cards=8, facts=None, whole=True, machine=""):
    found = rule(states(free, cards, facts), SetRequest(count, whole, machine))
    return None if found is None else [int(uuid) for uuid in found]


@pytest.mark.parametrize(
    ("free", "count", "cards"),
    [
        (range(8), 8, range(8)),
        (range(7), 8, []),
        (range(8), 4, range(4)),
        (range(1, 8), 4, range(4, 8)),
        (range(1, 8), 2, [1, 2]),  # three free cards of a wing go before four
        ([0, 1, 4, 5, 6, 7], 2, [0, 1]),  # two before four
        ([0, 1, 4, 5, 6], 1, [4]),  # for one card: one free, three, two, four
        ([0, 1, 4, 5, 6, 7], 1, [0]),
        ([0, 4, 5, 6, 7], 1, [0]),
        ([2, 6], 2, [2, 6]),
        ([2, 7], 2, []),
        ([1, 2, 3, 5, 6, 7], 4, [2, 3, 6, 7]),  # the first square whose rest, 1 and 5, is linked
        ([0, 1, 3, 4, 5, 7], 4, [0, 1, 4, 5]),
        ([0, 1, 4, 5], 4, [0, 1, 4, 5]),
        ([0, 1, 4, 6], 4, []),
    ],
)
def test_cards_of_two_wings(free, count, cards):
    assert chosen(wings, free, count) == list(cards)


@pytest.mark.parametrize(
    ("free", "count", "machine", "cards"),
    [
        ([3], 1, "trn1.32xlarge", None),
        (range(1, 8), 4, "trn1.32xlarge", range(4, 8)),
        (range(1, 8), 4, "inf2.48xlarge", range(1, 5)),
        (range(1, 8), 8, "trn1.32xlarge", []),
        (range(8), 3, "trn1.32xlarge", []),
        (range(2, 8), 3, "Inf2.48xlarge", range(2, 5)),
        ([0, 2, 4, 6], 2, "inf2.48xlarge", []),
    ],
)
def test_cards_in_a_row(free, count, machine, cards):
    assert chosen(rows, free, count, machine=machine) == (None if cards is None else list(cards))


@pytest.mark.parametrize(
    ("free", "count", "cards"), [([1, 2, 3], 2, [2, 3]), ([1, 2, 4], 2, []), (range(8), 4, range(4)), ([1], 1, None)]
)
def test_whole_modules(free, count, cards):
    assert chosen(modules, free, count) == (None if cards is None else list(cards))


def test_cards_of_the_largest_network():
    facts = {at: {"NetworkID": network} for at, network in enumerate((0, 1, 0, 1, 1, 0, 1, 1))}
    assert chosen(networks, range(8), 4, facts=facts) == [1, 3, 4, 6]
    assert chosen(networks, [0, 1, 2, 3], 3, facts=facts) == [0, 2, 1]
    assert chosen(networks, range(8), 1, facts=facts) is None
    assert chosen(networks, range(8), 9, facts=facts) is None
    assert chosen(networks, range(8), 2, facts={0: {"NetworkID": 1}}) is None


def test_dies_of_one_board():
    facts = {at: {"DeviceStrategy": "die", "AIC": board} for at, board in enumerate("aabbbcdd")}
    assert chosen(boards, range(8), 3, facts=facts) == [2, 3, 4]
    assert chosen(boards, range(8), 3) is None


def test_whole_cards_of_one_link_zone():
    facts = {at: {"LinkZone": zone} for at, zone in enumerate((1, 1, 1, 2, 2, 0, 0, 0))}
    assert chosen(links, range(8), 2, facts=facts) == [3, 4]
    assert chosen(links, range(8), 3, facts=facts) == [0, 1, 2]
    assert chosen(links, range(8), 6, facts=facts) == [3, 4, 0, 1, 2, 5]
    assert chosen(links, range(8), 2, facts=facts, whole=False) is None


def test_each_rule_that_a_file_names_is_there():
    named = {family.sets for family in families_of(shipped())} - {""}
    assert named == set(SETS)
