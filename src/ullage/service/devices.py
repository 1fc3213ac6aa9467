"""The devices that drivers offer, and the devices that claims have.

The API is the source of truth for claims; this is derived from it. A card that a claim has is held by the claim in
the books, so that no request gets it. If claims have parts of a card, the card is held for all of them together, and
the parts are counted here.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ullage.core.verdict.device_use import DeviceUse
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.card_driver import NVIDIA, CardDriver, device_sort_key
from ullage.model.claim import Claim
from ullage.model.device_claim import DeviceClaim, DeviceResult, UnreadDevices
from ullage.model.error import Conflict, UllageError
from ullage.model.gpu import Gpu
from ullage.model.links import links_by_group
from ullage.model.part import CardSelector
from ullage.model.quantity import MAX_INT32
from ullage.model.request import ResourceRequirement
from ullage.model.slice_device import DeviceId, Pool, SliceDevice, TaintRule
from ullage.model.topology import CARD, Link, Path
from ullage.model.zone_placement import Rank, ZonePlacement
from ullage.service.cluster import Cluster
from ullage.service.known_card import KnownCard, known_card

KEPT_S = 60.0
"""Seconds after which the outcome of a write is read from the API if the watch has not reported it."""

_MAX_REPORTED_ERRORS = 4096
_PARTS = "parts of "

PoolKey = tuple[str, str]
OnError = Callable[[str, str, UllageError], None]
"""Called with an object that contradicts the books: its kind, its namespace and name, and the error."""


@dataclass(frozen=True, slots=True)
class _Holding:
    """The cards of a claim, by uuid: whole cards, and cards of which it has parts."""

    whole: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    """The devices that are being written to a claim. Once written, the outcome is not read before `until` (seconds)."""

    results: tuple[DeviceResult, ...]
    until: float | None = None


class Devices:
    """Follows pools and claims. Call `settle` before reading the books of cards."""

    def __init__(
        self,
        cluster: Cluster,
        drivers: Sequence[CardDriver] = (NVIDIA,),
        *,
        clock: Callable[[], float],
        on_error: OnError = lambda _kind, _name, _error: None,
    ) -> None:
        self._cluster, self._drivers = cluster, drivers
        self._clock, self._on_error = clock, on_error
        self._reported: dict[PoolKey, Pool] = {}
        self._rules: dict[str, TaintRule] = {}
        self._pools: dict[PoolKey, Pool] = {}
        """The same with the taints of all rules."""
        self._pools_on: dict[str, set[PoolKey]] = {}
        self._roaming: set[PoolKey] = set()
        self._claims: dict[str, DeviceClaim] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._pending_writes: dict[str, _PendingWrite] = {}
        self._known: dict[DeviceId, KnownCard] = {}
        self._results: dict[PoolKey, dict[str, list[DeviceResult]]] = {}
        self._counted: dict[str, tuple[DeviceResult, ...]] = {}
        """The devices of each claim that are counted in the results of pools, by uid."""
        self._changes = itertools.count(1)
        self._changed_pool: dict[PoolKey, int] = {}
        self._changed_on: dict[str, int] = {}
        """When what is offered on a node changed last."""
        self._changed_anywhere = 0
        self._holdings: dict[str, _Holding] = {}
        self._sharers: dict[str, set[str]] = {}
        self._owner_of: dict[str, str] = {}
        """By claim: the pod whose uid has the cards of the claim in the books, for claims to resources of pods."""
        self._unread: dict[str, UnreadDevices] = {}
        """The devices that unreadable claims may have, by uid of the claim."""
        self._dirty: set[str] = set()
        self._fleet: object = None
        self._reported_errors: set[tuple[str, str]] = set()

    def set_pool(self, key: PoolKey, pool: Pool | None) -> frozenset[str]:
        """Enter a pool as its driver reports it. Return the nodes whose cards may have changed."""
        self._reported.pop(key, None)
        if pool is not None:
            self._reported[key] = pool
            pool = self._tainted(pool)
        before, empty = self._pools.pop(key, None), Pool(*key)
        if pool is not None:
            self._pools[key] = pool
        nodes = {device.node for each in (before or empty, pool or empty) for device in each.devices}
        for node in nodes - {""}:
            there = self._pools_on.setdefault(node, set())
            there.add(key) if pool and any(d.node == node for d in pool.devices) else there.discard(key)
        roams = pool is not None and (not pool.complete or any(not device.node for device in pool.devices))
        self._roaming.add(key) if roams else self._roaming.discard(key)
        for device in (pool or empty).devices:
            known = known_card(device, pool or empty, self._drivers)
            if known is not None:
                self._known[device.id] = known
        for uid in self._results.get(key, {}):
            self._hold(uid)
        if (before is not None and not before.complete) or (pool is not None and not pool.complete) or "" in nodes:
            self._changed_anywhere = next(self._changes)
        self._changed_on.update(dict.fromkeys(nodes, next(self._changes)))
        return frozenset(nodes - {""})

    def set_taint_rule(self, name: str, rule: TaintRule | None) -> None:
        """Enter a rule, or remove it with None."""
        before = self._rules.pop(name, None)
        if rule is not None:
            self._rules[name] = rule
        about = [each for each in (before, rule) if each is not None]
        for key, pool in self._reported.items():
            if before != rule and any(each.applies_to(device) for each in about for device in pool.devices):
                self._pools[key] = self._tainted(pool)
                self._changed_pool[key] = next(self._changes)

    def _tainted(self, pool: Pool) -> Pool:
        if not self._rules:
            return pool
        rules = [rule for _, rule in sorted(self._rules.items())]
        return replace(pool, devices=tuple(_with(device, rules) for device in pool.devices))

    def set_claim(self, claim: DeviceClaim) -> None:
        """Enter a claim as the API reports it.

        A watch may be behind: devices other than those being written are of an earlier allocation, and free nothing.
        """
        self._claims[claim.uid] = claim
        self._by_name[claim.namespace, claim.name] = claim.uid
        if self.has_what_was_written(claim):
            del self._pending_writes[claim.uid]
        self._count(claim.uid)

    def remove_claim(self, uid: str) -> None:
        """Remove a claim, and free its devices."""
        claim = self._claims.pop(uid, None)
        if claim is not None and self._by_name.get((claim.namespace, claim.name)) == uid:
            del self._by_name[claim.namespace, claim.name]
        self._pending_writes.pop(uid, None)
        self._count(uid)

    def withhold(self, uid: str, unread: UnreadDevices | None) -> None:
        """Keep new work off the devices that an unreadable claim may have; with None the claim is readable again."""
        before = self._unread.pop(uid, None)
        if unread is not None:
            self._unread[uid] = unread
        if before != unread:
            self._changed_anywhere = next(self._changes)

    @property
    def withheld(self) -> frozenset[str]:
        """The nodes of which no card is allocated, because an unreadable claim may have one of their cards."""
        return frozenset(node for unread in self._unread.values() for node in self._nodes_of(unread))

    def _nodes_of(self, unread: UnreadDevices) -> Collection[str]:
        """Return the nodes with cards among these devices; all their nodes if no such pool is offered now."""
        pools = [pool for key, pool in self._pools.items() if unread.applies_to(*key)]
        if not unread.pools or not pools:
            return unread.nodes or self._pools_on.keys()
        there = {device.node for pool in pools for device in pool.devices if device.id in self._known}
        return there & unread.nodes if unread.nodes else there

    def _is_closed(self, key: PoolKey, node: str) -> bool:
        """Return whether a pool is closed to work on a node: an unreadable claim may have one of its devices."""
        return any(
            unread.applies_to(*key) and (not unread.nodes or node in unread.nodes or key in self._roaming)
            for unread in self._unread.values()
        )

    def named(self, namespace: str, name: str) -> DeviceClaim | None:
        """Return the claim of that name; None if there is none."""
        uid = self._by_name.get((namespace, name))
        return None if uid is None else self._claims[uid]

    def _card_devices(self, node: str) -> list[tuple[SliceDevice, CardDriver]]:
        """Return the devices of a node that are whole cards, each with its driver, in their order."""
        devices = [
            (device, driver)
            for key in self._pools_on.get(node, ())
            for device in self._pools[key].devices
            for driver in self._drivers
            if device.node == node and driver.is_card(device)
        ]
        return sorted(devices, key=_position)

    def links_on(self, node: str) -> tuple[Link, ...]:
        """Return the links between the cards of a node that follow from their attributes.

        Cards with the same PCIe root are below one host bridge. Cards with the same island, as their driver calls it,
        have an NVLink; how many they have is not known.
        """
        roots, islands = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for device, driver in self._card_devices(node):
            uuid = driver.gpu(device, 0).uuid
            if device.pcie_root:
                roots[device.pcie_root].append(uuid)
            if driver.island and (name := device.text(driver.island)):
                islands[name].append(uuid)
        near = links_by_group(roots.values(), Path.PHB)
        joined = {(link.a, link.b) for link in links_by_group(islands.values(), Path.UNKNOWN, 1)}
        paths = {(link.a, link.b): link.path for link in near}
        pairs = sorted({*joined, *paths})
        return tuple(Link(*pair, paths.get(pair, Path.UNKNOWN), int(pair in joined)) for pair in pairs)

    def cards_on(self, node: str) -> tuple[Gpu, ...] | None:
        """Return the cards that drivers offer on a node; None if they offer none."""
        devices = self._card_devices(node)
        found = {device.uuid or driver.gpu(device, 0).uuid: (device, driver) for device, driver in devices}
        return tuple(driver.gpu(device, at) for at, (device, driver) in enumerate(found.values())) or None

    def cards_of(self, claim: DeviceClaim) -> tuple[str, ...]:
        """Return the cards that a claim was allocated, whole or in part, by uuid."""
        results = () if claim.allocation is None else claim.allocation.results
        found = (self._known.get(result.device) for result in results if not result.admin)
        return tuple(dict.fromkeys(known.uuid for known in found if known is not None))

    def claimed(self) -> Iterator[tuple[DeviceClaim, tuple[str, ...]]]:
        """Yield the claims that have cards according to the API, with these cards."""
        for claim in self._claims.values():
            if cards := self.cards_of(claim):
                yield claim, cards

    # --- the books ---

    def settle(self) -> None:
        """Write what claims hold to the books of cards."""
        fleet = self._cluster.allocator.fleet
        if fleet is not self._fleet:  # machines came or went: what was not there may be now
            self._fleet = fleet
            self._dirty |= self._holdings.keys() | {_PARTS + uuid for uuid in self._sharers}
        ids, self._dirty = self._dirty, set()
        for id_ in sorted(ids):
            self._enter(id_)

    def has_what_was_written(self, claim: DeviceClaim) -> bool:
        """Return whether a claim was allocated exactly the devices that were being written to it."""
        flight, allocation = self._pending_writes.get(claim.uid), claim.allocation
        return (
            flight is not None and allocation is not None and _devices(allocation.results) == _devices(flight.results)
        )

    def written(self, uid: str) -> None:
        """Note that the devices of a claim were written. They are held until the API reports the claim."""
        flight = self._pending_writes.get(uid)
        if flight is not None:
            self._pending_writes[uid] = replace(flight, until=self._clock() + KEPT_S)

    def is_being_written(self, uid: str) -> bool:
        """Return whether devices were chosen for a claim and the API has not reported them."""
        return uid in self._pending_writes

    def being_written(self) -> list[DeviceClaim]:
        """Return the claims whose chosen devices the API has not reported."""
        return [self._claims[uid] for uid in self._pending_writes if uid in self._claims]

    def overdue(self) -> list[DeviceClaim]:
        """Return the claims whose written devices the API should have reported by now."""
        now = self._clock()
        late = [uid for uid, flight in self._pending_writes.items() if flight.until is not None and flight.until <= now]
        return [self._claims[uid] for uid in late if uid in self._claims]

    def drop(self, uid: str) -> None:
        """Release the devices chosen for a claim: they were not written, or were taken back."""
        self._cluster.undo(uid)
        if self._pending_writes.pop(uid, None) is not None:
            self._count(uid)

    # --- questions of a choice ---

    def pools_of(self, node: str) -> list[Pool]:
        """Return the pools that may have devices for work on a node, in order."""
        there = sorted(self._pools_on.get(node, set()) | self._roaming)
        return [self._pools[key] for key in there if not self._is_closed(key, node)]

    def changed_on(self, node: str) -> int:
        """Return a number that grows whenever the devices for work on a node, or their use, change.

        Changes in the books of cards do not count.
        """
        pools = (self._changed_pool.get(key, 0) for key in (*self._pools_on.get(node, ()), *self._roaming))
        return max(self._changed_anywhere, self._changed_on.get(node, 0), *pools)

    def use_of(self, pools: Sequence[Pool]) -> DeviceUse:
        """Return what of these pools is in use."""
        use = DeviceUse({(pool.driver, pool.name): pool for pool in pools})
        for pool in pools:
            offered = {device.id: device for device in pool.devices}
            for results in self._results.get((pool.driver, pool.name), {}).values():
                for result in results:
                    use.enter(result, offered.get(result.device))
        return use

    def card(self, device: SliceDevice) -> str | None:
        """Return the card that a device is, if the books have it; else None."""
        known = self._known.get(device.id)
        return self.card_under(device) if known is not None and known.whole else None

    def card_under(self, device: SliceDevice) -> str | None:
        """Return the card that a device is, or is a part of, if the books have it; else None."""
        known = self._known.get(device.id)
        return known.uuid if known is not None and known.uuid in self._cluster.allocator.fleet.card_of else None

    def is_free(self, device: SliceDevice) -> bool:
        """Return whether nothing else holds the card, or the rest of it, according to the books."""
        fleet, known = self._cluster.allocator.fleet, self._known.get(device.id)
        if known is None or known.uuid not in fleet.card_of:
            return True
        card = fleet.card_of[known.uuid]
        holders = set(fleet.card_holders([card]))
        if known.whole:
            return not holders and fleet.cards[card].usable
        return not holders - {_PARTS + known.uuid}

    def hold_devices(self, uid: str, results: Sequence[DeviceResult]) -> None:
        """Hold the devices chosen for a claim, until `written` is followed by a report of the API, or `drop`."""
        self._pending_writes[uid] = _PendingWrite(tuple(results))
        self._count(uid)

    def owner(self, claim: DeviceClaim) -> Claim:
        """Return the owner of a claim in the books: it is never evicted, and counts in the quota of its namespace."""
        owner = claim.owner if claim.extended else ""
        labels = dict(claim.labels)
        return Claim(claim.namespace, workload=claim.name, pod_uid=owner, priority=MAX_INT32, labels=labels)

    # --- what claims hold ---

    def _count(self, uid: str) -> None:
        """Count what a claim was allocated, or is about to be."""
        before, now = self._counted.pop(uid, ()), self._results_of(uid)
        if now:
            self._counted[uid] = now
        if now != before:
            pools = {(result.device.driver, result.device.pool) for result in (*before, *now)}
            for key in pools:
                there = self._results.setdefault(key, {})
                there.pop(uid, None)
                self._changed_pool[key] = next(self._changes)
            for result in now:
                self._results[result.device.driver, result.device.pool].setdefault(uid, []).append(result)
            for key in pools:
                if not self._results[key]:
                    del self._results[key]
        self._hold(uid)

    def _results_of(self, uid: str) -> tuple[DeviceResult, ...]:
        claim, flight = self._claims.get(uid), self._pending_writes.get(uid)
        held = () if claim is None or claim.allocation is None else claim.allocation.results
        return held if flight is None else (*held, *flight.results)

    def _hold(self, uid: str) -> None:
        whole, parts = dict[str, None](), dict[str, None]()
        for result in self._results_of(uid):
            known = self._known.get(result.device)
            if known is not None and not result.admin:
                (whole if known.whole and not result.share else parts)[known.uuid] = None
        before = self._holdings.pop(uid, _Holding())
        now = _Holding(tuple(whole), tuple(parts))
        if now != _Holding():
            self._holdings[uid] = now
        for uuid in {*before.parts, *now.parts}:
            sharers = self._sharers.setdefault(uuid, set())
            sharers.add(uid) if uuid in now.parts else sharers.discard(uid)
            if not sharers:
                del self._sharers[uuid]
            self._dirty.add(_PARTS + uuid)
        self._dirty.add(uid)

    def _enter(self, id_: str) -> None:
        if id_.startswith(_PARTS):
            uuid = id_.removeprefix(_PARTS)
            sharers = sorted(self._sharers.get(uuid, ()))
            no_owner = Claim("", workload=id_, priority=MAX_INT32)  # it is in no namespace's quota
            self._put(id_, (uuid,) if sharers else (), no_owner, sharers[:1])
            return
        claim, whole = self._claims.get(id_), self._holdings.get(id_, _Holding()).whole
        if id_ in self._pending_writes:
            return  # the books hold it by themselves
        if id_ in self._owner_of and not whole:
            self._cluster.free(self._owner_of.pop(id_))
        elif claim is not None and claim.extended and claim.owner:
            if whole:
                self._owner_of[id_] = claim.owner
                held = self._cluster.held(claim.owner)
                self._put(claim.owner, whole, (held and held.claim) or self.owner(claim), [id_])
        else:
            self._put(id_, whole, Claim() if claim is None else self.owner(claim), [id_])

    def _put(self, id_: str, cards: tuple[str, ...], owner: Claim, uids: Sequence[str]) -> None:
        """Enter in the books that exactly these cards are held under an id."""
        fleet = self._cluster.allocator.fleet
        there = tuple(sorted((uuid for uuid in cards if uuid in fleet.card_of), key=fleet.card_of.__getitem__))
        held = self._cluster.held(id_)
        if not there:
            if held is not None:
                self._cluster.free(id_)
            return
        if held is not None and held.gpus == there and held.state is not AllocationState.ASSUMED:
            return
        first, *_ = at = [fleet.card_of[uuid] for uuid in there]
        node = fleet.nodes[fleet.card_row.item(first)].name
        others = sorted({*fleet.card_holders(at)} - {id_})
        if others:
            message = f"{', '.join(there)} of {node}: {', '.join(others)} has it too, by the books"
            self.report("ResourceClaim", self._name(uids), Conflict(message, code="card-held-twice"))
        if held is not None and held.gpus != there:
            self._cluster.free(id_)
        room = (0, 0) if held is None else (held.requirement.cpu_milli, held.requirement.memory_bytes)
        asked = ResourceRequirement(*room, len(there), cards=CardSelector(uuids=there))
        observed = ZonePlacement(devices=((CARD, there),), rank=Rank.OBSERVED)
        bound = AllocationState.BOUND
        try:
            self._cluster.adopt(Allocation(id_, node, asked, there, state=bound, claim=owner, placement=observed))
        except UllageError as error:
            self.report("ResourceClaim", self._name(uids), error)

    def _name(self, uids: Sequence[str]) -> str:
        claim = next(map(self._claims.get, uids), None)
        return "" if claim is None else f"{claim.namespace}/{claim.name}"

    def report(self, kind: str, name: str, error: UllageError) -> None:
        """Report an error, each one once."""
        key = name, error.message
        if key not in self._reported_errors:
            if len(self._reported_errors) >= _MAX_REPORTED_ERRORS:
                self._reported_errors.clear()
            self._reported_errors.add(key)
            self._on_error(kind, name, error)


def _position(offered: tuple[SliceDevice, CardDriver]) -> tuple[int, str, str]:
    device, _ = offered
    return device_sort_key(device)


def _with(device: SliceDevice, rules: Sequence[TaintRule]) -> SliceDevice:
    more = tuple(rule.taint for rule in rules if rule.applies_to(device))
    return replace(device, taints=device.taints + more) if more else device


def _devices(results: Sequence[DeviceResult]) -> frozenset[DeviceId]:
    return frozenset(result.device for result in results)
