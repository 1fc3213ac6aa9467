"""Pods for tests, and their requests."""

import pytest

from ullage.model.error import InvalidAnnotation
from ullage.wire.pod import compose_request

GI = 2**30
DOMAINS = pytest.mark.parametrize("domain", ["ullage.io", "tensor-fusion.ai"])


def pod(domain="ullage.io", *, spec=None, workload="serve", labels=None, metadata=None, **keys):
    """A pod whose annotations are `keys`, with underscores for dashes."""
    names = {f"{domain}/workload": workload} if workload else {}
    facts = {
        "name": "serve-0",
        "namespace": "team",
        "uid": "u-1",
        "labels": {**names, **(labels or {})},
        "annotations": {f"{domain}/{key.replace('_', '-')}": value for key, value in keys.items()},
    }
    return {"kind": "Pod", "metadata": {**facts, **(metadata or {})}, "spec": spec or {}}


def asked_by(**keys):
    return compose_request(pod(**keys)).requirement


def refusal(**keys):
    """The message of the annotation error of a pod."""
    with pytest.raises(InvalidAnnotation) as caught:
        compose_request(pod(**keys))
    assert caught.value.code == "invalid-annotation"
    assert caught.value.field in caught.value.message
    assert caught.value.field.startswith("ullage.io/")
    return caught.value.message


def containers(*resources, kind="containers", policy=None):
    extra = {"restartPolicy": policy} if policy else {}
    return {kind: [{"name": f"c{number}", "resources": given, **extra} for number, given in enumerate(resources)]}


def needs(cpu=None, memory=None, kind="requests"):
    return {kind: {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}}
