"""The links between the cards of each node: weights of pairs, islands, zones and PCIe switches.

They are computed once per inventory. Nodes whose cards are linked in the same way share one layout, in which cards
are numbered in the order of their index. Of links to other devices only those within one switch count.

The weights are those of NVIDIA's go-gpuallocator: paths of `nvidia-smi topo -m`, and 100 for each NVLink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.core.kernel.columns import Rows
from ullage.core.kernel.links import KEY_COLUMNS, MEMO_COLUMNS, UNLINKED, Links
from ullage.core.kernel.memo import empty_keys
from ullage.core.kernel.nearest import BEHIND_SWITCH, ISLAND, MOST_RESOURCES, PLACES, SWITCH, ZONE, ZONES
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.topology import Link, Path

NVLINK_WEIGHT = 100
"""The weight of each of the bonded NVLinks of a pair, added to that of its path."""

PATH_WEIGHT: Mapping[Path, int] = {
    Path.BOARD: 60,
    Path.PIX: 50,
    Path.PXB: 40,
    Path.PHB: 30,
    Path.NODE: 20,
    Path.SYS: 10,
    Path.UNKNOWN: 0,
}

_MEMO_SLOTS, _SLOTS_OF_A_LAYOUT = 1 << 14, 1 << 11
"""Slots for answers, at most and per layout; a layout of 8 cards has 1,024 questions without required cards.

Books are copied often, and the memo with them: it has no more slots than the layouts can fill.
"""

_MOST_ZONES = 62
"""The most zones of the cards of one node; with more, zones are ignored."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the cards of a node are joined: the weights of pairs, and places as `core/kernel/nearest.py` names them.

    If `uniform`, all pairs have the same number of NVLinks, as behind an NVSwitch, and links decide nothing.
    """

    weights: Rows
    places: Rows
    uniform: bool


def weight_of(link: Link) -> int:
    """Return the weight of a pair: higher for cards that are joined better."""
    return PATH_WEIGHT[link.path] + NVLINK_WEIGHT * link.nvlinks


def layout_of(gpus: Sequence[Gpu], links: Iterable[Link] = (), behind: Sequence[int] = ()) -> Layout:
    """Return the layout of these cards, in order. Where the directions of a pair differ, the lower weight counts."""
    number_of = {gpu.uuid: number for number, gpu in enumerate(gpus)}
    weights = np.zeros((len(gpus), len(gpus)), np.int64)
    for (a, b), weight in _pair_weights(links).items():
        if a in number_of and b in number_of:
            weights[number_of[a], number_of[b]] = weights[number_of[b], number_of[a]] = weight
    nvlinks, paths = np.divmod(weights, NVLINK_WEIGHT)
    same_switch = paths >= PATH_WEIGHT[Path.PIX]
    alone = nvlinks.sum(axis=1) == 0
    sets = _zone_sets(gpus)
    places = np.zeros((PLACES, len(gpus)), np.int64)
    places[ISLAND] = _components((nvlinks > 0) | (same_switch & np.outer(alone, alone)))
    places[ZONE] = [sets.index(zones) for zones in sets]
    places[SWITCH] = _components(same_switch)
    places[ZONES] = sets
    places[BEHIND_SWITCH] = behind or 0
    pairs = nvlinks[np.triu_indices(len(gpus), 1)]
    return Layout(weights, places, bool(len(pairs) and pairs[0] and (pairs == pairs[0]).all()))


def links_over(nodes: Sequence[Node], code_of: Callable[[str], int] = lambda _: MOST_RESOURCES) -> Links:
    """Return how the cards of these nodes are joined, with an empty memo. `code_of` numbers resources."""
    layouts: dict[object, Layout] = {}
    number_of: dict[object, int] = {}
    numbers, by_index = list[int](), list[int]()
    for node in nodes:
        position = {gpu.uuid: at for at, gpu in enumerate(node.gpus)}
        gpus = sorted(node.gpus, key=lambda gpu: (gpu.index, gpu.uuid))
        by_index += (position[gpu.uuid] for gpu in gpus)
        links = node.topology.links if node.topology else ()
        behind = _behind_switch(node, gpus, code_of)
        facts = (*_facts_of(gpus, links), behind)
        numbers.append(number_of.setdefault(facts, len(number_of)))
        if facts not in layouts:
            layouts[facts] = layout_of(gpus, links, behind)
    most = max((len(node.gpus) for node in nodes), default=0)
    weights = np.zeros((len(layouts), most, most), np.int64)
    places = np.zeros((len(layouts), PLACES, most), np.int64)
    for number, layout in enumerate(layouts.values()):
        cards = len(layout.weights)
        weights[number, :cards, :cards] = layout.weights
        places[number, :, :cards] = layout.places
    return Links(
        layout_of=np.array(numbers, np.int64),
        by_index=np.array(by_index, np.int64),
        weights=weights,
        places=places,
        uniform=np.array(
            [layout.uniform if layout.weights.any() else UNLINKED for layout in layouts.values()], np.int64
        ),
        memo=empty_keys(_slots_for(len(layouts)), MEMO_COLUMNS),
        key=np.zeros(KEY_COLUMNS, np.int64),
        used=np.zeros(1, np.int64),
    )


def _slots_for(layouts: int) -> int:
    """Return the number of slots, a power of two of which one is always empty."""
    return min(_MEMO_SLOTS, _SLOTS_OF_A_LAYOUT << (layouts - 1).bit_length()) if layouts else 2


def _behind_switch(node: Node, gpus: Sequence[Gpu], code_of: Callable[[str], int]) -> tuple[int, ...]:
    """Return for each card the resources of the devices behind its switch, as bits by their number."""
    devices = {device.uuid: device.resource for device in (node.topology.devices if node.topology else ())}
    if not devices:
        return (0,) * len(gpus)
    found = dict.fromkeys((gpu.uuid for gpu in gpus), 0)
    for link in node.topology.links if node.topology else ():
        for card, device in ((link.a, link.b), (link.b, link.a)):
            if card in found and device in devices and PATH_WEIGHT[link.path] >= PATH_WEIGHT[Path.PIX]:
                code = code_of(devices[device])
                found[card] |= 1 << code if code < MOST_RESOURCES else 0
    return tuple(found.values())


def _facts_of(gpus: Sequence[Gpu], links: Iterable[Link]) -> tuple[object, ...]:
    """Return all that decides the layout of these cards, with numbers instead of uuids."""
    number_of = {gpu.uuid: number for number, gpu in enumerate(gpus)}
    joined = [link for link in links if link.a in number_of and link.b in number_of]
    pairs = frozenset((frozenset((number_of[link.a], number_of[link.b])), weight_of(link)) for link in joined)
    return tuple(gpu.zones for gpu in gpus), pairs


def _pair_weights(links: Iterable[Link]) -> dict[tuple[str, str], int]:
    """Return the weight of each pair of uuids, the lower uuid first; where its directions differ, the lower weight."""
    weights: dict[tuple[str, str], int] = {}
    for link in links:
        if link.a != link.b:
            pair, weight = (min(link.a, link.b), max(link.a, link.b)), weight_of(link)
            weights[pair] = min(weight, weights.get(pair, weight))
    return weights


def _zone_sets(gpus: Sequence[Gpu]) -> list[int]:
    """Return the zones of each card as bits, numbered over all zones of the cards in ascending order."""
    zones = sorted({zone for gpu in gpus for zone in gpu.zones})
    if len(zones) > _MOST_ZONES:
        return [0] * len(gpus)
    return [sum(1 << zones.index(zone) for zone in gpu.zones) for gpu in gpus]


def _components(joined: npt.NDArray[np.bool_]) -> list[int]:
    """Return for each card the first card with which it is joined, directly or through others."""
    first = list(range(len(joined)))
    for start in range(len(joined)):
        if first[start] < start:
            continue
        waiting = [start]
        while waiting:
            for other in np.nonzero(joined[waiting.pop()])[0].tolist():
                if first[other] > start:
                    first[other] = start
                    waiting.append(other)
    return first
