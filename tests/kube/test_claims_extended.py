"""Cards by the name of a resource, which kube-scheduler claims by itself: the extender is asked, and follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cel_expr_python", reason="cel-expr-python is in the lock, and not installed here")

from tests.kube.claims import a_class, cards
from tests.kube.conftest import SHORT, until
from tests.kube.control_plane import ControlPlane, binary
from tests.kube.kubelet import Kubelets
from tests.kube.test_scheduler import CARDS, GPU, a_pod, answering
from tests.ports import free_port
from ullage.kube.client.changes import Create
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from ullage.kube.front import Front

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, int]]:
    """A control plane whose scheduler counts cards by itself, and asks the extender about every pod."""
    binary("kube-scheduler")
    plane, port = ControlPlane(tmp_path_factory.mktemp("extended")), free_port()
    try:
        plane.start_asking_scheduler(port)
        yield plane, port
    finally:
        plane.close()


def cards_of(front: Front) -> list[str]:
    front.mirror.settle()
    return [gpu.uuid for gpu in front.cluster.allocator.fleet.cards]


def node_of(front: Front, pod: str) -> str:
    found = front.pods.objects.get(("default", pod))
    return "" if found is None else found.spec.node_name


async def test_the_pod_has_the_cards_that_were_claimed_for_it(scheduled: tuple[ControlPlane, int]):
    plane, port = scheduled
    async with connect(plane.kubeconfig) as client:
        api = HttpKubeApi(client, SHORT)
        async with answering(api, port) as front, Kubelets(api) as kubelets:
            await kubelets.join("a")
            await api.write(Create(DEVICE_CLASSES, a_class(extendedResourceName=GPU)))
            await api.write(Create(RESOURCE_SLICES, cards("a", 3)))
            await until(lambda: len(cards_of(front)) == 3, "the cards are known")
            for name, count in (("p", 1), ("q", 2)):
                await api.write(Create(PODS, a_pod(name, count), "default"))
                await until(lambda name=name: node_of(front, name) == "a", f"{name} is bound", 60)
            held: list[str] = []
            for name in ("p", "q"):
                pod = await api.get(PODS, name, "default")
                made: Any = pod.document["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
                claim = (await api.get(RESOURCE_CLAIMS, made, "default")).document
                devices = [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]]
                said = (pod.metadata.annotations or {})[CARDS].split(",")
                assert sorted(said) == sorted(device.replace("gpu-", "GPU-a-") for device in devices)
                held += said
            assert len(set(held)) == 3
            front.mirror.settle()
            ledger = front.cluster.allocator.fleet.ledger.values()
            assert sorted(card for each in ledger for card in each.gpus) == sorted(held)
