"""What a strategy is."""

from __future__ import annotations

from typing import Protocol

from ullage.core.fleet import Fleet
from ullage.model.request import ResourceRequirement


class Strategy(Protocol):
    """Scores nodes that have room, and picks cards among those that passed the filters."""

    @property
    def name(self) -> str:
        """In kebab-case."""
        ...

    def node(self, fleet: Fleet, row: int, asked: ResourceRequirement, eligible: list[int]) -> int:
        """How good a node with room is, 0 or more; `eligible` are its cards that could take the request."""
        ...

    def card(self, fleet: Fleet, card: int, asked: ResourceRequirement) -> int:
        """How good one card is, 0 or more."""
        ...

    def pick(self, fleet: Fleet, asked: ResourceRequirement, eligible: list[int]) -> list[int]:
        """The cards for one unit out of `eligible`, of which there are enough."""
        ...
