"""Reviews of an API server, and the responses with patches."""

import base64
import copy
import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.kubernetes.samples import sample
from tests.wire.topology.hostile import shaped
from ullage.model.error import InvalidRequest
from ullage.wire.admission import read_review
from ullage.wire.json_patch import JsonPatch, pointer

REQUEST = {
    "uid": "r-1",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "namespace": "team",
    "operation": "CREATE",
    "object": {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}},
    "oldObject": None,
    "dryRun": False,
}


def review(**keys):
    request = {**REQUEST, **keys}
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


def applied(document, operations):
    """A slow RFC 6902 for `add` and `replace`."""
    document = copy.deepcopy(document)
    for operation in operations:
        *above, last = [step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]]
        inside = document
        for step in above:
            inside = inside[int(step)] if isinstance(inside, list) else inside[step]
        if isinstance(inside, list):
            if last == "-":
                inside.append(operation.value)
            else:
                inside[int(last)] = operation.value
        else:
            assert (last in inside) == (operation.op == "replace")
            inside[last] = operation.value
    return document


# --- the envelope ---


def test_requests_of_pods():
    found = read_review(review())
    assert (found.uid, found.namespace, found.operation, found.dry_run) == ("r-1", "team", "CREATE", False)
    assert found.creates_pod
    assert found.pod["metadata"] == {"generateName": "p-", "namespace": "team"}
    assert read_review(review(dryRun=True)).dry_run
    for keys in ({"operation": "UPDATE"}, {"subResource": "binding"}, {"kind": {"group": "x", "kind": "Pod"}}):
        assert not read_review(review(**keys)).creates_pod


def test_a_claim_with_a_deletion_time_is_being_deleted():
    with pytest.raises(InvalidRequest, match=r"request\.object"):
        read_review(review(object=None)).pod  # noqa: B018 - it raises
    with pytest.raises(InvalidRequest, match=r"request\.object\.metadata"):
        read_review(review(object={"metadata": 3})).pod  # noqa: B018 - it raises
    assert read_review(review(object={"metadata": None})).pod == {"metadata": {"namespace": "team"}}


def test_an_object_is_allowed_without_changes():
    assert json.loads(read_review(review()).allow()) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "r-1", "allowed": True},
    }


def test_an_object_is_allowed_with_changes_and_warnings():
    found = read_review(review())
    patch = JsonPatch(found.object)
    patch.put("spec", "schedulerName", value="ullage")
    response = json.loads(found.allow(patch.operations, ["be\nwarned"]))["response"]
    assert response.pop("patchType") == "JSONPatch"
    assert json.loads(base64.b64decode(response.pop("patch"))) == [
        {"op": "add", "path": "/spec/schedulerName", "value": "ullage"}
    ]
    assert response == {"uid": "r-1", "allowed": True, "warnings": ["be warned"]}


def test_an_object_is_denied_with_a_message():
    response = json.loads(read_review(review()).deny("nodeName is set", status=400))["response"]
    assert response == {"uid": "r-1", "allowed": False, "status": {"message": "nodeName is set", "code": 400}}


def test_warnings_are_cut_to_the_length_that_is_shown():
    shown = json.loads(read_review(review()).allow((), ["x" * 1000] * 100 + [" "]))["response"]["warnings"]
    assert shown == ["x" * 256] * 16


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        *((b"", "body"), (b"[]", "body"), (b"{", "body"), (b"[" * 200_000, "body"), (b"\xff", "body")),
        *((review(uid=""), "request.uid"), (review(uid=3), "body"), (review(object=[]), "body")),
        (review().replace(b"AdmissionReview", b"Other"), "kind"),
        (review().replace(b"io/v1", b"io/v1beta1"), "apiVersion"),
    ],
)
def test_documents_that_are_not_reviews_are_refused(raw, field):
    with pytest.raises(InvalidRequest) as caught:
        read_review(raw)
    assert caught.value.field == field


def test_a_review_is_bounded():
    assert read_review(review(), most=len(review())).uid == "r-1"
    with pytest.raises(InvalidRequest, match="at most"):
        read_review(review(), most=len(review()) - 1)


def test_a_real_review_is_answered():
    found = read_review(sample("review"))
    assert (found.creates_pod, found.dry_run, found.pod["metadata"]["name"]) == (True, False, "wtest")
    response = json.loads(found.allow())["response"]
    assert response == {"uid": "1f54783b-a47d-4563-8227-1d9ddd41313c", "allowed": True}


# --- patches ---


def test_a_pointer_escapes():
    assert pointer("metadata", "annotations", "ullage.io/a~b") == "/metadata/annotations/ullage.io~1a~0b"


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {}}, {"annotations": {"x": "1"}}])
def test_a_missing_mapping_is_added_before_its_keys(metadata):
    document = {"metadata": metadata}
    patch = JsonPatch(document)
    patch.put("metadata", "annotations", "ullage.io/a", value="1")
    patch.put("metadata", "annotations", "ullage.io/b", value="2")
    made = {} if metadata.get("annotations") is not None else {"annotations"}
    assert {step.path.rsplit("/", 1)[1] for step in patch.operations} == {*made, "ullage.io~1a", "ullage.io~1b"}
    after = applied(document, patch.operations)
    assert after["metadata"]["annotations"] == {
        **(metadata.get("annotations") or {}),
        "ullage.io/a": "1",
        "ullage.io/b": "2",
    }
    assert after == patch.document
    again = JsonPatch(after)
    again.put("metadata", "annotations", "ullage.io/a", value="1")
    assert again.operations == []


def test_a_patch_changes_and_extends_lists():
    document = {"spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": "A"}]}]}}
    patch = JsonPatch(document)
    for position in (0, 1, 1):
        patch.append("spec", "containers", position, "env", value={"name": "B"})
    patch.put("spec", "containers", 0, "name", value="e")
    assert [step.path for step in patch.operations] == [
        *("/spec/containers/0/env", "/spec/containers/1/env/-", "/spec/containers/0/name"),
    ]
    assert applied(document, patch.operations) == patch.document
    assert document["spec"]["containers"][0] == {"name": "c"}


@pytest.mark.parametrize(
    "path", [("spec", "containers", 5, "name"), ("spec", "text", "x"), ("spec", "containers", "x")]
)
def test_a_path_through_what_is_no_container_is_refused(path):
    with pytest.raises(InvalidRequest, match="/spec"):
        JsonPatch({"spec": {"text": "t", "containers": [{}]}}).put(*path, value=1)
    with pytest.raises(InvalidRequest, match="/spec/text"):
        JsonPatch({"spec": {"text": "t"}}).append("spec", "text", value=1)


_STEPS = st.sampled_from(["a", "b/c", "d~e", "~1", ""])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_STEPS, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(_STEPS, _VALUES, max_size=3),
    st.lists(
        st.tuples(st.lists(_STEPS | st.integers(0, 1), min_size=1, max_size=4), _VALUES, st.booleans()), max_size=6
    ),
)
def test_a_patch_makes_its_changes_and_a_second_one_makes_none(document, changes):
    before = copy.deepcopy(document)
    patch, done = JsonPatch(document), []
    for path, value, grows in changes:
        so_far = list(patch.operations)
        try:
            (patch.append if grows else patch.put)(*path, value=value)
        except InvalidRequest:
            assert patch.operations == so_far, "nothing is half done"
            continue
        done.append((path, value, grows))
    assert document == before
    assert applied(document, patch.operations) == patch.document
    if len(done) == 1:
        again = JsonPatch(patch.document)
        path, value, grows = done[0]
        (again.append if grows else again.put)(*path, value=value)
        assert again.operations == []


@given(shaped({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": REQUEST}, REQUEST))
def test_any_review_is_read_or_refused(document):
    with suppress(InvalidRequest):
        found = read_review(msgspec.json.encode(document))
        found.allow(warnings=[str(found.pod)])
