"""The rules of an API server without a server, behind a network that loses, delays and repeats."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from tests.kube.patches import merge
from tests.kube.rules import Refused, Rules
from tests.kube.store import Store
from ullage.kube.client.api import ALL, ListPage, Selection
from ullage.kube.client.changes import Bind, Change, Create, Patch, Replace, call_of
from ullage.kube.client.errors import Throttled, Unreachable, refusal
from ullage.kube.client.kinds import EVENTS, Kind
from ullage.kube.client.objects import Status

FAULTS = ("there", "back", "failed", "failed-done", "late", "twice", "throttled")
"""What may become of a write: it is lost on the way there, or its answer is; a server fails before or after it did
it; it is carried out at some other time, or once more then; or a server wants none now."""


class Server:
    """What all processes reach; `limbo` are writes that are still on their way."""

    def __init__(self) -> None:
        self.rules = Rules(Store())
        self.rules.create("namespaces", "", {"metadata": {"name": "default"}})
        self.limbo: list[Change] = []

    def carry_out(self, change: Change) -> Any:
        body = json.loads(call_of(change).body)
        match change:
            case Bind(namespace, name):
                return self.rules.bind(namespace, name, body)
            case Create(kind, _, namespace):
                return self.rules.create(kind.plural, namespace, body)
            case Replace(kind, name, _, namespace):
                return self.rules.replace((kind.plural, namespace, name), body)
            case Patch(kind, name, _, namespace):
                return self.rules.change((kind.plural, namespace, name), lambda item: merge(item, body))
        raise NotImplementedError(change)

    def deliver(self, at: int) -> None:
        """One of the requests in flight arrives, and its sender gets no response."""
        try:
            self.carry_out(self.limbo.pop(at))
        except Refused:
            return

    def all(self, plural: str) -> list[dict[str, Any]]:
        now = self.rules.store.at(self.rules.store.revision)
        return [item for key, item in sorted(now.items()) if key[0] == plural]


class FaultyApi:
    """One process' way to the server; each write takes the next of `faults`, and none when they are used up."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.faults: list[str] = []

    async def pages(
        self, kind: Kind[Any], select: Selection = ALL, limit: int = 500
    ) -> AsyncGenerator[ListPage[Any], None]:
        items = tuple(kind.read(json.dumps(item).encode()) for item in self.server.all(kind.plural))
        yield ListPage(items, str(self.server.rules.store.revision))

    async def watch(self, kind: Kind[Any], since: str, select: Selection = ALL) -> AsyncGenerator[Any, None]:
        raise Unreachable("no watches here")
        yield

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        return kind.read(self._done(lambda: self.server.rules.get((kind.plural, namespace, name))))

    async def write(self, change: Change) -> bytes:
        if isinstance(change, Create) and change.kind is EVENTS:
            return b"{}"
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "throttled":
            raise Throttled("later", 0.0)
        if fault in ("late", "twice"):
            self.server.limbo.append(change)
        if fault == "failed":
            raise refusal(Status(code=500), "write")
        if fault in ("there", "late"):
            raise Unreachable("lost")
        done = self._done(lambda: self.server.carry_out(change))
        if fault == "back":
            raise Unreachable("lost")
        if fault == "failed-done":
            raise refusal(Status(code=504), "write")
        return done

    def _done(self, work: Any) -> bytes:
        try:
            return msgspec.json.encode(work())
        except Refused as refused:
            raise refusal(Status(code=refused.code, reason=refused.reason, message=str(refused)), "call") from None
