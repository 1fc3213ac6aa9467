"""The victims of a claim of a session, by slow and obvious code: every way, and every node and card that could do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.reclaim_search import Loser, RoomClaim, cards_to_free, may_do, shared
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.promise import charge_back
from ullage.core.sharing.shares import Leaf, ShareTree, Vector
from ullage.core.sharing.world import ExecutorPhase, ExecutorView, World

Asked = Callable[[ExecutorVictim], bool]


def everybody(_victim: ExecutorVictim) -> bool:
    return True


class SlowReclaim:
    """The claims of one cycle; the books of the outlook and the share tree are the only parts that are not its own."""

    def __init__(self, world: World, tree: ShareTree, leaves: dict[str, Leaf], deserved: dict[str, int]) -> None:
        self.world, self.tree, self.leaves, self.deserved = world, tree, leaves, deserved
        self.demands = {demand.session: demand for demand in world.demands}
        self.held = {session: len(executors) for session, executors in world.held().items()}
        self.gone: set[str] = set()

    def claim(self, claim: RoomClaim) -> list[ExecutorVictim] | None:
        """Return the victims of the first way that makes a unit fit."""
        for victims in self.ways(claim):
            needed = self.needed(claim, victims)
            if needed is not None:
                return needed
        return None

    def claim_vacant(
        self, claim: RoomClaim, names: list[str], staying: list[ExecutorView]
    ) -> list[ExecutorVictim] | None:
        """Return the vacant victims that make a unit fit, with units of these names and those who stay in the books."""
        fleet, session = claim.outlook.fleet, staying[0].session or ""
        units, size = -(-len(staying) // self.demands[session].batch_size), claim.claimant.batch_size
        if not charge_back(fleet, self.world.fleet, [each.id for each in staying]):
            return None
        if any(place_unit(claim.outlook, claim.claimant, name, size) is None for name in names):
            return None
        for sign in (1, -1):
            self.held[session] = self.held.get(session, 0) + sign * len(staying)
            self.tree.take(self.leaves[session], -sign * units)
            if sign > 0:
                at_work = {e.id for e in self.world.executors if e.phase is not ExecutorPhase.VACANT}
                needed = self.needed(claim, [each for each in self.in_order(claim) if not each.ids & at_work])
                if needed is not None:
                    return needed
        return None

    # --- who may go ---

    def victims_of(self, session: str) -> list[ExecutorVictim]:
        """Gangs whole, vacant before busy, newest first."""
        gangs: dict[str, list[ExecutorView]] = {}
        for each in self.world.held().get(session, ()):
            gangs.setdefault(each.gang or each.id, []).append(each)
        found = []
        for gang in gangs.values():
            members = tuple(sorted(gang, key=lambda each: each.id))
            at_work = any(each.phase in (ExecutorPhase.BUSY, ExecutorPhase.STARTING) for each in members)
            until = max(each.protected_until for each in members) if at_work else float("-inf")
            busy = any(each.phase is ExecutorPhase.BUSY for each in members)
            found.append(ExecutorVictim(members, session, busy, until))
        return sorted(found, key=lambda each: (each.busy, -max(m.bound_at for m in each.members), each.members[0].id))

    def alone(self) -> list[ExecutorVictim]:
        """Executors that leave without a winner, the longest leaving first."""
        leaving = [e for e in self.world.executors if e.phase is ExecutorPhase.LEAVING and e.eviction is None]
        found = [ExecutorVictim((each,), None, busy=True) for each in sorted(leaving, key=lambda e: (e.since, e.id))]
        return [victim for victim in found if not victim.ids & self.gone]

    def may_lose(self, claim: RoomClaim) -> dict[str, int]:
        """How many executors each session may lose to a claim."""
        found = {}
        for session, held in self.held.items():
            demand, keeps = self.demands.get(session), 0
            if demand is not None:
                keeps = demand.floor if claim.displace else max(demand.floor, self.deserved.get(session, 0))
                if claim.displace and demand.priority > claim.claimant.priority:
                    continue
            if session != claim.claimant.session and held > keeps:
                found[session] = held - keeps
        return found

    def in_order(self, claim: RoomClaim, asked: Asked = everybody) -> Iterator[ExecutorVictim]:
        """Yield victims as their sessions may lose them: who is alone, then the session that is first each time."""
        yield from filter(asked, self.alone())
        losses = Losses(self, claim)
        waiting = {
            session: [each for each in self.victims_of(session) if not each.ids & self.gone and asked(each)]
            for session in self.may_lose(claim)
        }
        while True:
            able = [session for session in waiting if waiting[session] and losses.left(session) > 0]
            if not able:
                return
            first = min(able, key=lambda session: (*self.turn(session, losses, waiting[session][0]), session))
            victim = waiting[first].pop(0)
            if victim.protected_until <= claim.now and losses.pay([victim]):
                yield victim

    def turn(self, session: str, losses: Losses, victim: ExecutorVictim) -> tuple[object, ...]:
        demand = self.demands.get(session)
        if demand is None:
            return victim.busy, -1, 0, 0
        leaf, batch = self.leaves[session], demand.batch_size
        held = self.tree.leaf_share(leaf, (self.held[session] - losses.lost.get(session, 0)) // batch)
        deserves = self.tree.leaf_share(leaf, self.deserved.get(session, 0) // batch)
        return victim.busy, demand.priority, deserves - held, demand.number

    def willing(self, claim: RoomClaim) -> list[ExecutorVictim]:
        """All who may go, however many their sessions may lose: alone, vacant, of low priority first."""
        sessions = self.may_lose(claim)
        named = [each.session or "" for each in self.world.executors if each.may_stay]
        order = [session for session in dict.fromkeys([*named, *self.held]) if session in sessions]
        found = []
        for session in order:
            demand = self.demands.get(session)
            priority = -1 if demand is None else demand.priority
            found += [(each.busy, priority, each) for each in self.victims_of(session) if not each.ids & self.gone]
        found.sort(key=lambda entry: entry[:2])
        return [*self.alone(), *(each for *_, each in found if each.protected_until <= claim.now)]

    # --- the ways ---

    def ways(self, claim: RoomClaim) -> Iterator[Iterable[ExecutorVictim]]:
        fleet, claimant = claim.outlook.fleet, claim.claimant
        cards, batch = claimant.requirement.gpu_count, claimant.batch_size
        fits_if_empty = {row for row, room in enumerate(claim.vacant.room(claimant.requirement).tolist()) if room}
        yield list(self.in_order(claim, lambda each: bool(self.rows(fleet, each) & fits_if_empty)))
        willing = self.willing(claim)
        with trial(fleet):
            release(fleet, willing)
            room = claim.outlook.room(claimant.requirement).tolist()
        if sum(room) < batch:
            return
        there: dict[int, list[ExecutorVictim]] = {}
        for victim in willing:
            for row in self.rows(fleet, victim):
                if row >= 0 and room[row]:
                    there.setdefault(row, []).append(victim)
        losers = {session: Loser(self.held[session], left) for session, left in self.may_lose(claim).items()}
        there = {row: victims for row, victims in there.items() if may_do(claim, row, victims, losers)}
        if cards and there:
            everywhere = [victim for victims in there.values() for victim in victims]
            yield self.card_by_card(claim, everywhere, set(there))
        for row, victims in there.items() if batch == 1 else ():
            yield from self.on_node(claim, row, victims, losers=losers)
        if batch > 1:
            yield self.member_by_member(claim) or []
            there = {0: [each for each in willing if self.rows(fleet, each) & set(there)]}
        for victims in there.values():
            yield from self.around_each(claim, victims)

    def around_each(self, claim: RoomClaim, victims: list[ExecutorVictim]) -> Iterator[list[ExecutorVictim]]:
        """Those near each victim that differs in its session, its places or who shares its cards."""
        fleet, kinds = claim.outlook.fleet, dict[object, ExecutorVictim]()
        for each in victims:
            places = sorted((fleet.ledger[uid].node, str(fleet.ledger[uid].requirement)) for uid in each.ids)
            cards = [fleet.card_of[uuid] for uid in each.ids for uuid in fleet.ledger[uid].gpus]
            sharing = frozenset(uid for card in cards for uid in fleet.holders[card]) - each.ids
            kinds.setdefault((each.session, tuple(places), sharing), each)
        for one in kinds.values():
            yield self.affordable(claim, self.around(fleet, one, victims))

    def affordable(self, claim: RoomClaim, victims: Iterable[ExecutorVictim]) -> list[ExecutorVictim]:
        losses = Losses(self, claim)
        return [each for each in victims if losses.pay([each])]

    def on_node(
        self, claim: RoomClaim, row: int, victims: list[ExecutorVictim], losers: dict[str, Loser]
    ) -> Iterator[Iterable[ExecutorVictim]]:
        """All on a node, gangs that lie on it in whole, and who holds its cards."""
        fleet, cards = claim.outlook.fleet, claim.claimant.requirement.gpu_count
        yield list(self.in_order(claim, lambda each: row in self.rows(fleet, each)))
        if any(len(each.members) > 1 for each in victims):
            yield list(self.in_order(claim, lambda each: self.rows(fleet, each) == {row}))
        if cards > 1:
            yield self.card_by_card(claim, victims, {row})
        if cards == 1 and shared(fleet, row):
            for card in cards_to_free(claim, row, victims, losers):
                holders = set(fleet.holders[card])
                yield list(self.in_order(claim, lambda each, holders=holders: bool(each.ids & holders)))

    def card_by_card(self, claim: RoomClaim, victims: list[ExecutorVictim], rows: set[int]) -> list[ExecutorVictim]:
        """Those who hold a card together, then those of the next; cards with few holders first."""
        fleet, losses, found = claim.outlook.fleet, Losses(self, claim), list[ExecutorVictim]()
        of = {member.id: victim for victim in victims for member in victim.members}
        held = [fleet.card_of[uuid] for uid in of for uuid in fleet.ledger[uid].gpus]
        cards = [card for card in dict.fromkeys(held) if fleet.card_row[card] in rows]
        for card in sorted(cards, key=lambda card: len(fleet.holders[card])):
            if not set(fleet.holders[card]) <= set(of):
                continue
            together = [of[uid] for uid in sorted(fleet.holders[card])]
            group = [each for n, each in enumerate(together) if each not in found and each not in together[:n]]
            if losses.pay(group):
                found += group
        return found

    def around(self, fleet: Fleet, one: ExecutorVictim, victims: list[ExecutorVictim]) -> list[ExecutorVictim]:
        """One, who shares a card with it, who is on its nodes, and the others."""
        cards = {uuid for uid in one.ids for uuid in fleet.ledger[uid].gpus}

        def distance(other: ExecutorVictim) -> int:
            if other is one:
                return 0
            if any(uuid in cards for uid in other.ids for uuid in fleet.ledger[uid].gpus):
                return 1
            return 2 if self.rows(fleet, other) & self.rows(fleet, one) else 3

        return sorted(victims, key=distance)

    def member_by_member(self, claim: RoomClaim) -> list[ExecutorVictim] | None:
        """The victims of one member of a gang after the other."""
        alone, fleet, chosen = replace(claim.claimant, batch_size=1), claim.outlook.fleet, list[ExecutorVictim]()
        found = True
        with trial(fleet):
            for rank in range(claim.claimant.batch_size):
                while found and place_unit(claim.outlook, alone, f"{claim.name}/{rank}", 1) is None:
                    needed = self.claim(replace(claim, claimant=alone))
                    found = needed is not None
                    self.count_out(needed or [])
                    release(fleet, needed or [])
                    chosen += needed or []
        self.count_out(chosen, -1)
        return chosen if found else None

    def count_out(self, victims: Iterable[ExecutorVictim], sign: int = 1) -> None:
        for victim in victims:
            if victim.session is not None:
                self.held[victim.session] -= sign * len(victim.members)
                if victim.session in self.demands:
                    units = len(victim.members) // self.demands[victim.session].batch_size
                    self.tree.take(self.leaves[victim.session], sign * units)
            self.gone = self.gone | victim.ids if sign > 0 else self.gone - victim.ids

    # --- whether it suffices ---

    def needed(self, claim: RoomClaim, victims: Iterable[ExecutorVictim]) -> list[ExecutorVictim] | None:
        """Return as few of these as make a unit fit; the last ones stay first."""
        chosen: list[ExecutorVictim] = []
        for victim in victims:
            chosen.append(victim)
            if self.fits(claim, chosen):
                break
        else:
            return None
        for victim in reversed(chosen):
            fewer = [other for other in chosen if other is not victim]
            chosen = fewer if self.fits(claim, fewer) else chosen
        return chosen

    def fits(self, claim: RoomClaim, gone: list[ExecutorVictim]) -> bool:
        with trial(claim.outlook.fleet):
            release(claim.outlook.fleet, gone)
            return place_unit(claim.outlook, claim.claimant, "trial", claim.claimant.batch_size) is not None

    def rows(self, fleet: Fleet, victim: ExecutorVictim) -> set[int]:
        return {fleet.row_of.get(self.world.fleet.ledger[member.id].node, -1) for member in victim.members}


class Losses:
    """What sessions have lost in one way: no more than they may, and what is left of guarantees of other queues."""

    def __init__(self, reclaim: SlowReclaim, claim: RoomClaim) -> None:
        self._reclaim, self._claim, self._may_lose = reclaim, claim, reclaim.may_lose(claim)
        self.lost: dict[str, int] = {}
        self._of_queues: dict[str, Vector] = {}

    def left(self, session: str) -> int:
        return self._may_lose[session] - self.lost.get(session, 0)

    def pay(self, victims: list[ExecutorVictim]) -> bool:
        """Note that all of these are lost; or none, if one may not be."""
        before = dict(self.lost), dict(self._of_queues)
        paid = all(map(self._pay_one, victims))
        if not paid:
            self.lost, self._of_queues = before
        return paid

    def _pay_one(self, victim: ExecutorVictim) -> bool:
        if victim.session is None:
            return True
        demand, size = self._reclaim.demands.get(victim.session), len(victim.members)
        if size > self.left(victim.session):
            return False
        if demand is not None and demand.queue != self._claim.claimant.queue:
            unit, tree = self._reclaim.leaves[victim.session].unit, self._reclaim.tree
            for _ in range(0, size, demand.batch_size):
                if not tree.lose(demand.queue, unit, self._of_queues):
                    return False
        self.lost[victim.session] = self.lost.get(victim.session, 0) + size
        return True


def release(fleet: Fleet, victims: Iterable[ExecutorVictim]) -> None:
    for victim in victims:
        for member in victim.members:
            fleet.release(member.id)
