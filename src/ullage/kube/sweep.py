"""Pods on cards that are gone, in a cluster: told by an event, and evicted as their budgets allow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from ullage.kube.client.changes import Evict
from ullage.kube.client.informer import Informer
from ullage.kube.client.lease import Candidate, clock_s
from ullage.kube.client.objects import Node, Pod
from ullage.kube.events import PodEvent, Reason, Tell
from ullage.kube.nodes import CardReader, node_of
from ullage.model.error import NotFound, UllageError
from ullage.service.vanished_cards import Holder, VanishedCards
from ullage.wire.pod import DOMAIN

ROUND_S = 30.0
"""Between two rounds."""


class Sweep:
    """`run` looks again and again while this process leads; `look` looks once."""

    def __init__(
        self,
        candidate: Candidate,
        nodes: Informer[Node],
        pods: Informer[Pod],
        readers: Sequence[CardReader],
        vanished: VanishedCards,
        tell: Tell,
        *,
        domain: str = DOMAIN,
        clock: Callable[[], float] = clock_s,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        trouble: Callable[[str, str, UllageError], None] = lambda _kind, _name, _error: None,
    ) -> None:
        self._candidate, self._nodes, self._pods, self._readers = candidate, nodes, pods, readers
        self._vanished, self._tell, self._key = vanished, tell, f"{domain}/gpu-ids"
        self._clock, self._pause, self._trouble = clock, pause, trouble
        self._cards: dict[str, tuple[tuple[str, str], frozenset[str]]] = {}

    async def run(self) -> None:
        """Look every `ROUND_S`."""
        while True:
            await self.look()
            await self._pause(ROUND_S)

    async def look(self) -> None:
        """Tell pods whose cards are missing, and let those leave that have been for too long."""
        epoch = self._candidate.epoch
        if epoch is None or not (self._nodes.synced and self._pods.synced):
            return
        pods = {pod.metadata.uid: pod for pod in self._pods.objects.values()}
        there = self._known()
        speaking = {name for name, (_, cards) in there.items() if cards and self._nodes.objects["", name].ready}
        cards = {card for _, found in there.values() for card in found}
        found = self._vanished.look(self._clock(), self._holders(), cards, speaking)
        for uid, missing in found.quarantined.items():
            self._say(pods[uid], f"{', '.join(missing)}: on no node; waiting for it")
        for uid in found.leaving:
            namespace, name = pods[uid].key
            self._say(pods[uid], "its card has not come back: the pod is evicted")
            try:
                await self._candidate.write(epoch, Evict(namespace, name, uid))
            except NotFound:
                continue
            except UllageError as error:
                self._trouble("Pod", f"{namespace}/{name}", error)  # it is tried again in the next round

    def _known(self) -> dict[str, tuple[tuple[str, str], frozenset[str]]]:
        """Cards by node; only nodes that changed are read again."""
        last = self._cards
        self._cards = {
            name: last[name] if name in last and last[name][0] == node.state else (node.state, self._cards_of(node))
            for (_, name), node in self._nodes.objects.items()
        }
        return self._cards

    def _cards_of(self, node: Node) -> frozenset[str]:
        """What a node tells; nothing where it cannot be read."""
        found = node_of(node, self._readers)
        return frozenset() if found.topology_note else frozenset(gpu.uuid for gpu in found.gpus)

    def _holders(self) -> Iterator[Holder]:
        for pod in self._pods.objects.values():
            cards = (pod.metadata.annotations or {}).get(self._key, "")
            if cards and pod.spec.node_name and not pod.finished and not pod.terminating:
                named = tuple(card.strip() for card in cards.split(","))
                yield Holder(pod.metadata.uid, pod.spec.node_name, named)

    def _say(self, pod: Pod, message: str) -> None:
        namespace, name = pod.key
        self._tell(PodEvent(namespace, name, pod.metadata.uid, Reason.CARD_MISSING, message))
