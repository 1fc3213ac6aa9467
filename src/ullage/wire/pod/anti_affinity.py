"""The required anti-affinity of a pod on a node: which other pods it keeps out of its topology domains.

The rule is that of kube-scheduler's plugin InterPodAffinity for the anti-affinity of existing pods (Kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ullage.model.affinity import Term
from ullage.model.error import InvalidRequest
from ullage.wire.document import Document, mappings, named, section, sequence
from ullage.wire.selector import read_selector

ANTI_AFFINITY = "podAntiAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_PATH = f"spec.affinity.{ANTI_AFFINITY}.{REQUIRED}"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RepellingTerm:
    """Keeps pods with these labels off all nodes whose label `topology_key` has the value of the pod's own node.

    `labels` are conditions on the labels of the other pod; none: every pod. Its namespace is one of `namespaces`, or
    one whose labels hold `namespace_labels` (none: every namespace; None: no further namespace). With the
    `topology_key` "" the term could not be read, and keeps pods off every node.
    """

    topology_key: str
    labels: Term
    namespaces: frozenset[str]
    namespace_labels: Term | None = None

    def matches(self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
        """Return whether it is about a pod with these labels in this namespace.

        A namespace whose labels are not known (None) is one of those that the term selects. kube-scheduler takes it for
        one without labels; but there may be labels.
        """
        if namespace not in self.namespaces:
            selector = self.namespace_labels
            if selector is None:
                return False
            if namespace_labels is not None and not _hold(selector, namespace_labels):
                return False
        return _hold(self.labels, labels)


EVERYTHING = RepellingTerm("", (), frozenset(), ())
"""What stands for a term of which nothing can be read."""


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """The terms of a pod, and why a part of them could not be read: that part then holds for everything."""

    terms: frozenset[RepellingTerm]
    errors: tuple[InvalidRequest, ...] = ()


def required_anti_affinity(pod: Document) -> AntiAffinity:
    """Return the required terms of a pod, without those that match no pod.

    A term without a labelSelector matches no pod, one with an empty labelSelector matches all. Without `namespaces`
    and namespaceSelector it is about the namespace of the pod itself. The API server has merged `matchLabelKeys` and
    `mismatchLabelKeys` into the labelSelector when it created the pod, so they are not read here.
    """
    errors: list[InvalidRequest] = []
    own = str(section(pod, "metadata").get("namespace") or "")
    try:
        listed = list(mappings(section(pod, "spec", "affinity", ANTI_AFFINITY).get(REQUIRED), _PATH))
    except InvalidRequest as error:
        return AntiAffinity(frozenset({EVERYTHING}), (error,))
    found = (_term(term, path, own, errors) for path, term in listed)
    return AntiAffinity(frozenset(each for each in found if each is not None), tuple(errors))


def _term(term: Document, path: str, own: str, errors: list[InvalidRequest]) -> RepellingTerm | None:
    def read(name: str, how: Callable[[object, str], T], otherwise: T) -> T:
        try:
            return how(term.get(name), f"{path}.{name}")
        except InvalidRequest as error:
            errors.append(error)
            return otherwise

    everything: Term | None = ()
    labels = read("labelSelector", read_selector, everything)
    if labels is None:
        return None
    names = read("namespaces", _names, None)
    selector = read("namespaceSelector", read_selector, everything)
    if names is None:
        names, selector = frozenset(), everything
    elif not names and selector is None:
        names = frozenset({own})
    return RepellingTerm(read("topologyKey", named, ""), labels, names, selector)


def _names(value: object, path: str) -> frozenset[str] | None:
    return frozenset(named(each, f"{path}[{position}]") for position, each in enumerate(sequence(value, path)))


def _hold(conditions: Term, labels: Mapping[str, str]) -> bool:
    return all(condition.holds(None, labels) for condition in conditions)
