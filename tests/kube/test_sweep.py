"""Pods on cards that are gone, before an API server."""

from __future__ import annotations

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hosting import TURNS, a_machine, hosting, pod_of
from tests.kube.test_front import cards_of, put
from ullage.kube.bindings.front import BindingTerms
from ullage.kube.bindings.gate import Scope
from ullage.kube.cards import registered_cards
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.sweep import Sweep
from ullage.service.vanished_cards import VanishedCards

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


async def test_a_pod_leaves_when_its_card_does_not_come_back(server: ApiServer, api: HttpKubeApi):
    put(server, "nodes", a_machine("a", {"g1": TURNS, "g2": TURNS}), a_machine("b", {"g3": TURNS}))
    pods = put(server, "pods", pod_of("gone", gpus=1), pod_of("stays"), pod_of("silent"))
    now = [0.0]
    async with hosting(server, api, BindingTerms(Scope.LABELLED)) as up:
        front = up.front
        for pod, node in zip(pods, ("a", "a", "b"), strict=True):
            assert await up.place(pod, [node]) == f"!{node}"
        sweep = Sweep(
            front.candidate,
            front.nodes,
            front.pods,
            [registered_cards()],
            VanishedCards(0, grace_s=60),
            front.events.tell,
            clock=lambda: now[0],
        )
        (lost,) = cards_of(server, "gone")
        left = a_machine("a", {card: TURNS for card in ("g1", "g2") if card != lost})
        _replace(server, left)
        silent = a_machine("b", {})
        silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        _replace(server, silent)
        await until(lambda: not front.nodes.objects["", "b"].ready, "it is heard")
        for moment, there in ((0.0, True), (59.0, True), (60.0, False)):
            now[0] = moment
            await sweep.look()
            assert _alive(server, "gone") is there
        assert _alive(server, "stays")
        assert _alive(server, "silent")

        def told() -> bool:
            events = [item for (kind, _, _), item in server.store.at(server.store.revision).items() if kind == "events"]
            return {e["involvedObject"]["name"] for e in events if e["reason"] == "CardMissing"} == {"gone"}

        await until(lambda: server.do(told), "it was told")


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
