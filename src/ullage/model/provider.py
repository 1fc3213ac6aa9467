"""Which resources are aligned to zones: a list of which the first matching entry decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ullage.model.error import invalid
from ullage.model.quantity import format_bytes
from ullage.model.topology import CARD, CPU, HUGEPAGES, MEMORY

ALIGN_LABEL = "ullage.io/numa-align-"
"""The prefix, before `cpu`, `memory`, `hugepages`, `gpu` or a device (`/` as `_`), of a label `true` or `false`."""

REST = "*"
"""At the end of a name: matches any rest."""


class ProviderKind(StrEnum):
    """The kind of a resource: devices, CPUs, or bytes of memory or of huge pages."""

    DEVICE = "device"
    CPU = "cpu"
    MEMORY = "memory"
    HUGEPAGES = "hugepages"


@dataclass(frozen=True, slots=True)
class Provider:
    """Whether resources of a kind are aligned: one by its name, or all with the prefix before a `*`.

    Cards are the device `gpu`; an entry may name them by their `vendors` instead.
    """

    resource: str
    kind: ProviderKind = ProviderKind.DEVICE
    align: bool = True
    vendors: frozenset[str] = frozenset()

    def fits(self, kind: ProviderKind, name: str, vendor: str | None = None) -> bool:
        """Return whether the entry matches a resource; `vendor` is that of a card."""
        if kind is not self.kind:
            return False
        if vendor in self.vendors or name == self.resource:
            return True
        return self.resource.endswith(REST) and name.startswith(self.resource.removesuffix(REST))


SHIPPED = (
    Provider(CARD),
    Provider(REST),  # SR-IOV adapters and all other devices that report zones, as in the kubelet
    Provider(CPU, ProviderKind.CPU),
    Provider(MEMORY, ProviderKind.MEMORY),
    Provider(REST, ProviderKind.HUGEPAGES),
)
"""The default providers."""


def pages_of(size: int | str) -> str:
    """Return the resource of huge pages of a size in bytes, or of a pattern of sizes."""
    return HUGEPAGES + (size if isinstance(size, str) else format_bytes(size))


def label_of(kind: ProviderKind, name: str) -> str:
    """Return the label of a node that says whether a resource is aligned there."""
    return ALIGN_LABEL + (name.replace("/", "_") if kind is ProviderKind.DEVICE else kind.value)


def check_labels(labels: Mapping[str, str], field: str) -> None:
    """Check that the labels of a node about alignment can be read."""
    for key, value in labels.items():
        if key.startswith(ALIGN_LABEL) and value not in ("true", "false"):
            raise invalid(f"{field}.{key}", value, "write true or false")
