"""`leftover` by name: best fit until enough arrived, then our own placement for the books in use."""

from collections import deque

import pytest

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.learning.learned import Learning
from ullage.core.placing.decision import Choice
from ullage.core.placing.draft import fit_together
from ullage.core.placing.placement import Placer, Table
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import WHOLE_BY, Rules
from ullage.core.strategies import PARTS_BY, strategy_named
from ullage.core.strategies.leftover import leftover
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)
ESTIMATED, AGAIN = 63, 94
"""After so many arrivals there are new estimates, one right after the other."""
TEXTS = ("cpu=2,gpu=0.3", "cpu=2,gpu=0.6", "cpu=4,gpu=1", "cpu=8,gpu=2")


def node(name, cards=4):
    return Node(name, 64_000, 1 << 36, tuple(Gpu(f"{name}-{k}", k, model="A100") for k in range(cards)))


def request(number, strategy=None):
    text = TEXTS[number % len(TEXTS)]
    return Request(f"r{number}", ResourceRequirement.from_string(text), strategy=strategy)


def allocator(nodes=12, rules=None, learning=None):
    made = FleetAllocator(Fleet([node(f"n{k:02}") for k in range(nodes)]), rules, learning)
    made.set_ready()
    return made


def ask(books, numbers, strategy=None):
    """Each is placed and gone at once, so that all are asked on the same books; where they went."""
    places = []
    for number in numbers:
        held = books.alloc(request(number, strategy), 0.0)
        assert isinstance(held, Allocation)
        places.append((held.node, held.gpus))
        books.dealloc(held.id, 0.0)
    return places


def tables(fleet, strategy):
    return [table for key, table in fleet.tables.items() if isinstance(table, Table) and key[1] is strategy]


class Background:
    """Work that is done when the test says so."""

    def __init__(self):
        self.waiting = deque()

    def __call__(self, work, take):
        self.waiting.append((work, take))

    def run(self):
        work, take = self.waiting.popleft()
        take(work())


def test_until_it_is_made_ready_it_is_best_fit():
    mine = allocator(rules=Rules("leftover"), learning=Learning(Background()))
    best = allocator(rules=Rules("best-fit"))
    for number in range(49):
        placed = [books.alloc(request(number), 0.0) for books in (mine, best)]
        where = [(held.node, held.gpus) if isinstance(held, Allocation) else held.code for held in placed]
        assert where[0] == where[1]
    assert mine.learning.missing == 1


def test_then_it_is_our_own_placement_for_what_arrived():
    books = allocator(rules=Rules("leftover"))
    ask(books, range(ESTIMATED))
    estimate = books.learning.workload
    assert estimate is not None
    assert estimate.tasks == ESTIMATED
    known = leftover(books.fleet.copy(), estimate, live=True)
    for number in range(ESTIMATED, ESTIMATED + 20):
        other = allocator(rules=Rules(known))
        for uid, held in books.fleet.ledger.items():
            other.assume(Request(uid, held.requirement), held.gpus, 0.0)
        mine, expected = books.alloc(request(number), 0.0), other.alloc(request(number), 0.0)
        assert (mine.node, mine.gpus) == (expected.node, expected.gpus)


def test_a_new_estimate_makes_it_anew_and_drops_the_tables_of_the_old_one():
    books = allocator(rules=Rules("leftover"))
    ask(books, range(ESTIMATED))
    before = books.fleet.strategies["leftover"]
    ask(books, [ESTIMATED])
    assert tables(books.fleet, before)
    ask(books, range(ESTIMATED + 1, AGAIN))
    after = books.fleet.strategies["leftover"]
    assert after is not before
    assert not tables(books.fleet, before)
    assert books.learning.workload.tasks == AGAIN


def test_new_inventory_has_it_made_for_the_new_books():
    books = allocator(rules=Rules("leftover"))
    ask(books, range(ESTIMATED + 5))
    books.set_nodes([node("m1", 8), node("m2", 8)])
    assert books.fleet.strategies["leftover"].name == "leftover"
    assert books.learning.workload.tasks == ESTIMATED
    assert {place[0] for place in ask(books, range(100, 110))} <= {"m1", "m2"}


def test_what_is_asked_again_and_again_arrived_once():
    books = allocator()
    huge = Request("huge", ResourceRequirement.from_string("gpu=64"))
    for _ in range(5):
        books.alloc(huge, 0.0)
        books.simulate(request(1))
    assert books.learning.seen == 1


def test_beside_the_old_one_decides_until_the_new_one_is_ready():
    background = Background()
    books = allocator(rules=Rules("leftover"), learning=Learning(background))
    ask(books, range(ESTIMATED))
    assert len(background.waiting) == 1, "one at a time"
    background.run()
    assert books.learning.workload.tasks == 1, "the first that went by it had one made"
    ask(books, range(ESTIMATED, AGAIN))
    background.run()
    assert books.learning.workload.tasks == ESTIMATED
    background.run()
    assert books.learning.workload.tasks == AGAIN
    assert not background.waiting


def test_what_was_made_beside_knows_the_changes_since():
    background, rules = Background(), Rules("leftover")
    books = allocator(rules=rules, learning=Learning(background))
    ask(books, range(ESTIMATED))
    for number in range(ESTIMATED, ESTIMATED + 12):
        books.alloc(request(number), 0.0)
    background.run()
    at_once = FleetAllocator(
        books.fleet.copy(), Rules(leftover(books.fleet.copy(), books.learning.workload, live=True))
    )
    at_once.set_ready()
    for number in range(70, 90):
        mine, expected = books.alloc(request(number), 0.0), at_once.alloc(request(number), 0.0)
        assert isinstance(mine, Allocation) == isinstance(expected, Allocation)
        if isinstance(mine, Allocation):
            assert (mine.node, mine.gpus) == (expected.node, expected.gpus)


def test_what_was_made_for_other_books_is_not_taken():
    background = Background()
    books = allocator(learning=Learning(background))
    ask(books, range(ESTIMATED))
    books.set_nodes([node("m1")])
    background.run()
    assert books.fleet.strategies["leftover"] is strategy_named("leftover")
    background.run()
    assert books.fleet.strategies["leftover"] is not strategy_named("leftover")


@pytest.mark.parametrize("rules", [pytest.param(Rules(), id="whole cards"), pytest.param(Rules("spread"), id="parts")])
def test_nothing_is_made_ready_before_something_goes_by_it(rules):
    background = Background()
    books = allocator(rules=rules, learning=Learning(background))
    numbers = range(2, 4 * ESTIMATED, 4) if rules.strategy is None else range(ESTIMATED)
    ask(books, numbers)
    assert books.learning.workload.tasks == ESTIMATED
    books.set_nodes([node("m1", 8)])
    assert books.learning.workload.tasks == ESTIMATED
    assert not background.waiting
    ask(books, [1000, 1001], strategy="leftover")
    assert len(background.waiting) == 1
    background.run()
    assert books.fleet.strategies["leftover"] is not strategy_named("leftover")
    books.set_nodes([node("m1", 4)])
    assert len(background.waiting) == 1, "what goes by it did so on the books before"


@pytest.mark.parametrize(
    ("text", "name"),
    [("gpu=0.5", PARTS_BY), ("gpu=2,percent=20", PARTS_BY), ("gpu=1", WHOLE_BY), ("gpu=8", WHOLE_BY)],
)
def test_parts_of_cards_go_by_it_if_nothing_is_said_and_whole_ones_do_not(text, name):
    asked = ResourceRequirement.from_string(text)
    assert Rules().strategy_of(Request("r", asked)) is strategy_named(name)
    assert Rules("spread").strategy_of(Request("r", asked)) is strategy_named("spread")
    assert Rules(strategies={"": "spread"}).strategy_of(Request("r", asked)) is strategy_named("spread")


def test_parts_that_sessions_ask_for_go_by_it_too_unless_the_policy_says_otherwise():
    books = allocator()
    ask(books, range(ESTIMATED))
    made, half = books.fleet.strategies["leftover"], ResourceRequirement.from_string("cpu=1,gpu=0.5")
    for policy, expected in ((Policy(), made), (Policy(strategy="spread"), strategy_named("spread"))):
        Placer(books.fleet, policy).room(half)
        assert tables(books.fleet, expected)
    before = len(tables(books.fleet, made))
    Placer(books.fleet, Policy()).room(ResourceRequirement.from_string("cpu=1,gpu=3"))
    assert len(tables(books.fleet, made)) == before


def test_a_slice_of_hardware_goes_by_the_default_for_whole_cards():
    asked = ResourceRequirement.from_string("vram=10g,isolation=partitioned")
    assert Rules().strategy_of(Request("r", asked)) is strategy_named(WHOLE_BY)


def test_a_simulation_says_what_happens_then():
    books = allocator(rules=Rules("leftover"))
    ask(books, range(ESTIMATED))
    for number in range(100, 140):
        reported = books.simulate(request(number)).outcome
        done = books.alloc(request(number), 0.0)
        assert isinstance(reported, Choice) == isinstance(done, Allocation)
        if isinstance(reported, Choice):
            assert (reported.node, reported.gpus) == (done.node, done.gpus)


def test_a_simulation_tells_what_the_choice_costs():
    books = allocator(rules=Rules("leftover"))
    assert books.simulate(request(1)).terms == {}
    ask(books, range(ESTIMATED))
    for number in range(100, 130):
        decision = books.simulate(request(number))
        if isinstance(decision.outcome, Choice):
            assert decision.terms.keys() == {"leftover", "prices"}
            assert decision.terms["prices"] >= 0
            assert decision.terms["leftover"] >= -decision.outcome.score
        books.alloc(request(number), 0.0)


def test_a_gang_of_parts_is_placed_by_it():
    books = allocator(rules=Rules("leftover"))
    ask(books, range(ESTIMATED))
    asked = ResourceRequirement.from_string("cpu=2,gpu=0.3")
    gang = [Request(f"w{k}", asked, Claim(gang=GangClaim("g", 7, 7))) for k in range(7)]
    found = fit_together(books.fleet, books.rules, gang, 0.0)
    assert isinstance(found, dict)
    for request in gang:
        held = books.alloc(request, 0.0)
        assert (held.node, held.gpus) == (found[request.uid].node, found[request.uid].gpus)


def test_a_copy_of_the_books_has_no_strategy_of_its_own():
    books = allocator()
    ask(books, range(ESTIMATED))
    assert books.fleet.strategies
    assert not books.fleet.copy().strategies
    assert not books.fleet.emptied().strategies
