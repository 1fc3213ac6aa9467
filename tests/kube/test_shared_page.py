"""A costly page is written for all who ask, and not all the time."""

from __future__ import annotations

import asyncio

import pytest

from ullage.kube.shared_page import CHEAP_S, REST, SharedPage

pytestmark = pytest.mark.anyio


class Writer:
    """Takes `cost_s` each time, by a clock that only it moves."""

    def __init__(self, cost_s: float) -> None:
        self.now, self.cost_s, self.times, self.go = 0.0, cost_s, 0, asyncio.Event()

    async def write(self) -> bytes:
        await self.go.wait()
        self.now += self.cost_s
        self.times += 1
        return b"%d" % self.times


async def test_callers_at_the_same_time_share_one_page() -> None:
    writer = Writer(0.0)
    page = SharedPage(writer.write, lambda: writer.now)
    asked = [asyncio.create_task(page.get()) for _ in range(20)]
    await asyncio.sleep(0)
    asked[0].cancel()  # one leaves: the others wait on
    writer.go.set()
    assert set(await asyncio.gather(*asked[1:])) == {b"1"}
    assert await page.get() == b"2"


async def test_a_costly_page_stays_for_as_long_as_it_cost_many_times_over() -> None:
    writer = Writer(2 * CHEAP_S)
    writer.go.set()
    page = SharedPage(writer.write, lambda: writer.now)
    assert await page.get() == b"1"
    writer.now += 2 * CHEAP_S * REST - 0.001
    assert await page.get() == b"1"
    writer.now += 0.002
    assert await page.get() == b"2"
