"""What the mirror makes of answers that no server gives on purpose, and how long it waits."""

import asyncio

import pytest

from tests.kube.audience import Audience, running
from tests.kube.scripted import ScriptedApi, event, node
from ullage.kube.client.api import EventType, WatchEvent
from ullage.kube.client.errors import ApiGone, Throttled, Unreachable
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NODES, Unreadable

pytestmark = pytest.mark.anyio


async def follow(api: ScriptedApi, **options: float) -> tuple[Audience, list[float]]:
    """The delivered events and the waits until the end of the script."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    informer = Informer(api, NODES, clock=lambda: sum(pauses), pause=pause, chance=lambda _, most: most, **options)
    audience = Audience(informer)
    async with running(informer) as task:
        ended = asyncio.create_task(api.ended.wait())
        await asyncio.wait({task, ended}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert ended.done() or task.done(), "the script is not at its end"
        ended.cancel()
    return audience, pauses


async def test_an_event_that_comes_twice_is_delivered_once() -> None:
    one, two, gone = node("a", 1), node("a", 2), node("a", 3)
    twice = [event("ADDED", one), event("ADDED", one), event("MODIFIED", two), event("ADDED", one)]
    api = ScriptedApi(
        [[0, []]], [[*twice, Unreachable("cut")], [*twice, event("DELETED", gone), event("DELETED", gone)]]
    )
    audience, _ = await follow(api)
    assert audience.reported == [("Added", "a"), ("Changed", "a"), ("Removed", "a")]
    assert api.since == ["0", "2", "3"]  # it never goes back


async def test_an_object_that_came_again_unseen_is_another_one() -> None:
    reported = [event("ADDED", node("a", 2, "uid-2")), event("DELETED", node("a", 3, "uid-1"))]
    audience, _ = await follow(ScriptedApi([[1, [node("a", 1, "uid-1")]]], [reported]))
    assert audience.reported == [("Added", "a"), ("Removed", "a"), ("Added", "a")]
    assert audience.states() == {"a": ("uid-2", "2")}


async def test_events_about_what_is_not_known_are_taken_as_they_are() -> None:
    reported = [event("DELETED", node("a", 2)), event("MODIFIED", node("b", 3)), event("ADDED", node("c", 4))]
    audience, _ = await follow(ScriptedApi([[1, []]], [reported]))
    assert audience.reported == [("Added", "b"), ("Added", "c")]


async def test_versions_are_compared_for_equality_only() -> None:
    reported = [event("MODIFIED", node("a", 90)), event("MODIFIED", node("a", 7))]
    audience, _ = await follow(ScriptedApi([[100, [node("a", 95)]]], [reported]))
    assert audience.reported == [("Added", "a"), ("Changed", "a"), ("Changed", "a")]
    assert audience.states() == {"a": ("uid-a", "7")}


async def test_a_list_that_breaks_off_is_no_list() -> None:
    broken = [5, [node("a", 1)], ApiGone("the next page is gone")]
    whole = [9, [node("a", 1), node("b", 8)]]
    api = ScriptedApi([[1, [node("a", 1), node("b", 1)]], broken, whole], [[ApiGone("too old")]])
    audience, pauses = await follow(api)
    assert audience.reported == [("Added", "a"), ("Added", "b"), ("Changed", "b")]
    assert api.listed == 3
    assert api.since == ["1", "9"]
    assert len(pauses) == 2


@pytest.mark.parametrize("doubt", [ApiGone("too old"), Unreadable("what is this")])
async def test_after_any_uncertainty_there_is_another_list(doubt: Exception) -> None:
    bookmark: WatchEvent[object] = WatchEvent(EventType.BOOKMARK, "50", None)
    api = ScriptedApi([[1, [node("a", 1), node("b", 1)]], [60, [node("b", 1)]]], [[bookmark, doubt]])
    audience, _ = await follow(api)
    assert audience.reported == [("Added", "a"), ("Added", "b"), ("Removed", "a")]
    assert api.since == ["1", "60"]


async def test_an_old_list_is_renewed_which_adds_events_that_never_came() -> None:
    api = ScriptedApi([[1, [node("a", 1)]], [9, [node("a", 5)]]], [[], []])
    audience, pauses = await follow(api, resync_s=1.0)
    assert pauses == pytest.approx([0.4, 0.8])
    assert api.since == ["1", "1", "9"]
    assert audience.reported == [("Added", "a"), ("Changed", "a")]


async def test_pauses_grow_to_a_bound_and_end_when_something_is_heard() -> None:
    nothing: list[list[object]] = [[Unreachable("cut")] for _ in range(10)]
    api = ScriptedApi([[1, []]], [*nothing, [event("ADDED", node("a", 2)), Unreachable("cut")], [Unreachable("cut")]])
    _, pauses = await follow(api)
    assert pauses == pytest.approx([0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30, 0.2, 0.4])


async def test_a_server_that_asks_to_wait_is_obeyed() -> None:
    api = ScriptedApi([[1, Throttled("later", 45.0)], [1, []]], [[]])
    _, pauses = await follow(api)
    assert pauses[0] == 45.0


async def test_a_watch_that_is_to_come_later_goes_on_where_it_was_and_asks_for_no_list() -> None:
    api = ScriptedApi([[1, [node("a", 1)]]], [[event("MODIFIED", node("a", 5)), Throttled("later", 7.0)]])
    _, pauses = await follow(api)
    assert pauses == [7.0]
    assert (api.since, api.listed) == (["1", "5"], 1)


async def test_the_wait_that_a_server_asks_for_is_bounded() -> None:
    _, pauses = await follow(ScriptedApi([[1, []]], [[Throttled("later", float("inf"))]]))
    assert pauses == [120.0]
