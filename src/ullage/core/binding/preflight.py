"""Whether demands could be installed one after the other, each finding what those before it left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.core.binding.placement import Picks, place
from ullage.core.binding.pressure import asked, of_quota, overall, pressure
from ullage.core.binding.rows import rows_of
from ullage.core.binding.view import View
from ullage.model.compute import ComputeNode, Room
from ullage.model.compute_answer import Demand, Dimension, Preflight, Shortage


def preflight(view: View, demands: Iterable[Demand]) -> Preflight:
    """The first demand that finds no room, and what is short; or what each would get."""
    placed: list[tuple[str, Picks]] = []
    for demand in demands:
        found = _place(view.without(demand.app), demand)
        if isinstance(found, Preflight):
            return found
        nodes, picks = found
        added = demand.requirement.room(install=True)
        view = view.without(demand.app).with_use(nodes, added)
        view = view.with_rows(rows_of(view, demand.app, demand.requirement, picks))
        used = view.owner_use.get(demand.app.owner, Room()) + added
        view = replace(view, owner_use={**view.owner_use, demand.app.owner: used})
        placed.append((demand.id, picks))
    return Preflight(picks=tuple(placed))


def _place(view: View, demand: Demand) -> tuple[set[str], Picks] | Preflight:
    """The nodes and cards of one demand, or what it lacks: what is short everywhere comes first."""
    added = demand.requirement.room(install=True)
    ready = [node for node in _matching(view, demand) if node.ready]
    candidate = _on(view, demand, ready)
    if candidate is None:
        return Preflight(demand.id, Shortage.CLUSTER_CAPACITY if ready else Shortage.UNSCHEDULABLE)
    lent = of_quota(view.quotas.get(demand.app.owner, Room()), view.owner_use.get(demand.app.owner, Room()), added)
    if _pressured(lent):
        return Preflight(demand.id, Shortage.OWNER_QUOTA, lent)
    together = overall((node for node in view.nodes if node.ready), added)
    if _pressured(together):
        return Preflight(demand.id, Shortage.CLUSTER_PRESSURE, together)
    return _on_nodes(view, demand, ready, candidate)


def _on_nodes(
    view: View, demand: Demand, ready: list[ComputeNode], candidate: tuple[set[str], Picks]
) -> tuple[set[str], Picks] | Preflight:
    """The same where cards would do: what single nodes lack."""
    added = demand.requirement.room(install=True)
    unpressed = [node for node in ready if not pressure(node, added).pressured]
    likely = _on(view, demand, unpressed)
    if likely is None:
        return Preflight(demand.id, Shortage.NODE_PRESSURE, pressure(_first(view, candidate), added).dimensions)
    found = _on(view, demand, [node for node in unpressed if not _pressured(asked(node, added))])
    return found or Preflight(demand.id, Shortage.K8S_REQUEST, asked(_first(view, likely), added))


def _matching(view: View, demand: Demand) -> Iterable[ComputeNode]:
    """The nodes of the type; without cards all of them."""
    requirement = demand.requirement
    return view.of_type(requirement.accelerator) if requirement.needs_card else view.by_name.values()


def _on(view: View, demand: Demand, nodes: list[ComputeNode]) -> tuple[set[str], Picks] | None:
    """Where a demand would go of these nodes; without cards to the one with the most memory left."""
    if demand.requirement.needs_card:
        picks = place(view, demand.requirement, nodes)
        return None if picks is None else ({pick.node for pick in picks}, picks)
    best = min(nodes, key=lambda node: (node.used.memory_bytes - node.capacity.memory_bytes, node.name), default=None)
    return None if best is None else ({best.name}, ())


def _first(view: View, found: tuple[set[str], Picks]) -> ComputeNode:
    return view.by_name[min(found[0])]


def _pressured(dimensions: tuple[Dimension, ...]) -> bool:
    return any(each.pressured for each in dimensions)
