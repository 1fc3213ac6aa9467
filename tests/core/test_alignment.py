"""Requests on machines with zones: what they get, why they are refused, what is left when they are gone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.core.zones import GIB, kubelet, machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.placing.rules import Rules
from ullage.core.topology.rules import WidthRule, ZoneRules
from ullage.core.verdict.sentences import reject_text
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Link, Path, Room, Scope, ZonePolicy

pytestmark = pytest.mark.timeout(900)

BEST, RESTRICTED, SINGLE = "best-effort", "restricted", "single-numa-node"


def allocator(*nodes: Node, **rules: object) -> FleetAllocator:
    found = FleetAllocator(Fleet(nodes), Rules(**rules))  # type: ignore[arg-type]  # facts by name
    found.set_ready()
    return found


def asked(text: str) -> Request:
    return Request("r", ResourceRequirement.from_string(text))


def pod(*containers: ContainerNeeds, policy: str | None = None, uid: str = "r") -> Request:
    """A pod of these containers; its own amounts are what they come to at their peak."""
    apps = [one for one in containers if one.stage is not AlignmentStage.INIT]
    cards = max(sum(count(one) for one in apps), *(count(one) for one in containers))
    cpus = max(sum(one.cpus for one in apps), *(one.cpus for one in containers))
    alignment = Alignment(None if policy is None else ZonePolicy(policy), containers)
    return Request(uid, ResourceRequirement(cpus * 1000, 0, cards, alignment=alignment))


def count(container: ContainerNeeds) -> int:
    return sum(number for _, number in container.devices)


def needs(
    cards: int = 0, cpus: int = 0, *, name: str = "main", stage: AlignmentStage = AlignmentStage.APP
) -> ContainerNeeds:
    return ContainerNeeds(name, stage, cpus, devices=(("gpu", cards),) if cards else ())


def place(books: FleetAllocator, request: Request) -> Allocation | Code:
    found = books.alloc(request, 0.0)
    return found.code if isinstance(found, Refusal) else found


def indices(found: Allocation | Code) -> list[int] | Code:
    """The cards that were taken, by index."""
    return found if isinstance(found, Code) else sorted(int(uuid.rpartition("g")[2]) for uuid in found.gpus)


def hold(books: FleetAllocator, node: str, cards: list[int]) -> None:
    """Somebody else has these cards."""
    number = len(books.fleet.ledger)
    uuids = [f"{node}-g{card}" for card in cards]
    taken = books.bind(Request(f"held-{number}", ResourceRequirement.of(gpu=len(cards))), uuids, 0.0)
    assert isinstance(taken, Allocation), taken


def with_free(free: list[int], policy: str | None = None, **more: object) -> FleetAllocator:
    """Layout B with just these cards free."""
    node = machine(kubelet=None if policy is None else kubelet(policy), **more)  # type: ignore[arg-type]  # facts by name
    books = allocator(node)
    for card in range(8):
        if card not in free:
            hold(books, "n", [card])
    return books


def answers():
    """For the test without the compiler."""
    for decides in (None, *map(kubelet, (BEST, RESTRICTED, SINGLE))):
        books = allocator(machine(threads=2, memory=(4, 4), kubelet=decides))
        containers = (needs(2, 3, name="a", stage=AlignmentStage.INIT), needs(1, 2, name="b"), needs(1, 5, name="c"))
        for uid, policy in enumerate((None, BEST, SINGLE, RESTRICTED)):
            found = place(books, pod(*containers, policy=policy, uid=str(uid)))
            yield found if isinstance(found, Code) else (found.gpus, found.placement)
        yield place(books, asked("cpu=30,gpu=4,numa=restricted"))


# --- one container where the kubelet decides (16 CPUs per zone) ---


@pytest.mark.parametrize(
    ("cards", "cpus", "admitted"),
    [
        pytest.param(2, 8, {BEST, RESTRICTED, SINGLE}, id="17"),
        pytest.param(6, 10, {BEST}, id="18"),
        pytest.param(6, 24, {BEST, RESTRICTED}, id="19"),
        pytest.param(8, 32, {BEST, RESTRICTED}, id="20"),
    ],
)
def test_what_a_kubelet_admits(cards, cpus, admitted):
    found = set()
    for policy in (BEST, RESTRICTED, SINGLE):
        placed = place(allocator(machine(kubelet=kubelet(policy))), asked(f"cpu={cpus},gpu={cards}"))
        if isinstance(placed, Allocation):
            found.add(policy)
        else:
            assert placed is Code.NOT_ALIGNED
    assert found == admitted


@pytest.mark.parametrize("policy", [RESTRICTED, SINGLE])
def test_the_zone_with_the_cpus(policy):  # 21
    books = allocator(machine(kubelet=kubelet(policy), reserved=range(12)))
    found = place(books, asked("cpu=8,gpu=4"))
    assert indices(found) == [4, 5, 6, 7]
    assert found.placement.zones == (1,)
    assert found.placement.cpus == tuple(range(16, 24))


def test_two_cards_per_zone_and_four_asked():  # 22
    node = machine(cards=(0, 0, 1, 1), kubelet=kubelet(RESTRICTED))
    assert place(allocator(node), asked("cpu=1,gpu=4")) is Code.NOT_ALIGNED
    found = place(
        allocator(replace(node, topology=replace(node.topology, kubelet=kubelet(BEST)))), asked("cpu=1,gpu=4")
    )
    assert indices(found) == [0, 1, 2, 3]


def test_free_cards_on_both_zones_are_narrow_enough_only_where_ullage_binds():  # 29
    cards = (0, 0, 1, 1)
    for owner, expected in ((None, [0, 2]), (kubelet(RESTRICTED), Code.NOT_ALIGNED)):
        books = allocator(machine(cards=cards, kubelet=owner))
        hold(books, "n", [1])
        hold(books, "n", [3])
        assert indices(place(books, asked("gpu=2,numa=restricted"))) == expected


@pytest.mark.parametrize(
    ("rule", "of_ullage", "of_a_kubelet"),
    [
        (None, "current-best", "kubelet"),
        (WidthRule.KUBELET, "kubelet", "kubelet"),
        (WidthRule.CURRENT_BEST, "current-best", "current-best"),
    ],
)
def test_the_operator_s_rule_of_the_least_width_decides_and_is_named(rule, of_ullage, of_a_kubelet):
    for owner, name in ((None, of_ullage), (kubelet(RESTRICTED), of_a_kubelet)):
        node = machine(cards=(0, 0, 1, 1), kubelet=owner)
        books = FleetAllocator(Fleet([node], zone_rules=ZoneRules(rule)))
        books.set_ready()
        hold(books, "n", [1])
        hold(books, "n", [3])
        books.set_nodes([replace(node, labels={"rack": "r1"})])  # rules outlast the inventory
        found = books.alloc(asked("gpu=2,numa=restricted"), 0.0)
        if name == "current-best":
            assert indices(found) == [0, 2]
            assert found.placement.rule == name
        else:
            assert (found.code, found.rejections[0].rule) == (Code.NOT_ALIGNED, name)
            assert reject_text(found.rejections[0]).endswith("on zone 1 (width rule kubelet)")


def test_a_node_on_which_one_zone_is_enough():  # 32
    nodes = machine("a"), machine("b")
    for owner in (None, kubelet(BEST)):
        books = allocator(*(replace(node, topology=replace(node.topology, kubelet=owner)) for node in nodes))
        hold(books, "a", [3])
        hold(books, "a", [4])
        hold(books, "a", [5])
        hold(books, "a", [6])
        hold(books, "b", [6])
        hold(books, "b", [7])
        assert place(books, asked("gpu=4,numa=best-effort")).node == "b"


@pytest.mark.parametrize(
    ("free", "number", "expected"),
    [
        pytest.param(range(8), 4, [0, 1, 2, 3], id="33"),
        pytest.param([4, 5, 6, 7], 4, [4, 5, 6, 7], id="34"),
        pytest.param(range(8), 5, [0, 1, 2, 3, 4], id="35"),
        pytest.param([1, 2, 4, 5, 6, 7], 4, [4, 5, 6, 7], id="36"),
        pytest.param(range(8), 3, [0, 1, 2], id="38"),
    ],
)
@pytest.mark.parametrize("policy", [None, BEST])
def test_cards_of_the_chosen_zones(free, number, expected, policy):
    assert indices(place(with_free(list(free), policy), asked(f"gpu={number}"))) == expected


def test_spill_beyond_the_zones_of_the_mask():  # 37
    cpus_only_on_0 = with_free([0, 1, 4, 5, 6, 7], BEST, cpus=(16, 0))
    found = place(cpus_only_on_0, asked("cpu=4,gpu=4"))
    assert indices(found) == [4, 5, 6, 7] or found.placement.zones == (0, 1)


# --- containers and scopes ---


@pytest.mark.parametrize(("free", "expected"), [(range(8), [0, 1, 2, 3]), ([0, 1, 4, 5], [0, 1, 4, 5])])
def test_two_containers_of_two(free, expected):  # 41
    assert indices(place(with_free(list(free), RESTRICTED), pod(needs(2), needs(2)))) == expected


def test_containers_one_by_one_and_as_a_pod():  # 42
    for scope, expected in ((Scope.CONTAINER, [0, 1, 2, 4, 5, 6]), (Scope.POD, [0, 1, 2, 3, 4, 5])):
        books = allocator(machine(kubelet=kubelet(BEST, scope=scope)))
        assert indices(place(books, pod(needs(3), needs(3)))) == expected


def test_an_init_container_lends_its_cards_to_the_next():  # 43
    found = place(with_free(list(range(8)), RESTRICTED), pod(needs(4, stage=AlignmentStage.INIT), needs(4)))
    assert indices(found) == [0, 1, 2, 3]


def test_an_init_container_that_is_too_large():  # 44
    books = with_free(list(range(8)), RESTRICTED)
    assert isinstance(place(books, pod(needs(9, stage=AlignmentStage.INIT), needs(1))), Code)
    assert books.fleet.gpu_free.tolist() == [8]


def test_two_containers_each_on_a_zone():  # 45
    node = machine(cards=(0,), cpus=(4, 4), kubelet=kubelet(SINGLE))
    placed = place(allocator(node), pod(needs(1, 3), needs(0, 3)))
    assert placed.placement.cpus == (0, 1, 2, 4, 5, 6)


def test_the_zone_with_enough_of_what_is_free():  # 46
    assert indices(place(with_free([0, 4, 5, 6, 7], RESTRICTED), asked("gpu=3"))) == [4, 5, 6]


def test_half_a_cpu_is_not_aligned():  # 48
    request = Request("r", ResourceRequirement(500, 0, 2))
    found = place(allocator(machine(kubelet=kubelet(RESTRICTED))), request)
    assert indices(found) == [0, 1]
    assert found.placement.cpus == ()


# --- the ledger of zones ---


def test_cards_and_cpus_come_back():  # 49
    books = allocator(machine(kubelet=kubelet(SINGLE)))
    before = books.fleet.board.supplies.copy()
    first = place(books, replace(asked("cpu=8,gpu=4"), uid="a"))
    second = place(books, replace(asked("cpu=8,gpu=4"), uid="b"))
    assert (indices(first), indices(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert isinstance(place(books, replace(asked("cpu=8,gpu=4"), uid="c")), Code)
    books.dealloc("a", 1.0)
    assert indices(place(books, replace(asked("cpu=8,gpu=4"), uid="d"))) == [0, 1, 2, 3]
    books.dealloc("b", 1.0)
    books.dealloc("d", 1.0)
    assert (books.fleet.board.supplies == before).all()
    assert books.fleet.board.held == 0


def test_books_know_only_what_the_record_lists():  # 40
    books = allocator(machine(cards=(0, 0), cpus=(4,), zones=(0,)))
    board = books.fleet.board
    placement = place(books, asked("cpu=2,gpu=1,numa=restricted")).placement
    board.hold(0, replace(placement, cpus=(2, 3, 99), devices=(("gpu", ("x",)), ("nic", ("eth9",)))), +1)
    assert [row[3] for row in board.supplies.tolist()] == [0, 0, 0, 0]
    board.hold(0, replace(placement, cpus=(2, 3, 99), devices=(("nic", ("eth9",)),)), -1)
    books.dealloc("r", 1.0)
    assert [row[3] for row in board.supplies.tolist()] == [1, 1, 1, 1]


# --- where the record is missing, weak or too large ---


def test_an_unknown_machine_refuses_only_what_must_be_aligned():
    node = replace(machine(cards=(None,) * 4), topology=None)
    books = allocator(node)
    for policy in (RESTRICTED, SINGLE):
        assert place(books, asked(f"gpu=2,numa={policy}")) is Code.TOPOLOGY_UNKNOWN
    assert isinstance(place(books, asked("gpu=2,numa=best-effort")), Allocation)


def test_a_node_weaker_than_the_pod_is_refused_and_a_stricter_one_is_not():
    books = allocator(machine(kubelet=kubelet(BEST)))
    assert place(books, asked("gpu=2,numa=restricted")) is Code.NODE_POLICY_WEAKER
    assert isinstance(place(allocator(machine(kubelet=kubelet(SINGLE))), asked("gpu=2,numa=restricted")), Allocation)
    assert isinstance(place(books, asked("gpu=2,numa=best-effort")), Allocation)


def test_more_zones_than_are_enumerated():
    zones = range(17)
    for policy, expected in ((RESTRICTED, Code.ZONES_TOO_MANY), (SINGLE, Code.ZONES_TOO_MANY), (BEST, None)):
        node = machine(cards=[zone % 17 for zone in range(20)], cpus=[2] * 17, zones=zones)
        found = place(allocator(node), asked(f"gpu=2,numa={policy}"))
        assert found is expected if expected else isinstance(found, Allocation)


def test_the_most_zones_that_a_record_may_have():
    zones = range(64)
    books = allocator(machine(cards=list(zones), cpus=[1] * 64, zones=zones))
    assert isinstance(place(books, asked("gpu=2,numa=best-effort")), Allocation)


def test_a_resource_that_the_record_does_not_list_has_no_entry():  # 39
    for policy in (None, SINGLE):
        node = machine(cpus=(), kubelet=None if policy is None else kubelet(policy))
        found = place(allocator(replace(node, cpu_milli=8000)), asked("cpu=4,gpu=2,numa=single-numa-node"))
        assert (indices(found), found.placement.cpus) == ([0, 1], ())


def test_unknown_zones_are_taken_last_and_claim_nothing():
    books = allocator(machine(cards=(None, 0, 0, 1, 1, 1)))
    assert indices(place(books, asked("gpu=2,numa=restricted"))) == [1, 2]
    nowhere = allocator(machine(cards=(None,) * 4))
    assert indices(place(nowhere, asked("gpu=2,numa=restricted"))) == [0, 1]


# --- CPUs ---


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(machine("a", kubelet=kubelet("none")), id="the kubelet aligns nothing"),
        pytest.param(machine("a", cards=[None] * 8), id="zones of the cards unknown"),
        pytest.param(machine("a", zones=range(17), cpus=[1] * 17), id="too many zones"),
        pytest.param(replace(machine("a", cards=[None] * 8), topology=None), id="no record"),
    ],
)
def test_a_node_that_cannot_claim_alignment_comes_last_and_is_not_excluded(last):
    books = allocator(last, machine("b"))
    hold(books, "a", [0, 1, 2])  # fuller, and first by name
    assert [found.node for found in place_all(books, "gpu=4,numa=best-effort", 3)] == ["b", "b", "a"]


def place_all(books: FleetAllocator, text: str, number: int) -> list[Allocation]:
    found = [books.alloc(replace(asked(text), uid=str(uid)), 0.0) for uid in range(number)]
    placed = [one for one in found if isinstance(one, Allocation)]
    assert len(placed) == number, found
    return placed


def test_on_one_zone_nothing_can_lie_apart():
    books = allocator(machine("a", cards=[None] * 8, zones=[0], cpus=[16]), machine("b"))
    hold(books, "a", [0, 1])
    assert place_all(books, "gpu=4,numa=best-effort", 1)[0].node == "a"


def test_whole_cores_and_what_is_broken_already():
    books = allocator(machine(cards=(0, 0, 1, 1), cpus=(8, 8), threads=2))
    first = place(books, replace(asked("cpu=3,gpu=1,numa=restricted"), uid="a"))
    assert first.placement.cpus == (0, 1, 2)
    second = place(books, replace(asked("cpu=1,gpu=1,numa=restricted"), uid="b"))
    assert second.placement.cpus == (3,)


def test_whole_zones_of_a_socket_before_cores_and_broken_zones_before_whole_ones():
    node = machine(cards=(0, 0), cpus=(4, 4, 4), zones=(0, 1, 2), kubelet=kubelet("none"), reserved=(0, 7))
    one_socket = tuple(replace(cpu, socket=0, core=cpu.id) for cpu in node.topology.cpus)
    node = replace(node, topology=replace(node.topology, cpus=one_socket))
    books = allocator(node)
    assert place(books, replace(asked("cpu=5,gpu=1"), uid="a")).placement.cpus == (1, 8, 9, 10, 11)
    assert place(books, replace(asked("cpu=3,gpu=1"), uid="b")).placement.cpus == (2, 3, 4)


def test_core_ids_repeat_on_every_socket():
    books = allocator(machine(cards=(0,), cpus=(4, 4), zones=(0, 1), threads=2))
    assert place(books, asked("cpu=2,gpu=1,numa=restricted")).placement.cpus == (0, 1)


def test_small_jobs_go_to_zones_that_are_broken():
    books = allocator(machine())
    for number in range(3):
        assert indices(place(books, replace(asked("gpu=1,numa=single-numa-node"), uid=str(number)))) == [number]
    assert indices(place(books, replace(asked("gpu=4,numa=single-numa-node"), uid="wide"))) == [4, 5, 6, 7]


def test_what_is_not_asked_to_be_aligned_has_no_cpus_of_its_own():
    assert place(allocator(machine()), asked("cpu=4,gpu=2")).placement is None
    assert place(allocator(machine()), asked("cpu=4,gpu=2,numa=none")).placement.cpus == ()


# --- links ---

V_LINKS = {2: "03 04 12 15 23 47 56 67", 1: "01 02 13 26 37 45 46 57"}
X_LINKS = {2: "03 12"}


def linked(name: str, cards: Sequence[int], nvlinks: dict[int, str], paths: dict[Path, str], rest: Path) -> Node:
    """A node whose pairs of cards have so many NVLinks, and these paths; pairs that are not named have the `rest`."""
    node = machine(name, cards=cards)
    count = {pair: number for number, pairs in nvlinks.items() for pair in pairs.split()}
    path = {pair: path for path, pairs in paths.items() for pair in pairs.split()}
    links = [
        Link(node.gpus[a].uuid, node.gpus[b].uuid, path.get(f"{a}{b}", rest), count.get(f"{a}{b}", 0))
        for a, b in itertools.combinations(range(len(cards)), 2)
    ]
    return replace(node, topology=replace(node.topology, links=tuple(links)))


V = linked(
    "n", (0, 0, 0, 0, 1, 1, 1, 1), V_LINKS, {Path.PIX: "01 23 45 67", Path.PHB: "02 03 12 13 46 47 56 57"}, Path.SYS
)
X = linked("n", (0, 0, 1, 1), X_LINKS, {Path.NODE: "01 23", Path.SYS: "02 13"}, Path.UNKNOWN)


@pytest.mark.parametrize(
    ("free", "expected"), [pytest.param([0, 2, 4, 5], [4, 5], id="64"), pytest.param([0, 1, 3], [0, 3], id="65")]
)
def test_two_cards_that_are_joined_and_leave_a_pair(free, expected):
    books = allocator(V)
    for card in range(8):
        if card not in free:
            hold(books, "n", [card])
    assert indices(place(books, asked("gpu=2"))) == expected


def test_two_pairs_by_their_links():  # 66
    books = allocator(X)
    pairs = [indices(place(books, replace(asked("gpu=2"), uid=str(number)))) for number in range(2)]
    assert sorted(pairs) == [[0, 3], [1, 2]]


def test_a_zone_goes_before_links_where_one_is_required():
    assert indices(place(allocator(X), asked("gpu=2,numa=single-numa-node"))) in ([0, 1], [2, 3])


@pytest.mark.parametrize("text", ["gpu=2", "gpu=2,numa=best-effort"])
def test_links_count_where_no_zones_are_known(text):
    unplaced = tuple(replace(card, zones=()) for card in X.gpus)
    node = replace(X, gpus=unplaced, topology=replace(X.topology, zones=(), cpus=()))
    books = allocator(node)
    pairs = [indices(place(books, replace(asked(text), uid=str(number)))) for number in range(2)]
    assert sorted(pairs) == [[0, 3], [1, 2]]
    assert place(allocator(node), asked("gpu=2,numa=restricted")) is Code.TOPOLOGY_UNKNOWN
    by_kubelet = replace(node, topology=replace(node.topology, kubelet=kubelet(RESTRICTED)))
    assert isinstance(place(allocator(by_kubelet), asked(text)), Allocation)


# --- memory and huge pages ---


def test_memory_and_huge_pages_lie_in_the_zone_of_the_cards_and_come_back():
    node = machine(memory=(8, 8), kubelet=kubelet(SINGLE, static_memory=True))
    pages = tuple(replace(zone, hugepages={2 << 20: Room(4 * GIB, 4 * GIB)}) for zone in node.topology.zones)
    books = allocator(replace(node, topology=replace(node.topology, zones=pages)))
    before = books.fleet.board.supplies.copy()
    wants = ContainerNeeds("main", cpus=2, memory_bytes=6 * GIB, devices=(("gpu", 2),), hugepages=((2 << 20, 3 * GIB),))
    placements = [place(books, pod(wants, uid=uid)).placement for uid in ("a", "b")]
    assert [placement.zones for placement in placements] == [(0,), (1,)]
    assert placements[1].memory == ((1, 6 * GIB),)
    assert placements[1].amounts == ((1, "hugepages-2Mi", 3 * GIB),)
    assert place(books, pod(wants, uid="c")) is Code.NOT_ALIGNED
    for uid in ("a", "b"):
        books.dealloc(uid, 1.0)
    assert (books.fleet.board.supplies == before).all()
