"""What the webhook asks about the cluster: which namespaces are exempt, and what quotas and cards allow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from ullage.core.verdict.sentences import reject_text
from ullage.kube.bindings.filter import BindingFilter
from ullage.kube.client.informer import Informer
from ullage.kube.client.objects import Namespace
from ullage.kube.webhook.bound_cards import BoundCounts
from ullage.kube.webhook.webhook import OverQuota
from ullage.model.gpu import Gpu
from ullage.model.nearest import nearest
from ullage.model.part import Isolation
from ullage.service.cluster import Cluster
from ullage.wire.document import Document
from ullage.wire.hami.admission import ignores
from ullage.wire.pod import DOMAIN, PodRequest
from ullage.wire.pod.gate import gate_of


def over_quota(cluster: Cluster) -> OverQuota:
    """Return a function: why the quotas of the cluster refuse a pod, whose containers may share cards."""

    def sentence(asked: PodRequest) -> str:
        refused = cluster.quotas.exceeded(asked.requirement, asked.claim)
        for together in asked.together if refused is not None else ():
            if cluster.quotas.exceeded(together, asked.claim) is None:
                return ""
        return "" if refused is None else f"{refused.code.value}: {reject_text(refused)}"

    return sentence


@dataclass(frozen=True, slots=True)
class _Cards:
    """The properties that cards of one inventory have."""

    pools: frozenset[str]
    models: frozenset[str]
    vendors: frozenset[str | None]
    indices: frozenset[int]
    uuids: frozenset[str]
    hard: bool
    """Whether some card may keep users to their parts."""
    sliced: bool
    """Whether some card takes slices of hardware."""
    compute_known: bool

    @classmethod
    def of(cls, cards: Sequence[Gpu]) -> Self:
        return cls(
            pools=frozenset(gpu.pool for gpu in cards if gpu.pool),
            models=frozenset(gpu.model for gpu in cards if gpu.model),
            vendors=frozenset(gpu.vendor for gpu in cards),
            indices=frozenset(gpu.index for gpu in cards),
            uuids=frozenset(gpu.uuid for gpu in cards),
            hard=any(gpu.isolations is None or Isolation.HARD in gpu.isolations for gpu in cards),
            sliced=any(gpu.partitions for gpu in cards),
            compute_known=any(gpu.compute_gflops is not None for gpu in cards),
        )


def nowhere(cluster: Cluster, declared: Collection[str] = ()) -> Callable[[PodRequest], Iterator[str]]:
    """Return a function: sentences on requests that no card meets now. Nodes may be added, so these are warnings.

    `declared` are pools that the settings name, whether they have cards or not.
    """
    of_inventory: dict[int, tuple[Sequence[Gpu], _Cards]] = {}

    def cards_of(there: Sequence[Gpu]) -> _Cards:
        if id(there) not in of_inventory:
            of_inventory.clear()
            of_inventory[id(there)] = there, _Cards.of(there)  # it is kept, so that its id stays its own
        return of_inventory[id(there)][1]

    def sentence(asked: PodRequest) -> Iterator[str]:
        if not cluster.allocator.fleet.cards:
            return
        cards, there = asked.requirement.cards, cards_of(cluster.allocator.fleet.cards)
        if cards.pool is not None and cards.pool not in there.pools:
            yield _no_pool(asked.key("gpupool"), cards.pool, there.pools, cluster.allocator.pools.union(declared))
        known: dict[str, tuple[Sequence[object], Collection[object]]] = {
            "gpu-model": (cards.models, there.models),
            "vendor": (cards.vendors, there.vendors),
            "gpu-indices": (cards.indices, there.indices),
        }
        for name, (wanted, have) in known.items():
            missing = [each for each in wanted if each not in have]
            if missing and (name == "gpu-indices" or len(missing) == len(wanted)):
                yield f"{asked.key(name)}: no card here is {', '.join(map(str, missing))}; there are: {_listed(have)}"
        yield from _of_hami(asked, there)
        yield from _of_parts(asked, there)

    return sentence


def _no_pool(key: str, pool: str, there: Collection[str], known: frozenset[str]) -> str:
    like = None if pool in known else nearest(pool, sorted(known))
    meant = "" if like is None else f"; did you mean {like}?"
    listed = f"there are: {_listed(there)}" if there else "cards of this cluster are in no pool"
    return f"{key}: no card is in pool {pool} now, and the pod waits; {listed}{meant}"


def _of_parts(asked: PodRequest, there: _Cards) -> Iterator[str]:
    """Yield why parts of cards are not kept, or not known."""
    isolation = asked.requirement.cards.isolation
    if isolation is Isolation.PARTITIONED and not there.sliced:
        yield "no card here takes slices of hardware (MIG): its device plugin registers the profiles, and the pod waits"
    elif isolation is Isolation.HARD and not there.hard:
        yield f"{asked.key('isolation')}: of no card here it is known that its driver keeps users to their parts"
    part = asked.requirement.part
    if part is not None and part.compute_gflops and not there.compute_known:
        yield (
            f"{asked.key('tflops-request')}: of no card here it is known what it computes: declare its model in "
            "[[kube.card_model]] (value cardModels), or ask for compute-percent-request"
        )


def _of_hami(asked: PodRequest, there: _Cards) -> Iterator[str]:
    """Yield the values in HAMi's annotations that match no card."""
    if asked.devices is None:
        return
    cards, keys = asked.requirement.cards, asked.devices.family.annotations
    for names, wanted in ((keys.use_uuid, cards.uuids), (keys.nouse_uuid, cards.not_uuids)):
        missing = [uuid for uuid in wanted if uuid not in there.uuids]
        if missing:
            yield f"{', '.join(names)}: no card here is {_listed(missing)}"
    words = [
        word for word in cards.model_words if not any(word.casefold() in model.casefold() for model in there.models)
    ]
    if words and len(words) == len(cards.model_words):
        yield f"{keys.use_type}: no card here is {_listed(words)}; there are: {_listed(there.models)}"


def _listed(names: Iterable[object]) -> str:
    """Return names with commas between them, and how many more there are."""
    known = sorted({str(each) for each in names if each is not None})
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"{', '.join(known[:_LISTED])}{more}" if known else "none is known"


def bound_counts(binding_filter: BindingFilter | None, cluster: Cluster) -> BoundCounts:
    """Return a function: how many cards a new pod gets by bindings on the nodes of the cluster."""

    def counts(pod: Document, asked: PodRequest) -> Sequence[int]:
        return () if binding_filter is None else binding_filter.counts(pod, asked, cluster.allocator.fleet.row_of)

    return counts


_LISTED = 20
"""Maximum number of models or indices that one warning names."""


def named_queue(namespaces: Informer[Namespace], domain: str = DOMAIN) -> Callable[[str], str]:
    """Return a function: the queue that the label of a namespace names; "" if it names none."""

    def named(name: str) -> str:
        found = namespaces.objects.get(("", name))
        return "" if found is None else (found.metadata.labels or {}).get(gate_of(domain), "")

    return named


def skips(namespaces: Informer[Namespace]) -> Callable[[str], bool]:
    """Return a function: whether the label of a namespace exempts it."""

    def skipped(name: str) -> bool:
        found = namespaces.objects.get(("", name))
        return found is not None and ignores(found.metadata.labels or {})

    return skipped
