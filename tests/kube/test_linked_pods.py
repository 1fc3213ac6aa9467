"""Pods of HAMi on linked cards: from the scores that its agent registers to the devices that its plugin hands out.

The scores, and which cards are best by them, are worked out here from HAMi's rules; nothing is shared with Ullage.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.claims import a_card, a_claim, a_class, a_slice, allocated, claiming, wants
from tests.kube.claims import a_node as claim_node
from tests.kube.conftest import until
from tests.kube.hami_node import GPU, HamiNode, hami_node, remove
from tests.kube.test_claims import let_go
from tests.kube.test_claims import running as claims_running
from tests.kube.test_device_plugins import CORES, MIB, READERS, a_pod, phase, reported, settle
from tests.kube.test_front import Running, cards_of, put, running
from tests.kube.vendor_nodes import a_node
from ullage.kube.client.changes import Patch
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES
from ullage.model.gpu import Gpu
from ullage.model.holding import Use
from ullage.model.node_record import NodeRecord, stock_of_cards
from ullage.model.topology import CARD, Cpu, Kubelet, Link, Path, Topology, Zone, ZonePolicy
from ullage.wire.topology.numatopology_object import numatopology_object

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

SCORES = "hami.io/node-nvidia-score"
POLICY = "hami.io/gpu-scheduler-policy"
CARD_MIB = 16000
MOST = 10


def dgx(a: int, b: int) -> int:
    """Eight cards behind an NVSwitch: 12 NVLinks each, two to a PCIe switch, four to a CPU."""
    return 1200 + (50 if a // 2 == b // 2 else 20 if a // 4 == b // 4 else 10)


def pcie(a: int, b: int) -> int:
    """Four cards and four, without NVLinks; of each four, two and two are behind one switch."""
    return 50 if a // 2 == b // 2 else 40 if a // 4 == b // 4 else 10


BOARDS = {"dgx": dgx, "pcie": pcie}


def uuids_of(board: str) -> list[str]:
    return [f"GPU-{board}-{number}" for number in range(8)]


def registered(board: str, score: Any = None) -> dict[str, Any]:
    """A node of HAMi with the scores of its cards, as Go writes them."""
    node, uuids, score = hami_node(board, *uuids_of(board), mib=CARD_MIB), uuids_of(board), score or BOARDS[board]
    listed = [
        {"uuid": one, "score": {other: score(a, b) for b, other in enumerate(uuids) if other != one}}
        for a, one in enumerate(uuids)
    ]
    node["metadata"]["annotations"][SCORES] = json.dumps(listed, separators=(",", ":"))
    return node


def asking(name: str, cards: int, policy: str = "topology-aware", **amounts: int) -> dict[str, Any]:
    limits = {GPU: cards} | {{"mib": MIB, "cores": CORES}[key]: value for key, value in amounts.items()}
    pod = a_pod(name, limits)
    pod["metadata"]["annotations"] = {POLICY: policy} if policy else {}
    return pod


class Cards:
    """What is left on the cards of a board, by what pods were handed out."""

    def __init__(self, board: str) -> None:
        self.uuids, self.score = uuids_of(board), BOARDS[board]
        self.mib, self.users = dict.fromkeys(self.uuids, CARD_MIB), Counter[str]()

    def change(self, uuids: list[str], mib: int, sign: int) -> None:
        for uuid in uuids:
            self.mib[uuid] -= sign * mib
            self.users[uuid] += sign

    def fitting(self, mib: int) -> list[str]:
        return [uuid for uuid in self.uuids if self.mib[uuid] >= mib and self.users[uuid] < MOST]

    def sum_of(self, uuids: Any) -> int:
        return sum(self.between(*pair) for pair in combinations(uuids, 2))

    def between(self, one: str, other: str) -> int:
        return self.score(*sorted((self.uuids.index(one), self.uuids.index(other))))

    def check(self, chosen: list[str], mib: int) -> None:
        """HAMi's rule: of one card the lowest sum to the others that fit, of several the highest sum of pairs."""
        fitting = self.fitting(mib)
        assert set(chosen) <= set(fitting)
        if len(chosen) > 1:
            assert self.sum_of(chosen) == max(self.sum_of(each) for each in combinations(fitting, len(chosen)))
            return
        sums = {uuid: sum(self.between(uuid, other) for other in fitting if other != uuid) for uuid in fitting}
        assert sums[chosen[0]] == min(sums.values())


async def started(server: ApiServer, up: Running, pod: dict[str, Any], nodes: list[str]) -> bool:
    if not await settle(up, pod, nodes):
        return False
    await until(lambda: phase(server, pod) == "Running", "its cards are handed out", 60)
    return True


@pytest.mark.parametrize("board", BOARDS)
async def test_pods_get_the_cards_that_are_best_by_the_registered_scores(
    server: ApiServer, api: HttpKubeApi, board: str
) -> None:
    chance, cards = random.Random(board), Cards(board)
    put(server, "nodes", registered(board))
    held: dict[str, tuple[list[str], int]] = {}
    async with HamiNode(api, board) as node, running(server, api, readers=READERS) as up:
        for number in range(24):
            if held and chance.random() < 0.3:
                gone = chance.choice(sorted(held))
                cards.change(*held.pop(gone), -1)
                await remove(api, gone)
                await until(lambda: gone not in books(up), "it is gone")  # noqa: B023 - it is awaited at once
            count, mib = chance.choice([1, 1, 2, 2, 3, 4, 8]), chance.choice([3000, 6000, 16000])
            (pod,) = put(server, "pods", asking(f"p{number}", count, mib=mib))
            placed = await started(server, up, pod, [board])
            assert placed == (len(cards.fitting(mib)) >= count)
            if placed:
                granted = [uuid for uuid, _, _ in node.granted[f"p{number}", "c0"]]
                assert sorted(granted) == sorted(cards_of(server, f"p{number}"))
                assert [(uuid, mib) for uuid, mib, _ in reported(server, f"p{number}")[0]] == [
                    (u, mib) for u in granted
                ]
                cards.check(granted, mib)
                cards.change(granted, mib, 1)
                held[f"p{number}"] = granted, mib
        assert node.errors == []
        assert len(held) > 2
        before = books(up)
    async with running(server, api, readers=READERS) as up:
        assert books(up) == before
        assert {name: set(uuids) for name, uuids in before.items()} == {n: set(u) for n, (u, _) in held.items()}


def books(up: Running) -> dict[str, tuple[str, ...]]:
    up.front.mirror.settle()
    ledger = up.front.cluster.allocator.fleet.ledger.values()
    return {each.claim.pod: tuple(sorted(each.gpus)) for each in ledger if each.claim is not None}


async def test_of_two_boards_the_better_connected_one_comes_first(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", registered("pcie"), registered("dgx"))
    (used, four, two) = put(
        server,
        "pods",
        asking("used", 1, mib=1000),
        asking("four", 4, mib=CARD_MIB),
        asking("two", 2, mib=1000),
    )
    async with HamiNode(api, "pcie"), HamiNode(api, "dgx"), running(server, api, readers=READERS) as up:
        assert await started(server, up, used, ["pcie"])
        assert await started(server, up, four, ["pcie", "dgx"])
        assert set(cards_of(server, "four")) in ({*uuids_of("dgx")[:4]}, {*uuids_of("dgx")[4:]})
        assert await started(server, up, two, ["pcie", "dgx"])
        assert {card[:7] for card in cards_of(server, "two")} == {"GPU-dgx"}


async def test_words_of_the_policy_are_joined(server: ApiServer, api: HttpKubeApi) -> None:
    """All cards are equally connected: then the other word of the policy chooses among them."""
    put(server, "nodes", registered("dgx", lambda a, b: 1210))
    pods = [asking(f"p{number}", 1, "topology-aware,binpack", mib=3000) for number in range(4)]
    async with HamiNode(api, "dgx"), running(server, api, readers=READERS) as up:
        for pod in put(server, "pods", *pods):
            assert await started(server, up, pod, ["dgx"])
        assert len({card for number in range(4) for card in cards_of(server, f"p{number}")}) == 1


async def test_scores_that_cannot_be_read_are_left_out_and_reported(server: ApiServer, api: HttpKubeApi) -> None:
    node = registered("dgx")
    node["metadata"]["annotations"][SCORES] = '[{"uuid": 3}]'
    put(server, "nodes", node)
    (pod,) = put(server, "pods", asking("p", 2, mib=1000))
    async with HamiNode(api, "dgx"), running(server, api, readers=READERS) as up:
        (found,) = up.front.cluster.allocator.fleet.nodes
        assert found.topology is None
        assert SCORES in found.topology_note
        assert await settle(up, pod, ["dgx"])
        change = {"metadata": {"annotations": {SCORES: registered("dgx")["metadata"]["annotations"][SCORES]}}}
        await api.write(Patch(NODES, "dgx", change))
        await until(lambda: links_known(up) == 28, "the scores are corrected")


def links_known(up: Running) -> int:
    up.front.mirror.settle()
    (node,) = up.front.cluster.allocator.fleet.nodes
    return 0 if node.topology is None else len(node.topology.links)


# --- with the record of an exporter ---


def record_of(policy: ZonePolicy = ZonePolicy.NONE, links: tuple[Link, ...] = ()) -> dict[str, Any]:
    """The object of an exporter for the node `pcie`, whose kubelet has that policy."""
    cards = tuple(Gpu(uuid, at, "A100", "NVIDIA", zones=(at // 4,)) for at, uuid in enumerate(uuids_of("pcie")))
    cpus = tuple(Cpu(number, number // 8, number // 8, number) for number in range(16))
    topology = Topology((Zone(0), Zone(1)), (), cpus, links=links, kubelet=Kubelet(policy), observed_at=1.0)
    stock = {CARD: stock_of_cards(cards, Use())}
    return numatopology_object(NodeRecord("pcie", topology, cards, GPU, stock))


@pytest.mark.parametrize("policy", [ZonePolicy.NONE, ZonePolicy.BEST_EFFORT])
async def test_where_hamis_plugin_hands_out_what_is_named_links_choose_beside_a_kubelet(
    server: ApiServer, api: HttpKubeApi, policy: ZonePolicy
) -> None:
    put(server, "nodes", registered("pcie"))
    put(server, "numatopologies", record_of(policy))
    cards = Cards("pcie")
    async with HamiNode(api, "pcie"), running(server, api, readers=READERS, topologies=True) as up:
        for number, count in enumerate((1, 2, 4)):
            (pod,) = put(server, "pods", asking(f"p{number}", count, mib=CARD_MIB))
            assert await started(server, up, pod, ["pcie"])
            chosen = cards_of(server, f"p{number}")
            cards.check(chosen, CARD_MIB)
            cards.change(chosen, CARD_MIB, 1)


async def test_where_nvidias_plugin_picks_its_choice_is_predicted(server: ApiServer, api: HttpKubeApi) -> None:
    """0-2, 1-3, 4-6 and 5-7 have NVLinks: the plugin takes such a pair, and the first free card if one is asked for."""
    uuids = uuids_of("pcie")
    links = tuple(Link(uuids[a], uuids[b], Path.PHB, 2) for a, b in ((0, 2), (1, 3), (4, 6), (5, 7)))
    put(server, "nodes", a_node("pcie", **{GPU: "8"}))
    put(server, "numatopologies", record_of(ZonePolicy.BEST_EFFORT, links))
    plain = [a_pod(f"p{number}", {GPU: count}) for number, count in enumerate((2, 1, 2))]
    async with running(server, api, topologies=True) as up:
        for pod in put(server, "pods", *plain):
            assert await settle(up, pod, ["pcie"])
    assert [set(cards_of(server, f"p{number}")) for number in range(3)] == [
        {uuids[0], uuids[2]},
        {uuids[1]},
        {uuids[4], uuids[6]},
    ]


async def test_the_cards_of_a_claim_are_chosen_by_the_attributes_of_devices(
    server: ApiServer, api: HttpKubeApi
) -> None:
    """A claim names cards also beside a kubelet; cards 0 and 2, and 1 and 3, have one PCIe root."""
    devices = [a_card("pcie", number, number // 4) for number in range(8)]
    for number, device in enumerate(devices):
        root = {"string": f"pci0000:{number // 4}{number % 2}"}
        device["attributes"]["resource.kubernetes.io/pcieRoot"] = root
    put(server, "deviceclasses", a_class())
    put(server, "nodes", claim_node("pcie"))
    put(server, "resourceslices", a_slice("pcie", *devices))
    put(server, "numatopologies", record_of(ZonePolicy.BEST_EFFORT))
    names = ("first", "second", "third")
    put(server, "resourceclaims", *(a_claim(name, wants(count=2)) for name in names))
    async with claims_running(api, topologies=True):
        for name in names:
            put(server, "pods", claiming(name, name))
            await let_go(server, name)
    found = [sorted(allocated(server, name)) for name in names]
    assert found[0] == ["pcie/gpu-0", "pcie/gpu-2"]
    assert found[1] == ["pcie/gpu-1", "pcie/gpu-3"]
    assert found[2] == ["pcie/gpu-4", "pcie/gpu-6"]
