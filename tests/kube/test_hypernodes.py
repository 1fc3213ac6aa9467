"""Domains above the node, as HyperNodes describe them: labels that gangs are placed by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.rules import KINDS
from tests.kube.test_front import a_node, a_pod, put
from tests.kube.test_queue_admission import pods_of, story, waiting
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import KAI_POD_GROUPS
from ullage.kube.queues.levels import Levels, Near
from ullage.kube.queues.pod_groups import MAKERS
from ullage.model.error import UllageError

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

NATIVE, _, VOLCANO, KAI = MAKERS
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
    assert VOLCANO.near({"networkTopology": asked}, Levels([1, 2, 3])) == near


def test_groups_of_volcano_may_name_the_tier() -> None:
    levels = Levels([1, 2, 3], {"rack": 1, "block": 2})
    assert VOLCANO.near({"networkTopology": {"highestTierName": "block"}}, levels) == Near(f"{T}2,{T}1", f"{T}2")
    asked = {"mode": "soft", "highestTierName": "rack"}
    assert VOLCANO.near({"networkTopology": asked}, levels) == Near(f"{T}1", None)
    with pytest.raises(UllageError, match="the name row yet"):
        VOLCANO.near({"networkTopology": {"highestTierName": "row"}}, levels)


def test_groups_of_kubernetes_name_a_label() -> None:
    spec = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    assert NATIVE.near(spec, Levels()) == Near("rack", "rack")
    assert NATIVE.near({}, Levels()) == Near()


TREE = Levels(topologies={"tree": ("zone", "block", "rack")})


@pytest.mark.parametrize(
    ("required", "preferred", "near"),
    [
        ("", "", Near()),
        ("block", "", Near("block", "block")),
        ("", "block", Near("zone,block", None)),
        ("zone", "rack", Near("zone,block,rack", "zone")),
        ("rack", "rack", Near("rack", "rack")),
    ],
)
def test_groups_of_kai_name_levels_of_a_topology(required: str, preferred: str, near: Near) -> None:
    asked = {"topology": "tree", "requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    assert KAI.near({"topologyConstraint": asked}, TREE) == near


@pytest.mark.parametrize(
    ("topology", "required", "preferred", "named"),
    [
        ("forest", "zone", "", "Topology forest does not exist yet"),
        ("tree", "row", "", "the levels of tree are zone, block, rack"),
        ("tree", "rack", "zone", "preferredTopologyLevel"),
    ],
)
def test_levels_of_kai_that_are_not_there_are_named(topology: str, required: str, preferred: str, named: str) -> None:
    asked = {"topology": topology, "requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    with pytest.raises(UllageError, match=named):
        KAI.near({"topologyConstraint": asked}, TREE)


async def test_a_gang_of_kai_goes_to_one_domain_of_its_topology(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "podgroups", KAI_POD_GROUPS)
    machines = [a_node(name, 1) for name in "abcd"]
    for machine, rack in zip(machines, ("r1", "r2", "r2", "r1"), strict=True):
        machine["metadata"]["labels"] = {"rack": rack}
    put(server, "nodes", *machines)
    held = a_pod("held", 1)
    held["spec"]["nodeName"] = "a"
    members = [waiting(f"m{n}") for n in range(2)]
    for member in members:
        member["metadata"]["annotations"]["pod-group-name"] = "train"
    put(server, "pods", held, *members)
    near = {"topology": "tree", "requiredTopologyLevel": "rack"}
    group = {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": 2, "topologyConstraint": near},
    }
    put(server, "podgroups", group)
    async with story(server, api) as up:
        await up.reported("m0", "topology-missing: ")
        put(server, "topologies", {"metadata": {"name": "tree"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
        await until(lambda: up.bound == {"held", "m0", "m1"}, "they have the levels")
        assert {pods_of(server)[name]["spec"]["nodeName"] for name in ("m0", "m1")} == {"b", "c"}
