"""One process' way to an API server on a socket, on which writes are lost, late, repeated or overtaken.

What may become of a write is one of `faults.FAULTS`, or of these: the pod changes just before it arrives, the watch
reports it before its answer comes, or only a while after that, or all connections break meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from tests.kube.api_server import ApiServer
from tests.kube.faults import FAULTS
from ullage.kube.client.api import ALL, KubeApi, Selection, WatchEvent
from ullage.kube.client.changes import Bind, Change, Patch
from ullage.kube.client.errors import Throttled, Unreachable, refusal
from ullage.kube.client.kinds import PODS, Kind
from ullage.kube.client.objects import Status
from ullage.model.error import UllageError

EVERY_FAULT = (*FAULTS, "overtaken", "heard-first", "heard-late", "cut")
_LATER_S = 0.05


class UnsafeNetwork:
    """Each bind and each patch of a pod takes the next of `faults`; none when they are used up.

    `limbo` are writes that are still on their way. `change_pod` is somebody else who writes on a pod.
    """

    def __init__(self, api: KubeApi, server: ApiServer, change_pod: Callable[[str], None]) -> None:
        self.pages, self.get, self._api = api.pages, api.get, api
        self._server, self._change_pod = server, change_pod
        self.faults: list[str] = []
        self.limbo: list[Change] = []
        self._hears = asyncio.Event()
        self._hears.set()

    async def watch(
        self, kind: Kind[Any], since: str, select: Selection = ALL
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        async for event in self._api.watch(kind, since, select):
            if kind is PODS:
                await self._hears.wait()
            yield event

    async def write(self, change: Change) -> bytes:
        if not self.faults or not (isinstance(change, Bind) or (isinstance(change, Patch) and change.kind is PODS)):
            return await self._api.write(change)
        fault = self.faults.pop(0)
        if fault == "throttled":
            raise Throttled("later", 0.0)
        if fault in ("late", "twice"):
            self.limbo.append(change)
        if fault == "failed":
            raise refusal(Status(code=500), "write")
        if fault in ("there", "late"):
            raise Unreachable("lost")
        return await self._carried_out(change, fault)

    async def _carried_out(self, change: Bind | Patch, fault: str) -> bytes:
        if fault == "overtaken":
            self._change_pod(change.name)
        if fault == "heard-late":
            self._hears.clear()
            asyncio.get_running_loop().call_later(_LATER_S, self._hears.set)
        if fault == "cut":
            asyncio.get_running_loop().call_later(0.0, self._server.cut)
        done = await self._api.write(change)
        if fault == "heard-first":
            await asyncio.sleep(_LATER_S)
        if fault == "back":
            raise Unreachable("lost")
        if fault == "failed-done":
            raise refusal(Status(code=504), "write")
        return done

    async def deliver(self, choose: Callable[[list[Change]], Change]) -> None:
        """One of the writes in flight arrives; nobody hears the answer."""
        change = choose(self.limbo)
        self.limbo.remove(change)
        with suppress(UllageError):
            await self._api.write(change)

    async def deliver_all(self) -> None:
        while self.limbo:
            await self.deliver(lambda limbo: limbo[0])
