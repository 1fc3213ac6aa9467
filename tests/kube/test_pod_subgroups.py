"""PodGroups with subgroups, of KAI and Volcano: what a pod is in, where it goes, and what a restart finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.rules import KINDS
from tests.kube.test_front import a_node, a_pod, put
from tests.kube.test_hypernodes import TREE, T, hypernode
from tests.kube.test_queue_admission import Story, pods_of, story, waiting
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import KAI_POD_GROUPS, VOLCANO_POD_GROUPS
from ullage.kube.queues.levels import Levels
from ullage.kube.queues.subgroups import KAI_LABEL, Division, of_policies, of_subgroups
from ullage.model.claim import Subgroup
from ullage.model.error import InvalidRequest, NotFound

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


# --- KAI ---


def near(level: str) -> dict[str, str]:
    return {"topology": "tree", "requiredTopologyLevel": level}


NESTED = [
    {"name": "ab", "topologyConstraint": near("block")},
    {"name": "a", "parent": "ab", "minMember": 1, "topologyConstraint": near("rack")},
    {"name": "b", "parent": "AB", "minMember": 2, "topologyConstraint": near("rack")},
    {"name": "c", "minMember": 3},
    {"name": "more", "minMember": 0},
]


def of_kai(name: str | None, *subgroups: dict[str, Any], **spec: Any) -> Division | None:
    labels = {} if name is None else {KAI_LABEL: name}
    return of_subgroups({"subGroups": list(subgroups), **spec}, labels, TREE)


def test_a_pod_of_kai_names_the_lowest_subgroup_and_is_in_all_above() -> None:
    outer = Subgroup("ab", 2, "block", "block")
    assert of_kai("b", *NESTED) == Division(6, 2, (outer, Subgroup("b", 2, "rack", "rack")))
    assert of_kai("c", *NESTED) == Division(6, 2, (Subgroup("c", 3),))
    assert of_kai("more", *NESTED) == Division(6, 2, (Subgroup("more", 0),))
    assert of_kai(None) is None, "the group has no subgroups"


@pytest.mark.parametrize(
    ("least", "division"),
    [
        ({}, (6, 2)),
        ({"minSubGroup": 3}, (6, 2)),
        ({"minSubGroup": 2}, (3, 1)),
        ({"minSubGroup": 1}, (1, 0)),
        ({"minSubGroup": 0}, (1, 0)),
        ({"minSubGroup": 5}, (6, 4)),
        ({"minMember": 2}, (6, 2)),
        ({"minMember": 0}, (6, 2)),
    ],
)
def test_as_many_subgroups_of_kai_start_as_it_states(least: dict[str, int], division: tuple[int, int]) -> None:
    # One of the three outermost subgroups needs no member, so it counts as started.
    found = of_kai("c", *NESTED, **least)
    assert found is not None
    assert (found.required, found.required_subgroups) == division


def test_a_subgroup_of_kai_that_needs_some_of_those_inside_it() -> None:
    parts = [{"name": "all", "minSubGroup": 1}, *({"name": n, "parent": "all", "minMember": n_} for n, n_ in PAIR)]
    assert of_kai("p", *parts) == Division(2, 1, (Subgroup("all", 1), Subgroup("p", 3)))


PAIR = (("p", 3), ("q", 2))


@pytest.mark.parametrize("name", ["d", None, "ab"])
def test_a_subgroup_of_kai_that_is_not_in_the_group_is_waited_for(name: str | None) -> None:
    with pytest.raises(NotFound, match="names one of a, b, c, more") as missing:
        of_kai(name, *NESTED)
    assert missing.value.code == "subgroup-missing"
    assert of_kai(None, {"name": "default", "minMember": 1}) == Division(1, 1, (Subgroup("default", 1),))


@pytest.mark.parametrize(
    ("subgroups", "field"),
    [
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}, {"name": "c"}], r"spec.subGroups\[0\].parent"),
        ([{"name": "c", "parent": "d"}], r"spec.subGroups\[0\].parent"),
        ([{"name": "c"}, {"name": "c"}], r"spec.subGroups\[1\].name"),
        ([{"minMember": 2}], r"spec.subGroups\[0\].name"),
        ([{"name": "c", "minMember": -1}], r"spec.subGroups\[0\].minMember"),
        ([{"name": "c", "topologyConstraint": near("row")}], r"spec.subGroups\[0\].topologyConstraint.required"),
    ],
)
def test_subgroups_of_kai_that_mean_nothing_are_named(subgroups: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        of_kai("c", *subgroups)


def test_a_subgroup_of_kai_waits_for_its_topology() -> None:
    with pytest.raises(NotFound, match="Topology tree does not exist yet"):
        of_subgroups({"subGroups": NESTED}, {KAI_LABEL: "a"}, Levels())


# --- Volcano ---

WORKERS = {
    "name": "worker",
    "subGroupSize": 2,
    "minSubGroups": 3,
    "labelSelector": {"matchLabels": {"task": "worker"}},
    "matchLabelKeys": ["partition", "half"],
    "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
}
OTHERS = {"subGroupSize": 4, "matchLabelKeys": ["partition"], "networkTopology": {"mode": "soft"}}


def of_volcano(labels: dict[str, str], *policies: dict[str, Any], **spec: Any) -> Division | None:
    return of_policies({"subGroupPolicy": list(policies), **spec}, labels, Levels([1, 2]))


def test_pods_of_volcano_are_divided_by_the_values_of_their_labels() -> None:
    tiers = Subgroup("0,1", 2, f"{T}1", f"{T}1")
    worker = {"task": "worker", "partition": "0", "half": "1"}
    assert of_volcano(worker, WORKERS, OTHERS) == Division(6, 1, (Subgroup("worker", 3), tiers))
    other = (Subgroup("1", 0), Subgroup("0", 4, f"{T}2,{T}1"))
    assert of_volcano({"task": "ps", "partition": "0"}, WORKERS, OTHERS) == Division(6, 1, other)
    assert of_volcano({"task": "worker", "partition": "0"}, WORKERS, OTHERS) == Division(6, 1, other)
    assert of_volcano({"task": "ps"}, WORKERS, OTHERS) == Division(6, 1, ())
    assert of_volcano({}) is None, "the group has no subgroups"


@pytest.mark.parametrize(("least", "required"), [(None, 6), (4, 6), (8, 8)])
def test_a_group_of_volcano_needs_its_members_and_its_subgroups(least: int | None, required: int) -> None:
    found = of_volcano({}, WORKERS, minMember=least)
    assert found is not None
    assert (found.required, found.required_subgroups) == (required, 1)


def test_a_policy_of_volcano_without_keys_divides_nothing() -> None:
    assert of_volcano({"task": "worker"}, {**WORKERS, "matchLabelKeys": None, "minSubGroups": 0}) == Division(1, 0, ())


# --- in a cluster ---


def machines(**racks: int) -> list[dict[str, Any]]:
    """Nodes with one card, so many in each rack; the first letter of a rack is its block."""
    found = []
    for rack, count in racks.items():
        for number in range(count):
            machine = a_node(f"{rack}n{number}", 1)
            machine["metadata"]["labels"] = {"block": rack[:1], "rack": rack}
            found.append(machine)
    return found


def member(name: str, subgroup: str) -> dict[str, Any]:
    pod = waiting(name)
    pod["metadata"]["annotations"]["pod-group-name"] = "train"
    pod["metadata"]["labels"][KAI_LABEL] = subgroup
    return pod


def group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train", "namespace": "default"}, "spec": spec}


def racks(up: Story) -> dict[str, str]:
    pods = pods_of(up.server)
    return {name: pods[name]["spec"]["nodeName"][:2] for name in sorted(up.bound)}


SPEC = {
    "topologyConstraint": near("block"),
    "subGroups": [{"name": name, "minMember": 2, "topologyConstraint": near("rack")} for name in ("one", "two")],
}


async def test_subgroups_of_kai_go_to_racks_of_one_block_and_late_members_to_their_own(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "podgroups", KAI_POD_GROUPS)
    put(server, "nodes", *machines(a0=3, a1=1, b0=3, b1=3, b2=1))
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]
    put(server, "topologies", {"metadata": {"name": "tree"}, "spec": {"levels": levels}})
    put(server, "podgroups", group(**SPEC))
    put(server, "pods", *(member(f"one{n}", "one") for n in range(2)), member("two0", "two"), member("x", "three"))
    async with story(server, api) as up:
        await up.reported("one0", "subgroup two has 1 of 2 members")
        await up.reported("x", "subgroup-missing: ")
        put(server, "pods", member("two1", "two"))
        await until(lambda: len(up.bound) == 4, "both subgroups start")
        where = racks(up)
    assert {where["one0"], where["one1"]} == {where["one0"]} != {where["two0"]} == {where["two0"], where["two1"]}
    assert {rack[:1] for rack in where.values()} == {"b"}, "the other block has no room for two racks of two"
    put(server, "pods", member("one2", "one"), member("two2", "two"))
    async with story(server, api) as up:  # a new process finds half of the members running
        await until(lambda: len(up.bound) == 6, "late members go")
        assert {name: racks(up)[name] for name in ("one2", "two2")} == {"one2": where["one0"], "two2": where["two0"]}
        put(server, "pods", member("one3", "one"))
        await up.reported("one3", "0 of 1 of subgroup one would fit in one rack")
        assert up.gated == {"x", "one3"}


async def test_a_group_of_kai_starts_with_the_subgroups_that_fit(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "podgroups", KAI_POD_GROUPS)
    put(server, "nodes", *machines(a0=2, b0=2))
    put(server, "topologies", {"metadata": {"name": "tree"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    names = ("p0", "p1", "p2")
    parts = [{"name": name, "minMember": 2, "topologyConstraint": near("rack")} for name in names]
    put(server, "podgroups", group(minSubGroup=2, subGroups=parts))
    put(server, "pods", *(member(f"{name}-{n}", name) for name in names for n in range(2)))
    async with story(server, api) as up:
        await until(lambda: len(up.bound) == 4, "two of three start")
        (left,) = {"p0", "p1", "p2"} - {name[:2] for name in up.bound}
        await up.reported(f"{left}-0", "gang-do")
        for name in list(up.bound)[:1]:
            for each in (f"{name[:2]}-0", f"{name[:2]}-1"):
                up.end(each)
        await until(lambda: {name for name in up.bound if name.startswith(left)} == {f"{left}-0", f"{left}-1"}, "whole")


async def test_partitions_of_volcano_go_to_one_hypernode_each(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "podgroups", VOLCANO_POD_GROUPS)
    put(server, "nodes", *(a_node(name, 1) for name in "abcdef"))
    put(server, "hypernodes", *(hypernode(f"s{n}", 1, *nodes) for n, nodes in enumerate(("ad", "be", "cf"))))
    held = a_pod("held", 1)
    held["spec"]["nodeName"] = "b"
    policy = {
        "name": "worker",
        "subGroupSize": 2,
        "minSubGroups": 2,
        "matchLabelKeys": ["partition"],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    put(server, "podgroups", group(minMember=4, subGroupPolicy=[policy]))
    pods = [waiting(f"m{n}") for n in range(4)]
    for number, pod in enumerate(pods):
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "train"
        pod["metadata"]["labels"]["partition"] = str(number // 2)
    put(server, "pods", held, *pods[:3])
    async with story(server, api) as up:
        await up.reported("m0", "subgroup worker/1 has 1 of 2 members")
        put(server, "pods", pods[3])
        await until(lambda: up.bound == {"held", "m0", "m1", "m2", "m3"}, "both partitions start")
        where = {name: pod["spec"]["nodeName"] for name, pod in pods_of(server).items()}
        assert {frozenset(where[f"m{n}"] for n in pair) for pair in ((0, 1), (2, 3))} == {
            frozenset("ad"),
            frozenset("cf"),
        }


async def test_subgroups_by_annotations_start_together_with_members_of_none(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", *machines(a0=2, b0=3, c0=1))
    gang = {"gang-min-members": "6", "gang-group-key": "default/train"}
    parts = [("one", 2), ("two", 3)]
    of = [(name, {"gang-subgroup": name, "gang-subgroup-members": str(n)}, n) for name, n in parts]
    pods = [
        waiting(f"{name}{n}", **gang, **keys, **{"gang-subgroup-within": "rack"})
        for name, keys, count in of
        for n in range(count)
    ]
    put(server, "pods", waiting("lead", **gang), *pods[1:])
    async with story(server, api) as up:
        await up.reported("two0", "gang-incomplete: ")
        put(server, "pods", *pods[:1])
        await until(lambda: len(up.bound) == 6, "all of them go")
        assert racks(up) == {
            "lead": "c0",
            **{f"one{n}": "a0" for n in range(2)},
            **{f"two{n}": "b0" for n in range(3)},
        }


async def test_members_of_a_group_that_start_one_by_one_stay_near_each_other(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "podgroups", KAI_POD_GROUPS)
    put(server, "nodes", *machines(a0=2, b0=3))
    put(server, "topologies", {"metadata": {"name": "tree"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    put(server, "podgroups", group(minMember=1, topologyConstraint=near("rack")))
    put(server, "pods", member("m0", ""), member("m1", ""), member("m2", ""))
    async with story(server, api) as up:
        await until(lambda: len(up.bound) == 2, "as many start as one rack has room for")
        await up.reported(next(iter({"m0", "m1", "m2"} - up.bound)), "0 of 1 would fit")
        assert set(racks(up).values()) == {"a0"}
