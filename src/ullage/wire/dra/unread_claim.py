"""What is known of a ResourceClaim whose devices cannot be read: whose they are, where, and who uses them."""

from __future__ import annotations

from ullage.model.affinity import NODE_NAME, Operator
from ullage.model.device_claim import DeviceClaim, UnreadDevices
from ullage.model.error import InvalidRequest
from ullage.wire.document import Document, mapping, mappings, text
from ullage.wire.dra.claim import read_claim
from ullage.wire.pod.affinity import node_selector


def read_held(found: Document) -> DeviceClaim:
    """Return a claim with its devices alone, of which nothing but their names has to be readable.

    What it asks and on which nodes it can be used is left out: what a claim has counts, whatever else it says.

    Raises:
        InvalidRequest: its devices cannot be read.

    """
    status = mapping(found.get("status"), "status")
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
        status = mapping(found.get("status"), "status")
        listed = [each for _, each in mappings(status.get("reservedFor"), "status.reservedFor")]
    except InvalidRequest:
        return []
    return [(text(each.get("name")), text(each.get("uid"))) for each in listed if each.get("resource") == "pods"]


def _nodes(found: Document) -> frozenset[str]:
    """The nodes that an allocation names in its node selector; none where it names none that can be read.

    Each term has to name some: one that names none is true on any node.
    """
    try:
        told = mapping(mapping(found.get("status"), "status").get("allocation"), "status.allocation")
        terms = node_selector(told.get("nodeSelector"), "status.allocation.nodeSelector").required
    except InvalidRequest:
        return frozenset()
    named = [[each.values for each in term if each.key == NODE_NAME and each.operator is Operator.IN] for term in terms]
    return frozenset(node for term in named for values in term for node in values) if all(named) else frozenset()


def _pools(found: Document) -> frozenset[tuple[str, str]]:
    """The drivers and pools of the devices; none where one of them cannot be read."""
    try:
        told = mapping(mapping(found.get("status"), "status").get("allocation"), "status.allocation")
        devices = mapping(told.get("devices"), "status.allocation.devices")
        results = [each for _, each in mappings(devices.get("results"), "status.allocation.devices.results")]
    except InvalidRequest:
        return frozenset()
    pools = {(text(each.get("driver")), text(each.get("pool"))) for each in results}
    return frozenset(pools) if all(driver for driver, _ in pools) else frozenset()
