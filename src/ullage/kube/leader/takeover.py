"""Leader takeover: reads the state of the cluster, and starts each term with all that was bound before it."""

from __future__ import annotations

import gc

from ullage.kube.aligned_pods import AlignedPods
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.model.error import InvalidRequest

_LOOK_S = 0.2
"""Seconds between checks for a new term."""


class Takeover:
    """`run` starts every term that this process is elected for. Nothing is decided in a term before that."""

    def __init__(
        self, context: KubeContext, term: ReadyTerm, unconfirmed: UnconfirmedBinds, claims: DeviceMirror | None = None
    ) -> None:
        self._candidate, self._followed, self._read_pod = context.candidate, context.followed, context.read_pod
        self._aligned = AlignedPods(context)
        self._mirror, self._term, self._unconfirmed, self._claims = term.mirror, term, unconfirmed, claims
        self.controller = Controller(
            "Lease", self.reconcile, on_error=context.on_error, guard=lambda: self._candidate.epoch is not None
        )
        self.controller.add(ALL)

    async def run(self) -> None:
        """Wait for the informers, then start terms until cancelled."""
        for informer in self._followed.needed:
            await informer.wait_synced()
        await self._mirror.wait_ready()
        if self._claims is not None:
            await self._claims.wait_synced()
        self._mirror.recover()
        gc.freeze()  # a garbage collection over 50,000 pods would stop the process for a second
        await self.controller.run()

    async def reconcile(self, _key: str) -> float:
        """Start a term with all that was bound before it: a watch may be behind the writes of another leader.

        A leader that did not release its lease may have sent binds that are still in flight.
        """
        epoch, pods = self._candidate.epoch, self._followed.pods
        if epoch is not None and epoch != self._mirror.term:
            await pods.catch_up()
            if not self._candidate.handed_over:
                await self._unconfirmed.begin(epoch, [pod for pod in pods.objects.values() if self._may_be_bound(pod)])
            self._candidate.check(epoch)
            if self._claims is not None:
                await self._claims.catch_up()
            self._term.start(epoch)
        return _LOOK_S

    def _may_be_bound(self, pod: Pod) -> bool:
        if pod.spec.node_name or pod.finished or pod.spec.scheduling_gates:  # schedulers do not consider gated pods
            return False
        try:
            document = pod.document
            return self._read_pod(document) is not None or self._aligned.read(document) is not None
        except InvalidRequest:
            return True
