"""The books of the leading process: what a pod may request there, and what nodes offer it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ullage.core.books.inventory_check import check_inventory
from ullage.kube.aligned_pods import AlignedPods
from ullage.kube.bindings.filter import Admitted, BindingFilter
from ullage.kube.context import KubeContext
from ullage.kube.extender.card_offers import CardOffers, FamilyOffers, of_all_families
from ullage.kube.extender.card_sets import CardSets
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.error import Unavailable
from ullage.wire.document import Document
from ullage.wire.extender import ExtenderArgs
from ullage.wire.pod import PodRequest

_BOUND = "bindings count here, and they give a pod cards of one family"


class LeaderBooks:
    """`binding_filter` is None where the cluster has no bindings."""

    def __init__(self, context: KubeContext, term: ReadyTerm, binding_filter: BindingFilter | None) -> None:
        self.cluster, self.read_pod = context.cluster, context.read_pod
        self.aligned, self.offers = AlignedPods(context), CardOffers(context.cluster)
        self.binding_filter = binding_filter
        self._term, self._sets = term, CardSets(context)

    def term(self) -> int:
        """Return the term in which questions can be answered.

        Raises:
            Unavailable: there is none now.

        """
        epoch = self._term.check()
        if self.binding_filter is not None and self.binding_filter.unready:
            raise Unavailable(self.binding_filter.unready, code="not-ready")
        return epoch

    def refresh(self) -> None:
        """Bring the books up to date.

        Raises:
            Unavailable: not enough is known to decide.

        """
        self.term()
        self._term.mirror.settle()

    @contextmanager
    def with_templates(self, args: ExtenderArgs) -> Iterator[None]:
        """Add the nodes that only the question describes to the books in the block: an autoscaler may add them.

        Raises:
            InvalidRequest: one of them is no Node, or cannot be: see `check_inventory`.

        """
        unknown = self._term.mirror.machines.templates(args.described())
        if not unknown:
            yield
            return
        check_inventory((*self.cluster.allocator.fleet.nodes, *unknown))
        with self.cluster.allocator.supposing(unknown):
            yield

    def admit(self, pod: Document, asked: PodRequest, nodes: Sequence[str], *, note: bool = False) -> Admitted:
        """Return what the pod requests on which nodes: its own request, what bindings allow it, or linked cards.

        `asked` is for cards of one family; that of a pod with several is refused where bindings count.
        """
        bound = self.binding_filter
        if bound is not None and asked.one_of_several and bound.covers(asked.claim.namespace):
            return Admitted([], unlinked=dict.fromkeys(nodes, _BOUND))
        found = Admitted([(asked, nodes)]) if bound is None else bound.admit(pod, asked, nodes, note=note)
        return self._sets.narrow(pod, asked, found)

    def offered(self, pod: Document, asked: PodRequest, nodes: Sequence[str], *, comes: bool) -> list[FamilyOffers]:
        """Return what these nodes offer the pod of each family of which it requests cards.

        With `comes` it is noted that the pod comes, and the cards of the best node are reserved for a short time.
        """
        if not asked.further:
            admitted = self.admit(pod, asked, nodes, note=comes)
            return [FamilyOffers(asked, admitted, self.offers.of(asked, admitted, expected=comes))]
        found = self._offered_by_family(pod, asked, nodes, expected=False)
        if comes:
            best = of_all_families(found).best
            self._offered_by_family(pod, asked, [] if best is None else [best], expected=True)
        return found

    def _offered_by_family(
        self, pod: Document, asked: PodRequest, nodes: Sequence[str], *, expected: bool
    ) -> list[FamilyOffers]:
        admitted = [(each, self.admit(pod, each, nodes)) for each in asked.by_family]
        return [FamilyOffers(each, own, self.offers.of(each, own, expected=expected)) for each, own in admitted]
