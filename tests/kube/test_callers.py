"""Who asks for bindings, by their tokens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request

from tests.kube.conftest import until
from ullage.kube.bindings.callers import AT_ONCE, CACHED_S, Admins, Tokens
from ullage.model.error import Forbidden
from ullage.service.bindings_snapshot import Caller

pytestmark = pytest.mark.anyio


class Reviews:
    """An API server that knows tokens that begin with `good`, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.prefix, self.groups = "x:", list[str]()
        self.waiting = self.most = 0
        self.go = asyncio.Event()
        self.go.set()

    async def write(self, change: Any) -> bytes:
        token = change.body["spec"]["token"]
        self.asked.append(token)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.go.wait()
        await asyncio.sleep(0)
        self.waiting -= 1
        known = token.startswith("good")
        user = {"username": f"{self.prefix}{token}", "groups": self.groups}
        return json.dumps({"status": {"authenticated": known, "user": user}}).encode()


def asking(token: str) -> Request:
    return Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]})


async def test_the_review_of_a_token_is_cached() -> None:
    api, now = Reviews(), [0.0]
    tokens = Tokens(api, Admins(), prefix="x:", clock=lambda: now[0])  # type: ignore[arg-type]  # a fake server
    for seconds in (0.0, CACHED_S - 1, CACHED_S):
        now[0] = seconds
        assert (await tokens.caller(asking("good"))).name == "good"
    assert api.asked == ["good", "good"]


async def test_unknown_callers_do_not_flood_the_api_server() -> None:
    api = Reviews()
    tokens = Tokens(api, Admins(), clock=lambda: 0.0)  # type: ignore[arg-type]  # a fake server
    await tokens.caller(asking("good"))
    api.go.clear()
    strangers = [asyncio.create_task(tokens.caller(asking(f"bad-{number}"))) for number in range(3 * AT_ONCE)]
    await until(lambda: api.waiting == AT_ONCE, "the API server is asked")
    assert (await tokens.caller(asking("good"))).name == "x:good"  # who is known waits for none of them
    api.go.set()
    found = await asyncio.gather(*strangers, return_exceptions=True)
    assert all(isinstance(each, Forbidden) for each in found)
    assert (api.most, len(api.asked)) == (AT_ONCE, 1 + 3 * AT_ONCE)


async def test_the_short_name_of_one_user_is_never_the_full_name_of_another() -> None:
    api, admins = Reviews(), Admins(["good-admin"], ["operators"])
    tokens = Tokens(api, admins, prefix="x:", clock=lambda: 0.0)  # type: ignore[arg-type]  # a fake server
    assert (await tokens.caller(asking("good-1"))) == Caller("good-1", False)
    api.prefix = ""
    with pytest.raises(Forbidden, match="begin with 'x:'"):
        await tokens.caller(asking("good-2"))
    assert (await tokens.caller(asking("good-admin"))) == Caller("good-admin", True)
    api.groups = ["operators"]
    assert (await tokens.caller(asking("good-3"))) == Caller("good-3", True)


async def test_an_admin_is_named_in_full() -> None:
    tokens = Tokens(Reviews(), Admins(["good"]), prefix="x:", clock=lambda: 0.0)  # type: ignore[arg-type]  # a fake server
    assert (await tokens.caller(asking("good"))) == Caller("good", False)
