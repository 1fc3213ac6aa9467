"""Automatic placement against all subsets of cards, and against the judge of choices made by hand."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st
from tests.bindings import ALONE, GIB, SLICED, TURNS, a_card, a_node, a_row, a_view, ask, overfull

from ullage.binding.availability import availability
from ullage.binding.placement import place, roomy
from ullage.binding.preflight import preflight
from ullage.binding.rows import rows_of
from ullage.binding.validation import validate
from ullage.model.compute import AppKey, HostRoom, Pick
from ullage.model.compute_result import AppDemand

APP = AppKey("new", "alice", "new-alice")
SIZES = (2000, 3000, 5000, 8000)
RANK = {ALONE: 0, SLICED: 1, TURNS: 2}


@st.composite
def views(draw):
    nodes, rows = [], []
    for name in ("n1", "n2", "n3")[: draw(st.integers(1, 3))]:
        cards = []
        for number in range(draw(st.integers(0, 3))):
            share = draw(st.sampled_from((ALONE, SLICED, TURNS)))
            kind = draw(st.sampled_from(("nvidia", "nvidia", "nvidia", "amd")))
            size = draw(st.sampled_from(SIZES))
            healthy = draw(st.integers(0, 5)) > 0
            card = a_card(name, f"d{number}", size, share, kind, healthy=healthy)
            cards.append(card)
            for tenant in range(draw(st.integers(0, 1 if share is ALONE else 2))):
                mib = draw(st.integers(1, size // 2)) if share is SLICED else 0
                was = draw(st.sampled_from((share, share, share, TURNS)))
                rows.append(a_row(card, f"t{tenant}", mib=mib, share=was, draining=was is not share))
        nodes.append(a_node(*cards, name=name, used=HostRoom(0, draw(st.sampled_from((0, 0, 250))) * GIB)))
    return a_view(tuple(nodes), tuple(rows), tenants=2)


requirements = st.builds(
    lambda mib, more, kind, cards, nodes: ask(
        mib, mib + more if more else 0, kind, several_cards=cards, several_nodes=nodes
    ),
    st.sampled_from((1, 1500, 3000, 6000, 12_000)),
    st.sampled_from((0, 0, 2000, 5000)),
    st.sampled_from(("nvidia", "nvidia", "amd")),
    st.booleans(),
    st.booleans(),
)


def choices(view, asked):
    """All choices of cards; where memory is shared out, all of what is left is asked."""
    cards = list(view.cards.values())
    for some in chain.from_iterable(combinations(cards, count) for count in range(1, len(cards) + 1)):
        yield tuple(Pick(card.node, card.id, view.free_bytes(card)) for card in some)


@given(views(), requirements)
def test_cards_are_found_exactly_if_some_choice_is_valid(view, asked):
    found = place(view, asked, roomy(view, asked))
    possible = any(validate(view, asked, chosen, APP).ok for chosen in choices(view, asked))
    assert (found is not None) is possible
    assert availability(view, asked).schedulable is possible
    if found is not None:
        assert validate(view, asked, found, APP).ok


@given(views(), requirements)
def test_a_single_card_is_the_best_one_that_fits(view, asked):
    found = place(view, asked, roomy(view, asked)) or ()
    amounts = (asked.limit_bytes, asked.gpu_bytes)
    level = next((amount for amount in amounts if total(view, asked, found) >= amount), None)
    if len(found) != 1 or level is None:
        return
    names = {node.name for node in roomy(view, asked)}
    fitting = [
        (RANK[card.share], view.free_bytes(card), card.key)
        for card in view.cards.values()
        if card.node in names
        and card.healthy
        and card.accelerator == asked.accelerator
        and view.free_bytes(card) >= level
    ]
    assert min(fitting)[2] == found[0].key


def total(view, asked, found):
    return sum(pick.memory_bytes or view.cards[pick.key].memory_bytes for pick in found)


@given(views(), st.lists(requirements, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_successive_placements_never_promise_more_than_a_card_has(view, asked, chance):
    assert overfull(view) == []
    demands = [AppDemand(f"a{number}", AppKey(f"a{number}", "alice"), each) for number, each in enumerate(asked)]
    result = preflight(view, demands)
    done = dict(result.picks)
    for demand in demands if result.installable else ():
        added = rows_of(view, demand.app, demand.requirement, done[demand.id])
        assert added
        view = view.with_rows(added)
    assert overfull(view) == []
    nodes = list(view.by_name.values())
    chance.shuffle(nodes)
    again = a_view(tuple(nodes), tuple(reversed(view.rows)), tenants=2)
    assert [place(again, each, roomy(again, each)) for each in asked] == [
        place(view, each, roomy(view, each)) for each in asked
    ]
