"""DeviceTaintRules: taints on devices from an administrator or a controller, in addition to those of drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ullage.kube.client.api import KubeApi
from ullage.kube.client.informer import Added, Changed, Informer, News, Removed
from ullage.kube.client.kinds import DEVICE_TAINT_RULES, Kind
from ullage.kube.client.objects import Object
from ullage.kube.client.served import is_served
from ullage.kube.controller import OnError
from ullage.model.error import InvalidRequest, UllageError
from ullage.service.devices import Devices
from ullage.wire.dra.taint_rule import read_taint_rule

LOOK_AGAIN_S = 300.0
"""Seconds between checks whether the cluster has the kind by now."""

_SOON_S = 1.0


class TaintRules:
    """`run` watches them, in the newest served version, until it is cancelled."""

    def __init__(self, api: KubeApi, devices: Devices, changed: Callable[[], None], on_error: OnError) -> None:
        """`changed` is called if a rule may help a waiting pod."""
        self._api, self._devices, self._changed, self._on_error = api, devices, changed, on_error
        self._known = asyncio.Event()

    async def wait_known(self) -> None:
        """Return when all rules are known, or it is known that there are none."""
        await self._known.wait()

    async def run(self) -> None:
        """Watch the rules."""
        while (kind := await self._served()) is None:
            self._known.set()
            await asyncio.sleep(LOOK_AGAIN_S)
        informer = Informer(self._api, kind)
        informer.subscribe(self._on_rule)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.wait_synced()
            self._known.set()

    async def _served(self) -> Kind[Object] | None:
        while True:
            try:
                for kind in DEVICE_TAINT_RULES:
                    if await is_served(self._api, kind):
                        return kind
            except UllageError:
                await asyncio.sleep(_SOON_S)
            else:
                return None

    def _on_rule(self, news: News[Object]) -> None:
        match news:
            case Added(new) | Changed(_, new):
                name = new.metadata.name
                try:
                    self._devices.set_taint_rule(name, read_taint_rule(new.document))
                except InvalidRequest as error:  # its earlier taints stay
                    self._on_error("DeviceTaintRule", name, error)
            case Removed(last):
                self._devices.set_taint_rule(last.metadata.name, None)
        self._changed()
