"""A front at work, for as long as a test needs one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.kube.conftest import until
from ullage.kube.front import Front


def answers(front: Front) -> bool:
    return not front.extender.unready


@asynccontextmanager
async def at_work(
    front: Front, ready: Callable[[Front], bool] = answers, *, deadline_s: float = 60.0, lets_go: bool = True
) -> AsyncIterator[Front]:
    """Entered as soon as it is `ready`. One that ends by itself fails the test, with what it ended with."""
    work = asyncio.create_task(front.run())
    try:
        await until(lambda: work.done() or ready(front), lambda: f"it is ready: {front.extender.unready}", deadline_s)
        yield front
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if not work.cancelled():
            raise AssertionError("the front ended by itself") from work.exception()
        if lets_go:
            await front.release()
