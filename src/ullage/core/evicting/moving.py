"""Plans that make room by moving: their values, and what is looked at to find one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ullage.core.books.fleet import Fleet
from ullage.core.evicting.movable import Stays
from ullage.core.evicting.victims import NO_BUDGETS, Budgets
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.nomination import NO_NOMINATIONS, Nominations
from ullage.core.placing.placement import Table, table_of
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, Request


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
    stays: Mapping[Stays, int]


@dataclass(frozen=True, slots=True)
class NoConsolidation(Refusal):
    """That moving makes room for fewer, as the rejection says, and how many may not be moved, by reason."""

    stays: Mapping[Stays, int] = field(default_factory=dict)


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
class MoveContext:
    """What is wanted, on books in which room reserved for others is charged."""

    fleet: Fleet
    rules: Rules
    wanted: Request
    units: int
    tries: int

    def milli(self, allocation: Allocation) -> int:
        """Return what an allocation holds, in thousandths of cards."""
        return self.fleet.resources(allocation.requirement).gpu_milli


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The places of units, and the moves for them; `least` says that no such plan costs less."""

    units: tuple[Choice, ...]
    moves: tuple[Move, ...]
    least: bool = True


def table_for(look: MoveContext, request: Request) -> Table:
    """Return the table of a request, up to date."""
    return table_of(look.fleet, request.requirement, look.rules.strategy_of(request), look.rules.cap).refreshed()


def asked_again(allocation: Allocation) -> Request:
    """Return the request that an allocation would make again."""
    return Request(allocation.id, allocation.requirement, allocation.claim or Claim(), "best-fit")


def moved(allocation: Allocation, to: Choice) -> Allocation:
    """Return an allocation as it is at its next place."""
    return replace(allocation, node=to.node, gpus=to.gpus, charges=to.charges, cards=(), placement=to.placement)


def in_turn(look: MoveContext, allocations: Iterable[Allocation]) -> list[Allocation]:
    """Return those who move in the order in which their places are chosen: the largest first."""
    return sorted(allocations, key=lambda each: (-look.milli(each), -each.requirement.cpu_milli, each.id))
