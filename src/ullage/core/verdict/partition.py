"""Hardware slices of cards: which template covers a request, and where on the card it may lie.

Which templates a card has says its profile (`model/profile.py`): on cards of NVIDIA and Alibaba a
partition takes the first free run of placement slots, on those of Ascend it joins an isolation group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.core.books.fleet import Fleet, age_of
from ullage.model.allocation import Charge, Slot
from ullage.model.gpu import Gpu
from ullage.model.part import Isolation, Part
from ullage.model.profile import Profile
from ullage.model.quantity import PPM, format_bytes, format_percent
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import show_milli
from ullage.model.template import Template

_NOTHING = Part()
_UNKNOWN = Slot("")
_Short = tuple[Code, int, int, str]
"""The check that a partition fails: what it needed and had, and of what."""


def template_for(fleet: Fleet, card: int, asked: ResourceRequirement) -> Template | None:
    """Return the template of the card's model that covers what is asked with the least waste, or the pinned one.

    None if there is no such template, the pinned one does not cover the request, the model or its
    vendor has no profile, or the card does not say how much vram it has.
    """
    found = fleet.profiles.choose(fleet.cards[card], asked.part or _NOTHING, asked.cards.template)
    return None if found is None else found[1]


def fit(fleet: Fleet, card: int, asked: ResourceRequirement, taken: Sequence[Charge] = ()) -> Charge | Rejection:
    """Return what a partition for this request takes of the card and where it lies, or the first reason against it.

    `taken` are charges assumed on the card in addition to those in the books. A refusal says how many more
    partitions, places or amounts were needed and had. Whether the card takes partitions at all beside
    its present users is for `core/books/modes.py` to say.
    """
    gpu, node = fleet.cards[card], fleet.nodes[int(fleet.card_row[card])].name
    found = fleet.profiles.candidates(gpu, asked.part or _NOTHING, asked.cards.template)
    if found is None:
        return no_template(gpu, node, asked)
    profile, templates = found
    cut = _Cut(fleet, card, profile, templates, taken=taken)
    answer = cut.unit(asked.cards.slices)
    if isinstance(answer, Charge):
        return answer
    code, needed, had, resource = answer
    refused = Rejection(code, Cure.CAPACITY, needed, max(0, had), node=node, gpu=gpu.uuid, resource=resource)
    if code is not Code.NO_PARTITION_SLOT:
        return refused
    smallest, free = next(iter(templates)), _Cut(fleet, card, profile, templates, taken=taken).free_starts()
    larger = "" if asked.cards.template else " or larger"
    there = f"{gpu.uuid} with no place for {smallest.name}{larger} ({free})"
    return replace(refused, wanted=_asked_text(asked), found=(there,))


def no_template(gpu: Gpu, node: str, asked: ResourceRequirement) -> Rejection:
    """Return the rejection of a card without a partition that covers a request."""
    plain = Rejection(Code.NO_PARTITION_TEMPLATE, Cure.NODE_CHANGE, node=node, gpu=gpu.uuid)
    if gpu.partitions is None:
        return plain
    has = ", ".join(f"{each.name} ({format_bytes(each.memory_bytes)})" for each in gpu.partitions)
    there = f"{gpu.uuid} with {has}" if has else f"{gpu.uuid}, of which its device plugin registers no profile"
    return replace(plain, wanted=_asked_text(asked), found=(there,))


def _asked_text(asked: ResourceRequirement) -> str:
    """Return what a request wants of a card: `slice 1g.10gb, 8Gi of vram, 20% of its compute`."""
    part, cards = asked.part or _NOTHING, asked.cards
    pieces = [f"slice {cards.template}"] if cards.template else []
    if part.vram_bytes or part.vram_ppm:
        vram = format_bytes(part.vram_bytes) if part.vram_bytes else format_percent(part.vram_ppm)
        pieces.append(f"{vram} of vram")
    pieces += [f"{show_milli(part.compute_gflops)} TFLOPS"] if part.compute_gflops else []
    pieces += [f"{format_percent(part.compute_ppm)} of its compute"] if part.compute_ppm else []
    pieces += [f"{cards.slices} slices on one card"] if cards.slices > 1 else []
    return ", ".join(pieces) or "any slice"


def fitting(fleet: Fleet, card: int, asked: ResourceRequirement) -> int:
    """Return how many partitions for this request the card takes one after the other."""
    found = fleet.profiles.candidates(fleet.cards[card], asked.part or _NOTHING, asked.cards.template)
    if found is None:
        return 0
    cut, count = _Cut(fleet, card, *found), 0
    while isinstance(cut.unit(asked.cards.slices), Charge):
        count += 1
    return count


def slices_on(fleet: Fleet, card: int, slots: Sequence[Slot]) -> Charge:
    """Return what partitions at these places take of a card; without their places they take all of it."""
    gpu, profile = fleet.cards[card], fleet.profiles.of(fleet.cards[card])
    charges = []
    for slot in slots or (_UNKNOWN,):
        template = None if profile is None else profile.template(slot.template)
        part = Part(compute_ppm=PPM, vram_ppm=PPM)
        if profile is not None and template is not None:
            _, vram = profile.usage(template, gpu.compute, gpu.vram)
            part = Part(compute_ppm=template.takes_ppm, vram_bytes=vram)
        charges.append(Charge.of(part, gpu, Isolation.PARTITIONED, slot))
    return _together(*charges)


class _Cut:
    """The first of some templates that fits, being cut out of one card as often as it goes."""

    def __init__(
        self, fleet: Fleet, card: int, profile: Profile, templates: Sequence[Template], taken: Sequence[Charge] = ()
    ) -> None:
        self._profile, self._templates, self._gpu = profile, templates, fleet.cards[card]
        self._layout = _layout(profile, fleet, card)
        self._totals = int(fleet.compute_total[card]), int(fleet.vram_total[card])
        self._compute, self._vram = int(fleet.compute_free[card]), int(fleet.vram_free[card])
        self._whole = None in fleet.holders[card].values()
        for charge in taken:
            self.take(charge)

    def take(self, charge: Charge) -> None:
        """Count a charge that the books do not have."""
        for slot in charge.slots or (_UNKNOWN,):
            self._layout.enter(slot)
        self._compute -= charge.compute
        self._vram -= charge.vram

    def unit(self, slices: int) -> Charge | _Short:
        """Return what so many partitions take, and take it; or the first check that one of them fails."""
        charges = []
        for _ in range(slices):
            answer = self.next()
            if not isinstance(answer, Charge):
                return answer
            self.take(answer)
            charges.append(answer)
        return _together(*charges)

    def next(self) -> Charge | _Short:
        """Return what the next partition takes, or the first check that fails of the first template."""
        answers = map(self._next, self._templates)
        first = next(answers)
        return next((each for each in (first, *answers) if isinstance(each, Charge)), first)

    def free_starts(self) -> str:
        """Return where partitions of each template of the card could start: `1g.10gb free at 0, 6`."""
        if self._layout.unplaced:
            return "a slice there, of no place that it registers, holds all of it until its pod is gone"
        free = {template.name: sorted(self._layout.free_starts(template)) for template in self._profile.templates}
        texts = [f"{name} free at {', '.join(map(str, starts))}" for name, starts in free.items() if starts]
        return " and ".join(texts) or "no place is free"

    def _next(self, template: Template) -> Charge | _Short:
        profile, layout = self._profile, self._layout
        slot = layout.place(template)
        compute, vram = profile.usage(template, *self._totals)
        no_place = Code.NO_PARTITION_SLOT if profile.vendor.by_slots else Code.NO_ISOLATION_GROUP
        counts = (
            (Code.PARTITION_COUNT, 1, profile.max_partitions - layout.partitions, ""),
            (Code.TEMPLATE_MAX, 1, template.max_partitions - layout.of_template.get(template.name, 0), ""),
        )
        for code, needed, had, resource in (
            *(() if profile.reported else counts),
            *((Code.EXTENDED_RESOURCE, amount, layout.left[name], name) for name, amount in template.extended),
            (no_place, 1, int(slot is not None), ""),
            (Code.GPU_COMPUTE, max(1, compute) if self._whole else compute, self._compute, ""),
            (Code.GPU_VRAM, vram, self._vram, ""),
        ):
            if needed > had:
                return code, needed, had, resource
        part = Part(compute_ppm=template.takes_ppm, vram_bytes=vram)
        return Charge.of(part, self._gpu, Isolation.PARTITIONED, slot)


class _Layout:
    """What the partitions on one card occupy: slots as bits, groups as the templates in them."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.partitions = 0
        self.unplaced = False
        self.of_template: dict[str, int] = {}
        self.left = dict(profile.extended)
        self._occupied = 0
        self._groups: list[list[str]] = [] if profile.vendor.by_slots else [[] for _ in range(profile.groups)]

    def place(self, template: Template) -> Slot | None:
        """Return the first free start in the order of the template, or the first group that takes it."""
        if not self._profile.vendor.by_slots:
            group = self._group(template)
            return None if group is None else Slot(template.name, group=group)
        for start in self.free_starts(template):
            return Slot(template.name, start, start + template.size)
        return None

    def free_starts(self, template: Template) -> list[int]:
        """Return where a partition could start, in the order of its template."""
        return [start for start in template.starts if not self._occupied & _run(start, start + template.size)]

    def _group(self, template: Template) -> int | None:
        for group, inside in enumerate(self._groups):
            if inside and len(inside) < template.per_group and set(inside) == {template.name}:
                return group
        return next((group for group, inside in enumerate(self._groups) if not inside), None)

    def says_where(self, slot: Slot) -> bool:
        """Return whether a record names a place on a card of this profile."""
        if self._profile.reported:
            template = self._profile.template(slot.template)
            return template is not None and slot.start in template.starts and slot.end == slot.start + template.size
        if self._profile.vendor.by_slots:
            return slot.start is not None and slot.end is not None and 0 <= slot.start < slot.end <= self._profile.slots
        return slot.group is not None and 0 <= slot.group < len(self._groups)

    def enter(self, slot: Slot) -> None:
        """Count a partition and occupy its place; one that nobody knows the place of has the whole card."""
        template = self._profile.template(slot.template)
        name = slot.template if template is None else template.name
        self.partitions += 1
        self.of_template[name] = self.of_template.get(name, 0) + 1
        for resource, amount in () if template is None else template.extended:
            self.left[resource] -= amount
        if not self.says_where(slot):
            self.unplaced = True
            self._occupied = _run(0, self._profile.slots)
            self._groups = [[*inside, name] for inside in self._groups]
        elif slot.start is not None and slot.end is not None:
            self._occupied |= _run(slot.start, slot.end)
        elif slot.group is not None:
            self._groups[slot.group].append(name)

    def enter_old(self, slot: Slot) -> None:
        """Enter a partition whose record has no place: where it would be placed now."""
        template = self._profile.template(slot.template)
        place = None if template is None else self.place(template)
        self.enter(slot if place is None else place)


def _layout(profile: Profile, fleet: Fleet, card: int) -> _Layout:
    """Return the partitions on a card: those with a recorded place, then the others by age and id."""
    layout = _Layout(profile)
    old: list[tuple[float, str, Slot]] = []
    for holder, charge in fleet.holders[card].items():
        if charge is None or charge.isolation is not Isolation.PARTITIONED:
            continue
        for slot in charge.slots or (_UNKNOWN,):
            if profile.reported or layout.says_where(slot):
                layout.enter(slot)
            else:
                old.append((_age(fleet, holder), holder, slot))
    for _, _, slot in sorted(old, key=lambda record: record[:2]):
        layout.enter_old(slot)
    return layout


def _age(fleet: Fleet, holder: str) -> float:
    """Return the age of a holder; what has no time comes first."""
    at = age_of(fleet.ledger[holder])
    return float("-inf") if at is None else at


def _together(first: Charge, *others: Charge) -> Charge:
    """Return the charge of partitions of one card."""
    if not others:
        return first
    parts = [charge.basis.part for charge in (first, *others) if charge.basis is not None]
    compute_ppm = min(PPM, sum(part.compute_ppm for part in parts))
    part = Part(compute_ppm=compute_ppm, vram_bytes=sum(part.vram_bytes for part in parts))
    return replace(
        first,
        compute=first.compute + sum(charge.compute for charge in others),
        vram=first.vram + sum(charge.vram for charge in others),
        further=tuple(slot for charge in others for slot in charge.slots),
        basis=first.basis and replace(first.basis, part=part),
    )


def _run(start: int, end: int) -> int:
    """Bits from `start` to before `end`."""
    return (1 << end) - (1 << start)
