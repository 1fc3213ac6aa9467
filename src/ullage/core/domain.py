"""Domains: levels above the node, such as racks, as a label of the nodes says. Which of them a gang is put in.

Units that are near each other are in one domain: the tightest that has room for all of them. Where none has,
they are in as few as possible: the roomiest ones, and for the rest the tightest that has room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ullage.core.fleet import Column, Fleet

Mask = npt.NDArray[np.bool_]
"""Nodes that may be taken."""


def spans(fleet: Fleet, key: str, nodes: Iterable[str]) -> int:
    """In how many domains these nodes are; one that is not known any more is a domain of its own."""
    of, row_of = fleet.exclusion.labels.domains(key), fleet.row_of
    return len({of.item(row_of[name]) if name in row_of else name for name in nodes})


def nearest(fleet: Fleet, key: str, rooms: list[Column], units: list[int], at: Iterable[str] = ()) -> Iterator[Mask]:
    """Sets of nodes to try, the nearest together first: masks over the nodes, of ever more domains.

    `rooms` say per kind of unit how many fit on each node, `units` how many are to be placed; the first kind
    says which domain is tight. Nodes where others of the gang are already are always among them.
    """
    of = fleet.exclusion.labels.domains(key)
    per_domain = [np.bincount(of, weights=room, minlength=1).astype(np.int64) for room in rooms]
    chosen = np.zeros(len(per_domain[0]), np.bool_)
    chosen[[of.item(fleet.row_of[name]) for name in at if name in fleet.row_of]] = True
    if chosen.any() and _enough(per_domain, units, chosen):
        yield chosen[of]
    roomiest = np.argsort(-per_domain[0], kind="stable")
    while not chosen.all():
        for domain in _tight(per_domain, units, chosen):
            more = chosen.copy()
            more[domain] = True
            yield more[of]
        chosen[next(domain for domain in roomiest.tolist() if not chosen[domain])] = True


def _enough(per_domain: list[Column], units: list[int], chosen: Mask) -> bool:
    return all(int(room[chosen].sum()) >= count for room, count in zip(per_domain, units, strict=True))


def _tight(per_domain: list[Column], units: list[int], chosen: Mask) -> list[int]:
    """The domains that have room for what those chosen have not, the tightest first; ties by the first node."""
    enough = ~chosen
    for room, count in zip(per_domain, units, strict=True):
        enough &= room >= count - int(room[chosen].sum())
    found = np.nonzero(enough)[0]
    order: list[int] = found[np.argsort(per_domain[0][found], kind="stable")].tolist()
    return order
