"""What is kept no longer is dropped, some rows at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.lab import SimulatedEngine
from ullage.bootstrap.settings import HistorySection
from ullage.model.error import InvalidRequest
from ullage.model.history import HistoryQuery, Keeping
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec
from ullage.server.durable import durable
from ullage.server.history import Retention
from ullage.service.service import ServiceHost, ServiceSettings, UllageService
from ullage.storage.open import open_store

DAY = 86400.0


class Clock:
    now = 100 * DAY

    def __call__(self) -> float:
        return self.now


async def filled(service: UllageService, clock: Clock) -> None:
    """Close a session on each of 50 days, and leave one open."""
    spec = SessionSpec("function", ResourceRequirement.of(cpu=1))
    for day in range(50):
        clock.now = (100 + day) * DAY
        await durable(service.sessions.create, f"s{day}", spec)
        await durable(service.sessions.close, f"s{day}")
    await durable(service.sessions.create, "open", spec)


def test_old_sessions_and_old_rows_go_and_everything_else_stays(tmp_path: Path) -> None:
    async def main() -> None:
        clock, store = Clock(), open_store(str(tmp_path / "state.db"))

        def fail(error: BaseException) -> None:
            raise error

        wake = asyncio.get_running_loop().call_soon_threadsafe
        host = ServiceHost(clock=clock, wake=wake, on_failure=fail)
        service = UllageService(store, SimulatedEngine(clock), ServiceSettings(), host)
        try:
            await filled(service, clock)
            assert await Retention(service, Keeping()).sweep(clock.now) == (0, 0)
            swept = await Retention(service, Keeping(closed_s=10 * DAY)).sweep(clock.now)
            assert swept == (39, 2), "39 sessions in steps of 20"
            assert list(service.state.sessions) == [*(f"s{day}" for day in range(39, 50)), "open"]
            assert len(store.history(HistoryQuery(), clock.now)) == 51
            await Retention(service, Keeping(history_s=5 * DAY)).sweep(clock.now)
            kept = [row.history.session for row in store.history(HistoryQuery(), clock.now)]
            assert kept == [*(f"s{day}" for day in range(44, 50)), "open"]
            await Retention(service, Keeping(history_rows=3)).sweep(clock.now)
            kept = [row.history.session for row in store.history(HistoryQuery(), clock.now)]
            assert kept == ["s48", "s49", "open"]
        finally:
            store.close()

    asyncio.run(main())


def test_negative_numbers_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"history\.days"):
        HistorySection(days=-1).keeping()
    assert HistorySection(days=0, rows=0).keeping() == Keeping()
