"""The asyncio client, against a server without a scheduler."""

import asyncio
import inspect
import threading
from concurrent.futures import CancelledError

import pytest

import ullage
from ullage.client.allocations import Allocations
from ullage.client.async_client import AsyncAllocations, AsyncClient
from ullage.client.async_session import AsyncSession
from ullage.client.client import Client
from ullage.client.offload import THREADS
from ullage.client.outstanding import BATCH_TASKS
from ullage.client.session import Session
from ullage.model.error import InvalidRequest
from ullage.wire.session import CancelTasks


def run(coroutine):
    """Run a test to its end, and look for what it left: threads of streams and of calls."""
    before = set(threading.enumerate())
    asyncio.run(coroutine, debug=True)
    for each in set(threading.enumerate()) - before:
        if each.name.startswith(("ullage-async", "ullage-stream")):
            each.join(30)  # it may be in the middle of a pause
            assert not each.is_alive()


def square(number):
    return number * number


def invert(number):
    return 1 // number


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


async def count_up(number):
    yield number


def public(kind):
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}


@pytest.mark.parametrize(
    ("blocking", "twin"), [(Client, AsyncClient), (Session, AsyncSession), (Allocations, AsyncAllocations)]
)
def test_the_twin_has_every_method_of_the_blocking_client(blocking, twin):
    methods = {name for each in blocking.__mro__ for name in (public(each) if each is not object else ())}
    assert methods - public(twin) == set()
    for name in methods:
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (twin, blocking))
        left_out = {"timeout"}  # asyncio has its own: asyncio.timeout
        assert list(ours.parameters) == [each for each in theirs.parameters if each not in left_out], name


def test_results_are_awaited(fake):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            future = session.submit(divmod, 17, b) if (b := 5) else None
            assert await future == (3, 2)
            assert future.task == 1
            assert await asyncio.gather(*(session.submit(square, n) for n in range(50))) == [n * n for n in range(50)]
            assert await session.submit(double, 4) == 8
        assert fake.sessions[session.id].state == "closed"

    run(main())


def test_a_client_and_a_session_may_be_awaited_too(fake):
    async def main():
        client = await ullage.aconnect()
        session = await client.session("mine", priority=3)
        assert [body.id for body in await client.sessions()] == ["mine"]
        assert (await session.status()).state == "open"
        assert (await session.why()).session == "mine"
        await session.update(priority=5)
        assert await session.submit(square, 3) == 9
        assert [task.task async for task in session.tasks()] == [1]
        await session.delete()
        assert fake.sessions == {}
        await client.close()

    run(main())


@pytest.mark.parametrize("options", [{}, {"ordered": False}, {"chunksize": 7}, {"ordered": False, "chunksize": 7}])
def test_map_is_an_asynchronous_iterator(fake, options):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            found = [value async for value in session.map(square, range(100), **options)]
            assert sorted(found) == [n * n for n in range(100)]
            if options.get("ordered", True):
                assert found == sorted(found)
            assert [value async for value in session.map(double, range(3), **options)] == [0, 2, 4]

    run(main())


def test_no_call_has_a_thread_of_its_own(fake):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            before = threading.active_count()
            fake.hold = True
            futures = [session.submit(square, n) for n in range(500)]
            await asyncio.sleep(0)
            assert await asyncio.gather(*(client.nodes() for _ in range(20)))
            assert threading.active_count() - before <= THREADS + 2 + _of_the_fake()
            fake.release()
            assert await asyncio.gather(*futures) == [n * n for n in range(500)]

    def _of_the_fake():
        return sum("process_request" in thread.name for thread in threading.enumerate())

    run(main())


def test_many_calls_are_sent_in_few_requests(fake):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            total = 0
            async for value in session.map(square, range(3 * BATCH_TASKS), ordered=False):
                total += value
            assert total == sum(n * n for n in range(3 * BATCH_TASKS))

    run(main())
    submissions = [path for method, path in fake.seen if method == "POST" and path.endswith("/tasks")]
    assert len(submissions) < 3 * BATCH_TASKS / 10


def test_the_exception_of_a_task_is_raised_where_it_is_awaited(fake):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            with pytest.raises(ZeroDivisionError) as caught:
                await session.submit(invert, 0)
            assert "in invert" in caught.value.__notes__[0]
            with pytest.raises(RuntimeError, match="StopIteration"):
                await session.submit(next, iter(()))

    run(main())


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the fake server knows no loop
            await asyncio.sleep(0.01)


def states(fake, session):
    return [task.state for task in fake.sessions[session.id].tasks]


def test_cancelling_who_awaits_cancels_the_task(fake):
    async def main():
        fake.hold = True
        async with ullage.aconnect() as client, client.session() as session:

            async def wait_for_it():
                await session.submit(square, 3)

            waiting = asyncio.create_task(wait_for_it())
            await until(lambda: states(fake, session) == ["pending"])
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await until(lambda: states(fake, session) == ["cancelled"])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.submit(square, 3), 0.05)
            await until(lambda: states(fake, session) == ["cancelled"] * 2)

    run(main())


def test_tasks_that_are_cancelled_together_are_cancelled_in_few_requests(fake):
    async def main():
        fake.hold = True
        async with ullage.aconnect() as client, client.session() as session:
            together = asyncio.gather(*(session.submit(square, n) for n in range(50)))
            await until(lambda: states(fake, session) == ["pending"] * 50)
            fake.hang = threading.Event()
            together.cancel()
            with pytest.raises(asyncio.CancelledError):
                await together
            fake.hang.set()
            await until(lambda: states(fake, session) == ["cancelled"] * 50)

    run(main())
    requests = [body.tasks for body in fake.bodies if isinstance(body, CancelTasks)]
    assert len(requests) <= THREADS + 1
    assert sorted(task for tasks in requests for task in tasks) == list(range(1, 51))


def test_a_task_that_another_client_cancels_is_cancelled_here(fake):
    async def main():
        fake.hold = True
        async with ullage.aconnect() as client, client.session() as session:
            future = session.submit(square, 3)
            await until(lambda: states(fake, session) == ["pending"])
            await client.offload.run(client.sync._api.cancel_task, session.id, 1)
            with pytest.raises(asyncio.CancelledError):
                await future

    run(main())


@pytest.mark.parametrize("ordered", [True, False])
def test_the_rest_of_a_map_is_cancelled_when_its_loop_ends_early(fake, ordered):
    async def main():
        fake.hold = True
        async with ullage.aconnect() as client, client.session() as session:
            results = session.map(square, [1, 2, 3, 4], ordered=ordered)
            await until(lambda: states(fake, session) == ["pending"] * 4)
            first = fake.sessions[session.id].tasks[0]
            fake.work(fake.sessions[session.id], first)
            async for value in results:
                assert value == 1
                break
            del results
            await until(lambda: states(fake, session) == ["succeed", "cancelled", "cancelled", "cancelled"])
            with pytest.raises(TimeoutError):
                await anext(session.map(square, [5], timeout=0.05, ordered=ordered))
            await until(lambda: states(fake, session)[4:] == ["cancelled"])

    run(main())


def test_a_cancelled_coroutine_cancels_its_session_also_while_that_waits_to_close(fake):
    async def main():
        fake.hold = True
        async with ullage.aconnect() as client:

            async def work():
                async with client.session("s") as session:
                    session.submit(square, 3)

            working = asyncio.create_task(work())
            await until(lambda: "s" in fake.sessions and len(fake.sessions["s"].tasks) == 1)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert fake.sessions["s"].state == "closed"
            assert [task.state for task in fake.sessions["s"].tasks] == ["cancelled"]

    run(main())


def test_an_exception_in_the_block_cancels_the_session(fake):
    async def main():
        fake.hold = True
        futures = []

        async def fail():
            async with ullage.aconnect() as client, client.session("s") as session:
                futures.append(session.submit(square, 3))
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert futures[0].cancelled()
        assert fake.sessions["s"].state == "closed"

    run(main())


def test_an_opened_session_stays_open(fake):
    async def main():
        async with ullage.aconnect() as client:
            async with client.open_session("shared", priority=1) as session:
                assert await session.submit(square, 2) == 4
            async with client.open_session("shared") as session:
                assert await session.submit(square, 3) == 9
        assert fake.sessions["shared"].state == "open"

    run(main())


def test_raw_tasks_carry_bytes_both_ways(fake):
    async def main():
        async with ullage.aconnect() as client, client.session(application="shout") as session:
            assert await session.invoke(b"\x00abc") == b"\x00ABC"
            assert await session.run(b"x") == b"X"

    run(main())


def test_events_are_followed_until_the_loop_ends(fake):
    async def main():
        async with ullage.aconnect() as client:
            following = client.events(follow=True)
            waiting = asyncio.ensure_future(anext(following))
            await until(lambda: any("events" in path for _, path in fake.seen))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await following.aclose()

    run(main())


def test_an_async_generator_function_is_refused_by_name(fake):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            for submit in (session.submit, session.map):
                with pytest.raises(InvalidRequest, match="function: count_up is an async generator function"):
                    submit(count_up, [1])

    run(main())


def test_a_closed_client_takes_no_more_work(fake):
    async def main():
        async with ullage.aconnect() as client:
            session = await client.session()
        with pytest.raises(ullage.Conflict, match="the client is closed"):
            session.submit(square, 1)

    run(main())


def test_the_loop_may_end_before_its_tasks(fake):
    fake.hold = True

    async def main():
        client = await ullage.aconnect()
        session = await client.session("s")
        return client, session, session.submit(square, 3)

    client, session, future = asyncio.run(main())
    fake.release()
    client.sync.close()
    with pytest.raises((CancelledError, asyncio.InvalidStateError)):
        future.result()
    session.sync.calls.exchange.stop()
