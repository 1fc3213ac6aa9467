"""ResourceClaims, DeviceClasses, and the references of pods to their claims."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.device_claim import (
    ClaimAllocation,
    Constraint,
    DeviceAlternative,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
)
from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.resources import MILLI
from ullage.model.slice_device import DeviceId
from ullage.wire.document import Document, mapping, mappings, section, sequence, text, whole
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.affinity import node_selector
from ullage.wire.pod.tolerations import tolerations_of

EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that a scheduler created for the extended resources of a pod."""

FINALIZER = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim: added before it is allocated, removed after it is deallocated."""

_EXACT, _ALL = _MODES = ("ExactCount", "All")


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One claim of a pod, by the name it has in the pod.

    `claim` is the name of the object: "" while it has yet to be created, None if the pod needs none after all. A claim
    that was `made` for the pod has the pod as its owner.
    """

    name: str
    claim: str | None
    made: bool


def pod_claims(pod: Document) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, in its order."""
    status = section(pod, "status")
    created = {
        text(each.get("name")): each.get("resourceClaimName")
        for _, each in mappings(status.get("resourceClaimStatuses"), "status.resourceClaimStatuses")
    }
    found = []
    for _, each in mappings(section(pod, "spec").get("resourceClaims"), "spec.resourceClaims"):
        name, direct = text(each.get("name")), each.get("resourceClaimName")
        if direct is not None:
            found.append(PodClaim(name, text(direct), made=False))
        else:
            claim = None if name in created and created[name] is None else text(created.get(name))
            found.append(PodClaim(name, claim, made=True))
    return tuple(found)


def extended_claim(pod: Document) -> str:
    """Return the name of the claim that was created for the pod's extended resources; "" if there is none."""
    status = section(pod, "status")
    made = mapping(status.get("extendedResourceClaimStatus"), "status.extendedResourceClaimStatus")
    return text(made.get("resourceClaimName"))


def read_device_class(found: Document) -> DeviceClass:
    """Read a DeviceClass."""
    name = text(section(found, "metadata").get("name"))
    spec = section(found, "spec")
    return DeviceClass(name, _selectors(spec, "spec"), text(spec.get("extendedResourceName")))


def read_claim(found: Document) -> DeviceClaim:
    """Read a ResourceClaim."""
    metadata = section(found, "metadata")
    devices = section(found, "spec", "devices")
    status = section(found, "status")
    annotations, labels = (mapping(metadata.get(name), f"metadata.{name}") for name in ("annotations", "labels"))
    owners = (each for _, each in mappings(metadata.get("ownerReferences"), "metadata.ownerReferences"))
    return DeviceClaim(
        uid=text(metadata.get("uid")),
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        requests=tuple(
            _request(each, path) for path, each in mappings(devices.get("requests"), "spec.devices.requests")
        ),
        constraints=tuple(
            _constraint(each, path) for path, each in mappings(devices.get("constraints"), "spec.devices.constraints")
        ),
        allocation=read_allocation(status.get("allocation")),
        reserved_for=tuple(
            text(each.get("uid")) for _, each in mappings(status.get("reservedFor"), "status.reservedFor")
        ),
        owner=next((text(o.get("uid")) for o in owners if o.get("controller") and o.get("kind") == "Pod"), ""),
        deleting=metadata.get("deletionTimestamp") is not None,
        extended=annotations.get(EXTENDED) == "true",
        labels={str(key): text(value) for key, value in labels.items()},
    )


def read_allocation(value: object) -> ClaimAllocation | None:
    """Return the allocation of a claim; None if it is not allocated."""
    if value is None:
        return None
    allocation = mapping(value, "status.allocation")
    devices = mapping(allocation.get("devices"), "status.allocation.devices")
    results = mappings(devices.get("results"), "status.allocation.devices.results")
    return ClaimAllocation(
        tuple(_result(each, path) for path, each in results),
        node_selector(allocation.get("nodeSelector"), "status.allocation.nodeSelector"),
    )


def _result(raw: Document, path: str) -> DeviceResult:
    driver = text(raw.get("driver"))
    consumed = mapping(raw.get("consumedCapacity"), f"{path}.consumedCapacity")
    return DeviceResult(
        text(raw.get("request")),
        DeviceId(driver, text(raw.get("pool")), text(raw.get("device"))),
        raw.get("adminAccess") is True,
        text(raw.get("shareID")),
        consumed={
            name if "/" in name else f"{driver}/{name}": _milli(amount, f"{path}.consumedCapacity.{name}")
            for name, amount in consumed.items()
        },
    )


def _request(raw: Document, path: str) -> DeviceRequest:
    name = text(raw.get("name"))
    exactly, several = raw.get("exactly"), raw.get("firstAvailable")
    if exactly is not None:
        return DeviceRequest(name, (_wanted(name, mapping(exactly, f"{path}.exactly"), f"{path}.exactly"),))
    if several is None:
        raise invalid(path, name, "a request has exactly, or firstAvailable; other forms are not supported")
    return DeviceRequest(
        name,
        tuple(
            _wanted(f"{name}/{text(each.get('name'))}", each, here)
            for here, each in mappings(several, f"{path}.firstAvailable")
        ),
    )


def _wanted(name: str, raw: Document, path: str) -> DeviceAlternative:
    mode = raw.get("allocationMode") or _EXACT
    if mode not in _MODES:
        raise invalid(f"{path}.allocationMode", mode, f"{' and '.join(_MODES)} are known")
    if raw.get("derivedAttributes"):
        raise invalid(f"{path}.derivedAttributes", "...", "derived attributes are not supported; leave it out")
    capacity = mapping(mapping(raw.get("capacity"), f"{path}.capacity").get("requests"), f"{path}.capacity.requests")
    return DeviceAlternative(
        name,
        text(raw.get("deviceClassName")),
        _selectors(raw, path),
        None if mode == _ALL else whole(raw.get("count"), f"{path}.count", MAX_INT32) or 1,
        admin=raw.get("adminAccess") is True,
        tolerations=tolerations_of(raw, f"{path}.tolerations"),
        capacity={str(key): _milli(amount, f"{path}.capacity.requests.{key}") for key, amount in capacity.items()},
    )


def _selectors(raw: Document, path: str) -> tuple[str, ...]:
    found = []
    for here, each in mappings(raw.get("selectors"), f"{path}.selectors"):
        expression = mapping(each.get("cel"), f"{here}.cel").get("expression")
        if not isinstance(expression, str):
            raise invalid(
                f"{here}.cel.expression", expression, "an expression is needed; no other selector is supported"
            )
        found.append(expression)
    return tuple(found)


def _constraint(raw: Document, path: str) -> Constraint:
    requests = tuple(text(each) for each in sequence(raw.get("requests"), f"{path}.requests"))
    match, distinct = text(raw.get("matchAttribute")), text(raw.get("distinctAttribute"))
    if bool(match) == bool(distinct):
        raise invalid(path, match, "either matchAttribute or distinctAttribute is needed; no other is supported")
    return Constraint(match or distinct, requests, bool(distinct))


def _milli(value: object, path: str) -> int:
    return parse_quantity(value, path, units=MILLI, maximum=MAX_INT64 * MILLI)
