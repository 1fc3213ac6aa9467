"""The known parts of a ResourceClaim whose devices cannot be read: its devices, nodes and pods."""

from __future__ import annotations

from ullage.model.affinity import NODE_NAME, Operator
from ullage.model.device_claim import DeviceClaim, UnreadDevices
from ullage.model.error import InvalidRequest
from ullage.wire.document import Document, mapping, mappings, section, text
from ullage.wire.dra.claim import read_claim
from ullage.wire.pod.affinity import node_selector


def read_held(found: Document) -> DeviceClaim:
    """Return a claim with the names of its devices only; nothing else of them has to be readable.

    Its requests and node selector are left out: the devices are held whatever the rest of the claim says.
    """
    status = section(found, "status")
    allocation = status.get("allocation")
    if allocation is not None:
        devices = mapping(allocation, "status.allocation").get("devices")
        allocation = {"devices": devices}
    return read_claim({**found, "spec": {}, "status": {**status, "allocation": allocation}})


def unread_devices(found: Document) -> UnreadDevices:
    """Return which devices an allocation can be of, as far as its node selector, drivers and pools can be read."""
    return UnreadDevices(_nodes(found), _pools(found))


def users_of(found: Document) -> list[tuple[str, str]]:
    """Return the name and the uid of each pod that may use a claim; none where that cannot be read."""
    try:
        status = section(found, "status")
        listed = [each for _, each in mappings(status.get("reservedFor"), "status.reservedFor")]
    except InvalidRequest:
        return []
    return [(text(each.get("name")), text(each.get("uid"))) for each in listed if each.get("resource") == "pods"]


def _nodes(found: Document) -> frozenset[str]:
    """Return the nodes that an allocation names in its node selector; none where it names none that can be read.

    Every term has to name nodes: a term that names none matches any node.
    """
    try:
        allocation = section(found, "status", "allocation")
        terms = node_selector(allocation.get("nodeSelector"), "status.allocation.nodeSelector").required
    except InvalidRequest:
        return frozenset()
    named = [[each.values for each in term if each.key == NODE_NAME and each.operator is Operator.IN] for term in terms]
    return frozenset(node for term in named for values in term for node in values) if all(named) else frozenset()


def _pools(found: Document) -> frozenset[tuple[str, str]]:
    """Return the drivers and pools of the devices; none where one of them cannot be read."""
    try:
        allocation = section(found, "status", "allocation")
        devices = mapping(allocation.get("devices"), "status.allocation.devices")
        results = [each for _, each in mappings(devices.get("results"), "status.allocation.devices.results")]
    except InvalidRequest:
        return frozenset()
    pools = {(text(each.get("driver")), text(each.get("pool"))) for each in results}
    return frozenset(pools) if all(driver for driver, _ in pools) else frozenset()
