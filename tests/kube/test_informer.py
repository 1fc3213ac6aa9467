"""A mirror of a server on a real socket: nothing is lost or delivered twice, whatever is cut."""

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from tests.kube.audience import Audience, running
from tests.kube.conftest import SHORT, until, write_kubeconfig
from tests.kube.proxy import Proxy
from tests.kube.scripted import ScriptedApi, event, node
from ullage.kube.client.api import ALL, EventType, ListPage, Selection, WatchEvent
from ullage.kube.client.connection import connect
from ullage.kube.client.errors import Unreachable
from ullage.kube.client.http import HttpKubeApi, KubeTimeouts
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import NODES, PODS

pytestmark = pytest.mark.anyio


def on_server(server: ApiServer, plural: str = "nodes") -> dict[str, tuple[str, str]]:
    """The names, uids and versions of what is there."""
    found = server.do(lambda: server.store.at(server.store.revision))
    return {
        key[2]: (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        for key, item in found.items()
        if key[0] == plural
    }


def create(server: ApiServer, *names: str) -> None:
    for name in names:
        server.do(lambda name=name: server.rules.create("nodes", "", bodies.node(name)))


def change(server: ApiServer, name: str, value: str = "new") -> None:
    def mark(item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "metadata": item["metadata"] | {"labels": {"mark": value}}}

    server.do(lambda: server.rules.change(("nodes", "", name), mark))


def delete(server: ApiServer, name: str) -> None:
    server.do(lambda: server.rules.delete(("nodes", "", name), {}))


def lists(server: ApiServer) -> int:
    return sum("limit=" in path for _, path in server.asked)


async def alike(server: ApiServer, audience: Audience) -> None:
    await until(lambda: audience.states() == on_server(server), "the mirror equals the server")


async def test_existing_objects_are_delivered_then_changes(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a", "b")
    informer = Informer(api, NODES)
    audience = Audience(informer)
    assert not informer.synced
    assert informer.age_s == float("inf")
    async with running(informer):
        await informer.wait_synced()
        assert audience.reported == [("Added", "a"), ("Added", "b")]
        change(server, "a")
        delete(server, "b")
        create(server, "c")
        await alike(server, audience)
        assert audience.reported[2:] == [("Changed", "a"), ("Removed", "b"), ("Added", "c")]
        late = Audience(informer)
        assert late.there == audience.there
        assert informer.age_s < 60
    assert lists(server) == 1


async def test_pages_make_one_list(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, *(f"n{number:04}" for number in range(1203)))
    informer = Informer(api, NODES)
    async with running(informer):
        await informer.wait_synced()
        assert len(informer.objects) == 1203
    assert lists(server) == 3


async def test_a_watch_cut_in_the_middle_goes_on_where_it_was(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a")
    informer = Informer(api, NODES)
    audience = Audience(informer)
    async with running(informer):
        await informer.wait_synced()
        for number in range(5):
            change(server, "a", str(number))
            server.cut()
            change(server, "a", f"{number} again")
            await alike(server, audience)
    assert audience.reported == [("Added", "a")] + [("Changed", "a")] * 10
    assert lists(server) == 1


async def test_a_server_that_starts_again_is_followed_without_another_list(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a", "b")
    informer = Informer(api, NODES)
    audience = Audience(informer)
    async with running(informer):
        await informer.wait_synced()
        server.stop()
        delete(server, "a")
        await until(lambda: informer.last_error is not None, "the end is noticed")
        server.start()
        await alike(server, audience)
    assert audience.reported[2:] == [("Removed", "a")]
    assert lists(server) == 1


async def test_what_was_deleted_in_a_gap_is_delivered(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "stays", "changes", "goes", "comes-again")
    old = on_server(server)
    informer = Informer(api, NODES)
    audience = Audience(informer)
    async with running(informer):
        await informer.wait_synced()
        server.stop()
        change(server, "changes")
        for name in ("goes", "comes-again"):
            delete(server, name)
        create(server, "comes-again", "new")
        server.forget()
        server.start()
        await alike(server, audience)
    assert sorted(audience.reported[4:]) == [
        ("Added", "comes-again"),
        ("Added", "new"),
        ("Changed", "changes"),
        ("Removed", "comes-again"),
        ("Removed", "goes"),
    ]
    assert old["comes-again"] != on_server(server)["comes-again"]
    assert lists(server) == 2


async def test_bookmarks_keep_an_idle_watch_young(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a")
    informer = Informer(api, NODES)
    async with running(informer):
        await informer.wait_synced()
        for number in range(5):
            server.do(lambda number=number: server.rules.create("namespaces", "", bodies.node(f"ns{number}")))
        await until(lambda: informer._version == str(server.store.revision), "a bookmark came")
        server.forget()
        server.cut()
        create(server, "b")
        await until(lambda: ("", "b") in informer.objects, "the watch goes on")
    assert lists(server) == 1


async def test_a_watch_on_a_dead_connection_is_replaced(server: ApiServer, tmp_path: Path) -> None:
    create(server, "a")
    async with Proxy(server.port) as proxy, connect(write_kubeconfig(tmp_path, proxy.url)) as client:
        informer = Informer(HttpKubeApi(client, KubeTimeouts(silence_s=0.5)), NODES)
        audience = Audience(informer)
        async with running(informer):
            await informer.wait_synced()
            proxy.lose()
            change(server, "a")
            await until(lambda: informer.last_error is not None, "the silence is noticed")
            assert informer.last_error is not None
            assert informer.last_error.code == "kube-timeout"
            assert on_server(server) != audience.states()
            proxy.find()
            await alike(server, audience)
    assert audience.reported == [("Added", "a"), ("Changed", "a")]
    assert lists(server) == 1


async def test_an_object_comes_into_a_selection_and_leaves_it(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a", "b")
    informer = Informer(api, NODES, Selection(labels="mark=new"))
    audience = Audience(informer)
    async with running(informer):
        await informer.wait_synced()
        for value in ("new", "old", "new"):
            change(server, "a", value)
        await until(lambda: len(audience.reported) == 3, "all three are reported")
    assert audience.reported == [("Added", "a"), ("Removed", "a"), ("Added", "a")]


async def test_a_refusal_is_not_the_end(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a")
    server.canned += [Canned("GET", "/nodes", status) for status in (403, 500, 410, 404)]
    informer = Informer(api, NODES)
    async with running(informer):
        await informer.wait_synced()
        assert ("", "a") in informer.objects
        await until(lambda: informer.last_error is None, "all is well")


async def test_an_error_of_a_handler_ends_it(server: ApiServer, api: HttpKubeApi) -> None:
    create(server, "a")
    informer = Informer(api, NODES)
    informer.subscribe(lambda _: (_ for _ in ()).throw(RuntimeError("a handler broke")))
    with pytest.raises(RuntimeError, match="a handler broke"):
        await asyncio.wait_for(informer.run(), 60)


WHAT = st.sampled_from(["create", "change", "delete", "again", "cut", "stop", "compact", "wait"])
STEPS = st.lists(st.tuples(WHAT, st.integers(0, 4)), max_size=25)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_cache_equals_the_server_wherever_a_stream_breaks(steps: list[tuple[str, int]], tmp_path: Path) -> None:
    server = ApiServer(bookmark_s=0.02)
    try:
        asyncio.run(_history(server, steps, tmp_path))
    finally:
        server.close()


async def _history(server: ApiServer, steps: list[tuple[str, int]], folder: Path) -> None:
    async def pause(seconds: float) -> None:
        await asyncio.sleep(seconds / 20)

    async with connect(write_kubeconfig(folder, server.url)) as client:
        informer = Informer(HttpKubeApi(client, SHORT), NODES, pause=pause)
        audience = Audience(informer)
        async with running(informer):
            for what, number in steps:
                await _step(server, audience, what, f"n{number}")
            await alike(server, audience)


async def _step(server: ApiServer, audience: Audience, what: str, name: str) -> None:
    there = name in on_server(server)
    match what:
        case "create" if not there:
            create(server, name)
        case "change" if there:
            change(server, name, str(random.random()))
        case "delete" if there:
            delete(server, name)
        case "again" if there:
            delete(server, name)
            create(server, name)
        case "cut":
            server.cut()
        case "stop":
            server.stop()
            create(server, *({name} - set(on_server(server))))
            server.start()
        case "compact":
            server.forget()
        case "wait":
            await alike(server, audience)


async def test_a_finished_pod_and_one_that_ends_are_known_as_such(server: ApiServer, api: HttpKubeApi) -> None:
    server.do(lambda: server.rules.create("pods", "default", bodies.pod("p", node="n1")))
    informer = Informer(api, PODS)
    async with running(informer):
        await informer.wait_synced()
        pod = informer.objects["default", "p"]
        assert (pod.finished, pod.terminating) == (False, False)
        server.do(lambda: server.rules.delete(("pods", "default", "p"), {}))
        await until(lambda: informer.objects["default", "p"].terminating, "its deletion is observed")
        done = {"status": {"phase": "Succeeded"}}
        server.do(lambda: server.rules.change(("pods", "default", "p"), lambda pod: pod | done, "status"))
        await until(lambda: informer.objects["default", "p"].finished, "it is finished")


class Overtaken(ScriptedApi):
    """Its second list is on its way until the watch has delivered a later event."""

    def __init__(self) -> None:
        super().__init__([["1", []], ["1", []]], [])
        self.reported, self.goes_on = asyncio.Event(), asyncio.Event()

    async def pages(self, kind: Any, select: Any = ALL, limit: int = 500) -> AsyncGenerator[ListPage[Any], None]:
        if self.listed:
            await self.reported.wait()
        async for page in super().pages(kind, select, limit):
            yield page

    async def watch(self, kind: Any, since: str, select: Any = ALL) -> AsyncGenerator[WatchEvent[Any], None]:
        self.since.append(since)
        if since == "1":
            yield event("ADDED", node("late", 2))
        self.reported.set()
        await self.goes_on.wait()
        self.goes_on.clear()
        yield WatchEvent(EventType.BOOKMARK, "3", None)


async def test_our_own_write_is_in_the_cache_before_the_watch_reports_it() -> None:
    before, older, after, later = (node("a", version) for version in (1, 2, 3, 4))
    goes_on, then = asyncio.Event(), asyncio.Event()
    reported = [goes_on, event("MODIFIED", older), event("ADDED", node("b", 3)), then]
    api = ScriptedApi([[1, [before]]], [[*reported, event("MODIFIED", after), event("MODIFIED", later)]])
    informer = Informer(cast("Any", api), NODES)
    audience = Audience(informer)
    async with running(informer):
        await informer.wait_synced()
        informer.apply_write(before, after)
        informer.apply_write(before, node("a", 9))  # the mirror has moved on
        informer.apply_write(after, node("a", 9, uid="another"))
        informer.apply_write(node("b", 1), node("b", 2))  # it is not there
        informer.apply_write(after, after)  # it changed nothing
        assert (informer.objects["", "a"], len(informer.objects)) == (after, 1)
        goes_on.set()
        await until(lambda: ("", "b") in informer.objects, "the watch goes on")
        assert informer.objects["", "a"] == after, "what came before it is older"
        then.set()
        await until(lambda: informer.objects["", "a"] == later, "the later event is delivered")
    assert audience.reported == [("Added", "a"), ("Changed", "a"), ("Added", "b"), ("Changed", "a")]


@pytest.mark.parametrize("during", [True, False])
async def test_a_list_contains_our_own_write_unless_it_began_earlier(during: bool) -> None:
    before, after, later = (node("a", version) for version in (1, 2, 3))
    informer = Informer(cast("Any", ScriptedApi([[1, [before]]], [])), NODES)
    await informer.catch_up()

    class Slow(ScriptedApi):
        async def pages(self, *_: Any, **__: Any) -> AsyncGenerator[ListPage[Any], None]:
            if during:
                informer.apply_write(before, after)
            yield ListPage((before if during else later,), "3")

    if not during:
        informer.apply_write(before, after)
    informer._api = cast("Any", Slow([], []))
    await informer.catch_up()
    assert informer.objects["", "a"] == (after if during else later)


async def test_an_event_that_arrives_during_a_list_is_not_lost() -> None:
    api = Overtaken()
    informer = Informer(cast("Any", api), NODES, pause=lambda _: asyncio.sleep(0))
    work = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 60)
        await informer.catch_up()
        assert not informer.objects, "the list is older than that"
        api.goes_on.set()
        await until(lambda: ("", "late") in informer.objects, "it is delivered again")
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_a_quiet_watch_of_a_server_without_bookmarks_is_not_behind() -> None:
    now, accepted = 0.0, WatchEvent(EventType.BOOKMARK, "1", None)

    class Quiet(ScriptedApi):
        """Accepts watches, and says nothing in them for 150 s."""

        async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[WatchEvent[Any], None]:
            nonlocal now
            self.since.append("1")
            yield accepted
            ages.append((informer.age_s, informer.last_error))
            if len(self.since) == 40:
                self.ended.set()
                await asyncio.Event().wait()
            now += 150.0
            ages.append((informer.age_s, None))
            raise Unreachable("no answer in time", code="kube-timeout")

    ages: list[tuple[float, Any]] = []
    api = Quiet([["1", []]] * 10, [])
    informer = Informer(cast("Any", api), NODES, clock=lambda: now, pause=lambda _: asyncio.sleep(0))
    async with running(informer):
        await api.ended.wait()
    assert set(ages) == {(0.0, None), (150.0, None)}


async def test_a_watch_that_is_accepted_and_fails_at_once_is_tried_ever_more_rarely() -> None:
    pauses: list[float] = []
    accepted = WatchEvent(EventType.BOOKMARK, "1", None)
    api = ScriptedApi([["1", []]], [[accepted, Unreachable("cut")]] * 6)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    informer = Informer(cast("Any", api), NODES, clock=lambda: 0.0, pause=pause, chance=lambda _, most: most)
    async with running(informer):
        await api.ended.wait()
    assert pauses == [0.4, 0.8, 1.6, 3.2, 6.4, 12.8]


async def test_of_two_lists_on_their_way_the_one_that_began_first_does_not_come_last() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedApi):
        """Its first list takes long."""

        async def pages(self, *_: Any, **__: Any) -> AsyncGenerator[ListPage[Any], None]:
            self.listed += 1
            if self.listed > 1:
                yield ListPage((node("a", 2),), "2")
                return
            begun.set()
            await goes_on.wait()
            yield ListPage((node("a", 1), node("gone", 1)), "1")

    informer = Informer(cast("Any", Slow([], [])), NODES)
    audience = Audience(informer)
    first = asyncio.create_task(informer.catch_up())
    await begun.wait()
    await informer.catch_up()
    goes_on.set()
    await first
    assert audience.reported == [("Added", "a")]
    assert informer.objects["", "a"] == node("a", 2)


async def test_an_object_has_ended_when_a_watch_or_a_list_shows_it_and_not_where_the_list_may_be_older() -> None:
    first = [node(name, 1) for name in "abc"]
    api = ScriptedApi([[1, first]], [[event("DELETED", node("a", 2)), event("ADDED", node("d", 3))]])
    informer = Informer(cast("Any", api), NODES)
    async with running(informer):
        await until(lambda: ("", "d") in informer.objects, "the watch is heard")

    class Older(ScriptedApi):
        """A list of before an object that is heard of while it is on its way."""

        async def pages(self, *_: Any, **__: Any) -> AsyncGenerator[ListPage[Any], None]:
            informer._put_reported(node("e", 5))
            yield ListPage((node("c", 1, uid="uid-another"), node("d", 3)), "4")

    informer._api = cast("Any", Older([], []))
    await informer.catch_up()
    assert {name for name in "abcde" if informer.has_ended(f"uid-{name}")} == set("abc")
    informer._put_reported(node("b", 9))
    assert not informer.has_ended("uid-b")
