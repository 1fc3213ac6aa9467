"""Slices that a plain device plugin offers (`nvidia.com/mig-1g.10gb`): in the books, and through the front."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hami_node import remove
from tests.kube.test_front import Running, put, running
from tests.kube.vendor_nodes import a_node, a_pod
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.objects import KubeNode
from ullage.kube.mirror.nodes import node_of
from ullage.model.allocation import Allocation
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.wire.dialect import read_pod
from ullage.wire.pod import PodRequest

ONE, TWO, THREE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
GIB = 2**30
LIMITS = {ONE: (14, 1), TWO: (6, 2), THREE: (4, 4)}


def a_sliced_node(name: str, labels: dict[str, str] = A100, **amounts: int) -> dict[str, Any]:
    node = a_node(name, **{f"nvidia.com/mig-{key}": str(count) for key, count in amounts.items()})
    node["metadata"]["labels"] = labels
    return node


def cards(node: dict[str, Any]) -> tuple[Gpu, ...]:
    return node_of(msgspec.convert(node, KubeNode)).gpus


def profiles(card: Gpu) -> dict[str, int]:
    return {each.name: each.max_partitions for each in card.partitions or ()}


def asked(*limits: dict[str, int | str], **annotations: str) -> PodRequest:
    pod = a_pod("p", *limits, annotations={f"ullage.io/{key}": text for key, text in annotations.items()})
    pod["metadata"]["uid"] = "u"
    found = read_pod(pod)
    assert found is not None
    return found


def test_slices_are_packed_on_as_few_cards_as_hold_them() -> None:
    found = cards(a_sliced_node("n", **{"1g.10gb": 9, "2g.20gb": 1, "3g.40gb": 3}))
    assert [profiles(card) for card in found] == [
        {"3g.40gb": 2},
        {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2},
        {"1g.10gb": 7},
    ]
    assert [card.uuid for card in found] == ["n/NVIDIA-MIG/0", "n/NVIDIA-MIG/1", "n/NVIDIA-MIG/2"]
    assert {card.compute_gflops for card in found} == {312_000}
    assert {card.vram_bytes for card in found} == {80 * GIB}


def test_cards_of_another_size_have_as_many_slices_as_their_table_says() -> None:
    a30 = {"nvidia.com/gpu.product": "NVIDIA-A30", "nvidia.com/gpu.memory": "24576"}
    assert [profiles(card) for card in cards(a_sliced_node("n", a30, **{"1g.6gb": 8}))] == [{"1g.6gb": 4}] * 2
    new = {f"{ONE}.product": "NVIDIA-X900-MIG-1g.10gb"}
    (card,) = cards(a_sliced_node("n", new, **{"1g.10gb": 7}))
    assert (card.model, card.compute_gflops, profiles(card)) == ("NVIDIA-X900", None, {"1g.10gb": 7})


def test_whole_cards_stay_beside_sliced_ones() -> None:
    node = a_node("n", **{"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-1g.10gb.shared": "4"})
    assert [(card.vendor, card.index) for card in cards(node)] == [("NVIDIA", 0), ("NVIDIA MIG", 1)]


def test_a_failed_slice_moves_no_other_and_closes_one_card() -> None:
    node = a_sliced_node("n", **{"1g.10gb": 14, "3g.40gb": 1})
    before = cards(node)
    node["status"]["allocatable"] = {**node["status"]["allocatable"], "nvidia.com/mig-1g.10gb": "13"}
    after = cards(node)
    assert [card.partitions for card in after] == [card.partitions for card in before]
    assert [card.healthy for card in after] == [True, True, False]
    del node["status"]["allocatable"]["nvidia.com/mig-3g.40gb"]
    assert [card.healthy for card in cards(node)] == [False, True, False]


def test_an_unreadable_amount_is_noted() -> None:
    node = node_of(msgspec.convert(a_sliced_node("n") | {"status": {"capacity": {ONE: "many"}}}, KubeNode))
    assert node.gpus == ()
    assert ONE in node.topology_note


def test_a_slice_counts_for_its_part_of_a_card() -> None:
    fleet = Fleet([node_of(msgspec.convert(a_sliced_node("n", **{"1g.10gb": 7, "3g.40gb": 2}), KubeNode))])
    assert fleet.total.gpu_milli == 2000
    shares = {name: fleet.resources(asked({name: 1}).requirement).gpu_milli for name in (ONE, THREE)}
    assert shares == {ONE: 143, THREE: 500}


@pytest.mark.parametrize(
    ("limits", "annotations", "named"),
    [
        (({ONE: 1}, {TWO: 1}), {}, "slices of one profile"),
        (({ONE: 1, "nvidia.com/gpu": 1},), {}, "slices of one profile"),
        (({ONE: 1, "nvidia.com/gpumem": 1000},), {}, "slices of one profile"),
        (({ONE: 1},), {"tflops-request": "10"}, "tflops-request"),
        (({ONE: 1},), {"vram-limit": "1Gi"}, "vram-limit"),
        (({ONE: 1},), {"gpu-count": "1"}, "gpu-count"),
        (({ONE: 1},), {"isolation": "soft"}, "isolation"),
        (({ONE: 1},), {"partition-id": "2g.20gb", "isolation": "partitioned"}, "partition-id"),
        (({ONE: 1},), {"vendor": "AMD"}, "name NVIDIA"),
        (({ONE: 10**6},), {}, ONE),
    ],
)
def test_what_contradicts_a_slice_is_refused_by_name(
    limits: tuple[dict[str, int | str], ...], annotations: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=named):
        asked(*limits, **annotations)


def test_a_pod_may_name_what_its_slices_are() -> None:
    found = asked({ONE: 1}, vendor="nvidia", isolation="partitioned")
    assert found.requirement.cards.vendors == ("NVIDIA MIG",)
    assert found.requirement.cards.template == "1g.10gb"


def test_a_resource_that_is_shared_or_no_slice_is_left_to_the_scheduler() -> None:
    for name in (
        "nvidia.com/mig-1g.10gb.shared",
        "nvidia.com/mig-0g.10gb",
        "nvidia.com/mig-1g.0gb",
        "nvidia.com/mig-x",
    ):
        assert read_pod(a_pod("p", {name: 1})) is None


@given(
    counts=st.fixed_dictionaries({name: st.integers(0, most) for name, (most, _) in LIMITS.items()}),
    steps=st.lists(st.tuples(st.sampled_from(list(LIMITS)), st.integers(1, 2), st.booleans()), max_size=40),
)
def test_the_books_take_exactly_the_pods_that_the_kubelet_takes(
    counts: dict[str, int], steps: list[tuple[str, int, bool]]
) -> None:
    """The kubelet counts slices of a profile. The books take one or two wherever it does, and nothing more."""
    there = {name.removeprefix("nvidia.com/mig-"): count for name, count in counts.items()}
    allocator = FleetAllocator(Fleet([node_of(msgspec.convert(a_sliced_node("n", **there), KubeNode))]))
    allocator.set_ready()
    free, held = dict(counts), list[tuple[str, str, int]]()
    for number, (name, count, leaves) in enumerate(steps):
        if leaves and held:
            uid, freed, amount = held.pop(number % len(held))
            allocator.fleet.release(uid)
            free[freed] += amount
            continue
        pod = a_pod("p", {name: count})
        pod["metadata"]["uid"] = f"u{number}"
        request = read_pod(pod)
        assert request is not None
        ways = [each.request for each in (request, *request.shared)]
        placed = any(isinstance(allocator.alloc(each, 0.0), Allocation) for each in ways)
        assert placed is (free[name] >= count), (free, name, count)
        if placed:
            free[name] -= count
            held.append((f"u{number}", name, count))


# --- through the front ---


def books(up: Running) -> dict[str, list[str]]:
    """The cards of each pod, once for each slice."""
    return {
        held.claim.pod: [gpu for gpu, charge in zip(held.gpus, held.charges, strict=True) for _ in charge.slots]
        for held in up.front.cluster.allocator.fleet.ledger.values()
        if held.claim is not None
    }


@pytest.mark.timeout(900)
@pytest.mark.anyio
async def test_pods_with_slices_are_placed_found_again_and_given_back(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_sliced_node("a", **{"1g.10gb": 2}), a_sliced_node("b", **{"1g.10gb": 3, "2g.20gb": 2}))
    pods = [a_pod(f"p{at}", {ONE: 1}) for at in range(4)]
    one, two, three, four = put(server, "pods", *pods)
    (large, both) = put(server, "pods", a_pod("large", {TWO: 1}), a_pod("both", {ONE: 1}, {ONE: 1}))
    async with running(server, api) as up:
        assert await up.place(large, ["a", "b"]) == "!b"
        for pod in (one, two):
            assert (await up.place(pod, ["a"])) == "!a"
        assert "refused" in await up.place(three, ["a"])
        assert await up.place(both, ["a", "b"]) == "!b"
        assert await up.place(three, ["a", "b"]) == "!b"
        assert "refused" in await up.place(four, ["a", "b"])
        known = books(up)
        assert {name: len(cards) for name, cards in known.items()} == {
            "large": 1,
            "p0": 1,
            "p1": 1,
            "both": 2,
            "p2": 1,
        }
    async with running(server, api) as up:  # the leader was restarted
        assert books(up) == known
        await remove(api, "p0")
        await until(lambda: "p0" not in books(up), "its slice is given back")
        assert await up.place(four, ["a", "b"]) == "!a"
        for name in ("p1", "p2", "p3", "both", "large"):
            await remove(api, name)
        await until(lambda: not books(up), "all is given back")
        fleet = up.front.cluster.allocator.fleet
        assert fleet.compute_free.tolist() == fleet.compute_total.tolist()
        assert fleet.vram_free.tolist() == fleet.vram_total.tolist()


@pytest.mark.timeout(900)
@pytest.mark.anyio
async def test_slices_of_a_pod_that_another_scheduler_bound_are_held(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_sliced_node("a", **{"1g.10gb": 8}))
    _, own = put(server, "pods", a_pod("foreign", {ONE: 6}, nodeName="a"), a_pod("own", {ONE: 2}))
    async with running(server, api) as up:
        assert len(books(up)["foreign"]) == 6
        assert await up.place(own, ["a"]) == "!a"
        (last,) = put(server, "pods", a_pod("last", {ONE: 1}))
        assert "refused" in await up.place(last, ["a"])
