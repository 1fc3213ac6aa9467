"""Enters the state of nodes and pods from the API in the books. All of it can be rebuilt from the API.

The annotations of a pod that Ullage or HAMi's scheduler bound say what it holds. Of a pod without such annotations only
the number of its cards is known: the best free cards stand for them. A pod may hold cards that cannot be read, or for
which nothing is free. Then the cards of its machine take nothing new until the pod is gone. A pod holds its cards until
its object is deleted or its processes have ended for good.

A pod's annotations are believed only at its own expense: each card that it names is held. That includes a card that
another pod names, a card that no machine has, and a card on a pod that is otherwise unreadable. Forged annotations keep
cards from being used, but nobody is given a card that somebody may be using.

What an exporter reports of a machine and its card usage takes precedence over all other sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from ullage.core.books.usage import OtherUsage
from ullage.kube.aligned_pods import AlignedPods
from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.mirror.bound_requests import BoundRequests, Held
from ullage.kube.mirror.family_holdings import FamilyHoldings, cards_by_family, same
from ullage.kube.mirror.machines import Machines
from ullage.kube.mirror.nodes import NO_SOURCES, CardSources
from ullage.kube.mirror.placed_by_hami import PlacedByHami
from ullage.kube.mirror.pod_reports import PodReports
from ullage.kube.mirror.unbound_choices import CHOICE_S, Seen, UnboundChoices
from ullage.kube.mirror.zone_records import ZoneRecords
from ullage.model.allocation import AllocationState
from ullage.model.error import Conflict, InvalidRequest, UllageError
from ullage.model.resources import MILLI
from ullage.service.cardless_pods import CardlessPods
from ullage.service.devices import Devices
from ullage.wire.document import Document
from ullage.wire.pod.containers import bound_spec, pod_amount

REFUSALS = ("TopologyAffinityError", "SMTAlignmentError")
"""Reasons why a kubelet rejects a pod that should fit: its CPUs and cards are not in the NUMA zones that it needs."""


class Mirror:
    """Follows the informers of nodes and pods. Call `settle` before reading the books."""

    def __init__(
        self,
        context: KubeContext,
        cards: CardSources = NO_SOURCES,
        *,
        devices: Devices | None = None,
        domains: Callable[[str], Mapping[str, str]] = lambda _node: {},
        records: ZoneRecords | None = None,
        choice_s: float = CHOICE_S,
    ) -> None:
        """`devices` are the allocated claims, if the cluster has them. `domains` returns further labels of a node.

        `records` are what exporters write of nodes (None: only Numatopology objects, where these are followed).
        `choice_s` are the seconds for which the choice of another scheduler counts that has not bound the pod.
        """
        self._cluster, self._pods, self._read_pod = context.cluster, context.followed.pods, context.read_pod
        self._domain, self._on_error, self._record_event = context.domain, context.on_error, context.record_event
        self._devices = devices
        self.machines = Machines(context, cards, domains, records or ZoneRecords(context))
        self._unobserved, self._aligned = self.machines.unobserved, AlignedPods(context)
        self._recovered = False
        self.term: int | None = None
        """The leadership term at whose start all earlier binds had been observed."""
        self._waiting: dict[str, Pod] = {}
        """Pods of other schedulers for which the books have no cards: their machine is unknown yet, or full."""
        self._unreported: dict[str, tuple[Pod, Held]] = {}
        """Pods with cards that no node reports, by uid. They are entered together, as that rebuilds the books."""
        self._withheld: dict[str, str] = {}
        """Machines whose cards are cordoned, by the uid of a pod there whose cards are unknown."""
        self._shut: frozenset[str] = frozenset()
        """These machines, as the books have them."""
        self._freed: set[str] = set()
        """Machines that a pod has left since the last check whether waiting pods have room."""
        by_hami, self._requests = PlacedByHami(context), BoundRequests(context)
        self._holdings = FamilyHoldings(context, self._requests, by_hami, self._report)
        self.choices = UnboundChoices(context, by_hami, self._freed.add, choice_s)
        self._unread: set[str] = set()
        """Pods whose request or record cannot be read, by uid: it may still be corrected."""
        self._reports = PodReports(context)
        self._cardless = CardlessPods(self._cluster)
        self.refused: Counter[tuple[str, str]] = Counter()
        """Pods that kubelets rejected since the start, by node and reason."""
        self._pods.subscribe(self._on_pod)

    @property
    def ready(self) -> bool:
        """Whether the books match the state of the API, as far as the informers have it."""
        return self._recovered

    async def wait_ready(self) -> None:
        """Return as soon as what exporters write of nodes is known, so that `recover` may be called."""
        await self.machines.wait_ready()

    def recover(self) -> None:
        """Build the books from the informers, which have listed. From now on decisions may be made.

        Pods whose annotations name their cards come first, so that no other pod is given these cards.
        """
        self._settle_machines()
        there = sorted(self._pods.objects.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.key))
        self._waiting.clear()
        self._unreported.clear()
        self._withheld.clear()
        self._requests.clear()
        self.choices.clear()
        self._unread.clear()
        self._reports.forget_changes()
        self._cardless.clear()
        self._cluster.recover(())
        self._recovered = True
        own = [(pod, found) for pod in there if isinstance(found := self._holdings.own(pod), tuple) and found]
        self._hold(*own)
        for pod, _ in own:
            self._requests.believe(pod, only=True)
        for pod in sorted(there, key=lambda each: bool(each.spec.node_name)):  # choices before cards that nobody names
            self._enter(pod)
        self._cardless.write_to_books()
        self._settle_machines()
        self._unobserved.update(self.machines.records)
        self._observe()

    def settle(self) -> None:
        """Enter pending changes: changed machines, pods that may have room by now, and reported card usage."""
        self._cardless.write_to_books()
        stale = self.machines.stale
        if stale or self._freed:
            again = [pod for pod in self._waiting.values() if stale or pod.spec.node_name in self._freed]
            for pod in again:
                self._withheld.pop(pod.metadata.uid, None)  # else the cordon would also refuse this pod
            self._settle_machines()
            for pod in again:
                self._enter(pod)
        self._settle_machines()
        self._hold_unreported()
        self._observe()

    def _observe(self) -> None:
        """Compare the reported card usage of changed machines with the books."""
        if not self._recovered:
            return
        if self._devices is not None:
            self._devices.settle()
        names, records = sorted(self._unobserved & self.machines.by_name.keys()), self.machines.records
        self._unobserved.clear()
        for name in names:
            use = records[name].use if name in records else None
            self.machines.enter_zone_usage(name)
            use = use and self._aligned.named(use, name)
            for each in self._cluster.observe(name, use).mismatches if use is not None else ():
                bound, shown = ", ".join(each.bound), ", ".join(each.shown)
                message = f"{each.uid}: {each.resource}: bound to {bound}, its node shows {shown}"
                self._on_error("Node", name, Conflict(message, code="allocation-mismatch"))

    def _settle_machines(self) -> None:
        self._freed.clear()
        withheld = frozenset(self._withheld.values())
        if self._devices is not None:
            withheld |= self._devices.withheld
        if self.machines.stale or withheld != self._shut:
            self.machines.stale, self._shut = False, withheld
            self._cluster.set_nodes(self.machines.distinct(withheld))

    # --- pods ---

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if not self._recovered:
            return
        match delta:
            case Removed(last):
                self._leave(last)
            case Added(new, created):
                self._enter(new, Seen.CREATED if created else Seen.LISTED)
            case Changed(_, new):
                self._enter(new, Seen.CHANGED)

    def report_again(self) -> None:
        """Record events again for pods with unknown cards: nothing was written before this process led."""
        self._reports.again(self._waiting.values())

    def observe(self, pod: Pod) -> None:
        """Enter a pod that was just read. The watch reports the same later."""
        if self._recovered:
            self._enter(pod)

    def write(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        """Note what is written of the cards that are reserved for a pod: seen again, it need not be read."""
        self._requests.write(pod.metadata.uid, node, annotations)

    def forget_write(self, uid: str) -> None:
        """Note that what was written last for a pod did not take effect."""
        self._requests.forget_write(uid)

    def expect(self, pod: Pod, node: str) -> None:
        """Charge this node with what a pod needs there apart from its cards. Its scheduler must bind it to the node."""
        self._count(pod, pod.document, node)

    def _enter(self, pod: Pod, seen: Seen = Seen.LISTED) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._unobserved.add(node)
        if pod.finished:
            self._leave(pod)
            return
        if not node:
            self.choices.enter(pod, seen)
            return
        self.choices.drop(uid)
        pod = self._as_placed(pod)
        held = self._cluster.held_by_family(uid)
        there = {(each.node, each.state is AllocationState.ASSUMED) for each in held}
        if there == {(node, False)}:
            self._hold_again(pod, held)
        elif there == {(node, True)} and (self._is_own_bind(pod) or same(held, self._holdings.own(pod))):
            self._cluster.confirm(uid)
            self._requests.believe(pod, only=True)
        else:
            self._cluster.free(uid)  # wherever the books have it
            self._enter_from_pod(pod)
            self._requests.believe(pod, only=True)
        if pod.terminating:
            self._cluster.release(uid)

    def _is_own_bind(self, pod: Pod) -> bool:
        """Return whether a pod has the record that was written here; one with init containers may hold less by now."""
        return self._requests.is_written(pod) and not pod.spec.init_containers

    def _as_placed(self, pod: Pod) -> Pod:
        """Return a pod with the request that it was placed for; a request that came later is reported.

        A record of cards that comes later is not that of a pod which holds none.
        """
        uid = pod.metadata.uid
        correctable = uid in self._unread
        placed, words = self._requests.as_placed(pod, correctable=correctable)
        if words:
            self._reports.change(pod, words, "it is placed already and holds what it asked for then")
        first = next(iter(self._requests.records(uid)), None)
        if correctable or first is None or self._cluster.held_by_family(uid) or uid in self._waiting:
            return placed
        if keys := self._requests.differs(pod):
            self._reports.change(pod, keys, "it is placed already and was given no cards")
        return self._requests.with_record(placed, first)

    def _hold_again(self, pod: Pod, held: Held) -> None:
        """Enter what changed of a pod with cards: its record, its CPU and memory, whether init containers run.

        A record that is gone, or can no longer be read, changes nothing; another one only adds to what the pod holds.
        """
        uid = pod.metadata.uid
        if not self._requests.records(uid):  # it was bound here, and is seen for the first time since
            self._requests.believe_written(pod)
        before, now = self._requests.records(uid), self._requests.record(pod)
        renewed = now not in before
        own = self._holdings.own(pod) if renewed else ()
        if own and isinstance(own, tuple) and not self._requests.believe(pod):
            self._reports.change(pod, self._requests.differs(pod), "it changed too often; it holds what it held before")
        if renewed or len(before) > 1 or pod.spec.init_containers:
            found = self._holdings.union(pod, held)
            if len(self._requests.records(uid)) > 1 and found and not same(found, self._holdings.own(pod)):
                why = "the pod runs; it holds what it held before, and what was added"
                self._reports.change(pod, self._requests.differs(pod), why)
            if found and not same(held, found):
                if cards_by_family(found) != cards_by_family(held):
                    self._cluster.free(uid)
                self._hold((pod, found))
                self._cluster.drop_rejections(pod.spec.node_name)
                self._freed.add(pod.spec.node_name)
        self._count(pod, pod.document, pod.spec.node_name)

    def _enter_from_pod(self, pod: Pod) -> None:
        """Enter what a pod on a machine holds, according to its annotations, else its request."""
        self._unreported.pop(pod.metadata.uid, None)
        found, document = self._holdings.own(pod), pod.document
        if not found and self._withheld.pop(pod.metadata.uid, None) is not None:
            self._settle_machines()  # else its own cordon would keep it from the cards that stand for its own
        if self._requests.placed_without_cards(pod):
            self._check_asks_nothing(pod)
            self._hold_aligned(pod, document)
        elif not found:
            self._adopt(pod, document)
        elif not isinstance(found, tuple):
            self._withhold(pod, found)
        elif self._holdings.has_unreported(found):
            self._unreported[pod.metadata.uid] = pod, found
        else:
            self._hold((pod, found))
        self._count(pod, document, pod.spec.node_name)

    def _hold_unreported(self) -> None:
        """Enter the pods whose cards no node has reported meanwhile."""
        if not self._unreported:
            return
        pods, self._unreported = list(self._unreported.values()), {}
        self._hold(*pods)
        for pod, _ in pods:
            self._enter(pod)
        self._cardless.write_to_books()

    def _check_asks_nothing(self, pod: Pod) -> None:
        """Report a pod that was bound here without cards, and asks for some now or says that it has some."""
        self._done_waiting(pod.metadata.uid)
        words = [key for key, value in self._requests.record(pod).items() if value]
        try:
            asks = self._read_pod(pod.document) is not None
        except InvalidRequest:
            asks = True
        words += self._requests.words(pod) if asks else []
        if words:
            self._reports.change(pod, sorted(words), "it was placed without cards and has none")

    def _leave(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._cardless.drop(uid)
        self._unreported.pop(uid, None)
        self.choices.drop(uid)
        self._done_waiting(uid)
        self._requests.drop(uid)
        self._reports.drop(uid)
        self._unobserved.add(node)
        self._freed.add(node)
        if self._cluster.held_by_family(uid):
            self._ended(pod)
        self._cluster.free(uid)

    def _ended(self, pod: Pod) -> None:
        """Handle a pod with cards that has failed: count and report it if its kubelet rejected it."""
        node, reason = pod.spec.node_name, pod.status.reason
        if reason not in REFUSALS:
            self._cluster.drop_rejections(node)
            return
        self.refused[node, reason] += 1
        self._cluster.note_rejection(pod.metadata.uid)
        self._report(pod, Conflict(f"the kubelet of {node} refused it ({reason})", code="refused-there"))

    def _hold(self, *pods: tuple[Pod, Held]) -> None:
        for pod, _ in pods:
            self._done_waiting(pod.metadata.uid)
        self._holdings.hold(*pods)

    def _count(self, pod: Pod, document: Document, node: str) -> None:
        """Count what a pod uses of its node apart from its cards. Claims have the place of their pod."""
        try:
            spec = bound_spec(document)
            has = OtherUsage(
                pod_amount(spec, "cpu", MILLI), pod_amount(spec, "memory", 1), not spec.get("resourceClaims")
            )
        except InvalidRequest as error:
            self._report(pod, error)
            has = OtherUsage(slots=1)
        else:
            if shrunk := self._holdings.shrink(pod.metadata.uid, has):
                self._freed.add(shrunk)
        has = self._holdings.besides_cards(pod.metadata.uid, has)
        self._cardless.put(pod.metadata.uid, node, has)

    def _adopt(self, pod: Pod, document: Document) -> None:
        """Hold cards for a pod that does not say which it has."""
        node = pod.spec.node_name
        try:
            asked = self._read_pod(document)
            if asked is None:
                self._hold_aligned(pod, document)
            if asked is not None and any(each.slice_is_named for each in asked.by_family):
                raise Conflict("it has a slice of a card, and nothing says which", code="slice-unknown")
            if asked is None or self._holdings.hold_some(asked, node):
                self._done_waiting(pod.metadata.uid)
                return
        except UllageError as error:
            self._withhold(pod, error)
            return
        self._withhold(
            pod, Conflict(f"{node} has too few free cards for the pod, which is bound there", code="no-room")
        )

    def _hold_aligned(self, pod: Pod, document: Document) -> None:
        """Hold what a pod without cards has in the zones of its node."""
        try:
            self._aligned.hold(document, pod.spec.node_name)
        except UllageError as error:
            self._report(pod, error)

    def _withhold(self, pod: Pod, error: UllageError) -> None:
        """Cordon the cards of a machine: a pod holds one of them, and nobody knows which."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._waiting[uid] = pod
        if node in self.machines.by_name:
            self._report(pod, error)
        self._withheld[uid] = node
        if isinstance(error, InvalidRequest):
            self._unread.add(uid)

    def _done_waiting(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._withheld.pop(uid, None)
        self._unread.discard(uid)

    def _report(self, pod: Pod, error: UllageError) -> None:
        self._reports.error(pod, error, unknown=pod.metadata.uid in self._waiting)
