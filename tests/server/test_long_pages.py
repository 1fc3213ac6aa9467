"""What takes long, reading from the store and reasons of all nodes, is done outside of the event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from tests.lab import Lab, a_node
from tests.service.answers import SERVER
from ullage.core.explaining import explain
from ullage.core.explaining.explain import reject
from ullage.model.identity import Identity, Role
from ullage.server.access import IDENTITY
from ullage.server.answers import Answers
from ullage.server.api import ServerApi
from ullage.server.routes import encoded
from ullage.service.access_rules import NO_RULES
from ullage.service.system_users import SystemUsers
from ullage.wire.session import SessionBody


class Reader:
    """A service whose store reads nothing before the event loop has had a turn."""

    def __init__(self) -> None:
        self.turned = threading.Event()
        self.tasks = self.store = self.state = self.events = self
        self.recent: list[object] = []
        self.executors: dict[str, object] = {}
        self.sessions: dict[str, object] = {}
        self.elements = None

    def session(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(session=self, open=False, durable=0, sequence=0)

    def recent_results(self, *_: object) -> None:
        """Nothing is in memory."""

    page = recent_results

    def read(self, *_: object) -> list[object]:
        assert self.turned.wait(60), "the event loop waits for the store"
        return []

    def with_states(self, _: str, views: list[object]) -> list[object]:
        return views


def a_request() -> Request:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    who = {IDENTITY: Identity("ann", Role.ADMIN, "token file")}
    return Request(scope | who | {"path_params": {"session": "s"}})


@pytest.mark.parametrize("route", ["list_results", "list_tasks", "list_events"])
def test_the_event_loop_turns_while_a_page_is_read(route: str) -> None:
    service = Reader()
    store = SimpleNamespace(events=service.read, results=service.read, tasks=service.read)
    parts = {"tasks": service, "state": service, "events": service, "access": NO_RULES, "system_users": SystemUsers()}
    api = ServerApi(SimpleNamespace(store=store, **parts), None, lambda: None)

    async def ask() -> None:
        asyncio.get_running_loop().call_soon(service.turned.set)
        await getattr(api, route)(a_request())

    asyncio.run(ask())


@pytest.mark.parametrize("route", ["get_session", "clear_failures"])
def test_the_event_loop_turns_while_the_reason_of_each_node_is_looked_for(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = threading.Event()

    def slowly(*arguments: Any) -> Any:
        assert turned.wait(60), "the event loop waits for the reasons"
        return reject(*arguments)

    monkeypatch.setattr(explain, "reject", slowly)
    monkeypatch.setattr("ullage.server.api.durable", lambda use_case, *given: _now(use_case(*given, lambda: None)))
    with Lab(a_node(gpus=1)) as lab:
        lab.session("s", "gpu=2")
        api = ServerApi(lab.service, Answers(lab.service, SERVER, {}), lambda: None)

        async def ask() -> bytes:
            answer = await getattr(api, route)(a_request())
            asyncio.get_running_loop().call_soon(turned.set)
            return await encoded(answer)

        body = msgspec.json.decode(asyncio.run(ask()), type=SessionBody)
    assert body.reason == "unplaceable"
    assert "it needs 2 GPUs, the best node (n1) has 1" in body.message


async def _now(answer: Any) -> Any:
    return answer


def test_a_session_that_some_node_can_take_is_answered_without_a_thread() -> None:
    with Lab(a_node(gpus=1)) as lab:
        answers = Answers(lab.service, SERVER, {})
        assert isinstance(answers.opened(lab.session("s", "gpu=1")), SessionBody)
