"""The nodeSelector, nodeAffinity and tolerations of a pod: its conditions on nodes.

podAffinity and podAntiAffinity are left to kube-scheduler, which knows all pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ullage.model.affinity import ANY_NODE, NODE_NAME, Expression, NodeAffinity, Operator, Term
from ullage.model.choice import parse_choice
from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import check_range
from ullage.wire.document import Document, mapping, mappings, sequence
from ullage.wire.pod.tolerations import tolerations_of

_AFFINITY = "spec.affinity.nodeAffinity"
_AFFINITIES = "nodeAffinity", "podAffinity", "podAntiAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_MAX_WEIGHT = 100
_MAX_CONDITIONS = 1024
"""The most conditions of one pod in all terms; each condition of its nodeSelector counts in every required term."""
_QUOTES = "texts are needed; put it in quotes"


def node_affinity(spec: Document) -> NodeAffinity:
    """Return the terms of a pod, its nodeSelector as part of each required one, and its tolerations."""
    selector = _selector(spec.get("nodeSelector"))
    affinity = mapping(mapping(spec.get("affinity"), "spec.affinity").get("nodeAffinity"), _AFFINITY)
    _check_size(spec, affinity)
    required = _required(affinity.get(_REQUIRED), f"{_AFFINITY}.{_REQUIRED}", selector)
    preferred = tuple(_preferred(affinity.get(_PREFERRED), f"{_AFFINITY}.{_PREFERRED}"))
    tolerations = tolerations_of(spec)
    return NodeAffinity(required, preferred, tolerations) if required or preferred or tolerations else ANY_NODE


def prefers_nodes(pod: Document) -> bool:
    """Return whether a pod prefers some nodes by rules that kube-scheduler scores."""
    spec = mapping(pod.get("spec"), "spec")
    affinity = mapping(spec.get("affinity"), "spec.affinity")
    kinds = (mapping(affinity.get(kind), f"spec.affinity.{kind}") for kind in _AFFINITIES)
    return bool(spec.get("topologySpreadConstraints")) or any(kind.get(_PREFERRED) for kind in kinds)


def node_selector(selector: object, path: str) -> NodeAffinity:
    """Return the terms of a node selector, such as those of volumes and devices; any node if there is none."""
    required = _required(selector, path, ())
    return NodeAffinity(required) if required else ANY_NODE


def _check_size(spec: Document, affinity: Document) -> None:
    """Refuse a pod whose terms have more conditions than each decision about it can afford."""
    path, selector = f"{_AFFINITY}.{_REQUIRED}", len(mapping(spec.get("nodeSelector"), "spec.nodeSelector"))
    required = _sizes(mapping(affinity.get(_REQUIRED), path).get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms")
    preferred = _sizes(affinity.get(_PREFERRED), f"{_AFFINITY}.{_PREFERRED}", "preference")
    for field, count in (
        ("spec.nodeSelector", selector),
        (path, sum(size + selector for size in required)),
        (f"{_AFFINITY}.{_PREFERRED}", sum(preferred)),
    ):
        if count > _MAX_CONDITIONS:
            fix = f"at most {_MAX_CONDITIONS} are read, those of nodeSelector once for each required term; use fewer"
            raise invalid(field, f"{count} conditions", fix)


def _sizes(terms: object, path: str, inside: str = "") -> list[int]:
    """Return the number of conditions of each term, at least 1; the term may be `inside` of the entries of a list."""
    found = []
    for here, entry in mappings(terms, path):
        term = mapping(entry.get(inside), f"{here}.{inside}") if inside else entry
        parts = (sequence(term.get(name), f"{here}.{name}") for name in ("matchExpressions", "matchFields"))
        found.append(max(1, sum(map(len, parts))))
    return found


def _selector(labels: object) -> Term:
    path = "spec.nodeSelector"
    found = mapping(labels, path)
    for key, value in found.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise invalid(f"{path}.{key}", value, _QUOTES)
        _check_label(key, f"{path}.{key}")
    return tuple(Expression(key, Operator.IN, (found[key],)) for key in sorted(found))


def _required(selector: object, path: str, also: Term) -> tuple[Term, ...]:
    """Return the terms with `also` in each; an empty term matches nothing, and stays empty."""
    if selector is None:
        return (also,) if also else ()
    listed = mapping(selector, path).get("nodeSelectorTerms")
    terms = tuple(_term(term, here) for here, term in mappings(listed, f"{path}.nodeSelectorTerms"))
    if not terms:
        fix = "at least one term is needed; leave the whole out to require nothing"
        raise invalid(f"{path}.nodeSelectorTerms", listed, fix)
    return tuple((*term, *also) if term else () for term in terms)


def _preferred(listed: object, path: str) -> Iterator[tuple[int, Term]]:
    for here, entry in mappings(listed, path):
        weight: Any = entry.get("weight")
        check_range(f"{here}.weight", weight, 1, _MAX_WEIGHT)
        term = _term(mapping(entry.get("preference"), f"{here}.preference"), f"{here}.preference")
        if term:
            yield weight, term


def _term(term: Document, path: str) -> Term:
    labels = mappings(term.get("matchExpressions"), f"{path}.matchExpressions")
    fields = mappings(term.get("matchFields"), f"{path}.matchFields")
    return (*(_label(one, here) for here, one in labels), *(_field(one, here) for here, one in fields))


def _label(condition: Document, path: str) -> Expression:
    _check_label(condition.get("key"), f"{path}.key")
    return _expression(condition, path)


def _check_label(key: object, path: str) -> None:
    """Refuse a label whose name would be taken for the field."""
    if key == NODE_NAME:
        raise invalid(path, key, "the name of a node is not a label; put it under matchFields")


def _field(condition: Document, path: str) -> Expression:
    if condition.get("key") != NODE_NAME:
        raise invalid(f"{path}.key", condition.get("key"), f"{NODE_NAME} is the only field that can be compared")
    found = _expression(condition, path)
    if found.operator not in (Operator.IN, Operator.NOT_IN) or len(found.values) != 1:
        raise invalid(path, dict(condition), f"compare a field by {Operator.IN} or {Operator.NOT_IN}, with one value")
    return found


def _expression(condition: Document, path: str) -> Expression:
    key, operator = condition.get("key"), condition.get("operator")
    if not isinstance(key, str) or not key:
        raise invalid(f"{path}.key", key, "the name of a label is needed")
    known = parse_choice(Operator, operator, f"{path}.operator")
    values = sequence(condition.get("values"), f"{path}.values")
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise invalid(f"{path}.values[{position}]", value, _QUOTES)
    try:
        return Expression(key, known, tuple(values))
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error.message}", field=path) from None
