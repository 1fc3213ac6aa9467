"""The ConfigMap in which app-service stores rows: read if another client wrote it, written if it is ours.

Rows of another client are replaced only once each is a row of the ledger, a GPUBinding, or discarded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from ullage.binding.rows import Ledger
from ullage.kube.client.api import KubeApi, Selection
from ullage.kube.client.changes import Change, Create, Replace
from ullage.kube.client.informer import Informer
from ullage.kube.client.kinds import CONFIG_MAPS
from ullage.kube.client.objects import Object
from ullage.model.binding import Binding, BindingState
from ullage.wire.compute_resources import ComputeAllocationBody, allocation_bodies
from ullage.wire.document import mapping
from ullage.wire.gpubinding import MAX_CARD_BYTES, binding_name
from ullage.wire.pod import DOMAIN

KEY = "allocations.json"
_OURS = f"{DOMAIN}/ledger-version"


class AllocationsMap:
    """The caller runs `informer`. `place` is `namespace/name`."""

    def __init__(self, api: KubeApi, place: str) -> None:
        self._namespace, _, self._name = place.partition("/")
        self.informer: Informer[Object] = Informer(
            api, CONFIG_MAPS, Selection(self._namespace, fields=f"metadata.name={self._name}")
        )
        self._read: tuple[tuple[str, str], tuple[Binding, ...]] | None = None

    def rows(self) -> tuple[Binding, ...]:
        """Return the rows that another client wrote, as bindings. A row that cannot be parsed is invalid."""
        found = self._found
        if found is None or _OURS in (found.metadata.annotations or {}):
            return ()
        if self._read is None or self._read[0] != found.state:
            self._read = found.state, tuple(_bindings(found, f"{self._namespace}/{self._name}"))
        return self._read[1]

    def change(self, ledger: Ledger, left: Collection[Binding]) -> Change | None:
        """Return the write that makes it match the ledger; None if it matches, or rows of another client are `left`."""
        if left:
            return None
        text = msgspec.json.encode(allocation_bodies(row for row in ledger.rows if not row.draining)).decode()
        notes, found = {_OURS: str(ledger.version)}, self._found
        if found is None:
            body: dict[str, Any] = {"metadata": {"name": self._name, "annotations": notes}, "data": {KEY: text}}
            return Create(CONFIG_MAPS, body, self._namespace)
        document = found.document
        data = mapping(document.get("data"), "data")
        if data.get(KEY) == text and _OURS in (found.metadata.annotations or {}):
            return None
        metadata = {**document["metadata"], "annotations": {**(found.metadata.annotations or {}), **notes}}
        body = {**document, "metadata": metadata, "data": {**data, KEY: text}}
        return Replace(CONFIG_MAPS, self._name, body, self._namespace)

    @property
    def _found(self) -> Object | None:
        return self.informer.objects.get((self._namespace, self._name))


def not_there(imports: Iterable[Binding], ledger: Ledger, objects: Iterable[Binding]) -> tuple[Binding, ...]:
    """Return those that are neither rows of the ledger nor GPUBindings."""
    there = {(row.app.name, row.app.owner, row.card.device) for row in ledger.rows}
    there |= {(each.app, each.owner, each.uuid) for each in objects}
    return tuple(each for each in imports if (each.app, each.owner, each.uuid) not in there)


def _bindings(found: Object, place: str) -> Iterable[Binding]:
    text = (found.document.get("data") or {}).get(KEY) or "[]"
    try:
        items = msgspec.json.decode(text, type=list[Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        yield Binding(place, "", "", state=BindingState.INVALID, reason=f"{KEY} cannot be read: {error}")
        return
    for at, item in enumerate(items):
        try:
            row = msgspec.convert(item, ComputeAllocationBody)
        except msgspec.MsgspecError as error:
            reason = f"{KEY}[{at}] cannot be read: {error}"
            yield Binding(f"{place}[{at}]", "", "", state=BindingState.INVALID, reason=reason)
            continue
        name = f"{place}/{binding_name(row.app_name, row.owner, row.device_id)}"
        if not (row.app_name and row.owner and row.device_id) or not 0 <= row.memory <= MAX_CARD_BYTES:
            yield Binding(
                name, "", row.app_name, row.owner, state=BindingState.INVALID, reason="a name or amount is wrong"
            )
            continue
        facts = Binding(name, row.device_id, row.app_name, row.owner, selector=(), memory_bytes=row.memory or None)
        yield replace(facts, legacy=True, accelerator=row.mode)
