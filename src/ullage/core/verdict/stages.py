"""What each step of a decision did: the cards before and after it, and why the others went.

Names and rejections of many cards are made when they are read. Most callers read the first one only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TypeVar, overload

import numpy as np

from ullage.core.books.fleet import Column
from ullage.core.verdict.reasons import StageKind
from ullage.model.node import Node
from ullage.model.rejection import Code, Rejection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """One step: its name, the number of cards before and after it, and why each of the others went.

    So many `possible` of the removed cards could take the request as they are, if others left or the quota allowed it;
    `by_cure` has their rejections before those of the others.
    """

    filter: str
    kind: StageKind
    reached: bool
    before: int
    after: int
    removed: Sequence[Rejection] = ()
    kept: Sequence[str] = ()
    possible: int = 0
    by_cure: Sequence[Rejection] = field(default=(), compare=False, repr=False)


class OnDemand(Sequence[T]):
    """A sequence whose parts are made when they are read; `make(k)` returns the k-th part."""

    def __init__(self, parts: Column, make: Callable[[int], Sequence[T]]) -> None:
        self._parts = parts
        self._make = make

    @cached_property
    def _all(self) -> tuple[T, ...]:
        return tuple(chain.from_iterable(map(self._make, self._parts.tolist())))

    @overload
    def __getitem__(self, at_: int) -> T: ...
    @overload
    def __getitem__(self, at_: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at_: int | slice) -> T | tuple[T, ...]:
        if at_ == 0 and len(self._parts):
            return self._make(self._parts.item(0))[0]
        return self._all[at_]

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return len(self._parts) > 0

    def __eq__(self, other: object) -> bool:
        return self._all == (other._all if isinstance(other, OnDemand) else other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


class Rejections(OnDemand[Rejection]):
    """The rejections of cards, as positions with the row of each node; those of equal `classes` are the same."""

    def __init__(
        self,
        make: Callable[[int], Sequence[Rejection]],
        cards: Column,
        classes: Column,
        rows: Column,
        nodes: Sequence[Node],
    ) -> None:
        super().__init__(cards, make)
        self._classes, self._rows, self._nodes = classes, rows, nodes

    @cached_property
    def _examples(self) -> list[tuple[int, Sequence[Rejection]]]:
        numbers, first = np.unique(self._classes, return_index=True)
        return [(k, self._make(self._parts.item(at))) for k, at in zip(numbers.tolist(), first.tolist(), strict=True)]

    @property
    def kinds(self) -> list[Rejection]:
        """The rejections of one card of each class; those of the others differ in names, and in what there was."""
        return [rejection for _, against in self._examples for rejection in against]

    def nodes(self, codes: Container[Code]) -> set[str]:
        """Return the nodes of the cards that were rejected with one of these codes."""
        meant = [number for number, against in self._examples if any(each.code in codes for each in against)]
        return {self._nodes[row].name for row in np.unique(self._rows[np.isin(self._classes, meant)]).tolist()}
