"""The allocator against an oracle that looks at everything, every time, as the reference says it.

Small clusters of unlike cards, some in use, some shrunk below their use, some that say nothing of
themselves; the oracle knows nothing of columns, tables or filters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.candidates import find, refusals_on
from ullage.core.placing.decision import Candidates, Choice, Refusal
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place, score, select
from ullage.core.verdict.quota import Quotas
from ullage.model.affinity import Expression, NodeAffinity, Operator
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu, GpuPhase
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import CardSelector, Isolation, IsolationPolicy, Part
from ullage.model.quantity import PPM
from ullage.model.quota import Caps, Quota
from ullage.model.request import ResourceRequirement

GIB = 2**30
TEAM = "team"

WANTS_FULL = {
    "compact_first": (True, True),
    "low_load_first": (False, False),
    "node_compact_gpu_low_load": (True, False),
    "node_low_load_gpu_compact": (False, True),
}
"""Whether full nodes are best, and whether full cards are."""

Pair = tuple[int, int]


# --- the oracle ---


@dataclass(frozen=True)
class Oracle:
    """The reference, read aloud over plain values."""

    nodes: Sequence[Node]
    held: Sequence[Allocation]
    rules: Rules

    def users(self, card: Gpu) -> list[tuple[Allocation, Charge | None]]:
        """Who is on a card with how much; None is all of it."""
        return [
            (allocation, allocation.charges[allocation.gpus.index(card.uuid)] if allocation.charges else None)
            for allocation in self.held
            if card.uuid in allocation.gpus
        ]

    @staticmethod
    def capacity(card: Gpu) -> Pair:
        """What is not known is counted in millionths."""
        compute = PPM if card.compute_gflops is None else card.compute_gflops
        return compute, PPM if card.vram_bytes is None else card.vram_bytes

    def available(self, card: Gpu) -> Pair:
        compute, vram = self.left(card)
        return max(0, compute), max(0, vram)

    def left(self, card: Gpu) -> Pair:
        """Below zero on a card that shrank below its use: nothing new lands there."""
        compute, vram = self.capacity(card)
        for _, charge in self.users(card):
            taken = self.capacity(card) if charge is None else (charge.compute, charge.vram)
            compute, vram = compute - taken[0], vram - taken[1]
        return compute, vram

    def on(self, card: Gpu, part: Part | None) -> Pair:
        """An amount on a card; a percentage is rounded down."""
        capacity = self.capacity(card)
        if part is None:
            return capacity
        compute = part.compute_gflops or part.compute_ppm * capacity[0] // PPM
        fraction = part.vram_ppm if isinstance(part, Part) else 0
        return compute, part.vram_bytes or fraction * capacity[1] // PPM

    def charge(self, card: Gpu, request: Request) -> Pair:
        asked = request.requirement
        return self.capacity(card) if asked.cards.isolation is Isolation.SHARED else self.on(card, asked.part)

    def at_least(self, need: Pair, card: Gpu, limit: Part | None) -> Pair:
        """A limit on a card counts as no less than what is charged."""
        most = need if limit is None else self.on(card, limit)
        return max(need[0], most[0]), max(need[1], most[1])

    @staticmethod
    def known(card: Gpu, amounts: Pair) -> Pair:
        """Quotas count only what the card knows of itself."""
        compute = 0 if card.compute_gflops is None else amounts[0]
        return compute, 0 if card.vram_bytes is None else amounts[1]

    # --- filters ---

    def isolates(self, card: Gpu, request: Request) -> bool:
        asked = request.requirement.cards
        mode = asked.isolation
        if asked.policy is not None and asked.policy is not card.isolation_policy:
            return False
        if mode is not Isolation.SHARED and card.isolations is not None and mode not in card.isolations:
            return False
        if card.isolation_policy is IsolationPolicy.STATIC:
            return mode is Isolation.SHARED or card.isolation is None or card.isolation is mode
        present = {Isolation.SHARED if charge is None else charge.isolation for _, charge in self.users(card)}
        return not present or present == {mode}

    def takes(self, node: Node, card: Gpu, request: Request) -> bool:
        """Whether one card passes every rule over single cards."""
        return (
            self.may_take_work(card, request.requirement.part)
            and self.is_wanted(node, card, request.requirement)
            and self.isolates(card, request)
            and self.has_room(card, request)
            and self.quota_allows(request, [card] * request.requirement.gpu_count)
        )

    @staticmethod
    def may_take_work(card: Gpu, part: Part | None) -> bool:
        if card.phase is not GpuPhase.RUNNING or card.used_by or not card.healthy or card.cordoned:
            return False
        if 0 in (card.compute_gflops, card.vram_bytes, card.max_users):
            return False
        asked = part or Part()
        return not (
            (asked.compute_gflops and card.compute_gflops is None) or (asked.vram_bytes and card.vram_bytes is None)
        )

    @staticmethod
    def is_wanted(node: Node, card: Gpu, asked: ResourceRequirement) -> bool:
        wanted = asked.cards
        return (
            (wanted.pool is None or card.pool == wanted.pool)
            and (not wanted.indices or card.index in wanted.indices)
            and (not wanted.models or card.model in wanted.models)
            and (not wanted.uuids or card.uuid in wanted.uuids)
            and card.uuid not in wanted.not_uuids
            and (
                not wanted.model_words or any(word.lower() in (card.model or "").lower() for word in wanted.model_words)
            )
            and not any(word.lower() in (card.model or "").lower() for word in wanted.not_model_words)
            and (not asked.nodes.required or node.labels.get("zone") == "east")
        )

    def has_room(self, card: Gpu, request: Request) -> bool:
        asked = request.requirement
        if asked.cards.isolation is Isolation.SHARED:
            need = (0, 0) if asked.part is None else self.on(card, asked.part)
            return not self.users(card) and need[0] <= self.capacity(card)[0] and need[1] <= self.capacity(card)[1]
        if any(charge is None for _, charge in self.users(card)):
            return False
        if card.max_users is not None and len(self.users(card)) >= card.max_users:
            return False
        need, left = self.charge(card, request), self.left(card)
        return need[0] <= left[0] and need[1] <= left[1] and left[0] > 0

    def node_allows(self, node: Node) -> bool:
        workers = sum(allocation.node == node.name for allocation in self.held)
        most = self.rules.workers_per_node
        return node.schedulable and (most == 0 or workers < most)

    def candidates(self, request: Request) -> dict[str, set[str]]:
        found = {}
        for node in self.nodes:
            cards = {card.uuid for card in node.gpus if self.takes(node, card, request)}
            if cards and self.node_allows(node) and len(cards) >= request.requirement.gpu_count:
                found[node.name] = cards
        return found

    # --- quotas ---

    def used(self) -> list[int]:
        """Requests and limits, compute and vram each, and workers of the team."""
        used = [0, 0, 0, 0, 0]
        cards = {card.uuid: card for node in self.nodes for card in node.gpus}
        for allocation in self.held:
            if allocation.claim is None or allocation.claim.namespace != TEAM:
                continue
            for position, uuid in enumerate(allocation.gpus):
                card = cards[uuid]
                need = self.capacity(card)
                if allocation.charges:
                    need = allocation.charges[position].compute, allocation.charges[position].vram
                limit = self.at_least(need, card, allocation.claim.limit)
                for at, amount in enumerate((*self.known(card, need), *self.known(card, limit))):
                    used[at] += amount
            used[4] += 1
        return used

    def quota_allows(self, request: Request, cards: Sequence[Gpu]) -> bool:
        quota = self.rules.quotas.quotas.get(request.claim.namespace)
        if quota is None:
            return True
        total = self.used()
        for card in cards:
            need = self.charge(card, request)
            limit = self.at_least(need, card, request.claim.limit)
            four = (*self.known(card, need), *self.known(card, limit))
            single = (quota.max_requests, quota.max_limits)
            caps = [cap for both in single for cap in (both.compute_gflops, both.vram_bytes)]
            if any(cap is not None and amount > cap for amount, cap in zip(four, caps, strict=True)):
                return False
            total = [a + b for a, b in zip(total, (*four, 0), strict=True)]
        total[4] += 1
        if quota.max_gpu_count is not None and len(cards) > quota.max_gpu_count:
            return False
        sums = (quota.total_requests, quota.total_limits)
        caps = [*(cap for both in sums for cap in (both.compute_gflops, both.vram_bytes)), quota.max_workers]
        return all(cap is None or amount <= cap for amount, cap in zip(total, caps, strict=True))

    # --- scores ---

    def load(self, card: Gpu, *, full: bool) -> int:
        capacity, left = self.capacity(card), self.available(card)
        if not capacity[0] or not capacity[1]:
            return 0
        if full:
            v, t = 100 - left[1] / capacity[1] * 100, 100 - left[0] / capacity[0] * 100
        else:
            v, t = left[1] / capacity[1] * 100, left[0] / capacity[0] * 100
        exact = Decimal(v * 0.7 + t * 0.3)
        whole = min(100, max(0, int(exact.to_integral_value(ROUND_HALF_UP))))
        return whole // 4 if card.phase is GpuPhase.PENDING else whole

    def node_score(self, node: Node, request: Request) -> int:
        cards = [card for card in node.gpus if self.isolates(card, request)]
        full = WANTS_FULL[self.rules.strategy][0]
        mean = sum(self.load(card, full=full) for card in cards) // len(cards) if cards else 0
        preferred = request.requirement.nodes.preferred
        return mean + sum(weight for weight, _ in preferred if node.labels.get("zone") == "west")

    def card_score(self, card: Gpu) -> int:
        return self.load(card, full=WANTS_FULL[self.rules.strategy][1])

    def choice(self, request: Request) -> tuple[str, tuple[str, ...], int] | None:
        """The node, the cards best first, and the node's score."""
        candidates = self.candidates(request)
        best: tuple[int, str] | None = None
        by_name = {node.name: node for node in self.nodes}
        for name in candidates:
            key = -self.node_score(by_name[name], request), name
            best = key if best is None or key < best else best
        if best is None:
            return None
        node = by_name[best[1]]
        cards = [card for card in node.gpus if card.uuid in candidates[node.name]]
        cards.sort(key=lambda card: (-self.card_score(card), card.uuid))
        return node.name, tuple(card.uuid for card in cards[: request.requirement.gpu_count]), -best[0]


# --- small clusters ---

CAPACITIES = st.sampled_from(
    [(71_000, 24 * GIB), (100_000, 16 * GIB), (312_000, 80 * GIB), (7, 3), (100_000, 3 * GIB + 1), (0, GIB), (0, 0)]
)
SOFT_OR_HARD = st.sampled_from([Isolation.SOFT, Isolation.SOFT, Isolation.HARD])


def mostly(value: object, *others: object) -> st.SearchStrategy:
    return st.sampled_from([value] * 5 + list(others))


@st.composite
def cards(draw, uuid, index):
    compute, vram = draw(CAPACITIES)
    known = draw(mostly((True, True), (False, False), (True, False), (False, True)))
    return Gpu(
        uuid,
        index,
        model=draw(st.sampled_from(["A100", "T4"])),
        vram_bytes=vram if known[1] else None,
        compute_gflops=compute if known[0] else None,
        healthy=draw(mostly(True, False)),
        pool=draw(mostly("p", "q", None)),
        phase=draw(mostly(GpuPhase.RUNNING, GpuPhase.PENDING, GpuPhase.UNKNOWN)),
        used_by=draw(mostly("", "nvidia")),
        isolation=draw(mostly(None, Isolation.SOFT, Isolation.HARD)),
        isolation_policy=draw(mostly(IsolationPolicy.STATIC, IsolationPolicy.DYNAMIC, IsolationPolicy.DYNAMIC)),
        isolations=draw(mostly(None, frozenset({Isolation.SOFT}))),
        cordoned=draw(mostly(False, True)),
        max_users=draw(mostly(None, 1, 2)),
    )


@st.composite
def clusters(draw):
    """Nodes named against the order in which they are drawn, with cards named against their index."""
    return [
        Node(
            name,
            8000,
            2**36,
            tuple(draw(cards(f"{name}-{9 - i}", i)) for i in range(draw(st.integers(0, 3)))),
            labels=draw(st.sampled_from([{}, {"zone": "east"}, {"zone": "west"}])),
            cordoned=draw(mostly(False, True)),
        )
        for name in ("c", "a", "b")[: draw(st.integers(1, 3))]
    ]


def fractions(total: int) -> st.SearchStrategy[int]:
    """Parts of a total that reach it, go one beyond it, or are nothing."""
    tenths = st.integers(0, 10).map(lambda n: n * total // 10)
    return st.one_of(tenths, st.integers(0, total), st.sampled_from([0, total, total + 1]))


@st.composite
def users(draw, nodes):
    """Who is there already; more than fits, now and then."""
    held = []
    for n in range(draw(st.integers(0, 4))):
        node = draw(st.sampled_from(nodes))
        if not node.gpus:
            continue
        count = draw(st.integers(1, min(2, len(node.gpus))))
        on = draw(st.permutations(node.gpus))[:count]
        whole = draw(st.sampled_from([False, False, False, True]))
        mode = Isolation.SHARED if whole else draw(SOFT_OR_HARD)
        part = None if whole else Part(1)
        asked = ResourceRequirement(0, 0, count, part, CardSelector(isolation=mode))
        charges = (
            ()
            if whole
            else tuple(Charge(draw(fractions(card.compute)) // 2, draw(fractions(card.vram)) // 2, mode) for card in on)
        )
        limit = draw(st.sampled_from([None, Part(50_000, GIB), Part(0, 2, 250_000)]))
        claim = Claim(draw(st.sampled_from([TEAM, "other"])), limit=limit)
        state = draw(st.sampled_from(list(AllocationState)))
        uuids = tuple(card.uuid for card in on)
        held.append(Allocation(f"user-{n}", node.name, asked, uuids, state, charges, claim))
    return held


AFFINITIES = st.sampled_from(
    [
        NodeAffinity(),
        NodeAffinity(required=((Expression("zone", Operator.IN, ("east",)),),)),
        NodeAffinity(preferred=((7, (Expression("zone", Operator.IN, ("west",)),)),)),
    ]
)


NAMES = mostly((), ("a-9", "b-8", "c-9", "gone"), ("a-8", "b-9"), ("gone",))


@st.composite
def requests(draw, uid="new"):
    compute, vram = draw(CAPACITIES)
    ppm = draw(st.sampled_from([0, 1, 100_000, 333_333, 500_000, PPM]))
    part = draw(
        st.sampled_from(
            [
                Part(draw(fractions(compute)), draw(fractions(vram))),
                Part(0, draw(fractions(vram)), ppm),
                Part(compute_ppm=ppm, vram_ppm=ppm),
            ]
        )
    )
    mode = draw(st.sampled_from([Isolation.SOFT] * 4 + [Isolation.HARD, Isolation.SHARED]))
    if mode is Isolation.SHARED:
        part = draw(st.sampled_from([part, None]))
    count = draw(st.sampled_from([1, 1, 1, 2, 3]))
    indices = tuple(range(count)) if draw(mostly(False, True)) else ()
    selector = CardSelector(
        models=draw(mostly((), ("T4",), ("T4", "A100"))),
        indices=indices,
        pool=draw(mostly("p", "q", None)),
        isolation=mode,
        policy=draw(mostly(None, IsolationPolicy.STATIC, IsolationPolicy.DYNAMIC)),
        uuids=draw(NAMES),
        not_uuids=draw(NAMES),
        model_words=draw(mostly((), ("a1",), ("t4", "00"))),
        not_model_words=draw(mostly((), ("T",), ("x",))),
    )
    limit = draw(st.sampled_from([None, None, Part(compute, vram), Part(0, vram, 500_000)]))
    asked = ResourceRequirement(0, 0, count, part, selector, draw(AFFINITIES))
    return Request(uid, asked, Claim(draw(st.sampled_from([TEAM, "other"])), limit=limit))


CAPS = st.builds(
    Caps,
    st.sampled_from([None, None, 0, 10_650, 50_000, 100_000, 500_000]),
    st.sampled_from([None, None, GIB, 16 * GIB, 100 * GIB]),
)
QUOTAS = st.one_of(
    st.none(),
    st.builds(Quota, CAPS, max_requests=CAPS, max_workers=st.sampled_from([None, 0, 1, 2, 5])),
    st.builds(Quota, total_limits=CAPS, max_limits=CAPS, max_gpu_count=st.sampled_from([None, 1, 2])),
).map(lambda quota: Quotas({} if quota is None else {TEAM: quota}))


@st.composite
def worlds(draw):
    nodes = draw(clusters())
    rules = Rules(
        strategy=draw(st.sampled_from(sorted(WANTS_FULL))),
        workers_per_node=draw(st.sampled_from([0, 256, 256, 1, 2])),
        quotas=draw(QUOTAS),
    )
    return Oracle(nodes, draw(users(nodes)), rules)


def fleet_of(world: Oracle) -> Fleet:
    return Fleet(world.nodes, world.held)


def as_sets(by_node: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    return {name: set(uuids) for name, uuids in by_node.items()}


many = settings(max_examples=200)


# --- agreement ---


@pytest.mark.long
@many
@given(worlds(), requests())
def test_the_cards_that_would_do_are_those_of_the_oracle(world, request_):
    found = find(fleet_of(world), world.rules, request_)
    assert as_sets(found.by_node) == world.candidates(request_)
    assert list(found.by_node) == sorted(found.by_node)
    counts = [stage.before for stage in found.stages] + [sum(map(len, found.by_node.values()))]
    assert [stage.after for stage in found.stages] == counts[1:]


@pytest.mark.long
@many
@given(worlds(), requests(), st.integers(0, 3), st.booleans(), st.booleans())
def test_a_judgement_of_all_cards_says_of_each_node_what_a_judgement_of_its_own_cards_says(
    world, request_, cpu, tight, cut
):
    """Rejections, names and cure, also where promises and partitions are judged card by card."""
    asked = replace(request_.requirement, cpu_milli=cpu * 1000)
    if cut:
        asked = replace(asked, part=Part(0, GIB), cards=CardSelector(isolation=Isolation.PARTITIONED))
    request_, rules = replace(request_, requirement=asked), world.rules
    if tight:
        rules = replace(rules, oversubscription={"": Oversubscription(0, 0, 100)})
    fleet = fleet_of(world)
    together = find(fleet, rules, request_)
    apart = {node.name: find(fleet, rules, request_, fleet.cards_on(row)) for row, node in enumerate(fleet.nodes)}
    fleet.charge(Allocation("later", fleet.nodes[0].name, ResourceRequirement.of(cpu=1)), force=True)
    assert together.by_node == {node: found.by_node[node] for node, found in sorted(apart.items()) if found.by_node}
    assert together.by_node or together.curable == any(found.curable for found in apart.values())
    for number, stage in enumerate(together.stages):
        of_nodes = [found.stages[number] for found in apart.values()]
        assert sorted(stage.removed, key=repr) == sorted(chain.from_iterable(e.removed for e in of_nodes), key=repr)
        assert set(stage.kept) == set(chain.from_iterable(each.kept for each in of_nodes))


@pytest.mark.long
@many
@given(worlds(), requests())
def test_scores_are_those_of_the_oracle_to_the_bit(world, request_):
    by_node = {node.name: tuple(card.uuid for card in node.gpus) for node in world.nodes}
    scores = score(fleet_of(world), world.rules, request_, by_node)
    assert scores.nodes == {node.name: world.node_score(node, request_) for node in world.nodes}
    expected = {node.name: {card.uuid: world.card_score(card) for card in node.gpus} for node in world.nodes}
    assert scores.cards == expected


@pytest.mark.long
@many
@given(worlds(), requests())
def test_the_choice_is_that_of_the_oracle(world, request_):
    fleet = fleet_of(world)
    outcome = place(fleet, world.rules, request_)
    found = find(fleet, world.rules, request_)
    expected = world.choice(request_)
    if expected is None:
        assert isinstance(outcome, Refusal)
        assert outcome.rejections
        assert (outcome.rejections, outcome.stages) == (found.refusals, found.stages)
        return
    assert isinstance(outcome, Choice)
    assert (outcome.node, outcome.gpus, outcome.score) == expected
    assert outcome == select(fleet, world.rules, request_, found.by_node)
    by_uuid = {card.uuid: card for node in world.nodes for card in node.gpus}
    if request_.requirement.cards.isolation is not Isolation.SHARED:
        taken = [(charge.compute, charge.vram) for charge in outcome.charges]
        assert taken == [world.charge(by_uuid[uuid], request_) for uuid in outcome.gpus]


@pytest.mark.long
@many
@given(worlds(), requests())
def test_named_cards_are_taken_exactly_if_the_oracle_would_take_them(world, request_):
    """Here quotas see the cards themselves, not as many like each of them."""
    fleet, count = fleet_of(world), request_.requirement.gpu_count
    without = replace(world, rules=replace(world.rules, quotas=Quotas()))
    for node in world.nodes:
        for chosen in combinations(node.gpus, count):
            takes = all(without.takes(node, card, request_) for card in chosen)
            expected = takes and world.node_allows(node) and world.quota_allows(request_, chosen)
            against = refusals_on(fleet, world.rules, request_, [fleet.card_of[card.uuid] for card in chosen])
            assert (not against) == expected, against


@pytest.mark.long
@many
@given(worlds(), requests(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_cards_and_users_decides_nothing(world, request_, random):
    nodes = [replace(node, gpus=tuple(random.sample(node.gpus, len(node.gpus)))) for node in world.nodes]
    shuffled = Fleet(random.sample(nodes, len(nodes)), random.sample(world.held, len(world.held)))
    fleet = fleet_of(world)
    here, there = place(fleet, world.rules, request_), place(shuffled, world.rules, request_)
    if isinstance(here, Choice):
        assert here == there
    else:
        assert isinstance(there, Refusal)
        assert set(here.rejections) == set(there.rejections)
    found = [find(books, world.rules, request_) for books in (fleet, shuffled)]
    assert as_sets(found[0].by_node) == as_sets(found[1].by_node)


@pytest.mark.long
@many
@given(worlds(), requests(), st.randoms(use_true_random=False))
def test_a_choice_among_given_cards_is_that_of_the_oracle_on_these_cards(world, request_, random):
    allocator = FleetAllocator(fleet_of(world), world.rules)
    given_ = [card.uuid for card in allocator.fleet.cards if random.random() < 0.7]
    found = allocator.filter(request_, random.choices(given_, k=2 * len(given_)) if given_ else [])
    named = {uuid for stage in found.stages[:1] for uuid in (*stage.kept, *(why.gpu for why in stage.removed))}
    expected = {
        node.name: cards
        for node in world.nodes
        if (cards := {card.uuid for card in node.gpus if card.uuid in named and world.takes(node, card, request_)})
        and world.node_allows(node)
        and len(cards) >= request_.requirement.gpu_count
    }
    assert as_sets(found.by_node) == expected
    assert isinstance(allocator.select(request_, found), Choice if expected else Refusal)
    shuffled = Candidates(
        {
            name: tuple(random.sample(found.by_node[name], len(found.by_node[name])))
            for name in reversed(list(found.by_node))
        },
        found.stages,
    )
    assert allocator.select(request_, shuffled) == allocator.select(request_, found)


def admitted(request_: Request) -> bool:
    """Whether it asks for something, and has no limit below that."""
    try:
        request_.check()
        request_.requirement.check_not_empty()
    except InvalidRequest:
        return False
    return True


@pytest.mark.long
@settings(max_examples=80)
@given(worlds(), st.lists(requests(), min_size=1, max_size=3), st.data())
def test_one_request_after_the_other_goes_where_the_oracle_says(world, shapes, data):
    """Tables follow the books row by row; the oracle looks at everything again."""
    asked = data.draw(st.lists(st.sampled_from(shapes), min_size=4, max_size=10))
    allocator = FleetAllocator(fleet_of(world), world.rules)
    allocator.set_ready()
    for n, drawn in enumerate(asked):
        request_ = replace(drawn, uid=f"new-{n}")
        pool = request_.requirement.cards.pool
        if not admitted(request_):
            continue
        if pool is not None and pool not in allocator.pools:
            continue
        expected = replace(world, held=tuple(allocator.fleet.ledger.values())).choice(request_)
        outcome = allocator.alloc(request_, float(n))
        if expected is None:
            assert isinstance(outcome, Refusal)
        else:
            assert isinstance(outcome, Allocation)
            assert (outcome.node, outcome.gpus) == expected[:2]
        if allocator.fleet.ledger and data.draw(st.booleans()):
            allocator.dealloc(data.draw(st.sampled_from(sorted(allocator.fleet.ledger))), float(n))
