"""Domains: levels above the node, such as racks, as labels of the nodes say. Which of them a gang is put in.

Levels are labels, the outermost first: blocks, then racks. Units that are near each other are in one domain of
the deepest level that has one with room for all of them, the tightest such one. Where not even an outermost one
has, they are in as few as possible: the roomiest ones, and for the rest the tightest that has room for it. A
gang may have to stay within one domain of a level, or not be placed; there the same holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.core.books.fleet import Column, Fleet

Mask = npt.NDArray[np.bool_]
"""Nodes that may be taken."""


@dataclass(frozen=True, slots=True)
class WantedUnits:
    """The units to place: for each kind, their number and how many fit on each node.

    The first kind decides which domain is tight. `at` are the rows of nodes where other members of the gang run.
    """

    units: Sequence[int]
    rooms: Sequence[Column]
    at: Sequence[int]

    @classmethod
    def of(cls, fleet: Fleet, units: Sequence[int], rooms: Sequence[Column], nodes: Iterable[str]) -> WantedUnits:
        """Return the same for nodes given by name. Unknown nodes are left out."""
        return cls(units, rooms, [fleet.row_of[name] for name in nodes if name in fleet.row_of])

    def inside(self, nodes: Mask) -> WantedUnits:
        """With the room of these nodes only."""
        return WantedUnits(self.units, [room * nodes for room in self.rooms], self.at)


def spans(fleet: Fleet, key: str, nodes: Iterable[str]) -> int:
    """In how many domains these nodes are; one that is not known any more is a domain of its own."""
    of, row_of = fleet.exclusion.labels.domains(key), fleet.row_of
    return len({of.item(row_of[name]) if name in row_of else name for name in nodes})


def nearest(fleet: Fleet, levels: Sequence[str], wanted: WantedUnits, within: str | None = None) -> Iterator[Mask]:
    """Sets of nodes to try, the nearest together first, each once; with `within` each in one domain of that level.

    Nodes where others of the gang are already are always among them.
    """
    labels, tried = fleet.exclusion.labels, set[bytes]()
    limits = np.zeros(len(fleet.nodes), np.int64) if within is None else labels.domains(within)
    for mask in _by_level([labels.domains(key) for key in levels], limits, wanted):
        text = mask.tobytes()
        if text not in tried:
            tried.add(text)
            yield mask


def most_within(fleet: Fleet, required: str, wanted: WantedUnits) -> int:
    """Return the largest number of units that fit in one allowed domain of a level."""
    of = fleet.exclusion.labels.domains(required)
    rooms, there = _rooms_of(of, wanted), np.unique(of[list(wanted.at)])
    if len(there) > 1:
        return 0
    fitting = np.sum([np.minimum(room, count) for room, count in zip(rooms, wanted.units, strict=True)], axis=0)
    return int(np.max(fitting[there] if len(there) else fitting, initial=0))


def _by_level(columns: Sequence[Column], limits: Column, wanted: WantedUnits) -> Iterator[Mask]:
    """In one domain, of the deepest level first, and there in few of the deepest; then in few of the outermost."""
    if len(np.unique(limits[list(wanted.at)])) > 1:
        return
    kinds = columns or [limits]
    outermost, deepest = next(iter(kinds)), next(reversed(kinds))
    for of in reversed(columns):
        for domain in _alone(of, wanted):
            for inside in _alone(limits, wanted.inside(domain)):
                here = domain & inside
                if of is deepest:
                    yield here
                else:
                    yield from (mask & here for mask in _few(deepest, wanted.inside(here)))
    for inside in _alone(limits, wanted):
        yield from (mask & inside for mask in _few(outermost, wanted.inside(inside)))


def _alone(of: Column, wanted: WantedUnits) -> Iterator[Mask]:
    """One domain that has room for all, the tightest first; or those where others of the gang are, if they have."""
    rooms, chosen = _rooms_of(of, wanted), np.zeros(int(of.max(initial=-1)) + 1, np.bool_)
    if not len(wanted.at):
        yield from (of == domain for domain in _tight(rooms, wanted.units, chosen))
        return
    chosen[of[list(wanted.at)]] = True
    if _enough(rooms, wanted.units, chosen):
        yield chosen[of]


def _few(of: Column, wanted: WantedUnits) -> Iterator[Mask]:
    """Sets of ever more domains; those without any room take no part."""
    rooms, units = _rooms_of(of, wanted), wanted.units
    chosen = ~np.any([room > 0 for room in rooms], axis=0)
    chosen[of[list(wanted.at)]] = True
    first_kind, *_ = rooms
    roomiest = np.argsort(-first_kind, kind="stable").tolist()
    while True:
        if _enough(rooms, units, chosen):
            yield chosen[of]
        else:
            for domain in _tight(rooms, units, chosen):
                more = chosen.copy()
                more[domain] = True
                yield more[of]
        if chosen.all():
            return
        chosen[next(domain for domain in roomiest if not chosen[domain])] = True


def _rooms_of(of: Column, wanted: WantedUnits) -> list[Column]:
    """Return per kind of unit how many fit in each domain."""
    domains = int(of.max(initial=-1)) + 1
    return [np.bincount(of, weights=room, minlength=domains).astype(np.int64) for room in wanted.rooms]


def _enough(rooms: Sequence[Column], units: Sequence[int], chosen: Mask) -> bool:
    return all(int(room[chosen].sum()) >= count for room, count in zip(rooms, units, strict=True))


def _tight(rooms: Sequence[Column], units: Sequence[int], chosen: Mask) -> list[int]:
    """Yield the domains with room for what the chosen ones lack, the tightest first; ties by the first node."""
    enough = ~chosen
    for room, count in zip(rooms, units, strict=True):
        enough &= room >= count - int(room[chosen].sum())
    found = np.nonzero(enough)[0]
    first_kind, *_ = rooms
    order: list[int] = found[np.argsort(first_kind[found], kind="stable")].tolist()
    return order
