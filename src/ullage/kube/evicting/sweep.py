"""Handles pods whose cards are gone: records an event, and evicts them as their disruption budgets allow."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.kube.client.changes import Evict
from ullage.kube.client.errors import BudgetExhausted
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.kube.events import PodEvent, Reason
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.error import NotFound, UllageError
from ullage.model.node import NodeState
from ullage.service.vanished_cards import PodCards, VanishedCards
from ullage.wire.pod.keys import comma_list

ROUND_S = 30.0
"""Seconds between two checks."""


class Sweep:
    """Checks all pods every `ROUND_S` while this process leads."""

    def __init__(self, context: KubeContext, term: ReadyTerm, vanished: VanishedCards) -> None:
        self._candidate, self._mirror, self._pods = context.candidate, term.mirror, context.followed.pods
        self._term, self._vanished, self._key = term, vanished, context.key("gpu-ids")
        self._record_event, self._on_error, self._clock = context.record_event, context.on_error, context.clock
        self.controller = Controller("Pod", self.reconcile, on_error=context.on_error, guard=term.begun)
        self.controller.add(ALL)

    async def reconcile(self, _key: str) -> float:
        """Record events on pods whose cards are missing. Evict those whose cards have been missing for too long."""
        epoch = self._term.check()
        pods = {pod.metadata.uid: pod for pod in self._pods.objects.values()}
        known = [
            each for each in self._mirror.machines.by_name.values() if not each.topology_note
        ]  # else its cards are unknown
        speaking = {each.name for each in known if each.gpus and each.state is NodeState.READY}
        cards = {gpu.uuid for each in known for gpu in each.gpus}
        found = self._vanished.look(self._clock(), self._holders(), cards, speaking)
        for uid, missing in found.quarantined.items():
            self._record(pods[uid], f"{', '.join(missing)}: on no node; waiting for the card to come back")
        for uid in found.leaving:
            await self._evict(epoch, pods[uid])
        return ROUND_S

    async def _evict(self, epoch: int, pod: Pod) -> None:
        """Evict a pod as far as its budgets allow. A failure is retried in a later round."""
        namespace, name = pod.key
        try:
            await self._candidate.write(epoch, Evict(namespace, name, pod.metadata.uid))
        except NotFound:
            return
        except BudgetExhausted as error:
            self._record(pod, "its card has not come back, and its disruption budget does not let it be evicted now")
            self._on_error("Pod", f"{namespace}/{name}", error)
        except UllageError as error:
            self._on_error("Pod", f"{namespace}/{name}", error)
        else:
            self._record(pod, "its card has not come back: the pod is evicted")

    def _holders(self) -> Iterator[PodCards]:
        for pod in self._pods.objects.values():
            cards = (pod.metadata.annotations or {}).get(self._key, "")
            if cards and pod.spec.node_name and not pod.finished and not pod.terminating:
                yield PodCards(pod.metadata.uid, pod.spec.node_name, comma_list(cards))

    def _record(self, pod: Pod, message: str) -> None:
        self._record_event(PodEvent.on(pod, Reason.CARD_MISSING, message))
