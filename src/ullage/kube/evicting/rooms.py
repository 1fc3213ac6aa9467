"""The room for a pod on a node once others have left, for the cards of each of its families."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ullage.core.evicting.preemption import Preemption
from ullage.core.evicting.victims import Cost
from ullage.model.claim import Request
from ullage.model.family_ids import uid_of


@dataclass(frozen=True, slots=True)
class RoomOnNode:
    """The places of a pod on one node, one for each family of its cards, each without its victims."""

    places: tuple[tuple[Request, Preemption], ...]

    @property
    def node(self) -> str:
        return next(each.choice.node for _, each in self.places)

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids of the pods that leave for it, each once."""
        return tuple(dict.fromkeys(uid_of(id_) for _, each in self.places for id_ in each.uids))

    @property
    def cost(self) -> Cost | None:
        """The cost of its victims; None without victims."""
        costs = list(self._costs())
        if len(costs) < 2:  # noqa: PLR2004 - there is nothing to add
            return next(iter(costs), None)
        violations, highest, priorities, number, ages, _ = zip(*costs, strict=True)
        return Cost(
            violations=sum(violations),
            highest=max(highest),
            priorities=sum(priorities),
            number=sum(number),
            age_s=max(ages),
            node=self.node,
        )

    def _costs(self) -> Iterator[Cost]:
        return (each.cost for _, each in self.places if each.cost is not None)

    def plus(self, request: Request, place: Preemption) -> RoomOnNode:
        """Return the room with a place for the cards of a further family."""
        return RoomOnNode((*self.places, (request, place)))
