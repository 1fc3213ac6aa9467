"""What the API tells of nodes and pods, entered in the books: all that is known here can be made anew from it.

A pod that Ullage bound says on itself what it holds. One that another scheduler sent to a machine holds cards
of which only the number is known: the best that are free stand for them. A pod holds its cards until its
object is gone, or its processes have ended for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ullage.kube.informer import Added, Changed, Informer, News, Removed
from ullage.kube.nodes import CardReader, node_of
from ullage.kube.objects import Node as NodeObject
from ullage.kube.objects import Pod
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidRequest, UllageError
from ullage.model.node import Node
from ullage.service.cluster import Cluster
from ullage.wire.document import Document
from ullage.wire.pod import DOMAIN, PodRequest, read_allocation

Trouble = Callable[[str, str, UllageError], None]
"""Told of an object that cannot be read: its kind, its namespace and name, and why."""

ReadPod = Callable[[Document], PodRequest | None]
"""What a pod asks of cards; None if it asks for none.

Raises:
    InvalidRequest: it says so in words that cannot be.

"""


class Mirror:
    """Follows informers of nodes and pods. `settle` must be called before the books are looked at."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Informer[NodeObject],
        pods: Informer[Pod],
        read_pod: ReadPod,
        *,
        domain: str = DOMAIN,
        readers: Sequence[CardReader] = (),
        trouble: Trouble = lambda _kind, _name, _error: None,
    ) -> None:
        self._cluster, self._pods, self._read_pod = cluster, pods, read_pod
        self._domain, self._readers, self._trouble = domain, readers, trouble
        self._machines: dict[str, Node] = {}
        self._stale = self._recovered = False
        self._waiting: dict[str, Pod] = {}
        """Pods whose machine, or its cards, have not been told yet."""
        nodes.subscribe(self._on_node)
        pods.subscribe(self._on_pod)

    @property
    def ready(self) -> bool:
        """Whether the books are those of the API, as far as it was heard."""
        return self._recovered

    def recover(self) -> None:
        """Make the books what the informers mirror: both have listed. From now on decisions may be made."""
        self._settle_machines()
        there = sorted(self._pods.objects.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key))
        self._waiting.clear()
        self._cluster.recover(found for pod in there if (found := self._own(pod)) is not None)
        self._recovered = True
        for pod in there:
            self._enter(pod)

    def settle(self) -> None:
        """Enter what waits: machines that changed, and pods whose machine is there by now."""
        if self._stale:
            self._settle_machines()
            waiting, self._waiting = self._waiting, {}
            for pod in waiting.values():
                self._enter(pod)

    def _settle_machines(self) -> None:
        self._stale = False
        self._cluster.set_nodes(self._machines.values())

    # --- machines ---

    def _on_node(self, news: News[NodeObject]) -> None:
        match news:
            case Removed(last):
                self._stale |= self._machines.pop(last.metadata.name, None) is not None
            case Added(new) | Changed(_, new):
                machine = node_of(new, self._readers)
                if machine != self._machines.get(machine.name):
                    self._machines[machine.name] = machine
                    self._stale = True

    # --- pods ---

    def _on_pod(self, news: News[Pod]) -> None:
        if not self._recovered:
            return
        match news:
            case Removed(last):
                self._leave(last)
            case Added(new) | Changed(_, new):
                self._enter(new)

    def _enter(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.finished:
            self._leave(pod)
            return
        if not node:
            return
        held = self._cluster.held(uid)
        if held is not None and held.node == node:
            self._cluster.confirm(uid)
        else:
            self._cluster.gone(uid)  # wherever it was thought to be
            found = self._own(pod)
            if found is not None:
                self._cluster.found(found)
            else:
                self._stand_in(pod)
        if pod.terminating:
            self._cluster.leaving(uid)

    def _leave(self, pod: Pod) -> None:
        self._waiting.pop(pod.metadata.uid, None)
        self._cluster.gone(pod.metadata.uid)

    def _own(self, pod: Pod) -> Allocation | None:
        """What a pod says that it holds."""
        if pod.finished:
            return None
        try:
            return read_allocation(pod.document, self._domain, charge_of=self._cluster.charge_on)
        except InvalidRequest as error:
            self._trouble("Pod", "/".join(pod.key), error)
            return None

    def _stand_in(self, pod: Pod) -> None:
        """Hold cards for a pod that does not say which it has."""
        try:
            asked = self._read_pod(pod.document)
        except InvalidRequest as error:
            self._trouble("Pod", "/".join(pod.key), error)
            return
        if asked is not None and not self._cluster.stand_in(asked.request, pod.spec.node_name):
            self._waiting[pod.metadata.uid] = pod
