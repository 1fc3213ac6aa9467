"""The kinds of objects that an exporter writes: how each is made of a record, and which part of it is ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ullage.kube.client.kinds import NODE_RESOURCE_TOPOLOGIES, NUMATOPOLOGIES, Kind
from ullage.kube.client.objects import Object
from ullage.model.error import invalid
from ullage.model.node_record import NodeRecord
from ullage.wire.document import Document
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.topology.noderesourcetopology_object import noderesourcetopology_object
from ullage.wire.topology.numatopology_object import numatopology_object

_TIMESTAMP = "timestamp"


class Report(Protocol):
    """A kind of object that describes a node."""

    @property
    def kind(self) -> Kind[Object]:
        """The kind."""

    def build(self, record: NodeRecord, node_uid: str) -> dict[str, Any]:
        """Return the object of a record, which the Node with this uid owns."""

    def content(self, document: Document) -> Document:
        """Return the part of an object that the exporter owns, without its time."""

    def stamp(self, document: dict[str, Any], now: float) -> None:
        """Write the time of the write (seconds since the epoch) into an object, if its kind has one."""


@dataclass(frozen=True, slots=True)
class NumatopologyReport:
    """Numatopology, as Volcano and Ullage read it. `domain` is that of the annotation with the rest of the record."""

    domain: str = DOMAIN

    @property
    def kind(self) -> Kind[Object]:
        """The kind."""
        return NUMATOPOLOGIES

    def build(self, record: NodeRecord, node_uid: str) -> dict[str, Any]:
        """Return the object of a record."""
        return numatopology_object(record, self.domain, node_uid=node_uid)

    def content(self, document: Document) -> Document:
        """Return the spec, and the rest of the record."""
        annotations = (document.get("metadata") or {}).get("annotations") or {}
        return {"spec": document.get("spec"), "topology": annotations.get(f"{self.domain}/topology")}

    def stamp(self, document: dict[str, Any], now: float) -> None:
        """Write the annotation that Volcano's exporter writes."""
        document["metadata"]["annotations"][_TIMESTAMP] = str(int(now))


@dataclass(frozen=True, slots=True)
class NodeResourceTopologyReport:
    """NodeResourceTopology, as zone-aware schedulers read it."""

    @property
    def kind(self) -> Kind[Object]:
        """The newest version."""
        newest, *_ = NODE_RESOURCE_TOPOLOGIES
        return newest

    def build(self, record: NodeRecord, node_uid: str) -> dict[str, Any]:
        """Return the object of a record."""
        return noderesourcetopology_object(record, node_uid=node_uid)

    def content(self, document: Document) -> Document:
        """Return zones and attributes."""
        return {"zones": document.get("zones"), "attributes": document.get("attributes")}

    def stamp(self, document: dict[str, Any], now: float) -> None:
        """Write nothing: a time would be a change at every write."""


NAMES = ("numatopology", "noderesourcetopology")
"""The kinds by name, as the settings have them."""


def read_objects(text: str) -> tuple[str, ...]:
    """Return the names of kinds in text such as `numatopology,noderesourcetopology`, each once.

    Raises:
        InvalidRequest: there is no such kind.

    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not set(names) <= set(NAMES):
        raise invalid("--objects", text, f"write one or both of {', '.join(NAMES)}, with a comma")
    return names


def reports_of(names: tuple[str, ...], domain: str = DOMAIN) -> tuple[Report, ...]:
    """Return the kinds with these names."""
    known: dict[str, Report] = dict(zip(NAMES, (NumatopologyReport(domain), NodeResourceTopologyReport()), strict=True))
    return tuple(known[name] for name in names)
