"""The states of cards, nodes and applications: whether they are in use, and whether they drain."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from ullage.binding.view import BindingView
from ullage.model.binding import BindingState
from ullage.model.compute import AppKey, BoundCard, ComputeCard, ComputeNode


class BindingCardState(StrEnum):
    """The state of a card. One that drains takes no new work, or none of its mode, while pods on it still run."""

    FREE = "free"
    BOUND = "bound"
    DRAINING = "draining"
    CORDONED = "cordoned"
    UNHEALTHY = "unhealthy"


class BindingNodeState(StrEnum):
    """The state of a node. One that drains is cordoned, and pods still hold cards of it."""

    READY = "ready"
    DRAINING = "draining"
    CORDONED = "cordoned"
    NOT_READY = "not-ready"


def card_state(view: BindingView, card: ComputeCard, held: Collection[str]) -> BindingCardState:
    """Return the state of a card. `held` are the cards that pods hold by the books, bound or not."""
    rows, in_use = view.on(card), any(uuid in held for uuid in card.uuids)
    cordoned = card.cordoned or view.by_name[card.node].cordoned
    if not card.healthy:
        return BindingCardState.UNHEALTHY
    if cordoned:
        return BindingCardState.DRAINING if in_use and not card.partitioned else BindingCardState.CORDONED
    if any(row.draining or row.share is not card.share for row in rows):
        return BindingCardState.DRAINING
    return BindingCardState.BOUND if rows or in_use else BindingCardState.FREE


def node_state(node: ComputeNode, held: Collection[str]) -> BindingNodeState:
    if node.cordoned:
        in_use = any(uuid in held for card in node.cards for uuid in card.uuids)
        return BindingNodeState.DRAINING if in_use else BindingNodeState.CORDONED
    return BindingNodeState.READY if node.ready else BindingNodeState.NOT_READY


def shown_rows(view: BindingView, card: ComputeCard, stopping: Collection[AppKey]) -> tuple[BoundCard, ...]:
    """Return the rows of a card. Those of applications that stop, and still have pods, drain."""
    return tuple(
        replace(row, state=BindingState.DRAINING) if row.app in stopping and not row.draining else row
        for row in view.on(card)
    )
