"""What takes room of a card: what is in force, and what pods hold. A binding that is refused blocks nobody."""

import asyncio
from dataclasses import replace

import pytest
from tests.bindings import ALONE, GIB, MIB, SLICED, TURNS, MemoryBindings, a_card, a_node, a_row, an_app

from ullage.model.binding import Binding
from ullage.model.compute import AppKey, AppState, CardUser, OwnerQuota, Pick
from ullage.model.compute_result import CheckType, SwitchStatus
from ullage.model.error import Conflict
from ullage.service.bindings import Bindings
from ullage.service.bindings_snapshot import Caller, NamedApp

ALICE, ADMIN, COMFY = Caller("alice"), Caller("root", is_admin=True), NamedApp("comfyui")
CARD = a_card(share=SLICED)
STOPPED = an_app(state=AppState.STOPPED)
OTHER = AppKey("other", "bob", "default")


def binding(mib=4000, name="b", device="d1", **facts):
    memory = None if mib is None else mib * MIB
    usual = {"app": "other", "owner": "bob", "namespace": "default", "selector": ()}
    return Binding(name, device, **(usual | facts), memory_bytes=memory)


def hold(*bindings, card=CARD, users=(), **facts):
    port = MemoryBindings((a_node(card),)).have(STOPPED)
    port.facts |= {"bindings": bindings, "users": users, **facts}
    return port


def run(port, what, *args):
    return asyncio.run(getattr(Bindings(port), what)(*args))


def snapshot(port):
    return run(port, "snapshot_now")


def free_mib(port):
    found = snapshot(port)
    return found.view.free_bytes(found.card(CARD.key)) // MIB


TOO_LARGE = binding(64 * 1024)
REFUSED = [
    pytest.param((TOO_LARGE,), {}, id="more than the card has"),
    pytest.param((binding().invalid("it cannot be read"),), {}, id="unreadable"),
    pytest.param((binding(owner=""),), {"strict": True}, id="no owner where that is refused"),
    pytest.param((binding(namespace=""),), {"strict": True}, id="no namespace where that is refused"),
    pytest.param((binding(16_001),), {}, id="one MiB too much"),
    pytest.param((binding(selector=None),), {}, id="no pod selected"),
]


@pytest.mark.parametrize(("bindings", "facts"), REFUSED)
def test_a_refused_binding_takes_no_room(bindings, facts):
    port = hold(*bindings, **facts)
    assert free_mib(port) == 16_000
    assert len(run(port, "resume", ALICE, COMFY, (Pick("n1", "d1", 16_000 * MIB),))) == 1


@pytest.mark.parametrize(("bindings", "facts"), REFUSED)
def test_a_refused_binding_does_not_keep_a_card_from_being_switched(bindings, facts):
    assert run(hold(*bindings, **facts), "switch", ADMIN, CARD.key, "Exclusive").status is SwitchStatus.SWITCHED


@pytest.mark.parametrize(("bindings", "facts"), REFUSED)
def test_a_refused_binding_counts_in_no_quota(bindings, facts):
    port = hold(*[replace(each, owner=each.owner and "alice") for each in bindings], **facts)
    port.facts["quotas"] = {"alice": OwnerQuota(cards=1, vram_bytes=8000 * MIB)}
    assert run(port, "validate", ALICE, COMFY, (Pick("n1", "d1", 8000 * MIB),)).validation.ok


def test_a_binding_in_force_takes_room_and_its_card_is_not_switched():
    port = hold(binding(4000))
    assert free_mib(port) == 12_000
    with pytest.raises(Conflict, match="b is in force"):
        run(port, "switch", ADMIN, CARD.key, "Exclusive")


def test_a_binding_without_room_on_its_card_blocks_no_other_binding():
    port = hold(binding(9000)).bind(a_row(CARD, mib=8000))
    assert free_mib(port) == 8000
    (row,) = run(port, "resume", ALICE, COMFY, (Pick("n1", "d1", 8000 * MIB),))
    assert row.memory_bytes == 8000 * MIB


@pytest.mark.parametrize(
    ("card", "held", "left"),
    [
        (CARD, {"d1": 6000 * MIB}, 10_000),
        (CARD, {"d1": None}, 0),
        (a_card(share=ALONE), {"d1": None}, 0),
        (a_card(share=TURNS), {"d1": 0}, 16_000),
    ],
)
def test_pods_under_a_refused_binding_stay_charged_for_what_they_hold(card, held, left):
    port = hold(TOO_LARGE, card=card, users=(CardUser(OTHER, "n1", held),))
    assert free_mib(port) == left
    found = snapshot(port)
    assert [row.app for row in found.view.on(found.card(CARD.key))] == [OTHER]
    with pytest.raises(Conflict, match="end its pods"):
        run(port, "switch", ADMIN, CARD.key, "MemorySlice" if card.share is ALONE else "Exclusive")


def test_several_pods_of_one_application_hold_their_sum_and_never_more_than_the_card():
    users = (CardUser(OTHER, "n1", {"d1": 6000 * MIB}),) * 2
    assert free_mib(hold(users=users)) == 4000
    assert free_mib(hold(users=users * 2)) == 0


def test_pods_under_a_binding_in_force_are_charged_once():
    port = hold(binding(9000), users=(CardUser(OTHER, "n1", {"d1": 6000 * MIB}),))
    assert free_mib(port) == 7000


def test_a_row_of_more_memory_than_its_card_blocks_no_other_and_is_listed():
    port = hold().bind(a_row(CARD, "other", mib=20_000))
    assert free_mib(port) == 16_000
    assert [each.reason for each in snapshot(port).problems(ADMIN)] == [
        "more memory is bound than the card has; its pods are refused"
    ]


# --- requirements that cannot be read ---


@pytest.mark.parametrize(("what", "args"), [("validate", ((),)), ("resume", ((),)), ("install", ())])
def test_an_application_whose_requirements_cannot_be_read_gets_no_card_and_is_not_started(what, args):
    port = hold().have(replace(STOPPED, requirements=(), unreadable="ullage.io/compute-requirements: 'x' is not valid"))
    with pytest.raises(Conflict, match="compute-requirements") as refused:
        run(port, what, ALICE, COMFY, *args)
    assert refused.value.code == "requirements-unreadable"
    assert (port.reported, port.state.version) == ([], 0)
    with pytest.raises(Conflict, match="cannot be read"):
        run(port, "reassign", ALICE, COMFY, [("d1", GIB)], [])


def test_an_application_whose_requirements_cannot_be_read_is_suspended_and_uninstalled_all_the_same():
    port = hold().have(replace(STOPPED, unreadable="x")).bind(a_row(CARD, mib=1))
    run(port, "suspend", ALICE, COMFY)
    assert port.state.rows == ()
    port.bind(a_row(CARD, mib=1))
    run(port, "uninstall", ALICE, COMFY)
    assert port.state.rows == ()


def test_cards_that_are_shared_differently_are_not_assigned_together():
    port = hold(card=CARD).have(an_app())
    port.nodes = (a_node(CARD, a_card(device="t1", share=TURNS)),)
    with pytest.raises(Conflict) as refused:
        run(port, "reassign", ALICE, COMFY, [("d1", GIB), ("t1", 0)], [])
    assert refused.value.code == "bound-cards-shared-differently:n1"
    found = run(port, "validate", ALICE, COMFY, (Pick("n1", "d1", GIB), Pick("n1", "t1", 0)))
    assert (found.type, found.validation.code) == (CheckType.UNAVAILABLE, "multi-card-not-supported")
