"""Known annotations and resources of a pod that have no effect on it.

Annotations have none on a pod of another dialect, or without cards; resources have none where another one of the
container overrides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ullage.wire.dialect import REQUEST_ANNOTATIONS, TENSOR_FUSION, PodSettings
from ullage.wire.document import Document, mapping, section, text
from ullage.wire.kubernetes_quantity import is_nothing
from ullage.wire.pod.card_topology import TOPOLOGY_KEYS
from ullage.wire.pod.containers import containers_of
from ullage.wire.pod.request import Dialect, PodRequest
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.shipped import by_resource

_OF_CARDS = (
    *("partition-id", "eviction-protection", *TOPOLOGY_KEYS),
    *(name for name in REQUEST_ANNOTATIONS if name.startswith("gang-")),
)
"""Annotations that mean nothing on a pod without cards, and request none."""

_OF_FAMILIES = (Dialect.PLAIN, Dialect.HAMI)
"""Dialects of pods that may have annotations of families."""

_NOT_WITH_HAMI = ("partition-id",)
"""Annotations that are not read on a pod with a request in HAMi's dialect."""


def ineffective_annotations(pod: Document, asked: PodRequest | None, settings: PodSettings) -> Iterator[str]:
    """Yield a sentence per known annotation that is not read on this pod; `asked` is its request, None for no cards."""
    there = section(pod, "metadata", "annotations")
    if not there:
        return
    claims = bool(section(pod, "spec").get("resourceClaims"))
    of_claims = {f"{settings.domain}/{name}" for name in TOPOLOGY_KEYS} if claims else set()
    for key, why in {**_of_hami(there, asked, settings), **_of_domains(asked, settings.domain)}.items():
        if key in there and key not in of_claims:
            yield f"metadata.annotations.{key} has no effect: {why}"


def _of_hami(there: Document, asked: PodRequest | None, settings: PodSettings) -> dict[str, str]:
    """Return why annotations of families have no effect, of those that are `there`."""
    by_family = () if asked is None else asked.by_family
    known = {key for each in by_family for key in _annotation_keys(each)}
    unread = {
        key: f"it is not read for cards of {each.family}"
        for each in by_family
        if each.devices is not None
        for key in each.devices.family.annotations.unread
    }
    others = {} if asked is not None and asked.dialect not in _OF_FAMILIES else settings.families_by_annotation
    left = {key: _why_unread(others[key], by_family) for key in there if key in others and key not in known}
    return left | {key: why for key, why in unread.items() if key in there}


def _why_unread(families: Sequence[Family], by_family: Sequence[PodRequest]) -> str:
    """Return why an annotation of these families has no effect on a pod that requests cards of others, or none."""
    if not by_family:
        return "the pod requests no cards"
    *_, last = families
    return f"it is for cards of {last.name}, the pod requests those of {_vendors(by_family)}"


def _annotation_keys(asked: PodRequest) -> tuple[str, ...]:
    """Return the annotations that are read for the cards of one family."""
    if asked.dialect is not Dialect.HAMI or asked.devices is None:
        return ()
    return asked.devices.family.annotation_keys()


def _of_domains(asked: PodRequest | None, domain: str) -> dict[str, str]:
    domains = dict.fromkeys((domain, TENSOR_FUSION))
    if asked is None:
        return {f"{each}/{name}": "the pod requests no cards" for each in domains for name in _OF_CARDS}
    found = {
        f"{each}/{name}": f"the pod is read by the annotations of {asked.domain}; write {asked.key(name)}"
        for each in domains
        if each != asked.domain
        for name in REQUEST_ANNOTATIONS
    }
    if asked.dialect is Dialect.HAMI:
        why = "the pod requests HAMi's resources, which name no partition"
        found |= {asked.key(name): why for name in _NOT_WITH_HAMI}
    return found


def _vendors(by_family: Iterable[PodRequest]) -> str:
    return ", ".join(each.family for each in by_family) or "another vendor"


def ineffective_resources(pod: Document, families: tuple[Family, ...], split: Iterable[str] = ()) -> Iterator[str]:
    """Yield a sentence per resource that another one of its container overrides, and per unknown container of `split`.

    `split` are the containers between which cards are to be split, by name.
    """
    spec = section(pod, "spec")
    there = list(containers_of(spec))
    names = {text(container.get("name")) for _, _, container in there}
    for name in sorted(set(split) - names):
        yield f"container-gpu-count: no container of the pod is called {name}; its cards go to no container"
    by_name = by_resource(families)
    for _, path, container in there:
        resources = mapping(container.get("resources"), f"{path}.resources")
        amounts: dict[str, object] = {}
        for kind in ("requests", "limits"):  # limits count before requests
            amounts |= mapping(resources.get(kind), f"{path}.resources.{kind}")
        for family in dict.fromkeys(by_name[name] for name in amounts if name in by_name):
            yield from _amounts(family, f"{path}.resources", amounts)


def _amounts(family: Family, path: str, amounts: Document) -> Iterator[str]:
    """Yield a sentence per amount of one container that has no effect."""
    own = family.resources
    count, share = own.count, own.percent
    asked = [name for name in family.amounts if not is_nothing(amounts.get(name))]
    by_cores = family.cores.over_cards and own.cores in asked
    if count in amounts and is_nothing(amounts[count]):
        for name in asked:
            yield f"{path}: {name} has no effect, the container requests 0 {count}: request 1, or leave both out"
    elif count not in amounts and not family.count.default and not by_cores:
        for name in asked:
            yield f"{path}: {name} has no effect, the container requests no {count}: request 1"
    elif own.memory in asked and share in asked:
        yield f"{path}: {share} has no effect where {own.memory} states the memory; keep one of the two"
    elif count in amounts and by_cores:
        yield f"{path}: {own.cores} has no effect where {count} states the cards; keep one of the two"
