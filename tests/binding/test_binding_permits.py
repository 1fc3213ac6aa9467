"""What pods may have by bindings: against what can be said of each card alone, whatever bindings there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bindings import ALONE, MIB, SLICED, TURNS, a_card, a_node, a_row, a_view

from ullage.binding.force import in_force
from ullage.binding.permit import BindingClaims, PermittedCard, Place, rejections
from ullage.binding.room import Hindrance
from ullage.model.binding import Binding, BindingState, Consume, ShareMode, Tenant
from ullage.model.compute import OwnerQuota
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.request import ResourceRequirement

NODES = ("n1", "n2", "n3")
CARDS = [f"g{number}" for number in range(5)]
OWNERS = ("alice", "bob", "")
modes = st.sampled_from([ALONE, SLICED, TURNS])


def nodes_of(cards):
    names = {card.node for card in cards.values()}
    return tuple(a_node(*[card for card in cards.values() if card.node == name], name=name) for name in names)


@st.composite
def worlds(draw):
    cards = {
        uuid: a_card(draw(st.sampled_from(NODES)), uuid, 16_000, draw(modes), index=number)
        for number, uuid in enumerate(CARDS)
    }
    bindings = [
        Binding(
            f"b{number}",
            draw(st.sampled_from([*CARDS, "lost", ""])),
            draw(st.sampled_from(["app", "other"])),
            draw(st.sampled_from(OWNERS)),
            draw(st.sampled_from(["ns", ""])),
            draw(st.sampled_from([(), None])),
            draw(st.sampled_from([None, 4000 * MIB, 9000 * MIB, 20_000 * MIB])),
            legacy=draw(st.booleans()),
            state=draw(st.sampled_from([BindingState.BOUND, BindingState.BOUND, BindingState.DRAINING])),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    return cards, bindings


@given(worlds(), st.integers(1, 3))
def test_accepted_bindings_fit_on_their_card_and_rejected_ones_would_not(world, tenants):
    cards, bindings = world
    for card in cards.values():
        there = [each.on(card.memory_bytes) for each in bindings if each.uuid == card.id]
        there = [each for each in there if each.state is not BindingState.INVALID]
        refused = rejections({card.id: card}, there, tenants)
        kept = [each for each in there if each.key not in refused]
        forced = [each for each in kept if each.state is BindingState.DRAINING]
        if not forced:
            assert fits(card, kept, tenants)
        assert not any(each.key in refused for each in forced)
        for each in there:
            before = [other for other in there[: there.index(each)] if other.key not in refused]
            if each.key in refused:
                assert not fits(card, [*before, each], tenants)


@given(worlds(), st.integers(1, 3), st.sampled_from([1, 4000, 9000, 16_000]))
def test_the_free_memory_of_a_card_is_what_another_binding_can_get(world, tenants, mib):
    cards, bindings = world
    bindings = [each for each in bindings if each.app and each.selector is not None]
    view = in_force(a_view(nodes_of(cards), tenants=tenants), bindings)
    for card in cards.values():
        there = [each.on(card.memory_bytes) for each in bindings if each.uuid == card.id]
        there = [each for each in there if each.state is not BindingState.INVALID]
        new = Binding("new", card.id, "new", memory_bytes=mib * MIB)
        accepted = new.key not in rejections({card.id: card}, [*there, new], tenants)
        enough = mib * MIB if card.share is SLICED else 1
        assert accepted is (view.free_bytes(card) >= enough)


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (ALONE, "exclusive-already-bound:g"),
        (SLICED, "device-vram-insufficient:g: 9000Mi are bound, 7000Mi are left"),
        (TURNS, "tenants-exhausted:g: 2 applications would take turns, at most 1 may"),
    ],
)
def test_a_rejected_binding_has_the_needed_and_the_available_amount(share, sentence):
    bindings = [Binding(f"b{size}", "g", f"app{size}", selector=(), memory_bytes=size * MIB) for size in (9001, 9000)]
    view = a_view((a_node(a_card("n1", "g", 16_001, share)),), tenants=1)
    claims = BindingClaims(view, bindings)
    assert [claims.reason(each) for each in bindings] == ["", sentence]


def fits(card, bindings, tenants):
    largest = {}
    for each in bindings:
        app = each.app, each.owner, each.namespace
        largest[app] = max(largest.get(app, 0), each.memory_bytes or 0)
    if card.share is ShareMode.MEMORY_SLICE:
        return sum(largest.values()) <= card.memory_bytes
    return len(largest) <= (1 if card.share is ShareMode.EXCLUSIVE else tenants)


@given(worlds(), st.sampled_from(OWNERS), st.integers(1, 3), st.sets(st.sampled_from(CARDS)), st.sampled_from(Consume))
def test_a_pod_gets_bound_cards_that_no_other_pod_of_its_application_holds(world, owner, asked, held, consume):
    cards, bindings = world
    claims, tenant = BindingClaims(a_view(nodes_of(cards)), bindings), Tenant("app", owner, "ns")
    found = claims.permit(tenant, ResourceRequirement.of(gpu=asked), NODES[:2], held, consume)
    mine = [claims.seen(each) for each in bindings]
    mine = [each for each in mine if each.mismatch(tenant) is None and each.state is BindingState.BOUND]
    assert set(found.places) | set(found.refused) <= set(NODES[:2])
    if len({each.owner for each in mine}) > 1:
        assert found.places == {}
        assert {why.code for why in found.refused.values()} == {Hindrance.CONFLICT}
        return
    usable = {each.uuid for each in mine if each.uuid in cards and claims.rejection(each) is None}
    for node, place in found.places.items():
        got = {each.card.id for each in place.cards}
        here = {uuid for uuid in usable if cards[uuid].node == node}
        assert got <= here - held
        assert len(got) >= place.count >= asked
        assert len({each.card.share for each in place.cards}) == 1
        assert all(each.binding in mine for each in place.cards)
        if consume is Consume.ALL:
            assert got == here
            assert place.count == len(here)
        else:
            assert place.count == asked
    for node in set(NODES[:2]) - found.places.keys():
        here = {uuid for uuid in usable if cards[uuid].node == node}
        enough = not here & held if consume is Consume.ALL else True
        alike = {cards[uuid].share for uuid in here - held}
        if enough and len(alike) == 1 and len(here - held) >= asked and consume is Consume.ALL:
            raise AssertionError(f"{node} would have done")


def test_places_adapt_the_request():
    def under(share, asked, memory=None):
        bound = PermittedCard(Binding("b", "g", "app", memory_bytes=memory), a_card("n1", "g", share=share))
        return Place((bound,), 1).under(asked)

    part = ResourceRequirement(
        gpu_count=1, part=Part(vram_bytes=9 << 30, compute_ppm=300_000), cards=CardSelector(isolation=Isolation.HARD)
    )
    whole = ResourceRequirement.of(gpu=1)
    assert (under(ALONE, part).part, under(ALONE, part).cards.isolation) == (None, Isolation.SHARED)
    assert (under(TURNS, part).part, under(TURNS, part).cards.isolation) == (Part(), Isolation.HARD)
    assert under(TURNS, whole).cards.isolation is Isolation.SOFT
    assert under(SLICED, part, 4 << 30).part == Part(vram_bytes=4 << 30, compute_ppm=300_000)
    assert under(SLICED, whole, 4 << 30).part == Part(vram_bytes=4 << 30)
    assert under(SLICED, part).part == part.part
    assert under(SLICED, part).cards.uuids == ("g",)


def test_a_card_that_drains_from_another_mode_is_given_to_nobody():
    card = a_card("n1", "g", share=ALONE)
    mine = Binding("b", "g", "app", "alice", "ns", ())
    view = a_view((a_node(card),), (a_row(card, "other", share=TURNS, draining=True),))
    claims = BindingClaims(view, [mine])
    found = claims.permit(Tenant("app", "alice", "ns"), ResourceRequirement.of(gpu=1), ["n1"], ())
    assert found.refused["n1"].text == "device-draining:g"


def test_a_binding_with_an_owner_takes_precedence_over_one_without():
    view = a_view((a_node(a_card("n1", "g", share=SLICED)),))
    old = Binding("a", "g", "app", "alice", "", (), 4000 * MIB, legacy=True)
    new = Binding("b", "g", "app", "alice", "ns", (), 8000 * MIB)
    found = BindingClaims(view, [old, new]).permit(
        Tenant("app", "alice", "ns"), ResourceRequirement.of(gpu=1), ["n1"], ()
    )
    assert found.places["n1"].cards[0].binding.name == "b"


TENANT, ONE = Tenant("app", "alice", "app-alice"), ResourceRequirement(gpu_count=1)


def claims_of(foreign, **facts):
    """Rows of two applications, with 1000 MiB left, and a foreign binding that asks for more than that."""
    card = a_card("n1", "g0", 16_000, SLICED)
    rows = (a_row(card, "app", mib=10_000, row_id="app-1-0"), a_row(card, "third", mib=5_000))
    return BindingClaims(a_view((a_node(card),), rows, **facts), [foreign])


@pytest.mark.parametrize("quotas", [{}, {"alice": OwnerQuota()}])
@pytest.mark.parametrize("app", ["app", "other"])
def test_a_foreign_binding_that_is_named_like_a_row_does_not_share_its_rejection(app, quotas):
    foreign = Binding("app-1-0", "g0", app, "alice", f"{app}-alice", (), 12_000 * MIB)
    claims = claims_of(foreign, quotas=quotas)
    assert claims.crowded_out(foreign) is not None
    assert claims.permit(TENANT, ONE, ["n1"], ()).places.keys() == {"n1"}, "the row is in force"
    others = claims.others_on(Tenant("new", "alice", "new-alice"), "g0")
    assert {each.name for each in others if each.row} == {"app-1-0", "third-alice-g0-Bound"}


@pytest.mark.parametrize("name", ["a", "z"])
def test_of_two_bindings_of_an_application_on_a_card_the_one_in_force_counts(name):
    foreign = Binding(name, "g0", "app", "alice", "app-alice", (), 12_000 * MIB)
    (place,) = claims_of(foreign).permit(TENANT, ONE, ["n1"], ()).places.values()
    assert [each.binding.memory_bytes for each in place.cards] == [10_000 * MIB]
