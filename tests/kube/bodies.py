"""Objects as they are sent."""

from typing import Any

from ullage.kube.client.kinds import Kind
from ullage.kube.client.objects import Object


def pod(name: str = "", *, generate: str = "", node: str = "", **metadata: Any) -> dict[str, Any]:
    named = {"generateName": generate} if generate else {"name": name}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "image"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": named | metadata, "spec": spec}


def node(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name} | metadata}


def binding(name: str, uuid: str = "GPU-1") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"uuid": uuid, "appName": "app"}}


def lease(name: str, holder: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


def budget(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}


def definition(kind: Kind[Object]) -> dict[str, Any]:
    """A CustomResourceDefinition that takes any spec."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name},
            "versions": [version],
        },
    }
