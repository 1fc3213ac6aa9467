"""The hardware partitions of each model of card, and the choice of a partition for a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from ullage.model.error import invalid
from ullage.model.gpu import Gpu
from ullage.model.part import GFLOPS_PER_TFLOPS, Part
from ullage.model.quantity import MAX_INT64, PPM, check_range

MAX_COUNT = 1024
"""The most partitions, slots or groups in a table."""

_MAX_CHOSEN = 4096
"""The most choices that are cached."""

_TO_DASH = str.maketrans("._ ", "---")


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
    "ppu": Vendor.ALIBABA_PPU,
    "alibaba": Vendor.ALIBABA_PPU,
    "thead": Vendor.ALIBABA_PPU,
    "thead-ppu": Vendor.ALIBABA_PPU,
    "huawei-ascend": Vendor.ASCEND,
    "ascend-npu": Vendor.ASCEND,
}


@lru_cache(maxsize=4096)
def name_key(name: str) -> str:
    """Return the key for comparing names of models, templates and vendors.

    Case does not count, `.` `_` and blank count as `-`, and `mig-` is left out.
    """
    return name.strip().lower().translate(_TO_DASH).removeprefix("mig-")


def vendor_named(name: str) -> Vendor | None:
    """Return the vendor of that name; None if its partitions cannot be placed."""
    return _VENDOR_NAMES.get(name_key(name))


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of partition: its amounts, how many a card may hold, and where it may lie.

    `compute_ppm` is in millionths of the card. With placement slots it takes `size` of them from one of `starts`,
    tried in this order. With isolation groups, up to `per_group` of one kind lie together. Errors name fields as a
    table of profiles does.

    Raises:
        InvalidRequest: an amount is out of range, or as many as the card may hold are more than the card.

    """

    name: str
    memory_bytes: int
    compute_ppm: int
    max_partitions: int
    id: str = ""
    starts: tuple[int, ...] = ()
    size: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    per_group: int = 1

    def __post_init__(self) -> None:
        if not name_key(self.name):
            raise invalid("name", self.name, "give the template a name")
        for field_name, value, least, most in (
            ("memory_gigabytes", self.memory_bytes, 1, MAX_INT64),
            ("compute_percent", self.compute_ppm, 1, PPM),
            ("max_partition", self.max_partitions, 1, MAX_COUNT),
            ("placement_offset", self.size, 0, MAX_COUNT),
            ("max_partitions_per_isolation_group", self.per_group, 1, MAX_COUNT),
            *(("placement_limit", start, 0, MAX_COUNT) for start in self.starts),
            *((f"extended_resources.{name}", amount, 1, MAX_INT64) for name, amount in self.extended),
        ):
            check_range(field_name, value, least, most)
        if len(set(self.starts)) != len(self.starts):
            raise invalid("placement_limit", self.starts, "name each start slot once")
        if self.compute_ppm * self.max_partitions > PPM:
            fix = f"{self.max_partitions} such partitions (max_partition) exceed the card; round it down"
            raise invalid("compute_percent", self.compute_ppm / 10_000, fix)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(name_key(name) for name in (self.name, self.id) if name)


@dataclass(frozen=True, slots=True)
class Profile:
    """The partitions of one model of card. `extended` are the amounts of further countable resources of a card.

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
        a set that the slots allow has to fit.
        """
        vram = vram_total * template.size // self.slots if self.vendor.by_slots else vram_total
        return template.compute_ppm * compute_total // PPM, min(template.memory_bytes, vram)

    def choose(self, part: Part, pinned: str | None, compute_total: int, vram_total: int) -> Template | None:
        """Return the template that covers a part of such a card with the least waste, or the pinned one if it does.

        A template counts with its nominal vram. Waste is 0.6 times that of compute (in TFLOPS) plus 0.4 times that of
        vram (in bytes), each relative to the request; ties go by name.
        """
        compute, vram = part.on(compute_total, vram_total)
        candidates = self.templates
        if pinned is not None:
            candidates = tuple(template for template in (self.template(pinned),) if template is not None)
        covering = [
            (_waste(has - compute, compute, template.memory_bytes - vram, vram), template.name, template)
            for template in candidates
            if (has := template.compute_ppm * compute_total // PPM) >= compute and template.memory_bytes >= vram
        ]
        return min(covering, key=lambda found: found[:2])[2] if covering else None


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles by the names of their models; if two have the same name, the first is used."""

    entries: tuple[Profile, ...] = ()
    _by_key: dict[str, Profile] = field(init=False, repr=False, compare=False)
    _chosen: dict[tuple[object, ...], tuple[Profile, Template] | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Cached choices; the result of a choice never changes."""

    def __post_init__(self) -> None:
        by_key = {key: profile for profile in reversed(self.entries) for key in profile.keys}
        object.__setattr__(self, "_by_key", by_key)

    def of(self, gpu: Gpu) -> Profile | None:
        """Return the profile of a card; None if its model has none, or the card reports another vendor."""
        if gpu.model is None:
            return None
        profile = self._by_key.get(name_key(gpu.model))
        if profile is None or (gpu.vendor is not None and vendor_named(gpu.vendor) is not profile.vendor):
            return None
        return profile

    def choose(self, gpu: Gpu, part: Part, pinned: str | None) -> tuple[Profile, Template] | None:
        """Return the profile of a card and its template for a part; None if there is none or its vram is not known."""
        key = (gpu.model, gpu.vendor, gpu.compute, gpu.vram_bytes, part, pinned)
        if key not in self._chosen:
            if len(self._chosen) >= _MAX_CHOSEN:
                self._chosen.clear()
            self._chosen[key] = self._choose(gpu, part, pinned)
        return self._chosen.get(key)

    def _choose(self, gpu: Gpu, part: Part, pinned: str | None) -> tuple[Profile, Template] | None:
        profile = self.of(gpu)
        if profile is None or gpu.vram_bytes is None:
            return None
        template = profile.choose(part, pinned, gpu.compute, gpu.vram)
        return None if template is None else (profile, template)

    def overridden_by(self, others: Iterable[Profile]) -> Profiles:
        """Return profiles in which `others` override these."""
        return Profiles((*others, *self.entries))


def _waste(compute_over: int, compute: int, vram_over: int, vram: int) -> float:
    return 0.6 * (compute_over / max(compute, GFLOPS_PER_TFLOPS)) + 0.4 * (vram_over / max(vram, 1))
