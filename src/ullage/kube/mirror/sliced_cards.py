"""The cards that the slices of a node lie on, where a plain device plugin offers the slices as resources.

Which slice lies on which card is not reported, and does not matter: the kubelet picks them. The slices of a node are
packed on as few cards as hold them. So a slice counts for its part of a card, in shares, quotas and what is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.kube.client.objects import KubeNode
from ullage.kube.mirror.discovered import MEMORY_LABELS, PRODUCT_LABELS, bytes_of_mib
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation
from ullage.model.profiles import SHIPPED
from ullage.model.quantity import PPM, parse_count
from ullage.model.template import Template
from ullage.wire.vendors.slice_resources import SliceResource, slice_resource

_SLOTS, _COMPUTE_SLICES = 8, 7
"""Places of memory and compute slices of a card whose model has no table of partitions."""

_PLACES = {3: 4, 7: 8}
"""The places of slices that take another number of them than they have compute slices."""

_MOST = 4096
"""The most slices of one node that are read."""

_GIB = 2**30
_ONLY_SLICES = frozenset({Isolation.PARTITIONED})


def sliced_cards(node: KubeNode, labels: Mapping[str, str], notes: list[str]) -> list[Gpu]:
    """Return the cards that the slices of a node lie on; none if it offers no slices.

    They are packed by the capacity of the node, so that a slice that fails moves no other one. A card takes no new work
    while the kubelet offers fewer slices of a profile than there are. What cannot be read is added to `notes`.
    """
    capacity, offered = node.status.capacity or node.status.allocatable or {}, node.status.allocatable or {}
    counts = {each: _count(capacity[each.name], each.name, notes) for each in map(slice_resource, capacity) if each}
    if sum(counts.values()) > _MOST:
        notes.append(f"{sum(counts.values())} slices; at most {_MOST} of one node are read")
        return []
    if not counts:
        return []
    model, cards = _model(labels, counts), list[_Card]()
    kinds = {each: _template(each, model) for each in counts}
    for kind in sorted(counts, key=lambda each: (-kinds[each].size, -kinds[each].compute_ppm, each.name)):
        for _ in range(counts[kind]):
            card = next((card for card in cards if card.takes(kinds[kind])), None)
            if card is None:
                cards.append(card := _Card(kind, _slots(kind, model)))
            card.take(kinds[kind])
    for kind, count in counts.items():
        missing = count - (_count(offered[kind.name], kind.name, notes) if kind.name in offered else 0)
        _close(cards, kinds[kind].name, missing)
    return [card.gpu(node.metadata.name, model, at) for at, card in enumerate(cards)]


@dataclass(frozen=True, slots=True)
class _Model:
    """What a node says of its sliced cards: their model, and the bytes of each; None where that is not known."""

    name: str | None = None
    vram_bytes: int | None = None


def _model(labels: Mapping[str, str], kinds: Iterable[SliceResource]) -> _Model:
    """Return the model of the sliced cards, from the labels of feature discovery for whole cards, else for slices."""
    maker = next(iter(kinds)).maker
    product, memory = PRODUCT_LABELS.get(maker, ""), MEMORY_LABELS.get(maker, "")
    named = [labels.get(product, ""), *(labels.get(f"{each.name}.product", "") for each in kinds)]
    name = next((found.partition("-MIG-")[0].removesuffix("-SHARED") for found in named if found), None)
    whole = labels.get(memory, "") if "-MIG-" not in labels.get(product, "") else ""
    return _Model(name, bytes_of_mib(whole))


def _close(cards: Sequence[_Card], profile: str, missing: int) -> None:
    """Close the last cards with slices of a profile, as many as have the number that is missing."""
    for card in reversed(cards):
        if missing > 0 and profile in card.starts:
            card.healthy = False
            missing -= len(card.starts[profile])


def _count(value: str, resource: str, notes: list[str]) -> int:
    try:
        return parse_count(value, resource, _MOST)
    except InvalidRequest as error:
        notes.append(error.message)
        return 0


def _template(kind: SliceResource, model: _Model) -> Template:
    """Return the slice as its model has it; else by its name, in sevenths of the compute and eighths of the memory."""
    profile = SHIPPED.of(Gpu("", 0, model=model.name, vendor=kind.maker)) if model.name else None
    named = {each.name.replace("+", "."): each for each in profile.templates} if profile is not None else {}
    if found := named.get(kind.profile):
        return Template(kind.profile, found.memory_bytes, found.compute_ppm, 1, starts=(0,), size=found.size)
    memory = kind.memory_gib * _GIB
    size = _PLACES.get(kind.compute, min(kind.compute, _SLOTS))
    if model.vram_bytes:
        size = min(_SLOTS, max(size, round(_SLOTS * memory / model.vram_bytes)))
    compute = min(PPM, PPM * kind.compute // _COMPUTE_SLICES)
    return Template(kind.profile, memory, compute, 1, starts=(0,), size=size)


def _slots(kind: SliceResource, model: _Model) -> int:
    profile = SHIPPED.of(Gpu("", 0, model=model.name, vendor=kind.maker)) if model.name else None
    return _SLOTS if profile is None else profile.slots


@dataclass(slots=True)
class _Card:
    """A card that is being filled with slices: the starts of those of each profile."""

    kind: SliceResource
    slots: int
    starts: dict[str, list[int]] = field(default_factory=dict)
    templates: dict[str, Template] = field(default_factory=dict)
    used: int = 0
    compute_ppm: int = 0
    healthy: bool = True

    def takes(self, template: Template) -> bool:
        return self.used + template.size <= self.slots and self.compute_ppm + template.compute_ppm <= PPM

    def take(self, template: Template) -> None:
        self.templates[template.name] = template
        self.starts.setdefault(template.name, []).append(self.used)
        self.used += template.size
        self.compute_ppm += template.compute_ppm

    def gpu(self, node: str, model: _Model, index: int) -> Gpu:
        partitions = tuple(self._partitions())
        own = sum(each.memory_bytes * each.max_partitions for each in partitions)
        return Gpu(
            f"{node}/{self.kind.vendor}/{index}".replace(" ", "-"),
            index,
            model=model.name,
            vendor=self.kind.vendor,
            vram_bytes=max(own, model.vram_bytes or 0),
            isolation=Isolation.PARTITIONED,
            isolations=_ONLY_SLICES,
            healthy=self.healthy,
            partitions=partitions,
        )

    def _partitions(self) -> Iterator[Template]:
        for name, starts in self.starts.items():
            one = self.templates[name]
            yield Template(name, one.memory_bytes, one.compute_ppm, len(starts), starts=tuple(starts), size=one.size)
