"""Large and unusual payloads pass through the engine unchanged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.engines.recorder import opened, pickled
from ullage.model.error import InvalidRequest
from ullage.service.engine_port import BindOrder, Completed, ExecutorBound, Registered, Returned, TaskOrder

LARGE = 50 * 1024 * 1024


def test_fifty_megabytes_both_ways(tmp_path: Path) -> None:
    def mirror(data: bytes) -> bytes:
        return data[::-1]

    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter()
            data = bytes(range(256)) * (LARGE // 256)
            assert await recorder.run(1, mirror, data) == data[::-1]

    asyncio.run(main())


def test_large_common_data(tmp_path: Path) -> None:
    def common() -> int:
        from ullage.worker import context  # noqa: PLC0415  # this runs in a worker

        return len(context().common_data or b"")

    async def main() -> None:
        async with opened(tmp_path) as recorder:
            recorder.launch()
            await recorder.first(Registered)
            recorder.engine.bind(BindOrder("e", "s", bytes(LARGE)))
            await recorder.first(ExecutorBound)
            assert await recorder.run(1, common) == LARGE

    asyncio.run(main())


def test_many_large_tasks_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter()
            size = 5 << 20
            orders = [TaskOrder("s", task, task, pickled(bytes, (size,))) for task in range(1, 7)]
            orders += [TaskOrder("s", task, task, pickled(len, (bytes(size),))) for task in range(7, 13)]
            waiting = {order.claim: order for order in orders}
            recorder.engine.hand_out("e", orders)
            seen = 0
            while waiting:  # allocating takes long enough for some to come back unstarted
                await recorder.until(
                    lambda: len(recorder.events) > seen  # noqa: B023  # awaited before it changes
                )
                event = recorder.events[seen]
                seen += 1
                if isinstance(event, Completed):
                    for outcome in event.outcomes:
                        assert outcome.code == 0, outcome.message
                        del waiting[outcome.claim]
                elif isinstance(event, Returned):
                    recorder.engine.hand_out("e", [waiting[claim] for claim in event.claims])

    asyncio.run(main())


def test_unicode_in_errors_and_values(tmp_path: Path) -> None:
    def fail(text: str) -> None:
        raise InvalidRequest(text)

    async def main() -> None:
        async with opened(tmp_path) as recorder:
            await recorder.enter()
            assert await recorder.run(1, str.upper, "größe 🦀") == "GRÖSSE 🦀"
            recorder.give(2, fail, "zu groß: 🦀 \udcff")
            outcome = await recorder.outcome(2)
            assert outcome.message.startswith("InvalidRequest: zu groß: 🦀 \\udcff\n")

    asyncio.run(main())
