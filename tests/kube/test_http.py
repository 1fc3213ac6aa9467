"""The adapter over HTTP: deadlines, servers that are busy or broken, credentials."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import SHORT, write_kubeconfig
from ullage.kube.client.api import EventType, WatchEvent
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.connection import ApiConnection, connect
from ullage.kube.client.errors import ApiForbidden, ApiGone, Throttled, Unreachable
from ullage.kube.client.http import HttpKubeApi, KubeTimeouts
from ullage.kube.client.kinds import NODES, PODS, Unreadable
from ullage.model.error import InvalidRequest, Unavailable

pytestmark = pytest.mark.anyio
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


class Pauses:
    """A clock that moves only where someone pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.made: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.made.append(seconds)
        self.now += seconds

    def api(self, client: ApiConnection) -> HttpKubeApi:
        return HttpKubeApi(client, SHORT, clock=lambda: self.now, pause=self.pause)


async def test_a_busy_server_is_asked_again_when_it_says(server: ApiServer, client: ApiConnection) -> None:
    server.canned += [Canned("POST", "/pods", 429, {"Retry-After": "2"}, 2), Canned("GET", "/p", 429)]
    pauses = Pauses()
    api = pauses.api(client)
    await api.write(Create(PODS, bodies.pod("p"), "default"))
    assert pauses.made == [2, 2]
    await api.get(PODS, "p", "default")
    assert pauses.made == [2, 2, 1]


async def test_a_server_that_stays_busy_is_not_asked_for_ever(server: ApiServer, client: ApiConnection) -> None:
    server.canned.append(Canned("GET", "/nodes", 429, {"Retry-After": "3"}, 100))
    pauses = Pauses()
    with pytest.raises(Throttled) as raised:
        [page async for page in pauses.api(client).pages(NODES)]
    assert raised.value.retry_after_s == 3
    assert pauses.made == [3]  # of the five seconds a call may wait in all


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (401, ApiForbidden, "kube-forbidden"),
        (403, ApiForbidden, "kube-forbidden"),
        (410, ApiGone, "kube-gone"),
        (415, InvalidRequest, "kube-invalid"),
        (500, Unavailable, "kube-unavailable"),
        (504, Unavailable, "kube-unavailable"),
    ],
)
async def test_a_refusal_has_a_stable_code(
    server: ApiServer, api: HttpKubeApi, status: int, error: type[Unavailable], code: str
) -> None:
    server.canned.append(Canned("GET", "/nodes", status, times=2))
    with pytest.raises(error) as listed:
        [page async for page in api.pages(NODES)]
    with pytest.raises(error) as watched:
        [event async for event in api.watch(NODES, "1")]
    assert listed.value.code == watched.value.code == code
    assert "as the test wants it" in str(listed.value)


async def test_a_watch_asks_for_its_end_and_for_bookmarks(server: ApiServer, client: ApiConnection) -> None:
    asked = KubeTimeouts(watch_s=(300, 600))
    server.canned.append(Canned("GET", "/nodes", 500))
    with pytest.raises(Unavailable):
        [event async for event in HttpKubeApi(client, asked, chance=lambda a, b: (a + b) / 2).watch(NODES, "7")]
    query = parse_qsl(server.asked[-1][1].partition("?")[2])
    assert dict(query) == {
        "watch": "true",
        "resourceVersion": "7",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "450",
    }


async def test_names_stay_inside_their_path(server: ApiServer, api: HttpKubeApi) -> None:
    for name in ("", ".", ".."):
        with pytest.raises(InvalidRequest, match="a name is needed"):
            await api.get(PODS, name, "default")
    with pytest.raises(InvalidRequest):
        await api.get(PODS, "p")
    with pytest.raises(InvalidRequest):
        await api.write(Delete(PODS, "../nodes/n1", "default"))
    assert all(path.startswith("/api/v1/namespaces/default/pods/") for _, path in server.asked)


async def answering(handler: Handler, folder: Path, use: Callable[[HttpKubeApi], Any], **patience: Any) -> None:
    """Use the adapter on a server that is none."""
    writers: list[asyncio.StreamWriter] = []

    async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await handler(reader, writer)

    async with await asyncio.start_server(kept, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with connect(write_kubeconfig(folder, url)) as client:
            await use(HttpKubeApi(client, KubeTimeouts(**patience)))
        for writer in writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def saying(head: str, body: bytes, *, silent: bool = False) -> Handler:
    """One answer, after which the server closes, or falls silent."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\n\r\n".encode() + body)
        await writer.drain()
        if not silent:
            writer.close()

    return handler


async def test_a_server_without_a_response_is_unreachable(tmp_path: Path) -> None:
    async def use(api: HttpKubeApi) -> None:
        with pytest.raises(Unreachable) as raised:
            await api.get(NODES, "n1")
        assert raised.value.code == "kube-timeout"

    await answering(saying("200 OK\r\nContent-Length: 100", b"{", silent=True), tmp_path, use, answer_s=0.2)


async def test_a_watch_that_falls_silent_is_broken_off(tmp_path: Path) -> None:
    async def use(api: HttpKubeApi) -> None:
        events = api.watch(NODES, "1")
        assert await anext(events) == WatchEvent(EventType.BOOKMARK, "1", None), "the server accepted the watch"
        with pytest.raises(Unreachable) as raised:
            await anext(events)
        assert raised.value.code == "kube-timeout"

    await answering(saying("200 OK", b"", silent=True), tmp_path, use, silence_s=0.2)


async def test_a_server_that_does_not_listen_is_unreachable(
    tmp_path: Path, server: ApiServer, api: HttpKubeApi
) -> None:
    server.stop()
    with pytest.raises(Unreachable) as raised:
        await api.get(NODES, "n1")
    assert raised.value.code == "kube-unreachable"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"metadata": 7}', b'{"spec": {}}', b"\xff"])
async def test_an_answer_that_is_none_is_unreadable(tmp_path: Path, body: bytes) -> None:
    async def use(api: HttpKubeApi) -> None:
        with pytest.raises(Unreadable):
            await api.get(NODES, "n1")

    await answering(saying(f"200 OK\r\nContent-Length: {len(body)}", body), tmp_path, use)


@pytest.mark.parametrize("line", [b"no json", b'{"type": "ADDED"}', b'{"type": "NEW", "object": {"metadata": {}}}'])
async def test_an_event_that_is_none_is_unreadable(tmp_path: Path, line: bytes) -> None:
    async def use(api: HttpKubeApi) -> None:
        with pytest.raises(Unreadable):
            [event async for event in api.watch(NODES, "1")]

    await answering(saying("200 OK", line + b"\n"), tmp_path, use)


async def test_a_proxy_may_answer_without_a_status_object(tmp_path: Path) -> None:
    async def use(api: HttpKubeApi) -> None:
        with pytest.raises(Unavailable, match="Bad Gateway") as raised:
            await api.get(NODES, "n1")
        assert raised.value.code == "kube-unavailable"

    body = b"<h1>Bad Gateway</h1>"
    await answering(saying(f"502 Bad Gateway\r\nContent-Length: {len(body)}", body), tmp_path, use)


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_events_come_whole_however_they_are_cut(tmp_path: Path, size: int) -> None:
    line = json.dumps({"type": "ADDED", "object": bodies.node("n\u0085ö", resourceVersion="7")}, ensure_ascii=False)
    names: list[str] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        said = (line + "\n\n" + line + "\n").encode()
        for start in range(0, len(said), size):
            writer.write(said[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async def use(api: HttpKubeApi) -> None:
        async for event in api.watch(NODES, "1"):
            names.extend([event.item.metadata.name] if event.item else [])

    await answering(handler, tmp_path, use)
    assert names == ["n\u0085ö"] * 2
