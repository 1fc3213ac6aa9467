"""The room of each card for an application, and the reason if no node has enough."""

from __future__ import annotations

from collections import Counter

from ullage.binding.placement import fit, place, roomy
from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.compute import AvailabilityScope, ComputeCard, ComputeNode, ComputeRequirement
from ullage.model.compute_result import Availability, ComputeCardRoom, NodeRoom, NodeStatus, NoRoom

_TOO_LITTLE = {
    AvailabilityScope.CARD: NoRoom.NO_CARD,
    AvailabilityScope.CARDS: NoRoom.NO_NODE_WITH_CARDS,
    AvailabilityScope.NODES: NoRoom.NO_CLUSTER,
}


def availability(view: BindingView, asked: ComputeRequirement, *, install: bool = False) -> Availability:
    """Return the room of every node for an application. It is schedulable exactly if automatic placement succeeds."""
    unpressed = roomy(view, asked, install=install)
    names = {node.name for node in unpressed}
    nodes = tuple(_node_room(view, node, asked, pressed=name not in names) for name, node in view.by_name.items())
    reason = None if place(view, asked, unpressed) is not None else _why(view, asked)
    return Availability(asked, nodes, reason)


def _why(view: BindingView, asked: ComputeRequirement) -> NoRoom:
    matching = view.of_type(asked.accelerator)
    if not matching:
        return NoRoom.NO_NODE
    cards = [card for node in matching for card in node.cards if card.accelerator == asked.accelerator]
    if not any(map(view.usable, cards)) or place(view, asked, matching) is not None:
        return NoRoom.NOT_AVAILABLE
    return _TOO_LITTLE[asked.scope]


def _node_room(view: BindingView, node: ComputeNode, asked: ComputeRequirement, *, pressed: bool) -> NodeRoom:
    cards = tuple(_card_room(view, card, asked) for card in sorted(node.cards, key=lambda card: card.id))
    matches = asked.accelerator in node.accelerators
    accelerator = asked.accelerator if matches else next(iter(node.accelerators), "")
    return NodeRoom(node.name, accelerator, _status(view, cards, asked, pressed=pressed), cards)


def _card_room(view: BindingView, card: ComputeCard, asked: ComputeRequirement) -> ComputeCardRoom:
    free = view.free_bytes(card)
    operable = view.usable(card) and card.accelerator == asked.accelerator and free > 0
    return ComputeCardRoom(card, free, operable, fit=fit(view, card, asked), bound=view.on(card))


def _status(
    view: BindingView, rooms: tuple[ComputeCardRoom, ...], asked: ComputeRequirement, *, pressed: bool
) -> NodeStatus:
    if not any(room.card.accelerator == asked.accelerator and view.usable(room.card) for room in rooms):
        return NodeStatus.NOT_AVAILABLE
    operable: Counter[ShareMode] = Counter()  # a pod takes only cards of one share mode
    for room in rooms:
        if room.operable:
            operable[room.card.share] += room.available
    enough = {
        AvailabilityScope.CARD: any(room.fit for room in rooms),
        AvailabilityScope.CARDS: bool(operable) and max(operable.values()) >= asked.gpu_bytes,
        AvailabilityScope.NODES: bool(operable),
    }[asked.scope]
    return NodeStatus.AVAILABLE if enough and not pressed else NodeStatus.NOT_ENOUGH
