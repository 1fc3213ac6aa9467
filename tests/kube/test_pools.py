"""Pools of cards: by the annotation of a node, its label, or the settings; from the webhook to the books."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.kube.api_server import ApiServer
from tests.kube.claims import edit
from tests.kube.conftest import until
from tests.kube.hami_node import LOCK, HamiNodes, hami_node
from tests.kube.test_events import recorded
from tests.kube.test_front import cards_of, put, running
from tests.kube.test_webhook import admitted, answered, asking
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.kube.mirror.cards import RegisteredCards
from ullage.kube.mirror.pools import CARDS_OF_POOLS, CardPools
from ullage.kube.webhook.admission import nowhere
from ullage.kube.webhook.webhook import Webhook
from ullage.model.card_pool import PoolRule
from ullage.model.gpu import Gpu

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]

LABEL, ANNOTATION = "ullage.io/gpupool", f"ullage.io/{CARDS_OF_POOLS}"
CARDS = (Gpu("GPU-0", 0, "NVIDIA A100-SXM4-80GB"), Gpu("GPU-1", 1, "NVIDIA H100 80GB"))
RULES = (
    PoolRule("small", {"kind": "gpu", "zone": "a"}, ("A100",)),
    PoolRule("large", {"kind": "gpu"}, ("nvidia h100",)),
    PoolRule("rest", {"kind": "gpu"}),
)


def pools(cards: dict[str, str] | str | None = None, **labels: str) -> tuple[list[str | None], list[str]]:
    """The pools of the two cards of a node, and what is noted."""
    written = cards if isinstance(cards, str) else json.dumps(cards)
    metadata = {"name": "n", "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
    annotations = {ANNOTATION: written} if cards else {}
    node = msgspec.convert({"metadata": metadata | {"annotations": annotations}}, NodeObject)
    notes: list[str] = []
    found = CardPools(rules=RULES).of(node, CARDS, notes)
    assert [card.uuid for card in found] == ["GPU-0", "GPU-1"]
    return [card.pool for card in found], notes


def test_the_annotation_goes_before_the_label_and_the_label_before_the_rules():
    assert pools() == ([None, None], [])
    assert pools(kind="gpu", zone="a") == (["small", "large"], [])
    assert pools(kind="gpu", zone="b") == (["rest", "large"], [])
    assert pools(kind="gpu", **{"ullage.io/gpupool": "own"}) == (["own", "own"], [])
    assert pools({"one": ["0"]}, **{"ullage.io/gpupool": "own"}) == (["one", "own"], [])
    assert pools({"one": [" GPU-1 "], "two": ["0"]}, kind="gpu") == (["two", "one"], [])


@pytest.mark.parametrize(
    ("written", "noted"),
    [
        ("training", "write JSON"),
        ('{"one": "0"}', "write JSON"),
        ('{"a,b": ["0"]}', "write the name of a pool"),
        ('{"one": ["0"], "two": ["GPU-0"]}', "it is in one and in two"),
    ],
)
def test_an_annotation_that_cannot_be_read_puts_no_card_in_a_pool_and_says_so(written: str, noted: str):
    found, notes = pools(written, **{"ullage.io/gpupool": "own"})
    assert found == [None, None]
    (note,) = notes
    assert ANNOTATION in note
    assert noted in note


def test_a_card_that_is_not_there_is_noted_by_name():
    found, notes = pools({"one": ["0", "7"]})
    assert found == ["one", None]
    assert "this node has no card '7'" in notes[0]


def of_pool(name: str, pool: str, **words: str) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "annotations": {LABEL: pool} | words},
        "spec": {"containers": [asking(gpu="1", gpumem="9000")]},
        "status": {"phase": "Pending"},
    }
    return pod


def annotations_of(server: ApiServer, node: str) -> dict[str, str]:
    found = server.do(lambda: server.rules.get(("nodes", "", node)))
    return dict(found["metadata"].get("annotations", {}))


async def test_pods_get_cards_of_their_pool_from_the_webhook_to_the_books(server: ApiServer, api: HttpKubeApi):
    one, two, three = (hami_node(name, f"{name}-0", f"{name}-1") for name in "abc")
    one["metadata"]["labels"] = {LABEL: "training"}
    two["metadata"]["annotations"][ANNOTATION] = '{"serving": ["1"]}'
    three["metadata"]["labels"] = {"kind": "spare"}
    put(server, "nodes", one, two, three)
    rules = (PoolRule("spare", {"kind": "spare"}),)
    async with HamiNodes(api), running(server, api, readers=[RegisteredCards()], pools=rules) as up:
        up.front.mirror.settle()
        webhook = Webhook(nowhere=nowhere(up.front.cluster))
        asked = {"trains": "training", "serves": "serving", "waits": "serving", "spare": "spare"}
        pods = put(server, "pods", *(admitted(of_pool(name, pool), webhook) for name, pool in asked.items()))
        answers = {pod["metadata"]["name"]: await up.place(pod, ["a", "b", "c"]) for pod in pods}
        assert {name: answer for name, answer in answers.items() if name != "waits"} == {
            "trains": "!a",
            "serves": "!b",
            "spare": "!c",
        }
        assert cards_of(server, "serves") == ["b-1"]
        assert "refused" in answers["waits"]
        held = {each.claim.pod: each.gpus for each in up.front.cluster.allocator.fleet.ledger.values() if each.claim}
        assert held["serves"] == ("b-1",)
        edit(server, "nodes", "a", "metadata", labels={LABEL: "serving"})
        waits = pods[2]
        await until(lambda: LOCK not in annotations_of(server, "a"), "its plugin has handed out the first card")
        await until(
            lambda: up.front.mirror.machines.by_name["a"].gpus[0].pool == "serving", "the node is of another pool"
        )
        assert await up.place(waits, ["a", "b", "c"]) == "!a"


async def test_a_pod_of_a_pool_that_no_card_is_in_waits_and_says_which_there_are(server: ApiServer, api: HttpKubeApi):
    node = hami_node("a", "a-0")
    node["metadata"]["labels"] = {LABEL: "training"}
    put(server, "nodes", node)
    async with running(server, api, readers=[RegisteredCards()]) as up:
        up.front.mirror.settle()
        webhook = Webhook(nowhere=nowhere(up.front.cluster))
        document = of_pool("p", "training1")
        (warning,) = answered(document, webhook)["warnings"]
        assert warning.endswith("there are: training; did you mean training?")
        (pod,) = put(server, "pods", admitted(document, webhook))
        found = await up.ask("filter", Pod=pod, NodeNames=["a"])
        assert found["FailedAndUnresolvableNodes"] == {"a": "1/1 wrong-pool"}
        await until(lambda: len(recorded(server)) == 1, "it is written")
        ((_, _, message),) = recorded(server)
        assert "the card is of another pool: there are training" in message
