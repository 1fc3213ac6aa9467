"""Pods whose cards are gone leave late, few at a time, and never for a card that is back or a silent node."""

from hypothesis import given
from hypothesis import strategies as st

from ullage.service.vanished_cards import PodCards, VanishedCards

POD = PodCards("u", "n", ("g1[0-1]",))


def test_a_card_is_waited_for_and_then_its_pod_leaves():
    cards = VanishedCards(100, grace_s=60)
    assert cards.look(0, [POD], (), ("n",)).quarantined == {}
    assert cards.look(99, [POD], (), ("n",)).quarantined == {}
    assert cards.look(100, [POD], (), ("n",)).quarantined == {"u": ("g1",)}
    assert cards.look(130, [POD], (), ("n",)) == cards.look(159, [POD], (), ("n",))
    assert cards.look(159, [POD], (), ("n",)).leaving == ()
    assert cards.look(160, [POD], (), ("n",)).leaving == ("u",)


def test_the_grace_of_a_card_that_returned_starts_again():
    cards = VanishedCards(0, grace_s=60)
    cards.look(0, [POD], (), ("n",))
    cards.look(50, [POD], ("g1",), ("n",))
    assert cards.look(60, [POD], (), ("n",)).leaving == ()
    assert cards.look(120, [POD], (), ("n",)).leaving == ("u",)


def test_a_silent_node_and_a_card_on_another_node_cost_nothing():
    cards = VanishedCards(0, grace_s=0)
    assert cards.look(0, [POD], (), ()).leaving == ()
    assert cards.look(1, [POD], ("g1",), ("n",)).leaving == ()


def test_pods_that_cannot_leave_do_not_keep_others_from_leaving():
    cards = VanishedCards(0, grace_s=0, most=2)
    stuck = [PodCards(f"a{number}", "n", (f"g{number}",)) for number in range(5)]
    last = PodCards("z", "n", ("g9",))
    reported = [cards.look(turn, [*stuck, last], (), ("n",)).leaving for turn in range(6)]
    assert reported[:3] == [("a0", "a1"), ("a2", "a3"), ("a4", "z")]
    assert reported[3:] == reported[:3], "and all are reported again in turn"


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 8))
def test_never_more_than_a_few_and_none_before_its_time(there, pods):
    cards, missed = VanishedCards(30, grace_s=60, most=3), {}
    holders = [PodCards(f"u{number}", "n", (f"g{number}",)) for number in range(pods)]
    for turn, present in enumerate(there):
        now = 30 * turn
        known = {f"g{number}" for number in range(pods)} if present else set()
        leaving = cards.look(now, holders, known, {"n"}).leaving
        missed = {} if present or now < 30 else {each.uid: missed.get(each.uid, now) for each in holders}
        due = [uid for uid, since in missed.items() if since + 60 <= now]
        assert set(leaving) <= set(due)
        assert len(leaving) == min(3, len(due))
