"""The port to the API with every answer written by the test: for what no server does on purpose."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from ullage.kube.client.api import ALL, EventType, ListPage, Selection, WatchEvent
from ullage.kube.client.changes import Change
from ullage.kube.client.kinds import NODES, Kind
from ullage.kube.client.objects import KubeNode


def node(name: str, version: int, uid: str = "", **labels: str) -> KubeNode:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    return NODES.read(msgspec.json.encode({"metadata": metadata}))


def event(kind: str, item: KubeNode) -> WatchEvent[KubeNode]:
    return WatchEvent(EventType(kind), item.metadata.resource_version, item)


class ScriptedApi:
    """Each list and each watch takes the next answer: items or events in turn, of which an error is raised.

    A watch goes on behind an `asyncio.Event` when that is set.
    After the last one a watch waits for ever, and `ended` is set.
    """

    def __init__(self, lists: list[list[Any]], watches: list[list[Any]]) -> None:
        self.lists, self.watches = lists, watches
        self.ended = asyncio.Event()
        self.listed = 0
        self.since: list[str] = []

    async def pages(
        self, kind: Kind[Any], select: Selection = ALL, limit: int = 500
    ) -> AsyncGenerator[ListPage[Any], None]:
        self.listed += 1
        version, *parts = self.lists.pop(0)
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield ListPage(tuple(part), str(version))

    async def watch(
        self, kind: Kind[Any], since: str, select: Selection = ALL
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        self.since.append(since)
        if not self.watches:
            self.ended.set()
            await asyncio.Event().wait()
        for reported in self.watches.pop(0):
            if isinstance(reported, Exception):
                raise reported
            if isinstance(reported, asyncio.Event):
                await reported.wait()
                continue
            yield reported

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        raise NotImplementedError

    async def write(self, change: Change) -> bytes:
        raise NotImplementedError
