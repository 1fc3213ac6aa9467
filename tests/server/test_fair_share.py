"""What the API says of past use, of a service in a lab."""

from __future__ import annotations

import pytest

from tests.lab import Lab, a_node
from tests.service.answers import SERVER
from tests.service.test_fair_share import HALF_LIFE, Days, tenants
from ullage.server.answers import Answers
from ullage.server.fair_share import FairShareQuery, fair_share_body, past_use_texts


def used_by_one() -> Lab:
    """A lab in which queue a was used alone for a half-life, and b has come."""
    lab = tenants(a_node(cpu=12))
    lab.session("first", queue="a", owner="ann", tasks=4000)
    Days(lab).live(HALF_LIFE.seconds)
    lab.session("second", queue="b", owner="bob", tasks=4000)
    return lab


def test_queues_why_and_the_list_say_what_was_used_and_what_weights_count_as():
    with used_by_one() as lab:
        answers = Answers(lab.service, SERVER, {})
        a, b, rest = answers.queues()
        assert (a.name, b.name, rest.name) == ("a", "b", "default")
        assert a.past_use is not None
        assert b.past_use is not None
        assert (a.past_use.part, a.past_use.due, a.past_use.factor) == (pytest.approx(1.0, abs=0.01), 0.5, 0.5)
        assert (b.past_use.factor, rest.past_use) == (2.0, None)
        assert a.past_use.core_s == pytest.approx(12 * HALF_LIFE.steady_s / 2, rel=0.02)
        why = answers.explanation("first", None)()
        (text,) = why.past_use
        assert text.startswith("queue a used ")
        assert text.endswith(
            " core-hours (half-life 6h), 100% of what was used, where its weight gives 50%: weight 1 counts as 0.5"
        )
        found = fair_share_body(lab.service, lab.now, FairShareQuery())()
        assert found.half_life_s == HALF_LIFE.seconds
        assert [(each.queue, each.owner, each.factor) for each in found.shares] == [
            ("a", None, 0.5),
            ("a", "ann", 1.0),
            ("b", None, 2.0),
            ("b", "bob", 1.0),
        ]
        lab.service.sessions.cancel("second", lambda: None)
        lab.pump()
        assert past_use_texts(lab.service, "second") == []


def shares(lab: Lab, **query: object) -> tuple[list[tuple[str, str | None]], int]:
    found = fair_share_body(lab.service, lab.now, FairShareQuery(**query))()
    return [(each.queue, each.owner) for each in found.shares], found.total


def test_who_reads_only_its_own_sees_no_other_owner_and_its_own_first():
    with used_by_one() as lab:
        assert shares(lab, only="bob") == ([("b", "bob"), ("a", None), ("b", None)], 3)
        assert shares(lab, only="bob", limit=1) == ([("b", "bob")], 3)
        assert shares(lab, only="bob", owner="ann") == ([], 0)


def test_shares_come_in_pages_and_can_be_narrowed():
    with used_by_one() as lab:
        assert shares(lab, limit=3) == ([("a", None), ("a", "ann"), ("b", None)], 4)
        assert shares(lab, limit=3, offset=3) == ([("b", "bob")], 4)
        assert shares(lab, offset=9) == ([], 4)
        assert shares(lab, queue="a") == ([("a", None), ("a", "ann")], 2)
        assert shares(lab, owner="bob") == ([("b", "bob")], 1)


def test_without_a_half_life_there_is_no_past_use():
    with tenants(half_life=None) as lab:
        lab.session("s", queue="a", tasks=1)
        assert fair_share_body(lab.service, lab.now, FairShareQuery())().shares == []
        assert past_use_texts(lab.service, "s") == []
        assert {queue.past_use for queue in Answers(lab.service, SERVER, {}).queues()} == {None}
