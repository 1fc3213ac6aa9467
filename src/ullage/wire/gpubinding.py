"""GPUBinding, `gpu.bytetrade.io/v1alpha1`: which application may use which card; and the labels and annotations of it.

The object is read and written as it is defined; what it has no field for is in our annotations. A binding with
impossible values is not an error: it is invalid, binds no card, and states the reason.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from ullage.model.binding import (
    Binding,
    BindingState,
    Consume,
    ShareMode,
    Tenant,
    supported_modes,
)
from ullage.model.choice import parse_choice
from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT64, is_whole
from ullage.wire.document import Document, mapping, named, section, text
from ullage.wire.kubernetes_quantity import exact_quantity
from ullage.wire.pod.keys import DOMAIN
from ullage.wire.selector import check_string, read_selector, write_selector

API_VERSION = "gpu.bytetrade.io/v1alpha1"
KIND = "GPUBinding"
MIB = 2**20
MAX_CARD_BYTES = 2**50
"""No card has as much; a larger amount was meant in another unit."""

APP_LABEL = "applications.app.bytetrade.io/name"
OWNER_LABEL = "applications.app.bytetrade.io/owner"
CONSUME_LABEL = "hami.io/app-gpu-consume"
MODE_LABEL = "gpu.bytetrade.io/mode"
SHARE_MODE = "sharemode.gpu.bytetrade.io/"
"""The prefix, followed by the uuid of a card, of the annotation of its node that says how it is shared."""

_MODES = {"0": ShareMode.EXCLUSIVE, "1": ShareMode.MEMORY_SLICE, "2": ShareMode.TIME_SLICE}
_MANAGED = {"app.bytetrade.io/managed-by": "app-service"}
_LEGACY, STATE, REASON, ROW = (f"{DOMAIN}/{name}" for name in ("legacy", "binding-state", "binding-reason", "row"))
"""Our annotations; `ROW` is the id of the ledger row that an object mirrors."""


# --- objects ---


def read_binding(document: Document) -> Binding:
    """Return the binding of an object; one without owner or namespace is legacy unless it states otherwise."""
    if document.get("kind", KIND) != KIND or document.get("apiVersion", API_VERSION) != API_VERSION:
        raise invalid(
            "kind", (document.get("apiVersion"), document.get("kind")), f"a {KIND} of {API_VERSION} is needed"
        )
    metadata = section(document, "metadata")
    annotations = mapping(metadata.get("annotations"), "metadata.annotations")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    spec = section(document, "spec")
    name = named(metadata.get("name"), "metadata.name")
    owner, namespace = text(spec.get("owner")), text(spec.get("namespace"))
    binding = Binding(
        name,
        uuid=text(spec.get("uuid")),
        app=text(spec.get("appName")),
        owner=owner,
        namespace=namespace,
        legacy=not (owner and namespace) and annotations.get(_LEGACY) != "false",
        accelerator=text(labels.get(MODE_LABEL)),
    )
    if not binding.uuid or not binding.app:
        return binding.invalid(f"spec.{'appName' if binding.uuid else 'uuid'}: it is empty, and matches nothing")
    try:
        selector = read_selector(spec.get("podSelector"), "spec.podSelector")
        memory = read_memory(spec.get("memory"))
    except InvalidRequest as error:
        return binding.invalid(error.message)
    state, reason = _recorded_state(annotations)
    return replace(binding, selector=selector, memory_bytes=memory, state=state, reason=reason)


def write_binding(binding: Binding) -> dict[str, Any]:
    """Return the object of a binding. Memory is a bare number of MiB; a smaller amount is left out.

    An invalid binding is written without its invalid parts.
    """
    spec: dict[str, Any] = {"uuid": binding.uuid, "appName": binding.app}
    spec |= _without_blanks({"owner": binding.owner, "namespace": binding.namespace})
    if binding.selector is not None:
        spec["podSelector"] = write_selector(binding.selector)
    if binding.memory_bytes is not None:
        spec["memory"] = write_memory(binding.memory_bytes)
    labels = {**_MANAGED, MODE_LABEL: binding.accelerator, APP_LABEL: binding.app, OWNER_LABEL: binding.owner}
    notes = {
        _LEGACY: "" if binding.legacy or (binding.owner and binding.namespace) else "false",
        STATE: "" if binding.state is BindingState.BOUND else binding.state.value,
        REASON: binding.reason,
    }
    metadata = {"name": binding.name, "labels": _without_blanks(labels), "annotations": _without_blanks(notes)}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def binding_name(app: str, owner: str, uuid: str) -> str:
    """Return the name of the binding of an application of an owner to a card, as app-service writes it.

    Where that is not a valid name of an object, as with two dots in a row, each invalid part becomes one `-`.
    """
    raw = f"{app}-{owner}-{uuid}"
    digest = hashlib.sha256(raw.encode()).hexdigest()[:_DIGITS]
    plain = re.sub(r"[^a-z0-9.-]", "-", raw.lower()).strip("-.")
    plain = re.sub(r"(?=-*\.)[.-]{2,}", "-", plain)
    return f"{plain[: _MAX_NAME - 1 - _DIGITS].rstrip('.')}-{digest}"


_MAX_NAME = 63
_DIGITS = 8


def _recorded_state(annotations: Document) -> tuple[BindingState, str]:
    """Return the recorded state; whether the binding is invalid follows from the object itself."""
    state = annotations.get(STATE)
    if state not in (BindingState.DRAINING, BindingState.CONFLICT):
        return BindingState.BOUND, ""
    return BindingState(str(state)), text(annotations.get(REASON))


def _without_blanks(texts: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in texts.items() if value}


# --- memory ---

_OF_BYTES = re.compile("[MGTPE]i?$")
_REFUSED = re.compile("^-|[num]$")
"""Amounts below 0, and in units below one."""
_FIX = "write MiB as a bare number such as 8192, or bytes with a unit such as 8Gi"


def read_memory(value: object, field: str = "spec.memory") -> int | None:
    """Return the bytes of a cap on memory; None for no cap.

    A bare number counts MiB, also where a writer has shortened it with `k` or `Ki`. Larger units are of bytes, as
    everywhere else.

    Raises:
        InvalidRequest: it is 0, not a whole number of its unit, of a unit below one, or above `MAX_CARD_BYTES`.

    """
    if value is None:
        return None
    if is_whole(value) and 0 < value <= MAX_INT64:
        value = str(value)
    written = value if isinstance(value, str) else ""
    amount = None if _REFUSED.search(written) else exact_quantity(written)
    if amount is None:
        raise invalid(field, value, _FIX)
    factor = 1 if _OF_BYTES.search(written) else MIB
    if amount.denominator != 1 or not 0 < amount * factor <= MAX_CARD_BYTES:
        what = "MiB" if factor == MIB else "bytes"
        raise invalid(field, value, f"a whole number of {what} above 0 is needed, and no more than a card can have")
    return int(amount) * factor


def write_memory(memory_bytes: int) -> str:
    """Return the amount as a bare number of MiB, rounded down, so that writing never raises a cap."""
    return str(max(1, memory_bytes // MIB))


# --- pods and nodes ---


def tenant_of(pod: Document) -> Tenant:
    """Return the tenant that a pod is for bindings."""
    metadata = section(pod, "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    for key, value in labels.items():
        check_string(key, "metadata.labels")
        check_string(value, f"metadata.labels.{key}", empty=True)
    namespace = text(metadata.get("namespace")) or "default"
    return Tenant(labels.get(APP_LABEL, ""), labels.get(OWNER_LABEL, ""), namespace, dict(labels))


def consume_of(tenant: Tenant) -> Consume:
    """Return whether a pod takes all cards that are bound for it."""
    return parse_choice(Consume, tenant.labels.get(CONSUME_LABEL) or Consume.ALL, f"metadata.labels.{CONSUME_LABEL}")


def share_mode_of(number: object) -> ShareMode:
    """Return the sharing mode of a card by its number."""
    mode = _MODES.get(str(number))
    if mode is None:
        raise invalid("mode", number, f"choose one of {', '.join(_MODES)}")
    return mode


def share_number(mode: ShareMode) -> str:
    return next(number for number, each in _MODES.items() if each is mode)


def share_mode(annotations: Document, uuid: str, accelerator: str) -> ShareMode:
    """Return the sharing mode of a card by the annotation of its node; the default if its type lacks that mode."""
    default, *_ = modes = supported_modes(accelerator)
    number = annotations.get(f"{SHARE_MODE}{uuid}")
    mode = _MODES.get(number) if isinstance(number, str) else None
    return mode if mode in modes else default
