"""The requests of the containers of a pod for the devices of one family, read by the rules of its file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ullage.model.alignment import AlignmentStage
from ullage.model.error import InvalidRequest, invalid
from ullage.model.part import Isolation
from ullage.model.quantity import MAX_INT32, PPM
from ullage.model.request import MAX_CARDS
from ullage.wire.document import Document, mapping, section, text
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.containers import containers_of
from ullage.wire.vendors.container_request import MIB, WHOLE, ContainerRequest
from ullage.wire.vendors.family import Family, SliceTemplate
from ullage.wire.vendors.profiles import SliceAsk, SliceProfile, profile_for

_MOST_MIB = 2**24
"""16 TiB: more than a card has, and less than any plausible amount in bytes."""

_OF_BYTES = re.compile(r"[KMGTPE]i?$")
"""Units that are not used for a plain number; `k` and `Ki` may be how an API server writes one."""

_NANO = 10**9


def container_requests(
    pod: Document, family: Family, profiles: Sequence[SliceProfile] = ()
) -> tuple[ContainerRequest, ...]:
    """Return the requests of all containers, including empty ones; init containers come first, as in their pod.

    Raises:
        InvalidRequest: an amount is not a whole number, out of range, or against a rule of the family.

    """
    mode = mode_of(pod, family)
    spec = section(pod, "spec")
    return tuple(
        _Container(family, mode, _Amounts(container, f"{path}.resources"), profiles).ask(
            text(container.get("name")), stage
        )
        for stage, path, container in containers_of(spec)
    )


def mode_of(pod: Document, family: Family) -> str:
    """Return the mode that a pod names for the cards of a family; "" if it names none, or one that is not known."""
    mode = section(pod, "metadata", "annotations").get(family.annotations.mode) if family.annotations.mode else None
    return mode if isinstance(mode, str) and mode in family.modes else ""


@dataclass(frozen=True, slots=True)
class _Memory:
    """MiB, or millionths of the memory; `whole`: a card's whole memory, since nothing else was stated."""

    mib: int = 0
    ppm: int = 0
    whole: bool = False
    template: SliceTemplate | None = None


@dataclass(frozen=True, slots=True)
class _Container:
    family: Family
    mode: str
    amounts: _Amounts
    profiles: Sequence[SliceProfile]

    def ask(self, name: str, stage: AlignmentStage) -> ContainerRequest:
        """Return what one container requests."""
        own, family = self.family.resources, self.family
        priority = self.amounts.whole(own.priority, 1)
        stated = self.amounts.whole(own.count, MAX_CARDS)
        cores = self._cores()
        if family.count.means == "slice":
            return replace(self._slice(name, stage, stated, cores), task_priority=priority)
        memory, percent = self.amounts.mib(own.memory, family), self.amounts.whole(own.percent, WHOLE)
        count, counts_cores = self._count(stated, cores, none=memory is None and percent is None and cores is None)
        if not count:
            return ContainerRequest(name, stage, task_priority=priority)
        if family.count.app_only and stage is not AlignmentStage.APP:
            fix = "its device plugin serves app containers alone; request the cards there"
            raise self._wrong(own.count, count, fix)
        if counts_cores and cores is not None:
            cores = min(cores, family.cores.per_card)
        held = self._memory(count, memory, percent)
        ask = ContainerRequest(name, stage, count, held.mib * MIB, vram_ppm=held.ppm, task_priority=priority)
        ask = replace(self._with_cores(ask, cores, held), counted=bool(stated) or counts_cores)
        if counts_cores:
            ask = replace(ask, counts_cores=True, vram_ppm=PPM if ask.cores_ppm == PPM else 0)
        return ask

    def _count(self, stated: int | None, cores: int | None, *, none: bool) -> tuple[int, bool]:
        """Return the number of cards, and whether it follows from a number of cores."""
        rule, most = self.family.count, self.family.cores.per_card
        if stated is None and self.family.cores.over_cards and cores:
            if cores > most and cores % most:
                raise self._wrong(self.family.resources.cores, cores, f"write 1 to {most}, or a multiple of {most}")
            return max(cores // most, 1), True
        count = (0 if none else rule.default) if stated is None else stated
        if count == 1:
            count = rule.step
        if count % rule.step:
            raise self._wrong(self.family.resources.count, count, f"write 1, or a multiple of {rule.step}")
        if count and rule.allowed and count not in rule.allowed:
            fix = f"cards are linked in groups: choose one of {', '.join(map(str, rule.allowed))}"
            raise self._wrong(self.family.resources.count, count, fix)
        return count, False

    def _cores(self) -> int | None:
        rule, own = self.family.cores, self.family.resources
        cores = self.amounts.whole(own.cores, MAX_INT32)
        if cores is None:
            return None
        if rule.modes and cores and self.mode not in rule.modes:
            modes = " or ".join(f"{self.family.annotations.mode}: {mode}" for mode in rule.modes)
            fix = f"a slice has the cores of its template; leave it out, or write {modes}"
            raise self._wrong(own.cores, cores, fix)
        if cores < rule.least or (rule.most and cores > rule.most):
            raise self._wrong(own.cores, cores, f"write {rule.least} to {rule.most}")
        return cores

    def _memory(self, count: int, memory: int | None, percent: int | None) -> _Memory:
        """Return the memory of each card: as much as is stated, or what stands for it."""
        rule, own = self.family.memory, self.family.resources
        if rule.of_several_mib and count > 1:
            return _Memory(rule.of_several_mib)
        mib = (memory or 0) * (1 if self.amounts.in_bytes(own.memory) else rule.unit_mib)
        if not mib and percent:
            return _Memory(ppm=percent * PPM // WHOLE, whole=percent == WHOLE)
        if not mib:
            fixed = 0 if rule.amounts == "templates" else rule.default_mib
            return _Memory(fixed, whole=rule.amounts != "any") if fixed else _Memory(ppm=PPM, whole=True)
        return self._rounded(count, memory, mib)

    def _rounded(self, count: int, memory: int | None, mib: int) -> _Memory:
        """Return a stated amount of memory by the rule of the family for amounts."""
        rule, own = self.family.memory, self.family.resources
        if rule.amounts == "templates" and self.family.modes.get(self.mode) is not Isolation.SOFT:
            return self._template(count, mib)
        if rule.amounts == "steps":
            sizes = [size * rule.unit_mib for size in rule.sizes]
            return _Memory(next((size for size in sizes if mib <= size), sizes[-1]))
        if rule.amounts == "listed" and memory not in rule.sizes:
            raise self._wrong(own.memory, memory, f"choose one of {', '.join(map(str, rule.sizes))}")
        return _Memory(mib)

    def _template(self, count: int, mib: int) -> _Memory:
        """Return the smallest template with so much memory; the whole card where none has."""
        rule, own = self.family, self.family.resources
        template = next((each for each in sorted_templates(rule) if mib <= each.memory_mib), None)
        if template is None:
            if rule.memory.most_mib and mib > rule.memory.most_mib:
                raise self._wrong(own.memory, mib, f"a card has {rule.memory.most_mib} MiB")
            return _Memory(ppm=PPM, whole=True)
        if count > 1 and rule.count.parts_of_one:
            fix = f"a slice is of one card, and {count} {own.count} are asked; ask for 1, or leave the memory out"
            raise self._wrong(own.memory, mib, fix)
        return _Memory(template.memory_mib, template=template)

    def _with_cores(self, ask: ContainerRequest, cores: int | None, held: _Memory) -> ContainerRequest:
        rule = self.family.cores
        fixed = None
        if rule.of_several and ask.count > 1:
            cores = rule.of_several
        elif rule.by_memory:
            most = self.family.memory.default_mib
            cores = ask.vram_bytes // MIB * rule.per_card // most if ask.vram_bytes else rule.per_card
        elif cores is None and (rule.default or not held.whole):
            cores = rule.default
        elif cores is None:
            cores, fixed = rule.per_card, rule.of_whole
        units = min(cores, rule.per_card)
        ask = replace(ask, cores_ppm=units * PPM // rule.per_card, written_cores=fixed if fixed != units else None)
        if held.template is not None:
            return replace(ask, template=held.template.name)
        if held.whole and self.family.memory.default_mib and ask.vram_ppm:
            ask = replace(ask, written_mib=self.family.memory.default_mib)
        return replace(ask, vram_bytes=0, vram_ppm=PPM, cores_ppm=PPM) if self.family.parts == "none" else ask

    def _slice(self, name: str, stage: AlignmentStage, size: int | None, cores: int | None) -> ContainerRequest:
        """Return a request for one slice of one card."""
        own = self.family.resources
        memory = None if size else self.amounts.whole(own.memory, _MOST_MIB)
        if not (size or memory or cores):
            return ContainerRequest(name, stage)
        ask = SliceAsk(size or 0, memory or 0, 0 if size else cores or 0)
        request = ContainerRequest(name, stage, self.family.count.default or 1, counted=True, slice=ask)
        profile = profile_for(ask, self.profiles)
        if profile is not None:
            mib = profile.memory_gib * self.family.memory.unit_mib
            request = replace(request, vram_bytes=mib * MIB, cores_ppm=profile.cores_ppm, template=profile.name)
            return replace(request, written_cores=profile.cores)
        gib = ask.memory * self.family.memory.unit_mib
        mib = ask.memory if gib > _MOST_MIB // self.family.memory.unit_mib else gib
        return replace(request, vram_bytes=mib * MIB, cores_ppm=max(ask.cores * PPM // self.family.cores.per_card, 1))

    def _wrong(self, resource: str, value: object, fix: str) -> InvalidRequest:
        return invalid(self.amounts.field(resource), value, fix)


def sorted_templates(family: Family) -> list[SliceTemplate]:
    """Return the templates, the smallest first."""
    return sorted(family.templates, key=lambda each: each.memory_mib)


class _Amounts:
    """The amounts of one container, limits before requests."""

    def __init__(self, container: Document, path: str) -> None:
        self._path = path
        resources = mapping(container.get("resources"), path)
        self._kinds = [(kind, mapping(resources.get(kind), f"{path}.{kind}")) for kind in ("limits", "requests")]

    def field(self, resource: str) -> str:
        """Return the path of a resource where it is stated."""
        kind = next((kind for kind, amounts in self._kinds if amounts.get(resource) is not None), "limits")
        return f"{self._path}.{kind}.{resource}"

    def in_bytes(self, resource: str) -> bool:
        """Return whether an amount has a unit of bytes."""
        value = self._stated(resource)
        return isinstance(value, str) and bool(_OF_BYTES.search(value)) and not value.endswith("Ki")

    def mib(self, resource: str, family: Family) -> int | None:
        """Return the amount of a memory resource in its units, or in MiB where it has a unit of bytes."""
        if not resource:
            return None
        value, unit = self._stated(resource), family.memory.unit_mib
        if self.in_bytes(resource):
            field = self.field(resource)
            mib = -(-parse_quantity(value, field) // MIB)
            if family.memory.with_unit == "bytes":
                return mib
            fix = f"it counts {_units(unit)}, as a plain number: write {-(-mib // unit)} for {value} of memory"
            raise invalid(field, value, fix)
        try:
            return self.whole(resource, _MOST_MIB // unit)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error.message} (it counts {_units(unit)})", field=error.field) from None

    def whole(self, resource: str, most: int) -> int | None:
        """Return the requested whole number of a resource; None if it is not stated."""
        value = self._stated(resource)
        if value is None:
            return None
        field = self.field(resource)
        amount, rest = divmod(parse_quantity(value, field, units=_NANO, maximum=most * _NANO), _NANO)
        if rest:
            raise invalid(field, value, "a whole number is needed")
        return amount

    def _stated(self, resource: str) -> object:
        return next((amounts[resource] for _, amounts in self._kinds if amounts.get(resource) is not None), None)


def _units(unit_mib: int) -> str:
    return "MiB" if unit_mib == 1 else f"units of {unit_mib} MiB"
