"""The preferences of a HAMi pod for nodes and cards, as one of our strategies and conditions."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.alignment import LinkDemand
from ullage.model.error import InvalidRequest
from ullage.model.quantity import MAX_INT32, parse_count
from ullage.wire.document import Document
from ullage.wire.pod.keys import Keys
from ullage.wire.vendors.family import ANNOTATIONS, Family

STRATEGIES = {
    ("binpack", "binpack"): "compact-first",
    ("binpack", "spread"): "node-compact-gpu-low-load",
    ("spread", "spread"): "low-load-first",
    ("spread", "binpack"): "node-low-load-gpu-compact",
}
"""Strategies by the policies for nodes and for cards."""

_SORTING = ("binpack", "spread")
_OTHERS = ("mutex", "topology-aware", "numa")
_WEIGHTS = ("slot", "core", "memory")


@dataclass(frozen=True, slots=True)
class Policies:
    """`strategy` is None where the pod states none.

    `alone`: on cards without other users; `near`: in one zone; `links`: of the links between its cards.
    """

    strategy: str | None = None
    alone: bool = False
    near: bool = False
    links: LinkDemand | None = None
    warnings: tuple[str, ...] = ()


def policies_of(pod: Document, family: Family) -> Policies:
    """Return the policies of a pod."""
    keys = Keys(pod, ANNOTATIONS)
    node = keys.text("node-scheduler-policy")
    if node is not None and node not in _SORTING:
        raise keys.invalid("node-scheduler-policy", f"choose one of {', '.join(_SORTING)}")
    chain = _chain(keys)
    sorting = [name for name in chain if name in _SORTING]
    strategy = None
    if node is not None or sorting:
        strategy = STRATEGIES[node or family.node_policy, next(iter(sorting), family.card_policy)]
    connected = "topology-aware" in chain or (family.connected and not chain)
    links = LinkDemand.BEST if connected else None
    return Policies(strategy, "mutex" in chain, "numa" in chain, links, warnings=_weights(keys))


def _chain(keys: Keys) -> tuple[str, ...]:
    written = keys.text("gpu-scheduler-policy") or ""
    chain = tuple(name.strip() for name in written.split(",") if name.strip())
    if not {*_SORTING, *_OTHERS}.issuperset(chain):
        raise keys.invalid("gpu-scheduler-policy", f"choose among {', '.join((*_SORTING, *_OTHERS))}")
    return chain


def _weights(keys: Keys) -> tuple[str, ...]:
    """Return a warning that weights have no effect: strategies have their own. Unreadable weights are still refused."""
    written = keys.text("device-scoring-weights")
    if written is None:
        return ()
    pairs = [entry.partition("=")[::2] for entry in written.split(",")]
    found = {name.strip(): value.strip() for name, value in pairs}
    try:
        weights = [parse_count(value, name, MAX_INT32) for name, value in found.items()]
    except InvalidRequest:
        weights = []
    if set(found) != set(_WEIGHTS) or len(pairs) != len(_WEIGHTS) or not any(weights):
        raise keys.invalid("device-scoring-weights", "write all three, such as slot=1,core=1,memory=3, not all 0")
    return (f"{keys.key('device-scoring-weights')}: the weights of the pool apply; its operator can change them",)
