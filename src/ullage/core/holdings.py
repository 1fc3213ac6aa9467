"""Who holds what of a fleet: entered, given back, and found outside.

It decides nothing: whether a request may have a place is the allocator's question. Identity is the uid of a request; a
repeated operation is answered, not repeated. Malformed input, unknown names and wrong states raise. Times are seconds
of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ullage.core.books.bind_handlers import BindHandlers, Handler
from ullage.core.books.capacity import CardRoom, room_of
from ullage.core.books.departed import Departed, Freed
from ullage.core.books.fleet import Fleet
from ullage.core.books.following import (
    as_they_are,
    contradiction,
    followed,
    found_mixed,
    remembering,
    still_mixed,
    with_missing,
)
from ullage.core.books.inventory_check import check_inventory
from ullage.core.books.observation import Observation, foreign_id, held_by_zone, is_unconfirmed, observe
from ullage.core.books.places import check_places
from ullage.core.books.usage import OtherUsage
from ullage.core.learning.learned import Learning
from ullage.core.placing.nomination import NO_NOMINATIONS, Promised
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.error import Conflict, NotFound
from ullage.model.holding import Use, ZoneAmounts
from ullage.model.node import Node
from ullage.model.nomination import Nomination

ASSUMED_TTL_S = 1800.0
"""How long an allocation may stay assumed before it is swept."""


class Holdings:
    """The ledger of one fleet, what is reserved ahead in it, and what changed since it was last mirrored.

    `version` grows with each change that may let a waiting request in.
    """

    def __init__(self, fleet: Fleet, learning: Learning | None = None) -> None:
        self.fleet, self._card_pools = fleet, _pools_of(fleet)
        self.learning = learning or Learning()
        self.learning.follow(fleet)
        self.nominations = NO_NOMINATIONS
        self.version = 0
        self._dirty: set[str] = set()
        self._departed = Departed()
        self._handlers = BindHandlers()
        self._observed_at: dict[str, float] = {}

    # --- what is reserved ahead ---

    def nominate(self, *nominations: Nomination) -> None:
        """Keep room for requests, until they are placed or `withdraw` ends it; a second time replaces the first."""
        known = {entry.request.uid: entry for entry in self.nominations.entries}
        self.nominations = self.nominations.with_(*nominations)
        for each in nominations:
            before = known.get(each.request.uid)
            self.version += before is None or replace(before, since=each.since) != each

    def withdraw(self, uid: str) -> Nomination | None:
        """Keep no room for a request any more; what was kept, if there was anything."""
        known = self.nominations.of(uid) if self.nominations.entries else None
        if known is not None:
            self.nominations = self.nominations.without(uid)
            self.version += 1
        return known

    def promise_to_sessions(self, promised: tuple[Promised, ...]) -> None:
        """Keep these places from all requests, in place of those that were kept for sessions before."""
        if promised != self.nominations.sessions:
            self.nominations = replace(self.nominations, sessions=promised)
            self.version += 1

    # --- made durable, given back ---

    def commit(self, uid: str, now: float) -> Allocation:
        """Make an assumed allocation bound; a bound one is answered as it is.

        Raises:
            Conflict: the uid is not assumed.

        """
        known = self.held(uid)
        if known is None or known.state is AllocationState.RELEASING:
            raise Conflict(f"{uid} is not assumed; assume cards for it first", code="not-assumed")
        if known.state is AllocationState.BOUND:
            return known
        return self._enter(replace(known, state=AllocationState.BOUND, bound_at=now))

    def forget(self, uid: str, now: float) -> Allocation | None:
        """Undo an assumption, and keep no room; anything else is left as it is."""
        known = self.held(uid)
        self.withdraw(uid)
        return self._drop(uid, now) if known is not None and known.state is AllocationState.ASSUMED else None

    def rollback(self, uid: str, now: float) -> Allocation | None:
        """Undo a binding; anything else is left as it is."""
        known = self.held(uid)
        return self._drop(uid, now) if known is not None and known.state is AllocationState.BOUND else None

    def unreserve(self, uid: str, now: float) -> Allocation | None:
        """Undo whatever the uid holds, and keep no room for it."""
        known = self.held(uid)
        self.withdraw(uid)
        return None if known is None else self._drop(uid, now)

    def dealloc(self, uid: str, now: float, gpus: Sequence[str] | None = None) -> Freed:
        """Free all cards of an owner that is known to be gone, and keep no room for it; the ledger says which.

        An allocation that moves keeps its reserved place.

        A given list is only compared: other names are returned, and missing ones are freed too. It never
        refuses; a second call returns that. A request that only waited frees no cards.
        """
        moves = self.nominations.moving(self.fleet, uid)
        known, waited = self._drop(uid, now), None if moves else self.withdraw(uid)
        if known is None and waited is not None:
            return Freed(uid)
        if known is None:
            return Freed(uid, already_gone=uid in self._departed, unknown=uid not in self._departed)
        held = set(known.gpus)
        named = held if gpus is None else set(gpus)
        return Freed(uid, known.gpus, not_held=tuple(sorted(named - held)), not_named=tuple(sorted(held - named)))

    def release(self, uid: str, by: float | None = None, now: float | None = None) -> Allocation | None:
        """Mark an allocation as releasing: still charged, until its owner is known to be gone.

        That may be the caller's word, given at `now`, for the time `by`; of several the earliest counts, so that a
        repeat puts nothing off.
        """
        known = self.held(uid)
        if known is not None:
            if by is None or (known.release_by is not None and known.release_by <= by):
                by, now = known.release_by, known.released_at
            self._enter(replace(known, state=AllocationState.RELEASING, release_by=by, released_at=now))
        return self.fleet.ledger.get(uid)

    def leave(self, executor: str) -> None:
        """Release what belongs to no request, such as an executor that is gone.

        Raises:
            NotFound: the ledger has no such id.

        """
        self._dirty.update(self.fleet.release(executor).gpus)
        self.version += 1

    def dealloc_by_pod(self, namespace: str, pod: str, now: float, pod_uid: str | None = None) -> tuple[Freed, ...]:
        """Free what a pod holds or is kept for it: that of `pod_uid`, or of every pod of that name."""
        for entry in self.nominations.entries:
            claim = entry.request.claim
            if (claim.namespace, claim.pod) == (namespace, pod) and pod_uid in (None, entry.request.uid, claim.pod_uid):
                self.withdraw(entry.request.uid)
        return tuple(
            self.dealloc(allocation.id, now)
            for allocation in self.of_pod(namespace, pod)
            if pod_uid is None or pod_uid in (allocation.id, allocation.claim.pod_uid if allocation.claim else "")
        )

    def sweep(
        self,
        now: float,
        alive: Callable[[Allocation], bool],
        waits: Callable[[str], bool],
        ttl_s: float = ASSUMED_TTL_S,
    ) -> tuple[str, ...]:
        """Free what nobody owns any more: bound ones that are not `alive`, assumptions older than `ttl_s`.

        An assumption that still `waits` for its gang has its time renewed.
        """
        swept: list[str] = []
        for uid, allocation in sorted(self.fleet.ledger.items()):
            if allocation.claim is None:
                continue
            if allocation.state is not AllocationState.ASSUMED:
                gone = not alive(allocation)
            elif waits(uid) or allocation.assumed_at is None:
                self._enter(replace(allocation, assumed_at=now))
                gone = False
            else:
                gone = allocation.assumed_at + ttl_s < now
            if gone:
                self._drop(uid, now)
                swept.append(uid)
        return tuple(swept)

    # --- what was found outside ---

    def reconcile(self, found: Iterable[Allocation], now: float) -> tuple[str, ...]:
        """Make the ledger what was found, assumptions kept; the uids that differed. Twice is no difference.

        What is releasing stays so for as long as it is found, and what its node has shown stays as that is.

        Raises:
            NotFound: a node that is known does not have a card of an allocation. Conflict: an id is that of
                an executor, or two have the same place on a card. Nothing is changed then.

        """
        wanted = {allocation.id: self._found(allocation) for allocation in found}
        others = [known for uid, known in sorted(self.fleet.ledger.items()) if known.claim and uid not in wanted]
        kept = [known for known in others if known.state is AllocationState.ASSUMED]
        check_places(self.fleet.profiles, (*kept, *wanted.values()))
        changed: list[str] = []
        for known in others:
            if known.state is not AllocationState.ASSUMED:
                self._drop(known.id, now)
                changed.append(known.id)
        for uid, allocation in sorted(wanted.items()):
            if self.fleet.ledger.get(uid) != allocation:
                self._enter(allocation)
                changed.append(uid)
        self._mark_mixed(wanted)
        return tuple(sorted(changed))

    def observe(self, node: str, use: Use, now: float) -> Observation:
        """Enter what a node itself shows of who holds what there; it is right, see `core/books/observation.py`.

        Raises:
            NotFound: the node is not known.

        """
        if node not in self.fleet.row_of:
            raise NotFound(f"node {node!r} is not known", code="unknown-node", field="node")
        found = observe(self.fleet, self._departed, node, use, now=now)
        for held in found.changed:
            before = self.fleet.ledger.get(held.id)
            self._dirty.update(() if before is None else before.gpus)
            self._enter(held)
        self._mark_mixed(held.id for held in found.changed)
        if found.foreign is None and foreign_id(node) in self.fleet.ledger:
            self.leave(foreign_id(node))
        self._observed_at[node] = now
        return replace(found, changed=tuple(self.fleet.ledger[held.id] for held in found.changed))

    def set_zone_usage(self, node: str, amounts: ZoneAmounts) -> None:
        """Set what pods outside the ledger hold by zone of a node that does not show its holders."""
        uid = foreign_id(node)
        if node not in self.fleet.row_of:
            return
        if amounts:
            self._enter(held_by_zone(self.fleet, node, amounts))
        elif uid in self.fleet.ledger:
            self.leave(uid)

    def set_other_usage(self, node: str, has: OtherUsage) -> None:
        """Set what others use of a node, as `Fleet.set_other_usage`."""
        before = self.fleet.other_usage.get(node, OtherUsage())
        self.fleet.set_other_usage(node, has)
        if any(now < then for now, then in zip(has, before, strict=True)):
            self.version += 1  # who found no room may find some

    def adopt(self, *allocations: Allocation) -> dict[str, Conflict]:
        """Enter allocations that were found, whatever the books said of their uids; by uid what one contradicts.

        What is held is held: a place that was given twice has two holders, and is free when both are gone. A card of
        a known node that nobody reports is missing there, as one that vanished while it was held; of a node that is
        not known the holder follows its cards.

        Raises:
            Conflict: an id is that of an executor, or of what is foreign; nothing is changed then.

        """
        for allocation in allocations:
            self.held(allocation.id)
        at_home = [self._at_home(allocation) for allocation in allocations]
        if inventory := with_missing(self.fleet, at_home):
            self.set_nodes(inventory)
        entered = [self._enter(self._found(allocation)) for allocation in at_home]
        self._mark_mixed(held.id for held in entered)
        return {held.id: error for held in entered if (error := contradiction(self.fleet, held)) is not None}

    def set_nodes(self, nodes: Iterable[Node]) -> tuple[Allocation, ...]:
        """New facts about machines and cards; free capacity is derived again, nobody is evicted.

        A card that vanished while it is held stays on its node as a missing one, and an allocation follows
        its cards to another node. Returns the allocations, but executors', that follow or whose cards changed.

        Raises:
            InvalidRequest: the nodes cannot be, see `check_inventory`; nothing is changed then.

        """
        reported = tuple(nodes)
        check_inventory(reported)
        inventory, ledger = followed(self.fleet, reported)
        before, fleet = self.fleet.ledger, self.fleet.rebuilt(inventory, ledger)
        entered = [remembering(fleet, held) for held in ledger if not held.of_session]
        changed = [held for held in entered if (held, held.cards) != (before[held.id], before[held.id].cards)]
        for held in changed:
            fleet.replace(held)
        self._adopt(fleet)
        marked = self._mark_mixed(fleet.ledger)
        changed = [fleet.ledger[held.id] for held in changed]
        changed += [held for held in marked if not held.of_session and all(held.id != one.id for one in changed)]
        self._observed_at = {node: at for node, at in self._observed_at.items() if node in fleet.row_of}
        self._dirty.update(gpu.uuid for gpu in fleet.cards)
        self.version += 1
        return tuple(changed)

    @contextmanager
    def supposing(self, nodes: Iterable[Node]) -> Iterator[None]:
        """Have questions in the block answered as if these machines were there too. It must change nothing."""
        books, pools = self.fleet, self._card_pools
        self.fleet = books.rebuilt((*books.nodes, *nodes), books.ledger.values())
        self._card_pools = _pools_of(self.fleet)
        try:
            yield
        finally:
            self.fleet, self._card_pools = books, pools

    def recall_departed(self, uids: Mapping[str, float]) -> None:
        """After a restart: whose cards were given back lately, each with when, in that order."""
        self._departed.recall(uids)

    def resume_observed(self, node: str, at: float) -> None:
        """After a restart: when a node last showed what it has."""
        self._observed_at[node] = at

    # --- mirrors of the state ---

    def register_bind_handler(self, handler: Handler) -> Callable[[], None]:
        """Call `handler` once for each allocation that is durably bound; call the answer to stop."""
        return self._handlers.register(handler)

    def notify_bound(self, uid: str) -> tuple[BaseException, ...]:
        """Call the handlers of a durable binding, once per uid. Return their errors, which stop no other handler."""
        return self._handlers.notify(self.fleet.ledger[uid]) if self.is_bound(uid) else ()

    def take_dirty(self) -> frozenset[str]:
        """Return the cards that changed since the last call. Pass to `requeue` what could not be written."""
        dirty, self._dirty = frozenset(self._dirty), set()
        return dirty

    def requeue(self, gpus: Iterable[str]) -> None:
        """Add cards whose state could not be mirrored. Cards that are gone are left out."""
        self._dirty.update(uuid for uuid in gpus if uuid in self.fleet.card_of)

    # --- queries ---

    def held(self, uid: str) -> Allocation | None:
        """Return what a request holds.

        Raises:
            Conflict: the id is that of an executor or of what is foreign, which is no request.

        """
        known = self.fleet.ledger.get(uid)
        if known is not None and known.claim is None:
            whose = "an executor of a session" if known.of_session else "what a node shows of others"
            raise Conflict(f"{uid} is {whose}; choose another uid", code="uid-taken", field="uid")
        return known

    def is_bound(self, uid: str) -> bool:
        """Return whether the allocation of a uid is bound."""
        known = self.held(uid)
        return known is not None and known.state is AllocationState.BOUND

    def of_pod(self, namespace: str, pod: str) -> tuple[Allocation, ...]:
        """Allocations of pods of that name."""
        return tuple(
            allocation
            for _, allocation in sorted(self.fleet.ledger.items())
            if allocation.claim is not None and (allocation.claim.namespace, allocation.claim.pod) == (namespace, pod)
        )

    def on_node(self, node: str) -> tuple[Allocation, ...]:
        """Allocations on a node by uid."""
        return tuple(a for _, a in sorted(self.fleet.ledger.items()) if a.node == node)

    def free(self, node: str | None = None) -> dict[str, CardRoom]:
        """Return the free room of each card by uuid, of all nodes or of one. Assumed and releasing room is not free.

        Raises:
            NotFound: the node is not known.

        """
        if node is not None and node not in self.fleet.row_of:
            raise NotFound(f"node {node} is not known", code="unknown-node", field="node")
        cards = range(len(self.fleet.cards)) if node is None else self.fleet.cards_on(self.fleet.row_of[node])
        return {self.fleet.cards[card].uuid: room_of(self.fleet, card) for card in cards}

    def unused_nodes(self) -> frozenset[str]:
        """Return the nodes with cards and without allocations, assumed ones included."""
        held = {allocation.node for allocation in self.fleet.ledger.values()}
        return frozenset(node.name for node in self.fleet.nodes if node.gpus and node.name not in held)

    def unconfirmed(self, now: float) -> tuple[Allocation, ...]:
        """Bound allocations by uid that their node, which shows what it has, has not shown in time."""
        return tuple(held for _, held in sorted(self.fleet.ledger.items()) if self.is_unconfirmed(held, now))

    def is_unconfirmed(self, held: Allocation, now: float) -> bool:
        """Return whether an allocation is unconfirmed."""
        return is_unconfirmed(held, self._observed_at, now)

    def observed_at(self, node: str) -> float | None:
        """Return when a node last reported what it has; None if it never did."""
        return self._observed_at.get(node)

    # --- steps ---

    def _enter(self, allocation: Allocation) -> Allocation:
        """Put an allocation into the books, with its cards as they are; what the ledger has then."""
        if allocation.state is not AllocationState.RELEASING:  # who leaves may have its next place held
            self.withdraw(allocation.id)
        known = self.fleet.ledger.get(allocation.id)
        if known == allocation:
            return known
        allocation = remembering(self.fleet, allocation)
        if known is not None:
            self.fleet.replace(allocation)
        else:
            self.fleet.charge(allocation, force=True)
        return self._changed(allocation)

    def _changed(self, allocation: Allocation) -> Allocation:
        """An allocation has entered the books, or changed in them."""
        self._dirty.update(allocation.gpus)
        self._departed.back(allocation.id)
        self.version += 1
        return allocation

    def _drop(self, uid: str, now: float) -> Allocation | None:
        if self.held(uid) is None:
            return None
        allocation = self.fleet.release(uid)
        self._dirty.update(allocation.gpus)
        self._handlers.forget(uid)
        self._departed.add(allocation, now)
        self.version += 1
        return allocation

    def _adopt(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.learning.follow(fleet)
        self._card_pools = _pools_of(fleet)

    def _found(self, allocation: Allocation) -> Allocation:
        """An allocation as it is entered when it was found outside, charged on its cards as they are now."""
        known = self.held(allocation.id)
        if allocation.node in self.fleet.row_of:
            self._cards(allocation.gpus)
        allocation = still_mixed(as_they_are(allocation, self.fleet.last_known(allocation)), known)
        if known is None:
            return allocation
        cards = allocation.cards or known.cards
        if known.observed and not allocation.observed and known.node == allocation.node:
            allocation = replace(allocation, placement=known.placement)
            if set(allocation.gpus) != set(known.gpus):
                allocation = replace(allocation, gpus=known.gpus, charges=known.charges)
        if known.state is not AllocationState.RELEASING:
            return replace(allocation, cards=cards)
        released = known.release_by, known.released_at
        return replace(allocation, state=known.state, release_by=released[0], released_at=released[1], cards=cards)

    def _at_home(self, allocation: Allocation) -> Allocation:
        fleet = self.fleet
        home = next((fleet.card_row.item(fleet.card_of[uuid]) for uuid in allocation.gpus if uuid in fleet.card_of), -1)
        if allocation.node in fleet.row_of or home < 0:
            return allocation
        return replace(allocation, node=fleet.nodes[home].name, placement=None)

    def _mark_mixed(self, uids: Iterable[str]) -> list[Allocation]:
        """Mark those of these that share a dynamic card with users of another isolation, and their neighbours."""
        marked = found_mixed(self.fleet, uids)
        for held in marked:
            self.fleet.replace(held)
        return marked

    def _cards(self, gpus: Sequence[str]) -> list[int]:
        unknown = [uuid for uuid in gpus if uuid not in self.fleet.card_of]
        if unknown:
            raise NotFound(f"card {unknown[0]} is not known", code="unknown-gpu", field="gpus")
        return [self.fleet.card_of[uuid] for uuid in gpus]


def _pools_of(fleet: Fleet) -> frozenset[str]:
    return frozenset(gpu.pool for gpu in fleet.cards if gpu.pool)
