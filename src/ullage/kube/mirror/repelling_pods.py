"""Pods on nodes whose required anti-affinity keeps other pods off their topology domains.

kube-scheduler's plugin InterPodAffinity counts each pod that has a node and has not finished. A terminating pod counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ullage.kube.client.informer import Added, Changed, Delta, Removed
from ullage.kube.client.objects import KubeNode, Pod
from ullage.kube.context import KubeContext
from ullage.model.claim import Claim
from ullage.model.error import InvalidRequest
from ullage.wire.pod.anti_affinity import ANTI_AFFINITY, REQUIRED, RepellingTerm, required_anti_affinity

_HOSTNAME = "kubernetes.io/hostname"
"""The label that no two nodes share."""

_WORDS = ANTI_AFFINITY.encode(), REQUIRED.encode()
_NOWHERE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Repelling:
    """A pod with terms, and its node."""

    node: str
    terms: frozenset[RepellingTerm]


class RepellingPods:
    """The terms of all such pods, which are read once: those of a pod with a node never change.

    A term that cannot be read is reported, and matches every pod in its namespaces. A pod on a node that is not
    followed has an unknown domain: it keeps pods off all nodes with the label of its domain, unless that is the label
    of host names.
    """

    def __init__(self, context: KubeContext) -> None:
        self._nodes, self._namespaces = context.followed.nodes, context.followed.namespaces
        self._on_error = context.on_error
        self._pods: dict[str, _Repelling] = {}
        """By uid."""
        self._nodes_of: dict[RepellingTerm, Counter[str]] = {}
        """How many pods on each node have the term."""
        self._within: defaultdict[str, set[RepellingTerm]] = defaultdict(set)
        """The terms that name a namespace, by namespace."""
        self._selecting: set[RepellingTerm] = set()
        """The terms that select namespaces."""
        self._domains: dict[RepellingTerm, frozenset[str]] = {}
        """The nodes of each term, where they are known since the last change of a label or of a pod of the term."""
        self._labelled: dict[str, dict[str, set[str]]] = {}
        """The nodes by key and value of a label, where they are known since the last change of a label."""
        self._nodes.subscribe(self._on_node)
        context.followed.pods.subscribe(self._on_pod)

    def __bool__(self) -> bool:
        """Return whether any pod keeps others off a domain."""
        return bool(self._nodes_of)

    def nodes_for(self, claim: Claim) -> frozenset[str]:
        """Return the names of the nodes where a new pod may not go because of pods that are there."""
        if not self._nodes_of:
            return _NOWHERE
        return _NOWHERE.union(*map(self._domain, self._matching(claim)))

    def _matching(self, claim: Claim) -> Iterator[RepellingTerm]:
        known = self._namespaces.objects.get(("", claim.namespace))
        namespace_labels = None if known is None else known.metadata.labels or {}
        for terms in (self._within.get(claim.namespace, ()), self._selecting):
            for term in terms:
                if term.matches(claim.namespace, namespace_labels, claim.labels):
                    yield term

    def _domain(self, term: RepellingTerm) -> frozenset[str]:
        """Return all nodes in the domains of the pods that have a term."""
        if term not in self._domains:
            self._domains[term] = frozenset(self._find_domain(term))
        return self._domains[term]

    def _find_domain(self, term: RepellingTerm) -> set[str]:
        key = term.topology_key
        if not key:
            return {node for _, node in self._nodes.objects}
        by_value, values = self._nodes_with(key), set[str]()
        for name in self._nodes_of[term]:
            node = self._nodes.objects.get(("", name))
            if node is not None:
                value = (node.metadata.labels or {}).get(key)
                values.update(() if value is None else (value,))
            elif key != _HOSTNAME:
                values.update(by_value)
        return set[str]().union(*(by_value.get(value, ()) for value in values))

    def _nodes_with(self, key: str) -> dict[str, set[str]]:
        """Return the nodes that have a label, by its value."""
        found = self._labelled.get(key)
        if found is None:
            found = self._labelled[key] = {}
            for (_, name), node in self._nodes.objects.items():
                value = (node.metadata.labels or {}).get(key)
                if value is not None:
                    found.setdefault(value, set()).add(name)
        return found

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        if isinstance(delta, Changed) and (delta.old.metadata.labels or {}) == (delta.new.metadata.labels or {}):
            return
        self._domains.clear()
        self._labelled.clear()

    def _on_pod(self, delta: Delta[Pod]) -> None:
        if isinstance(delta, Removed):
            self._leave(delta.last.metadata.uid)
            return
        node = _node_of(delta.new)
        if isinstance(delta, Added) or _node_of(delta.old) != node:
            self._leave(delta.new.metadata.uid)
            if node and all(word in delta.new.raw for word in _WORDS):
                self._enter(delta.new, node)

    def _enter(self, pod: Pod, node: str) -> None:
        found = required_anti_affinity(pod.document)
        for error in found.errors:
            message = f"{error.message}; until it can be read, it keeps every pod of its namespaces off its domain"
            self._on_error("Pod", "/".join(pod.key), InvalidRequest(message, field=error.field))
        if found.terms:
            self._pods[pod.metadata.uid] = _Repelling(node, found.terms)
        for term in found.terms:
            if term not in self._nodes_of:
                self._list(term)
            self._nodes_of.setdefault(term, Counter())[node] += 1
            self._domains.pop(term, None)

    def _leave(self, uid: str) -> None:
        left = self._pods.pop(uid, None)
        if left is None:
            return
        for term in left.terms:
            nodes = self._nodes_of[term]
            nodes[left.node] -= 1
            if not nodes[left.node]:
                del nodes[left.node]
            if not nodes:
                del self._nodes_of[term]
                self._unlist(term)
            self._domains.pop(term, None)

    def _list(self, term: RepellingTerm) -> None:
        if term.namespace_labels is not None:
            self._selecting.add(term)
        else:
            for namespace in term.namespaces:
                self._within[namespace].add(term)

    def _unlist(self, term: RepellingTerm) -> None:
        self._selecting.discard(term)
        for namespace in term.namespaces if term.namespace_labels is None else ():
            self._within[namespace].remove(term)
            if not self._within[namespace]:
                del self._within[namespace]


def _node_of(pod: Pod) -> str:
    """Return the node on which a pod counts; "" for none."""
    return "" if pod.finished else pod.spec.node_name
