"""The status of an allocated ResourceClaim, as the scheduler writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ullage.model.affinity import Expression
from ullage.model.slice_device import SliceDevice
from ullage.wire.document import Document, mapping, mappings, section, sequence, text
from ullage.wire.kubernetes_quantity import format_milli
from ullage.wire.selector import write_expression

Body = dict[str, Any]

Pick = tuple[str, SliceDevice, bool, Mapping[str, int]]
"""The name of a request, its device, whether it is for an administrator, and the consumed capacities."""


def allocation_body(
    claim: Document,
    classes: Mapping[str, Document],
    picks: Sequence[Pick],
    node: str,
    *,
    share_id: Callable[[], str],
    now: str,
) -> Body:
    """Return `status.allocation` of a claim whose requests were given these devices on a node.

    `classes` are DeviceClasses by name; their configuration comes before the claim's. `now` is an RFC 3339 time, which
    is always written. kube-scheduler adds a time when it adds a reservation to a claim without one, and the API server
    would take that for another allocation.
    """
    asked = dict(_requests(claim))
    results = [_result(asked.get(pick[0], {}), pick, share_id) for pick in picks]
    served = list(dict.fromkeys(name for name, *_ in picks))
    config = [*_of_classes(asked, classes, served), *_of_claim(claim, served)]
    devices = [device for _, device, _, _ in picks]
    found: Body = {"devices": {"results": results, **({"config": config} if config else {})}}
    selector = _nodes(devices, node)
    if selector is not None:
        found["nodeSelector"] = selector
    return found | {"allocationTimestamp": now}


def reservation(name: str, uid: str) -> Body:
    """Return an entry of `status.reservedFor` for a pod."""
    return {"resource": "pods", "name": name, "uid": uid}


def _requests(claim: Document) -> Iterator[tuple[str, Document]]:
    """Yield the requests of a claim, by the names that results state."""
    devices = section(claim, "spec", "devices")
    for path, request in mappings(devices.get("requests"), "spec.devices.requests"):
        name = text(request.get("name"))
        if request.get("exactly") is not None:
            yield name, mapping(request["exactly"], path)
        for _, each in mappings(request.get("firstAvailable"), path):
            yield f"{name}/{text(each.get('name'))}", each


def _result(asked: Document, pick: Pick, share_id: Callable[[], str]) -> Body:
    name, device, admin, consumed = pick
    found: Body = {"request": name, "driver": device.driver, "pool": device.pool, "device": device.name}
    if admin:
        found["adminAccess"] = True
    if asked.get("tolerations"):
        found["tolerations"] = asked["tolerations"]
    if device.shareable and not admin:
        found["shareID"] = share_id()
        found["consumedCapacity"] = {key: format_milli(amount) for key, amount in consumed.items()}
    if device.binding_conditions:
        found["bindingConditions"] = list(device.binding_conditions)
    if device.failure_conditions:
        found["bindingFailureConditions"] = list(device.failure_conditions)
    return found


def _of_classes(
    asked: Mapping[str, Document], classes: Mapping[str, Document], served: Iterable[str]
) -> Iterator[Body]:
    for name in served:
        found = classes.get(text(asked.get(name, {}).get("deviceClassName")), {})
        for _, each in mappings(section(found, "spec").get("config"), "spec.config"):
            yield {"source": "FromClass", "requests": [name], **each}


def _of_claim(claim: Document, served: Sequence[str]) -> Iterator[Body]:
    """Yield the claim's own configuration, without that of alternatives that were not chosen."""
    devices = section(claim, "spec", "devices")
    for path, each in mappings(devices.get("config"), "spec.devices.config"):
        named = [text(name) for name in sequence(each.get("requests"), f"{path}.requests")]
        if not named or any(name in named or name.partition("/")[0] in named for name in served):
            yield {"source": "FromClaim", **each}


def _nodes(devices: Sequence[SliceDevice], node: str) -> Body | None:
    """Return the nodes on which these devices can be used together; None for all. A device of one node binds to it."""
    if any(device.node or device.binds_to_node for device in devices):
        only = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"nodeSelectorTerms": [{"matchFields": [only]}]}
    reach = dict.fromkeys(device.nodes for device in devices if device.nodes.required)
    if not reach:
        return None
    terms = [expression for nodes in reach for expression in nodes.required[0]]  # selectors of slices have one term
    return {"nodeSelectorTerms": [_term(dict.fromkeys(terms))]}


def _term(expressions: Iterable[Expression]) -> Body:
    found: dict[str, list[Body]] = {}
    for each in expressions:
        kind = "matchFields" if each.key == "metadata.name" else "matchExpressions"
        found.setdefault(kind, []).append(write_expression(each))
    return dict(found)
