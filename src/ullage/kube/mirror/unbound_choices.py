"""The cards that HAMi's scheduler has chosen for pods that it has not bound yet.

HAMi's scheduler writes its choice on a pod when it filters nodes. It counts the pod from then on, and does not look
again when it binds it. So the cards of a choice are held from the choice on, until the pod gets its node or is gone.

A user who may write a pod could write a choice, for a scheduler that does not exist. So a choice is believed for a
limited time, and for no more cards than the pod requests. One that a pod was created with is not believed: a scheduler
sees a pod only afterwards. A pod with a choice is on no node yet, so it is never evicted for another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.mirror.bound_requests import Held
from ullage.kube.mirror.placed_by_hami import PlacedByHami
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidRequest
from ullage.wire.document import Document
from ullage.wire.hami.choice import choice_in, chosen_at, requested_devices
from ullage.wire.hami.lock import LOCK_EXPIRES_S
from ullage.wire.hami.results import node_in

CHOICE_S = LOCK_EXPIRES_S
"""Seconds for which a choice counts: as long as HAMi's scheduler has for a bind once it has locked the node."""


class Seen(Enum):
    """How the state of a pod became known: by a list, as it was created, or as a change of a known pod."""

    LISTED = auto()
    CREATED = auto()
    CHANGED = auto()


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is written of a choice, and until when it is believed."""

    written: tuple[str, ...]
    until: float


class UnboundChoices:
    """Pods of the scheduler of this process (`context.scheduler`) have no choice: their cards are written at bind.

    `freed` is called with the node of a choice that no longer counts. `controller` ends choices at their time.
    """

    def __init__(
        self, context: KubeContext, by_hami: PlacedByHami, freed: Callable[[str], None], limit_s: float = CHOICE_S
    ) -> None:
        self._cluster, self._read_pod, self._is_own = context.cluster, context.read_pod, context.is_own
        self._knows_own = bool(context.scheduler)
        self._families, self._clock, self._now = context.pod_settings.families, context.clock, context.now
        self._by_hami, self._freed, self._limit_s = by_hami, freed, limit_s
        self._choices: dict[str, _Choice] = {}
        """The last choice of each pod without a node, by uid, whether it is believed or not."""
        self._holding: set[str] = set()
        """Pods whose choice is held."""
        self.controller = Controller("Pod", self.reconcile, on_error=context.on_error, clock=context.clock)

    def clear(self) -> None:
        self._choices.clear()
        self._holding.clear()

    def enter(self, pod: Pod, seen: Seen) -> None:
        """Hold the cards that were chosen for a pod without a node."""
        uid, written = pod.metadata.uid, self._written(pod)
        if not written:
            self.drop(uid)
            return
        choice = self._choices.get(uid)
        if choice is None or choice.written != written:
            choice = self._choices[uid] = _Choice(written, self._until(pod, seen))
        if choice.until <= self._clock():
            self._free(uid)
            return
        left_s = choice.until - self._clock()
        self.controller.add(uid, left_s)
        self._hold(uid, self._cards(pod), self._now() + left_s)

    def drop(self, uid: str) -> None:
        """Forget the choice of a pod that is gone or gets its node."""
        self._choices.pop(uid, None)
        self._free(uid)

    async def reconcile(self, uid: str) -> float | None:
        """Free the cards of a choice if its time is over; else return the seconds that are left."""
        choice = self._choices.get(uid)
        if choice is None:
            return None
        left_s = choice.until - self._clock()
        if left_s > 0:
            return left_s
        self._free(uid)
        return None

    def _written(self, pod: Pod) -> tuple[str, ...]:
        if not (self._knows_own and pod.spec.scheduler_name) or self._is_own(pod):
            return ()
        return choice_in(pod.metadata.annotations or {}, self._families)

    def _until(self, pod: Pod, seen: Seen) -> float:
        """Return when a new choice ends. Only of one that is found in a list the stated time counts, if it is past."""
        if seen is Seen.CREATED:
            return -math.inf
        at = chosen_at(pod.metadata.annotations or {}, self._families) if seen is Seen.LISTED else None
        age_s = 0.0 if at is None else max(0.0, self._now() - at)
        return self._clock() + self._limit_s - age_s

    def _hold(self, uid: str, found: Held, until: float) -> None:
        known = self._cluster.held_by_family(uid) if uid in self._holding else ()
        if known and [(each.node, each.gpus) for each in known] == [(each.node, each.gpus) for each in found]:
            return
        self._free(uid)
        if found:
            self._cluster.adopt(*(_protected(each, until) for each in found))
            self._holding.add(uid)

    def _free(self, uid: str) -> None:
        if uid not in self._holding:
            return
        self._holding.discard(uid)
        for node in {each.node for each in self._cluster.held_by_family(uid)}:
            self._freed(node)
        self._cluster.free(uid)

    def _cards(self, pod: Pod) -> Held:
        """Return what was chosen for a pod; nothing if that is not readable, not of the node, or more than requested.

        A bound pod with such a record closes its node. This one has nothing yet, and its scheduler may choose again.
        """
        node = node_in(pod.metadata.annotations or {}, self._families)
        row_of, nodes = self._cluster.allocator.fleet.row_of, self._cluster.allocator.fleet.nodes
        if node not in row_of:
            return ()
        document = pod.document
        found = self._by_hami.read({**document, "spec": {**document["spec"], "nodeName": node}})
        if not isinstance(found, tuple):
            return ()
        there = {gpu.uuid for gpu in nodes[row_of[node]].gpus}
        given = [each.gpus for each in found]
        fits = all(gpus and there.issuperset(gpus) for gpus in given)
        return found if fits and sum(map(len, given)) <= self._most_cards(document) else ()

    def _most_cards(self, document: Document) -> int:
        """Return how many cards a pod requests; if its request cannot be read, how many devices."""
        try:
            asked = self._read_pod(document)
        except InvalidRequest:
            return requested_devices(document, self._families)
        return 0 if asked is None else sum(each.requirement.gpu_count for each in asked.by_family)


def _protected(held: Allocation, until: float) -> Allocation:
    """Return an allocation that is not evicted: its pod is not on the node, so kube-scheduler would not find it."""
    return held if held.claim is None else replace(held, claim=held.claim.protected(until))
