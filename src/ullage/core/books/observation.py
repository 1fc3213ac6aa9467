"""What a node itself shows of who holds what, against what the ledger says of it.

The node is right. An allocation whose cards it shows has what it shows and nothing else; one that it does not
show yet keeps what it was bound to for as long as it lives. What it shows of owners that are not known here is one
foreign entry of the ledger per node, so that nobody is given it, until the node stops showing it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeVar

from ullage.core.books.departed import Departed
from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import start
from ullage.core.kernel.columns import ZONES
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.holding import Holding, PodHolding, Use, ZoneAmounts, card_ids
from ullage.model.part import Isolation
from ullage.model.quantity import MAX_INT64
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, CPU, HUGEPAGES, MAX_ZONE_BYTES, MEMORY
from ullage.model.zone_placement import Rank, ZonePlacement

LAG_S = 60.0
"""How far what a node shows may be behind: a pod that is gone may still be shown, one that is bound not yet."""

_Id = TypeVar("_Id", int, str)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A node shows other ids of a resource than an allocation had by the ledger; ids of CPUs as text."""

    uid: str
    node: str
    resource: str
    bound: tuple[str, ...]
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of looking at a node.

    `changed` are allocations as the ledger has them now, `foreign` among them if that changed. `foreign` is what
    owners hold that are not known here, None if there is nothing; `owners` are these, as namespace/name or uid.
    `unknown` are ids of cards that the inventory of the node does not have. Cards that are held without such a
    name, or by number alone, are not free: a known owner keeps as many of its own, a stranger has others that are free.
    """

    node: str
    changed: tuple[Allocation, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    foreign: Allocation | None = None
    owners: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def observe(fleet: Fleet, departed: Departed, node: str, use: Use, now: float) -> Observation:
    """Return what the ledger has to say after a node of the fleet showed this; nothing is changed."""
    row = fleet.row_of[node]
    shown: dict[tuple[str, ...], list[Holding]] = {}
    strangers: dict[str, list[Holding]] = {}
    here = _on(fleet, row)
    for pod in use.pods:
        owners = _owners(fleet, here, node, pod)
        if owners:
            shown.setdefault(owners, []).extend(pod.containers)
        elif not _is_over(departed, node, pod, now, stale=use.stale):
            strangers.setdefault(_name(pod), []).extend(pod.containers)
    changed: list[Allocation] = []
    mismatches: list[Mismatch] = []
    for owners, containers in sorted(shown.items()):
        before = [fleet.ledger[uid] for uid in owners]
        for held, own in zip(before, _divided(_sum(fleet, row, containers), before), strict=True):
            after, differ = _healed(fleet, row, held, own, stale=use.stale)
            changed += [after] * (after != held)
            mismatches += differ
    foreign = _foreign(fleet, row, _sum(fleet, row, chain.from_iterable(strangers.values())), changed)
    changed += [] if foreign in (None, fleet.ledger.get(foreign_id(node))) else [foreign]
    named = tuple(sorted(owner for owner, containers in strangers.items() if any(map(_holds, containers))))
    unknown = sorted(set(card_ids(chain.from_iterable(pod.containers for pod in use.pods))) - _cards_of(fleet, row))
    return Observation(
        node=node,
        changed=tuple(changed),
        mismatches=tuple(mismatches),
        foreign=foreign,
        owners=named,
        unknown=tuple(unknown),
    )


def foreign_id(node: str) -> str:
    return f"foreign:{node}"


def held_by_zone(fleet: Fleet, node: str, amounts: ZoneAmounts) -> Allocation:
    """Return the foreign entry of a node on which pods outside the ledger hold these amounts, but no cards by name."""
    placement = ZonePlacement(
        memory=tuple((zone, amount) for zone, resource, amount in amounts if resource == MEMORY),
        rank=Rank.OBSERVED,
        amounts=tuple(each for each in amounts if MEMORY not in each),
    )
    return Allocation(
        foreign_id(node),
        node,
        ResourceRequirement(1),  # a requirement asks for something
        state=AllocationState.FOREIGN,
        placement=_in_zones(fleet, fleet.row_of[node], placement),
    )


def is_unconfirmed(held: Allocation, nodes: Collection[str], now: float) -> bool:
    """Return whether it is bound to one of these nodes, which show what they have, and was not shown in time."""
    late = start(held) + LAG_S < now
    return late and held.state is AllocationState.BOUND and held.node in nodes and not held.observed


# --- who ---


def _on(fleet: Fleet, row: int) -> list[Allocation]:
    """Return allocations of requests with cards of a node, by uid."""
    held = [fleet.ledger[uid] for uid in fleet.card_holders(fleet.cards_on(row))]
    return [each for each in held if each.claim is not None and each.node == fleet.nodes[row].name]


def _owners(fleet: Fleet, here: Iterable[Allocation], node: str, pod: PodHolding) -> tuple[str, ...]:
    """Return the allocations of a pod on a node: by its uid, else by its name where one of the two uids is missing."""
    named = fleet.ledger.get(pod.uid) if pod.uid != foreign_id(node) else None
    found = {named.id} if named is not None and named.node == node else set()
    for held in here:
        assert held.claim is not None
        if pod.uid and held.claim.pod_uid:
            found |= {held.id} if held.claim.pod_uid == pod.uid else set()
        elif pod.name and (held.claim.namespace, held.claim.pod) == (pod.namespace, pod.name):
            found.add(held.id)
    return tuple(sorted(found))


def _is_over(departed: Departed, node: str, pod: PodHolding, now: float, *, stale: bool) -> bool:
    """Return whether a pod that is not in the ledger has just left it; for what outlives pods, whether it ever did."""
    since = departed.since(node, pod.uid, pod.namespace, pod.name)
    return since is not None and (stale or now - since <= LAG_S)


def _name(pod: PodHolding) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.name else pod.uid


# --- what ---


class _Shown(NamedTuple):
    """What is shown of a pod: cards by uuid and CPUs, each once; devices that are no cards; bytes by zone and kind.

    `unnamed` is how many more cards it has, of which it is not known which they are.
    """

    cards: tuple[str, ...]
    cpus: tuple[int, ...]
    devices: dict[str, tuple[str, ...]]
    memory: dict[tuple[int, str], int]
    bytes: int
    unnamed: int

    @property
    def anything(self) -> bool:
        return bool(self.cards or self.cpus or self.devices or self.memory or self.bytes)


def _holds(container: Holding) -> bool:
    return bool(container.cpus or container.devices or container.counts or container.memory)


def _unnamed(containers: Iterable[Holding], named: Collection[str]) -> int:
    """Return how many cards are held by ids that no card has, or by number alone.

    An id that continues the uuid of a card (`GPU-1-3`) is a share that a plugin made. Which cards the users of such
    shares have is known from their pods.
    """
    count = 0
    ids: set[str] = set()
    for container in containers:
        ids.update(card_ids([container]))
        count += sum(number for resource, number in container.counts if resource == CARD)
    return count + sum(id_ not in named and id_.rpartition("-")[0] not in named for id_ in ids)


def _cards_of(fleet: Fleet, row: int) -> set[str]:
    return set(fleet.uuids(fleet.cards_on(row)))


def _sum(fleet: Fleet, row: int, containers: Iterable[Holding]) -> _Shown:
    """Return all that containers hold of a node. Memory that spans several zones is taken evenly from them."""
    all_ = list(containers)
    named = _cards_of(fleet, row)
    cards = set(card_ids(all_)) & named
    devices: dict[str, set[str]] = {}
    memory: dict[tuple[int, str], int] = {}
    for container in all_:
        for resource, ids in container.devices:
            if resource != CARD and ids:
                devices.setdefault(resource, set()).update(ids)
        for block in container.memory:
            for number, zone in enumerate(block.zones):
                each, rest = divmod(block.amount_bytes, len(block.zones))
                key = zone, block.kind
                memory[key] = min(memory.get(key, 0) + each + (number < rest), MAX_ZONE_BYTES)
    return _Shown(
        cards=tuple(sorted(cards, key=fleet.card_of.__getitem__)),
        cpus=tuple(sorted({cpu for container in all_ for cpu in container.cpus})),
        devices={resource: tuple(sorted(ids)) for resource, ids in sorted(devices.items())},
        memory={key: amount for key, amount in sorted(memory.items()) if amount},
        bytes=sum(block.amount_bytes for container in all_ for block in container.memory if block.kind == MEMORY),
        unnamed=_unnamed(all_, named),
    )


def _divided(shown: _Shown, each: Sequence[Allocation]) -> list[_Shown]:
    """Return what is shown of a pod among its allocations: its memory is the first one's."""
    if len(each) == 1:
        return [shown]
    known = [held.placement or ZonePlacement() for held in each]
    cards = _parts(shown.cards, [held.gpus for held in each])
    cpus = _parts(shown.cpus, [placement.cpus for placement in known])
    devices: list[dict[str, tuple[str, ...]]] = [{} for _ in each]
    for resource, ids in shown.devices.items():
        parts = _parts(ids, [dict(placement.devices).get(resource, ()) for placement in known])
        for own, part in zip(devices, parts, strict=True):
            own.update({resource: part} if part else {})
    rest: list[tuple[dict[tuple[int, str], int], int, int]] = [(shown.memory, shown.bytes, shown.unnamed)]
    rest += [({}, 0, shown.unnamed)] * (len(each) - 1)
    return [_Shown(*part) for part in zip(cards, cpus, devices, *zip(*rest, strict=True), strict=True)]


def _parts(shown: Sequence[_Id], each: Sequence[Sequence[_Id]]) -> list[tuple[_Id, ...]]:
    """Share what is shown among its allocations: each keeps its own and its number; the last gets the rest."""
    free = [id_ for id_ in shown if not any(id_ in own for own in each)]
    parts: list[list[_Id]] = []
    for number, own in enumerate(each, start=1):
        kept = [id_ for id_ in shown if id_ in own]
        more = len(free) if number == len(each) else len(own) - len(kept)
        parts.append(kept + free[:more])
        free = free[more:]
    return [tuple(part) for part in parts]


# --- what it comes to ---


def _healed(
    fleet: Fleet, row: int, held: Allocation, shown: _Shown, *, stale: bool
) -> tuple[Allocation, list[Mismatch]]:
    """Return an allocation as its node shows it.

    All of it is replaced once its cards are shown, or anything where it has none. Until then, and by a file that is
    kept of some resources, only those are that are shown.
    """
    if not shown.anything:
        return held, []
    known = held.placement or ZonePlacement(rank=Rank.BOUND)
    seen = bool(shown.cards or not held.gpus)
    whole = seen and not stale
    unshown = [uuid for uuid in held.gpus if uuid not in shown.cards]
    gpus = _in_order((*shown.cards, *unshown[: shown.unnamed]), held.gpus) or held.gpus
    devices = {name: ids for name, ids in known.devices if name != CARD}
    after = shown.devices if whole else devices | shown.devices
    memory, pages = _by_kind(shown.memory)
    in_bytes = bool(whole or shown.memory)
    placement = ZonePlacement(
        cpus=shown.cpus if whole else shown.cpus or known.cpus,
        devices=tuple(sorted((after | ({CARD: gpus} if gpus else {})).items())),
        memory=memory if in_bytes else known.memory,
        rank=Rank.OBSERVED if seen else known.rank,
        rule=known.rule,
        amounts=tuple(sorted({*_amounts_kept(known, pages=not in_bytes), *pages})),
    )
    had = {CARD: held.gpus, CPU: tuple(map(str, known.cpus)), **devices}
    has = {CARD: gpus, CPU: tuple(map(str, placement.cpus)), **after}
    differ = [
        Mismatch(held.id, held.node, resource, bound=ids, shown=has.get(resource, ()))
        for resource, ids in had.items()
        if ids and set(ids) != set(has.get(resource, ()))
    ]
    changed = replace(held, gpus=gpus, charges=_charges(fleet, held, gpus), placement=_in_zones(fleet, row, placement))
    return changed, differ


def _foreign(fleet: Fleet, row: int, shown: _Shown, changed: Iterable[Allocation]) -> Allocation | None:
    """Return what all strangers on a node hold together: cards whole, whatever part they have of them.

    Of cards that are held without a name, those count that strangers had so far, then the first free ones.
    """
    if shown.unnamed:
        counted = (*shown.cards, *_free_cards(fleet, row, shown, changed)[: shown.unnamed])
        shown = shown._replace(cards=tuple(sorted(counted, key=fleet.card_of.__getitem__)))
    if not shown.anything:
        return None
    memory, pages = _by_kind(shown.memory)
    devices = dict(shown.devices) | ({CARD: shown.cards} if shown.cards else {})
    placement = ZonePlacement(
        cpus=shown.cpus,
        devices=tuple(sorted(devices.items())),
        memory=memory,
        rank=Rank.OBSERVED,
        amounts=pages,
    )
    cpu, bytes_ = len(shown.cpus) * MILLI, min(shown.bytes, MAX_INT64)
    nothing = not (cpu or bytes_ or shown.cards)  # but a device, or huge pages; a requirement asks for something
    return Allocation(
        foreign_id(fleet.nodes[row].name),
        fleet.nodes[row].name,
        ResourceRequirement(cpu + nothing, bytes_, len(shown.cards)),
        gpus=shown.cards,
        state=AllocationState.FOREIGN,
        placement=_in_zones(fleet, row, placement),
    )


def _free_cards(fleet: Fleet, row: int, shown: _Shown, changed: Iterable[Allocation]) -> list[str]:
    """Return the cards that neither the ledger nor the node shows with an owner; first those strangers had so far."""
    uid = foreign_id(fleet.nodes[row].name)
    before = fleet.ledger[uid].gpus if uid in fleet.ledger else ()
    taken = {*shown.cards, *(uuid for held in changed for uuid in held.gpus)}
    cards = fleet.cards_on(row)
    free = [
        uuid
        for card, uuid in zip(cards, fleet.uuids(cards), strict=True)
        if uuid not in taken and not fleet.holders[card].keys() - {uid}
    ]
    return sorted(free, key=lambda uuid: uuid not in before)


def _in_order(cards: Sequence[str], as_before: Sequence[str]) -> tuple[str, ...]:
    """Return its cards: those that it had keep their order, which is that of its charges."""
    return (*(uuid for uuid in as_before if uuid in cards), *(uuid for uuid in cards if uuid not in as_before))


def _charges(fleet: Fleet, held: Allocation, gpus: Sequence[str]) -> tuple[Charge, ...]:
    """Return what it takes of each of its cards; on a card that is new to it, what it asked, with an unknown place."""
    if not held.charges:
        return ()
    had = dict(zip(held.gpus, held.charges, strict=True))
    return tuple(had[uuid] if uuid in had else _charge(fleet, uuid, held.requirement) for uuid in gpus)


def _charge(fleet: Fleet, uuid: str, asked: ResourceRequirement) -> Charge:
    gpu = fleet.cards[fleet.card_of[uuid]]
    compute, vram = fleet.amounts_on(gpu, asked) or (gpu.compute, gpu.vram)
    charge = Charge(min(compute, gpu.compute), min(vram, gpu.vram), asked.cards.isolation)
    return charge.with_basis(gpu, None if asked.cards.isolation is Isolation.PARTITIONED else asked.part)


def _by_kind(
    memory: dict[tuple[int, str], int],
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, str, int], ...]]:
    """Memory by zone, and the rest as amounts."""
    plain = tuple((zone, amount) for (zone, kind), amount in memory.items() if kind == MEMORY)
    return plain, tuple((zone, kind, amount) for (zone, kind), amount in memory.items() if kind != MEMORY)


def _amounts_kept(known: ZonePlacement, *, pages: bool) -> Iterator[tuple[int, str, int]]:
    """Amounts that what is shown says nothing of: in which zones a machine without ids has them."""
    return (amount for amount in known.amounts if pages or not amount[1].startswith(HUGEPAGES))


def _in_zones(fleet: Fleet, row: int, placement: ZonePlacement) -> ZonePlacement:
    """Return the placement with the zones that it touches."""
    uuids = dict(placement.devices).get(CARD, ())
    masks = [fleet.card_rows.item(fleet.card_of[uuid], ZONES) for uuid in uuids]
    return replace(placement, zones=fleet.board.zones_of(row, placement, masks))
