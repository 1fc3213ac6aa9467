"""Pods that wait for their turn: the order against a slow oracle, and what holds after any history."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from tests.books import a_card, a_node, ask
from tests.clock import Clock

from ullage.core.explaining.cures import cure_text
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.core.verdict.sentences import reject_text
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.node import Node, NodeState
from ullage.model.queue import Queue, parse_queue
from ullage.model.quota import Quota
from ullage.model.rejection import Code
from ullage.service.cluster import Cluster
from ullage.service.expected_places import EXPECTED_S
from ullage.service.gates import AVOID_S, OPEN_S, RESERVE_AFTER_S, Gates, GateTerms
from ullage.service.queue_holdings import QueueHoldings, labelled

pytestmark = pytest.mark.timeout(900)


def machine(name: str, cards: int) -> Node:
    return a_node(name, *(a_card(f"{name}-{number:02}") for number in range(cards)))


def pod(uid: str, cards: int = 1, queue: str = "x", gang: tuple[str, int] | None = None, **claim: object) -> Request:
    member = None if gang is None else GangClaim(gang[0], gang[1], gang[1])
    return ask(f"gpu={cards}", uid=uid, namespace=queue, gang=member, **{"priority": 0, "created_at": 1000.0} | claim)


class World:
    """Pods as an API has them, with a scheduler that binds them, and the gates that get both."""

    def __init__(self, *nodes: Node, queues: tuple[Queue, ...] = (), rules: Rules | None = None, most: int = 128):
        self.clock, self.queues, self.rules, self.nodes, self.most = Clock(), queues, rules or Rules(), nodes, most
        self.gated: dict[str, Request] = {}
        self.open: dict[str, tuple[Request, str]] = {}
        self.bound: dict[str, Allocation] = {}
        self.restart()

    def restart(self) -> None:
        """A new process knows what the API tells, and nothing else."""
        self.books = Cluster(self.rules, self.clock, self.clock)
        self.books.set_nodes(self.nodes)
        self.books.recover(self.bound.values())
        terms = GateTerms(most_open=self.most)
        self.gates = Gates(self.books, labelled("queue", str), self.clock, self.queues, now=self.clock, terms=terms)
        for request in self.gated.values():
            self.gates.wait(request, request.claim.namespace)
        for request, node in self.open.values():
            self.gates.opened(request, request.claim.namespace, node)
        for held in self.bound.values():
            assert held.claim is not None
            self.gates.placed(held.id, held.claim.gang, held.node)
        self.gates.begin()

    def come(self, *pods: Request) -> None:
        for request in pods:
            self.gated[request.uid] = request
            self.gates.wait(request, request.claim.namespace)

    def step(self) -> list[str]:
        """One decision, and all gates opened that may be; who went, in no order."""
        self.lapsed = self.gates.step()
        went = []
        for uid, node in self.gates.places().items():
            if uid in self.gated:
                self.open[uid] = (self.gated.pop(uid), node)
                self.gates.opened(self.open[uid][0], self.open[uid][0].claim.namespace, node)
                went.append(uid)
            else:
                self.open[uid] = (self.open[uid][0], node)
        return went

    def bind(self, uid: str, names: list[str] | None = None) -> str:
        """As a scheduler does with an open pod: ask, take the best, bind."""
        request, _ = self.open[uid]
        best = self.books.offers(request, names or [node.name for node in self.nodes]).best
        assert best is not None, uid
        held = self.books.reserve(request, best)
        assert isinstance(held, Allocation)
        self.books.confirm(uid)
        self.bound[uid] = self.books.held(uid)
        del self.open[uid]
        self.gates.placed(uid, request.claim.gang, best)
        return best

    def go(self) -> list[str]:
        """Steps and binds until nobody goes any more; who did, in order."""
        order = []
        while went := self.step():
            order += went
            for uid in list(self.open):
                self.bind(uid)
        return order

    def end(self, uid: str) -> None:
        """A pod is deleted, wherever it is."""
        self.gated.pop(uid, None)
        self.open.pop(uid, None)
        self.bound.pop(uid, None)
        self.books.free(uid)
        self.gates.drop(uid)

    def code(self, uid: str) -> Code | None:
        reported = self.gates.standings()[uid].refusal
        return None if reported is None else reported.code

    def check(self) -> None:
        """What is true after any step: no card is promised or held twice, and nothing is kept for nobody."""
        nominations = self.books.allocator.nominations.entries
        waiting = {*self.gated, *self.open}
        assert {entry.request.uid for entry in nominations} <= waiting
        places = [entry for entry in nominations if entry.request.uid in self.gates.places()]
        cards = [card for entry in places for card in entry.gpus]
        cards += [card for held in self.bound.values() for card in held.gpus]
        assert len(cards) == len(set(cards))
        held = defaultdict(int)
        for request in [request for request, _ in self.open.values() if request.uid in self.gates.places()]:
            held[request.claim.namespace] += request.requirement.gpu_count
        for each in self.bound.values():
            assert each.claim is not None
            held[each.claim.namespace] += len(each.gpus)
        for queue in self.queues:
            if queue.limit.gpu_milli is not None:
                assert held[queue.name] * 1000 <= queue.limit.gpu_milli


# --- the order ---


@dataclass
class Oracle:
    """Whole cards of one machine: the queue with the smallest share next, its eldest of the highest priority first."""

    total: int
    queues: dict[str, Queue]

    def next(self, gated: dict[str, Request], held: dict[str, int]) -> list[str]:
        """Everybody who may go, in order."""
        free, held = self.total - sum(held.values()), defaultdict(int, held)
        waiting = sorted(gated.values(), key=lambda p: (-p.claim.priority, p.claim.created_at, p.uid))
        order: list[str] = []
        stopped: set[str] = set()
        while True:
            heads: dict[str, Request] = {}
            for request in waiting:
                if request.uid not in stopped:
                    heads.setdefault(request.claim.namespace, request)
            if not heads:
                return order
            request = min(heads.values(), key=lambda p: (self.share(p, held), p.claim.created_at, p.uid))
            queue, cards = request.claim.namespace, request.requirement.gpu_count
            limit = self.queues[queue].limit.gpu_milli if queue in self.queues else None
            stopped.add(request.uid)
            if cards <= free and (limit is None or (held[queue] + cards) * 1000 <= limit):
                free -= cards
                held[queue] += cards
                order.append(request.uid)

    def share(self, request: Request, held: dict[str, int]) -> Fraction:
        queue = request.claim.namespace
        weight = self.queues[queue].weight if queue in self.queues else 1
        return Fraction(held[queue], self.total * weight)


QUEUES = (Queue("x", weight=2), parse_queue("y", "root", 1, None, "gpu=7"), Queue("z", weight=3))


@pytest.mark.parametrize("seed", range(25))
def test_the_order_is_that_of_progressive_filling_on_any_history(seed: int) -> None:
    chance = random.Random(seed)
    world = World(machine("a", 16), queues=QUEUES)
    oracle = Oracle(16, {queue.name: queue for queue in QUEUES})
    for number in range(40):
        world.clock.now += 1
        if chance.random() < 0.6:
            world.come(
                *(
                    pod(
                        f"{number}-{each}",
                        chance.choice((1, 1, 2, 3)),
                        chance.choice("xyzw"),
                        priority=chance.choice((0, 0, 5)),
                        created_at=world.clock.now,
                    )
                    for each in range(chance.randint(1, 4))
                )
            )
        there = [*world.bound, *world.gated]
        if there and chance.random() < 0.6:
            for uid in chance.sample(there, min(len(there), chance.randint(1, 4))):
                world.end(uid)
        held: dict[str, int] = defaultdict(int)
        for each in world.bound.values():
            held[each.claim.namespace] += len(each.gpus)
        expected = oracle.next(world.gated, held)
        assert sorted(world.step()) == sorted(expected)
        world.check()
        for uid in list(world.open):
            world.bind(uid)
        assert all(world.code(uid) is not None for uid in world.gated)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_order_of_admission_does_not_depend_on_the_number_admitted_at_a_time(most: int) -> None:
    orders = []
    for each in (most, 128):
        world = World(machine("a", 12), queues=QUEUES, most=each)
        chance = random.Random(7)
        world.come(
            *(pod(f"{n:02}", chance.choice((1, 2)), chance.choice("xyz"), created_at=900.0 + n) for n in range(30))
        )
        orders.append(sorted(world.go()))
    assert orders[0] == orders[1]


def test_the_queue_with_the_smaller_weighted_share_goes_first() -> None:
    world = World(machine("a", 8), queues=(Queue("x", weight=3),))
    world.come(*(pod(f"y{n}", queue="y", created_at=1.0 + n) for n in range(8)))
    world.come(*(pod(f"x{n}", queue="x", created_at=100.0 + n) for n in range(8)))
    assert sorted(world.go()) == ["x0", "x1", "x2", "x3", "x4", "x5", "y0", "y1"]


def test_the_dominant_share_counts_not_the_number_of_cards() -> None:
    world = World(machine("a", 8))
    wide = [ask("gpu=1,cpu=16", uid=f"x{n}", namespace="x", created_at=1.0 + n) for n in range(8)]
    thin = [ask("gpu=1,cpu=1", uid=f"y{n}", namespace="y", created_at=1.0 + n) for n in range(8)]
    world.come(*wide, *thin)
    went = world.go()
    assert len([uid for uid in went if uid.startswith("x")]) == 3  # 48 of 64 cores
    assert len([uid for uid in went if uid.startswith("y")]) == 5  # 5 of 8 cards


def test_a_guarantee_comes_before_shares() -> None:
    world = World(machine("a", 4), queues=(parse_queue("x", "root", 1, "gpu=3", None), Queue("y", weight=1000)))
    world.come(*(pod(f"x{n}") for n in range(4)), *(pod(f"y{n}", queue="y") for n in range(4)))
    assert sorted(world.go()) == ["x0", "x1", "x2", "y0"]


def test_cards_of_leaving_pods_count_until_the_pods_are_gone() -> None:
    world = World(machine("a", 4))
    world.come(pod("x0"), pod("x1"))
    world.go()
    world.books.release("x0")
    world.come(pod("x2"), *(pod(f"y{n}", queue="y") for n in range(2)))
    assert sorted(world.go()) == ["y0", "y1"]
    world.end("x0")
    assert world.go() == ["x2"]


# --- gangs ---


@pytest.mark.parametrize("seed", range(15))
def test_gangs_go_whole_and_nothing_is_left_after_any_history(seed: int) -> None:
    chance = random.Random(seed)
    world = World(machine("a", 4), machine("b", 4), machine("c", 2), queues=QUEUES)
    sizes: dict[str, int] = {}
    broken: set[str] = set()
    for number in range(40):
        world.clock.now += chance.choice((1, 1, 30, RESERVE_AFTER_S))
        kind = chance.random()
        if kind < 0.35:
            size, queue = chance.randint(2, 5), chance.choice("xyz")
            gang = f"g{number}"
            sizes[gang] = size
            come = [
                pod(f"{gang}-{n}", chance.choice((1, 2)), queue, (gang, size), created_at=world.clock.now)
                for n in range(size + chance.randint(-1, 1))
            ]
            world.come(*come)
        elif kind < 0.6:
            world.come(pod(f"s{number}", chance.randint(1, 4), chance.choice("xyz"), created_at=world.clock.now))
        elif kind < 0.7:
            world.restart()
        else:
            there = [*world.bound, *world.open, *world.gated]
            for uid in chance.sample(there, min(len(there), chance.randint(1, 5))):
                broken.add(uid.split("-")[0])
                world.end(uid)
        world.step()
        world.check()
        gone = [uid.split("-")[0] for uid in (*world.open, *world.bound)]
        for gang, size in sizes.items():
            assert gang in broken or gone.count(gang) == 0 or gone.count(gang) >= size
        for uid in chance.sample(list(world.open), len(world.open) // 2):
            if uid in world.gates.places():
                world.bind(uid)
    for uid in [*world.bound, *world.open, *world.gated]:
        world.end(uid)
    world.step()
    assert not world.books.allocator.nominations.entries
    assert not world.gates.places()
    assert not world.gates.standings()
    assert not world.books.allocator.fleet.ledger


def test_a_gang_waits_for_its_members_and_then_for_room_for_all_of_them() -> None:
    world = World(machine("a", 4))
    world.come(pod("s"), *(pod(f"m{n}", 1, "y", ("g", 4)) for n in range(3)))
    assert world.go() == ["s"]
    assert world.code("m0") is Code.GANG_INCOMPLETE
    world.come(pod("m3", 1, "y", ("g", 4)))
    assert world.go() == []
    assert world.code("m0") is Code.GANG_ROOM
    world.end("s")
    assert sorted(world.go()) == ["m0", "m1", "m2", "m3"]


def test_more_members_than_are_required_go_one_by_one_when_those_are_placed() -> None:
    world = World(machine("a", 3))
    world.come(*(pod(f"m{n}", 1, "y", ("g", 2), created_at=1.0 + n) for n in range(4)))
    assert sorted(world.step()) == ["m0", "m1"]
    assert sorted(world.go()) == ["m2"]


def test_a_gang_that_loses_a_member_before_its_gates_open_loses_all_places() -> None:
    world = World(machine("a", 2))
    world.come(*(pod(f"m{n}", 1, "y", ("g", 2)) for n in range(2)))
    world.gates.step()
    assert len(world.gates.places()) == 2
    world.end("m0")
    world.gates.step()
    assert not world.gates.places()
    assert not world.books.allocator.nominations.entries
    assert world.code("m1") is Code.GANG_INCOMPLETE


def test_the_rest_of_a_gang_is_admitted_first_after_a_restart_between_its_gates() -> None:
    world = World(machine("a", 4))
    world.come(*(pod(f"m{n}", 1, "y", ("g", 4)) for n in range(4)))
    world.gates.step()
    for uid in ("m0", "m1"):  # two gates were opened, and then the process ended
        world.open[uid] = (world.gated.pop(uid), "a")
    world.come(pod("m4", 1, "y", ("g", 4)), *(pod(f"s{n}", created_at=1.0) for n in range(4)))
    world.restart()
    assert sorted(world.go()) == ["m2", "m3"]
    assert world.bound.keys() == {"m0", "m1", "m2", "m3"}


# --- waiting too long ---


def test_a_wide_pod_is_passed_by_small_ones_only_for_a_while() -> None:
    world = World(machine("a", 4), machine("b", 4))
    world.come(*(pod(f"s{n}", queue="y", created_at=1.0 + n) for n in range(8)))
    world.go()
    world.come(pod("wide", 4, "x", created_at=world.clock.now))
    small, ended = 8, 0
    while "wide" not in world.bound:
        world.clock.now += 60
        world.come(pod(f"s{small}", queue="y", created_at=world.clock.now))
        small += 1
        world.end(next(uid for uid in world.bound if uid.startswith("s")))  # the eldest ends
        ended += 1
        world.go()
        world.check()
        assert ended < 20, "it is passed for ever"
    assert ended > RESERVE_AFTER_S / 60  # before that small ones go


def test_room_reserved_for_a_pod_that_waits_too_long_is_shown_and_returned() -> None:
    world = World(machine("a", 2))
    world.come(pod("s0", queue="y"), pod("wide", 2, "x", created_at=world.clock.now))
    world.come(pod("s1", queue="y", priority=-1, created_at=world.clock.now + 1))
    world.gates.wait(pod("s0", queue="y"), "y")
    world.end("wide")
    world.go()
    world.end("s1")
    world.come(pod("wide", 2, "x", created_at=world.clock.now))
    world.go()
    world.clock.now += RESERVE_AFTER_S
    world.come(pod("s2", queue="y", created_at=world.clock.now))
    assert world.go() == []
    assert world.code("s2") is Code.RESERVED
    assert world.gates.standings()["wide"].reserved == ("a",)
    assert not world.books.offers(pod("other"), ["a"]).names  # nobody who asks without a gate is offered it either
    world.end("wide")
    assert world.go() == ["s2"]


def test_room_is_reserved_on_several_nodes_for_a_gang_that_waits_too_long() -> None:
    world = World(*(machine(name, 2) for name in "abc"))
    world.come(*(pod(f"s{n}", queue="y") for n in range(5)))
    world.go()
    world.come(*(pod(f"m{n}", 2, "x", ("g", 2), created_at=world.clock.now) for n in range(2)))
    world.go()
    world.clock.now += RESERVE_AFTER_S
    world.come(*(pod(f"t{n}", queue="y", created_at=world.clock.now) for n in range(6)))
    world.go()
    kept = {node for n in range(2) for node in world.gates.standings()[f"m{n}"].reserved}
    assert len(kept) == 2
    for uid, held in list(world.bound.items()):
        if held.node in kept:
            world.end(uid)
            world.go()
    assert {"m0", "m1"} <= world.bound.keys()


def test_reserved_room_stays_on_its_node_while_no_other_node_is_closer_to_free() -> None:
    world = World(machine("a", 3), machine("b", 3))
    world.come(*(pod(f"s{n}", queue="y", created_at=1.0 + n) for n in range(6)))
    world.go()
    on = {name: [uid for uid, held in world.bound.items() if held.node == name] for name in "ab"}
    world.come(pod("wide", 3, "x", created_at=1.0))
    world.end(on["b"].pop())
    world.go()
    assert world.gates.standings()["wide"].reserved == ("b",)
    world.end(on["a"].pop())
    world.go()
    assert world.gates.standings()["wide"].reserved == ("b",)  # as near as the other, which is the first by name
    for uid in on["a"]:
        world.end(uid)
    assert world.go() == ["wide"]
    assert world.bound["wide"].node == "a"


def test_the_expected_place_of_a_pod_without_a_gate_is_promised_to_no_other() -> None:
    world = World(machine("a", 1), machine("b", 1))
    place = world.books.offers(pod("other"), ["a", "b"]).best
    world.come(pod("p", created_at=1.0), pod("q", created_at=2.0))
    assert world.step() == ["p"]
    assert world.gates.places()["p"] != place
    assert isinstance(world.books.reserve(pod("other"), place), Allocation)


def test_no_room_is_reserved_for_a_request_that_no_node_can_hold() -> None:
    world = World(machine("a", 2))
    world.come(pod("huge", 3, "x", created_at=1.0), pod("s", queue="y"))
    world.clock.now += RESERVE_AFTER_S
    assert world.go() == ["s"]
    assert not world.gates.standings()["huge"].reserved


# --- places ---


def test_the_scheduler_is_offered_the_reserved_place_alone_where_it_may_choose_it() -> None:
    world = World(machine("a", 1), machine("b", 8), machine("c", 1))
    world.come(pod("p"))
    world.step()
    node = world.gates.places()["p"]
    offered = world.books.offers(pod("p"), ["a", "b", "c"])
    assert offered.names == [node]
    others = [name for name in "abc" if name != node]
    assert world.books.offers(pod("p"), others, expected=False).names == others
    assert world.books.offers(pod("q", 8), ["b"]).names == ([] if node == "b" else ["b"])
    world.clock.now += EXPECTED_S + 1  # it is no guess, and does not end like one
    assert node not in world.books.offers(pod("q", len(_of(world, node).gpus)), [node]).names
    assert world.bind("p", others) in others  # where else it may be sent it has room too
    assert not world.books.allocator.nominations.entries


def _of(world: World, name: str) -> Node:
    return next(node for node in world.nodes if node.name == name)


def test_a_pod_that_is_not_placed_in_time_has_another_place_and_is_counted() -> None:
    world = World(machine("a", 1), machine("b", 1))
    world.come(pod("p"))
    world.step()
    first = world.gates.places()["p"]
    world.clock.now += OPEN_S
    world.step()
    assert world.lapsed == [("p", first)]
    second = world.gates.places()["p"]
    assert {first, second} == {"a", "b"}
    assert world.books.offers(pod("q"), [first]).names == [first]
    world.clock.now += EXPECTED_S + OPEN_S
    world.step()
    assert "p" not in world.gates.places()  # both were tried
    assert world.gates.figures()["x"].returned == 2
    world.clock.now += AVOID_S
    world.step()
    assert "p" in world.gates.places()


def test_a_promise_is_no_guess_though_one_was_made_before_it() -> None:
    world = World(machine("a", 1))
    world.come(pod("p"))
    world.step()
    world.clock.now += OPEN_S
    world.step()  # its place is another's by now, and it is asked about all the same
    assert world.books.offers(pod("p"), ["a"]).names == ["a"]
    world.clock.now += AVOID_S
    world.step()
    assert world.gates.places() == {"p": "a"}
    world.books.offers(pod("p"), ["a"])
    world.clock.now += EXPECTED_S
    assert not world.books.offers(pod("q"), ["a"]).names


def test_the_holdings_of_a_queue_follow_the_books() -> None:
    world = World(machine("a", 4))
    held = QueueHoldings(labelled("queue", {"n": "other"}.get))
    world.come(pod("p"), pod("q", 2, labels={"queue": "z"}), pod("r", 1, "n"))
    world.go()
    books = world.books.allocator.fleet
    found = {queue: amount.gpu_milli for queue, amount in held.of(books)}
    assert found == {"x": 1000, "z": 2000, "other": 1000}
    books.replace(replace(world.bound["p"], claim=pod("p", labels={"queue": "z"}).claim))
    assert sum(count for (queue, _), count in held.of(books).items() if queue == "z") == 2
    assert held.of(books) == QueueHoldings(labelled("queue", {"n": "other"}.get)).of(books)


def test_a_holder_without_a_namespace_is_in_no_queue_and_holds_up_nobody() -> None:
    world = World(machine("a", 2))
    shared = replace(pod("p"), claim=Claim("", workload="claims that share a card"))
    assert isinstance(world.books.allocator.alloc(shared, 0.0), Allocation)
    held = QueueHoldings(labelled("queue", {"x": "x"}.get))
    assert not held.of(world.books.allocator.fleet)
    assert world.gates.in_order([pod("q")]) == ["q"]


def test_a_pod_whose_gate_could_not_be_opened_in_time_waits_again() -> None:
    world = World(machine("a", 1))
    world.come(pod("p"))
    world.gates.step()
    world.clock.now += OPEN_S
    assert world.gates.step() == [("p", "a")]
    assert world.gates.places() == {"p": "a"}  # its turn is still the first


def test_a_promise_outlives_a_bind_that_failed_and_not_its_machine() -> None:
    world = World(machine("a", 1), machine("b", 1))
    world.come(pod("p"))
    world.step()
    node = world.gates.places()["p"]
    assert isinstance(world.books.reserve(pod("p"), node), Allocation)
    world.gates.step()
    world.books.undo("p")
    world.gates.step()
    assert world.books.allocator.nominations.of("p").node == node
    world.books.set_nodes([_of(world, name) for name in "ab" if name != node])
    world.step()
    assert world.gates.places()["p"] != node


def test_a_restart_preserves_the_places_of_pods_with_an_open_gate() -> None:
    world = World(machine("a", 2), machine("b", 2))
    world.come(*(pod(f"p{n}", 1, "xy"[n % 2], created_at=1.0 + n) for n in range(8)))
    world.step()
    places = world.gates.places()
    assert len(places) == 4
    world.bind("p0")
    world.restart()
    assert {uid: node for uid, node in places.items() if uid != "p0"} == world.gates.places()
    assert world.step() == []
    assert all(isinstance(world.books.reserve(pod("q"), name), Refusal) for name in "ab")


def test_no_more_pods_are_admitted_at_once_than_the_limit() -> None:
    world = World(machine("a", 8), most=3)
    world.come(*(pod(f"p{n}", created_at=1.0 + n) for n in range(8)))
    assert sorted(world.step()) == ["p0", "p1", "p2"]
    assert world.step() == []
    world.bind("p1")
    assert world.step() == ["p3"]


KINDS = ("gpu=1", "gpu=2", "gpu=1,vram=6g", "gpu=1,tflops=40,vram=4g", "gpu=2,vram=9g", "gpu=0.5", "gpu=1,cpu=20")


@pytest.mark.parametrize("seed", range(25))
def test_a_promised_place_can_be_taken_whatever_other_pods_request(seed: int) -> None:
    chance = random.Random(seed)
    world = World(machine("a", 2), machine("b", 3), machine("c", 1), most=chance.choice((2, 128)))
    for number in range(50):
        world.clock.now += chance.choice((1, 20, RESERVE_AFTER_S))
        kind = chance.random()
        if kind < 0.6:
            claim = {"namespace": chance.choice("xyz"), "priority": chance.choice((0, 0, 9))}
            size = chance.choice((1, 1, 1, 3))
            gang = GangClaim(f"g{number}", size, size) if size > 1 else None
            world.come(
                *(
                    ask(chance.choice(KINDS), uid=f"{number}-{n}", created_at=world.clock.now, gang=gang, **claim)
                    for n in range(size)
                )
            )
        elif kind < 0.65:
            world.restart()
        elif kind < 0.7:
            world.clock.now += OPEN_S
        else:
            there = [*world.bound, *world.open, *world.gated]
            for uid in chance.sample(there, min(len(there), chance.randint(1, 4))):
                world.end(uid)
        world.step()
        places = world.gates.places()
        assert {uid for uid in world.gated if world.gates.standings()[uid].refusal is None} == set() or world.most == 2
        for uid in chance.sample(list(places), chance.randint(0, len(places))):
            assert world.bind(uid) == places[uid]


def test_while_no_scheduler_places_pods_few_gates_are_opened() -> None:
    world = World(machine("a", 8), machine("b", 8), most=4)
    world.come(*(pod(f"p{n:02}", created_at=1.0 + n) for n in range(60)))
    for _ in range(20):
        world.step()
        world.clock.now += OPEN_S
    assert 4 <= len(world.open) <= 4 + 20
    world.bind(next(iter(world.gates.places())))
    world.step()
    assert len(world.gates.places()) == 4  # somebody is there again


# --- limits and reasons ---


def test_quotas_count_what_is_promised() -> None:
    world = World(machine("a", 4), rules=Rules(quotas=Quotas({"x": Quota(max_workers=2)})))
    world.come(*(pod(f"p{n}", created_at=1.0 + n) for n in range(3)))
    assert sorted(world.step()) == ["p0", "p1"]
    assert world.step() == []
    assert world.code("p2") is Code.QUOTA_TOTAL_WORKERS


def test_waiting_pods_know_their_position_and_the_limit_of_their_queue() -> None:
    world = World(machine("a", 4), queues=(parse_queue("x", "root", 1, None, "gpu=1"),))
    world.come(*(pod(f"p{n}", priority=n, created_at=1.0) for n in range(3)))
    assert world.go() == ["p2"]
    standing = world.gates.standings()
    assert {uid: (each.position, each.waiting) for uid, each in standing.items()} == {"p1": (1, 2), "p0": (2, 2)}
    assert world.code("p0") is Code.QUEUE_LIMIT


def test_a_pod_above_the_limit_of_its_queue_waits_for_another_limit_and_not_for_others() -> None:
    world = World(machine("a", 4), queues=(parse_queue("x", "root", 1, None, "gpu=1"),))
    world.come(pod("large", 2, created_at=1.0), pod("small", created_at=2.0), pod("next", created_at=3.0))
    assert world.go() == ["small"]
    assert (world.code("large"), world.code("next")) == (Code.ABOVE_LIMIT, Code.QUEUE_LIMIT)
    (why,) = world.gates.refusals()["large"].rejections
    assert reject_text(why).endswith("it asks for gpu=2; there is a limit of gpu=1 on queue x")
    assert cure_text(why) == "ask for less, or have the limit raised: waiting does not help"


def test_nothing_is_placed_where_no_node_takes_work() -> None:
    world = World(a_node("a", state=NodeState.NOT_READY))
    world.come(pod("p"))
    assert world.go() == []
    assert world.code("p") is not None


def test_nothing_is_examined_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(machine("a", 1))
    world.come(pod("p"), pod("q"))
    world.go()
    world.step()
    monkeypatch.setattr("ullage.service.gates.next_turns", None)
    world.step()
    wake = world.gates.wake_in_s()
    assert wake is not None
    assert wake <= RESERVE_AFTER_S


def test_a_place_that_was_promised_stays_when_a_better_one_comes_free() -> None:
    world = World(machine("a", 2), machine("b", 8))
    world.come(pod("s", 2), pod("p", 1, created_at=1001.0))
    world.step()
    world.bind("s", ["a"])
    assert world.gates.places() == {"p": "b"}
    world.end("s")  # now the smaller machine would do
    world.come(pod("q", 1, created_at=1002.0))
    world.step()
    assert world.gates.places() == {"p": "b", "q": "b"}
    world.restart()
    assert world.gates.places() == {"p": "b", "q": "b"}
    world.books.withdraw("p")
    world.books.withdraw("q")
    world.end("p")
    world.end("q")
    world.come(pod("r", 1))
    world.step()
    assert world.gates.places() == {"r": "a"}


def test_no_place_is_promised_where_a_kubelet_refused_a_pod_that_asked_the_same():
    world = World(machine("a", 4), machine("b", 4))
    first = pod("first", 4)
    world.come(first)
    world.go()
    there = world.books.held("first").node
    other = {"a": "b", "b": "a"}[there]
    world.books.note_rejection("first")
    world.end("first")
    world.come(pod("p", 4), pod("q", 4), pod("r", 3))
    world.step()
    places = world.gates.places()
    assert (places["p"], places["r"]) == (other, there), "r asks for something else"
    world.end("r")
    assert world.step() == []
    world.end("p")
    world.step()
    assert world.gates.places() == {"q": other}
    world.come(pod("s", 4))
    world.books.set_nodes([world.nodes[0] if there == "a" else world.nodes[1]])
    world.step()
    assert world.gates.places() == {}
    assert world.code("s") is Code.REFUSED_THERE
    world.books.drop_rejections(there)
    world.step()
    assert set(world.gates.places().values()) == {there}, "something has changed on it: it is tried again"


def test_a_place_that_was_promised_is_another_once_its_node_refuses_such_pods():
    world = World(machine("a", 8), machine("b", 8))
    world.come(pod("first", 4))
    world.go()
    there = world.books.held("first").node
    world.come(pod("next", 4))
    world.step()
    assert world.gates.places() == {"next": there}
    world.books.note_rejection("first")
    world.end("first")
    world.step()
    assert world.gates.places() == {"next": {"a": "b", "b": "a"}[there]}


@pytest.mark.parametrize("seed", range(30))
def test_other_waiting_requests_have_the_order_of_admission(seed: int):
    chance = random.Random(seed)
    queues = (Queue("x", weight=3), Queue("y"), Queue("z", parent="y"))
    held = [pod(f"held{number}", 1, chance.choice("xyz")) for number in range(chance.randrange(6))]
    waiting = [
        pod(
            f"p{number}",
            chance.choice([1, 1, 2]),
            chance.choice("xyzw"),
            priority=chance.choice([0, 0, 5]),
            created_at=float(chance.randrange(900, 910)),
            pod=f"p{number}",
        )
        for number in range(12)
    ]
    world, other = (World(machine("a", 64), queues=queues, most=1) for _ in range(2))
    for each in (world, other):
        each.come(*held)
        each.go()
    world.come(*waiting)
    before = dict(other.books.allocator.fleet.ledger)
    assert other.gates.in_order(waiting) == world.go()
    assert other.books.allocator.fleet.ledger == before


def test_requests_that_the_limit_of_their_queue_stops_come_last():
    world = World(machine("a", 8), queues=(parse_queue("x", "root", 1, None, "gpu=1"),))
    asked = [pod("p", 1, "x"), pod("q", 1, "x"), pod("r", 2, "y")]
    assert world.gates.in_order(asked)[2] == "q"


def lapses(world: World) -> None:
    world.clock.now += EXPECTED_S


def is_freed(world: World) -> None:
    world.books.free("expected")


def may_have_more(world: World) -> None:
    world.books.quotas.set("x", Quota(max_workers=1))


@pytest.mark.parametrize("change", [lapses, is_freed, may_have_more])
def test_there_is_news_whenever_the_books_have_changed(change: Callable[[World], None]) -> None:
    world = World(machine("a", 1), machine("b", 1))
    world.books.quotas.set("x", Quota(max_workers=0))
    world.books.offers(pod("expected", queue="y"), ["a"])
    world.come(pod("p"))
    assert world.gates.has_news
    world.gates.step()
    assert not world.gates.has_news
    change(world)
    assert world.gates.has_news
    world.gates.step()
    assert not world.gates.has_news
