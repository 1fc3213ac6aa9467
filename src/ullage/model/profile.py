"""The hardware partitions of each model of card, and the choice of a partition for a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from ullage.model.error import invalid
from ullage.model.gpu import Gpu
from ullage.model.part import GFLOPS_PER_TFLOPS, Part
from ullage.model.quantity import PPM, check_range
from ullage.model.template import MAX_COUNT, Template, name_key

_MAX_CHOSEN = 4096
"""The most choices that are cached."""


class Vendor(StrEnum):
    """Vendors whose partitions can be placed, each with its own rule of where a partition may lie."""

    NVIDIA = "nvidia"
    ALIBABA_PPU = "alibaba-ppu"
    ASCEND = "ascend"

    @property
    def by_slots(self) -> bool:
        """Whether a partition takes a run of placement slots; otherwise it is in an isolation group."""
        return self is not Vendor.ASCEND


_VENDOR_NAMES = {
    **{vendor.value: vendor for vendor in Vendor},
    "nvidia-mig": Vendor.NVIDIA,
    "ppu": Vendor.ALIBABA_PPU,
    "alibaba": Vendor.ALIBABA_PPU,
    "thead": Vendor.ALIBABA_PPU,
    "thead-ppu": Vendor.ALIBABA_PPU,
    "huawei-ascend": Vendor.ASCEND,
    "ascend-npu": Vendor.ASCEND,
}


def vendor_named(name: str) -> Vendor | None:
    """Return the vendor of that name; None if its partitions cannot be placed."""
    return _VENDOR_NAMES.get(name_key(name))


@dataclass(frozen=True, slots=True)
class Profile:
    """The partitions of one model of card. `extended` are the amounts of further countable resources of a card.

    With `reported` they are what the agent of a card reports of it. Then a place counts only if it is one of these, and
    a request takes the smallest partition that covers it and has a free place.

    Raises:
        InvalidRequest: a template does not fit on the card, or two have the same key.

    """

    name: str
    vendor: Vendor
    templates: tuple[Template, ...]
    aliases: tuple[str, ...] = ()
    max_partitions: int = 7
    slots: int = 0
    groups: int = 4
    extended: tuple[tuple[str, int], ...] = ()
    reported: bool = False
    _by_key: dict[str, Template] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if not name_key(name):
                raise invalid("name", name, "give the model as its driver names it")
        check_range("max_partitions", self.max_partitions, 1, MAX_COUNT)
        if self.vendor.by_slots:
            check_range("max_placement_slots", self.slots, 1, MAX_COUNT)
        else:
            check_range("max_isolation_groups", self.groups, 1, MAX_COUNT)
        if not self.templates:
            raise invalid("templates", (), "name at least one template")
        by_key: dict[str, Template] = {}
        for template in self.templates:
            if not by_key.keys().isdisjoint(template.keys):
                raise invalid("templates", template.name, "another template of the model has this name or id")
            by_key.update(dict.fromkeys(template.keys, template))
            self._check_place(template)
            self._check_extended(template)
        object.__setattr__(self, "_by_key", by_key)

    def _check_place(self, template: Template) -> None:
        if not self.vendor.by_slots:
            if template.starts or template.size:
                fix = f"partitions of {self.vendor.value} lie in isolation groups; leave it out"
                raise invalid("placement_limit", template.starts, fix)
            return
        if not template.starts or not template.size:
            fix = f"{template.name} needs placement_limit (start slots) and placement_offset (slots taken)"
            raise invalid("placement_limit", template.starts, fix)
        if max(template.starts) + template.size > self.slots:
            fix = f"{template.name} takes {template.size} slots and the model has max_placement_slots = {self.slots}"
            raise invalid("placement_limit", template.starts, fix)

    def _check_extended(self, template: Template) -> None:
        totals = dict(self.extended)
        for name, amount in template.extended:
            if amount > totals.get(name, 0):
                fix = f"total_extended_resources of the model has {totals.get(name, 0)} of {name}"
                raise invalid(f"extended_resources.{name}", amount, fix)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(name_key(name) for name in (self.name, *self.aliases))

    def template(self, name: str) -> Template | None:
        return self._by_key.get(name_key(name))

    def usage(self, template: Template, compute_total: int, vram_total: int) -> tuple[int, int]:
        """Return the compute and vram that a partition takes of a card of that capacity, rounded down.

        Vram is never more than the share of the slots it lies on: cards report a little less than their name says, and
        a set that the slots allow has to fit. So does a set of as many reported partitions as the card may have.
        """
        if self.reported:
            vram = min(template.memory_bytes, vram_total // template.max_partitions)
            return template.takes_ppm * compute_total // PPM, vram
        vram = vram_total * template.size // self.slots if self.vendor.by_slots else vram_total
        return template.takes_ppm * compute_total // PPM, min(template.memory_bytes, vram)

    def covering(self, part: Part, pinned: str | None, compute_total: int, vram_total: int) -> tuple[Template, ...]:
        """Return the templates to try for a part of such a card, in this order; none if no template covers it.

        Of reported partitions these are all that cover it, the least vram first; a share of the vram is one of the
        largest partition. Else it is the one with the least waste. With `pinned` only that one counts.

        A template counts with its nominal vram. Waste is 0.6 times that of compute (in TFLOPS) plus 0.4 times that of
        vram (in bytes), each relative to the request; ties go by name.
        """
        if self.reported:
            vram_total = min(vram_total, max(template.memory_bytes for template in self.templates))
        compute, vram = part.on(compute_total, vram_total)
        candidates = self.templates
        if pinned is not None:
            candidates = tuple(template for template in (self.template(pinned),) if template is not None)
        covering = [
            template
            for template in candidates
            if template.compute_ppm * compute_total // PPM >= compute and template.memory_bytes >= vram
        ]
        if self.reported:
            return tuple(sorted(covering, key=lambda each: (each.memory_bytes, each.compute_ppm)))

        def waste(template: Template) -> tuple[float, str]:
            has = template.compute_ppm * compute_total // PPM
            return _waste(has - compute, compute, template.memory_bytes - vram, vram), template.name

        return (min(covering, key=waste),) if covering else ()


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles by the names of their models; if two have the same name, the first is used."""

    entries: tuple[Profile, ...] = ()
    _by_key: dict[str, Profile] = field(init=False, repr=False, compare=False)
    _chosen: dict[tuple[object, ...], tuple[Profile, tuple[Template, ...]] | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Cached choices; the result of a choice never changes."""

    def __post_init__(self) -> None:
        by_key = {key: profile for profile in reversed(self.entries) for key in profile.keys}
        object.__setattr__(self, "_by_key", by_key)

    def of(self, gpu: Gpu) -> Profile | None:
        """Return the profile of a card; None if its model has none, or the card reports another vendor.

        Partitions that its agent reports take precedence; none are reported by an agent that makes none.
        """
        if gpu.partitions is not None:
            return _reported(gpu.vendor or "", gpu.partitions)
        if gpu.model is None:
            return None
        profile = self._by_key.get(name_key(gpu.model))
        if profile is None or (gpu.vendor is not None and vendor_named(gpu.vendor) is not profile.vendor):
            return None
        return profile

    def choose(self, gpu: Gpu, part: Part, pinned: str | None) -> tuple[Profile, Template] | None:
        """Return the profile of a card and its template for a part; None if there is none or its vram is not known."""
        found = self.candidates(gpu, part, pinned)
        if found is None:
            return None
        profile, (first, *_) = found
        return profile, first

    def candidates(self, gpu: Gpu, part: Part, pinned: str | None) -> tuple[Profile, tuple[Template, ...]] | None:
        """Return the profile of a card and its templates to try for a part; None if there is none."""
        key = (gpu.model, gpu.vendor, gpu.compute, gpu.vram_bytes, gpu.partitions, part, pinned)
        if key not in self._chosen:
            if len(self._chosen) >= _MAX_CHOSEN:
                self._chosen.clear()
            self._chosen[key] = self._choose(gpu, part, pinned)
        return self._chosen.get(key)

    def _choose(self, gpu: Gpu, part: Part, pinned: str | None) -> tuple[Profile, tuple[Template, ...]] | None:
        profile = self.of(gpu)
        if profile is None or gpu.vram_bytes is None:
            return None
        templates = profile.covering(part, pinned, gpu.compute, gpu.vram)
        return (profile, templates) if templates else None

    def overridden_by(self, others: Iterable[Profile]) -> Profiles:
        """Return profiles in which `others` override these."""
        return Profiles((*others, *self.entries))


@lru_cache(maxsize=_MAX_CHOSEN)
def _reported(vendor: str, partitions: tuple[Template, ...]) -> Profile | None:
    """Return the profile of the partitions that the agent of a card reports; None if there are none."""
    by = vendor_named(vendor)
    if by is None or not by.by_slots or not partitions:
        return None
    slots = max(start + template.size for template in partitions for start in template.starts)
    return Profile("reported", by, partitions, max_partitions=slots, slots=slots, reported=True)


def _waste(compute_over: int, compute: int, vram_over: int, vram: int) -> float:
    return 0.6 * (compute_over / max(compute, GFLOPS_PER_TFLOPS)) + 0.4 * (vram_over / max(vram, 1))
