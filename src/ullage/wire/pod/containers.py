"""What the containers of a pod need, counted as Kubernetes does."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.wire.document import Document, mapping, mappings
from ullage.wire.kubernetes_quantity import parse_quantity


def pod_amount(spec: Document, resource: str, units: int) -> int:
    """What the pod as a whole requests, else its containers, else its own limit; with the overhead."""
    own = mapping(spec.get("resources"), "spec.resources")
    overhead = _amount_in(spec.get("overhead"), "spec.overhead", resource, units) or 0
    stated = _amount_in(own.get("requests"), "spec.resources.requests", resource, units)
    if stated is None:
        stated = containers_amount(spec, resource, units, "requests", "limits")
    if not stated:
        stated = _amount_in(own.get("limits"), "spec.resources.limits", resource, units) or 0
    return stated + overhead


def containers_amount(spec: Document, resource: str, units: int, *kinds: str) -> int:
    """What the containers need at their peak; the first of `kinds` that names the resource counts.

    Sidecars (init containers that always restart) stay: they count beside the containers, and beside
    every init container that starts after them.
    """
    sidecars = peak = 0
    for path, container in mappings(spec.get("initContainers"), "spec.initContainers"):
        amount = _container_amount(container, path, resource, units, kinds)
        if container.get("restartPolicy") == "Always":
            sidecars += amount
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + amount)
    together = sidecars + sum(
        _container_amount(container, path, resource, units, kinds)
        for path, container in mappings(spec.get("containers"), "spec.containers")
    )
    return max(peak, together)


def _container_amount(container: Document, path: str, resource: str, units: int, kinds: Iterable[str]) -> int:
    resources = mapping(container.get("resources"), f"{path}.resources")
    for kind in kinds:
        amount = _amount_in(resources.get(kind), f"{path}.resources.{kind}", resource, units)
        if amount is not None:
            return amount
    return 0


def _amount_in(amounts: object, path: str, resource: str, units: int) -> int | None:
    value = mapping(amounts, path).get(resource)
    return None if value is None else parse_quantity(value, f"{path}.{resource}", units=units)
