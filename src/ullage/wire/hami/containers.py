"""What each container of a pod asks of cards in HAMi's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ullage.model.alignment import Stage
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32, PPM
from ullage.model.request import MAX_CARDS
from ullage.wire.document import Document, mapping, text
from ullage.wire.hami.words import Words
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.containers import containers_of

MIB = 2**20
WHOLE = 100
"""Percent."""

_MOST_MIB = 2**30
_NANO = 10**9


@dataclass(frozen=True, slots=True)
class ContainerAsk:
    """What one container asks: cards, and of each of them bytes or millionths of its memory, and percent of its cores.

    `task_priority` is 0 or 1 (lower), None if nothing is said. `counted`: the cards are a resource of the container,
    so that its kubelet asks the device plugin for them.
    """

    name: str
    stage: Stage
    count: int = 0
    vram_bytes: int = 0
    vram_ppm: int = 0
    cores: int = 0
    task_priority: int | None = None
    counted: bool = False

    def all_of_it(self) -> ContainerAsk:
        """The same cards, and all of each."""
        return replace(self, vram_bytes=0, vram_ppm=PPM, cores=WHOLE)

    def vram_on(self, total_bytes: int) -> int:
        """Bytes of a card of that many."""
        return self.vram_bytes or self.vram_ppm * total_bytes // PPM


def container_asks(pod: Document, words: Words) -> tuple[ContainerAsk, ...]:
    """What all containers ask, also those that ask for nothing; init containers come first, as in their pod.

    Raises:
        InvalidRequest: an amount is no whole number, or out of range; upstream would take it for no request.

    """
    spec = mapping(pod.get("spec"), "spec")
    return tuple(_ask(stage, path, container, words) for stage, path, container in containers_of(spec))


def most_cards(asks: Sequence[ContainerAsk]) -> int:
    """Cards that the pod has at its peak: sidecars and app containers together, init ones in their turn."""
    staying = peak = 0
    for ask in asks:
        if ask.stage is Stage.INIT:
            peak = max(peak, staying + ask.count)
        else:
            staying += ask.count
    return max(peak, staying)


def share_out(asks: Sequence[ContainerAsk], gpus: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The cards of each container. Those of an init container are given on to the ones that start after it."""
    staying = 0
    for ask in asks:
        yield tuple(gpus[staying : staying + ask.count])
        if ask.stage is not Stage.INIT:
            staying += ask.count


def _ask(stage: Stage, path: str, container: Document, words: Words) -> ContainerAsk:
    name, told = text(container.get("name")), _Told(container, f"{path}.resources")
    count = told.whole(words.count, MAX_CARDS)
    memory = told.whole(words.memory, _MOST_MIB)
    percentage = told.whole(words.memory_percentage, WHOLE)
    cores = told.whole(words.cores, MAX_INT32)
    priority = told.whole(words.priority, 1)
    counted = bool(count)
    if count is None:
        count = 0 if memory is None and percentage is None and cores is None else words.default_count
    if not count:
        return ContainerAsk(name, stage, task_priority=priority)
    mib = (memory or 0) * words.memory_factor or (0 if percentage else words.default_memory_mib)
    ppm = 0 if mib else (percentage or WHOLE) * PPM // WHOLE
    if cores is None:
        cores = words.default_cores or (WHOLE if ppm == PPM else 0)
    return ContainerAsk(name, stage, count, mib * MIB, ppm, min(cores, WHOLE), priority, counted)


class _Told:
    """The amounts of one container, limits before requests."""

    def __init__(self, container: Document, path: str) -> None:
        self._path = path
        resources = mapping(container.get("resources"), path)
        self._kinds = [(kind, mapping(resources.get(kind), f"{path}.{kind}")) for kind in ("limits", "requests")]

    def whole(self, resource: str, most: int) -> int | None:
        """The whole number that is asked of a resource; None if nothing is said of it."""
        for kind, amounts in self._kinds:
            value = amounts.get(resource)
            if value is not None:
                field = f"{self._path}.{kind}.{resource}"
                amount, rest = divmod(parse_quantity(value, field, units=_NANO, maximum=most * _NANO), _NANO)
                if rest:
                    raise invalid(field, value, "a whole number is needed")
                return amount
        return None
