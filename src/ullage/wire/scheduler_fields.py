"""The fields of a pod about which only kube-scheduler can decide.

They are those that its filters read (Kubernetes 1.36) and that no verdict here covers: other pods, volumes, ports and
claims, and resources that are neither CPU, memory nor cards.
"""

from __future__ import annotations

from collections.abc import Iterator

from ullage.model.alignment import AlignmentStage
from ullage.wire.dialect import PLAIN_SETTINGS, PodSettings
from ullage.wire.document import Document, mapping, mappings, section, sequence
from ullage.wire.kubernetes_quantity import is_nothing
from ullage.wire.pod.containers import containers_of

_COUNTED = frozenset({"cpu", "memory"})
"""The resources that are counted wherever a pod states them."""

_UNRESTRICTED_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"}
)
"""The types of volumes that every node can mount, so that no filter reads them."""

_POD_AFFINITIES = "podAffinity", "podAntiAffinity"
_TERMS = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
_RESTART_ALL = "RestartAllContainers"


def fields_for_scheduler(pod: Document, settings: PodSettings = PLAIN_SETTINGS) -> tuple[str, ...]:
    """Return the paths of these fields, such as `spec.volumes[1].persistentVolumeClaim`; none if there are none.

    An amount of 0 is not a request. `settings` say which resources are cards. Fields that a bound pod no longer has in
    the cache of pods (volumes and ports) are not found: ask before its bind.

    Raises:
        InvalidRequest: a field has another form than the API gives it.

    """
    spec = section(pod, "spec")
    return (
        *_of_other_pods(spec),
        *_claims(spec),
        *_volumes(spec),
        *_ports(spec),
        *_resources(spec, settings),
        *_node_features(spec),
    )


def _of_other_pods(spec: Document) -> Iterator[str]:
    """Yield the affinities to other pods, and the spread over them, where these state a term."""
    affinity = mapping(spec.get("affinity"), "spec.affinity")
    for name in _POD_AFFINITIES:
        path = f"spec.affinity.{name}"
        kind = mapping(affinity.get(name), path)
        if any(sequence(kind.get(terms), f"{path}.{terms}") for terms in _TERMS):
            yield path
    path = "spec.topologySpreadConstraints"
    if sequence(spec.get("topologySpreadConstraints"), path):
        yield path


def _claims(spec: Document) -> Iterator[str]:
    if sequence(spec.get("resourceClaims"), "spec.resourceClaims"):
        yield "spec.resourceClaims"


def _volumes(spec: Document) -> Iterator[str]:
    """Yield the source of each volume that may restrict the nodes; a type that is not known is one of them."""
    for path, volume in mappings(spec.get("volumes"), "spec.volumes"):
        for source, value in volume.items():
            if source != "name" and source not in _UNRESTRICTED_VOLUMES and value is not None:
                yield f"{path}.{source}"


def _ports(spec: Document) -> Iterator[str]:
    """Yield the ports of the host that containers take for as long as the pod runs.

    Plugin NodePorts counts those of containers and sidecars. With hostNetwork the API server sets each hostPort that
    is left out to the containerPort.
    """
    for stage, path, container in containers_of(spec):
        if stage is AlignmentStage.INIT:
            continue
        for here, port in mappings(container.get("ports"), f"{path}.ports"):
            if port.get("hostPort"):
                yield f"{here}.hostPort"
            elif spec.get("hostNetwork") and port.get("containerPort"):
                yield f"{here}.containerPort"


def _resources(spec: Document, settings: PodSettings) -> Iterator[str]:
    """Yield each amount of another resource than CPU, memory and cards; cards count in containers alone."""
    for _, path, container in containers_of(spec):
        for field, name in _amounts(container, path):
            if name not in _COUNTED and not settings.is_card_resource(name):
                yield field
    own = list(_amounts(spec, "spec"))
    overhead = _stated(spec.get("overhead"), "spec.overhead")
    yield from (field for field, name in (*own, *overhead) if name not in _COUNTED)


def _amounts(stated_by: Document, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each resource that a container, or the pod as a whole, requests or limits."""
    resources = mapping(stated_by.get("resources"), f"{path}.resources")
    for kind in ("limits", "requests"):
        yield from _stated(resources.get(kind), f"{path}.resources.{kind}")


def _stated(amounts: object, path: str) -> Iterator[tuple[str, str]]:
    for name, amount in mapping(amounts, path).items():
        if not is_nothing(amount):
            yield f"{path}.{name}", name


def _node_features(spec: Document) -> Iterator[str]:
    """Yield the fields that need a feature of the node's kubelet, which plugin NodeDeclaredFeatures looks for."""
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        yield "spec.hostUsers"
    for _, path, container in containers_of(spec):
        for here, rule in mappings(container.get("restartPolicyRules"), f"{path}.restartPolicyRules"):
            if rule.get("action") == _RESTART_ALL:
                yield f"{here}.action"
