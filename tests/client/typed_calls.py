"""What mypy knows of the SDK; tests/client/test_types.py checks this file. Each ignored error has to be one."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import assert_type

import ullage
from ullage.client.program import ProgramResult
from ullage.wire.explanation import Explanation
from ullage.wire.node import NodeBody
from ullage.wire.session import SessionBody


def repeat(text: str, times: int = 2) -> str:
    return text * times


async def halve(number: int) -> float:
    return number / 2


def blocking(client: ullage.Client, session: ullage.Session) -> None:
    assert_type(session.submit(repeat, "a", times=3), ullage.TaskFuture[str])
    assert_type(session.submit(repeat, "a").result(), str)
    assert_type(session.submit(halve, 3).result(timeout=1), float)
    assert_type(session.submit(lambda: 3).result(), int)
    assert_type(session.map(repeat, ["a"], chunksize=2, retries=1, retry_on=(OSError,)), Iterator[str])
    assert_type(session.map(halve, range(3), key="run-7"), Iterator[float])
    assert_type(session.map(repeat, ["a"], return_exceptions=True), Iterator[str | BaseException])
    assert_type(session.map(halve, range(3), return_exceptions=True), Iterator[float | BaseException])
    assert_type(session.run(b"").result(), bytes | None)
    assert_type(session.status(), SessionBody)
    assert_type(session.exec(["ls"], timeout=3), ProgramResult)
    session.exec(["ls"], task="1")  # type: ignore[arg-type]
    assert_type(client.why(session.id), Explanation)
    session.submit(repeat, 3)  # type: ignore[call-overload]
    session.submit(repeat, "a", time=3)  # type: ignore  # noqa: PGH003 - mypy names one of two errors
    session.submit(repeat)  # type: ignore[call-overload]
    session.map(repeat, ["a"], retry=3)  # type: ignore[call-overload]
    session.map(repeat, ["a"], chunksize="3")  # type: ignore[call-overload]
    client.session(prioriti=3)  # type: ignore[call-arg]
    client.session(priority="3")  # type: ignore[arg-type]


async def waiting() -> None:
    async with ullage.aconnect() as client, client.session(priority=3) as session:
        assert_type(client, ullage.AsyncClient)
        assert_type(session, ullage.AsyncSession)
        assert_type(session.submit(repeat, "a"), ullage.AsyncTaskFuture[str])
        assert_type(await session.submit(repeat, "a"), str)
        assert_type(await session.submit(halve, 3), float)
        assert_type(session.map(halve, range(3)), AsyncIterator[float])
        async for value in session.map(repeat, ["a"], return_exceptions=True):
            assert_type(value, str | BaseException)
        assert_type(await client.nodes(), list[NodeBody])
        assert_type(await client.why("s"), Explanation)
        assert_type(await session.status(), SessionBody)
        assert_type(await session.exec(["ls"]), ProgramResult)
        await client.why(3)  # type: ignore[arg-type]
        await client.sessions(status="open")  # type: ignore[call-arg]
        session.submit(repeat, 3)  # type: ignore[call-overload]
    assert_type(await ullage.aconnect(), ullage.AsyncClient)


def pools() -> None:
    with ullage.Executor(4, initializer=repeat, initargs=("a",), priority=3) as pool:
        assert_type(pool.submit(repeat, "a").result(), str)
        assert_type(pool.submit(halve, 3), ullage.TaskFuture[float])
        assert_type(pool.map(repeat, ["a"], timeout=1, chunksize=3), Iterator[str])
        future: Future[str] = pool.submit(repeat, "a")
        assert_type(future.result(), str)
        pool.submit(repeat, 3)  # type: ignore[call-overload]


blocked: ullage.Session | None = None
pools(3)  # type: ignore[call-arg]
