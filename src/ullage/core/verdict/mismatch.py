"""What a request names of cards and nodes, and what there is instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ullage.model.affinity import NODE_NAME, Expression, NodeAffinity, Operator
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.taint import untolerated

T = TypeVar("T")

_MOST_SHOWN = 5
"""Names that one sentence lists of what there is."""
_MOST_WANTED = 16
"""Names, terms and conditions that one sentence lists of what is asked for."""

MISMATCHES = frozenset(
    {Code.WRONG_POOL, Code.WRONG_INDEX, Code.WRONG_UUID, Code.WRONG_MODEL, Code.WRONG_VENDOR}
    | {Code.NODE_AFFINITY, Code.NODE_TAINTED}
)
"""Codes of a request that names other cards or nodes."""


def mismatch(code: Code, gpu: Gpu, node: Node, asked: ResourceRequirement) -> Rejection:
    """Return the rejection of a card that is none of those that are named, with both sides in words."""
    match code:
        case Code.WRONG_POOL:
            wanted, found = f"pool {asked.cards.pool}", gpu.pool or "no pool"
        case Code.WRONG_INDEX:
            wanted, found = f"index {_any_of(asked.cards.indices)}", str(gpu.index)
        case Code.WRONG_UUID:
            wanted, found = _uuids(asked.cards), gpu.uuid
        case Code.WRONG_MODEL:
            wanted, found = _models(asked.cards), gpu.model or "an unknown model"
        case Code.WRONG_VENDOR:
            wanted, found = f"vendor {_any_of(asked.cards.vendors)}", gpu.vendor or "an unknown vendor"
        case _:
            return node_mismatch(code, node, asked.nodes, gpu.uuid)
    return Rejection(code, Cure.NODE_CHANGE, node=node.name, gpu=gpu.uuid, wanted=wanted, found=(found,))


def node_mismatch(code: Code, node: Node, nodes: NodeAffinity, gpu: str | None = None) -> Rejection:
    """Return the rejection of a node by its labels or its taints, of one card of it or as a whole."""
    if code is Code.NODE_TAINTED:
        taint = next(untolerated(node.taints, nodes.tolerations), "")
        wanted, found = "tolerated taints", f"{taint} on node {node.name}"
    else:
        wanted, found = _terms(nodes), _labels(nodes, node.name, node.labels)
    return Rejection(code, Cure.NODE_CHANGE, node=node.name, gpu=gpu, wanted=wanted, found=(found,))


def of_all(one: Rejection, rejections: Iterable[Rejection]) -> Rejection:
    """Return a rejection with what there is instead on all cards that were rejected for the same cause."""
    return replace(one, found=tuple(_kinds(one, rejections))) if one.wanted else one


def mismatch_text(rejections: Sequence[Rejection]) -> str:
    """Return `it asks for model H100; there are A100, L4` for the first rejection and those that have its code.

    Of taints only those of the nodes are named.
    """
    first, *_ = rejections
    kinds = list(_kinds(first, rejections))
    more = [f"{len(kinds) - _MOST_SHOWN} more"] if len(kinds) > _MOST_SHOWN else []
    shown = ", ".join(kinds[:_MOST_SHOWN] + more)
    if first.code is Code.NODE_TAINTED:
        return shown
    return f"it asks for {first.wanted}; there {'is' if len(kinds) == 1 else 'are'} {shown}"


def _kinds(one: Rejection, rejections: Iterable[Rejection]) -> dict[str, None]:
    """Return what there is instead, each once, in order."""
    return dict.fromkeys(kind for each in rejections if each.code is one.code for kind in each.found)


def _any_of(items: Sequence[T], text: Callable[[T], str] = str) -> str:
    return " or ".join(_shown(items, text))


def _shown(items: Sequence[T], text: Callable[[T], str] = str) -> list[str]:
    """Return the texts of the first items, and how many more there are."""
    more = len(items) - _MOST_WANTED
    return [*map(text, items[:_MOST_WANTED]), *([f"{more} more"] if more > 0 else [])]


def _uuids(cards: CardSelector) -> str:
    wanted = [f"uuid {_any_of(cards.uuids)}"] if cards.uuids else []
    return ", ".join([*wanted, *_shown(cards.not_uuids, "not {}".format)])


def _models(cards: CardSelector) -> str:
    wanted = [f"model {_any_of(cards.models)}"] if cards.models else []
    wanted += [f"a model like {_any_of(cards.model_words)}"] if cards.model_words else []
    return ", ".join([*wanted, *_shown(cards.not_model_words, "no model like {}".format)])


_SIGNS = {Operator.IN: "=", Operator.NOT_IN: "!=", Operator.GT: ">", Operator.LT: "<"}


def _terms(nodes: NodeAffinity) -> str:
    """Return the required terms: `zone=a|b and disk`, terms with `or` between them."""
    return _any_of(nodes.required, lambda term: " and ".join(_shown(term, _condition)))


def _condition(each: Expression) -> str:
    if each.values:
        return f"{each.key}{_SIGNS[each.operator]}{'|'.join(_shown(each.values))}"
    return f"{'no ' if each.operator is Operator.DOES_NOT_EXIST else ''}{each.key}"


def _labels(nodes: NodeAffinity, name: str, labels: Mapping[str, str]) -> str:
    """Return what a node says of the keys of the terms that are shown: `zone=c without disk on node-1`."""
    shown = (each for term in nodes.required[:_MOST_WANTED] for each in term[:_MOST_WANTED])
    keys = sorted({each.key for each in shown} - {NODE_NAME})
    has = ",".join(f"{key}={labels[key]}" for key in keys if key in labels)
    lacks = ",".join(key for key in keys if key not in labels)
    return " ".join(filter(None, (f"node {name}", f"with {has}" if has else "", f"without {lacks}" if lacks else "")))
