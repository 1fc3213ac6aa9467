"""The scheduler extender: kube-scheduler asks it to filter and score nodes, to find victims, and to bind pods."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.context import KubeContext
from ullage.kube.device_plugins import DevicePlugins
from ullage.kube.evicting.preemption import Preemptor
from ullage.kube.extender.binding import PodBinder
from ullage.kube.extender.filtering import OFFERED_NODES, Examined, NodeFilter
from ullage.kube.extender.leader_books import LeaderBooks
from ullage.kube.extender.victims import VictimProposals
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.model.error import UllageError
from ullage.wire.document import Document
from ullage.wire.extender import BindArgs, ExtenderArgs, FilterResult, PreemptionArgs, PreemptionResult
from ullage.wire.pod import PodRequest


class Extender:
    """The extender verbs of kube-scheduler. Every call raises `UllageError` if it cannot be answered."""

    def __init__(
        self,
        context: KubeContext,
        term: ReadyTerm,
        unconfirmed: UnconfirmedBinds,
        plugins: DevicePlugins,
        *,
        binding_filter: BindingFilter | None = None,
        claims: DeviceMirror | None = None,
        preemptor: Preemptor | None = None,
        offered_nodes: int = OFFERED_NODES,
    ) -> None:
        """Of `binding_filter`, `claims` and `preemptor` those that the cluster has or the settings want."""
        self._books = LeaderBooks(context, term, binding_filter)
        self._filter = NodeFilter(context, self._books, unconfirmed, preemptor=preemptor, offered_nodes=offered_nodes)
        self._victims = VictimProposals(context, self._books, self._filter, preemptor)
        self._binder = PodBinder(context, self._books, unconfirmed, plugins, claims=claims)

    @property
    def unready(self) -> str:
        """The reason why no question can be answered now; "" if questions can be answered."""
        try:
            self._books.term()
        except UllageError as error:
            return error.message
        return ""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the best nodes that fit the pod, and for each node that does not fit the reason."""
        return self._filter.filter(args)

    def prioritize(self, args: ExtenderArgs) -> dict[str, int]:
        """Return the score of each node, from 0 to 10."""
        return self._filter.prioritize(args)

    def examine(self, pod: Document, asked: PodRequest, nodes: Sequence[str]) -> Examined:
        """Return what these nodes offer to a pod now. Nothing is reserved, and no event is written."""
        return self._filter.examine(pod, asked, nodes)

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return the fewest victims on each node; no victims if the pod already has or is about to get a place."""
        return await self._victims.preempt(args)

    async def bind(self, args: BindArgs) -> None:
        """Bind a pod to a node with the best cards there; raise as `PodBinder.bind`. A repeated call succeeds."""
        await self._binder.bind(args)
