"""What cards have free, where applications fit, and which choices will do."""

import pytest
from tests.bindings import ALONE, GIB, MIB, SLICED, TURNS, a_card, a_node, a_row, a_view, ask

from ullage.binding.availability import availability
from ullage.binding.placement import place, roomy
from ullage.binding.validation import validate
from ullage.model.compute import AppKey, AvailabilityScope, HostRoom, Pick
from ullage.model.compute_result import FitLevel, NodeStatus, NoRoom

APP = AppKey("new", "alice", "new-alice")


def picks(*chosen):
    return tuple(Pick(node, device, mib * MIB) for node, device, mib in chosen)


def placed(view, asked):
    return place(view, asked, roomy(view, asked))


# --- free memory ---


def test_44_a_bound_exclusive_card_has_no_free_memory_and_a_sliced_one_the_rest():
    alone, sliced, turns = (a_card(device=mode, share=mode) for mode in (ALONE, SLICED, TURNS))
    rows = (a_row(alone), a_row(sliced, mib=6000), a_row(sliced, "other", mib=1000), a_row(turns))
    view = a_view((a_node(alone, sliced, turns),), rows)
    assert [view.free_bytes(card) // MIB for card in (alone, sliced, turns)] == [0, 9000, 16_000]


def test_a_card_with_a_row_of_another_mode_has_no_free_memory():
    card = a_card(share=SLICED)
    assert a_view((a_node(card),), (a_row(card, share=TURNS, draining=True),)).free_bytes(card) == 0


def test_an_application_with_a_draining_and_a_new_row_counts_once_with_the_larger_amount():
    card = a_card(share=SLICED)
    back = (a_row(card, mib=6000, draining=True), a_row(card, mib=4000))
    assert a_view((a_node(card),), back).free_bytes(card) == 10_000 * MIB


# --- choices ---


def codes(view, chosen, asked=None):
    return validate(view, asked or ask(), chosen, APP).code


def test_37_a_second_application_on_an_exclusive_card_is_rejected():
    card = a_card(share=ALONE)
    view = a_view((a_node(card),), (a_row(card, "other"),))
    assert codes(view, picks(("n1", "d1", 0))) == "exclusive-already-bound:d1"


def test_38_slices_of_memory_fill_a_card_to_the_last_byte():
    card = a_card(share=SLICED)
    view = a_view((a_node(card),), (a_row(card, "other", mib=8000),))
    assert codes(view, picks(("n1", "d1", 8000))) == ""
    assert codes(view, picks(("n1", "d1", 8001))) == "device-vram-insufficient:d1"
    assert codes(view, picks(("n1", "d1", 0))) == "memory-required:d1"
    assert codes(view, picks(("n1", "d1", 7999))) == "device-vram-insufficient:d1"


def test_39_time_slicing_is_limited_by_the_number_of_applications_and_not_by_memory():
    card = a_card()
    view = a_view((a_node(card),), tuple(a_row(card, name) for name in ("a", "b", "c")), tenants=4)
    assert codes(view, picks(("n1", "d1", 99_999))) == ""
    full = view.with_rows([a_row(card, "d")])
    assert codes(full, picks(("n1", "d1", 0))) == "tenants-exhausted:d1"


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ([], "empty-selection"),
        ([("n1", "", 0)], "empty-compute-binding"),
        ([("n9", "d1", 0)], "node-not-found:n9"),
        ([("n1", "d9", 0)], "device-not-found:d9"),
        ([("n1", "d1", 0), ("n1", "d1", 0)], "duplicate-selection:n1/d1"),
        ([("n1", "d1", 0), ("n1", "d2", 0)], "multi-card-not-supported"),
    ],
)
def test_46_47_each_fault_of_a_choice_has_its_code(chosen, code):
    assert codes(a_view((a_node(a_card(), a_card(device="d2")),)), picks(*chosen)) == code


def test_only_nvidia_applications_that_allow_it_get_cards_of_several_nodes():
    cards = [a_card(node, accelerator=kind) for node in ("n1", "n2") for kind in ("nvidia",)]
    view = a_view(tuple(map(a_node, cards)))
    both = picks(("n1", "d1", 0), ("n2", "d1", 0))
    assert codes(view, both, ask(several_cards=True)) == "multi-node-not-supported"
    assert codes(view, both, ask(several_nodes=True)) == ""
    assert codes(view, both, ask(accelerator="amd", several_nodes=True)) == "non-nvidia-must-single-selection"


def test_an_unusable_card_has_its_code():
    sick, barred, other = a_card(healthy=False), a_card(device="d2", cordoned=True), a_card(device="d3", share=ALONE)
    view = a_view((a_node(sick, barred, other), a_node(a_card("n2"), ready=False)))
    assert codes(view, picks(("n1", "d1", 0))) == "device-unhealthy:d1"
    assert codes(view, picks(("n1", "d2", 0))) == "device-unhealthy:d2"
    assert codes(view, picks(("n2", "d1", 0))) == "device-unhealthy:d1"
    assert codes(view, picks(("n1", "d3", 0)), ask(accelerator="amd")) == "gpu-type-mismatch"
    changing = view.with_rows([a_row(other, share=TURNS, draining=True)])
    assert codes(changing, picks(("n1", "d3", 0))) == "device-draining:d3"


def test_the_code_of_too_little_memory_depends_on_the_share_mode():
    card, second = a_card(mib=4000), a_card(device="d2", mib=2000)
    soc = a_card("n2", "n2-gb10-0", 4000, SLICED, "nvidia-gb10")
    view = a_view((a_node(card, second), a_node(soc)))
    assert codes(view, picks(("n1", "d1", 0))) == "device-vram-insufficient"
    both = picks(("n1", "d1", 0), ("n1", "d2", 0))
    assert codes(view, both, ask(several_cards=True)) == "aggregate-vram-insufficient"
    assert codes(view, both, ask(6000, several_cards=True)) == ""
    soc_asked = ask(accelerator="nvidia-gb10")
    assert codes(view, picks(("n2", "n2-gb10-0", 4000)), soc_asked) == "device-memory-insufficient"


def test_a_node_is_filled_to_at_most_nine_tenths():
    used = HostRoom(0, 9 * GIB)
    view = a_view((a_node(a_card(), capacity=HostRoom(10_000, 100 * GIB), used=HostRoom(0, 80 * GIB)),))
    assert codes(view, picks(("n1", "d1", 0)), ask(memory_bytes=10 * GIB)) == ""
    found = validate(view, ask(memory_bytes=10 * GIB + 1), picks(("n1", "d1", 0)), APP)
    assert found.code == "node-pressure:n1"
    pressed = {each.resource: each.pressured for each in found.pressure.dimensions}
    assert pressed == {"cpu": False, "memory": True}
    full = a_view((a_node(a_card(), capacity=HostRoom(10_000, 10 * GIB), used=used),))
    assert placed(full, ask()) is None
    assert availability(full, ask()).reason is NoRoom.NOT_AVAILABLE


# --- automatic placement ---


def test_the_limit_is_tried_before_the_requirement():
    small, large = a_card(mib=8000, share=ALONE), a_card(device="d2", mib=24_000)
    view = a_view((a_node(small, large),))
    assert placed(view, ask(8000)) == picks(("n1", "d1", 0))
    assert placed(view, ask(8000, limit=16_000)) == picks(("n1", "d2", 0))
    assert placed(view, ask(8000, limit=32_000)) == picks(("n1", "d1", 0))


def test_exclusive_cards_come_before_shared_ones_and_then_the_tightest_fit():
    modes = [a_card(device=mode, share=mode) for mode in (TURNS, SLICED, ALONE)]
    assert placed(a_view((a_node(*modes),)), ask()) == picks(("n1", ALONE, 0))
    assert placed(a_view((a_node(*modes[:2]),)), ask()) == picks(("n1", SLICED, 8000))
    used, idle, same = (a_card(device=name, share=SLICED) for name in ("d3", "d1", "d2"))
    view = a_view((a_node(used, idle, same),), (a_row(used, "other", mib=4000),))
    assert placed(view, ask()) == picks(("n1", "d3", 8000))
    assert placed(a_view((a_node(same, idle),)), ask()) == picks(("n1", "d1", 8000))


def test_several_cards_are_on_one_node_if_one_has_enough():
    one = [a_card("n1", f"d{number}", 8000, ALONE) for number in (1, 2)]
    two = [a_card("n2", "d1", 10_000, ALONE), a_card("n2", "d2", 10_000, ALONE)]
    view = a_view((a_node(*one), a_node(*two)))
    assert placed(view, ask(16_000)) is None
    assert placed(view, ask(16_000, several_cards=True)) == picks(("n1", "d1", 0), ("n1", "d2", 0))
    assert placed(view, ask(18_000, several_cards=True)) == picks(("n2", "d1", 0), ("n2", "d2", 0))
    assert placed(view, ask(24_000, several_cards=True)) is None
    over = picks(("n2", "d1", 0), ("n2", "d2", 0), ("n1", "d1", 0))
    assert placed(view, ask(24_000, several_nodes=True)) == over
    assert placed(view, ask(36_001, several_nodes=True)) is None


def test_slices_of_several_cards_add_up_to_the_amount():
    cards = [a_card("n1", f"d{number}", 8000, SLICED) for number in (1, 2)]
    view = a_view((a_node(*cards),), (a_row(cards[0], "other", mib=3000),))
    assert placed(view, ask(10_000, several_cards=True)) == picks(("n1", "d2", 8000), ("n1", "d1", 2000))


def test_without_an_amount_a_card_is_exclusive_or_time_sliced():
    sliced, turns = a_card(device="d1", share=SLICED), a_card(device="d2", share=TURNS)
    assert placed(a_view((a_node(sliced),)), ask(0)) is None
    assert placed(a_view((a_node(sliced, turns),)), ask(0)) == picks(("n1", "d2", 0))


# --- availability ---


@pytest.mark.parametrize(
    ("asked", "scope", "reason"),
    [
        (ask(accelerator="amd"), AvailabilityScope.CARD, NoRoom.NO_NODE),
        (ask(20_000), AvailabilityScope.CARD, NoRoom.NO_CARD),
        (ask(40_000, several_cards=True), AvailabilityScope.CARDS, NoRoom.NO_NODE_WITH_CARDS),
        (ask(40_000, several_nodes=True), AvailabilityScope.NODES, NoRoom.NO_CLUSTER),
        (ask(16_000), AvailabilityScope.CARD, None),
        (ask(30_000, several_cards=True), AvailabilityScope.CARDS, None),
    ],
)
def test_the_reason_for_no_room_depends_on_the_scope(asked, scope, reason):
    view = a_view((a_node(a_card(), a_card(device="d2")),))
    found = availability(view, asked)
    assert (found.scope, found.reason, found.schedulable) == (scope, reason, reason is None)


def test_availability_has_the_room_of_nodes_and_cards():
    good, sick, small = a_card(share=ALONE), a_card(device="d2", healthy=False), a_card("n2", mib=4000)
    view = a_view((a_node(small), a_node(good, sick), a_node(name="n3")))
    first, second, third = availability(view, ask(8000, limit=12_000)).nodes
    assert (first.node, first.status) == ("n1", NodeStatus.AVAILABLE)
    assert [(room.operable, room.fit) for room in first.cards] == [(True, FitLevel.LIMIT), (False, None)]
    assert (second.status, second.cards[0].fit) == (NodeStatus.NOT_ENOUGH, None)
    assert (third.status, third.accelerator) == (NodeStatus.NOT_AVAILABLE, "")
    taken = availability(view.with_rows([a_row(good, "other")]), ask()).nodes[0]
    assert [(room.operable, room.available) for room in taken.cards] == [(False, 0), (False, 16_000 * MIB)]
    assert taken.status is NodeStatus.NOT_ENOUGH
    assert availability(view, ask(8000, limit=20_000)).nodes[0].cards[0].fit is FitLevel.REQUIRED


# --- cards of one node that are shared differently ---


def mixed_view(free=SLICED):
    cards = (a_card(device="s1", share=free), a_card(device="t1", share=TURNS))
    return a_view((a_node(*cards),))


def test_cards_of_one_node_with_different_modes_are_refused():
    chosen, asked = picks(("n1", "s1", 8000), ("n1", "t1", 0)), ask(8000, several_cards=True)
    code = "bound-cards-shared-differently:n1"
    assert validate(mixed_view(), asked, chosen, APP).code == code
    assert validate(mixed_view(ALONE), asked, picks(("n1", "s1", 0), ("n1", "t1", 0)), APP).code == code
    assert validate(mixed_view(), asked, chosen, APP, one_card_per_pod=True).ok  # each pod takes one card


def test_cards_of_two_nodes_may_have_different_modes():
    nodes = (a_node(a_card(device="s1", share=SLICED)), a_node(a_card("n2", "t1")))
    chosen = picks(("n1", "s1", 8000), ("n2", "t1", 0))
    assert validate(a_view(nodes), ask(9000, several_nodes=True), chosen, APP).ok


def test_automatic_placement_never_mixes_modes_on_one_node():
    asked = ask(30_000, several_cards=True)
    assert placed(mixed_view(), asked) is None
    found = availability(mixed_view(), asked)
    assert (found.reason, found.nodes[0].status) == (NoRoom.NO_NODE_WITH_CARDS, NodeStatus.NOT_ENOUGH)
    assert placed(mixed_view(TURNS), asked) == picks(("n1", "s1", 0), ("n1", "t1", 0))
