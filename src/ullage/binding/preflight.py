"""A check whether several applications could be installed one after another, each in the room that is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.binding.limits import overall, overcommitted, pressure, requested, too_full
from ullage.binding.placement import Picks, place_in_quotas
from ullage.binding.quotas import quota_uses
from ullage.binding.rows import rows_of
from ullage.binding.view import BindingView
from ullage.model.compute import ComputeNode, HostRoom
from ullage.model.compute_result import AppDemand, Dimension, Preflight, Shortage

Found = tuple[set[str], Picks]
"""Nodes and cards of a demand."""


def preflight(view: BindingView, demands: Iterable[AppDemand]) -> Preflight:
    """Return the first demand that does not fit, with the shortage; or the cards of each demand."""
    placed: list[tuple[str, Picks]] = []
    for demand in demands:
        view = view.without(demand.app)
        found = _place(view, demand)
        if isinstance(found, Preflight):
            return found
        nodes, picks = found
        added = demand.requirement.room(install=True)
        used = view.owner_use.get(demand.app.owner, HostRoom()) + added
        view = view.with_use(nodes, added).with_rows(rows_of(view, demand.app, demand.requirement, picks))
        view = replace(view, owner_use={**view.owner_use, demand.app.owner: used})
        placed.append((demand.id, picks))
    return Preflight(picks=tuple(placed))


def _place(view: BindingView, demand: AppDemand) -> Found | Preflight:
    requirement = demand.requirement
    added = requirement.room(install=True)
    together = overall((node for node in view.every() if node.ready), added)
    matching = view.of_type(requirement.accelerator) if requirement.needs_card else view.every()
    ready = [node for node in matching if node.ready]
    roomy = [node for node in ready if not too_full(node, added)]
    found = _on(view, demand, [node for node in roomy if not overcommitted(node, added)])
    anywhere = found or _on(view, demand, ready)
    if anywhere is None:
        return Preflight(demand.id, Shortage.CLUSTER_CAPACITY if ready else Shortage.UNSCHEDULABLE)
    _, picks = anywhere
    uses = quota_uses(view, demand.app, added, rows_of(view, demand.app, requirement, picks))
    over = next((each for each in uses if each.pressured), None)
    if over is not None:
        dimensions = tuple(each.dimension for each in uses if each.scope == over.scope)
        return Preflight(demand.id, Shortage.OWNER_QUOTA, dimensions, quota=over)
    if _pressured(together):
        return Preflight(demand.id, Shortage.CLUSTER_PRESSURE, together)
    if found is not None:
        return found
    if (there := _on(view, demand, roomy)) is None:
        return Preflight(demand.id, Shortage.NODE_PRESSURE, pressure(_first(view, anywhere), added).dimensions)
    return Preflight(demand.id, Shortage.K8S_REQUEST, requested(_first(view, there), added))


def _on(view: BindingView, demand: AppDemand, nodes: list[ComputeNode]) -> Found | None:
    """Return the nodes and cards of a demand among these nodes; without cards, the node with the most free memory."""
    if demand.requirement.needs_card:
        picks = place_in_quotas(view, demand.app, demand.requirement, nodes)
        return None if picks is None else ({pick.node for pick in picks}, picks)
    best = min(nodes, key=lambda node: (node.used.memory_bytes - node.capacity.memory_bytes, node.name), default=None)
    return None if best is None else ({best.name}, ())


def _first(view: BindingView, found: Found) -> ComputeNode:
    nodes, _ = found
    return view.node(min(nodes))


def _pressured(dimensions: tuple[Dimension, ...]) -> bool:
    return any(each.pressured for each in dimensions)
