"""Pods on cards that are gone, before an API server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hosting import TURNS, Hosting, a_machine, hosting, pod_of
from tests.kube.test_front import cards_of, put
from ullage.core.placing.rules import Rules
from ullage.kube.bindings.terms import BindingScope, BindingTerms
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.evicting.sweep import Sweep
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.kube.mirror.mirror import Mirror
from ullage.kube.mirror.nodes import CardSources
from ullage.model.gpu import Gpu
from ullage.service.cluster import Cluster
from ullage.service.vanished_cards import VanishedCards

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


async def test_a_pod_leaves_when_its_card_does_not_come_back(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}), a_machine("b", {"g3": TURNS}))
    pods = put(server, "pods", pod_of("gone", gpus=1), pod_of("stays"), pod_of("silent"))
    now = [0.0]
    async with hosting(server, api, BindingTerms(BindingScope.LABELLED)) as up:
        front = up.front
        for pod, node in zip(pods, ("a", "a", "b"), strict=True):
            assert await up.place(pod, [node]) == f"!{node}"
        await _heard(up, "gone", "stays", "silent")
        vanished = VanishedCards(0, grace_s=60)
        sweep = Sweep(replace(front.context, clock=lambda: now[0]), ReadyTerm(front.candidate, front.mirror), vanished)
        (lost,) = cards_of(server, "gone")
        left = a_machine("a", {card: TURNS for card in ("g1", "g2") if card != lost})
        _replace(server, left)
        silent = a_machine("b", {})
        silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        _replace(server, silent)
        await until(lambda: not front.nodes.objects["", "b"].ready, "it is heard")
        for moment, there in ((0.0, True), (59.0, True), (60.0, False)):
            now[0] = moment
            await sweep.controller.drain()
            assert _alive(server, "gone") is there
        assert _alive(server, "stays")
        assert _alive(server, "silent")

        await until(lambda: _recorded(server).keys() == {"gone"}, "it was reported")
        await until(lambda: any("is evicted" in said for said in _recorded(server)["gone"]), "and that it leaves")


async def test_a_pod_that_may_not_be_evicted_does_not_block_others_and_is_not_reported_as_evicted(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    guarded, free = put(server, "pods", pod_of("guarded", labels={"app": "guarded"}), pod_of("free"))
    put(server, "poddisruptionbudgets", budget := _budget("guarded"))
    async with hosting(server, api, BindingTerms(BindingScope.LABELLED)) as up:
        front = up.front
        for pod in (guarded, free):
            assert await up.place(pod, ["a"]) == "!a"
        await _heard(up, "guarded", "free")
        await until(lambda: _phases(server) == {"Running"}, "both run")
        now, vanished = [0.0], VanishedCards(0, grace_s=0, most=1)
        sweep = Sweep(replace(front.context, clock=lambda: now[0]), ReadyTerm(front.candidate, front.mirror), vanished)
        _replace(server, a_machine("a", {"g3": TURNS}))
        await until(lambda: [gpu.uuid for gpu in front.mirror.machines.by_name["a"].gpus] == ["g3"], "it is heard")
        for _ in range(2):  # one event in each round, in the order of uids
            await sweep.controller.drain()
        assert _alive(server, "guarded")
        assert not _alive(server, "free")
        await until(lambda: _recorded(server).keys() == {"guarded", "free"}, "both were reported")
        await until(
            lambda: any("budget" in said for said in _recorded(server)["guarded"]), "an event says why it stays"
        )
        assert not any("is evicted" in said for said in _recorded(server)["guarded"])
        key = ("poddisruptionbudgets", "default", budget["metadata"]["name"])
        server.do(lambda: server.rules.delete(key, {}))
        await until(lambda: not front.followed.budgets.objects, "its budget is gone")
        await sweep.controller.drain()
        assert not _alive(server, "guarded")


async def test_a_card_that_a_driver_reports_again_is_back_though_its_node_is_as_it_was(
    server: ApiServer, api: HttpKubeApi
):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api, BindingTerms(BindingScope.LABELLED)) as up:
        front = up.front
        assert await up.place(pod, ["a"]) == "!a"
        await _heard(up, "p")
        (card,) = cards_of(server, "p")
        await until(lambda: front.pods.objects["default", "p"].spec.node_name == "a", "the watch reports its node")
        there, now = [Gpu("another", 0)], [0.0]
        books = Cluster(Rules(), lambda: 0.0)
        mirror = Mirror(replace(front.context, cluster=books), CardSources([lambda _: there]))
        mirror.recover()
        mirror.term = front.mirror.term
        vanished = VanishedCards(0, grace_s=60)
        sweep = Sweep(replace(front.context, clock=lambda: now[0]), ReadyTerm(front.candidate, mirror), vanished)
        await sweep.controller.drain()
        await until(lambda: "p" in _recorded(server), "it is missed")
        now[0], there[:] = 60.0, [Gpu(card, 0)]
        mirror.machines.describe_again("a")
        await sweep.controller.drain()
        assert _alive(server, "p")


async def _heard(up: Hosting, *names: str) -> None:
    """The front has heard that these pods are on their nodes."""
    pods = up.front.pods.objects
    await until(lambda: all(pods["default", name].spec.node_name for name in names), "they are heard of")


def _budget(app: str) -> dict:
    return {"metadata": {"name": app, "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": app}}}}


def _phases(server: ApiServer) -> set[str]:
    found = server.do(lambda: server.store.at(server.store.revision))
    return {item["status"]["phase"] for (kind, _, _), item in found.items() if kind == "pods"}


def _recorded(server: ApiServer) -> dict[str, list[str]]:
    """What events say of cards that are gone, by pod."""
    found: dict[str, list[str]] = {}
    for (kind, _, _), item in server.do(lambda: server.store.at(server.store.revision)).items():
        if kind == "events" and item["reason"] == "CardMissing":
            found.setdefault(item["involvedObject"]["name"], []).append(item["message"])
    return found


def _replace(server: ApiServer, node: dict) -> None:
    def change() -> None:
        name = node["metadata"]["name"]
        key = ("nodes", "", name)
        server.rules.change(key, lambda old: {**old, "metadata": {**old["metadata"], **node["metadata"]}})
        server.rules.change(key, lambda old: {**old, "status": node["status"]}, "status")

    server.do(change)


def _alive(server: ApiServer, name: str) -> bool:
    found = server.do(lambda: server.store.get(("pods", "default", name)))
    return found is not None and "deletionTimestamp" not in found["metadata"]
