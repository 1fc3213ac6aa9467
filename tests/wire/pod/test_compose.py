"""Pods as documents: minimal ones, and documents that are not pods."""

import sys

import pytest

from tests.wire.pod.pods import containers, needs, pod
from ullage.model.claim import Claim, Request
from ullage.model.error import InvalidRequest
from ullage.wire.pod import check_scheduler, compose_request, parse_pod


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (containers(needs("much")), r"spec\.containers\[0\]\.resources\.requests\.cpu"),
        (containers(needs(memory="-1Gi")), r"spec\.containers\[0\]\.resources\.requests\.memory"),
        (containers("many"), r"spec\.containers\[0\]\.resources"),
        ({"containers": "c1"}, r"spec\.containers"),
        ({"containers": ["c1"]}, r"spec\.containers\[0\]"),
        ({"overhead": []}, r"spec\.overhead"),
        ({"affinity": "near"}, r"spec\.affinity"),
    ],
)
def test_errors_in_the_pod_name_their_path(spec, path):
    with pytest.raises(InvalidRequest, match=path) as caught:
        compose_request(pod(spec=spec))
    assert caught.value.code == "invalid-request"


@pytest.mark.parametrize("document", [{}, {"metadata": None, "spec": None}, {"metadata": {"labels": None}}])
def test_a_bare_document_requests_one_card_without_an_owner(document):
    request = compose_request(document)
    assert (request.uid, request.claim, request.requirement.gpu_count) == ("", Claim(), 1)


@pytest.mark.parametrize("document", [{"metadata": []}, {"spec": "x"}, {"metadata": {"annotations": ["a"]}}])
def test_documents_that_are_not_pods_are_refused(document):
    with pytest.raises(InvalidRequest, match="a mapping is needed"):
        compose_request(document)


def test_a_pod_that_was_created_is_a_request():
    composed = compose_request(pod(tflops_request="1", spec={"nodeSelector": {"zone": "a"}}))
    assert composed.request == Request("u-1", composed.requirement, composed.claim)
    with pytest.raises(InvalidRequest, match=r"metadata\.uid"):
        _ = compose_request({}).request


# --- bodies ---


def test_a_body_is_json():
    assert parse_pod(b' {"kind": "Pod", "metadata": null}') == {"kind": "Pod", "metadata": None}
    assert parse_pod('{"spec": {}}') == {"spec": {}}


NO_PODS = ["", "  ", "{", '{"kind": "Pod"', b"\xff\xfe", "[]", '"pod"', "7", '{"kind": "Deployment"}']


@pytest.mark.parametrize("body", NO_PODS)
def test_other_bodies_are_refused(body):
    with pytest.raises(InvalidRequest, match=r"^(body|kind): "):
        parse_pod(body)


LAUGHS = "kind: Pod\na: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in zip("abcdef", "bcdefg", strict=True)
)


def test_yaml_is_read_as_the_same_pod():
    assert parse_pod("kind: Pod\nmetadata:\n  name: serve-0\n") == {"kind": "Pod", "metadata": {"name": "serve-0"}}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("kind: [", "it cannot be read"),
        ("kind: !!python/object/apply:os.getpid []", "it cannot be read"),
        (LAUGHS, "values, aliases included"),
        ("&a\nkind: Pod\nspec: *a\n", "values, aliases included"),
        ("kind: " + "[" * 100_000, "nested more than"),
        ("- " * 100_000, "nested more than"),
        ("- a\n" * 100_000, "more than 10000 values; send JSON"),
    ],
    ids=["broken", "a tag", "aliases", "itself", "brackets", "dashes", "long"],
)
def test_yaml_that_is_not_a_plain_document_is_refused(body, said):
    with pytest.raises(InvalidRequest, match=said):
        parse_pod(body)


def test_without_pyyaml_only_json_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidRequest, match=r"ullage\[server\] brings; send JSON"):
        parse_pod("kind: Pod")
    assert parse_pod('{"kind": "Pod"}') == {"kind": "Pod"}


def test_json_that_is_nested_deeply_is_refused():
    with pytest.raises(InvalidRequest, match="nested more than"):
        parse_pod("[" * 100_000)


@pytest.mark.parametrize("name", [None, "", "ullage", "other"])
def test_a_pod_of_no_other_scheduler(name):
    check_scheduler({"spec": {"schedulerName": name}}, ("ullage", "other"))
    check_scheduler({}, ("ullage",))


@pytest.mark.parametrize("name", ["default-scheduler", "Ullage", 7])
def test_a_pod_of_another_scheduler(name):
    with pytest.raises(InvalidRequest, match=r"spec\.schedulerName.* write ullage"):
        check_scheduler({"spec": {"schedulerName": name}}, ("ullage",))
