"""Long reads of the store do not block the event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from ullage.server.api import ServerApi


class Reader:
    """A service whose store reads nothing before the event loop has had a turn."""

    def __init__(self) -> None:
        self.turned = threading.Event()
        self.tasks = self.store = self.state = self.events = self
        self.recent: list[object] = []
        self.open, self.durable, self.sequence = False, 0, 0

    def session(self, _: str) -> Reader:
        return self

    def recent_results(self, *_: object) -> None:
        """Nothing is in memory."""

    page = recent_results

    def read(self, *_: object) -> list[object]:
        assert self.turned.wait(60), "the event loop waits for the store"
        return []

    stored_results = stored_tasks = read

    def with_states(self, _: str, views: list[object]) -> list[object]:
        return views


def a_request() -> Request:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    return Request(scope | {"path_params": {"session": "s"}})


@pytest.mark.parametrize("route", ["list_results", "list_tasks", "list_events"])
def test_the_event_loop_turns_while_a_page_is_read(route: str) -> None:
    service = Reader()
    store = SimpleNamespace(events=service.read)
    api = ServerApi(SimpleNamespace(tasks=service, state=service, store=store, events=service), None, lambda: None)

    async def ask() -> None:
        asyncio.get_running_loop().call_soon(service.turned.set)
        await getattr(api, route)(a_request())

    asyncio.run(ask())
