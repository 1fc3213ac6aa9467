"""Domains above the node, as HyperNodes describe them: labels that gangs are placed by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_front import a_node, a_pod, put
from tests.kube.test_queue_admission import pods_of, story, waiting
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.queues.pod_groups import MAKERS, Near

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NATIVE, _, VOLCANO = MAKERS
T = "topology.volcano.sh/tier-"


def hypernode(name: str, tier: int, *nodes: str) -> dict[str, Any]:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes]
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": members}}


async def test_a_gang_stays_in_one_hypernode_and_follows_it(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", *(a_node(name, 1) for name in "abcd"))
    held = a_pod("held", 1)
    held["spec"]["nodeName"] = "a"
    gang = {"gang-min-members": "2", "gang-group-key": "default/train", "gang-within": f"{T}1"}
    put(server, "pods", held, *(waiting(f"m{n}", **gang) for n in range(2)))
    async with story(server, api) as up:
        await up.reported("m0", "gang-domain-too-small: ")
        put(server, "hypernodes", hypernode("s0", 1, "a", "c"), hypernode("s1", 1, "b", "d"))
        await until(lambda: up.bound == {"held", "m0", "m1"}, "both go where they may")
        assert {pods_of(server)[name]["spec"]["nodeName"] for name in ("m0", "m1")} == {"b", "d"}


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ({}, Near()),
        ({"mode": "hard", "highestTierAllowed": 2}, Near(f"{T}2,{T}1", f"{T}2")),
        ({"highestTierAllowed": 1}, Near(f"{T}1", f"{T}1")),
        ({"mode": "soft", "highestTierAllowed": 2}, Near(f"{T}2,{T}1", None)),
        ({"mode": "soft"}, Near(f"{T}3,{T}2,{T}1", None)),
    ],
)
def test_groups_of_volcano_say_which_tier_they_stay_in(asked: dict[str, Any], near: Near) -> None:
    assert VOLCANO.near({"networkTopology": asked}, [1, 2, 3]) == near


def test_groups_of_kubernetes_name_a_label() -> None:
    spec = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    assert NATIVE.near(spec, []) == Near("rack", "rack")
    assert NATIVE.near({}, []) == Near()
