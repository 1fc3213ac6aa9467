"""The required anti-affinity of a pod, as kube-scheduler's plugin InterPodAffinity reads it."""

from __future__ import annotations

from typing import Any

import pytest

from ullage.wire.pod.anti_affinity import EVERYTHING, RepellingTerm, required_anti_affinity

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PATH = f"spec.affinity.podAntiAffinity.{REQUIRED}"
GPU_TEAMS, APP_A = {"matchLabels": {"gpu": "yes"}}, {"matchLabels": {"app": "a"}}


def a_pod(*terms: Any) -> dict[str, Any]:
    anti = {REQUIRED: list(terms), "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    return {"metadata": {"name": "p", "namespace": "own"}, "spec": {"affinity": {"podAntiAffinity": anti}}}


def a_term(**fields: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": APP_A, **fields}


def only(**fields: Any) -> RepellingTerm:
    found = required_anti_affinity(a_pod(a_term(**fields)))
    assert not found.errors
    (term,) = found.terms
    return term


def matches(term: RepellingTerm, namespace: str, labels: dict[str, str] | None = None, **pod: str) -> bool:
    return term.matches(namespace, labels, pod)


def test_a_pod_without_terms_has_none() -> None:
    for spec in ({}, {"affinity": {}}, {"affinity": {"podAntiAffinity": {}}}, {"affinity": {"podAffinity": {}}}):
        assert required_anti_affinity({"spec": spec}).terms == frozenset()
    assert required_anti_affinity(a_pod()).terms == frozenset()


@pytest.mark.parametrize(("selector", "matched"), [(APP_A, [True, False, False]), ({}, [True, True, True])])
def test_an_empty_selector_matches_every_pod(selector: Any, matched: list[bool]) -> None:
    pods: list[dict[str, str]] = [{"app": "a"}, {"app": "b"}, {}]
    assert [matches(only(labelSelector=selector), "own", **each) for each in pods] == matched


def test_no_selector_matches_no_pod() -> None:
    assert required_anti_affinity(a_pod(a_term(labelSelector=None), {"topologyKey": "zone"})).terms == frozenset()


@pytest.mark.parametrize(
    ("fields", "matched"),
    [
        ({}, {"own"}),
        ({"namespaces": []}, {"own"}),
        ({"namespaces": None, "namespaceSelector": None}, {"own"}),
        ({"namespaces": ["b"]}, {"b"}),
        ({"namespaceSelector": {}}, {"own", "b", "gpu", "unknown"}),
        ({"namespaceSelector": GPU_TEAMS}, {"gpu", "unknown"}),
        ({"namespaceSelector": GPU_TEAMS, "namespaces": ["b"]}, {"b", "gpu", "unknown"}),
    ],
)
def test_its_namespaces_are_those_that_it_names_and_those_that_it_selects(fields: Any, matched: set[str]) -> None:
    there: dict[str, dict[str, str] | None] = {"own": {}, "b": {}, "gpu": {"gpu": "yes"}, "unknown": None}
    term = only(**fields)
    assert {name for name, labels in there.items() if matches(term, name, labels, app="a")} == matched
    assert not any(matches(term, name, labels, app="b") for name, labels in there.items())


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "labelSelector"),
        ({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}, ""),
        ({"labelSelector": []}, "labelSelector"),
        ({"labelSelector": {"matchFields": []}}, "labelSelector"),
    ],
)
def test_a_selector_that_cannot_be_read_matches_every_pod_of_its_namespaces(fields: Any, path: str) -> None:
    found = required_anti_affinity(a_pod(a_term(**fields)))
    assert found.terms == {only(labelSelector={})}
    assert len(found.errors) == 1
    assert not path or found.errors[0].field.startswith(f"{PATH}[0].{path}")


@pytest.mark.parametrize("fields", [{"namespaceSelector": 1}, {"namespaces": [""]}, {"namespaces": "own"}])
def test_namespaces_that_cannot_be_read_are_all(fields: Any) -> None:
    found = required_anti_affinity(a_pod(a_term(**fields)))
    assert found.terms == {only(namespaceSelector={})}
    assert found.errors[0].field.startswith(f"{PATH}[0].{next(iter(fields))}")


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("x"),
        {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: {}}}}},
        {"spec": {"affinity": {"podAntiAffinity": []}}},
        {"spec": []},
    ],
)
def test_what_has_another_form_keeps_out_every_pod(pod: Any) -> None:
    found = required_anti_affinity(pod)
    assert found.terms == {EVERYTHING}
    assert len(found.errors) == 1
    assert matches(EVERYTHING, "any")


@pytest.mark.parametrize("key", [None, "", 5])
def test_without_a_domain_that_can_be_read_a_term_is_about_every_node(key: Any) -> None:
    found = required_anti_affinity(a_pod(a_term(topologyKey=key)))
    assert [term.topology_key for term in found.terms] == [""]
    assert found.errors[0].field == f"{PATH}[0].topologyKey"


def test_the_keys_that_the_api_server_merged_into_the_selector_are_not_read_again() -> None:
    merged = {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]}
    term = only(labelSelector=merged, matchLabelKeys=["hash"], mismatchLabelKeys=["other"])
    assert term == only(labelSelector=merged)
    assert matches(term, "own", hash="1")
    assert not matches(term, "own", hash="2")
