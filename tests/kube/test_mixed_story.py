"""Pods of queues, a pod with a claim and an application that is bound to a card, all after the same cards.

Drivers offer them, so each route knows them by the same names. Whatever ends in the middle, nobody meets on a card.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from tests.kube.claims import a_claim, a_class, cards, claiming
from tests.kube.conftest import define
from tests.kube.hosting import ALONE, a_binding, labels_of
from tests.kube.stage import OWNERS, Stage, dies
from tests.kube.test_bound_scheduler import definition
from tests.kube.test_claims_scheduler import clean
from tests.kube.test_stories import cluster, play, scheduled
from ullage.kube.bindings.filter import SCOPE_LABEL
from ullage.kube.bindings.nodes import TYPE_LABEL
from ullage.kube.client.changes import Create, Delete, Patch
from ullage.kube.client.kinds import (
    DEVICE_CLASSES,
    GPU_BINDINGS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from ullage.wire.gpubinding import SHARE_MODE

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
__all__ = ["cluster", "play", "scheduled"]  # fixtures

GATE = "ullage.io/queue"
SETTINGS = '[kube.bindings]\nscope = "labelled"\n'
X, Y, HOSTED = OWNERS
BOUND = "GPU-n000-0"
Document = dict[str, Any]


def asking(name: str, namespace: str, **labels: str) -> Document:
    """A pod that asks for a whole card in our words."""
    words = {"ullage.io/gpu-count": "1", "ullage.io/isolation": "shared"}
    metadata = {"name": name, "namespace": namespace, "annotations": words, "labels": labels}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "ullage", "containers": [{"name": "main", "image": "image"}]},
    }


def in_queue(name: str, queue: str) -> Document:
    pod = asking(name, queue, **{GATE: queue})
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


def with_claim(name: str, claim: str) -> Document:
    pod = claiming(name, claim)
    pod["metadata"]["namespace"] = X
    del pod["status"]
    return pod


async def furnish(play: Stage, machines: int, count: int) -> None:
    """Machines whose cards a driver offers, a class of them, and an application that is bound to the first card."""
    if play.is_real:
        await define(play.api, GPU_BINDINGS, definition())
    for name in (f"n{number:03}" for number in range(machines)):
        await play.kubelets.join(name)
        modes = {f"{SHARE_MODE}GPU-{name}-{number}": ALONE for number in range(count)}
        reported = {"metadata": {"annotations": modes, "labels": {TYPE_LABEL: "nvidia"}}}
        await play.api.write(Patch(NODES, name, reported))
        await play.api.write(Create(RESOURCE_SLICES, cards(name, count)))
    await play.api.write(Create(DEVICE_CLASSES, a_class()))
    await play.api.write(Patch(NAMESPACES, HOSTED, {"metadata": {"labels": {SCOPE_LABEL: "enabled"}}}))
    await play.api.write(Create(GPU_BINDINGS, a_binding("hosted", BOUND, owner="alice", namespace=HOSTED)))


async def holders(play: Stage) -> dict[str, str]:
    """Who has which card, as the API says; nobody meets on one, and who is bound to one has no other."""
    found: list[tuple[str, str]] = []
    for pod in await play.pods():
        notes = pod["metadata"].get("annotations", {})
        for card in filter(None, notes.get("ullage.io/gpu-ids", "").split(",")):
            assert card.startswith(f"GPU-{pod['spec']['nodeName']}-"), pod
            found.append((card, pod["metadata"]["name"]))
    async for page in play.api.pages(RESOURCE_CLAIMS):
        for claim in page.items:
            allocation = (claim.document.get("status") or {}).get("allocation") or {}
            for result in allocation.get("devices", {}).get("results", ()):
                number = result["device"].rpartition("-")[2]
                found.append((f"GPU-{result['pool']}-{number}", f"claim {claim.metadata.name}"))
    assert max(Counter(card for card, _ in found).values(), default=1) == 1, found
    assert {card for card, name in found if name.startswith("hosted")} <= {BOUND}
    return dict(found)


async def test_pods_of_queues_a_claim_and_a_bound_application_never_meet_on_a_card(play: Stage) -> None:
    await furnish(play, 3, 2)
    try:
        front = await play.front(SETTINGS)
        await asyncio.to_thread(front.wait_ready)
        await play.submit([asking("hosted-1", HOSTED, **labels_of("comfyui", "alice"))])
        assert await all_are_held(play, 1) == {BOUND: "hosted-1"}
        claim = {**a_claim("one"), "metadata": {"name": "one", "namespace": X}}
        await play.api.write(Create(RESOURCE_CLAIMS, claim, X))
        waiting = [in_queue(f"{queue}-{number}", queue) for number in range(4) for queue in (X, Y)]
        await play.submit([*waiting, with_claim("claimer", "one")])
        await play.submit([asking("hosted-2", HOSTED, **labels_of("comfyui", "alice"))])
        await play.until(lambda pods: sum(bool(pod.spec.node_name) for pod in pods) >= 3, "some of them run")
        front.kill_now()
        await dies(front)
        before = await holders(play)
        await asyncio.to_thread(front.start)
        await asyncio.to_thread(front.wait_ready)
        there = await all_are_held(play, 6)
        assert before.items() <= there.items(), "who had a card has it"
        queued = [name for name in there.values() if name.startswith("team")]
        assert {name.rpartition("-")[0] for name in queued} == {X, Y}, "neither queue has all"
        assert there[BOUND] == "hosted-1"
        for name in queued[:4]:  # four who waited, at most, and the claim: there is room for all of them then
            await play.api.write(Delete(PODS, name, name.rpartition("-")[0]))
        await play.until(
            lambda pods: (
                {pod.metadata.name for pod in pods if not pod.spec.node_name} == {"hosted-2"}
                and not any(pod.terminating for pod in pods)
            ),
            "all but the second of the application run",
        )
        there = await all_are_held(play, 6)
        assert "claim one" in there.values()
        (claimer,) = (pod for pod in await play.pods() if pod["metadata"]["name"] == "claimer")
        (card,) = (card for card, name in there.items() if name == "claim one")
        assert card.startswith(f"GPU-{claimer['spec']['nodeName']}-")
    finally:
        await clean(play.api)
        await play.api.write(Delete(GPU_BINDINGS, "hosted"))


async def all_are_held(play: Stage, count: int, deadline_s: float = 120.0) -> dict[str, str]:
    """Wait until so many cards have somebody."""
    clock = asyncio.get_running_loop().time
    end = clock() + deadline_s
    while len(found := await holders(play)) < count:
        assert clock() < end, f"{count} are not held: {found}; {play.log()}"
        await asyncio.sleep(0.1)
    return found
