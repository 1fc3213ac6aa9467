"""What exporters write is in the books: where cards are, and who holds them, whichever scheduler bound the pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.at_work import at_work
from tests.kube.conftest import until
from tests.kube.test_front import GPU, a_node, a_pod, put
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.front import Front
from ullage.model.card_figures import SHIPPED_FIGURES
from ullage.model.gpu import Gpu
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.node_record import NodeRecord, stock_of_cards
from ullage.model.part import Isolation
from ullage.model.topology import CARD, Cpu, Kubelet, Topology, Zone, ZonePolicy
from ullage.wire.topology.numatopology_object import numatopology_object

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

CARDS = tuple(
    Gpu(f"GPU-{index}", index, "A100", "NVIDIA", 80 << 30, zones=(index // 2,), bus_id=f"0000:0{index}:00.0")
    for index in range(4)
)
SOFTLY = frozenset({Isolation.SHARED, Isolation.SOFT})
KNOWN = tuple(replace(SHIPPED_FIGURES.complete(card), isolations=SOFTLY) for card in CARDS)
"""The cards with what their model computes, and how far anybody keeps their users apart."""


def reported(use: Use | None = None, observed_at: float = 1.0, **changed: Any) -> dict[str, Any]:
    """The object of a node `a` with two cards in each of two zones."""
    cpus = tuple(Cpu(number, number // 4, number // 4, number) for number in range(8))
    kubelet = Kubelet(ZonePolicy.BEST_EFFORT)
    topology = Topology((Zone(0), Zone(1)), ((10, 20), (20, 10)), cpus, kubelet=kubelet, observed_at=observed_at)
    stock = {CARD: stock_of_cards(CARDS, use or Use())}
    return numatopology_object(NodeRecord("a", topology, CARDS, GPU, stock, use=use)) | changed


def held(name: str, *cards: str) -> PodHolding:
    return PodHolding("default", name, "", (Holding("c", devices=((CARD, cards),)),))


def write(server: ApiServer, body: dict[str, Any]) -> None:
    server.do(lambda: server.rules.change(("numatopologies", "", "a"), lambda item: merged(item, body)))


def merged(item: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    return {**item, **body, "metadata": item["metadata"] | body["metadata"]}


@asynccontextmanager
async def running(server: ApiServer, api: HttpKubeApi, said: list[Any] | None = None) -> AsyncIterator[Front]:
    def on_error(*report: Any) -> None:
        if said is not None:
            said.append(report)

    front = make_front(
        api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(topologies=True), on_error=on_error
    )
    async with at_work(front, lambda it: it.mirror.ready):
        yield front


def cards_of(front: Front, uid: str) -> tuple[str, ...]:
    front.mirror.settle()
    found = front.cluster.held(uid)
    return found.gpus if found else ()


def foreign(front: Front) -> tuple[str, ...]:
    front.mirror.settle()
    found = front.cluster.allocator.fleet.ledger.get("foreign:a")
    return found.gpus if found else ()


async def test_a_machine_has_the_cards_and_zones_that_its_exporter_reports(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4), a_node("b", 1))
    put(server, "numatopologies", reported())
    async with running(server, api) as front:
        nodes = {node.name: node for node in front.cluster.allocator.fleet.nodes}
        assert nodes["a"].gpus == KNOWN
        assert nodes["a"].topology.kubelet.policy is ZonePolicy.BEST_EFFORT
        assert [cpu.zone for cpu in nodes["a"].topology.cpus] == [0] * 4 + [1] * 4
        assert nodes["b"].topology is None
        assert len(nodes["b"].gpus) == 1


async def test_a_pod_that_somebody_else_placed_holds_the_cards_that_its_node_shows(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4))
    pod = a_pod("p", 2)
    pod["spec"]["nodeName"] = "a"
    (pod,) = put(server, "pods", pod)
    uid = pod["metadata"]["uid"]
    put(server, "numatopologies", reported(Use((held("p", "GPU-1", "GPU-3"),))))
    async with running(server, api) as front:
        assert set(cards_of(front, uid)) == {"GPU-1", "GPU-3"}
        write(server, reported(Use((held("p", "GPU-0", "GPU-2"),)), 2.0))
        await until(lambda: set(cards_of(front, uid)) == {"GPU-0", "GPU-2"}, "the books follow the node")
        assert foreign(front) == ()


async def test_unknown_owners_hold_cards_until_these_are_no_longer_reported(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4))
    put(server, "numatopologies", reported(Use((held("stranger", "GPU-2"),))))
    async with running(server, api) as front:
        assert foreign(front) == ("GPU-2",)
        write(server, reported(Use(), 2.0))
        await until(lambda: foreign(front) == (), "they are free")


async def test_a_holder_may_be_reported_before_its_pod(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4))
    put(server, "numatopologies", reported(Use((held("p", "GPU-3"),))))
    async with running(server, api) as front:
        assert foreign(front) == ("GPU-3",)
        pod = a_pod("p")
        pod["spec"]["nodeName"] = "a"
        (pod,) = put(server, "pods", pod)
        await until(lambda: cards_of(front, pod["metadata"]["uid"]) == ("GPU-3",), "it is the pod's")
        assert foreign(front) == ()


async def test_a_changed_usage_is_no_new_machine(server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch):
    put(server, "nodes", a_node("a", 4))
    put(server, "numatopologies", reported())
    async with running(server, api) as front:
        front.mirror.settle()
        anew, set_nodes = [], front.cluster.set_nodes
        monkeypatch.setattr(front.cluster, "set_nodes", lambda nodes: anew.append(1) or set_nodes(nodes))
        write(server, reported(Use((held("stranger", "GPU-2"),)), 2.0))
        await until(lambda: foreign(front) == ("GPU-2",), "it is noticed")
        assert anew == []


async def test_a_machine_whose_object_is_deleted_or_cannot_be_read_stays_as_it_was(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4))
    put(server, "numatopologies", reported())
    said: list[Any] = []
    async with running(server, api, said) as front:
        detail = {str(number): {"numa": 99} for number in range(8)}
        write(server, reported(spec={"cpuDetail": detail}))
        await until(lambda: bool(said), "it is reported")
        assert said[0][:2] == ("Numatopology", "a")
        server.do(lambda: server.rules.delete(("numatopologies", "", "a"), {}))
        assert front.followed.topologies is not None
        informer = front.followed.topologies
        await until(lambda: not informer.objects, "it is gone")
        front.mirror.settle()
        assert front.cluster.allocator.fleet.nodes[0].gpus == KNOWN


async def test_nothing_is_decided_before_topologies_are_known(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_node("a", 4))
    front = make_front(api, Candidate(api, "ullage", "default"), Rules(), FrontSettings(topologies=True, claims=False))
    others = [asyncio.create_task(work) for work in (front.nodes.run(), front.pods.run(), front.takeover.run())]
    assert front.followed.topologies is not None
    await front.nodes.wait_synced()
    await front.pods.wait_synced()
    assert not front.mirror.ready
    others.append(asyncio.create_task(front.followed.topologies.run()))
    await until(lambda: front.mirror.ready, "they are listed")
    for work in others:
        work.cancel()
    await asyncio.gather(*others, return_exceptions=True)
