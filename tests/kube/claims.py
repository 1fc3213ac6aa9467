"""Slices, classes, claims and pods that claim, for tests; and what became of them."""

from typing import Any

from tests.kube.api_server import ApiServer
from tests.kube.test_front import put

DRIVER = "gpu.nvidia.com"
GATE = "ullage.io/claims"
MARK = "ullage.io/allocated-for"
FINALIZER = "resource.kubernetes.io/delete-protection"


def a_card(node: str, number: int, zone: int = 0, **more: Any) -> dict[str, Any]:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{node}-{number}"},
        "productName": {"string": "NVIDIA A100-SXM4-80GB"},
        "index": {"int": number},
        "resource.kubernetes.io/numaNode": {"int": zone},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
    }
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, **more}


def a_slice(node: str, *devices: dict[str, Any], driver: str = DRIVER, generation: int = 1) -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}
    return {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}


def cards(node: str, count: int, zones: int = 1) -> dict[str, Any]:
    return a_slice(node, *(a_card(node, number, number * zones // count) for number in range(count)))


def a_class(name: str = "gpu", expression: str = f"device.driver == '{DRIVER}'", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}], **spec}}


def wants(name: str = "gpu", count: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}}


def a_claim(name: str, *requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests or [wants()]), **devices}}}


def a_node(name: str, **amounts: str) -> dict[str, Any]:
    found = {"cpu": "64", "memory": "256Gi", "pods": "110"} | amounts
    status = {"allocatable": found, "capacity": found, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "metadata": {"name": name},
        "spec": {"taints": [{"key": "seen", "effect": "PreferNoSchedule"}]},
        "status": status,
    }


def claiming(name: str, *claims: str, gates: tuple[str, ...] = (GATE,), **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": f"c{n}"} for n in range(len(claims))]}}
    asked = {
        "schedulerName": "ullage",
        "schedulingGates": [{"name": gate} for gate in gates],
        "resourceClaims": [{"name": f"c{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)],
        "containers": [container],
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": asked | spec, "status": {"phase": "Pending"}}


def get(server: ApiServer, plural: str, name: str) -> dict[str, Any]:
    return server.do(lambda: server.rules.get((plural, "default", name)))


def allocated(server: ApiServer, claim: str) -> list[str]:
    """The devices that a claim was allocated."""
    found = get(server, "resourceclaims", claim).get("status", {}).get("allocation") or {}
    return [f"{each['pool']}/{each['device']}" for each in found.get("devices", {}).get("results", ())]


def users(server: ApiServer, claim: str) -> list[str]:
    found = get(server, "resourceclaims", claim).get("status", {})
    return [user["name"] for user in found.get("reservedFor") or ()]


def gated(server: ApiServer, pod: str) -> bool:
    return bool(get(server, "pods", pod)["spec"].get("schedulingGates"))


def edit(server: ApiServer, plural: str, name: str, part: str = "status", **changes: Any) -> None:
    """Put these fields into the status, or the spec, of an object."""
    key = (plural, "" if plural == "nodes" else "default", name)

    def changed(item: dict[str, Any]) -> dict[str, Any]:
        return {**item, part: {**item.get(part, {}), **changes}}

    server.do(lambda: server.rules.change(key, changed, "status" if part == "status" else ""))


def delete(server: ApiServer, pod: str) -> None:
    server.do(lambda: server.rules.delete(("pods", "default", pod), {}))


def furnish(server: ApiServer, **counts: int) -> None:
    """Nodes by name with that many cards, and the class of cards."""
    put(server, "deviceclasses", a_class())
    for name, count in counts.items():
        put(server, "nodes", a_node(name))
        put(server, "resourceslices", cards(name, count))
