"""Plans that make room by moving: their values, and the books on which they are looked for.

An allocation that moves leaves its place and comes back at another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.protection import Protection, Shield
from ullage.core.evicting.victims import NO_BUDGETS, Budgets, claim_of
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.placement import Table
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import placement_of, table_for
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation
from ullage.model.claim import Request


class MoveCost(NamedTuple):
    """The cost of a plan, compared from the first field on.

    The highest priority of those who move, their number, and what they hold in thousandths of cards.
    """

    highest: int
    number: int
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Move:
    """An allocation that goes to another place. With a `gap` it must leave before there is room for it there."""

    allocation: Allocation
    to: Choice
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Consolidation:
    """The places of the units once the moves are made, in this order. Without moves they fit as it is.

    `age_s` is the longest time that an allocation that moves has run. `least`: no such plan costs less. `stays` is the
    number of allocations that may not be moved, for each reason.
    """

    units: tuple[Choice, ...]
    moves: tuple[Move, ...]
    cost: MoveCost
    age_s: float
    least: bool
    stays: Mapping[Shield, int]

    @property
    def places(self) -> Iterator[Choice]:
        """Yield where the units will be, and then those who move."""
        yield from self.units
        yield from (move.to for move in self.moves)


@dataclass(frozen=True, slots=True)
class NoConsolidation(Refusal):
    """That moving makes room for fewer, as the rejection says, and how many may not be moved, by reason."""

    stays: Mapping[Shield, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveQuestion:
    """Room for `units` requests like the wanted one; no allocation above the priority `up_to` is moved.

    Room is reserved for the `nominations`. `tries` is the number of plans that are examined before units are handled
    one by one, and for each of these.
    """

    wanted: Request
    units: int
    now: float
    up_to: int | None = None
    budgets: Budgets = NO_BUDGETS
    nominations: Nominations = NO_NOMINATIONS
    tries: int = 32


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The places of units, and the moves for them; `least` says that no such plan costs less."""

    units: tuple[Choice, ...]
    moves: tuple[Move, ...]
    least: bool = True


@dataclass(frozen=True, slots=True)
class MoveContext:
    """What is wanted, on books in which room reserved for others is charged."""

    fleet: Fleet
    rules: Rules
    wanted: Request
    units: int
    tries: int

    @classmethod
    def of(cls, fleet: Fleet, rules: Rules, question: MoveQuestion) -> MoveContext:
        """Return the context of a question: no quota is asked, and each goes where it fits tightest.

        An allocation that moves holds as much as before.
        """
        as_moved = replace(rules, quotas=Quotas(), strategy="best-fit")
        return cls(fleet, as_moved, question.wanted, question.units, tries=question.tries)

    def milli(self, allocation: Allocation) -> int:
        """Return what an allocation holds, in thousandths of cards."""
        return self.fleet.resources(allocation.requirement).gpu_milli

    def table(self, request: Request) -> Table:
        """Return the table of a request, up to date."""
        return table_for(self.fleet, self.rules, request)

    def in_turn(self, allocations: Iterable[Allocation]) -> list[Allocation]:
        """Return those who move in the order in which their places are chosen: the largest first."""
        return sorted(allocations, key=lambda each: (-self.milli(each), -each.requirement.cpu_milli, each.id))

    def charge_unit(self, choice: Choice, uid: str) -> None:
        """Charge a unit of a plan at its place, by a name with a blank, which no request has."""
        asked = self.wanted.requirement
        placement = placement_of(self.fleet, asked, choice)
        unit = Allocation(uid, choice.node, asked, choice.gpus, charges=choice.charges, placement=placement)
        self.fleet.charge(unit, force=True)

    def charge_moved(self, move: Move) -> None:
        """Charge an allocation that has left its place at its next one."""
        to = move.to
        there = replace(
            move.allocation, node=to.node, gpus=to.gpus, charges=to.charges, cards=(), placement=to.placement
        )
        self.fleet.charge(there, force=True)


def asked_again(allocation: Allocation) -> Request:
    """Return the request that an allocation, which may be moved, would make again."""
    return Request(allocation.id, allocation.requirement, claim_of(allocation), "best-fit")


def why_stays(fleet: Fleet, question: MoveQuestion, allocation: Allocation) -> Shield | None:
    """Return why an allocation is not moved, whatever the budgets; None if it may be."""
    below = inf if question.up_to is None else question.up_to + 1
    reason = Protection(question.now, below, gang="").shield(allocation)
    if reason is not None:
        return reason
    row, cards = fleet.row_of.get(allocation.node), [fleet.card_of.get(uuid) for uuid in allocation.gpus]
    here = all(card is not None and fleet.card_row.item(card) == row for card in cards)
    return None if here else Shield.SCATTERED
