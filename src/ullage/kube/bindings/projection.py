"""Projections of the ledger for readers: bindings as objects, modes as node annotations, rows in a ConfigMap.

The leader repairs them whenever they differ from the ledger. The next pass, in this process or another, completes what
was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ullage.binding.permit import BindingClaims
from ullage.binding.rows import Ledger, as_binding
from ullage.kube.client.changes import Change, Create, Delete, Patch, Replace
from ullage.kube.client.kinds import GPU_BINDINGS, NODES
from ullage.kube.client.objects import KubeNode, Object
from ullage.model.binding import Binding, BindingState
from ullage.model.compute import AppKey, BoundCard
from ullage.model.error import InvalidRequest
from ullage.wire.document import Document
from ullage.wire.gpubinding import (
    REASON,
    ROW,
    SHARE_MODE,
    STATE,
    binding_name,
    read_binding,
    share_number,
    write_binding,
)
from ullage.wire.pod import DOMAIN

NOTHING: Mapping[str, str] = {}


def object_changes(ledger: Ledger, objects: Mapping[tuple[str, str], Object]) -> Iterator[Change]:
    """Yield the writes that make the objects match the ledger. Other objects of its applications are deleted."""
    wanted = _wanted(ledger)
    apps = {row.app for row in ledger.rows}
    for (_, name), found in objects.items():
        ours = ROW in (found.metadata.annotations or {})
        if name not in wanted and (ours or _app_of(found) in apps):
            yield Delete(GPU_BINDINGS, name, uid=found.metadata.uid, version=found.metadata.resource_version)
    for name, body in wanted.items():
        there = objects.get(("", name))
        if there is None:
            yield Create(GPU_BINDINGS, body)
        elif not _says(there, body):
            metadata = {**body["metadata"], "resourceVersion": there.metadata.resource_version}
            yield Replace(GPU_BINDINGS, name, {**body, "metadata": metadata})


def node_changes(ledger: Ledger, nodes: Mapping[tuple[str, str], KubeNode]) -> Iterator[Change]:
    """Yield the writes that make node annotations show how the cards are shared."""
    for key, share in ledger.shares.items():
        node, note = nodes.get(("", key.node)), f"{SHARE_MODE}{key.device}"
        if node is not None and (node.metadata.annotations or {}).get(note) != share_number(share):
            yield Patch(NODES, key.node, {"metadata": {"annotations": {note: share_number(share)}}})


def state_changes(
    claims: BindingClaims,
    foreign: Iterable[Binding],
    conflicts: Mapping[str, Binding],
    objects: Mapping[tuple[str, str], Object],
    unused: Mapping[str, str] = NOTHING,
) -> Iterator[Change]:
    """Yield writes of the status of foreign bindings: whether each counts, why not, and why it has no pod yet.

    `unused` has the last reason, by the name of the binding.
    """
    for each in foreign:
        found = objects.get(("", each.name))
        if found is None:
            continue
        state, reason = "", claims.reason(each)
        if not reason and each.name in conflicts:
            reason = conflicts[each.name].reason
        if reason:
            state = (BindingState.INVALID if claims.invalid(each) else BindingState.CONFLICT).value
        reason = reason or unused.get(each.name, "")
        notes = found.metadata.annotations or {}
        if (notes.get(STATE, ""), notes.get(REASON, "")) != (state, reason):
            said = {STATE: state or None, REASON: reason or None}
            metadata = {"annotations": said, "resourceVersion": found.metadata.resource_version}
            yield Patch(GPU_BINDINGS, each.name, {"metadata": metadata})


def _wanted(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Return the objects by name. If a draining row and one in force share a card, the one in force is shown."""
    wanted = {}
    for row in sorted(ledger.rows, key=lambda row: not row.draining):
        wanted[_name(row)] = _body(row)
    return wanted


def _name(row: BoundCard) -> str:
    return binding_name(row.app.name, row.app.owner, row.card.device)


def _body(row: BoundCard) -> dict[str, Any]:
    body = write_binding(as_binding(row))
    metadata = body["metadata"]
    notes = {**metadata["annotations"], ROW: row.id}
    if row.by:
        when = datetime.fromtimestamp(row.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        notes |= {f"{DOMAIN}/bound-by": row.by, f"{DOMAIN}/bound-at": when}
    return {**body, "metadata": {**metadata, "name": _name(row), "annotations": notes}}


def _says(found: Object, body: dict[str, Any]) -> bool:
    """Return whether an object matches a row. Further fields belong to others."""
    there: Document = found.document
    wanted = body["metadata"]
    labels, notes = found.metadata.labels or {}, found.metadata.annotations or {}
    same = all(notes.get(key, "") == wanted["annotations"].get(key, "") for key in (ROW, STATE))
    return same and there.get("spec") == body["spec"] and wanted["labels"].items() <= labels.items()


def _app_of(found: Object) -> AppKey | None:
    """Return the application of an object, if it names it in full."""
    try:
        binding = read_binding(found.document)
    except InvalidRequest:
        return None
    return AppKey(binding.app, binding.owner, binding.namespace) if binding.owner else None
