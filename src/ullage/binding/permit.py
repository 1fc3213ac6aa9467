"""Which cards of which nodes a pod may have by the bindings of its application, and how much of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from ullage.binding.view import TENANTS
from ullage.model.binding import Binding, BindingMismatch, BindingState, Consume, ShareMode, Tenant, matched
from ullage.model.compute import ComputeCard
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement


class Hindrance(StrEnum):
    """Why bindings keep a pod from a node, in addition to `BindingMismatch`, which keeps one binding from a pod."""

    NO_LABEL = "application-label-missing"
    NOT_BOUND = "not-bound"
    NOT_HERE = "no-bound-card"
    CONFLICT = "bindings-of-several-owners"
    MIXED = "bound-cards-shared-differently"
    TOO_FEW = "InsufficientGPU"
    EXCLUSIVE = "exclusive-already-bound"
    NO_MEMORY = "device-vram-insufficient"
    TENANTS = "tenants-exhausted"
    DRAINING = "device-draining"


class PermitRefused(NamedTuple):
    """Why a node will not do; `detail` is a card, amounts, or whose. It `helps` if another pod of the same leaves."""

    code: Hindrance | BindingMismatch
    detail: str = ""
    helps: bool = False

    @property
    def text(self) -> str:
        """It in one line."""
        return f"{self.code}:{self.detail}" if self.detail else self.code.value


class PermittedCard(NamedTuple):
    """A card that a pod may have, and by which binding."""

    binding: Binding
    card: ComputeCard


@dataclass(frozen=True, slots=True)
class Permit:
    """Per node the cards among which a pod gets its own, and how many, or why not; `rest` is of all other nodes.

    `short` has what is asked and the most that one node has left, where that is the reason.
    """

    rest: PermitRefused
    places: Mapping[str, Place] = field(default_factory=dict)
    refused: Mapping[str, PermitRefused] = field(default_factory=dict)
    short: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Cards of one node with one share mode, of which a pod gets `count`."""

    cards: tuple[PermittedCard, ...]
    count: int

    def under(self, asked: ResourceRequirement) -> ResourceRequirement:
        """Return what is asked, as the bindings allow it: among these cards, with the memory that is bound.

        A card for one application alone is asked for whole; one whose applications take turns has no amounts. Where
        caps differ the least is asked of each card, and `uneven` says what each really gives. A partition stays what
        it is.
        """
        selector = replace(
            asked.cards, uuids=tuple(sorted(uuid for each in self.cards for uuid in each.card.uuids)), indices=()
        )
        if selector.isolation is Isolation.PARTITIONED:
            return replace(asked, gpu_count=self.count, cards=selector)
        part, isolation = self._part(asked)
        return replace(asked, gpu_count=self.count, part=part, cards=replace(selector, isolation=isolation))

    def uneven(self, asked: ResourceRequirement) -> dict[str, int]:
        """Bytes of each card by uuid, where a pod has all of them and not of each the same; else nothing.

        Of a card whose binding says no amount it has what it asks for itself.
        """
        sliced = self.cards[0].card.share is ShareMode.MEMORY_SLICE and self.count == len(self.cards)
        if not sliced or asked.cards.isolation is Isolation.PARTITIONED:
            return {}
        amounts = {each.card.id: _cap(each, asked.part) for each in self.cards}
        return amounts if len(set(amounts.values())) > 1 else {}

    def _part(self, asked: ResourceRequirement) -> tuple[Part | None, Isolation]:
        share, own = self.cards[0].card.share, asked.part
        soft = asked.cards.isolation if asked.shares_cards else Isolation.SOFT
        if share is ShareMode.EXCLUSIVE:
            return None, Isolation.SHARED
        if share is ShareMode.TIME_SLICE:
            return Part(), soft
        if all(each.binding.memory_bytes is None for each in self.cards):
            return own, asked.cards.isolation
        caps = [_cap(each, own) for each in self.cards]
        percent = 0 if own is None or own.compute_ppm >= PPM else own.compute_ppm
        return Part(0 if own is None else own.compute_gflops, min(caps), percent), soft


def _cap(bound: PermittedCard, own: Part | None) -> int:
    """Bytes of a card whose memory is shared out: as bound, else what the pod asks for itself."""
    if bound.binding.memory_bytes is not None:
        return bound.binding.memory_bytes
    total = bound.card.memory_bytes
    return total if own is None else own.on(0, total)[1]


def standing(card: ComputeCard, bindings: Sequence[Binding], tenants: int = TENANTS) -> dict[str, PermitRefused]:
    """By name, the bindings of a card that it has no room for; those that come first stand.

    One that drains counts until it is over.
    """
    stand: dict[tuple[str, str, str], int] = {}
    refused: dict[str, PermitRefused] = {}
    for each in bindings:
        app = each.app, each.owner, each.namespace
        others = {key: memory for key, memory in stand.items() if key != app}
        memory = (each.memory_bytes or 0) if card.share is ShareMode.MEMORY_SLICE else 0
        most = {ShareMode.EXCLUSIVE: 1, ShareMode.TIME_SLICE: tenants}.get(card.share, len(others) + 1)
        draining = each.state is BindingState.DRAINING
        if not draining and len(others) >= most:
            code = Hindrance.EXCLUSIVE if card.share is ShareMode.EXCLUSIVE else Hindrance.TENANTS
            refused[each.name] = PermitRefused(code, card.id)
        elif not draining and memory and 0 < card.memory_bytes < sum(others.values()) + memory:
            refused[each.name] = PermitRefused(Hindrance.NO_MEMORY, card.id)
        else:
            stand[app] = max(stand.get(app, 0), memory)
    return refused


class BindingClaims:
    """Bindings that are there, in the order in which they count, on cards that are there."""

    def __init__(
        self,
        bindings: Iterable[Binding],
        cards: Mapping[str, ComputeCard],
        *,
        tenants: int = TENANTS,
        strict: bool = False,
        closed: Collection[str] = (),
    ) -> None:
        """`cards` by their ids; who came to one that is `closed` while it was shared otherwise has not gone yet.

        With `strict` a binding that names no owner or namespace is nobody's.
        """
        self._strict, self._cards, self._tenants, self._closed = strict, cards, tenants, frozenset(closed)
        self._of_app: defaultdict[str, list[Binding]] = defaultdict(list)
        self._on_card: defaultdict[str, list[Binding]] = defaultdict(list)
        self._barred: dict[str, dict[str, PermitRefused]] = {}
        self._stands_in = {uuid: card.id for card in cards.values() for uuid in card.stands_for}
        for each in bindings:
            self._of_app[each.app].append(each)
            self._on_card[each.uuid].append(each)

    def seen(self, binding: Binding) -> Binding:
        """Return a binding against its card: invalid where it promises more than that has."""
        card = self._cards.get(binding.uuid)
        return binding if card is None or not card.memory_bytes else binding.on(card.memory_bytes)

    def invalid(self, binding: Binding) -> str:
        """Return why a binding can never be in force as it is; "" if it can."""
        if self._strict and not (binding.owner and binding.namespace):
            return BindingMismatch.WILDCARD.value
        if binding.selector is None:
            return "spec.podSelector: it is null, and selects no pod; {} selects every pod"
        seen = self.seen(binding)
        return seen.reason or seen.state.value if seen.state is BindingState.INVALID else ""

    def reason(self, binding: Binding) -> str:
        """Return why a binding is not in force now; "" if it is."""
        if why := self.invalid(binding):
            return why
        barred = self.barred(binding)
        return self.seen(binding).reason if barred is None else barred.text

    def barred(self, binding: Binding) -> PermitRefused | None:
        """Return why its card has no room for a binding; None if it has, or nothing is known of the card."""
        uuid = binding.uuid
        if uuid not in self._barred:
            there = [self.seen(each) for each in self._on_card.get(uuid, ()) if not self.invalid(each)]
            if uuid in self._closed:
                self._barred[uuid] = {each.name: PermitRefused(Hindrance.DRAINING, uuid) for each in there}
            elif uuid in self._cards:
                self._barred[uuid] = standing(self._cards[uuid], there, self._tenants)
            else:
                self._barred[uuid] = {}
        return self._barred[uuid].get(binding.name)

    def permit(
        self,
        tenant: Tenant,
        asked: ResourceRequirement,
        nodes: Iterable[str],
        held: Collection[str],
        consume: Consume = Consume.ALL,
    ) -> Permit:
        """Return what a pod may have. `held` are cards held by other pods of its application, owner and namespace."""
        found = self._mine(tenant)
        if isinstance(found, PermitRefused):
            return Permit(found)
        offered = set(nodes)
        here: defaultdict[str, list[PermittedCard]] = defaultdict(list)
        for each in found:
            card = self._cards.get(each.uuid)
            if card is not None and card.node in offered and _chosen(card, asked.cards):
                here[card.node].append(PermittedCard(each, card))
        places: dict[str, Place] = {}
        refused: dict[str, PermitRefused] = {}
        most = 0
        take = self._all if consume is Consume.ALL else self._some
        for node, cards in here.items():
            place = take(cards, asked.gpu_count, held)
            if isinstance(place, int):
                most = max(most, place)
                place = PermitRefused(Hindrance.TOO_FEW, f" requested={asked.gpu_count}, bound={place}", helps=True)
            if isinstance(place, PermitRefused):
                refused[node] = place
            else:
                places[node] = place
        short = not places and all(each.code is Hindrance.TOO_FEW for each in refused.values())
        return Permit(PermitRefused(Hindrance.NOT_HERE), places, refused, (asked.gpu_count, most) if short else None)

    def bound(self, tenant: Tenant, node: str) -> tuple[PermittedCard, ...]:
        """Return the cards of a node that are bound for a pod now, held or not."""
        found = self._mine(tenant)
        if isinstance(found, PermitRefused):
            return ()
        there = (PermittedCard(each, self._cards[each.uuid]) for each in found if each.uuid in self._cards)
        return tuple(each for each in there if each.card.node == node and self.barred(each.binding) is None)

    def whole(self, tenant: Tenant, held: Collection[str]) -> frozenset[str] | PermitRefused:
        """Return the cards that a pod may hold whole: those that are bound for its application alone."""
        found = self._mine(tenant)
        if isinstance(found, PermitRefused):
            return found
        there = [(self._cards[each.uuid], each) for each in found if each.uuid in self._cards]
        alone = (card for card, each in there if card.share is ShareMode.EXCLUSIVE and self.barred(each) is None)
        return frozenset(uuid for card in alone if not _is_held(card, held) for uuid in card.uuids)

    def others_on(self, tenant: Tenant, uuid: str) -> tuple[Binding, ...]:
        """Return the bindings that keep a card for other applications; those that the card has no room for do not."""
        keys = (key for key in (uuid, self._stands_in.get(uuid)) if key is not None)
        there = (self.seen(each) for key in keys for each in self._on_card.get(key, ()))
        return tuple(
            each
            for each in there
            if not self.invalid(each)
            and self.barred(each) is None
            and each.against(tenant, strict=self._strict) is not None
        )

    def conflict(self, tenant: Tenant) -> tuple[Binding, ...]:
        """Return the bindings of a pod as they are to be shown where they are of several owners; else none."""
        found = matched(filter(_in_force, self._of(tenant.app)), tenant, strict=self._strict)
        return found.shown if found.conflict else ()

    def _of(self, app: str) -> list[Binding]:
        return [self.seen(each) for each in self._of_app.get(app, ())]

    def _mine(self, tenant: Tenant) -> tuple[Binding, ...] | PermitRefused:
        """Return the bindings of a pod, one to a card: the one that says whose it is before one that does not."""
        if not tenant.app:
            return PermitRefused(Hindrance.NO_LABEL)
        there = self._of(tenant.app)
        found = matched(filter(_in_force, there), tenant, strict=self._strict)
        if found.conflict:
            return PermitRefused(Hindrance.CONFLICT, " and ".join(owner or "nobody" for owner in found.owners))
        if found.bindings:
            by_card = {each.uuid: each for each in sorted(found.bindings, key=lambda each: not each.legacy)}
            return tuple(by_card[uuid] for uuid in sorted(by_card))
        against = {each.against(tenant, strict=self._strict) for each in there}
        if None in against:
            return PermitRefused(Hindrance.DRAINING)
        nearest = [why for why in BindingMismatch if why in against]
        return PermitRefused(nearest[-1]) if nearest else PermitRefused(Hindrance.NOT_BOUND)

    def _all(self, here: Sequence[PermittedCard], asked: int, held: Collection[str]) -> Place | PermitRefused | int:
        """Return all cards that are bound on a node, if none of them is held."""
        barred = [self.barred(each.binding) for each in here]
        there = [each for each, why in zip(here, barred, strict=True) if why is None]
        if not there:
            return next(filter(None, barred))
        if any(_is_held(each.card, held) for each in there):
            return 0
        if len(there) < asked:
            return len(there)
        if len({each.card.share for each in there}) > 1:
            return PermitRefused(Hindrance.MIXED)
        return Place(tuple(there), len(there))

    def _some(self, here: Sequence[PermittedCard], asked: int, held: Collection[str]) -> Place | PermitRefused | int:
        """Return as many free cards of one share mode on a node as are asked: the least shared, then the largest."""
        barred = [self.barred(each.binding) for each in here]
        there = [each for each, why in zip(here, barred, strict=True) if why is None]
        if not there:
            return next(filter(None, barred))
        free = sorted((each for each in there if not _is_held(each.card, held)), key=_order)
        for _, group in groupby(free, key=_order):
            cards = tuple(group)
            if len(cards) >= asked:
                return Place(cards, asked)
        return len(free) if len(free) < asked else PermitRefused(Hindrance.MIXED)


_RANK = {ShareMode.EXCLUSIVE: 0, ShareMode.MEMORY_SLICE: 1, ShareMode.TIME_SLICE: 2}


def _order(bound: PermittedCard) -> tuple[int, int]:
    return _RANK[bound.card.share], -(bound.binding.memory_bytes or 0)


def _chosen(card: ComputeCard, selector: CardSelector) -> bool:
    """Return whether the request takes the card too."""
    return any(map(selector.takes_uuid, card.uuids)) and (not selector.indices or card.index in selector.indices)


def _is_held(card: ComputeCard, held: Collection[str]) -> bool:
    return any(uuid in held for uuid in card.uuids)


def _in_force(binding: Binding) -> bool:
    return binding.state not in (BindingState.DRAINING, BindingState.INVALID)
