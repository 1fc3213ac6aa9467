"""What becomes of the ledger when machines and cards change: nobody is evicted, and nothing held is forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ullage.core.fleet import Fleet
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.gpu import Gpu
from ullage.model.node import Node

_NO_INDEX = -1
"""Of a card that nobody ever reported."""


def remembering(fleet: Fleet, allocation: Allocation) -> Allocation:
    """The allocation with what is known of its cards; that of an executor does not outlive a restart."""
    if allocation.of_session:
        return allocation
    cards = tuple(gpu for gpu in fleet.last_known(allocation) if gpu is not None)
    return allocation if cards == allocation.cards else replace(allocation, cards=cards)


def followed(fleet: Fleet, nodes: tuple[Node, ...]) -> tuple[list[Node], list[Allocation]]:
    """New inventory with the cards that are held and gone, and the ledger on the nodes where its cards are now.

    What lay in zones of one machine lies in none that are known of another. What is foreign stays with its node.
    """
    home = {gpu.uuid: node.name for node in nodes for gpu in node.gpus}
    missing: dict[str, list[Gpu]] = {node.name: [] for node in nodes}
    placed = set(home)
    ledger = []
    for held in _still_there(fleet, home, missing.keys()):
        node = next((home[uuid] for uuid in held.gpus if uuid in home), held.node)
        ledger.append(held if node == held.node else replace(held, node=node, placement=None))
        for uuid, known in zip(held.gpus, fleet.last_known(held), strict=True):
            if uuid not in placed and node in missing:  # of several holders on different nodes the first has it
                placed.add(uuid)
                missing[node].append(replace(known or Gpu(uuid, _NO_INDEX), healthy=False))
    return [replace(node, gpus=(*node.gpus, *missing[node.name])) for node in nodes], ledger


def with_missing(fleet: Fleet, found: Iterable[Allocation]) -> list[Node]:
    """The machines with the cards that these hold on them and nobody reports: as those that vanished while held."""
    missing: dict[str, list[Gpu]] = {}
    placed: set[str] = set()
    for held in found:
        for uuid in held.gpus if held.node in fleet.row_of else ():
            if uuid not in fleet.card_of and uuid not in placed:
                placed.add(uuid)
                missing.setdefault(held.node, []).append(Gpu(uuid, _NO_INDEX, healthy=False))
    return [replace(node, gpus=(*node.gpus, *missing.get(node.name, ()))) for node in fleet.nodes] if missing else []


def _still_there(fleet: Fleet, home: Mapping[str, str], nodes: Collection[str]) -> Iterator[Allocation]:
    """The ledger by id; of what is foreign only what lies on a node that there is, and did not move to another."""
    for _, held in sorted(fleet.ledger.items()):
        if held.state is not AllocationState.FOREIGN:
            yield held
        elif held.node in nodes:
            yield replace(held, gpus=tuple(uuid for uuid in held.gpus if home.get(uuid, held.node) == held.node))
