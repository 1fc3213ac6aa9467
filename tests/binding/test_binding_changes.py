"""Changes of the ledger: binding, letting go, switching how cards are shared, migration; and preflights."""

from dataclasses import replace

import pytest
from tests.bindings import ALONE, GIB, MIB, ROOMY, SLICED, TURNS, a_card, a_node, a_row, a_view, an_app, ask

from ullage.binding.migration import migrated
from ullage.binding.preflight import preflight
from ullage.binding.rows import Ledger, LedgerChange, applied, bound, drained, released
from ullage.binding.switching import share_of, switched
from ullage.model.affinity import Expression, Operator
from ullage.model.binding import Binding, BindingState
from ullage.model.compute import CPU, AppKey, AppState, HostRoom, OwnerQuota, Pick
from ullage.model.compute_result import AppDemand, Shortage, StoppedApp, SwitchStatus
from ullage.model.error import InvalidRequest

CARD = a_card(share=SLICED)
VIEW = a_view((a_node(CARD, a_card(device="d2", share=SLICED)),))
BOTH = (Pick("n1", "d1", MIB), Pick("n1", "d2", MIB))


# --- binding and letting go ---


def test_unchanged_rows_keep_their_ids():
    app = an_app()
    ledger = applied(Ledger(), bound(VIEW, Ledger(), app, BOTH, ()))
    assert bound(VIEW, ledger, app, BOTH, ()).empty
    change = bound(VIEW, ledger, app, (BOTH[0], replace(BOTH[1], memory_bytes=2 * MIB)), ())
    assert change.drop == (ledger.rows[1].id,)
    assert [row.memory_bytes for row in change.put] == [2 * MIB]
    ids = {row.id for row in (*ledger.rows, *change.put)}
    assert len(ids) == 3


def test_a_released_row_drains_while_a_pod_runs_with_it():
    first, second = a_row(CARD, row_id="a"), a_row(CARD, "other", row_id="b")
    change = released([first, second], {"a"})
    assert change.drop == ("b",)
    ledger = applied(Ledger(rows=(first, second)), change)
    assert [(row.id, row.draining) for row in ledger.rows] == [("a", True)]
    assert released(ledger.rows, {"a"}).empty
    assert drained(ledger, {"a"}).empty
    assert applied(ledger, drained(ledger, ())).rows == ()


# --- switching ---


def switch(rows, share=ALONE, apps=(), held=(), card=CARD):
    return switched(Ledger(rows=tuple(rows)), card, share, {app.key: app for app in apps}, held)


def test_48_a_switch_to_the_same_mode_changes_nothing_and_an_unknown_mode_is_refused():
    report, change = switch([a_row(CARD, mib=1)], SLICED)
    assert (report.status, change.empty) == (SwitchStatus.UNCHANGED, True)
    assert share_of(CARD, "TimeSlice") is TURNS
    for wrong, card in (("MemoryShared", CARD), ("TimeSlice", replace(CARD, accelerator="amd")), ("", CARD)):
        with pytest.raises(InvalidRequest, match="supportType"):
            share_of(card, wrong)


def test_49_applications_on_the_card_stop_and_release_all_their_cards():
    other = a_card(device="d2", share=SLICED)
    rows = [a_row(CARD, row_id="a", mib=1), a_row(other, row_id="b", mib=1), a_row(other, "third", row_id="c", mib=1)]
    report, change = switch(rows, apps=[an_app()], held={"a"})
    assert (report.status, report.stopped) == (SwitchStatus.SWITCHED, (StoppedApp(an_app().key, "running"),))
    ledger = applied(Ledger(rows=tuple(rows)), change)
    assert [(row.id, row.draining) for row in ledger.rows] == [("a", True), ("c", False)]
    assert ledger.shares == {CARD.key: ALONE}


@pytest.mark.parametrize("state", [AppState.INSTALLING, AppState.UPGRADING, AppState.RESUMING, "somethingNew"])
def test_an_application_that_cannot_stop_blocks_the_switch(state):
    rows = [a_row(CARD, mib=1), a_row(CARD, "other", mib=1)]
    report, change = switch(rows, apps=[an_app(), an_app("other", state=state)])
    assert (report.status, report.stopped) == (SwitchStatus.BLOCKED, ())
    assert report.blocked == (StoppedApp(an_app("other").key, state, "stop-operation-not-allowed"),)
    assert change == LedgerChange()


def test_an_application_that_is_stopped_or_gone_is_not_stopped_again():
    rows = [a_row(CARD, mib=1), a_row(CARD, "gone", mib=1)]
    report, change = switch(rows, apps=[an_app(state=AppState.STOPPED)])
    assert (report.status, report.stopped, len(change.drop)) == (SwitchStatus.SWITCHED, (), 2)


# --- preflight ---


def demand(name, requirement, owner="alice"):
    return AppDemand(name, AppKey(name, owner), requirement)


def short(view, *demands):
    found = preflight(view, demands)
    return found.failed, found.reason


def test_each_demand_gets_the_room_that_earlier_ones_left():
    view = a_view((a_node(CARD),))
    fits = [demand("a", ask(8000)), demand("b", ask(8000))]
    assert preflight(view, fits).installable
    assert short(view, *fits, demand("c", ask(1))) == ("c", Shortage.CLUSTER_CAPACITY)


def test_the_shortage_is_reported():
    view = a_view((a_node(CARD, capacity=HostRoom(10_000, 100 * GIB)),))
    assert short(view, demand("a", ask(accelerator="amd"))) == ("a", Shortage.UNSCHEDULABLE)
    assert short(view, demand("a", ask(cpu_milli=9001))) == ("a", Shortage.CLUSTER_PRESSURE)
    two = a_view((*view.by_name.values(), a_node(name="n2", capacity=ROOMY)))
    assert short(two, demand("a", ask(cpu_milli=9001))) == ("a", Shortage.NODE_PRESSURE)
    asked_for = a_view((replace(view.by_name["n1"], requested=HostRoom(9_500)),))
    assert short(asked_for, demand("a", ask(cpu_milli=501))) == ("a", Shortage.K8S_REQUEST)
    assert short(asked_for, demand("a", ask(cpu_milli=500))) == (None, None)


def test_all_demands_of_an_owner_count_towards_its_quota():
    view = a_view((a_node(CARD),), quotas={"alice": OwnerQuota(cpu_milli=2000)})
    demands = [demand(name, ask(1)) for name in "ab"]
    assert preflight(view, demands).installable
    assert short(view, *demands, demand("c", ask(1))) == ("c", Shortage.OWNER_QUOTA)
    assert preflight(view, [*demands, demand("c", ask(1), "bob")]).installable


def test_a_demand_without_cards_needs_only_a_node():
    view = a_view(
        (a_node(name="n1", capacity=HostRoom(1000, 10 * GIB)), a_node(name="n2", capacity=HostRoom(9000, GIB)))
    )
    asked = ask(0, accelerator=CPU, cpu_milli=900, memory_bytes=GIB)
    assert preflight(view, [demand("a", asked)]).installable
    assert short(view, demand("a", asked), demand("b", asked)) == ("b", Shortage.NODE_PRESSURE)


# --- migration ---

UUID = "d1"


def old(name="b", app="comfyui", mib=4000, **facts):
    return Binding(name, UUID, app, memory_bytes=mib * MIB, legacy=True, **({"selector": ()} | facts))


def move(bindings, apps, ledger=None, view=VIEW):
    ledger = ledger or Ledger()
    return migrated(replace(view, rows=ledger.rows), ledger, bindings, apps)


def test_a_binding_becomes_a_row_once():
    found = move([old()], [an_app()])
    assert (found.kept, found.problems) == (["b"], [])
    ledger = applied(Ledger(), found.change)
    assert [(row.id, row.app.owner, row.memory_bytes) for row in ledger.rows] == [("b", "alice", 4000 * MIB)]
    again = move([old()], [an_app()], ledger)
    assert (again.unchanged, again.change.empty) == (["b"], True)


@pytest.mark.parametrize(
    ("binding", "owner"),
    [
        (old(owner="bob"), "bob"),
        (old(namespace="comfyui-bob"), "bob"),
        (old(selector=(Expression("tier", Operator.IN, ("b",)),)), "bob"),
        (old(owner="carol"), None),
    ],
)
def test_owner_namespace_and_selector_identify_the_application(binding, owner):
    apps = [an_app(), an_app("comfyui", "bob", labels={"tier": "b"})]
    found = move([binding], apps)
    assert [row.app.owner for row in found.change.put] == ([owner] if owner else [])
    assert found.dropped == ([] if owner else ["b"])


def test_an_ambiguous_binding_is_reported_unless_it_is_that_of_a_shared_server():
    apps = [an_app(), an_app("comfyui", "bob")]
    found = move([old()], apps)
    assert (found.change.empty, found.kept, found.dropped) == (True, [], [])
    assert "alice" in found.problems[0].reason
    assert "bob" in found.problems[0].reason
    served = [*apps, an_app("comfyui", "carol", shared_server=True)]
    assert [row.app.owner for row in move([old()], served).change.put] == ["carol"]


def test_only_bindings_in_use_are_kept_in_either_spelling_of_the_state():
    for state, kept in (
        ("Running", True),
        ("applyEnvFailed", True),
        ("ApplyingEnv", True),
        ("stopped", False),
        ("", False),
    ):
        assert bool(move([old()], [an_app(state=state)]).kept) is kept
    assert move([old()], []).dropped == ["b"]


def test_an_invalid_binding_does_not_block_the_others():
    bad = [
        old("a1", mib=16_001),
        replace(old("a2"), uuid="d9"),
        replace(old("a3"), memory_bytes=None),
        old("a4", state=BindingState.INVALID, reason="broken"),
    ]
    found = move([*bad, old()], [an_app()])
    assert [problem.item for problem in found.problems] == ["a1", "a2", "a3", "a4"]
    assert found.kept == ["b"]
