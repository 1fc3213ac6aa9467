"""What the applications of one owner may have together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bindings import ALONE, GIB, MIB, SLICED, TURNS, a_card, a_node, a_row, a_view, an_app, ask

from ullage.binding.assignment import reassigned
from ullage.binding.installation import chosen
from ullage.binding.limits import beyond_quota, of_quota
from ullage.binding.preflight import preflight
from ullage.binding.rows import Ledger
from ullage.binding.validation import validate
from ullage.model.compute import CardKey, HostRoom, OwnerQuota, Pick
from ullage.model.compute_result import AppDemand, CheckType, FailedCheck, Shortage
from ullage.model.error import Conflict

CARDS = (a_card(device="alone", share=ALONE), a_card(device="sliced", share=SLICED), a_card(device="turns"))
NODE = a_node(*CARDS)
APP = an_app("new", "alice", ask(4000), one_card_per_pod=True)
SLICE, WHOLE, TURN = (Pick("n1", each, 4000 * MIB) for each in ("sliced", "alone", "turns"))


def view(*rows, **quota):
    return a_view((NODE,), rows, quotas={"alice": OwnerQuota(**quota)})


def code(there, *picks):
    return validate(there, ask(4000, several_cards=True), picks, APP.key).code


def test_a_choice_beyond_the_quota_of_its_owner_is_refused_with_the_resource():
    row = a_row(CARDS[0])
    assert code(view(row, cards=2), TURN) == ""
    assert code(view(row, cards=1), TURN) == "owner-quota:cards"
    assert code(view(row, cards=1), SLICE) == "owner-quota:cards"
    assert code(view(a_row(CARDS[0], owner="bob"), cards=1), TURN) == ""
    assert code(view(cards=0), TURN) == "owner-quota:cards"
    assert code(view(vram_bytes=4000 * MIB), SLICE) == ""
    assert code(view(vram_bytes=4000 * MIB - 1), SLICE) == "owner-quota:vram"
    assert code(view(vram_bytes=16_000 * MIB - 1), WHOLE) == "owner-quota:vram"


def test_a_card_with_several_applications_of_one_owner_counts_once():
    there = view(a_row(CARDS[2], "one"), a_row(CARDS[2], "two"), cards=1, vram_bytes=16_000 * MIB)
    assert code(there, TURN) == ""
    shared = view(a_row(CARDS[1], "one", mib=6000), cards=1, vram_bytes=10_000 * MIB)
    assert code(shared, SLICE) == ""
    assert code(view(a_row(CARDS[1], "one", mib=6001), cards=1, vram_bytes=10_000 * MIB), SLICE) == "owner-quota:vram"


def test_an_owner_without_a_quota_has_that_of_everybody():
    there = a_view((NODE,), quotas={"*": OwnerQuota(cards=0), "bob": OwnerQuota()})
    assert beyond_quota(there, APP.key, [a_row(CARDS[0], "new")]) == "owner-quota:cards"
    assert beyond_quota(there, an_app("new", "bob").key, [a_row(CARDS[0], "new", "bob")]) == ""
    assert beyond_quota(a_view((NODE,)), APP.key, [a_row(CARDS[0], "new")]) == ""


def test_an_automatic_installation_respects_the_quota():
    found = chosen(view(cards=0), APP, "", ())
    assert isinstance(found, FailedCheck)
    assert (found.type, found.validation.code) == (CheckType.UNAVAILABLE, "owner-quota:cards")
    assert chosen(view(cards=1), APP, "", ())[1] == (Pick("n1", "alone"),)


def test_cards_are_assigned_within_the_quota_and_can_always_be_unassigned():
    rows = (a_row(CARDS[0], "new"), a_row(CARDS[2], "new"))
    there, ledger = view(*rows, cards=1), Ledger(rows=rows)
    with pytest.raises(Conflict) as refused:
        reassigned(there, ledger, APP, [SLICE], [], ())
    assert refused.value.code == "owner-quota:cards"
    assert reassigned(there, ledger, APP, [], [CardKey("n1", "turns")], ()).drop == (rows[1].id,)
    assert reassigned(there, ledger, APP, [WHOLE], [], ()).empty  # it has more than it may, and loses nothing
    assert reassigned(there, ledger, APP, [SLICE], [row.card for row in rows], ()).put[0].card.device == "sliced"


def test_a_preflight_checks_the_quota_of_cards():
    demands = [AppDemand(name, an_app(name, "alice").key, ask(4000)) for name in "ab"]
    found = preflight(view(cards=1), demands)
    assert (found.failed, found.reason) == ("b", Shortage.OWNER_QUOTA)
    (cards,) = found.dimensions
    assert (cards.resource, cards.required, cards.used, cards.capacity) == ("cards", 1, 1, 1)
    roomy = replace(view(cpu_milli=2000, memory_bytes=GIB), owner_use={"alice": HostRoom(1000)})
    assert preflight(roomy, demands[:1]).installable
    assert [each.resource for each in preflight(roomy, demands).dimensions if each.pressured] == ["cpu", "memory"]


rows = st.lists(
    st.builds(
        lambda card, app, owner, mib, drains: a_row(card, app, owner, mib=mib, draining=drains),
        st.sampled_from(CARDS),
        st.sampled_from("abc"),
        st.sampled_from(("alice", "bob")),
        st.integers(1, 4000),
        st.booleans(),
    ),
    max_size=6,
)


@given(rows, rows)
def test_the_usage_of_a_quota_is_what_the_rows_hold(before, more):
    more = [replace(row, app=APP.key) for row in more]
    there = a_view((NODE,), tuple(before), quotas={"alice": OwnerQuota(cards=99, vram_bytes=2**50)})
    cards, vram = of_quota(there, APP.key, rows=more)

    def slow(rows):
        mine = [row for row in rows if row.app.owner == "alice"]
        total = 0
        for card in CARDS:
            on = [row for row in mine if row.card == card.key]
            if card.share is SLICED:
                total += sum(max(row.memory_bytes for row in on if row.app == app) for app in {row.app for row in on})
            elif on:
                total += card.memory_bytes
        return len({row.card for row in mine}), total

    assert (cards.used, vram.used) == slow(before)
    assert (cards.used + cards.required, vram.used + vram.required) == slow([*before, *more])
    assert {row.share for row in before} <= {ALONE, SLICED, TURNS}
