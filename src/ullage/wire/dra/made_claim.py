"""ResourceClaims that are made from the words of a pod: what each asks for, as its pod keeps it, and as an object.

The forms are those of HAMi's driver for claims: its devices have the capacities `memory` and `cores`, and the
attributes `uuid` and `productName`. A driver without these capacities is asked for whole devices only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ullage.model.error import invalid_annotation
from ullage.model.name import MAX_NAME
from ullage.model.part import MAX_NAMES
from ullage.model.request import MAX_CARDS

ASKED_CLAIMS = "asked-claims"
"""The annotation under our domain with what the claims of a pod ask for, by the name of each."""

REQUEST = "cards"
"""The name of the only request of such a claim."""

_MOST_CLAIMS = 64
_MOST_MIB = 2**24
_WHOLE = 100

_Names = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)], ...], msgspec.Meta(max_length=MAX_NAMES)
]


class AskedClaim(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one claim asks for: `count` cards, and MiB of memory and percent of the cores of each; 0: not stated.

    The cards have one of `models` and none of `not_models` in their name, in any case, and one of `uuids`.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_CARDS)] = 1
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=_MOST_MIB)] = 0
    cores: Annotated[int, msgspec.Meta(ge=0, le=_WHOLE)] = 0
    models: _Names = ()
    not_models: _Names = ()
    uuids: _Names = ()
    not_uuids: _Names = ()


def encode_asked(asked: Mapping[str, AskedClaim]) -> str:
    """Return the claims of a pod as its annotation."""
    return msgspec.json.encode(dict(asked), order="deterministic").decode()


def decode_asked(text: str, key: str) -> dict[str, AskedClaim]:
    """Return the claims of a pod by name.

    Raises:
        InvalidAnnotation: it cannot be read, or names too many. `key` is the annotation.

    """
    try:
        found: dict[str, AskedClaim] = msgspec.json.decode(text, type=dict[str, AskedClaim])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise invalid_annotation(key, text, f"it cannot be read ({error}); the webhook writes it, leave it") from None
    if len(found) > _MOST_CLAIMS:
        raise invalid_annotation(key, text, f"at most {_MOST_CLAIMS} claims of a pod are made")
    return found


def claim_body(name: str, asked: AskedClaim, device_class: str, pod: Mapping[str, str]) -> dict[str, Any]:
    """Return the object of a claim, which is deleted with its pod: `pod` has its `namespace`, `name` and `uid`."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"], "controller": True}
    exactly: dict[str, Any] = {
        "deviceClassName": device_class,
        "allocationMode": "ExactCount",
        "count": asked.count,
    }
    amounts = {"memory": f"{asked.memory_mib}Mi"} if asked.memory_mib else {}
    amounts |= {"cores": str(asked.cores)} if asked.cores else {}
    if amounts:
        exactly["capacity"] = {"requests": amounts}
    if expressions := _expressions(asked, device_class):
        exactly["selectors"] = [{"cel": {"expression": each}} for each in expressions]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": pod["namespace"], "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}},
    }


def _expressions(asked: AskedClaim, driver: str) -> list[str]:
    """Return the conditions on a card, in CEL."""
    attributes = f"device.attributes[{json.dumps(driver)}]"
    named = f"{attributes}.productName.lowerAscii().contains(word)"
    conditions = (
        (asked.models, f"{{}}.exists(word, {named})"),
        (asked.not_models, f"!{{}}.exists(word, {named})"),
        (asked.uuids, f"{attributes}.uuid in {{}}"),
        (asked.not_uuids, f"!({attributes}.uuid in {{}})"),
    )
    words = (asked.models, asked.not_models)
    return [
        text.format(json.dumps([each.lower() if names in words else each for each in names]))
        for names, text in conditions
        if names
    ]
