"""`map` with a `buffersize` reads its iterables when it needs them, against a server without a scheduler."""

import asyncio
from itertools import count, islice

import pytest

import ullage


def square(number):
    return number * number


def invert(number):
    return 1 / number


class Source:
    """Numbers, of which it counts how many were read; `fails_at` is one that cannot be read."""

    def __init__(self, fails_at=None):
        self.read = 0
        self._fails_at = fails_at

    def __iter__(self):
        for number in count():
            if number == self._fails_at:
                raise KeyError(number)
            self.read += 1
            yield number


async def first_of(iterator, number):
    found = []
    async for value in iterator:
        found.append(value)
        if len(found) == number:
            break
    await iterator.aclose()
    return found


@pytest.mark.parametrize(("chunksize", "most"), [(1, 3), (2, 6)])
@pytest.mark.parametrize("ordered", [True, False])
def test_endless_iterables_are_read_as_results_are_yielded(fake, chunksize, most, ordered):
    options = {"buffersize": 3, "chunksize": chunksize, "ordered": ordered, "progress": True}
    source = Source()
    with ullage.connect() as client, client.session() as session:
        results = session.map(square, source, **options)
        assert source.read == most
        for taken in range(1, 20):
            assert next(results) is not None
            assert source.read <= most + chunksize * taken
        results.close()
    assert source.read <= most + chunksize * 20


@pytest.mark.parametrize("chunksize", [1, 2])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_asyncio_client_reads_them_so_too(fake, chunksize, ordered):
    source = Source()

    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            results = session.map(square, source, buffersize=2, chunksize=chunksize, ordered=ordered, progress=True)
            return await first_of(results, 9)

    assert sorted(asyncio.run(main())) == [square(number) for number in range(9)]
    assert source.read <= chunksize * (2 + 10)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("buffersize", [1, 4, 50])
def test_every_result_comes_once(fake, ordered, buffersize):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            return [value async for value in session.map(square, range(20), buffersize=buffersize, ordered=ordered)]

    with ullage.connect() as client, client.session() as session:
        found = list(session.map(square, range(20), buffersize=buffersize, ordered=ordered))
    for values in (found, asyncio.run(main())):
        assert (values if ordered else sorted(values)) == [square(number) for number in range(20)]


def test_the_executor_has_it_as_that_of_the_standard_library(fake):
    with ullage.Executor() as pool:
        assert list(islice(pool.map(square, count(), buffersize=2), 3)) == [0, 1, 4]


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_submitted_is_cancelled_where_an_iterable_fails(fake, ordered):
    fake.hold = True
    with ullage.connect() as client, client.session("s") as session:
        results = session.map(square, Source(fails_at=4), buffersize=4, ordered=ordered)
        tasks = fake.sessions["s"].tasks
        session._exchange._outstanding.task_of(session._exchange._outstanding.futures()[0])
        fake.work(fake.sessions["s"], tasks[0])
        with pytest.raises(KeyError):
            next(results)
        assert session.wait(60)
    assert {task.state for task in tasks[1:]} <= {"cancelled"}


def test_failures_in_places_of_results_submit_further_calls(fake):
    with ullage.connect() as client, client.session() as session:
        found = list(session.map(invert, [1, 0, 0, 2, 4], buffersize=2, return_exceptions=True))
    assert [value for value in found if not isinstance(value, ZeroDivisionError)] == [1, 0.5, 0.25]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(("first", "second"), [(None, 2), (3, 2), (2, 50), (7, None)])
def test_a_later_client_gets_the_results_of_a_map_with_a_key(fake, ordered, first, second):
    """Those that came before their calls were read from the iterable, too."""
    for buffersize in (first, second):
        with ullage.connect() as client, client.open_session("s", priority=1) as session:
            found = session.map(square, range(40), key="k", buffersize=buffersize, ordered=ordered, timeout=30)
            assert sorted(found) == [square(number) for number in range(40)]
    assert len(fake.sessions["s"].tasks) == 40
