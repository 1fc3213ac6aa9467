"""The cards of each container of a pod, and the sums of what its containers request of one card.

HAMi's device plugin gives one card to as many containers as its memory and cores suffice for. A pod gets a card for
each container where a node has enough cards, else its containers share cards. Init containers run one after the other
and leave their cards to the containers that start later; a sidecar keeps its cards from its start on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.allocation import Charge, Slot
from ullage.model.part import Part
from ullage.model.quantity import PPM
from ullage.model.topology import CARD
from ullage.wire.vendors.container_request import ContainerRequest

T = TypeVar("T")

_MAX_LAYOUTS = 8
"""The most numbers of cards that are tried for one pod."""


class ContainerAmounts(NamedTuple):
    """The request for one card: its memory in millionths or in bytes, and millionths of its cores."""

    vram_ppm: int = 0
    vram_bytes: int = 0
    cores_ppm: int = 0

    def plus(self, other: ContainerAmounts) -> ContainerAmounts:
        return ContainerAmounts(
            self.vram_ppm + other.vram_ppm, self.vram_bytes + other.vram_bytes, self.cores_ppm + other.cores_ppm
        )

    def most(self, other: ContainerAmounts) -> ContainerAmounts:
        return ContainerAmounts(*map(max, self, other))

    @property
    def fits(self) -> bool:
        """Whether a card may have this much. Memory in both units cannot be compared with a card."""
        return self.vram_ppm <= PPM and self.cores_ppm <= PPM and not (self.vram_ppm and self.vram_bytes)


@dataclass(frozen=True, slots=True)
class SharingLayout:
    """The cards of each container, as positions among those of the pod, and the peak request for each card."""

    containers: tuple[tuple[int, ...], ...]
    peaks: tuple[ContainerAmounts, ...]

    @property
    def part(self) -> Part | None:
        """The largest request for a card; None if a card cannot have that much."""
        if not all(peak.fits for peak in self.peaks):
            return None
        ppm, vram, cores = (max(amounts) for amounts in zip(*self.peaks, strict=True))
        if ppm and vram and ppm < PPM:
            return None
        return Part(compute_ppm=cores, vram_ppm=ppm, vram_bytes=0 if ppm else vram)


def most_cards(requests: Sequence[ContainerRequest]) -> int:
    """Return the peak number of cards of the pod: sidecars and app containers together, init containers in turn."""
    staying = peak = 0
    for request in requests:
        if request.stage is AlignmentStage.INIT:
            peak = max(peak, staying + request.count)
        else:
            staying += request.count
    return max(peak, staying)


def layout(requests: Sequence[ContainerRequest], count: int) -> SharingLayout:
    """Return which of `count` cards each container has; with fewer than `most_cards` containers share them.

    The largest container comes first, and each gets the cards with the smallest request so far. The result depends
    only on the arguments, so that a pod that is read again has the same cards in the same containers.
    """
    containers = tuple(_apart(requests) if count >= most_cards(requests) else _spread(requests, count))
    staying = peaks = [ContainerAmounts()] * count
    for request, given in zip(requests, containers, strict=True):
        now = [each.plus(_of(request)) if at in given else each for at, each in enumerate(staying)]
        peaks = [peak.most(each) for peak, each in zip(peaks, now, strict=True)]
        staying = staying if request.stage is AlignmentStage.INIT else now
    return SharingLayout(containers, tuple(peaks))


def shared_cards(requests: Sequence[ContainerRequest]) -> dict[int, Part]:
    """Return the numbers of cards on which containers can share, the largest first, with the request for each card.

    Of two numbers with the same part only the smaller is returned, as it fits wherever the other does.
    """
    total, widest = most_cards(requests), max((request.count for request in requests), default=0)
    counts = sorted({max(widest, -(-total // users)) for users in range(2, total + 1)} - {total}, reverse=True)
    found: dict[Part, int] = {}
    for count in (*islice(counts, _MAX_LAYOUTS - 1), *counts[_MAX_LAYOUTS - 1 :][-1:]):
        part = layout(requests, count).part
        if part is not None:
            found[part] = count
    return {count: part for part, count in found.items()}


def share_out(requests: Sequence[ContainerRequest], units: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield the cards of each container, or its slices of cards."""
    for positions in layout(requests, len(units)).containers:
        yield tuple(units[at] for at in positions)


CardUnit = tuple[str, Slot | None]
"""A card by its uuid, and the place of one slice of it; None for a card without slices."""


def card_units(gpus: Sequence[str], charges: Mapping[str, Charge]) -> tuple[CardUnit, ...]:
    """Return the cards of a pod, those with several slices as often as it has slices of them."""
    slots = {gpu: charges[gpu].slots if gpu in charges else () for gpu in gpus}
    return tuple((gpu, slot) for gpu in gpus for slot in slots[gpu] or (None,))


def slice_counts(requests: Sequence[ContainerRequest]) -> dict[int, int]:
    """Return the numbers of cards with an equal number of slices each, the most cards first, with that number."""
    total = most_cards(requests)
    return {total // slices: slices for slices in range(2, total + 1) if total % slices == 0}


def parts_by_card(
    requests: Sequence[ContainerRequest], gpus: Sequence[str], totals: Mapping[str, int | None]
) -> dict[str, Part]:
    """Return the most that the containers of each card request of it at a time; without cards of unknown size.

    `totals` are the bytes of the cards by uuid. Memory is in bytes, cores in millionths.
    """
    found: dict[str, Part] = {}
    for gpu, peak in zip(gpus, layout(requests, len(gpus)).peaks, strict=True):
        if (total := totals.get(gpu)) is not None:
            vram = peak.vram_bytes + peak.vram_ppm * total // PPM
            found[gpu] = Part(compute_ppm=min(peak.cores_ppm, PPM), vram_bytes=vram)
    return found


def as_one_container(alignment: Alignment, cards: int) -> Alignment:
    """Return the alignment of containers that share `cards` cards, as of one container that has all that they have.

    It is not known which container has which card in which zone. What lies together in the zones of one container also
    does so for each of several.
    """
    staying, peak = Counter[tuple[str, str | int]](), Counter[tuple[str, str | int]]()
    for needs in alignment.containers:
        now = staying + _counted(needs)
        peak |= now
        staying = staying if needs.stage is AlignmentStage.INIT else now
    devices = {str(name): amount for (kind, name), amount in peak.items() if kind == _DEVICE and name != CARD}
    pages = {int(size): amount for (kind, size), amount in peak.items() if kind == _PAGES}
    needs = ContainerNeeds(
        cpus=peak[_CPUS],
        memory_bytes=peak[_MEMORY],
        devices=tuple(sorted({**devices, CARD: cards}.items())),
        hugepages=tuple(sorted(pages.items())),
    )
    return Alignment(alignment.policy, (needs,), alignment.pairs, alignment.links)


_DEVICE, _PAGES = "device", "pages"
_CPUS, _MEMORY = ("cpus", ""), ("memory", "")


def _counted(needs: ContainerNeeds) -> Counter[tuple[str, str | int]]:
    found = Counter[tuple[str, str | int]]({_CPUS: needs.cpus, _MEMORY: needs.memory_bytes})
    found.update({(_DEVICE, name): amount for name, amount in needs.devices})
    found.update({(_PAGES, size): amount for size, amount in needs.hugepages})
    return found


def _of(request: ContainerRequest) -> ContainerAmounts:
    return ContainerAmounts(request.vram_ppm, request.vram_bytes, request.cores_ppm)


def _apart(requests: Sequence[ContainerRequest]) -> Iterator[tuple[int, ...]]:
    staying = 0
    for request in requests:
        yield tuple(range(staying, staying + request.count))
        if request.stage is not AlignmentStage.INIT:
            staying += request.count


def _spread(requests: Sequence[ContainerRequest], count: int) -> list[tuple[int, ...]]:
    given: list[tuple[int, ...]] = [()] * len(requests)
    asked, staying = (
        [ContainerAmounts()] * count,
        [at for at, request in enumerate(requests) if request.stage is not AlignmentStage.INIT],
    )
    for at in sorted(staying, key=lambda at: _of(requests[at]), reverse=True):
        given[at] = _least_asked(asked, requests[at].count)
        _add(asked, given[at], requests[at])
    before = [ContainerAmounts()] * count
    for at, request in enumerate(requests):
        if request.stage is AlignmentStage.INIT:
            given[at] = _least_asked(before, request.count)
        elif request.stage is AlignmentStage.SIDECAR:
            _add(before, given[at], request)
    return given


def _least_asked(asked: Sequence[ContainerAmounts], count: int) -> tuple[int, ...]:
    return tuple(sorted(sorted(range(len(asked)), key=lambda at: asked[at])[:count]))


def _add(asked: list[ContainerAmounts], given: Sequence[int], request: ContainerRequest) -> None:
    for at in given:
        asked[at] = asked[at].plus(_of(request))
