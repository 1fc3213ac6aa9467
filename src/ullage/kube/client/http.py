"""The port to the Kubernetes API over HTTP."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
import msgspec

from ullage.kube.client.api import ALL, EventType, ListPage, Selection, T, WatchEvent
from ullage.kube.client.changes import Call, Change, Evict, call_of
from ullage.kube.client.connection import ApiConnection, HttpAnswer, is_success
from ullage.kube.client.errors import BudgetExhausted, Throttled, Unreachable, refusal
from ullage.kube.client.kinds import Kind, Unreadable
from ullage.kube.client.objects import EventLine, ObjectList, Status
from ullage.model.error import UllageError

D = TypeVar("D", ObjectList, EventLine, Status)

_KNOWN = frozenset(EventType)
_ERROR = "ERROR"
_SOONEST_S = 0.1
_LONGEST_LINE = 64 << 20
"""Maximum bytes of one watch event: far more than any object, as etcd limits an object to 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class KubeTimeouts:
    """The timeouts of calls, in seconds."""

    answer_s: float = 10.0
    """For one complete response."""
    eviction_s: float = 20.0
    """For the response to an eviction: a server retries for ten seconds before it reports that the pod was replaced."""
    throttled_s: float = 30.0
    """For a server that asks to retry later, over all attempts of a call."""
    watch_s: tuple[float, float] = (300.0, 600.0)
    """Until the server ends a watch: a random time in this range, so that watches do not all end at once."""
    silence_s: float = 150.0
    """For the next line of a watch before it is replaced. Most servers send a bookmark each minute."""


class HttpKubeApi:
    """One API server behind the port. The connection is not closed here."""

    def __init__(
        self,
        connection: ApiConnection,
        timeouts: KubeTimeouts = KubeTimeouts(),
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._connection, self._timeouts = connection, timeouts
        self._clock, self._pause, self._chance = clock, pause, chance

    async def pages(
        self, kind: Kind[T], select: Selection = ALL, limit: int = 500
    ) -> AsyncGenerator[ListPage[T], None]:
        path, query = kind.path(select.namespace), {**_query(select), "limit": str(limit)}
        while True:
            body = await self._call(Call("GET", path, query, b""))
            page = _decode(body, ObjectList)
            version = page.metadata.resource_version
            yield ListPage(tuple(kind.read(item) for item in page.items or ()), version)
            if not page.metadata.next:
                return
            query["continue"] = page.metadata.next

    async def watch(self, kind: Kind[T], since: str, select: Selection = ALL) -> AsyncGenerator[WatchEvent[T], None]:
        lasts_s = self._chance(*self._timeouts.watch_s)
        query = {
            **_query(select),
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(lasts_s))),
        }
        what = f"watch {kind.plural}"
        async with self._lines(Call("GET", kind.path(select.namespace), query, b""), what) as lines:
            yield WatchEvent(EventType.BOOKMARK, since, None)
            async for line in lines:
                yield _event(kind, line, what)

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        return kind.read(await self._call(Call("GET", kind.path(namespace, name), {}, b"")))

    async def write(self, change: Change) -> bytes:
        call = call_of(change)
        if not isinstance(change, Evict):
            return await self._call(call)
        try:
            return await self._once(call, self._timeouts.eviction_s)
        except Throttled as error:
            raise BudgetExhausted(error.message, error.retry_after_s) from None

    async def _call(self, call: Call) -> bytes:
        """Return the response body. If the server is busy, retry when it says, for a limited time."""
        until = self._clock() + self._timeouts.throttled_s
        while True:
            try:
                return await self._once(call)
            except Throttled as error:
                if self._clock() + error.retry_after_s > until:
                    raise
                await self._pause(error.retry_after_s)

    async def _once(self, call: Call, answer_s: float | None = None) -> bytes:
        what = f"{call.method} {call.path}"
        with _network(what):
            answer = await self._connection.request(call, answer_s or self._timeouts.answer_s)
        if not answer.is_success:
            raise _refusal(answer, what)
        return answer.content

    @asynccontextmanager
    async def _lines(self, call: Call, what: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of a successful response, and close it at the end."""
        within_s = self._timeouts.answer_s
        with _network(what):
            async with self._connection.stream(call, within_s, self._timeouts.silence_s) as answer:
                if not is_success(answer.status):
                    async with asyncio.timeout(within_s):
                        failed = HttpAnswer(answer.status, answer.headers, await answer.read())
                    raise _refusal(failed, what)
                yield _lines(answer.content.iter_any(), what)


@contextmanager
def _network(what: str) -> Iterator[None]:
    """Convert network errors in the block into errors of Ullage."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable(f"{what}: no answer in time", code="kube-timeout") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{what}: {error or type(error).__name__}") from error


async def _lines(pieces: AsyncIterator[bytes], what: str) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. Only a line feed ends one: text in JSON may contain other Unicode line ends."""
    kept = bytearray()
    async for piece in pieces:
        kept += piece
        if b"\n" in piece:
            *whole, rest = bytes(kept).split(b"\n")
            kept = bytearray(rest)
            for line in whole:
                if line.strip():
                    yield line
        elif len(kept) > _LONGEST_LINE:
            raise Unreadable(f"{what}: an event has more than {_LONGEST_LINE} bytes")


def _event(kind: Kind[T], line: bytes, what: str) -> WatchEvent[T]:
    event = _decode(line, EventLine)
    if event.type == _ERROR:
        raise refusal(_decode(event.object, Status), what)
    if event.type not in _KNOWN:
        raise Unreadable(f"{what}: an event of type {event.type!r} is not known")
    item = kind.read(event.object)
    event_type = EventType(event.type)
    return WatchEvent(event_type, item.metadata.resource_version, None if event_type is EventType.BOOKMARK else item)


def _query(select: Selection) -> dict[str, str]:
    given = {"labelSelector": select.labels, "fieldSelector": select.fields}
    return {name: text for name, text in given.items() if text}


def _decode(body: bytes | msgspec.Raw, kind: type[D]) -> D:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Unreadable(f"what the server sent cannot be read: {error}") from None


def _refusal(answer: HttpAnswer, what: str) -> UllageError:
    """Return the error of a failed response. A proxy may send one without a Status."""
    try:
        answered = msgspec.json.decode(answer.content, type=Status)
    except msgspec.DecodeError:
        answered = Status(message=answer.content[:200].decode(errors="replace"))
    status = Status(code=answer.status, reason=answered.reason, message=answered.message)
    return refusal(status, what, _retry_after(answer.headers))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait, never 0. Servers send whole seconds; 1 is used if the header is missing."""
    try:
        return max(_SOONEST_S, float(headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0
