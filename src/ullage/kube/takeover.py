"""How this process takes over: it reads what the cluster holds, and begins each term with all that came before it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.lease import Candidate
from ullage.kube.client.objects import Pod
from ullage.kube.followed import Followed
from ullage.kube.mirror import Mirror
from ullage.kube.unconfirmed import UnconfirmedBinds
from ullage.model.error import InvalidRequest, UllageError
from ullage.wire.pod import ReadPod

_LOOK_S = 0.2
"""Between looks at whether another term has begun."""

_LONGEST_PAUSE_S = 10.0
"""Between tries to begin a term: each lists all pods, and the API may be short of breath."""


class Takeover:
    """`run` begins every term that this process is elected for; until then nothing is decided in it."""

    def __init__(
        self,
        candidate: Candidate,
        mirror: Mirror,
        unconfirmed: UnconfirmedBinds,
        followed: Followed,
        claims: DeviceMirror | None,
        read_pod: ReadPod,
        begun: Callable[[], None] = lambda: None,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`begun` is called at the beginning of each term, before anybody is answered in it."""
        self._candidate, self._mirror, self._unconfirmed = candidate, mirror, unconfirmed
        self._followed, self._claims = followed, claims
        self._read_pod, self._begun, self._pause = read_pod, begun, pause
        self.last_error: UllageError | None = None
        """Why the last term has not begun."""

    async def run(self) -> None:
        """Read all that is there, and begin terms until it is cancelled."""
        for informer in self._followed.needed:
            await informer.wait_synced()
        if self._claims is not None:
            await self._claims.wait_synced()
        self._mirror.recover()
        gc.freeze()  # what was read stays: looking for garbage among 50,000 pods stops everything for a second
        pause_s = _LOOK_S
        while True:
            begun = await self.begin(await self._candidate.elected())
            pause_s = _LOOK_S if begun else min(pause_s * 2, _LONGEST_PAUSE_S)
            await self._pause(pause_s)

    async def begin(self, epoch: int) -> bool:
        """Begin a term with all that was bound before it: a watch may be behind what another leader wrote.

        A leader that did not let go of its own accord may have sent binds that are still to come. Whether it has
        begun: if not, `last_error` says why, and nothing is decided.
        """
        if self._mirror.term == epoch:
            return True
        pods = self._followed.pods
        try:
            await pods.catch_up()
            if not self._candidate.handed_over:
                await self._unconfirmed.begin(epoch, [pod for pod in pods.objects.values() if self._may_be_bound(pod)])
            self._candidate.check(epoch)
            if self._claims is not None:
                await self._claims.catch_up()
        except UllageError as error:
            self.last_error = error
            return False
        self.last_error = None
        self._begun()
        self._mirror.term = epoch
        return True

    def _may_be_bound(self, pod: Pod) -> bool:
        if pod.spec.node_name or pod.finished or pod.spec.scheduling_gates:  # nobody is asked about those with gates
            return False
        try:
            return self._read_pod(pod.document) is not None
        except InvalidRequest:
            return True
