"""The request of the API server to an admission webhook (AdmissionReview, `admission.k8s.io/v1`), and the response."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import msgspec

from ullage.model.error import invalid
from ullage.wire.decoding import decode_document
from ullage.wire.document import Document
from ullage.wire.json_patch import PatchOperation

API_VERSION = "admission.k8s.io/v1"
MAX_BODY = 4 * 2**20
"""Bytes of the largest review that is read: an API server takes requests of 3 MiB, and stores objects of 1.5 MiB."""

_MAX_WARNING = 256
_MAX_WARNINGS = 4096
"""Characters of one warning, and of all, that an API server shows."""


class ObjectKind(msgspec.Struct, frozen=True):
    """The kind of the object."""

    kind: str = ""
    version: str = ""
    group: str = ""


class User(msgspec.Struct, frozen=True):
    """The user who makes the request, as the API server knows them."""

    username: str = ""


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """A request to create or change an object. With `dry_run` the webhook must keep no state of it."""

    uid: str
    operation: str
    kind: ObjectKind = ObjectKind()
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    user_info: User = User()
    dry_run: bool = False

    @property
    def creates_pod(self) -> bool:
        """Whether the request creates a pod; only such a pod is certain to have no node yet."""
        return self.operation == "CREATE" and self.kind.kind == "Pod" and not self.kind.group and not self.sub_resource

    @property
    def changes_pod(self) -> bool:
        """Whether the request changes a pod or its status; annotations can be changed through the status too."""
        return self.operation == "UPDATE" and self.kind.kind == "Pod" and not self.kind.group

    @property
    def pod(self) -> Document:
        """The pod, with the namespace of the request: a pod that is being created may not state its namespace."""
        if self.object is None:
            raise invalid("request.object", None, "an object is needed")
        metadata = self.object.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise invalid("request.object.metadata", metadata, "a mapping is needed")
        return {**self.object, "metadata": {**metadata, "namespace": self.namespace or metadata.get("namespace")}}

    def allow(self, patch: Iterable[PatchOperation] = (), warnings: Iterable[str] = ()) -> bytes:
        """Return the response that admits the object, changed by a patch."""
        operations = list(patch)
        if not operations:
            return self._encode(_Response(uid=self.uid, allowed=True, warnings=_shown(warnings)))
        encoded = base64.b64encode(msgspec.json.encode(operations)).decode()
        response = _Response(
            uid=self.uid, allowed=True, patch_type="JSONPatch", patch=encoded, warnings=_shown(warnings)
        )
        return self._encode(response)

    def deny(self, message: str, *, status: int = 403, warnings: Iterable[str] = ()) -> bytes:
        """Return the response that refuses the object; the client that created it sees the message."""
        return self._encode(
            _Response(uid=self.uid, allowed=False, status=_Status(message, status), warnings=_shown(warnings))
        )

    def _encode(self, response: _Response) -> bytes:
        return msgspec.json.encode(_ResponseReview(response=response))


class _Status(msgspec.Struct, frozen=True):
    message: str
    code: int


class _Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: str | None = None
    warnings: list[str] = []


class _ResponseReview(msgspec.Struct, frozen=True, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = "AdmissionReview"


class _RequestReview(msgspec.Struct, frozen=True, rename="camel"):
    request: Review
    api_version: str
    kind: str


_DECODER = msgspec.json.Decoder(_RequestReview)


def read_review(body: bytes, *, most: int = MAX_BODY) -> Review:
    """Read a request to the webhook.

    Raises:
        InvalidRequest: it is longer than `most` bytes, cannot be read, or has another version. Then there is no
            uid to respond to (HTTP 400).

    """
    review = decode_document(body, _DECODER, most)
    if review.kind != "AdmissionReview":
        raise invalid("kind", review.kind, "send an AdmissionReview")
    if review.api_version != API_VERSION:
        raise invalid("apiVersion", review.api_version, f"send {API_VERSION}")
    if not review.request.uid:
        raise invalid("request.uid", "", "an identity is needed")
    return review.request


def _shown(warnings: Iterable[str]) -> list[str]:
    """Return each warning on one line, cut to the length that is shown."""
    shown, left = [], _MAX_WARNINGS
    for warning in warnings:
        line = " ".join(warning.split())[:_MAX_WARNING]
        left -= len(line)
        if line and left >= 0:
            shown.append(line)
    return shown
