"""Which resources are aligned to zones, and which are left out: a list of which the first entry that fits counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ullage.model.error import invalid
from ullage.model.quantity import format_bytes
from ullage.model.topology import CARD, CPU, HUGEPAGES, MEMORY

ALIGN_LABEL = "ullage.io/numa-align-"
"""Before `cpu`, `memory`, `hugepages`, `gpu` or a device (`/` as `_`): a label of a node, `true` or `false`."""

REST = "*"
"""At the end of a name: whatever follows."""


class Kind(StrEnum):
    """What an amount of a resource is of: pieces, CPUs, or bytes of memory or of huge pages."""

    DEVICE = "device"
    CPU = "cpu"
    MEMORY = "memory"
    HUGEPAGES = "hugepages"


@dataclass(frozen=True, slots=True)
class Provider:
    """Whether resources of a kind are aligned: one by its name, or all that begin as it does before a `*`.

    Cards are the device `gpu`; an entry may name them by their `vendors` instead.
    """

    resource: str
    kind: Kind = Kind.DEVICE
    align: bool = True
    vendors: frozenset[str] = frozenset()

    def fits(self, kind: Kind, name: str, vendor: str | None = None) -> bool:
        """Return whether the entry is about a resource; `vendor` is that of a card."""
        if kind is not self.kind:
            return False
        if vendor in self.vendors or name == self.resource:
            return True
        return self.resource.endswith(REST) and name.startswith(self.resource.removesuffix(REST))


SHIPPED = (
    Provider(CARD),
    Provider(REST),  # adapters by SR-IOV, and all else whose devices tell their zones: so does the kubelet
    Provider(CPU, Kind.CPU),
    Provider(MEMORY, Kind.MEMORY),
    Provider(REST, Kind.HUGEPAGES),
)
"""What is aligned if nobody says otherwise."""


def pages_of(size: int | str) -> str:
    """Return the resource that huge pages of a size in bytes are, or of all that a pattern fits."""
    return HUGEPAGES + (size if isinstance(size, str) else format_bytes(size))


def label_of(kind: Kind, name: str) -> str:
    """Return the label of a node that says whether a resource is aligned there."""
    return ALIGN_LABEL + (name.replace("/", "_") if kind is Kind.DEVICE else kind.value)


def check_labels(labels: Mapping[str, str], field: str) -> None:
    """See that labels of a node about alignment can be read.

    Raises:
        InvalidRequest: one is neither `true` nor `false`.

    """
    for key, value in labels.items():
        if key.startswith(ALIGN_LABEL) and value not in ("true", "false"):
            raise invalid(f"{field}.{key}", value, "write true or false")
