"""Random days of requests and sessions on the same nodes, and what must not happen to requests on any of them.

Owners ask for parts of cards, whole cards, several cards and gangs, in several namespaces and priorities. They leave
when they have done, give up, never come back, or are evicted and take their time. Nodes are cordoned and lost, quotas
change, allocations grow and shrink, and the server restarts from its store. `RequestWatch` looks at every step.

`python -m tests.service.request_days --days 1000` runs as many days and prints what they came to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab import check_books
from tests.service.days import Day, Tally, Watch
from tests.service.request_watch import Outcome, RequestWatch

from ullage.core.admitting.gang_state import GangPhase
from ullage.core.evicting.preemption import Preemption
from ullage.core.placing.adjust import AmountsChange
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import UllageError
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.part import Part
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement

GIB = 1 << 30
PARTS = ("gpu=0.25", "gpu=0.5", "gpu=0.75", "tflops=30,vram=10g", "tflops=10,vram=30g", "gpu=2,tflops=40,vram=8g")
WHOLE = ("gpu=1", "gpu=1", "gpu=2", "gpu=4", "gpu=8")
BUDGETS = {("a", "web"): 2, ("b", "web"): 1}


def nothing() -> None:
    """Nobody waits for the answer."""


@dataclass
class Owner:
    """Whoever asked: until when it asks again, how long it works, and whether it is over."""

    request: Request
    preempts: bool
    patience: float
    life_s: float
    leaves: bool = False
    over: bool = False


class SessionWatch(Watch):
    """The law of sessions beside requests. Waits are not looked at: what requests hold is nobody's to give."""

    def _who_waits(self) -> None:
        """Nobody's wait is judged."""


class RequestDay(Day):
    """A day with this seed."""

    def __init__(self, seed: int, tally: Tally, outcome: Outcome, path: str = "memory://") -> None:
        self.owners: dict[str, Owner] = {}
        self.gangs: dict[str, list[str]] = {}
        self._asked = 0
        self.outcome = outcome
        super().__init__(seed, tally, path)
        self.watch = SessionWatch(self, tally)
        self.requests = RequestWatch(self, outcome)

    def _draw_nodes(self) -> list[Node]:
        rng = self.rng
        nodes = []
        for number in range(rng.choice((1, 2, 2, 3))):
            known = rng.random() < 0.8
            gpus = tuple(
                Gpu(f"GPU-{number}-{card}", card, vram_bytes=40 * GIB, compute_gflops=100_000)
                if known
                else Gpu(f"GPU-{number}-{card}", card)
                for card in range(rng.choice((1, 2, 4, 8)))
            )
            nodes.append(Node(f"n{number}", rng.choice((4, 8, 16)) * 1000, 64 * GIB, gpus))
        return nodes

    def _open(self) -> None:
        super()._open()
        allocator = self.service.state.allocator
        budgets = BUDGETS if self.seed % 3 == 0 else {}
        wide = self.seed % 5 != 1
        allocator.rules = replace(
            allocator.rules,
            min_available=budgets,
            preempt_cluster_wide=wide,
            workers_per_node=3 if self.seed % 7 == 2 else 256,
            protected_s=self.policy.protected_s,
        )

    def _restart(self) -> None:
        self._settle()
        self._tell_owners()
        self.requests.look()
        super()._restart()

    # --- what the watch asks ---

    def owns(self, uid: str) -> bool:
        """Whether somebody is there who knows that a uid holds cards."""
        owner = self.owners.get(uid)
        return owner is not None and not owner.over

    def has_left(self, uid: str) -> bool:
        """Whether an owner is over, or never comes back."""
        owner = self.owners[uid]
        return owner.over or owner.patience < self.agenda.now

    def request_of(self, uid: str) -> Request:
        return self.owners[uid].request

    def claim_of(self, uid: str) -> Claim:
        return self.owners[uid].request.claim

    def gang_of(self, uid: str) -> list[str]:
        """The members of its gang, or itself alone."""
        gang = self.owners[uid].request.claim.gang
        return [uid] if gang is None else self.gangs[gang.key]

    # --- the day ---

    def run(self, seconds: float = 3600.0) -> None:
        """Let that much time pass."""
        end, rng = self.agenda.now + seconds, self.rng
        busy = rng.choice((12.0, 30.0, 60.0))
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._come, busy),
            (self._come_together, 5 * busy),
            (self._arrive, sessions := rng.choice((60.0, 200.0, 1e9))),
            (self._more, 3 * sessions),
            (self._leave, 5 * sessions),
            (self._disturb_requests, rng.choice((100.0, 400.0, 1e9))),
            (self._adjust, 60.0),
        ]
        for kind, mean in kinds:
            self._again(kind, mean)
        for _ in range(rng.choice((1, 4, 14))):
            self._come()
        try:
            while self.agenda.now < end:
                wake = self._settle()
                self._tell_owners()
                wake = self._settle()
                self.watch.look()
                self.requests.look()
                self.agenda.now = min(self.agenda.next, end, inf if wake is None else max(wake, self.agenda.now + 1e-3))
                for work in self.agenda.due():
                    work()
            self._settle()
            check_books(self.service)
        finally:
            self.store.close()

    def _tell_owners(self) -> None:
        """Those who are to give way hear of it, and those whose room is there."""
        for event in self.requests.unread():
            uid = str(event.data.get("uid", ""))
            if event.kind == "allocation.preempted":
                self._give_way(uid)
            elif event.kind == "allocation.ready" and self.rng.random() < 0.7:
                self._ask(uid)
            elif event.kind == "gang.bound":
                key = str(event.data["gang"])
                self.agenda.after(self.owners[self.gangs[key][0]].life_s, lambda key=key: self._end_gang(key))

    # --- requests ---

    def _draw(self, uid: str, text: str, priority: int, gang: GangClaim | None = None) -> Request:
        rng, now = self.rng, self.agenda.now
        cpu = rng.choice(("", "", "cpu=1,", "cpu=2,"))
        claim = Claim(
            namespace=rng.choice(("a", "b")),
            workload=rng.choice(("web", "train", "")),
            priority=priority,
            created_at=now,
            protected_until=rng.choice((0.0, 0.0, 0.0, now + 60.0)),
            gang=gang,
        )
        return Request(uid, ResourceRequirement.from_string(cpu + text), claim)

    def _come(self) -> None:
        rng = self.rng
        self._asked += 1
        self.outcome.asked += 1
        uid, text = f"r{self._asked}", rng.choice(PARTS if rng.random() < 0.5 else WHOLE)
        request = self._draw(uid, text, rng.choice((0, 0, 0, 5, 5, 10, 50, 100)))
        patience = self.agenda.now + rng.choice((1.0, 100.0, 300.0, 600.0))
        life_s = rng.choice((5.0, 60.0, 600.0, 3000.0)) * rng.uniform(0.5, 1.5)
        self.owners[uid] = Owner(request, rng.random() < 0.8, patience, life_s)
        self._ask(uid)

    def _ask(self, uid: str) -> None:
        owner, rng, service = self.owners[uid], self.rng, self.service
        if owner.over or uid in service.state.fleet.ledger or owner.request.claim.gang is not None:
            return
        if owner.patience < self.agenda.now:
            self._give_up(uid)
            return
        if owner.preempts and rng.random() < 0.3:
            planned = service.preemptions.plan(owner.request)
            if isinstance(planned, Preemption) and planned.victims:
                self.requests.judge(owner.request, planned)
        if owner.preempts:
            answer = service.preemptions.alloc(owner.request, nothing)
        else:
            answer = service.allocations.alloc(owner.request, nothing)
        if isinstance(answer, Allocation):
            self.agenda.after(owner.life_s, lambda: self._end(uid))
        elif isinstance(answer, Nomination) and rng.random() < 0.03:
            self.agenda.after(rng.uniform(0.0, 30.0), lambda: self._give_up(uid))
        else:
            owner.patience += 600.0 * isinstance(answer, Nomination)
            self.agenda.after(rng.choice((2.0, 20.0, 60.0, 120.0)), lambda: self._ask(uid))

    def _give_up(self, uid: str) -> None:
        owner = self.owners[uid]
        if not owner.over and uid not in self.service.state.fleet.ledger:
            owner.over = True
            self.service.allocations.forget(uid, nothing)

    def _end(self, uid: str) -> None:
        owner = self.owners[uid]
        if not owner.over:
            owner.over = True
            self.service.allocations.dealloc(uid, None, nothing)

    def _give_way(self, uid: str) -> None:
        """An owner leaves at once, soon, late, or says when it is gone at the latest; some come again."""
        owner, rng = self.owners[uid], self.rng
        if owner.leaves or owner.over:
            return
        owner.leaves = True
        within = rng.choice((0.0, rng.uniform(0, 5), rng.uniform(0, 30), rng.uniform(0, 400)))
        if rng.random() < 0.2:
            self.service.allocations.release(uid, within, nothing)
            self.agenda.after(within, lambda: setattr(owner, "over", True))
        else:
            self.agenda.after(within, lambda: self._end(uid))
        if rng.random() < 0.5:
            self.agenda.after(within + 1.0, self._come)

    # --- gangs ---

    def _come_together(self) -> None:
        rng = self.rng
        size = rng.choice((2, 2, 3, 4))
        timeout = rng.choice((None, 20.0, 120.0))
        key = f"g{len(self.gangs) + 1}"
        gang = GangClaim(key, rng.randint(1, size), size, timeout, preempt=rng.random() < 0.6)
        priority, text = rng.choice((0, 5, 10)), rng.choice((*PARTS, *WHOLE[:3]))
        requests = []
        for _ in range(size):
            self._asked += 1
            self.outcome.asked += 1
            same = rng.random() < 0.8
            requests.append(self._draw(f"r{self._asked}", text if same else rng.choice(PARTS), priority, gang))
        life_s = rng.choice((30.0, 300.0, 3000.0))
        self.gangs[key] = [request.uid for request in requests]
        for request in requests:
            self.owners[request.uid] = Owner(request, gang.preempt, inf, life_s)
        self.service.gangs.put(key, requests, nothing)
        self.agenda.after(rng.choice((60.0, 600.0, 1800.0)), lambda: self._lose_patience(key))
        if rng.random() < 0.1:
            self.agenda.after(rng.uniform(0, 60), lambda: self._end(requests[0].uid))

    def _lose_patience(self, key: str) -> None:
        with suppress(UllageError):
            if self.service.gangs.status(key).phase is not GangPhase.RUNNING:
                self._end_gang(key)

    def _end_gang(self, key: str) -> None:
        for uid in self.gangs[key]:
            self.owners[uid].over = True
        with suppress(UllageError):
            self.service.gangs.drop(key, nothing)

    # --- other hands ---

    def _adjust(self) -> None:
        bound = [a for a in self.service.allocations.all() if a.charges and a.claim is not None and a.bound_at]
        if not bound:
            return
        known = self.rng.choice(sorted(bound, key=lambda allocation: allocation.id))
        charge, factor = known.charges[0], self.rng.choice((0.5, 1.5, 2.0))
        with suppress(UllageError):
            change = AmountsChange(Part(int(charge.compute * factor), int(charge.vram * factor)))
            self.service.allocations.adjust(known.id, change, False, nothing)

    def _disturb_requests(self) -> None:
        rng, what = self.rng, self.rng.random()
        self.watch.disturbed()
        if what < 0.5:
            node = rng.choice(self.nodes).name
            self.service.nodes.cordon(node, True)
            self.agenda.after(rng.choice((1.0, 20.0, 200.0)), lambda: self._uncordon(node))
        elif what < 0.7:
            self.requests.rules_changed()
            caps = Caps(rng.choice((None, 150_000, 400_000)), rng.choice((None, 80 * GIB)))
            self.service.quotas.put(rng.choice(("a", "b")), Quota(caps, max_workers=rng.choice((3, 8, 100))), nothing)
        elif self.path != "memory://":
            self.outcome.restarts += 1
            self._restart()


def run_request_days(seeds: Sequence[int], seconds: float = 3600.0) -> tuple[Outcome, Tally]:
    """These days, one in five with restarts of the server, one in eight a mixed one; what came of all of them."""
    from tests.service.mixed_days import MixedDay  # noqa: PLC0415  # they are days as these, and more

    outcome, tally = Outcome(), Tally()
    for seed in seeds:
        outcome.days += 1
        tally.days += 1
        kind = MixedDay if seed % 8 == 6 else RequestDay
        if seed % 5:
            kind(seed, tally, outcome).run(seconds)
        else:
            with TemporaryDirectory() as place:
                kind(seed, tally, outcome, str(Path(place) / "state.db")).run(seconds)
    return outcome, tally


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    total, sessions = Outcome(), Tally()
    for seed in range(given.first, given.first + given.days):
        outcome, tally = run_request_days([seed], given.seconds)
        total.add(outcome)
        sessions.add(tally)
        sys.stdout.writelines(f"{violation}\n" for violation in (*outcome.violations, *tally.violations))
        sys.stdout.flush()
    sys.stdout.write(
        f"{total.days} days, {total.restarts} restarts, {total.steps} steps, {total.asked} requests, "
        f"{total.placed} placed; {total.evictions} evicted for {total.winners} winners ({total.gang_winners} gangs), "
        f"{total.excused} excused; a winner came {total.longest_wait_s:.1f} s after the last one left, at most; "
        f"{len(total.violations)} violations; of sessions {sessions.starts} starts, {sessions.claimed} claimed, "
        f"{len(sessions.violations)} violations\n"
    )


if __name__ == "__main__":
    main()
