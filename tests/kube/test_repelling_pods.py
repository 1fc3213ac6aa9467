"""Nodes that pods keep other pods off, against the rule computed over all objects after every event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.fake_informer import FakeInformer
from tests.kube.test_front import put
from ullage.core.placing.rules import Rules
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NAMESPACES, NODES, PODS
from ullage.kube.context import KubeContext
from ullage.kube.followed import Followed
from ullage.kube.mirror.repelling_pods import RepellingPods
from ullage.model.claim import Claim
from ullage.service.cluster import Cluster

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
Body = dict[str, Any]


def a_term(key: str = ZONE, **fields: Any) -> Body:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "a"}}, **fields}


def a_pod(name: str, *terms: Any, node: str = "", namespace: str = "default", phase: str = "Running", **labels: str):
    anti = {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}} if terms else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c"}], **anti},
        "status": {"phase": phase},
    }


def a_node(name: str, **labels: str) -> Body:
    return {"metadata": {"name": name, "labels": {HOST: name, **labels}}, "status": {}}


def a_namespace(name: str, **labels: str) -> Body:
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}}


class World:
    """Informers that the test feeds, and an index that follows them."""

    def __init__(self) -> None:
        self.nodes, self.pods, self.namespaces = FakeInformer(NODES), FakeInformer(PODS), FakeInformer(NAMESPACES)
        self.errors: list[tuple[str, str, str]] = []
        self.index = self.rebuilt()

    def rebuilt(self) -> RepellingPods:
        followed = Followed(*map(cast("Any", lambda it: it), (self.nodes, self.pods, self.namespaces, None)))
        return RepellingPods(context_of(followed, self.errors))

    def repelled(self, index: RepellingPods | None = None, namespace: str = "default", **labels: str) -> set[str]:
        return set((index or self.index).nodes_for(new_pod(namespace, **labels)))


def context_of(followed: Followed, errors: list[tuple[str, str, str]]) -> KubeContext:
    return KubeContext(
        api=cast("Any", None),
        candidate=cast("Any", None),
        cluster=Cluster(Rules(workers_per_node=None), lambda: 0.0, lambda: 0.0),
        followed=followed,
        on_error=lambda kind, name, error: errors.append((kind, name, error.message)),
    )


def new_pod(namespace: str = "default", **labels: str) -> Claim:
    return Claim(namespace, pod="new", labels=labels)


def a_world() -> World:
    world = World()
    for name, zone in (("n1", "x"), ("n2", "x"), ("n3", "y")):
        world.nodes.put(a_node(name, zone=zone))
    world.nodes.put(a_node("n4"))
    return world


def test_where_no_pod_repels_none_is_kept_off_any_node() -> None:
    world = a_world()
    world.pods.put(a_pod("p", node="n1", app="a"))
    preferred = a_pod("q", node="n1")
    preferred["spec"]["affinity"] = {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": a_term()}]}}
    world.pods.put(preferred)
    assert world.repelled(app="a") == set()
    assert world.errors == []


def test_a_pod_keeps_those_that_it_matches_off_its_domain() -> None:
    world = a_world()
    world.pods.put(a_pod("p", a_term(), node="n1"))
    assert world.repelled(app="a") == {"n1", "n2"}
    assert world.repelled(app="b") == world.repelled(namespace="other", app="a") == set()
    world.pods.put(a_pod("q", a_term(HOST), node="n3"))
    assert world.repelled(app="a") == {"n1", "n2", "n3"}


def test_a_node_without_the_label_is_in_no_domain() -> None:
    world = a_world()
    world.pods.put(a_pod("p", a_term(), node="n4"))
    assert world.repelled(app="a") == set()
    world.nodes.put(a_node("n4", zone="y"))
    assert world.repelled(app="a") == {"n3", "n4"}
    world.nodes.put(a_node("n5", zone="y"))
    world.nodes.drop("n3")
    assert world.repelled(app="a") == {"n4", "n5"}


def test_a_pod_counts_from_its_bind_until_it_has_finished_or_is_gone() -> None:
    world = a_world()
    world.pods.put(a_pod("p", a_term(), phase="Pending"))
    assert world.repelled(app="a") == set()
    world.pods.put(a_pod("p", a_term(), node="n1", phase="Pending"))
    assert world.repelled(app="a") == {"n1", "n2"}
    terminating = a_pod("p", a_term(), node="n1")
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.pods.put(terminating)
    assert world.repelled(app="a") == {"n1", "n2"}
    world.pods.put(a_pod("p", a_term(), node="n1", phase="Succeeded"))
    assert world.repelled(app="a") == set()
    world.pods.put(a_pod("q", a_term(), node="n3"))
    world.pods.drop("q", "default")
    assert world.repelled(app="a") == set()


def test_of_several_pods_with_one_term_each_counts() -> None:
    world = a_world()
    for name in ("p", "q"):
        world.pods.put(a_pod(name, a_term(), node="n1"))
    world.pods.put(a_pod("r", a_term(), node="n3"))
    world.pods.drop("p", "default")
    assert world.repelled(app="a") == {"n1", "n2", "n3"}
    world.pods.drop("q", "default")
    assert world.repelled(app="a") == {"n3"}


def test_namespaces_are_selected_by_the_labels_that_they_have_now() -> None:
    world = a_world()
    chosen = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    world.pods.put(a_pod("p", a_term(namespaceSelector=chosen), node="n3"))
    world.namespaces.put(a_namespace("team"))
    assert world.repelled(namespace="team", app="a") == set()
    world.namespaces.put(a_namespace("team", gpu=""))
    assert world.repelled(namespace="team", app="a") == {"n3"}
    assert world.repelled(namespace="unknown", app="a") == {"n3"}


def test_the_domain_of_a_pod_on_a_node_that_is_not_followed_may_be_any() -> None:
    world = a_world()
    world.pods.put(a_pod("p", a_term(), node="elsewhere"))
    world.pods.put(a_pod("q", a_term(HOST), node="elsewhere"))
    assert world.repelled(app="a") == {"n1", "n2", "n3"}
    world.nodes.put(a_node("elsewhere", zone="y"))
    assert world.repelled(app="a") == {"n3", "elsewhere"}


def test_a_term_that_cannot_be_read_is_reported_once_and_matches_all_of_its_namespace() -> None:
    world = a_world()
    wrong = a_term(labelSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]})
    for phase in ("Pending", "Running", "Running"):
        world.pods.put(a_pod("p", wrong, node="n1", phase=phase))
    assert world.repelled(any="label") == {"n1", "n2"}
    assert world.repelled(namespace="other") == set()
    ((kind, name, why),) = world.errors
    assert (kind, name) == ("Pod", "default/p")
    assert "podAntiAffinity" in why
    world.pods.put(a_pod("q", a_term(""), node="n1"))
    assert world.repelled(app="a") == {"n1", "n2", "n3", "n4"}


def test_a_pod_of_the_same_name_is_another() -> None:
    world = a_world()
    world.pods.put(a_pod("p", a_term(), node="n1"))
    world.pods.drop("p", "default")
    again = a_pod("p", a_term(labelSelector={}), node="n3")
    again["metadata"]["uid"] = "another"
    world.pods.put(again)
    assert world.repelled(app="b") == {"n3"}


# The rule, over plain documents.


def selects(selector: Body | None, labels: Body) -> bool:
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions") or []:
        there, operator = each["key"] in labels, each["operator"]
        among = there and labels[each["key"]] in each.get("values", [])
        if not {"Exists": there, "DoesNotExist": not there, "In": among, "NotIn": not among}[operator]:
            return False
    return True


def is_about(term: Body, owner: Body, namespace: str, of_namespace: Body | None, labels: Body) -> bool:
    named, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    if not named and selector is None:
        named = [owner["metadata"]["namespace"]]
    unknown = selector is not None and of_namespace is None
    there = namespace in named or unknown or selects(selector, of_namespace or {})
    return there and selects(term.get("labelSelector"), labels)


def by_the_rule(world: World, namespace: str, labels: Body) -> set[str]:
    nodes = {name: item.document["metadata"]["labels"] for (_, name), item in world.nodes.objects.items()}
    known = world.namespaces.objects.get(("", namespace))
    of_namespace = None if known is None else known.document["metadata"].get("labels") or {}
    found: set[str] = set()
    for item in world.pods.objects.values():
        pod = item.document
        where, affinity = pod["spec"]["nodeName"], pod["spec"].get("affinity") or {}
        if not where or pod["status"]["phase"] in ("Succeeded", "Failed"):
            continue
        for term in (affinity.get("podAntiAffinity") or {}).get(REQUIRED) or []:
            if not is_about(term, pod, namespace, of_namespace, labels):
                continue
            key = term["topologyKey"]
            for name, have in nodes.items():
                if where in nodes:
                    same = key in have and have[key] == nodes[where].get(key)
                else:
                    same = key in have and key != HOST
                if same:
                    found.add(name)
    return found


SOME = st.sampled_from
LABELS = st.dictionaries(SOME(["app", "tier"]), SOME(["a", "b", ""]), max_size=2)
CONDITIONS = st.one_of(
    st.builds(lambda key, operator: {"key": key, "operator": operator}, SOME(["app", "tier"]), SOME(["Exists"])),
    st.builds(lambda key: {"key": key, "operator": "DoesNotExist"}, SOME(["app", "tier"])),
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        SOME(["app", "tier"]),
        SOME(["In", "NotIn"]),
        st.lists(SOME(["a", "b", ""]), min_size=1, max_size=2),
    ),
)
SELECTORS = st.one_of(
    SOME([{}, {"matchLabels": {"app": "a"}}]),
    st.none(),
    st.fixed_dictionaries({}, optional={"matchLabels": LABELS, "matchExpressions": st.lists(CONDITIONS, max_size=2)}),
)
TEAMS = ("t1", "t2")
ASKED = [(team, labels) for team in TEAMS for labels in ({}, {"app": "a"}, {"app": "b", "tier": "a"}, {"tier": ""})]
TERMS = st.fixed_dictionaries(
    {"topologyKey": SOME([HOST, ZONE, RACK]), "labelSelector": SELECTORS},
    optional={"namespaces": st.lists(SOME(TEAMS), max_size=2), "namespaceSelector": SELECTORS},
)
NODE_NAMES = ("n1", "n2", "n3")
PLACES = st.dictionaries(SOME([ZONE, RACK]), SOME(["x", "y"]), max_size=2)
Event = Callable[[World], None]


def node_event(name: str, labels: dict[str, str] | None) -> Event:
    def happen(world: World) -> None:
        if labels is not None:
            world.nodes.put(a_node(name, **labels))
        elif ("", name) in world.nodes.objects:
            world.nodes.drop(name)

    return happen


def namespace_event(name: str, labels: dict[str, str] | None) -> Event:
    def happen(world: World) -> None:
        if labels is not None:
            world.namespaces.put(a_namespace(name, **labels))
        elif ("", name) in world.namespaces.objects:
            world.namespaces.drop(name)

    return happen


def created(name: str, team: str, terms: list[Body], node: str) -> Event:
    def happen(world: World) -> None:
        if (team, name) not in world.pods.objects:
            body = a_pod(name, *terms, node=node, namespace=team, phase="Pending")
            body["metadata"]["uid"] = f"{team}-{name}"
            world.pods.put(body)

    return happen


def changed(name: str, team: str, change: str, node: str) -> Event:
    """Bind a pod, finish or delete it, or report its status again; a bound pod keeps its node."""

    def happen(world: World) -> None:
        if (team, name) not in world.pods.objects:
            return
        if change == "gone":
            world.pods.drop(name, team)
            return
        pod = world.pods.document(name, team)
        pod["spec"]["nodeName"] = pod["spec"]["nodeName"] or node
        pod["status"] = {"phase": change}
        world.pods.put(pod)

    return happen


PODS_NAMED = SOME(["p1", "p2"])
CREATED = st.builds(created, PODS_NAMED, SOME(TEAMS), st.lists(TERMS, min_size=1, max_size=2), SOME(["", *NODE_NAMES]))
CHANGES = SOME(["Running", "Running", "Failed", "Succeeded", "gone"])
CHANGED = st.builds(changed, PODS_NAMED, SOME(TEAMS), CHANGES, SOME([*NODE_NAMES, "elsewhere"]))
EVENTS = st.one_of(
    CREATED,
    CHANGED,
    CHANGED,
    st.builds(node_event, SOME(NODE_NAMES), st.none() | PLACES),
    st.builds(namespace_event, SOME(TEAMS), st.none() | LABELS),
)


@settings(max_examples=300)
@given(st.lists(CREATED, min_size=2, max_size=4), st.lists(EVENTS, min_size=8, max_size=25))
def test_after_every_event_the_answer_is_that_of_the_rule_and_of_an_index_built_again(
    first: list[Event], events: list[Event]
) -> None:
    world = World()
    for name in NODE_NAMES:
        world.nodes.put(a_node(name, zone="x" if name == "n1" else "y", rack="x"))
    for happen in (*first, *events):
        happen(world)
        rebuilt = world.rebuilt()
        for namespace, labels in ASKED:
            expected = by_the_rule(world, namespace, labels)
            assert world.repelled(namespace=namespace, **labels) == expected
            assert world.repelled(rebuilt, namespace=namespace, **labels) == expected
    assert world.errors == []
    for namespace, name in list(world.pods.objects):
        world.pods.drop(name, namespace)
    assert world.index.nodes_for(new_pod()) is World().index.nodes_for(new_pod())


@pytest.mark.anyio
async def test_it_follows_an_api_server(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("n1", zone="x"), a_node("n2", zone="x"), a_node("n3", zone="y"))
    put(server, "pods", a_pod("p", a_term(), node="n1"))
    followed, errors = Followed.of(api), list[tuple[str, str, str]]()
    index = RepellingPods(context_of(followed, errors))
    running = [asyncio.create_task(each.run()) for each in followed.all]
    try:
        await until(lambda: index.nodes_for(new_pod(app="a")) == {"n1", "n2"}, "the pod is known")
        server.do(lambda: server.rules.delete(("pods", "default", "p"), {"gracePeriodSeconds": 0}))
        await until(lambda: not index.nodes_for(new_pod(app="a")), "it is gone")
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert errors == []
