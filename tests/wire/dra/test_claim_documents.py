"""ResourceClaims, DeviceClasses and the references of pods to their claims."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from tests.wire.topology.hostile import anything, shaped

from ullage.model.affinity import Expression, NodeAffinity, Operator
from ullage.model.device_claim import Constraint, DeviceAlternative, DeviceClass, DeviceRequest, DeviceResult
from ullage.model.error import InvalidRequest
from ullage.model.slice_device import DeviceId, SliceDevice
from ullage.model.taint import Toleration
from ullage.wire.dra.allocation import allocation_body
from ullage.wire.dra.claim import PodClaim, extended_claim, pod_claims, read_claim, read_device_class
from ullage.wire.dra.conditions import Readiness, readiness

CLAIM = {
    "metadata": {
        "name": "c",
        "namespace": "ns",
        "uid": "u",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "allocationMode": "ExactCount",
                        "count": 2,
                        "adminAccess": True,
                        "selectors": [{"cel": {"expression": "true"}}],
                        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                        "capacity": {"requests": {"memory": "1500m"}},
                    },
                },
                {
                    "name": "s",
                    "firstAvailable": [
                        {"name": "all", "deviceClassName": "big", "allocationMode": "All"},
                        {"name": "one", "deviceClassName": "small"},
                    ],
                },
            ],
            "constraints": [
                {"requests": ["r", "s/one"], "matchAttribute": "d/a"},
                {"distinctAttribute": "d/b"},
            ],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": "d", "pool": "p", "device": "x", "adminAccess": True},
                    {
                        "request": "s/one",
                        "driver": "d",
                        "pool": "p",
                        "device": "y",
                        "shareID": "1",
                        "consumedCapacity": {"memory": "2", "other.com/n": "3"},
                    },
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
            },
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p-uid"}],
    },
}


def test_a_claim_with_everything():
    found = read_claim(CLAIM)
    tolerations = (Toleration("k", "Exists", "", "NoSchedule"),)
    assert found.requests == (
        DeviceRequest("r", (DeviceAlternative("r", "gpu", ("true",), 2, True, tolerations, {"memory": 1500}),)),
        DeviceRequest("s", (DeviceAlternative("s/all", "big", count=None), DeviceAlternative("s/one", "small"))),
    )
    assert found.constraints == (Constraint("d/a", ("r", "s/one")), Constraint("d/b", (), True))
    assert (found.uid, found.namespace, found.name, found.owner) == ("u", "ns", "c", "p-uid")
    assert found.extended
    assert not found.deleting
    assert found.reserved_for == ("p-uid",)
    assert found.allocation is not None
    assert found.allocation.nodes == NodeAffinity(((Expression("metadata.name", Operator.IN, ("n",)),),))
    assert found.allocation.results == (
        DeviceResult("r", DeviceId("d", "p", "x"), admin=True),
        DeviceResult("s/one", DeviceId("d", "p", "y"), share="1", consumed={"d/memory": 2000, "other.com/n": 3000}),
    )


def test_a_claim_without_requests_or_allocation():
    found = read_claim({"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert (found.requests, found.allocation, found.owner, found.deleting) == ((), None, "", True)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"name": "r"}, "requests[0]"),
        ({"name": "r", "exactly": {"allocationMode": "Half"}}, "allocationMode"),
        ({"name": "r", "exactly": {"selectors": [{"other": {}}]}}, "expression"),
        ({"name": "r", "exactly": {"derivedAttributes": [{"name": "a/b"}]}}, "derivedAttributes"),
        ({"name": "r", "exactly": {"capacity": {"requests": {"memory": "much"}}}}, "memory"),
        ({"name": "r", "exactly": {"count": -1}}, "count"),
    ],
)
def test_a_request_of_an_unknown_form_is_refused(request_, field):
    with pytest.raises(InvalidRequest) as error:
        read_claim({"spec": {"devices": {"requests": [request_]}}})
    assert field in str(error.value.field)


def test_an_unknown_constraint_is_refused():
    with pytest.raises(InvalidRequest):
        read_claim({"spec": {"devices": {"constraints": [{"requests": ["r"], "matchExpression": "x"}]}}})


@given(shaped(CLAIM, ["spec", "status", "devices", "requests", "results", "exactly"]) | anything("spec"))
def test_any_document_is_a_claim_or_refused(document):
    if isinstance(document, dict):
        with suppress(InvalidRequest):
            read_claim(document)


def test_a_device_class_is_read():
    spec = {"selectors": [{"cel": {"expression": "a"}}, {"cel": {"expression": "b"}}], "extendedResourceName": "x/y"}
    assert read_device_class({"metadata": {"name": "gpu"}, "spec": spec}) == DeviceClass("gpu", ("a", "b"), "x/y")


def test_claims_of_a_pod_are_named_created_pending_or_not_needed():
    spec = [
        {"name": "direct", "resourceClaimName": "one"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "later", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    status = {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "none"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended"},
    }
    pod = {"spec": {"resourceClaims": spec}, "status": status}
    assert pod_claims(pod) == (
        PodClaim("direct", "one", made=False),
        PodClaim("made", "p-made-x", made=True),
        PodClaim("later", "", made=True),
        PodClaim("none", None, made=True),
    )
    assert extended_claim(pod) == "p-extended"
    assert pod_claims({}) == ()
    assert extended_claim({}) == ""


# --- what is written ---


def written(*picks, claim=CLAIM, classes=None):
    ids = iter("abc")
    return allocation_body(claim, classes or {}, picks, "n", share_id=lambda: next(ids), now="NOW")


def only(node):
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}


def test_written_text_is_read_again():
    shared = SliceDevice("d", "p", "y", "n", shareable=True)
    body = written(("r", SliceDevice("d", "p", "x", "n"), True, {}), ("s/one", shared, False, {"d/memory": 2500}))
    assert body["devices"]["results"] == [
        {
            "request": "r",
            "driver": "d",
            "pool": "p",
            "device": "x",
            "adminAccess": True,
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        },
        {
            "request": "s/one",
            "driver": "d",
            "pool": "p",
            "device": "y",
            "shareID": "a",
            "consumedCapacity": {"d/memory": "2500m"},
        },
    ]
    assert body["nodeSelector"] == only("n")
    found = read_claim({"status": {"allocation": body}}).allocation
    assert found.results == (
        DeviceResult("r", DeviceId("d", "p", "x"), admin=True),
        DeviceResult("s/one", DeviceId("d", "p", "y"), share="a", consumed={"d/memory": 2500}),
    )


def test_devices_of_no_single_node_do_not_bind_to_one():
    anywhere = SliceDevice("d", "p", "x")
    assert "nodeSelector" not in written(("r", anywhere, False, {}))
    rack = NodeAffinity(((Expression("rack", Operator.IN, ("1", "2")), Expression("fast", Operator.EXISTS)),))
    some = SliceDevice("d", "p", "y", nodes=rack)
    terms = written(("r", anywhere, False, {}), ("s/one", some, False, {}))["nodeSelector"]["nodeSelectorTerms"]
    expressions = [{"key": "rack", "operator": "In", "values": ["1", "2"]}, {"key": "fast", "operator": "Exists"}]
    assert terms == [{"matchExpressions": expressions}]
    bound = SliceDevice("d", "p", "z", binds_to_node=True)
    assert written(("r", anywhere, False, {}), ("s/one", bound, False, {}))["nodeSelector"] == only("n")


def test_binding_conditions_are_written_and_the_time_always():
    waits = SliceDevice("d", "p", "x", "n", binding_conditions=("ready",), failure_conditions=("broken",))
    body = written(("r", waits, False, {}))
    assert body["allocationTimestamp"] == "NOW"
    assert body["devices"]["results"][0]["bindingConditions"] == ["ready"]
    assert body["devices"]["results"][0]["bindingFailureConditions"] == ["broken"]
    assert written(("r", SliceDevice("d", "p", "x", "n"), False, {}))["allocationTimestamp"] == "NOW"


# --- conditions ---

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def state(*conditions, since=NOW, share=""):
    result = {"driver": "d", "pool": "p", "device": "x", "bindingConditions": ["a", "b"]}
    device = {"driver": "d", "pool": "p", "device": "x"} | ({"shareID": share} if share else {})
    reported = [{"type": kind, "status": status} for kind, status in conditions]
    allocation = {
        "devices": {"results": [{**result, "bindingFailureConditions": ["broken"]}]},
        "allocationTimestamp": since.isoformat().replace("+00:00", "Z"),
    }
    return {"status": {"allocation": allocation, "devices": [{**device, "conditions": reported}]}}


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        ({}, Readiness.READY),
        (state(("a", "True"), ("b", "True")), Readiness.READY),
        (state(("a", "True"), ("b", "False")), Readiness.WAITING),
        (state(), Readiness.WAITING),
        (state(("a", "True"), ("b", "True"), share="1"), Readiness.WAITING),
        (state(("a", "True"), ("b", "True"), ("broken", "True")), Readiness.FAILED),
        (state(("a", "True"), since=NOW - timedelta(minutes=10)), Readiness.WAITING),
        (state(("a", "True"), since=NOW - timedelta(minutes=10, seconds=1)), Readiness.FAILED),
        (state(("a", "True"), ("b", "True"), since=NOW - timedelta(hours=1)), Readiness.READY),
    ],
)
def test_the_readiness_of_devices(claim, found):
    assert readiness([claim], NOW) is found
    assert readiness([{}, claim], NOW) is found
