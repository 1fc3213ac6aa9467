"""Kinds that an API server may lack, or get later: definitions are added, and API servers are upgraded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Generic

from ullage.kube.client.api import KubeApi, T
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.informer import Handler, Informer
from ullage.kube.client.kinds import Kind
from ullage.model.error import NotFound, UllageError

LOOK_AGAIN_S = 300.0
"""Seconds between checks for kinds that did not exist. No event announces them."""

_SOON_S = 1.0
"""Seconds before the next check if the server does not answer."""


MISSING = (NotFound, ApiForbidden)
"""The errors for a kind that the server lacks. One that may not be read counts as missing."""


async def wait_served(
    api: KubeApi, *wanted: Sequence[Kind[T]], missed: Callable[[UllageError], None], again_s: float = LOOK_AGAIN_S
) -> list[Kind[T]]:
    """Return the first served version of each wanted kind as soon as the server has all these kinds.

    `missed` is called with the error of each attempt before: one of `MISSING`, or nothing is known.
    """
    while True:
        try:
            return [await _first_served(api, versions) for versions in wanted]
        except UllageError as error:
            missed(error)
            pause_s = again_s if isinstance(error, MISSING) else _SOON_S
        await asyncio.sleep(pause_s)


async def _first_served(api: KubeApi, versions: Sequence[Kind[T]]) -> Kind[T]:
    last: UllageError = NotFound("no version is known")
    for kind in versions:
        try:
            async with aclosing(api.pages(kind, limit=1)) as pages:
                await anext(pages)
        except MISSING as error:
            last = error
        else:
            return kind
    raise last


class LateInformer(Generic[T]):
    """The informer of a kind that may be missing, in the first of its versions that is served."""

    def __init__(self, api: KubeApi, versions: Sequence[Kind[T]], handler: Handler[T]) -> None:
        self._api, self._versions, self._handler = api, versions, handler
        self._looked = asyncio.Event()
        self.informer: Informer[T] | None = None
        """None while the kind is missing."""

    @property
    def ready(self) -> bool:
        """Whether all objects are known, or it is known that there are none."""
        return self._looked.is_set() and (self.informer is None or self.informer.synced)

    async def wait_ready(self) -> None:
        await self._looked.wait()
        if self.informer is not None:
            await self.informer.wait_synced()

    async def run(self) -> None:
        for kind in await wait_served(self._api, self._versions, missed=self._missed):
            self.informer = Informer(self._api, kind)
            self.informer.subscribe(self._handler)
            self._looked.set()
            await self.informer.run()

    def _missed(self, error: UllageError) -> None:
        if isinstance(error, MISSING):
            self._looked.set()
