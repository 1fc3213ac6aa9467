"""The writes that a Kubernetes API server accepts: one record for each type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from ullage.kube.client.kinds import PODS, Kind
from ullage.kube.client.objects import Object

Body = Mapping[str, Any] | msgspec.Struct
MANAGER = "ullage"
"""The field manager that the API server records for our writes."""


class PatchType(StrEnum):
    """The media type of a patch: that of RFC 6902, that of RFC 7386, and two of Kubernetes."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. `body` is the whole object."""

    kind: Kind[Object]
    body: Body
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace an object by `body` if it still has the resourceVersion that `body` states.

    State the uid too: without it, some kinds (leases) are created if there is none.
    """

    kind: Kind[Object]
    name: str
    body: Body
    namespace: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change parts of an object. A merge patch that states metadata.resourceVersion applies only to that version.

    A patch that states another uid is refused as invalid, for good.
    """

    kind: Kind[Object]
    name: str
    body: Body | list[Mapping[str, Any]]
    namespace: str = ""
    type: PatchType = PatchType.MERGE
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object, if it has the given uid and version. `grace_s` is for pods."""

    kind: Kind[Object]
    name: str
    namespace: str = ""
    uid: str = ""
    version: str = ""
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a pod to its node, and write annotations on it, in one step.

    The server refuses it if the uid differs, or if the pod is bound already or terminating. Where `version` is given,
    it also refuses another resourceVersion.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod as far as its disruption budgets allow. An unready pod may go if enough others are healthy.

    With `dry_run` nothing changes: the response says whether the eviction would be allowed.
    """

    namespace: str
    name: str
    uid: str = ""
    dry_run: bool = False


Change = Create | Replace | Patch | Delete | Bind | Evict


@dataclass(frozen=True, slots=True)
class Call:
    """A change as HTTP: method, path, query, body and its media type."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    media: str = "application/json"


def call_of(change: Change) -> Call:
    """Return the HTTP call of a change.

    Raises:
        InvalidRequest: an invalid name, or a missing namespace.

    """
    written = {"fieldManager": MANAGER}
    match change:
        case Create(kind, body, namespace):
            return Call("POST", kind.path(namespace), written, _encode(_whole(kind, body)))
        case Replace(kind, name, body, namespace, subresource):
            return Call("PUT", kind.path(namespace, name, subresource), written, _encode(_whole(kind, body)))
        case Patch(kind, name, body, namespace, how, subresource):
            if how is PatchType.APPLY:
                written = {**written, "force": "true"}
                body = _whole(kind, body) if isinstance(body, Mapping) else body
            return Call("PATCH", kind.path(namespace, name, subresource), written, _encode(body), media=how.value)
        case Delete(kind, name, namespace, uid, version, grace_s):
            options = _delete_options(uid, version, grace_s)
            return Call("DELETE", kind.path(namespace, name), {}, _encode(options))
        case Bind(namespace, name):
            return Call("POST", PODS.path(namespace, name, "binding"), written, _encode(_binding(change)))
        case Evict(namespace, name, uid, dry_run):
            options = _delete_options(uid) | ({"dryRun": ["All"]} if dry_run else {})
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": options,
            }
            return Call("POST", PODS.path(namespace, name, "eviction"), {}, _encode(eviction))


def _whole(kind: Kind[Object], body: Body) -> Body:
    """Return the body with apiVersion and kind, which the API requires."""
    if isinstance(body, msgspec.Struct):
        return body
    return {"apiVersion": kind.api_version, "kind": kind.name, **body}


def _binding(bind: Bind) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": bind.name, "namespace": bind.namespace, "uid": bind.uid}
    if bind.annotations:
        metadata["annotations"] = bind.annotations
    if bind.version:
        metadata["resourceVersion"] = bind.version
    target = {"apiVersion": "v1", "kind": "Node", "name": bind.node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def _delete_options(uid: str = "", version: str = "", grace_s: int | None = None) -> dict[str, Any]:
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def _encode(body: object) -> bytes:
    return msgspec.json.encode(body)
