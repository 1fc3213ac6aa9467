"""What the applications of one owner may have together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bindings import ALONE, GIB, MIB, SLICED, TURNS, a_card, a_node, a_row, a_view, an_app, ask

from ullage.binding.assignment import reassigned
from ullage.binding.force import in_force
from ullage.binding.installation import chosen
from ullage.binding.migration import migrated
from ullage.binding.permit import BindingClaims
from ullage.binding.preflight import preflight
from ullage.binding.quotas import beyond_quota, quota_uses
from ullage.binding.rows import Ledger, as_binding, row_on
from ullage.binding.validation import validate
from ullage.model.binding import Binding
from ullage.model.compute import AppKey, AppQuota, CardKey, CardQuota, HostRoom, OwnerQuota, Pick
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
    assert beyond_quota(there, APP.key, [a_row(CARDS[0], "new")]).code == "owner-quota:cards"
    assert beyond_quota(there, an_app("new", "bob").key, [a_row(CARDS[0], "new", "bob")]) is None
    assert beyond_quota(a_view((NODE,)), APP.key, [a_row(CARDS[0], "new")]) is None


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
    cards, vram = (each.dimension for each in quota_uses(there, APP.key, rows=more))

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


# --- models and applications ---

A100, A10, L4 = (
    replace(a_card(device=name, share=share), model=model)
    for name, share, model in (
        ("a100", ALONE, "NVIDIA A100-SXM4-40GB"),
        ("a10", ALONE, "NVIDIA-A10"),
        ("l4", SLICED, "NVIDIA L4"),
    )
)
MIXED = a_node(A100, A10, L4)
SEVERAL = an_app("new", "alice", ask(4000, several_cards=True), one_card_per_pod=True)


def models(quota, *rows):
    return a_view((MIXED,), rows, quotas={"alice": quota})


def pick(card, mib=4000):
    return Pick("n1", card.id, mib * MIB)


def test_a_quota_of_a_model_counts_only_cards_whose_name_starts_with_it():
    one = models(OwnerQuota(models={"a100": CardQuota(cards=1)}), a_row(A100, "other"))
    assert code(one, pick(A10)) == ""
    full = models(OwnerQuota(models={"A10": CardQuota(cards=0)}))
    assert code(full, pick(A100)) == ""  # A10 is no start of A100
    assert code(full, pick(A10)) == "owner-quota:cards:A10"
    slices = models(OwnerQuota(models={"NVIDIA L4": CardQuota(vram_bytes=6000 * MIB)}), a_row(L4, "other", mib=2000))
    assert code(slices, pick(L4)) == ""
    assert code(slices, pick(L4, 4001)) == "owner-quota:vram:NVIDIA L4"


def test_a_quota_of_an_application_counts_its_own_rows():
    quota = OwnerQuota(apps={"new": AppQuota(cards=1, models={"L4": CardQuota(vram_bytes=0)}), "*": AppQuota(cards=2)})
    there = models(quota, a_row(A100, "other"), a_row(A10, "other"))
    assert code(models(quota), pick(A100)) == ""
    assert code(models(quota), pick(A100), pick(A10)) == "app-quota:cards"
    assert code(there, pick(L4)) == "app-quota:vram:L4"
    other = an_app("other", "alice").key
    assert beyond_quota(there, other, [a_row(L4, "other", mib=1)]).code == "app-quota:cards"
    assert beyond_quota(there, an_app("third", "alice").key, [a_row(L4, "third", mib=1)]) is None
    elsewhere = replace(a_row(A10, "new"), app=APP.key._replace(namespace="elsewhere"))
    assert code(models(quota, elsewhere), pick(A100)) == "app-quota:cards"  # of that name, in all namespaces


def test_the_quota_of_the_owner_comes_first_and_the_sentence_has_its_numbers_and_what_helps():
    quota = OwnerQuota(cards=1, models={"A100": CardQuota(cards=0)}, apps={"new": AppQuota(cards=0)})
    found = validate(models(quota, a_row(A10, "chat")), ask(4000), [pick(A100)], APP.key).quota
    assert found.code == "owner-quota:cards"
    assert found.sentence == (
        "the quota of alice is 1 (cards): 1 used, 1 more asked; "
        "release a card of chat, or have an administrator raise kube.bindings.quotas.alice.cards"
    )
    sliced = models(OwnerQuota(apps={"*": AppQuota(vram_bytes=3000 * MIB)}))
    found = validate(sliced, ask(4000), [pick(L4)], APP.key).quota
    assert "is 3000Mi (memory of cards): 0 used, 4000Mi more asked; ask for at most 3000Mi, or" in found.sentence
    assert 'kube.bindings.quotas.alice.apps."*".vram' in found.sentence


def test_an_automatic_choice_takes_a_model_of_which_the_quota_has_some_left():
    quota = OwnerQuota(models={"A100": CardQuota(cards=0), "A10": CardQuota(vram_bytes=0)})
    assert chosen(models(quota), SEVERAL, "", ())[1] == (pick(L4),)
    found = chosen(
        models(replace(quota, models={"": CardQuota(cards=0), **quota.models, "L4": CardQuota(cards=0)})), APP, "", ()
    )
    assert isinstance(found, FailedCheck)
    assert found.validation.code.startswith("owner-quota")
    demands = [AppDemand(name, an_app(name, "alice").key, ask(4000)) for name in "ab"]
    result = preflight(models(OwnerQuota(models={"A1": CardQuota(cards=9)}, apps={"b": AppQuota(cards=0)})), demands)
    assert (result.failed, result.quota.code) == ("b", "app-quota:cards")


def foreign(name, card, app="new", owner="alice", mib=None):
    memory = None if mib is None else mib * MIB
    return Binding(name, card.id, app, owner, f"{app}-{owner}", selector=(), memory_bytes=memory)


def test_bindings_of_other_writers_beyond_a_quota_are_not_in_force_and_take_nothing():
    quota = OwnerQuota(cards=1, apps={"new": AppQuota(vram_bytes=0)})
    own = models(quota)
    bindings = [
        foreign("0", A100),
        foreign("1", A10, "chat"),
        foreign("2", L4, "chat", mib=1),
        foreign("3", L4, "x", "bob"),
    ]
    claims = BindingClaims(own, bindings)
    assert [claims.reason(each).partition(": ")[0] for each in bindings] == [
        "app-quota:vram",
        "",
        "owner-quota:cards",
        "",
    ]
    assert "is 1 (cards): 1 used, 1 more asked; release a card of chat" in claims.reason(bindings[2])
    there = in_force(own, bindings)
    assert {row.app.name for row in there.rows} == {"chat", "x"}
    (card,) = (each.dimension for each in quota_uses(there, APP.key) if each.dimension.resource == "cards")
    assert (card.used, card.capacity) == (1, 1)


def test_a_lowered_quota_keeps_rows_of_the_ledger_and_a_binding_without_an_owner_is_in_no_quota():
    own = models(OwnerQuota(cards=0), a_row(A100, "chat"))
    claims = BindingClaims(own, [foreign("0", A10, "chat")])
    (row,) = own.rows
    assert claims.reason(as_binding(row)) == ""
    assert claims.reason(foreign("0", A10, "chat")).startswith("owner-quota:cards")
    every = replace(own, quotas={"*": OwnerQuota(cards=0)})
    assert BindingClaims(every, [foreign("0", A10, "chat", "")]).reason(foreign("0", A10, "chat", "")) == ""


def test_a_binding_with_the_name_of_a_row_is_not_exempt_from_quotas():
    own = models(OwnerQuota(cards=1), a_row(A100, "chat", row_id="chat-1-0"))
    disguised = foreign("chat-1-0", A10)
    assert BindingClaims(own, [disguised]).reason(disguised).startswith("owner-quota:cards")


def test_a_migration_makes_no_row_beyond_a_quota():
    binding = foreign("0", A10, "chat")
    done = migrated(models(OwnerQuota(cards=0)), Ledger(), [binding], [an_app("chat", "alice")])
    assert (done.kept, [each.item for each in done.problems]) == ([], ["0"])
    assert done.problems[0].reason.startswith("owner-quota:cards: the quota of alice is 0 (cards)")


some_bindings = st.lists(
    st.tuples(st.sampled_from((A100, A10, L4)), st.sampled_from(("new", "chat")), st.integers(1, 8000)), max_size=8
)


@given(some_bindings, st.integers(0, 3), st.integers(0, 3), st.integers(0, 60_000))
def test_what_is_in_force_is_within_every_quota_and_what_is_not_would_exceed_one(some, cards, of_app, vram):
    quota = OwnerQuota(
        cards,
        models={"A": CardQuota(vram_bytes=vram * MIB), "L4": CardQuota(vram_bytes=vram * MIB)},
        apps={"new": AppQuota(cards=of_app)},
    )
    own = replace(models(quota), tenants=99)
    bindings = [foreign(f"{number}", card, app, mib=mib) for number, (card, app, mib) in enumerate(some)]
    claims = BindingClaims(own, bindings)
    for number, each in enumerate(bindings):
        before = in_force(own, bindings[:number])
        row = row_on(
            own.inventory.by_device[each.uuid],
            each.name,
            AppKey(each.app, each.owner, each.namespace),
            each.memory_bytes,
        )
        over = beyond_quota(before, row.app, [row])
        reason = claims.reason(each)
        if reason.partition(":")[0] in ("owner-quota", "app-quota"):
            assert over is not None
            assert over.code == reason.partition(": ")[0]
        elif not reason:
            assert over is None


def test_a_binding_whose_card_is_shared_otherwise_counts_whole_and_may_leave_its_quota():
    binding = foreign("0", L4, "chat", mib=1000)
    quota = OwnerQuota(vram_bytes=8000 * MIB)
    assert BindingClaims(models(quota), [binding]).reason(binding) == ""
    turns = a_view((a_node(replace(L4, share=TURNS)),), quotas={"alice": quota})
    assert BindingClaims(turns, [binding]).reason(binding).startswith("owner-quota:vram: ")
