"""Keeps the object of one node up to date, with as few writes as there are changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ullage.kube.client.api import KubeApi
from ullage.kube.client.changes import Create, Replace
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.kinds import NODES
from ullage.kube.client.objects import Object
from ullage.kube.exporter.report import Report
from ullage.model.error import AlreadyExists, Conflict, NotFound
from ullage.model.node_record import NodeRecord
from ullage.wire.document import Document


@dataclass(frozen=True, slots=True)
class _Known:
    """The object on the server, and the part of it that we own."""

    document: Document
    version: str
    content: Document


class Publisher:
    """Writes the object of one node. `now` is seconds since the epoch, `steady` a monotonic clock."""

    def __init__(
        self,
        api: KubeApi,
        node: str,
        report: Report,
        drift_s: float = 60.0,
        *,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`drift_s`: seconds after which the object is read again, in case another client has changed it."""
        self._api, self._node, self._report, self._drift_s = api, node, report, drift_s
        self._now, self._steady = now, steady
        self._node_uid = ""
        self._known: _Known | None = None
        self._sent: Document | None = None
        """The content that was sent; the server may have kept less of it."""
        self._read_at: float | None = None

    async def publish(self, record: NodeRecord) -> bool:
        """Make the object match this record. Return whether it had to be written.

        Raises:
            UllageError: the server did not answer, or refused (`ullage.kube.client.errors`); the next call starts over.

        """
        if self._read_at is None or self._steady() - self._read_at >= self._drift_s:
            await self._read()
        stable = replace(record, topology=replace(record.topology, observed_at=None))
        wanted = self._report.build(stable, self._node_uid)
        if self._known is not None and self._content(wanted) in (self._sent, self._known.content):
            return False
        self._report.stamp(wanted, self._now())
        await self._write(wanted)
        return True

    async def _read(self) -> None:
        """Read the current object. The sent content still counts if nobody has changed our part since."""
        self._node_uid = await self._uid() or self._node_uid
        try:
            found = self._understood(await self._api.get(self._report.kind, self._node))
        except NotFound:
            found = None
        if found is None or self._known is None or found.content != self._known.content:
            self._sent = None
        self._known, self._read_at = found, self._steady()

    async def _uid(self) -> str:
        """Return the uid of the Node that owns the object; "" if the Node may not be read."""
        try:
            return (await self._api.get(NODES, self._node)).metadata.uid
        except (NotFound, ApiForbidden):
            return ""

    async def _write(self, wanted: dict[str, Any]) -> None:
        try:
            if self._known is None:
                change: Create | Replace = Create(self._report.kind, wanted)
            else:
                change = Replace(self._report.kind, self._node, _over(self._known, wanted))
            answer = await self._api.write(change)
        except (AlreadyExists, Conflict, NotFound):
            self._read_at = None  # another client wrote: read before the next attempt
            raise
        self._known, self._sent = self._understood(self._report.kind.read(answer)), self._content(wanted)

    def _understood(self, found: Object) -> _Known:
        document = found.document
        return _Known(document, found.metadata.resource_version, self._content(document))

    def _content(self, document: Mapping[str, Any]) -> Document:
        """Return the part of an object that we own, without its time."""
        metadata = document.get("metadata") or {}
        owned = self._node_uid in [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
        return {**self._report.content(document), "owned": owned}


def _over(known: _Known, wanted: Document) -> dict[str, Any]:
    """Return the replacement of the known object. Its other labels and annotations stay."""
    old, new = known.document["metadata"], wanted["metadata"]
    annotations = {**(old.get("annotations") or {}), **(new.get("annotations") or {})}
    owners = new.get("ownerReferences") or old.get("ownerReferences") or []
    metadata = {**old, "annotations": annotations, "ownerReferences": owners, "resourceVersion": known.version}
    return {**wanted, "metadata": metadata}
