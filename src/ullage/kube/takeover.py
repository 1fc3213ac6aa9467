"""Leader takeover: reads the state of the cluster, and starts each term with all that was bound before it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable

from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller, Pace
from ullage.kube.mirror import Mirror
from ullage.kube.unconfirmed import UnconfirmedBinds
from ullage.model.error import InvalidRequest, UllageError

_LOOK_S = 0.2
"""Seconds between checks for a new term."""

_PACE = Pace(first_s=0.4, longest_s=10.0)
"""The pauses between attempts to start a term: each lists all pods, and the API server may be overloaded."""


class Takeover:
    """`run` starts every term that this process is elected for. No decision is made in a term before that."""

    def __init__(
        self,
        context: KubeContext,
        mirror: Mirror,
        unconfirmed: UnconfirmedBinds,
        claims: DeviceMirror | None = None,
        begun: Iterable[Callable[[], None]] = (),
    ) -> None:
        """`begun` are called at the start of each term, before any request is answered in it."""
        self._candidate, self._followed = context.candidate, context.followed
        self._mirror, self._unconfirmed, self._claims = mirror, unconfirmed, claims
        self._read_pod, self._begun = context.read_pod, tuple(begun)
        self.controller = Controller(
            "Lease",
            self.reconcile,
            on_error=context.on_error,
            guard=lambda: context.candidate.epoch is not None,
            pace=_PACE,
        )
        self.controller.add(ALL)
        self.last_error: UllageError | None = None
        """Why the last term could not start."""

    async def run(self) -> None:
        """Wait for the informers, then start terms until cancelled."""
        for informer in self._followed.needed:
            await informer.wait_synced()
        if self._claims is not None:
            await self._claims.wait_synced()
        self._mirror.recover()
        gc.freeze()  # a garbage collection over 50,000 pods would stop the process for a second
        await self.controller.run()

    async def reconcile(self, _key: str) -> float:
        """Start a term with all that was bound before it: a watch may be behind the writes of another leader.

        A leader that did not release its lease may have sent binds that are still in flight. Until the term has
        started, `last_error` says why it has not, and nothing is decided.

        Raises:
            UllageError: the term could not start.

        """
        epoch = self._candidate.epoch
        if epoch is not None and epoch != self._mirror.term:
            try:
                await self._prepare(epoch)
            except UllageError as error:
                self.last_error = error
                raise
            self.last_error = None
            for begun in self._begun:
                begun()
            self._mirror.term = epoch
        return _LOOK_S

    async def _prepare(self, epoch: int) -> None:
        pods = self._followed.pods
        await pods.catch_up()
        if not self._candidate.handed_over:
            await self._unconfirmed.begin(epoch, [pod for pod in pods.objects.values() if self._may_be_bound(pod)])
        self._candidate.check(epoch)
        if self._claims is not None:
            await self._claims.catch_up()

    def _may_be_bound(self, pod: Pod) -> bool:
        if pod.spec.node_name or pod.finished or pod.spec.scheduling_gates:  # schedulers do not consider gated pods
            return False
        try:
            return self._read_pod(pod.document) is not None
        except InvalidRequest:
            return True
