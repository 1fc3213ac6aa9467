"""The cards that a pod may get by the bindings of its application, by node, and the amounts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from ullage.binding.quotas import QuotaMeter
from ullage.binding.room import FULL, MODE_ORDER, TENANTS, BindingRejection, CardTenants, Hindrance
from ullage.binding.rows import as_binding
from ullage.binding.view import BindingView
from ullage.model.binding import Binding, BindingMismatch, BindingState, Consume, ShareMode, Tenant, match_bindings
from ullage.model.compute import AppKey, BoundCard, ComputeCard
from ullage.model.compute_result import BindingQuotaUse
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement


class PermittedCard(NamedTuple):
    binding: Binding
    card: ComputeCard


@dataclass(frozen=True, slots=True)
class Permit:
    """For each node, the cards from which a pod gets its own, or the reason why there are none."""

    places: Mapping[str, Place] = field(default_factory=dict)
    refused: Mapping[str, BindingRejection] = field(default_factory=dict)

    @property
    def short(self) -> BindingRejection | None:
        """The rejection of the node with the most free cards, if all nodes only have too few."""
        found = self.refused.values()
        if self.places or any(each.code not in (Hindrance.TOO_FEW, Hindrance.NOT_HERE) for each in found):
            return None
        return max(found, key=lambda each: each.had, default=None)

    @property
    def sentence(self) -> str:
        """What the first full card lacks, with its amounts; "" if no bound card is full."""
        full = (each.sentence for each in self.refused.values() if each.code in FULL)
        return next(full, "")


@dataclass(frozen=True, slots=True)
class Place:
    """Cards of one node with the same share mode, of which a pod gets `count`."""

    cards: tuple[PermittedCard, ...]
    count: int

    def under(self, asked: ResourceRequirement) -> ResourceRequirement:
        """Return the request as the bindings allow it: on these cards, with the bound memory.

        Exclusive cards are requested whole, and time-sliced ones without amounts. If the amounts of the cards differ,
        the smallest is requested of each, and `uneven` returns the real ones. A partition is not changed.
        """
        selector = replace(
            asked.cards, uuids=tuple(sorted(uuid for each in self.cards for uuid in each.card.uuids)), indices=()
        )
        if selector.isolation is Isolation.PARTITIONED:
            return replace(asked, gpu_count=self.count, cards=selector)
        part, isolation = self._part(asked)
        return replace(asked, gpu_count=self.count, part=part, cards=replace(selector, isolation=isolation))

    def uneven(self, asked: ResourceRequirement) -> dict[str, int]:
        """Return the bytes of each card by uuid if the pod gets all cards and their amounts differ; else nothing.

        If a binding has no amount, that of the pod counts.
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
    """Return the bytes of a card whose memory is sliced: those of the binding, else those of the pod."""
    if bound.binding.memory_bytes is not None:
        return bound.binding.memory_bytes
    total = bound.card.memory_bytes
    return total if own is None else own.on(0, total)[1]


_Key = tuple[bool, str]
"""The key of a binding."""


def rejections(
    cards: Mapping[str, ComputeCard],
    bindings: Iterable[Binding],
    tenants: int = TENANTS,
    beyond: Callable[[Binding, ComputeCard], BindingQuotaUse | None] = lambda _binding, _card: None,
) -> dict[_Key, BindingRejection]:
    """Return why cards have no room for some of their bindings, by key. Earlier bindings take precedence.

    `cards` are by id. `beyond` returns the quota that a binding exceeds. A draining binding takes its room until it is
    gone.
    """
    rooms = {uuid: CardTenants(card, tenants) for uuid, card in cards.items()}
    rejected: dict[_Key, BindingRejection] = {}
    for each in bindings:
        card, room = cards[each.uuid], rooms[each.uuid]
        app, memory = AppKey(each.app, each.owner, each.namespace), each.memory_bytes or 0
        why = None if each.state is BindingState.DRAINING else room.reject(memory, app)
        if why is None and (over := beyond(each, card)) is not None:
            code, _, detail = over.code.partition(":")
            why = BindingRejection(Hindrance(code), detail, note=over.sentence)
        if why is None:
            room.add(app, card.share, memory)
        else:
            rejected[each.key] = why
    return rejected


class BindingClaims:
    """The existing bindings in their order of precedence, on the existing cards.

    With `strict`, a binding without an owner or a namespace matches no pod.
    """

    def __init__(self, own: BindingView, bindings: Iterable[Binding], *, strict: bool = False) -> None:
        """`own` has the rows of the ledger, which come first. `bindings` are the foreign ones, the oldest first."""
        self._strict, self._cards, self._tenants = strict, own.inventory.by_device, own.tenants
        self._of_app: defaultdict[str, list[Binding]] = defaultdict(list)
        self._on_card: defaultdict[str, list[Binding]] = defaultdict(list)
        self._rejected: dict[str, dict[_Key, BindingRejection]] = {}
        self._own, self._all = own, (*map(as_binding, own.rows), *bindings)
        self._stands_in = {uuid: card.id for card in self._cards.values() for uuid in card.represents}
        self._closed = {row.card.device for row in own.rows if row.draining and self._has_old_mode(row)}
        """Cards with a draining row that has another share mode than the card now."""
        for each in self._all:
            self._of_app[each.app].append(each)
            self._on_card[each.uuid].append(each)

    def _has_old_mode(self, row: BoundCard) -> bool:
        card = self._cards.get(row.card.device)
        return card is not None and card.share is not row.share

    def seen(self, binding: Binding) -> Binding:
        """Return a binding, which is invalid if its amount exceeds its card."""
        card = self._cards.get(binding.uuid)
        return binding if card is None or not card.memory_bytes else binding.on(card.memory_bytes)

    def invalid(self, binding: Binding) -> str:
        """Return why a binding is invalid; "" if it is valid. What cannot be read of it comes first."""
        if binding.state is BindingState.INVALID:
            return binding.reason or binding.state.value
        if self._strict and not (binding.owner and binding.namespace):
            return BindingMismatch.WILDCARD.value
        if binding.selector is None:
            return "spec.podSelector: it is null, and selects no pod; {} selects every pod"
        seen = self.seen(binding)
        return seen.reason or seen.state.value if seen.state is BindingState.INVALID else ""

    def reason(self, binding: Binding) -> str:
        """Return why a binding is not in force; "" if it is."""
        if why := self.invalid(binding):
            return why
        rejected = self.rejection(binding)
        return self.seen(binding).reason if rejected is None else rejected.sentence

    def rejection(self, binding: Binding) -> BindingRejection | None:
        """Return why the card of a valid binding rejects it now; None if it does not, or the card is unknown."""
        if binding.uuid in self._closed:
            return BindingRejection(Hindrance.DRAINING, binding.uuid)
        return self.crowded_out(binding)

    def crowded_out(self, binding: Binding) -> BindingRejection | None:
        """Return why earlier bindings leave no room on the card, or in a quota; None if they leave enough."""
        uuid = binding.uuid
        if uuid not in self._cards:
            return None
        if self._own.quotas:
            return self._over_quotas.get(binding.key)
        if uuid not in self._rejected:
            there = [self.seen(each) for each in self._on_card.get(uuid, ()) if not self.invalid(each)]
            self._rejected[uuid] = rejections({uuid: self._cards[uuid]}, there, self._tenants)
        return self._rejected[uuid].get(binding.key)

    @cached_property
    def _over_quotas(self) -> dict[_Key, BindingRejection]:
        """Why cards or quotas have no room, by the key of the binding. Quotas count over all cards."""
        meter = QuotaMeter(self._own)
        there = [self.seen(each) for each in self._all if not self.invalid(each) and each.uuid in self._cards]

        def beyond(binding: Binding, card: ComputeCard) -> BindingQuotaUse | None:
            return None if binding.row else meter.rejected(binding, card)

        return rejections(self._cards, there, self._tenants, beyond)

    def permit(
        self,
        tenant: Tenant,
        asked: ResourceRequirement,
        nodes: Collection[str],
        held: Collection[str],
        consume: Consume = Consume.ALL,
    ) -> Permit:
        """Return the permit of a pod. `held` are the cards of other pods of its application, owner and namespace."""
        found = self._mine(tenant)
        if isinstance(found, BindingRejection):
            return Permit(refused=dict.fromkeys(nodes, found))
        here, offered = defaultdict[str, list[PermittedCard]](list), set(nodes)
        for each in found:
            if each.card.node in offered and _chosen(each.card, asked.cards):
                here[each.card.node].append(each)
        judged = {node: self._place(cards, asked.gpu_count, held, consume) for node, cards in here.items()}
        places = {node: place for node, place in judged.items() if isinstance(place, Place)}
        nothing = BindingRejection(Hindrance.NOT_HERE, needed=asked.gpu_count)
        refused = dict.fromkeys((node for node in nodes if node not in places), nothing)
        return Permit(places, refused | {node: why for node, why in judged.items() if not isinstance(why, Place)})

    def _place(
        self, here: Sequence[PermittedCard], asked: int, held: Collection[str], consume: Consume
    ) -> Place | BindingRejection:
        """Return the cards of a node for a pod: all bound cards, or the requested number with the same share mode.

        All are given only if none of them is held. Otherwise cards come in `MODE_ORDER`, then the largest first.
        """
        rejected = [self.rejection(each.binding) for each in here]
        there = [each for each, why in zip(here, rejected, strict=True) if why is None]
        if not there:
            return next(filter(None, rejected))
        free = [each for each in there if not _is_held(each.card, held)]
        if consume is Consume.ALL:
            free = free if len(free) == len(there) else []
            groups = [tuple(free)] if len({each.card.share for each in free}) == 1 else []
        else:
            groups = [tuple(group) for _, group in groupby(sorted(free, key=_order), key=_order)]
        if len(free) < asked:
            return BindingRejection(Hindrance.TOO_FEW, needed=asked, had=len(free), helps=True)
        for cards in groups:
            if len(cards) >= asked:
                return Place(cards, len(cards) if consume is Consume.ALL else asked)
        return BindingRejection(Hindrance.MIXED, needed=asked, had=max(map(len, groups), default=0))

    def bound(self, tenant: Tenant) -> tuple[PermittedCard, ...] | BindingRejection:
        """Return the cards whose bindings for a pod are in force, held or not."""
        found = self._mine(tenant)
        if isinstance(found, BindingRejection):
            return found
        return tuple(each for each in found if self.rejection(each.binding) is None)

    def whole(self, tenant: Tenant, held: Collection[str]) -> frozenset[str] | BindingRejection:
        """Return the cards that a pod may hold whole: those bound exclusively to its application."""
        found = self.bound(tenant)
        if isinstance(found, BindingRejection):
            return found
        cards = (each.card for each in found if each.card.share is ShareMode.EXCLUSIVE)
        return frozenset(uuid for card in cards if not _is_held(card, held) for uuid in card.uuids)

    def others_on(self, tenant: Tenant, uuid: str) -> tuple[Binding, ...]:
        """Return the bindings in force that reserve a card for other applications."""
        keys = (key for key in (uuid, self._stands_in.get(uuid)) if key is not None)
        there = (self.seen(each) for key in keys for each in self._on_card.get(key, ()))
        in_force = (each for each in there if not self.invalid(each) and self.rejection(each) is None)
        return tuple(each for each in in_force if each.mismatch(tenant, strict=self._strict) is not None)

    def conflict(self, tenant: Tenant) -> tuple[Binding, ...]:
        """Return the bindings of a pod, with the status to show, if several owners conflict; else none."""
        found = match_bindings(filter(_in_force, self._of_name(tenant.app)), tenant, strict=self._strict)
        return found.conflicting

    def _of_name(self, app: str) -> list[Binding]:
        return [self.seen(each) for each in self._of_app.get(app, ())]

    def _mine(self, tenant: Tenant) -> list[PermittedCard] | BindingRejection:
        """Return the existing cards of a pod, each with its most specific binding of those in force."""
        if not tenant.app:
            return BindingRejection(Hindrance.NO_LABEL)
        there = self._of_name(tenant.app)
        found = match_bindings(filter(_in_force, there), tenant, strict=self._strict)
        if found.conflict:
            return BindingRejection(Hindrance.CONFLICT, " and ".join(owner or "nobody" for owner in found.owners))
        if found.bindings:
            by_card = {each.uuid: each for each in sorted(found.bindings, key=self._counts)}
            return [PermittedCard(by_card[uuid], self._cards[uuid]) for uuid in sorted(by_card) if uuid in self._cards]
        against = {each.mismatch(tenant, strict=self._strict) for each in there}
        if None in against:
            return BindingRejection(Hindrance.DRAINING)
        nearest = [why for why in BindingMismatch if why in against]
        return BindingRejection(nearest[-1] if nearest else Hindrance.NOT_BOUND)

    def _counts(self, binding: Binding) -> tuple[bool, bool]:
        """Return the order of bindings of a pod on one card, of which the last counts."""
        return self.rejection(binding) is None, not binding.legacy


def _order(bound: PermittedCard) -> tuple[int, int]:
    return MODE_ORDER[bound.card.share], -(bound.binding.memory_bytes or 0)


def _chosen(card: ComputeCard, selector: CardSelector) -> bool:
    """Return whether the card selector of the request accepts a card."""
    return any(map(selector.takes_uuid, card.uuids)) and (not selector.indices or card.index in selector.indices)


def _is_held(card: ComputeCard, held: Collection[str]) -> bool:
    return any(uuid in held for uuid in card.uuids)


def _in_force(binding: Binding) -> bool:
    return binding.state not in (BindingState.DRAINING, BindingState.INVALID)
