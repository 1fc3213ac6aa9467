"""Which cards of which nodes a pod may have by the bindings of its application, and how much of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from ullage.binding.room import FULL, TENANTS, BindingRejection, CardTenants, Hindrance
from ullage.binding.rows import as_binding
from ullage.binding.view import BindingView
from ullage.model.binding import Binding, BindingMismatch, BindingState, Consume, ShareMode, Tenant, matched
from ullage.model.compute import AppKey, BoundCard, ComputeCard
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quantity import PPM
from ullage.model.request import ResourceRequirement


class PermittedCard(NamedTuple):
    """A card that a pod may have, and by which binding."""

    binding: Binding
    card: ComputeCard


@dataclass(frozen=True, slots=True)
class Permit:
    """By node, the cards among which a pod gets its own, or why there are none."""

    places: Mapping[str, Place] = field(default_factory=dict)
    refused: Mapping[str, BindingRejection] = field(default_factory=dict)

    @property
    def short(self) -> BindingRejection | None:
        """The rejection by the node with the most cards left, if nothing but their number is the reason."""
        found = self.refused.values()
        if self.places or any(each.code not in (Hindrance.TOO_FEW, Hindrance.NOT_HERE) for each in found):
            return None
        return max(found, key=lambda each: each.had, default=None)

    @property
    def sentence(self) -> str:
        """What the first card without room lacks, with its amounts; "" if bound cards have room, or there are none."""
        full = (each.sentence for each in self.refused.values() if each.code in FULL)
        return next(full, "")


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


def standing(card: ComputeCard, bindings: Iterable[Binding], tenants: int = TENANTS) -> dict[str, BindingRejection]:
    """Return why the card has no room for some of its bindings, by their names. The first bindings are in force.

    One that drains counts until it is over.
    """
    room = CardTenants(card, tenants)
    rejected: dict[str, BindingRejection] = {}
    for each in bindings:
        app, memory = AppKey(each.app, each.owner, each.namespace), each.memory_bytes or 0
        why = None if each.state is BindingState.DRAINING else room.reject(memory, app)
        if why is None:
            room.add(app, card.share, memory)
        else:
            rejected[each.name] = why
    return rejected


class BindingClaims:
    """Bindings that are there, in the order in which they count, on cards that are there.

    With `strict` a binding that names no owner or namespace is nobody's.
    """

    def __init__(self, own: BindingView, bindings: Iterable[Binding], *, strict: bool = False) -> None:
        """`own` has the rows of the ledger, which come first; `bindings` are those of others, the oldest first."""
        self._strict, self._cards, self._tenants = strict, own.inventory.by_device, own.tenants
        self._of_app: defaultdict[str, list[Binding]] = defaultdict(list)
        self._on_card: defaultdict[str, list[Binding]] = defaultdict(list)
        self._rejected: dict[str, dict[str, BindingRejection]] = {}
        self._stands_in = {uuid: card.id for card in self._cards.values() for uuid in card.stands_for}
        self._closed = {row.card.device for row in own.rows if row.draining and self._is_of_before(row)}
        """Cards that somebody still leaves who came while they were shared in another way."""
        for each in (*map(as_binding, own.rows), *bindings):
            self._of_app[each.app].append(each)
            self._on_card[each.uuid].append(each)

    def _is_of_before(self, row: BoundCard) -> bool:
        card = self._cards.get(row.card.device)
        return card is not None and card.share is not row.share

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
        rejected = self.rejection(binding)
        return self.seen(binding).reason if rejected is None else rejected.sentence

    def rejection(self, binding: Binding) -> BindingRejection | None:
        """Return why its card does not take a valid binding now; None if it does, or nothing is known of the card."""
        if binding.uuid in self._closed:
            return BindingRejection(Hindrance.DRAINING, binding.uuid)
        return self.crowded_out(binding)

    def crowded_out(self, binding: Binding) -> BindingRejection | None:
        """Return why the bindings that come first leave no room on its card; None if they do."""
        uuid = binding.uuid
        if uuid not in self._cards:
            return None
        if uuid not in self._rejected:
            there = [self.seen(each) for each in self._on_card.get(uuid, ()) if not self.invalid(each)]
            self._rejected[uuid] = standing(self._cards[uuid], there, self._tenants)
        return self._rejected[uuid].get(binding.name)

    def permit(
        self,
        tenant: Tenant,
        asked: ResourceRequirement,
        nodes: Collection[str],
        held: Collection[str],
        consume: Consume = Consume.ALL,
    ) -> Permit:
        """Return what a pod may have. `held` are cards held by other pods of its application, owner and namespace."""
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
        """Return the cards of a node for a pod: all that are bound there, or as many of one share mode as are asked.

        All are given only if none of them is held. Else the least shared cards come first, then the largest.
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
        """Return the cards that are bound for a pod and could take it now, held or not."""
        found = self._mine(tenant)
        if isinstance(found, BindingRejection):
            return found
        return tuple(each for each in found if self.rejection(each.binding) is None)

    def whole(self, tenant: Tenant, held: Collection[str]) -> frozenset[str] | BindingRejection:
        """Return the cards that a pod may hold whole: those that are bound for its application alone."""
        found = self.bound(tenant)
        if isinstance(found, BindingRejection):
            return found
        cards = (each.card for each in found if each.card.share is ShareMode.EXCLUSIVE)
        return frozenset(uuid for card in cards if not _is_held(card, held) for uuid in card.uuids)

    def others_on(self, tenant: Tenant, uuid: str) -> tuple[Binding, ...]:
        """Return the bindings that keep a card for other applications; those that the card has no room for do not."""
        keys = (key for key in (uuid, self._stands_in.get(uuid)) if key is not None)
        there = (self.seen(each) for key in keys for each in self._on_card.get(key, ()))
        in_force = (each for each in there if not self.invalid(each) and self.rejection(each) is None)
        return tuple(each for each in in_force if each.against(tenant, strict=self._strict) is not None)

    def conflict(self, tenant: Tenant) -> tuple[Binding, ...]:
        """Return the bindings of a pod as they are to be shown where they are of several owners; else none."""
        found = matched(filter(_in_force, self._of(tenant.app)), tenant, strict=self._strict)
        return found.shown if found.conflict else ()

    def _of(self, app: str) -> list[Binding]:
        return [self.seen(each) for each in self._of_app.get(app, ())]

    def _mine(self, tenant: Tenant) -> list[PermittedCard] | BindingRejection:
        """Return the cards of a pod that are there, each by the binding that says most about whose it is."""
        if not tenant.app:
            return BindingRejection(Hindrance.NO_LABEL)
        there = self._of(tenant.app)
        found = matched(filter(_in_force, there), tenant, strict=self._strict)
        if found.conflict:
            return BindingRejection(Hindrance.CONFLICT, " and ".join(owner or "nobody" for owner in found.owners))
        if found.bindings:
            by_card = {each.uuid: each for each in sorted(found.bindings, key=lambda each: not each.legacy)}
            return [PermittedCard(by_card[uuid], self._cards[uuid]) for uuid in sorted(by_card) if uuid in self._cards]
        against = {each.against(tenant, strict=self._strict) for each in there}
        if None in against:
            return BindingRejection(Hindrance.DRAINING)
        nearest = [why for why in BindingMismatch if why in against]
        return BindingRejection(nearest[-1] if nearest else Hindrance.NOT_BOUND)


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
