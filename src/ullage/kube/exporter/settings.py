"""Settings of the exporter: its node, and the paths of that node's files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ullage.inventory.kind import SHIPPED
from ullage.model.error import invalid
from ullage.model.nearest import one_of
from ullage.model.quantity import MAX_INT32, MAX_INT64
from ullage.model.resources import MILLI, Resources
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.pod.keys import DOMAIN

NODE_VARIABLE = "MY_NODE_NAME"
"""The environment variable with the name of the node."""

_SYSTEM = ("sys", "devices", "system")


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """Paths on a node, and the interval between checks. A path of None is not read.

    `card_resource` is the resource name of the cards; "" stands for the usual name of the only cards that are found.
    `names` are those of other resources (`nic`). `reserved` overrides the reservation in the kubelet's configuration.
    With `configz` this configuration is asked through the API server, and the file is read until there is an answer.
    `objects` are the kinds of objects that are written (`ullage.kube.exporter.report.NAMES`).
    """

    node: str
    root: Path = Path("/")
    pod_resources: Path | None = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    cpu_state: Path | None = Path("/var/lib/kubelet/cpu_manager_state")
    device_checkpoint: Path | None = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    kubelet_config: Path | None = Path("/var/lib/kubelet/config.yaml")
    configz: bool = False
    period_s: float = 3.0
    drift_s: float = 60.0
    card_resource: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    reserved: Resources | None = None
    objects: tuple[str, ...] = ("numatopology",)
    domain: str = DOMAIN


def root_of(device_path: Path) -> Path:
    """Return the root directory of a machine's files, from the path of its `sys/devices/system`.

    Raises:
        InvalidRequest: the path does not end so.

    """
    if not device_path.is_absolute() or device_path.parts[-len(_SYSTEM) :] != _SYSTEM:
        raise invalid("--device-path", str(device_path), "give a path that ends in /sys/devices/system")
    return device_path.parents[len(_SYSTEM) - 1]


def read_names(texts: Iterable[str]) -> dict[str, str]:
    """Return resource names by the kind of device, from texts such as `nic=example.com/nic`.

    Raises:
        InvalidRequest: a text has another form, or a kind that is not looked for.

    """
    known = sorted({kind.resource for kind in SHIPPED if not kind.listed})
    names = {}
    for text in texts:
        kind, _, name = text.partition("=")
        if kind not in known:
            fix = f"write the kind and the name, such as nic=example.com/nic; {one_of(kind, known)}"
            raise invalid("--resource", text, fix)
        names[kind] = resource_name(name, "--resource")
    return names


def resource_name(text: str, field: str) -> str:
    """Return the name of a resource of devices; all of them begin with a domain."""
    domain, _, name = text.partition("/")
    if not (domain and name):
        raise invalid(field, text, "write the name that pods request, such as example.com/nic")
    return text


def read_reserved(text: str) -> Resources:
    """Return the reserved resources from text such as `cpu=500m,memory=1Gi`. What is not named is not reserved.

    Raises:
        InvalidRequest: the text cannot be parsed.

    """
    amounts = {"cpu": "0", "memory": "0"}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if name not in amounts or not equals:
            raise invalid("--res-reserved", text, "write amounts such as cpu=500m,memory=1Gi")
        amounts[name] = amount
    cpu = parse_quantity(amounts["cpu"], "--res-reserved cpu", units=MILLI, maximum=MAX_INT32 * MILLI)
    return Resources(cpu, parse_quantity(amounts["memory"], "--res-reserved memory", maximum=MAX_INT64))
