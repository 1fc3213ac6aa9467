"""Whatever users, pods, kubelets and restarts do: no card has more applications than it may, and no pod another's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hosting import ALONE, MIB, ROOT, SLICED, Hosting, a_deployment, a_machine, delete, hosting, pod_of
from tests.kube.test_front import put
from ullage.kube.client.http import HttpKubeApi
from ullage.wire.gpubinding import binding_name

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
OWNERS = ("alice", "bob", "carol")
CARDS = {"g1": ALONE, "g2": ALONE, "g3": SLICED}
BOUND = f"{ROOT}/apps/comfyui"


def pods(server: ApiServer) -> list[dict[str, Any]]:
    found = server.do(lambda: server.store.at(server.store.revision))
    return [item for (plural, _, _), item in found.items() if plural == "pods"]


def check(up: Hosting, server: ApiServer) -> None:
    """At any moment, by the rows and by the pods: no card alone is with two owners, and shares of one fit on it."""
    ledger = up.front.bindings.store.store.now
    on_card: dict[str, set[str]] = {}
    for row in ledger.rows:
        on_card.setdefault(row.card.device, set()).add(row.app.owner)
    for pod in pods(server):
        if pod["status"]["phase"] in ("Failed", "Succeeded"):
            continue  # its processes are gone, and its cards are free
        owner = pod["metadata"]["labels"]["applications.app.bytetrade.io/owner"]
        for card in pod["metadata"].get("annotations", {}).get("ullage.io/gpu-ids", "").split(","):
            if card:
                on_card.setdefault(card, set()).add(owner)
    assert all(len(on_card.get(card, ())) <= 1 for card, mode in CARDS.items() if mode == ALONE), on_card
    assert len(on_card.get("g3", ())) <= 2, on_card  # each has 8000 MiB of 16000


async def act(up: Hosting, server: ApiServer, chance: random.Random, number: int) -> None:
    """Something that may happen."""
    owner = chance.choice(OWNERS)
    there = [pod for pod in pods(server) if pod["metadata"]["labels"]["applications.app.bytetrade.io/owner"] == owner]
    match chance.choice(["resume", "resume", "suspend", "pod", "pod", "end", "gone", "gone"]):
        case "resume":
            device = chance.choice(list(CARDS))
            choice = {"nodeName": "a", "deviceId": device, "memory": 8000 * MIB if device == "g3" else 0}
            found = await up.call("POST", f"{BOUND}/resume", {"computeBinding": [choice]}, user=owner)
            assert found["code"] in (200, 422)
        case "suspend":
            await up.call("DELETE", f"{BOUND}/compute-resources/bindings", user=owner)
        case "pod":
            (pod,) = put(server, "pods", pod_of(f"{owner}-{number}", owner=owner))
            await up.place(pod, ["a"])
        case "end" if there:
            delete(server, "pods", chance.choice(there)["metadata"]["name"])
        case "gone" if there:
            delete(server, "pods", chance.choice(there)["metadata"]["name"], gracePeriodSeconds=0)


@pytest.mark.parametrize("seed", range(12))
async def test_owners_never_meet(server: ApiServer, api: HttpKubeApi, seed: int):
    chance = random.Random(seed)
    put(server, "nodes", a_machine("a", CARDS))
    put(server, "deployments", *(a_deployment(owner=owner) for owner in OWNERS))
    number = 0
    for _ in range(3):
        async with hosting(server, api) as up:
            for _ in range(chance.randint(5, 20)):
                number += 1
                await act(up, server, chance, number)
                check(up, server)
    for pod in pods(server):
        delete(server, "pods", pod["metadata"]["name"], gracePeriodSeconds=0)
    async with hosting(server, api) as up:
        store = up.front.bindings.store

        def settled() -> bool:
            ledger = store.store.now
            rows = () if ledger is None else ledger.rows
            shown = {binding_name(row.app.name, row.app.owner, row.card.device) for row in rows}
            return ledger is not None and not any(row.draining for row in rows) and shown == set(up.objects())

        await until(settled, "what drained is gone, and the objects are the rows")
