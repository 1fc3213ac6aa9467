"""Use cases of bindings over a port in memory: what is committed is what was decided, or nothing."""

import asyncio
from dataclasses import replace

import pytest
from tests.bindings import ALONE, GIB, MIB, SLICED, MemoryBindings, a_card, a_node, a_row, an_app, ask

from ullage.binding.rows import LedgerChange
from ullage.model.compute import CPU, AppKey, AppState, CardKey, Pick
from ullage.model.compute_result import AppDemand, CheckType, FailedCheck, InstallStatus, SwitchStatus
from ullage.model.error import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable, VersionChanged
from ullage.service.bindings import Bindings, Terms
from ullage.service.bindings_snapshot import Caller, NamedApp

ALICE, BOB, ADMIN = Caller("alice"), Caller("bob"), Caller("root", is_admin=True)
COMFY = NamedApp("comfyui")
CARD = a_card(share=SLICED)
STOPPED = an_app(state=AppState.STOPPED)


SECOND = a_card(device="d2", share=SLICED)


def hold(*apps, cards=(CARD, SECOND)):
    return MemoryBindings((a_node(*cards),)).have(*(apps or (STOPPED,)))


def pick(device="d1", mib=8000, node="n1"):
    return (Pick(node, device, mib * MIB),)


def run(port, what, *args, **more):
    return asyncio.run(getattr(Bindings(port), what)(*args, **more))


def devices(port):
    return [(row.card.device, row.draining) for row in port.state.rows]


# --- validate and resume ---


def test_45_a_good_choice_is_shown_and_nothing_stored():
    port = hold()
    before = port.state
    assert run(port, "validate", ALICE, COMFY, ()).type is CheckType.REQUIRED
    found = run(port, "validate", ALICE, COMFY, pick())
    assert (found.validation.ok, found.availability.schedulable) == (True, True)
    assert [(row.card.device, row.memory_bytes) for row in found.rows] == [("d1", 8000 * MIB)]
    assert (port.state, port.reported) == (before, [])


def test_50_without_a_choice_resume_returns_the_available_cards():
    port = hold()
    found = run(port, "resume", ALICE, COMFY, ())
    assert (found.type, found.availability.schedulable, port.reported) == (CheckType.REQUIRED, True, [])


def test_resume_commits_the_validated_choice():
    port = hold()
    planned = run(port, "validate", ALICE, COMFY, pick()).rows
    rows = run(port, "resume", ALICE, COMFY, pick())
    assert [replace(row, id="") for row in rows] == [replace(row, id="") for row in planned]
    assert rows == port.state.rows
    assert port.reported == [("start", STOPPED.key)]


def test_its_own_rows_do_not_stand_in_the_way_of_an_application():
    port = hold(an_app()).bind(a_row(CARD, mib=10_000))
    rows = run(port, "resume", ALICE, COMFY, pick(mib=12_000))
    assert [(row.card.device, row.memory_bytes) for row in rows] == [("d1", 12_000 * MIB)]


def test_an_unusable_choice_changes_nothing():
    port = hold().bind(a_row(CARD, "other", mib=10_000))
    before = port.state
    found = run(port, "resume", ALICE, COMFY, pick())
    assert (found.type, found.validation.code) == (CheckType.UNAVAILABLE, "device-vram-insufficient:d1")
    assert (port.state, port.reported) == (before, [])


def test_if_it_cannot_start_its_rows_are_taken_back_and_the_key_is_free():
    port = hold()
    port.fail["start"] = Unavailable("no controller")
    terms = Terms("k1")
    with pytest.raises(Unavailable, match="no controller"):
        run(port, "resume", ALICE, COMFY, pick(), terms)
    assert (port.state.rows, port.reported) == ((), [])
    assert len(run(port, "resume", ALICE, COMFY, pick(), terms)) == 1


def test_a_running_application_keeps_its_cards_if_it_cannot_start_on_others():
    port = hold()
    rows = run(port, "resume", ALICE, COMFY, pick())
    port.fail["start"] = Unavailable("no controller")
    with pytest.raises(Unavailable, match="no controller"):
        run(port, "resume", ALICE, COMFY, pick("d2"))
    assert port.state.rows == rows


def test_a_failed_commit_changes_nothing_and_starts_no_application():
    port = hold()
    port.fail["commit"] = Unavailable("no store")
    with pytest.raises(Unavailable, match="no store"):
        run(port, "resume", ALICE, COMFY, pick())
    assert (port.state.rows, port.state.version, port.reported) == ((), 0, [])


def test_59_of_two_concurrent_requests_for_the_last_memory_one_wins_and_the_other_is_refused():
    port = hold(cards=(CARD,))
    rival = LedgerChange(put=(a_row(CARD, "other", "bob", mib=12_000),))
    port.rivals.append(rival)
    found = run(port, "resume", ALICE, COMFY, pick())
    assert (found.type, found.validation.code) == (CheckType.UNAVAILABLE, "device-vram-insufficient:d1")
    assert port.state.rows == rival.put


def test_after_too_many_conflicts_the_caller_is_asked_to_try_again():
    port = hold()
    port.rivals += [LedgerChange() for _ in range(20)]
    with pytest.raises(Unavailable, match="try again"):
        run(port, "resume", ALICE, COMFY, pick())


# --- keys and versions ---


def test_a_repeat_under_its_key_is_answered_and_not_done_again():
    port = hold()
    first = run(port, "resume", ALICE, COMFY, pick(), Terms("k1"))
    assert run(port, "resume", ALICE, COMFY, pick(), Terms("k1")) == first
    assert (port.state.version, port.reported) == (1, [("start", STOPPED.key)])
    run(port, "suspend", ALICE, COMFY)
    assert run(port, "resume", ALICE, COMFY, pick(), Terms("k1")) == ()
    with pytest.raises(Conflict, match="something else"):
        run(port, "resume", ALICE, COMFY, pick("d2"), Terms("k1"))


def test_a_key_of_somebody_else_is_another():
    port = hold(STOPPED, an_app("comfyui", "bob", state=AppState.STOPPED))
    run(port, "resume", ALICE, COMFY, pick(), Terms("k1"))
    with pytest.raises(Conflict, match="something else"):
        run(port, "resume", BOB, COMFY, pick(), Terms("k1"))


def test_a_repeat_stops_the_applications_that_were_not_stopped_before_a_crash():
    port = hold()
    port.fail["start"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(port, "resume", ALICE, COMFY, pick(), Terms("k1"))
    assert len(run(port, "resume", ALICE, COMFY, pick(), Terms("k1"))) == 1
    assert port.reported == [("start", STOPPED.key)]


def test_a_version_that_is_not_the_latest_is_refused():
    port = hold()
    assert run(port, "resume", ALICE, COMFY, pick(), Terms(version=0))
    with pytest.raises(VersionChanged):
        run(port, "resume", ALICE, COMFY, pick("d2"), Terms(version=0))
    port.rivals.append(LedgerChange())
    with pytest.raises(VersionChanged):
        run(port, "resume", ALICE, COMFY, pick("d2"), Terms(version=1))
    assert devices(port) == [("d1", False)]


# --- suspend and uninstall ---


@pytest.mark.parametrize("what", ["suspend", "uninstall"])
def test_51_a_second_time_there_is_the_same_answer_and_no_rows(what):
    port = hold()
    run(port, "resume", ALICE, COMFY, pick())
    assert [run(port, what, ALICE, COMFY) for _ in range(2)] == [None, None]
    assert run(port, "rows", ALICE, COMFY) == ()
    assert port.reported.count(("stop", STOPPED.key)) == (what == "suspend")


def test_cards_are_free_when_no_pod_runs_on_them():
    port = hold(cards=(CARD,))
    run(port, "resume", ALICE, COMFY, pick(mib=16_000))
    run(port, "suspend", ALICE, COMFY)
    port.have(an_app("other", "bob", state=AppState.STOPPED))
    refused = run(port, "resume", BOB, NamedApp("other"), pick())
    assert refused.validation.code == "device-vram-insufficient:d1"
    assert not run(port, "remove_drained")
    port.ended()
    assert run(port, "remove_drained")
    assert port.state.rows == ()
    assert len(run(port, "resume", BOB, NamedApp("other"), pick())) == 1


def test_an_application_that_could_not_be_stopped_is_stopped_by_remove_drained():
    port = hold()
    run(port, "resume", ALICE, COMFY, pick())
    port.fail["stop"] = Unavailable("no controller")
    with pytest.raises(Unavailable, match="no controller"):
        run(port, "suspend", ALICE, COMFY)
    assert devices(port) == [("d1", True)]
    run(port, "remove_drained")
    run(port, "remove_drained")
    assert port.reported == [("start", STOPPED.key), ("stop", STOPPED.key)]


def test_an_application_that_is_back_on_another_card_is_not_stopped():
    port = hold()
    run(port, "resume", ALICE, COMFY, pick())
    run(port, "resume", ALICE, COMFY, pick("d2"))
    assert devices(port) == [("d1", True), ("d2", False)]
    run(port, "remove_drained")
    assert port.reported == [
        *[("start", STOPPED.key)] * 2,
        ("restart", STOPPED.key),
    ]  # pods may be on the card of before


def test_a_removed_application_can_be_uninstalled():
    port = hold(an_app("other")).bind(a_row(CARD, mib=1))
    run(port, "uninstall", ALICE, COMFY)
    run(port, "uninstall", ALICE, NamedApp("never"))
    assert port.state.rows == ()


# --- install ---


def test_53_the_only_way_that_is_possible_is_taken_and_of_several_somebody_chooses():
    ways = (ask(0, accelerator=CPU), ask(8000))
    port = hold(an_app("comfyui", "alice", *ways, state=AppState.INSTALLING))
    found = run(port, "install", ALICE, COMFY)
    assert found.type is CheckType.MODE
    assert [(each.accelerator, each.status) for each in found.options] == [
        (CPU, InstallStatus.INSTALLABLE),
        ("nvidia", InstallStatus.INSTALLABLE),
    ]
    assert run(port, "install", ALICE, COMFY, CPU) == ()
    assert [row.card.device for row in run(port, "install", ALICE, COMFY, "nvidia")] == ["d1"]
    small = (ask(0, accelerator=CPU), ask(99_000), ask(1, accelerator="amd"))
    port = hold(an_app("comfyui", "alice", *small, state=AppState.INSTALLING))
    assert run(port, "install", ALICE, COMFY) == ()
    assert port.apps[STOPPED.key].accelerator == CPU
    found = run(port, "install", ALICE, COMFY, "nvidia")
    assert (found.type, found.availability.reason) == (CheckType.UNAVAILABLE, "no-card-with-enough-vram")
    with pytest.raises(InvalidRequest, match="mode"):
        run(port, "install", ALICE, COMFY, "intel")


def test_the_disk_counts_when_it_is_installed():
    port = hold(an_app("comfyui", "alice", ask(disk_bytes=901 * GIB)))
    assert isinstance(run(port, "install", ALICE, COMFY), FailedCheck)
    assert len(run(port, "resume", ALICE, COMFY, pick())) == 1


# --- who may ---


def test_names_are_of_an_owner_and_only_an_administrator_asks_for_others():
    port = hold(STOPPED, an_app("comfyui", "bob", state=AppState.STOPPED))
    run(port, "resume", ALICE, COMFY, pick())
    run(port, "resume", BOB, COMFY, pick("d2"))
    run(port, "suspend", BOB, COMFY)
    assert [(row.app.owner, row.draining) for row in port.state.rows] == [("alice", False), ("bob", True)]
    with pytest.raises(Forbidden):
        run(port, "suspend", BOB, NamedApp("comfyui", "alice"))
    run(port, "suspend", ADMIN, NamedApp("comfyui", "alice"))
    assert run(port, "rows", ALICE, COMFY) == ()
    with pytest.raises(NotFound):
        run(port, "rows", Caller("carol"), COMFY)


def test_nothing_starts_that_only_has_rows_yet():
    port = hold(an_app("other")).bind(a_row(CARD, mib=1))
    for what, *args in (("resume", pick()), ("install",), ("validate", pick()), ("reassign", [("d1", MIB)], [])):
        with pytest.raises(NotFound, match="comfyui"):
            run(port, what, ALICE, COMFY, *args)
    run(port, "reassign", ALICE, COMFY, [], ["d1"])
    assert (port.state.rows, port.reported) == ((), [])


def test_a_name_in_two_namespaces_needs_the_namespace():
    app = an_app()
    port = hold(app, replace(app, key=app.key._replace(namespace="elsewhere")))
    with pytest.raises(Conflict, match="elsewhere"):
        run(port, "rows", ALICE, COMFY)
    assert run(port, "rows", ALICE, NamedApp("comfyui", "", "elsewhere")) == ()


def test_the_demand_of_an_installed_application_ignores_its_own_rows():
    port = hold(an_app(), cards=(CARD,)).bind(a_row(CARD, mib=16_000))
    assert run(port, "preflight", ALICE, [AppDemand("a", AppKey("comfyui", "alice"), ask())]).installable
    assert not run(port, "preflight", ALICE, [AppDemand("a", AppKey("other", "alice"), ask())]).installable


def test_only_an_administrator_asks_for_demands_of_others():
    port = hold()
    demands = [AppDemand("a", an_app().key, ask())]
    assert run(port, "preflight", ALICE, demands).installable
    assert run(port, "preflight", ADMIN, demands).installable
    with pytest.raises(Forbidden):
        run(port, "preflight", BOB, demands)


# --- cards ---


def test_48_49_only_an_administrator_switches_a_card_and_the_affected_applications_stop():
    port = hold(an_app()).bind(a_row(CARD, mib=8000, row_id="c"))
    port.held = {"c"}
    with pytest.raises(Forbidden):
        run(port, "switch", ALICE, CARD.key, "Exclusive")
    with pytest.raises(NotFound):
        run(port, "switch", ADMIN, CardKey("n1", "d9"), "Exclusive")
    assert run(port, "switch", ADMIN, CARD.key, "MemorySlice").status is SwitchStatus.UNCHANGED
    assert (port.state.version, port.reported) == (0, [])
    report = run(port, "switch", ADMIN, CARD.key, "Exclusive", Terms("k"))
    assert (report.status, [each.app for each in report.stopped]) == (SwitchStatus.SWITCHED, [an_app().key])
    assert port.reported == [("stop", an_app().key)]
    assert run(port, "switch", ADMIN, CARD.key, "Exclusive", Terms("k")) == report
    snapshot = asyncio.run(Bindings(port).snapshot_now())
    card = snapshot.card(CARD.key)
    assert (card.share, snapshot.view.free_bytes(card)) == (ALONE, 0)
    port.ended()
    run(port, "remove_drained")
    snapshot = asyncio.run(Bindings(port).snapshot_now())
    assert snapshot.view.free_bytes(card) == 16_000 * MIB


def test_a_blocked_switch_stops_no_application():
    port = hold(an_app(), an_app("other", state=AppState.UPGRADING))
    port.bind(a_row(CARD, mib=1), a_row(CARD, "other", mib=1))
    before = port.state
    found = run(port, "switch", ADMIN, CARD.key, "Exclusive")
    assert (found.type, [each.app.name for each in found.switch.blocked]) == (CheckType.BLOCKED, ["other"])
    assert (port.state, port.reported) == (before, [])


def test_a_repeated_switch_does_not_stop_applications_that_were_resumed_since():
    port = hold(an_app()).bind(a_row(CARD, mib=8000))
    run(port, "switch", ADMIN, CARD.key, "Exclusive", Terms("k"))
    run(port, "resume", ALICE, COMFY, pick("d2"))
    run(port, "switch", ADMIN, CARD.key, "Exclusive", Terms("k"))
    assert port.reported == [("stop", an_app().key), ("start", an_app().key)]


def test_54_the_same_card_twice_is_no_restart():
    port = hold(an_app())
    for _ in range(2):
        run(port, "reassign", ALICE, COMFY, [("d1", 8000 * MIB)], [])
    assert port.reported == [("restart", an_app().key)]
    run(port, "reassign", ALICE, COMFY, [], ["d2", "never"])
    run(port, "reassign", ALICE, NamedApp("never"), [], ["d1"])
    assert len(port.reported) == 1


def test_assigning_wins_over_unassigning_and_comes_as_one_change():
    port = hold(an_app()).bind(a_row(CARD, mib=4000))
    run(port, "reassign", ALICE, COMFY, [("d2", MIB), ("d2", 2 * MIB)], ["d1", "d2"])
    assert [(row.card.device, row.memory_bytes) for row in port.state.rows] == [("d2", MIB)]
    before = port.state
    for wrong, error in ((("d1", 0), InvalidRequest), (("d1", 16_001 * MIB), Conflict), (("d9", 1), NotFound)):
        with pytest.raises(error):
            run(port, "reassign", ALICE, COMFY, [("d2", 3 * MIB), wrong], ["d2"])
    assert (port.state, len(port.reported)) == (before, 1)


def test_problems_are_reported_item_by_item():
    port = hold(an_app()).bind(a_row(a_card(device="lost"), mib=1), a_row(CARD, "other", draining=True))
    snapshot = asyncio.run(Bindings(port).snapshot_now())
    assert [(each.item, each.reason) for each in snapshot.problems(Caller("root", is_admin=True))] == [
        ("comfyui of alice on n1/lost", "card-gone"),
        ("other of alice on n1/d1", "draining"),
    ]
