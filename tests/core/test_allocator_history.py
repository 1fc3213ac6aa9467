"""Any history of the allocator: books balance, refusals and looks change nothing, repeats are answered."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ullage.core.allocator import FleetAllocator
from ullage.core.books.departed import Freed
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.core.placing.adjust import Adjustment, AmountsChange
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest, UllageError
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, IsolationPolicy, Part
from ullage.model.quantity import PPM
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement

GIB = 2**30
COLUMNS = (
    "cpu_free",
    "memory_free",
    "slots_free",
    "gpu_free",
    "compute_free",
    "vram_free",
    "card_users",
    "holders",
    "usage",
)
UIDS = tuple(f"r{n}" for n in range(8))
PODS = ("web", "job")
NAMESPACES = ("team", "other")


def gpu(name: str, index: int, tflops: int, gib: int, **facts: object) -> Gpu:
    facts = {"model": "A100-SXM4-80GB", "vendor": "NVIDIA", "pool": "p"} | facts
    return Gpu(name, index, vram_bytes=gib * GIB, compute_gflops=tflops * 1000, **facts)


NODES = (
    Node("n1", 8000, 2**36, (gpu("a", 0, 100, 80), gpu("b", 1, 100, 80), gpu("c", 2, 312, 80))),
    Node("n2", 8000, 2**36, (gpu("d", 0, 71, 24, isolation_policy=IsolationPolicy.DYNAMIC), gpu("e", 1, 71, 24))),
    Node("n3", 8000, 2**36, (gpu("f", 0, 100, 40, pool="q"), Gpu("blank", 1, pool="q"))),
)
CARDS = tuple(card.uuid for node in NODES for card in node.gpus)

uids = st.sampled_from(UIDS)
compute = st.sampled_from([0, 500, 10_000, 50_000, 100_000])
vram = st.sampled_from([0, GIB, 8 * GIB, 40 * GIB])
ppms = st.sampled_from([1, 100_000, 500_000, PPM])
amounts = st.one_of(st.builds(Part, compute, vram), st.builds(Part, st.just(0), vram, ppms))
parts = amounts.map(lambda asked: Part(asked.compute_gflops, asked.vram_bytes, asked.compute_ppm))
isolations = st.sampled_from([Isolation.SOFT, Isolation.SOFT, Isolation.HARD, Isolation.SHARED, Isolation.PARTITIONED])
caps = st.builds(Caps, st.sampled_from([None, 50_000, 200_000]), st.sampled_from([None, 40 * GIB, 100 * GIB]))


@st.composite
def requests(draw):
    isolation = draw(isolations)
    part = draw(st.one_of(st.none(), parts)) if isolation is Isolation.SHARED else draw(parts)
    cards = CardSelector(pool=draw(st.sampled_from(["p", "p", "q", None])), isolation=isolation)
    cpu = draw(st.sampled_from([0, 0, 3000]))
    requirement = ResourceRequirement(cpu, 0, draw(st.sampled_from([1, 1, 2])), part, cards)
    pod, limit = draw(st.sampled_from(PODS)), draw(st.one_of(st.none(), amounts))
    claim = Claim(draw(st.sampled_from(NAMESPACES)), pod=pod, limit=limit)
    strategy = draw(st.sampled_from([None, "compact_first", "best-fit"]))
    return Request(draw(uids), requirement, claim, strategy)


class History(RuleBasedStateMachine):
    """One allocator, and the few facts about it that the laws need."""

    @initialize()
    def open_books(self):
        self.now = 0.0
        self.nodes: tuple[Node, ...] = NODES
        self.allocator = FleetAllocator(Fleet(NODES), Rules(workers_per_node=4))
        self.allocator.set_ready()
        self.seen = {card.uuid: card for node in NODES for card in node.gpus}
        self.shrunk: set[str] = set()
        self.reported: list[str] = []
        self.allocator.register_bind_handler(lambda held: self.reported.append(held.id))

    # --- what may be said of a step ---

    def books(self) -> list[object]:
        fleet = self.allocator.fleet
        columns = [getattr(fleet, name) for name in COLUMNS]
        shown = [column.tolist() if hasattr(column, "tolist") else deepcopy(column) for column in columns]
        return [*shown, dict(fleet.ledger), fleet.nodes]

    def content(self) -> list[object]:
        return [*self.books(), self.allocator.rules, self.allocator.version]

    def unchanged(self, operation: Callable[[], object]) -> object:
        before, dirty = self.content(), set(self.allocator._dirty)
        outcome = operation()
        assert self.content() == before
        assert self.allocator._dirty == dirty
        return outcome

    def attempt(self, operation: Callable[[], object]) -> object:
        """The outcome of an operation; if it is an error or a refusal, nothing was changed."""
        before, dirty = self.content(), set(self.allocator._dirty)
        try:
            outcome = operation()
        except UllageError as error:
            outcome = error
        if isinstance(outcome, Refusal | UllageError):
            assert self.content() == before
            assert self.allocator._dirty == dirty
        return outcome

    def tick(self) -> float:
        self.now += 60.0
        return self.now

    def placed(self, request: Request, operation: Callable[[], object]) -> None:
        """A placement that was made is within quota, cap and room, and is the answer to its repeat."""
        was_known = request.uid in self.allocator.fleet.ledger
        outcome = self.attempt(operation)
        if not isinstance(outcome, Allocation):
            return
        assert self.allocator.fleet.ledger[request.uid] == outcome
        self.now += 1.0
        assert self.unchanged(operation) == outcome
        if was_known:
            return
        fleet, namespace = self.allocator.fleet, request.claim.namespace
        quota = self.allocator.rules.quotas.quotas.get(namespace)
        if quota is not None:
            totals = zip(fleet.usage[namespace], quota.total, strict=True)
            assert all(cap is None or used <= cap for used, cap in totals)
        assert fleet.workers(fleet.row_of[outcome.node]) <= self.allocator.rules.cap
        assert len(set(outcome.gpus)) == request.requirement.gpu_count
        row = fleet.row_of[outcome.node]
        assert {int(fleet.card_row[fleet.card_of[uuid]]) for uuid in outcome.gpus} == {row}

    # --- placing ---

    @rule(request=requests())
    def alloc(self, request):
        now = self.tick()
        self.placed(request, lambda: self.allocator.alloc(request, now))

    @rule(request=requests(), data=st.data(), operation=st.sampled_from(["assume", "bind"]))
    def on_named_cards(self, request, data, operation):
        count = request.requirement.gpu_count + data.draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
        named = data.draw(st.lists(st.sampled_from((*CARDS, "nobody")), min_size=count, max_size=count))
        now = self.tick()
        self.placed(request, lambda: getattr(self.allocator, operation)(request, named, now))

    @rule(request=requests())
    def what_would_do_is_placed(self, request):
        found = self.attempt(lambda: self.allocator.check_quota_and_filter(request))
        if request.uid in self.allocator.fleet.ledger or not isinstance(found, Candidates):
            return
        choice = self.unchanged(lambda: self.allocator.select(request, found))
        assert isinstance(choice, Choice)
        now = self.tick()
        outcome = self.allocator.assume(request, choice.gpus, now)
        assert isinstance(outcome, Allocation), outcome
        assert outcome.charges == choice.charges

    @rule(uid=uids)
    def commit(self, uid):
        now = self.tick()
        outcome = self.attempt(lambda: self.allocator.commit(uid, now))
        if isinstance(outcome, Allocation):
            assert outcome.state is AllocationState.BOUND
            assert self.unchanged(lambda: self.allocator.commit(uid, now + 1)) == outcome

    @rule(uid=uids)
    def notify(self, uid):
        was_bound, before = self.allocator.is_bound(uid), len(self.reported)
        assert self.unchanged(lambda: self.allocator.notify_bound(uid)) == ()
        self.allocator.notify_bound(uid)
        assert self.reported[before:] in ([], [uid])
        assert was_bound or len(self.reported) == before

    # --- giving back ---

    @rule(uid=uids, operation=st.sampled_from(["forget", "rollback", "unreserve"]))
    def undo(self, uid, operation):
        held = self.allocator.fleet.ledger.get(uid)
        undone = getattr(self.allocator, operation)(uid, self.tick())
        undoes = {
            "forget": (AllocationState.ASSUMED,),
            "rollback": (AllocationState.BOUND,),
            "unreserve": tuple(AllocationState),
        }
        assert undone == (held if held is not None and held.state in undoes[operation] else None)
        assert (uid in self.allocator.fleet.ledger) == (held is not None and undone is None)
        assert self.unchanged(lambda: getattr(self.allocator, operation)(uid, self.now)) is None

    @rule(uid=uids, named=st.one_of(st.none(), st.lists(st.sampled_from(CARDS), max_size=2)))
    def dealloc(self, uid, named):
        held = self.allocator.fleet.ledger.get(uid)
        freed = self.allocator.dealloc(uid, self.tick(), named)
        if held is not None:
            reported, own = set(held.gpus if named is None else named), set(held.gpus)
            not_held, not_named = tuple(sorted(reported - own)), tuple(sorted(own - reported))
            assert freed == Freed(uid, held.gpus, not_held=not_held, not_named=not_named)
            assert self.unchanged(lambda: self.allocator.dealloc(uid, self.now)) == Freed(uid, already_gone=True)
        else:
            assert freed.already_gone != freed.unknown
            assert freed.gpus == ()

    @rule(uid=uids)
    def release(self, uid):
        held = self.allocator.fleet.ledger.get(uid)
        released = self.allocator.release(uid)
        assert released == (None if held is None else replace(held, state=AllocationState.RELEASING))
        assert self.unchanged(lambda: self.allocator.release(uid)) == released

    @rule(namespace=st.sampled_from(NAMESPACES), pod=st.sampled_from(PODS), uid=st.one_of(st.none(), uids))
    def dealloc_by_pod(self, namespace, pod, uid):
        held = {held.id for held in self.allocator.of_pod(namespace, pod)}
        freed = {freed.uid for freed in self.allocator.dealloc_by_pod(namespace, pod, self.tick(), uid)}
        assert freed == (held if uid is None else held & {uid})
        assert self.unchanged(lambda: self.allocator.dealloc_by_pod(namespace, pod, self.now, uid)) == ()

    @rule(alive=st.sets(uids), waits=st.sets(uids), ttl=st.sampled_from([60.0, 600.0]))
    def sweep(self, alive, waits, ttl):
        before, now = dict(self.allocator.fleet.ledger), self.tick()

        def again() -> tuple[str, ...]:
            return self.allocator.sweep(now, lambda held: held.id in alive, lambda uid: uid in waits, ttl)

        swept = again()
        for uid, held in before.items():
            if held.state is AllocationState.ASSUMED:
                assert held.assumed_at is not None
                assert (uid in swept) == (uid not in waits and held.assumed_at + ttl < now)
            else:
                assert (uid in swept) == (uid not in alive)
        assert self.unchanged(again) == ()

    # --- scaling ---

    @rule(uid=uids, request=amounts, limit=st.one_of(st.none(), amounts))
    def adjust(self, uid, request, limit):
        try:
            change = AmountsChange(request, limit)
        except InvalidRequest:
            return  # its limit is below its request
        held = self.allocator.fleet.ledger.get(uid)
        tried = self.attempt(lambda: self.unchanged(lambda: self.allocator.adjust(uid, change, dry_run=True)))
        outcome = self.attempt(lambda: self.allocator.adjust(uid, change))
        if not isinstance(outcome, Adjustment):
            assert type(tried) is type(outcome)
            assert isinstance(outcome, UllageError) or tried == outcome
            return
        assert tried == outcome
        after = self.allocator.fleet.ledger[uid]
        assert held is not None
        assert (after, after.gpus) == (outcome.allocation, held.gpus)
        if held.requirement.cards.isolation in (Isolation.SHARED, Isolation.PARTITIONED):
            assert after.charges == held.charges
        again = self.unchanged(lambda: self.allocator.adjust(uid, change))
        assert isinstance(again, Adjustment)
        assert (again.delta_request, again.delta_limit) == ((0, 0), (0, 0))

    # --- facts from outside ---

    @rule(lost=st.sets(uids))
    def reconcile(self, lost):
        ledger = self.allocator.fleet.ledger
        found = [held for uid, held in ledger.items() if uid not in lost and held.state is not AllocationState.ASSUMED]
        gone = {uid for uid in lost if uid in ledger and ledger[uid].state is not AllocationState.ASSUMED}
        assert set(self.allocator.reconcile(found, self.tick())) == gone
        assert self.unchanged(lambda: self.allocator.reconcile(found, self.now)) == ()

    @rule()
    def restart(self):
        """Another allocator that gets the ledger has the same books, and before it has nodes the same usage."""
        blind = FleetAllocator(Fleet(()))
        blind.reconcile(self.allocator.fleet.ledger.values(), self.now)
        assert blind.fleet.usage == self.allocator.fleet.usage
        twin = FleetAllocator(Fleet(self.allocator.fleet.nodes), self.allocator.rules)
        twin.reconcile(self.allocator.fleet.ledger.values(), self.now)
        before = self.books()
        twin.set_ready()
        twin.version, twin._handlers = self.allocator.version, self.allocator._handlers
        twin._departed = self.allocator._departed
        self.allocator = twin
        assert self.books() == before

    @rule(data=st.data())
    def set_nodes(self, data):
        self.nodes = tuple(
            replace(
                node,
                name=data.draw(st.sampled_from([node.name] * 4 + [f"{node.name}-renamed"])),
                gpus=tuple(self._changed(card, data) for card in node.gpus if data.draw(st.integers(0, 9))),
                cordoned=data.draw(st.sampled_from([False] * 5 + [True])),
            )
            for node in NODES
            if data.draw(st.integers(0, 9))
        )
        before, version = dict(self.allocator.fleet.ledger), self.allocator.version
        self.allocator.set_nodes(self.nodes)
        self.seen |= {card.uuid: card for node in self.nodes for card in node.gpus}
        fleet = self.allocator.fleet
        assert self.allocator.version == version + 1
        for uid, held in before.items():
            after = fleet.ledger[uid]
            assert replace(after, node="", charges=()) == replace(held, node="", charges=())
            for was, now in zip(held.charges, after.charges, strict=True):
                assert replace(now, compute=0, vram=0) == replace(was, compute=0, vram=0)
        assert fleet.ledger.keys() == before.keys()
        self.shrunk = {
            card.uuid for at, card in enumerate(fleet.cards) if fleet.compute_free[at] < 0 or fleet.vram_free[at] < 0
        }
        once = self.books()
        self.allocator.set_nodes(self.nodes)
        assert self.books() == once

    @staticmethod
    def _changed(card: Gpu, data: st.DataObject) -> Gpu:
        if card.compute_gflops is None or card.vram_bytes is None:
            return card
        share = data.draw(st.sampled_from([10] * 4 + [1, 5, 12]))
        return replace(
            card,
            compute_gflops=card.compute_gflops * share // 10,
            vram_bytes=card.vram_bytes * share // 10,
            healthy=data.draw(st.sampled_from([True] * 5 + [False])),
        )

    @rule(most=st.sampled_from([-1, 0, 1, 4]))
    def set_workers_per_node(self, most):
        before = self.books()
        if most < 0:
            with pytest.raises(InvalidRequest):
                self.unchanged(lambda: self.allocator.set_workers_per_node(most))
        else:
            self.allocator.set_workers_per_node(most)
            assert self.allocator.rules.workers_per_node == most
        assert self.books() == before

    @rule(
        quota=st.one_of(st.none(), st.builds(Quota, caps, max_requests=caps, max_workers=st.sampled_from([None, 1, 4])))
    )
    def set_quota(self, quota):
        quotas = Quotas({} if quota is None else {"team": quota})
        self.allocator.rules = replace(self.allocator.rules, quotas=quotas)

    # --- looks ---

    @rule(request=requests())
    def simulate(self, request):
        outcome = self.attempt(lambda: self.unchanged(lambda: self.allocator.simulate(request)))
        if isinstance(outcome, UllageError):
            return
        assert self.unchanged(lambda: self.allocator.simulate(request)) == outcome
        held = self.allocator.fleet.ledger.get(request.uid)
        if held is None:
            assert place(self.allocator.fleet, self.allocator.rules, request) == outcome.outcome
        if isinstance(outcome.outcome, Choice):
            reported = outcome.outcome
            got = self.allocator.alloc(request, self.tick()) if held is None else held
            assert isinstance(got, Allocation)
            assert (got.node, got.gpus, got.charges) == (reported.node, reported.gpus, reported.charges)

    @rule()
    def take_dirty(self):
        before = self.content()
        dirty = self.allocator.take_dirty()
        assert self.allocator.take_dirty() == frozenset()
        self.allocator.requeue(dirty | {"nobody"})
        assert self.allocator.take_dirty() == {uuid for uuid in dirty if uuid in self.allocator.fleet.card_of}
        assert self.content() == before

    # --- laws ---

    @precondition(lambda self: hasattr(self, "allocator"))
    @invariant()
    def columns_equal_inventory_minus_ledger(self):
        fleet = self.allocator.fleet
        rebuilt = Fleet(fleet.nodes, fleet.ledger.values())
        for name in COLUMNS:
            kept, made = getattr(fleet, name), getattr(rebuilt, name)
            assert kept.tolist() == made.tolist() if hasattr(kept, "tolist") else kept == made, name

    @precondition(lambda self: hasattr(self, "allocator"))
    @invariant()
    def no_card_gives_more_than_it_has_unless_it_shrank(self):
        fleet = self.allocator.fleet
        for at, card in enumerate(fleet.cards):
            over = fleet.compute_free[at] < 0 or fleet.vram_free[at] < 0
            assert not over or card.uuid in self.shrunk
            if not over:
                self.shrunk.discard(card.uuid)
            held = fleet.holders[at].values()
            assert len(held) == 1 or None not in held
            assert len({charge.isolation is Isolation.PARTITIONED for charge in held if charge is not None}) < 2
            slots = [charge.slot for charge in held if charge is not None and charge.slot is not None]
            taken = [n for slot in slots for n in range(slot.start or 0, slot.end or 0)]
            assert len(taken) == len(set(taken))

    @precondition(lambda self: hasattr(self, "allocator"))
    @invariant()
    def what_a_namespace_uses_is_what_its_allocations_hold(self):
        fleet = self.allocator.fleet
        used: dict[str, list[int]] = {}
        for held in fleet.ledger.values():
            assert held.claim is not None
            sums = used.setdefault(held.claim.namespace, [0, 0, 0, 0, 0, 0])
            sums[4] += 1
            for position, uuid in enumerate(held.gpus):
                card = self.seen[uuid]  # a missing one counts as what it was
                total = card.compute, card.vram
                need = total
                if held.charges:
                    need = held.charges[position].compute, held.charges[position].vram
                limit = held.claim.limit
                most = need
                if limit is not None:
                    written = limit.compute_gflops or limit.compute_ppm * total[0] // PPM, limit.vram_bytes
                    most = max(need[0], written[0]), max(need[1], written[1])
                blank = card.compute_gflops is None
                for at, amount in enumerate((*need, *most)):
                    sums[at] += 0 if blank else amount
                sums[5] += min(PPM, -(-need[0] * PPM // total[0]))
        assert fleet.usage == {namespace: Usage(*sums) for namespace, sums in used.items()}

    @precondition(lambda self: hasattr(self, "allocator"))
    @invariant()
    def a_node_is_unused_exactly_if_nobody_is_on_it(self):
        held = {held.node for held in self.allocator.fleet.ledger.values()}
        with_cards = {node.name for node in self.allocator.fleet.nodes if node.gpus}
        assert self.allocator.unused_nodes() == with_cards - held


History.TestCase.settings = settings(max_examples=120, stateful_step_count=30)
test_any_history_of_operations = History.TestCase
test_any_history_of_operations.pytestmark = pytest.mark.long
