"""Warnings of an answer: no machine can align the request, or a prediction of a kubelet is weaker than usual."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import reject
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.verdict.sentences import reject_text
from ullage.core.verdict.zone_remedy import nearest_changes
from ullage.model.node import NodeState
from ullage.model.request import ResourceRequirement


def width_trap(fleet: Fleet, policy: Policy, asked: ResourceRequirement) -> str | None:
    """That zones keep a request off every node, even an empty one that is in service, and what of it to change.

    None where some node could take it, or where zones are not what is in the way.
    """
    strict = asked.alignment.required
    if not (strict or fleet.board.aligns) or not fleet.nodes or _fits(fleet.emptied(), policy, asked):
        return None
    nodes = [replace(node, cordoned=False, state=NodeState.READY) for node in fleet.nodes]
    empty = fleet.rebuilt(nodes)
    refusals = [refusal for refusal in reject(empty, asked) if refusal.of_zones]
    if not refusals or _fits(empty, policy, asked):
        return None
    nearest = min(refusals, key=lambda refusal: not refusal.zones)
    change = next((each for each in nearest_changes(empty, asked) if _fits(empty, policy, each)), None)
    warning = f"no node here can align {asked}, even an empty one: {nearest.node}: {reject_text(nearest)}"
    return warning if change is None else f"{warning}; {change} would pass"


def weaker_predictions(fleet: Fleet, names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each of these nodes whose kubelet has something on that predictions do not follow."""
    nodes = (fleet.nodes[fleet.row_of[name]] for name in names if name in fleet.row_of)
    return tuple(
        f"the prediction is weaker on node {node.name}: its kubelet has {', '.join(kubelet.unmodelled)} on"
        for node in nodes
        if node.topology is not None and (kubelet := node.topology.kubelet) is not None and kubelet.unmodelled
    )


def _fits(fleet: Fleet, policy: Policy, asked: ResourceRequirement) -> bool:
    return bool(Placer(fleet, policy).room(asked).any())
