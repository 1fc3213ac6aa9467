"""The state of nodes and pods from the API in the books, including forged annotations."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.books import refusals_of
from tests.kube.fake_informer import FakeInformer
from ullage.core.books.fleet import Fleet
from ullage.core.placing.rules import Rules
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.context import KubeContext
from ullage.kube.events import PodEvent, Reason
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.mirror.mirror import Mirror
from ullage.kube.mirror.nodes import CardReader, CardSources
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.holding import Holding as PinnedTo
from ullage.model.holding import PodHolding, Use
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.service.cluster import Cluster
from ullage.wire.dialect import read_pod
from ullage.wire.pod import bind_annotations

GPU, REGISTER = "nvidia.com/gpu", "hami.io/node-nvidia-register"


def a_node(name: str, *cards: str, mib: int = 16_000, count: int = 10) -> dict[str, Any]:
    """A machine whose agent registers its cards by name."""
    reported = [
        {"id": card, "index": at, "count": count, "devmem": mib, "devcore": 100, "type": "T", "health": True}
        for at, card in enumerate(cards)
    ]
    amounts = {"cpu": "64", "memory": "256Gi", GPU: str(len(cards) * count)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "annotations": {REGISTER: json.dumps(reported)}}, "spec": {}, "status": status}


def a_pod(name: str, node: str = "", *cards: str, asks: int = 0, mib: int = 0, **written: str) -> dict[str, Any]:
    """A pod that asks for cards (or for so many MiB of each), and says that it holds some."""
    limits = {GPU: str(asks or len(cards) or 1)} | ({"nvidia.com/gpumem": str(mib)} if mib else {})
    notes = {f"ullage.io/{key.replace('_', '-')}": value for key, value in written.items()}
    if cards:
        notes["ullage.io/gpu-ids"] = ",".join(cards)
    metadata = {"name": name, "namespace": "default", "annotations": notes}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


class World:
    """A mirror of the machines and pods of the test, and the reported errors. `readers` know the cards of nodes."""

    readers: Sequence[CardReader] = (RegisteredCards(),)

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes, self.pods = FakeInformer(NODES), FakeInformer(PODS)
        self.errors: list[str] = []
        self.events: list[PodEvent] = []
        for node in nodes:
            self.nodes.put(node)
        self.begin()

    def begin(self) -> None:
        """A process that starts now."""
        self.events.clear()
        self.cluster = Cluster(Rules(workers_per_node=None), lambda: 0.0, lambda: 1000.0)
        context = KubeContext(
            api=cast("Any", None),
            candidate=cast("Any", None),
            cluster=self.cluster,
            followed=cast("Any", SimpleNamespace(nodes=self.nodes, pods=self.pods, topologies=None)),
            on_error=lambda _kind, name, error: self.errors.append(f"{name}: {error.code}: {error.message}"),
            record_event=self.events.append,
        )
        self.mirror = Mirror(context, CardSources(self.readers))
        self.mirror.recover()

    @property
    def held(self) -> dict[str, tuple[str, ...]]:
        """Cards by the name of the pod that holds them."""
        self.mirror.settle()
        return {uid.removeprefix("uid-"): held.gpus for uid, held in self.cluster.allocator.fleet.ledger.items()}

    def free(self, node: str, count: int = 1) -> tuple[str, ...]:
        """Whole cards that a request would be given there."""
        self.mirror.settle()
        request = Request("asks", ResourceRequirement(gpu_count=count), Claim())
        found = self.cluster.reserve(request, node)
        self.cluster.undo("asks")
        return tuple(sorted(found.gpus)) if isinstance(found, Allocation) else ()


def test_a_pod_in_the_hami_dialect_holds_the_same_after_a_restart():
    world = World(a_node("a", "A0", "A1"))
    asked = read_pod({**a_pod("p", mib=4000), "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}})
    assert asked is not None
    given = world.cluster.reserve(asked.request, "a")
    assert isinstance(given, Allocation)
    world.cluster.confirm("uid-p")
    pod = a_pod("p", "a", mib=4000)
    pod["metadata"]["annotations"] = bind_annotations(given)
    world.pods.put(pod)
    before = dict(world.cluster.allocator.fleet.ledger)
    world.begin()
    assert world.cluster.allocator.fleet.ledger == before
    assert world.errors == []


@pytest.mark.parametrize("cards", [1, 2])
def test_a_pod_whose_containers_share_cards_is_rebuilt_as_it_was_granted(cards: int) -> None:
    world = World(a_node("a", *(f"A{at}" for at in range(cards))))
    pod = a_pod("p", mib=4000)
    container = pod["spec"]["containers"][0]
    pod["spec"]["containers"] = [{**container, "name": f"c{at}"} for at in range(3)]
    asked = read_pod({**pod, "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}})
    assert asked is not None
    shared = next(each for each in asked.shared if each.requirement.gpu_count == cards)
    given = world.cluster.reserve(shared.request, "a")
    assert isinstance(given, Allocation)
    world.cluster.confirm("uid-p")
    pod["metadata"]["annotations"] = bind_annotations(given)
    pod["spec"]["nodeName"] = "a"
    world.pods.put(pod)
    before = dict(world.cluster.allocator.fleet.ledger)
    world.begin()
    assert world.cluster.allocator.fleet.ledger == before
    assert world.errors == []


@pytest.mark.parametrize("live", [True, False], ids=["live", "at the start"])
class TestForged:
    """What a pod says of cards that cannot be so, while the mirror follows, and when it begins."""

    def apply(self, world: World, live: bool, *pods: dict[str, Any]) -> None:
        for pod in pods:
            world.pods.put(pod)
        if not live:
            world.errors.clear()
            world.begin()

    def test_unknown_cards_cost_no_other_card_and_the_rest_is_held(self, live: bool):
        world = World(a_node("a", "A0", "A1"))
        self.apply(world, live, a_pod("p", "a", "A0", "none"))
        assert world.held == {"p": ("A0", "none")}
        assert world.free("a") == ("A1",)
        assert world.free("a", 2) == ()
        world.pods.drop("p", "default")
        assert world.free("a", 2) == ("A0", "A1")

    def test_a_card_that_two_name_is_free_when_both_have_gone(self, live: bool):
        world = World(a_node("a", "A0"))
        self.apply(world, live, a_pod("p", "a", "A0"), a_pod("q", "a", "A0"))
        assert world.held == {"p": ("A0",), "q": ("A0",)}
        assert world.errors
        assert all("card-held" in error for error in world.errors)
        world.pods.drop("p", "default")
        assert world.free("a") == ()
        world.pods.drop("q", "default")
        assert world.free("a") == ("A0",)

    def test_parts_that_exceed_a_card_leave_nothing_free_and_are_reported(self, live: bool):
        world = World(a_node("a", "A0"))
        of = '{"cards":[{"compute":500000,"vram":12000000000,"isolation":"soft"}]}'
        self.apply(world, live, *(a_pod(name, "a", "A0", mib=12_000, allocation=of) for name in "pq"))
        assert set(world.held) == {"p", "q"}
        assert world.free("a") == ()
        assert any("card-held" in error for error in world.errors)
        world.pods.drop("p", "default")
        world.pods.drop("q", "default")
        assert world.free("a") == ("A0",)

    @pytest.mark.parametrize(
        "written",
        [
            {"allocation": "{"},
            {"allocation": "[" * 100_000},
            {"allocation": '{"cards":[{"compute":-5,"vram":0,"isolation":"soft"}]}'},
            {"allocation": f'{{"cards":[{{"compute":{2**62},"vram":{2**62},"isolation":"soft"}}]}}'},
            {"numa_placement": '{"cpus":"x"}'},
            {"gpu_count": "many"},
            {"isolation": "partitioned", "gpu_count": "1", "tflops_request": "1"},
        ],
        ids=lambda written: f"{next(iter(written))}={next(iter(written.values()))[:30]}",
    )
    def test_an_unreadable_pod_holds_the_cards_that_it_names(self, live: bool, written: dict[str, str]):
        world = World(a_node("a", "A0", "A1"))
        self.apply(world, live, a_pod("p", "a", "A0", mib=1000, **written))
        assert world.held == {"p": ("A0",)}
        assert len(world.errors) == 1
        assert world.free("a") == ("A1",)

    def test_cards_of_another_machine_are_held_there(self, live: bool):
        world = World(a_node("a", "A0"), a_node("b", "B0"))
        self.apply(world, live, a_pod("p", "a", "B0"), a_pod("q", "gone", "A0"))
        assert (world.free("a"), world.free("b")) == ((), ())
        world.pods.drop("p", "default")
        world.pods.drop("q", "default")
        assert (world.free("a"), world.free("b")) == (("A0",), ("B0",))


def test_a_card_that_two_machines_claim_is_that_of_one():
    world = World(a_node("a", "X", "A1"), a_node("b", "B0", "X"))
    assert world.free("b") == ("B0",)
    assert world.free("b", 2) == ()
    assert world.free("a", 2) == ("A1", "X")
    assert [error for error in world.errors if "card-named-twice" in error] == [
        "b: card-named-twice: card X is also named by a; card ids must be unique in a cluster"
    ]
    world.nodes.put(a_node("b", "B0", "X", mib=8000))
    assert len(world.errors) == 1, "it is reported once"
    world.nodes.put(a_node("a", "A1"))
    assert world.free("b", 2) == ("B0", "X")


def test_a_card_that_two_machines_name_is_held_by_the_holders_on_either():
    world = World(a_node("b", "X"))
    world.pods.put(a_pod("p", "b", "X"))
    assert world.held == {"p": ("X",)}
    world.nodes.put(a_node("a", "X"))
    assert (world.free("a"), world.free("b")) == ((), ())
    world.begin()
    assert (world.free("a"), world.free("b")) == ((), ())


def test_a_card_that_vanishes_and_comes_back_is_still_held_after_a_restart():
    world = World(a_node("a", "A0", "A1"))
    world.pods.put(a_pod("p", "a", "A0", "A1"))
    world.nodes.put(a_node("a", "A0"))
    world.begin()
    assert world.held == {"p": ("A0", "A1")}
    world.nodes.put(a_node("a", "A0", "A1", "A2"))
    assert world.free("a", 2) == ()
    assert world.free("a") == ("A2",)


def test_a_pod_of_another_scheduler_gets_its_cards_when_there_is_room():
    world = World(a_node("a", "A0"), a_node("b", "B0", "B1", "B2"))
    world.pods.put(a_pod("p", "a", "A0"))
    world.pods.put(a_pod("foreign", "a"))
    world.pods.put(a_pod("early", "later"))
    assert world.held == {"p": ("A0",)}
    assert [error.split(":")[1] for error in world.errors] == [" no-room"]
    for number in range(3):
        world.pods.put(a_pod(f"b{number}", "b", f"B{number}"))
        world.pods.drop(f"b{number}", "default")
        world.mirror.settle()
    assert len(world.errors) == 1, "it is reported once, however often others leave"
    world.pods.drop("p", "default")
    assert world.held == {"foreign": ("A0",)}
    world.nodes.put(a_node("later", "L0"))
    assert world.held == {"foreign": ("A0",), "early": ("L0",)}


@pytest.mark.parametrize("against", ["quota", "labels", "zones"])
def test_a_bound_pod_holds_cards_even_if_filters_would_refuse_it(against: str):
    world = World(a_node("a", "A0", "A1"))
    pod = a_pod("foreign", "a", **({"numa_pairs": "gpu~intel.com/sriov=required"} if against == "zones" else {}))
    if against == "quota":
        world.cluster.quotas.set("default", Quota(total_limits=Caps(vram_bytes=0), max_workers=None, max_cores_ppm=0))
    elif against == "labels":
        pod["spec"]["nodeSelector"] = {"disk": "fast"}
    asked = read_pod({**pod, "metadata": {**pod["metadata"], "uid": "uid-foreign"}})
    assert asked is not None
    assert not world.cluster.offers(asked.request, ["a"], expected=False).names, "it would not be sent there"
    world.pods.put(pod)
    assert len(world.held["foreign"]) == 1
    assert world.free("a", 2) == ()
    assert world.errors == []
    if against == "quota":
        other = Request("other", ResourceRequirement(gpu_count=1), Claim("default"))
        assert not world.cluster.offers(other, ["a"], expected=False).names, "the quota still counts"


def test_a_waiting_pod_is_tried_again_when_a_pod_left_its_machine(monkeypatch: pytest.MonkeyPatch):
    world = World(a_node("a", "A0"), a_node("b", "B0"))
    world.pods.put(a_pod("p", "a", "A0"))
    for number in range(50):
        world.pods.put(a_pod(f"w{number}", "a"))
    looked: list[str] = []
    adopt_bound = world.cluster.adopt_bound
    monkeypatch.setattr(
        world.cluster, "adopt_bound", lambda asked, node: looked.append(node) or adopt_bound(asked, node)
    )
    for _ in range(20):
        world.pods.put(a_pod("q", "b", "B0"))
        world.pods.drop("q", "default")
        world.mirror.settle()
    assert looked == []
    world.pods.drop("p", "default")
    world.mirror.settle()
    assert len(looked) == 50


def test_a_pod_that_is_there_and_names_a_pool_that_is_not_known_holds_a_card():
    world = World(a_node("a", "A0"))
    world.pods.put(a_pod("p", "a", gpupool="none", gpu_count="1", compute_percent_request="10"))
    assert world.held == {"p": ("A0",)}
    assert world.free("a") == ()
    world.pods.drop("p", "default")
    assert world.held == {}


# --- pods that HAMi's scheduler placed ---


def placed_by_hami(name: str, written: str, node: str = "a", **limits: str) -> dict[str, Any]:
    pod = a_pod(name, node)
    pod["spec"]["schedulerName"] = "hami-scheduler"
    pod["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"} | {
        f"nvidia.com/{key}": value for key, value in limits.items()
    }
    pod["metadata"]["annotations"] = {"hami.io/vgpu-node": node, "hami.io/vgpu-devices-allocated": written}
    return pod


def charges(world: World) -> dict[str, dict[str, tuple[int, int]]]:
    """Millionths and MiB by pod and card."""
    world.mirror.settle()
    return {
        uid.removeprefix("uid-"): {
            gpu: (charge.compute, charge.vram // 2**20) for gpu, charge in zip(held.gpus, held.charges, strict=True)
        }
        for uid, held in world.cluster.allocator.fleet.ledger.items()
    }


@pytest.mark.parametrize("live", [True, False], ids=["live", "at the start"])
def test_pods_of_hami_s_scheduler_are_booked_on_the_cards_that_their_annotations_name(live: bool):
    world = World(a_node("a", "A0", "A1"))
    world.pods.put(placed_by_hami("p", "A1,NVIDIA,7000,30:;", gpumem="7000", gpucores="30"))
    world.pods.put(placed_by_hami("q", "A1,NVIDIA,1000,0:;", gpumem="1000"))
    world.pods.put(placed_by_hami("unreadable", "A1,NVIDIA,500,0:;", gpumem="1.5"))
    if not live:
        world.begin()
    assert charges(world) == {
        "p": {"A1": (300_000, 7000)},
        "q": {"A1": (0, 1000)},
        "unreadable": {"A1": (0, 500)},
    }
    assert world.free("a") == ("A0",)
    assert world.errors == []


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"hami.io/vgpu-node": "a"},
        {"hami.io/vgpu-node": "a", "hami.io/vgpu-devices-to-allocate": "A0,NVIDIA,5000,20:;"},
    ],
    ids=["nothing", "its node alone", "another card"],
)
def test_a_pod_that_names_its_cards_later_is_booked_on_these_as_well(before: dict[str, str]) -> None:
    world = World(a_node("a", "A0", "A1"))
    named = placed_by_hami("p", "A1,NVIDIA,7000,30:;", gpumem="7000", gpucores="30")
    unnamed = copy.deepcopy(named)
    unnamed["metadata"]["annotations"] = before
    world.pods.put(unnamed)
    assert world.free("a") == ("A1",), "some card stands for it"
    world.pods.put(named)
    both = charges(world)
    assert both["p"].keys() == {"A0", "A1"}
    assert both["p"]["A1"] == (300_000, 7000)
    assert world.free("a") == ()
    world.pods.put(placed_by_hami("p", ";", gpumem="7000", gpucores="30"))
    assert charges(world) == both, "a record that cannot be read any more frees nothing"
    world.pods.drop("p", "default")
    assert world.free("a", 2) == ("A0", "A1")


# --- words and records that come after a pod was placed ---


def asking_nothing(name: str, **written: str) -> dict[str, Any]:
    pod = a_pod(name, "a", **written)
    pod["spec"]["containers"][0]["resources"] = {}
    return pod


def changes(world: World) -> list[str]:
    return [event.message for event in world.events if event.reason is Reason.REQUEST_CHANGED]


@pytest.mark.parametrize(
    "later",
    [
        {"ullage.io/gpu-count": "2"},
        {"ullage.io/gpu-count": "100"},
        {"ullage.io/vram-request": "x"},
        {"tensor-fusion.ai/gpu-count": "1"},
        {"hami.io/vgpu-devices-allocated": "garbage"},
        {"hami.io/vgpu-devices-allocated": "A1,NVIDIA,100,10:;"},
        {"ullage.io/gpu-ids": "A0"},
    ],
    ids=lambda later: "=".join(*later.items()),
)
def test_a_pod_that_was_placed_without_cards_gets_none_by_an_annotation(later: dict[str, str]) -> None:
    world = World(a_node("a", "A0", "A1"))
    for bound, cards in ((asking_nothing("p"), {}), (asking_nothing("p", gpu_ids=""), {"ullage.io/gpu-ids": ""})):
        world.pods.put(bound)
        changed = copy.deepcopy(bound)
        changed["metadata"]["annotations"] = {**cards, **later}
        world.pods.put(changed)
        world.pods.put(copy.deepcopy(changed))
        assert world.held == {}
        assert world.free("a", 2) == ("A0", "A1")
        (change,) = changes(world)
        assert change.startswith(f"metadata.annotations.{next(iter(later))}: changed after the pod was placed")
        world.pods.drop("p", "default")
        world.events.clear()


@pytest.mark.parametrize("later", [{"gpu_count": "2"}, {"vram_request": "x"}, {"allocation": "{}"}])
def test_a_pod_that_was_bound_without_cards_has_none_after_a_restart(later: dict[str, str]) -> None:
    world = World(a_node("a", "A0", "A1"))
    world.pods.put(asking_nothing("p", gpu_ids="", **later))
    world.begin()
    assert world.held == {}
    assert world.free("a", 2) == ("A0", "A1")
    *_, slots = left(world, "a")
    *_, empty = left(World(a_node("a", "A0", "A1")), "a")
    assert empty - slots == 1, "it counts as a pod"
    assert len(changes(world)) == 1
    world.mirror.report_again()
    assert len(changes(world)) == 2


def test_a_pod_that_waits_for_cards_waits_for_those_that_it_asked_for_first() -> None:
    world = World(a_node("a", "A0", "A1"))
    world.pods.put(a_pod("holder", "a", "A0", "A1"))
    world.pods.put(a_pod("p", "a", gpu_count="1"))
    world.pods.put(a_pod("p", "a", gpu_count="2"))
    assert world.held == {"holder": ("A0", "A1")}
    world.pods.drop("holder", "default")
    assert len(world.held["p"]) == 1
    (change,) = changes(world)
    assert "ullage.io/gpu-count" in change


def test_a_pod_whose_words_could_not_be_read_may_be_corrected() -> None:
    world = World(a_node("a", "A0", "A1"))
    world.pods.put(asking_nothing("p", gpu_count="x"))
    assert world.free("a") == ()
    world.pods.put(asking_nothing("p", gpu_count="1"))
    assert len(world.held["p"]) == 1
    assert len(world.free("a")) == 1
    world.pods.put(asking_nothing("p", gpu_count="2"))
    assert len(world.held["p"]) == 1
    assert len(changes(world)) == 1


def test_a_record_that_changes_adds_to_what_a_running_pod_holds_and_takes_nothing_away() -> None:
    world = World(a_node("a", "A0", "A1"))
    expected = {"A0": (0, 9000)}
    steps = {
        "A0,NVIDIA,9000,0:;": {},
        "A0,NVIDIA,1,1:;": {"A0": (10_000, 9000)},
        "A1,NVIDIA,500,20:;": {"A1": (200_000, 500)},
        "A0,NVIDIA,9500,0:;": {"A0": (10_000, 9500)},
        ";": {},
    }
    for written, added in steps.items():
        world.pods.put(placed_by_hami("p", written, gpumem="9000"))
        expected |= added
        assert charges(world) == {"p": expected}
    assert all("hami.io/vgpu-devices-allocated" in change for change in changes(world))
    assert changes(world)


def test_a_card_that_stands_for_an_unnamed_one_stays_held_when_a_record_appears() -> None:
    world = World(a_node("a", "A0", "A1"))
    pod = placed_by_hami("p", "A1,NVIDIA,1,1:;")
    unnamed = copy.deepcopy(pod)
    unnamed["metadata"]["annotations"] = {}
    world.pods.put(unnamed)
    whole = charges(world)
    for shown in (pod, unnamed, pod):
        world.pods.put(copy.deepcopy(shown))
        assert charges(world)["p"].items() >= whole["p"].items()


def test_a_pod_whose_record_changes_again_and_again_holds_what_the_first_ones_said() -> None:
    world = World(a_node("a", "A0"))
    for cores in range(40):
        world.pods.put(placed_by_hami("p", f"A0,NVIDIA,100,{cores}:;", gpumem="100"))
    assert charges(world) == {"p": {"A0": (70_000, 100)}}
    assert any("changed too often" in change for change in changes(world))


def test_a_pod_with_cards_that_is_resized_in_place_counts_as_after_a_restart() -> None:
    world = World(a_node("a", "A0"))
    pod = a_pod("p", "a", "A0")
    for cpu in ("1", "9"):
        pod = copy.deepcopy(pod)
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
        world.pods.put(pod)
    live = left(world, "a")
    world.begin()
    assert live == left(world, "a")
    assert live[0] == 64 - 9


def resized(asked: str, given: str, allocated: str, **condition: str) -> dict[str, Any]:
    """A pod with a card whose container asks for CPUs, has been given some, and is counted some by its kubelet."""
    pod = a_pod("p", "a", "A0")
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": asked}
    status = {"name": "c", "resources": {"requests": {"cpu": given}}, "allocatedResources": {"cpu": allocated}}
    pod["status"] |= {"containerStatuses": [status], "conditions": [condition] if condition else []}
    return pod


@pytest.mark.parametrize("live", [True, False], ids=["live", "at the start"])
def test_a_pod_with_cards_that_is_resized_down_gives_its_cpu_back_when_it_has_left_it(*, live: bool) -> None:
    """The scheduler counts the largest of desired, allocated and actual resources (KEP-1287)."""
    world = World(a_node("a", "A0", "A1"))
    steps = [
        (resized("9", "9", "9"), 9),
        (resized("2", "9", "9"), 9),
        (resized("2", "9", "2"), 9),
        (resized("2", "2", "2"), 2),
        (resized("60", "2", "2", type="PodResizePending", reason="Infeasible", status="True"), 2),
        (resized("5", "2", "2"), 5),
        (resized("5", "5", "5"), 5),
        (resized("3", "3", "3"), 3),
    ]
    for pod, cpus in steps:
        world.pods.put(pod)
        if not live:
            world.begin()
        assert left(world, "a")[0] == 64 - cpus
        assert world.held == {"p": ("A0",)}
    world.pods.drop("p", "default")
    assert left(world, "a")[0] == 64


def test_a_pod_that_is_first_seen_while_it_shrinks_counts_with_all_that_it_still_has() -> None:
    world = World(a_node("a", "A0"))
    world.pods.put(resized("2", "9", "9"))
    assert left(world, "a")[0] == 64 - 9


@pytest.mark.parametrize("written", ["A0 ,A1", " A0,A1,", "A0,,A1"])
def test_a_list_of_cards_with_blanks_and_empty_parts_names_the_same_cards(written: str) -> None:
    world = World(a_node("a", "A0", "A1", "A2"))
    record = json.dumps({"cards": [{"compute": 1, "vram": 2, "isolation": "soft"}] * 2})
    for more in ({}, {"allocation": record}):
        world.pods.put(a_pod("p", "a", asks=2, gpu_ids=written, **more))
        assert world.held == {"p": ("A0", "A1")}
        world.begin()
        assert world.held == {"p": ("A0", "A1")}
        assert world.errors == []
        world.pods.drop("p", "default")


def test_a_card_that_a_pod_names_twice_stands_where_another_one_stood() -> None:
    world = World(a_node("a", "A0", "A1"))
    world.pods.put(a_pod("p", "a", asks=2, gpu_ids="A0,A0"))
    assert world.held == {}
    assert world.free("a") == (), "nobody knows which the other card is"
    assert "a card is named twice" in world.errors[0]


def test_containers_that_run_together_count_together_and_one_that_ran_before_them_by_itself():
    world = World(a_node("a", "A0", "A1"))
    pod = placed_by_hami("p", "A0,NVIDIA,5000,50:;A0,NVIDIA,3000,10:;A0,NVIDIA,1000,20:A1,NVIDIA,100,0:;")
    pod["spec"]["initContainers"] = [{"name": "i"}]
    pod["spec"]["containers"].append({"name": "d"})
    world.pods.put(pod)
    assert charges(world) == {"p": {"A0": (500_000, 5000), "A1": (0, 100)}}
    pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    world.pods.drop("p", "default")
    world.pods.put(pod)
    assert charges(world) == {"p": {"A0": (800_000, 8000 + 1000), "A1": (0, 100)}}


def test_a_slice_and_a_device_without_an_amount_hold_their_card_whole():
    world = World(a_node("a", "A0", "A1", "A2"))
    world.pods.put(placed_by_hami("p", "A0[1-0],NVIDIA,1000,10:A1,NVIDIA,0,0:;"))
    assert world.free("a") == ("A2",)
    assert world.free("a", 2) == ()


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("A0,NVIDIA,many,0:;", "vgpu-devices-allocated"),
        ("none,NVIDIA,1000,0:;", "no machine has this card"),
        (";", "it names 0"),
    ],
)
@pytest.mark.parametrize("live", [True, False], ids=["live", "at the start"])
def test_no_card_of_a_machine_is_given_out_while_it_is_unknown_which_a_pod_has(live: bool, written: str, why: str):
    world = World(a_node("a", "A0", "A1"), a_node("b", "B0"))
    world.pods.put(a_pod("other", "a", "A0"))
    world.pods.put(placed_by_hami("p", written, gpumem="1000"))
    if not live:
        world.errors.clear()
        world.begin()
    assert world.free("a") == ()
    assert world.free("b") == ("B0",)
    assert why in world.errors[0]
    assert [(event.pod, event.reason.value) for event in world.events] == [("p", "CardsUnknown")]
    world.pods.put(placed_by_hami("p", "A0,NVIDIA,1000,0:;", gpumem="1000"))
    assert world.free("a") == ("A1",)
    world.pods.put(placed_by_hami("p", written, gpumem="1000"))
    world.pods.drop("p", "default")
    assert world.free("a") == ("A1",)


def test_annotations_of_another_node_are_not_believed():
    world = World(a_node("a", "A0", "A1"))
    pod = placed_by_hami("p", "A0,NVIDIA,1000,0:;")
    pod["metadata"]["annotations"]["hami.io/vgpu-node"] = "b"
    world.pods.put(pod)
    assert world.free("a") == ()
    assert "vgpu-node" in world.errors[0]


@pytest.mark.parametrize("live", [True, False], ids=["live", "at the start"])
@pytest.mark.parametrize(
    ("notes", "held"),
    [
        ({"gpu-ids": "A0", "allocation": "{"}, {"p": ("A0",)}),
        ({"gpu-ids": "A0,A0", "allocation": "[]", "vram-request": "much"}, {}),
    ],
)
def test_what_a_pod_was_given_is_never_free_because_it_cannot_be_read(
    live: bool, notes: dict[str, str], held: dict[str, tuple[str, ...]]
):
    world = World(a_node("a", "A0"))
    pod = a_pod("p", "a")
    pod["metadata"]["annotations"] = {f"ullage.io/{key}": value for key, value in notes.items()}
    world.pods.put(pod)
    if not live:
        world.begin()
    assert world.held == held
    assert world.free("a") == ()
    assert world.errors


@pytest.mark.parametrize("live", [True, False], ids=["live", "at the start"])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ullage.io/vram-request", "much"),
        ("ullage.io/qos", "best"),
        ("nvidia.com/use-gpuuuid", "A0|A1"),
        ("tensor-fusion.ai/gpu-count", "2"),
        ("ullage.io/numa-placement", "{"),
    ],
)
def test_a_request_that_cannot_be_read_any_more_changes_nothing_of_what_its_pod_was_given(
    live: bool, key: str, text: str
) -> None:
    """The owner of a pod can change its annotations: that takes nothing from others and frees nothing."""
    world = World(a_node("a", "A0"))
    basis = {"compute_ppm": 100_000, "bytes": 1000 * 2**20, "had_bytes": 8000 * 2**20}
    card = {"compute": 100_000, "vram": 1000 * 2**20, "isolation": "soft", "basis": basis}
    record = json.dumps({"cards": [card]})
    words = {"gpu_count": "1", "compute_percent_request": "10", "vram_request": "1000Mi"}
    pod = a_pod("p", "a", "A0", allocation=record, **words)
    pod["spec"] |= {"priority": 7, "priorityClassName": "high"}
    world.pods.put(pod)
    assert charges(world) == {"p": {"A0": (100_000, 1000)}}
    left_before = left(world, "a")
    pod["metadata"]["annotations"][key] = text
    world.pods.put(pod)
    if not live:
        world.begin()
        assert world.errors
    assert charges(world) == {"p": {"A0": (100_000, 1000)}}
    assert left(world, "a") == left_before
    (held,) = world.cluster.allocator.fleet.ledger.values()
    assert held.claim is not None
    assert held.claim.priority == (7 if live or key != "ullage.io/qos" else 0)
    world.pods.drop("p", "default")
    assert world.cluster.allocator.fleet.ledger == {}


def test_the_record_of_another_leader_replaces_a_reservation():
    world = World(a_node("a", "A0", "A1"))
    asked = read_pod({**a_pod("p"), "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"}})
    assert asked is not None
    reserved = world.cluster.reserve(asked.request, "a")
    assert isinstance(reserved, Allocation)
    other = next(card for card in ("A0", "A1") if card not in reserved.gpus)
    world.pods.put(a_pod("p", "a", other))
    assert world.held == {"p": (other,)}
    assert world.cluster.held("uid-p").state is AllocationState.BOUND
    assert world.free("a") == reserved.gpus


class History:
    """Machines and pods that come, change and go, by chance; `bound` are the pods that live."""

    def __init__(self, seed: int) -> None:
        self.draw, self.world = random.Random(seed), World()
        self.cards, self.names = [f"X{number}" for number in range(8)], ["a", "b", "c"]
        self.bound: dict[str, dict[str, Any]] = {}
        self.numbers = itertools.count()
        self.steps = [*[self.machine] * 2, self.no_machine, *[self.bind] * 2, *[self.end] * 2, self.restart]

    def step(self) -> None:
        self.draw.choice(self.steps)()

    def machine(self) -> None:
        cards = self.draw.sample(self.cards, self.draw.randint(0, 5))
        self.world.nodes.put(a_node(self.draw.choice(self.names), *cards))

    def no_machine(self) -> None:
        if self.world.nodes.objects:
            self.world.nodes.drop(self.draw.choice(sorted(self.world.nodes.objects))[1])

    def bind(self) -> None:
        own, name = self.draw.sample(self.cards, self.draw.randint(1, 3)), f"p{next(self.numbers)}"
        wrong = self.draw.choice(({}, {}, {"mib": 4000}, {"allocation": "{"}, {"asks": 7}, {"gpu_count": "x"}))
        self.bound[name] = a_pod(name, self.draw.choice(self.names), *own, **wrong)
        self.world.pods.put(self.bound[name])

    def end(self) -> None:
        if not self.bound:
            return
        name = self.draw.choice(sorted(self.bound))
        if self.draw.random() < 0.3:
            self.bound[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.world.pods.put(self.bound[name])
        else:
            self.world.pods.put({**self.bound.pop(name), "status": {"phase": "Failed"}})
            if self.draw.random() < 0.5:
                self.world.pods.drop(name, "default")

    def restart(self) -> None:
        self.world.begin()

    def check(self) -> None:
        held, fleet, used = self.world.held, self.world.cluster.allocator.fleet, set[str]()
        assert held.keys() == self.bound.keys()
        for name, pod in self.bound.items():
            own = pod["metadata"]["annotations"]["ullage.io/gpu-ids"].split(",")
            assert set(held[name]) == set(own)
            used.update(own)
        free = zip(fleet.cards, fleet.card_usable, fleet.card_users, strict=True)
        assert not used & {card.uuid for card, usable, users in free if usable and not users}
        for _, name in self.world.nodes.objects:
            assert not used & set(self.world.free(name))


@pytest.mark.parametrize("seed", range(60))
def test_no_card_is_given_that_a_live_pod_names_whatever_happens(seed: int):
    history = History(seed)
    for _ in range(80):
        history.step()
        history.check()


def refused(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "status": {"phase": "Failed", "reason": "TopologyAffinityError"}}


def test_a_node_that_refused_a_pod_gets_no_other_that_asks_the_same_until_something_changes_there():
    world = World(a_node("a", "A0", "A1"), a_node("b", "B0", "B1"))
    for name, change in (
        ("p", lambda: world.nodes.put(a_node("a", "A0", "A1", mib=8000))),
        ("q", lambda: world.pods.drop("beside", "default")),
    ):
        world.nodes.put(a_node("a", "A0", "A1"))
        world.pods.put(a_pod("beside", "a", "A1"))
        world.mirror.settle()
        world.pods.put(a_pod(name, "a", "A0"))
        asked = world.cluster.held(f"uid-{name}").requirement
        world.pods.put(refused(a_pod(name, "a", "A0")))
        alike, other = (
            Request("asks", requirement, Claim())
            for requirement in (asked, replace(asked, memory_bytes=asked.memory_bytes + 1))
        )
        found = world.cluster.offers(alike, ["a", "b"], expected=False)
        assert found.names == ["b"]
        assert refusals_of(found)["a"].counts == {Code.REFUSED_THERE: 1}
        assert f"default/{name}: refused-there" in world.errors[-1]
        assert world.cluster.offers(other, ["a", "b"], expected=False).names == ["a", "b"]
        change()
        world.mirror.settle()
        assert world.cluster.offers(alike, ["a", "b"], expected=False).names == ["a", "b"]
    assert world.mirror.refused == {("a", "TopologyAffinityError"): 2}


def test_pods_that_failed_before_the_start_hold_nothing_back():
    world = World(a_node("a", "A0"))
    world.pods.put(refused(a_pod("p", "a", "A0")))
    world.begin()
    assert world.free("a") == ("A0",)
    assert not world.mirror.refused


# --- pods without cards ---


def beside(name: str, node: str, cpu: str, memory: str = "0", **spec: Any) -> dict[str, Any]:
    """A pod without cards."""
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": resources}], **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": "Running"}}


def left(world: World, node: str) -> tuple[int, int, int]:
    """CPUs, bytes and places for pods that are free on a node."""
    world.mirror.settle()
    fleet = world.cluster.allocator.fleet
    row = fleet.row_of[node]
    cpu, memory, slots = (int(column[row]) for column in (fleet.cpu_free, fleet.memory_free, fleet.slots_free))
    return cpu // 1000, memory, slots


def with_places(node: dict[str, Any], pods: int) -> dict[str, Any]:
    node["status"]["allocatable"]["pods"] = str(pods)
    return node


def test_pods_without_cards_count_until_they_end_and_after_a_restart():
    world = World(with_places(a_node("a", "A0"), 5))
    world.pods.put(beside("p", "a", "40", "6Gi"))
    world.pods.put(beside("q", "a", "8", initContainers=[{"name": "i", "resources": {"requests": {"cpu": "20"}}}]))
    world.pods.put(beside("elsewhere", "b", "8"))
    world.pods.put(beside("nowhere", "", "8"))
    for _ in range(2):
        assert left(world, "a") == (4, 250 * 2**30, 3)
        assert world.cluster.allocator.fleet.workers(0) == 0, "they are no allocations: a node of them is not in use"
        asked = Request("asks", ResourceRequirement(5000, gpu_count=1), Claim())
        assert not world.cluster.offers(asked, ["a"], expected=False).names
        world.begin()
    world.nodes.put(with_places(a_node("a", "A0", "A1"), 5))  # other books
    assert left(world, "a") == (4, 250 * 2**30, 3)
    version = world.cluster.allocator.version
    world.pods.put({**beside("q", "a", "8"), "status": {"phase": "Succeeded"}})
    assert left(world, "a") == (24, 250 * 2**30, 4)
    assert world.cluster.allocator.version != version, "who waits is looked at again"
    assert world.cluster.offers(asked, ["a"], expected=False).names == ["a"]
    world.pods.drop("p", "default")
    assert left(world, "a") == (64, 256 * 2**30, 5)


def test_a_full_machine_accepts_no_further_pod():
    world = World(with_places(a_node("a", "A0", "A1"), 2))
    world.pods.put(beside("p", "a", "0"))
    assert world.free("a") == ("A0",) or world.free("a") == ("A1",)
    world.pods.put(a_pod("held", "a", "A0"))
    assert world.free("a") == ()
    world.pods.drop("p", "default")
    assert world.free("a") == ("A1",)


def test_a_pod_that_is_on_its_machine_holds_its_card_though_pods_without_cards_leave_it_no_cpu():
    world = World(with_places(a_node("a", "A0", "A1"), 1))
    world.pods.put(beside("p", "a", "60"))
    stands = a_pod("held", "a")
    stands["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "10"}
    world.pods.put(stands)
    for _ in range(2):
        assert len(world.held["held"]) == 1
        assert left(world, "a")[0] == -6, "all that they have counts, once"
        world.begin()
    world.pods.drop("held", "default")
    assert left(world, "a")[0] == 4


def test_of_a_pod_that_cannot_be_read_the_cpu_counts_as_well_as_the_cards():
    world = World(a_node("a", "A0", "A1"))
    wrong = a_pod("p", "a", "A0", gpu_count="x")
    wrong["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "10"}
    world.pods.put(wrong)
    for _ in range(2):
        assert world.held == {"p": ("A0",)}
        assert left(world, "a")[0] == 54
        world.begin()


def test_what_a_node_shows_of_pods_without_cards_is_not_counted_twice():
    world = World(a_node("a", "A0"))
    world.pods.put(beside("p", "a", "10", "4Gi"))
    use = Use((PodHolding("default", "p", "uid-p", (PinnedTo("c", (0, 1, 2, 3)),)),))
    world.mirror.settle()
    world.cluster.observe("a", use)
    assert left(world, "a")[0] == 54
    world.cluster.observe("a", Use(()))
    assert left(world, "a")[0] == 54
    world.cluster.observe("a", use)
    world.pods.drop("p", "default")
    assert left(world, "a")[0] == 60, "what it is shown to have counts as long as it is shown"


@pytest.mark.parametrize("seed", range(20))
def test_the_room_apart_from_cards_is_what_is_left_of_the_machine_whatever_comes_and_goes(seed: int):
    draw, world = random.Random(seed), World(a_node("a", "A0"), a_node("b"))
    there: dict[str, tuple[str, int]] = {}
    for step in range(60):
        name, node, cpu = f"p{draw.randrange(12)}", draw.choice("ab"), draw.randrange(9)
        match draw.randrange(6):
            case 0 | 1 | 2:
                node = there.get(name, (node, 0))[0]
                there[name] = node, cpu
                world.pods.put(beside(name, node, str(cpu)))
            case 3 if name in there:
                world.pods.put({**beside(name, there[name][0], "9"), "status": {"phase": "Failed"}})
                del there[name]
            case 4:
                world.nodes.put(a_node("a", *(f"A{number}" for number in range(step % 3))))
            case 5:
                world.begin()
        for each in "ab":
            assert left(world, each)[0] == 64 - sum(cpu for on, cpu in there.values() if on == each)


def counted_rebuilds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    rebuilt, times = Fleet.rebuilt, list[object]()

    def counted(fleet: Fleet, *given: Any) -> Fleet:
        times.append(given)
        return rebuilt(fleet, *given)

    monkeypatch.setattr(Fleet, "rebuilt", counted)
    return times


def naming(name: str, node: str, card: str) -> dict[str, Any]:
    pod = a_pod(name, node)
    pod["metadata"]["annotations"] = {"ullage.io/gpu-ids": card}
    return pod


def test_pods_with_cards_that_no_node_reports_are_entered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new card rebuilds the books: once for all pods that come between two questions."""
    world = World(a_node("a", "A0"), a_node("b", "B0"))
    times = counted_rebuilds(monkeypatch)
    for number in range(20):
        world.pods.put(naming(f"p{number}", "ab"[number % 2], f"lost-{number}"))
    assert world.held == {f"p{number}": (f"lost-{number}",) for number in range(20)}
    assert len(times) == 1
    assert world.free("a") == ("A0",)
    world.pods.put(naming("late", "a", "lost-0"))
    world.pods.put(naming("gone", "a", "lost-99"))
    world.pods.drop("gone", "default")
    assert world.held["late"] == ("lost-0",)
    assert "gone" not in world.held
    assert len(times) == 1, "that card is known by now, and nobody has the other"


def test_a_pod_with_an_unreadable_record_that_changes_otherwise_rebuilds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(a_node("a", "A0"))
    pod = placed_by_hami("p", "A0,NVIDIA,many,0:;")
    world.pods.put(pod)
    assert world.free("a") == ()
    times = counted_rebuilds(monkeypatch)
    for number in range(3):
        world.pods.put({**pod, "status": {"phase": "Running", "message": str(number)}})
        assert world.free("a") == ()
    assert times == []
    world.pods.drop("p", "default")
    assert world.free("a") == ("A0",)
