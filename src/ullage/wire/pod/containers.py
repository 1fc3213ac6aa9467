"""The resources of a pod's containers, counted as Kubernetes does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ullage.model.alignment import AlignmentStage
from ullage.model.resources import MILLI
from ullage.wire.document import Document, mapping, mappings, section, text
from ullage.wire.kubernetes_quantity import parse_quantity

_RESIZED = ("cpu", "memory")


def containers_of(spec: Document) -> Iterator[tuple[AlignmentStage, str, Document]]:
    """Yield each container with its stage and its path, in the order of their start.

    Sidecars are init containers that always restart: they run together with all that start after them.
    """
    for path, container in mappings(spec.get("initContainers"), "spec.initContainers"):
        yield (
            (AlignmentStage.SIDECAR if container.get("restartPolicy") == "Always" else AlignmentStage.INIT),
            path,
            container,
        )
    for path, container in mappings(spec.get("containers"), "spec.containers"):
        yield AlignmentStage.APP, path, container


def init_is_over(pod: Document) -> bool:
    """Return whether all init containers of a pod, except sidecars, have succeeded, so that none starts again.

    A container that is waiting, runs, or ended with another exit code than 0 may start again, whatever the condition
    `Initialized` is. The condition decides where no status of an init container is reported.
    """
    spec, status = section(pod, "spec"), section(pod, "status")
    init = {text(container.get("name")) for stage, _, container in containers_of(spec) if stage is AlignmentStage.INIT}
    reported = {
        text(each.get("name")): mapping(section(each, "state").get("terminated"), "terminated")
        for _, each in mappings(status.get("initContainerStatuses"), "status.initContainerStatuses")
    }
    if init & reported.keys():
        return all(reported.get(name, {}).get("exitCode") == 0 for name in init)
    return any(
        each.get("type") == "Initialized" and each.get("status") == "True"
        for _, each in mappings(status.get("conditions"), "status.conditions")
    )


def pod_amount(spec: Document, resource: str, units: int) -> int:
    """Return the request of the pod as a whole, else of its containers, else its own limit; with the overhead."""
    own = mapping(spec.get("resources"), "spec.resources")
    overhead = _amount_in(spec.get("overhead"), "spec.overhead", resource, units) or 0
    stated = _amount_in(own.get("requests"), "spec.resources.requests", resource, units)
    if stated is None:
        stated = containers_amount(spec, resource, units, kinds=("requests", "limits"))
    if not stated:
        stated = _amount_in(own.get("limits"), "spec.resources.limits", resource, units) or 0
    return stated + overhead


def bound_spec(pod: Document) -> Document:
    """Return the spec of a pod on a node, with the given resources of pod and containers where they are larger.

    Such a pod is being resized in place: the requested resources are not given yet, or the given ones not taken back.
    A resize that the kubelet has called infeasible does not count.
    """
    spec, status = section(pod, "spec"), section(pod, "status")
    given = {
        each.get("name"): each
        for name in ("containerStatuses", "initContainerStatuses")
        for _, each in mappings(status.get(name), f"status.{name}")
        if "resources" in each or "allocatedResources" in each
    }
    own = {
        name: status[name] for name in ("resources", "allocatedResources") if spec.get("resources") and name in status
    }
    if not given and not own:
        return spec
    refused = any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible"
        for _, each in mappings(status.get("conditions"), "status.conditions")
    )
    changed: dict[str, list[Document]] = {}
    for name in ("containers", "initContainers"):
        containers = [each for _, each in mappings(spec.get(name), f"spec.{name}")]
        now = [_with_given(each, given.get(each.get("name"), {}), refused=refused) for each in containers]
        changed |= {name: now} if now != containers else {}
    spec = _with_given(spec, own, refused=refused)
    return {**spec, **changed} if changed else spec


def _with_given(container: Document, status: Document, *, refused: bool) -> Document:
    resources = section(container, "resources")
    asked = section(resources, "requests")
    reported = section(status, "resources").get("requests"), status.get("allocatedResources")
    given = [found for each in reported if (found := mapping(each, "resources"))]
    if all(each.get(name) == asked.get(name) for each in given for name in _RESIZED):
        return container
    ways = given if refused else [asked, *given]
    most = {
        name: max(stated, key=lambda amount: parse_quantity(amount, name, units=MILLI))
        for name in _RESIZED
        if (stated := [each[name] for each in ways if each.get(name) is not None])
    }
    return {**container, "resources": {**resources, "requests": {**asked, **most}}}


def has_own_cpus(pod: Document) -> bool:
    """Return whether the kubelet's static CPU and memory managers serve the containers of a pod.

    They serve pods of the class Guaranteed, except those that state their resources for the pod as a whole. The class
    is the one that the API server wrote; a pod that has none yet is Guaranteed if every container limits its CPU and
    its memory and requests no less.
    """
    spec = section(pod, "spec")
    own = mapping(spec.get("resources"), "spec.resources")
    if own.get("requests") or own.get("limits"):
        return False
    qos = section(pod, "status").get("qosClass")
    if qos:
        return bool(qos == "Guaranteed")
    return all(
        0 < limit == container_amount(container, path, resource, units, kinds=("requests", "limits"))
        for _, path, container in containers_of(spec)
        for resource, units in (("cpu", MILLI), ("memory", 1))
        for limit in [container_amount(container, path, resource, units, kinds=("limits",))]
    )


def containers_amount(spec: Document, resource: str, units: int, kinds: Sequence[str]) -> int:
    """Return the peak request of the containers; the first of `kinds` that names the resource counts."""
    staying = peak = 0
    for stage, path, container in containers_of(spec):
        amount = container_amount(container, path, resource, units, kinds=kinds)
        if stage is AlignmentStage.INIT:
            peak = max(peak, staying + amount)
        else:
            staying += amount
    return max(peak, staying)


def container_amount(container: Document, path: str, resource: str, units: int, kinds: Iterable[str]) -> int:
    """Return the amount of a resource of one container, in `units` of one whole; 0 if it is not stated."""
    resources = mapping(container.get("resources"), f"{path}.resources")
    for kind in kinds:
        amount = _amount_in(resources.get(kind), f"{path}.resources.{kind}", resource, units)
        if amount is not None:
            return amount
    return 0


def limited_resources(container: Document, path: str) -> list[str]:
    """Return the names of the resources that a container limits."""
    resources = mapping(container.get("resources"), f"{path}.resources")
    return [name for name in mapping(resources.get("limits"), f"{path}.resources.limits") if isinstance(name, str)]


def _amount_in(amounts: object, path: str, resource: str, units: int) -> int | None:
    value = mapping(amounts, path).get(resource)
    return None if value is None else parse_quantity(value, f"{path}.{resource}", units=units)
