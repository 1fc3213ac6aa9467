"""Answers of a kubelet's PodResources API (v1) in binary form: the fields of their messages.

Names and numbers are those of the kubelet's `podresources/v1`; fields that are not read are left out.
"""

from __future__ import annotations

from typing import Any

from ullage.wire.protobuf import Field, Scalar, Table, decode

LIST = "/v1.PodResourcesLister/List"
GET_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
"""The methods; their requests are empty messages."""

_TOPOLOGY: Table = {1: Field("nodes", {1: Field("ID", Scalar.SIGNED)}, repeated=True)}
_DEVICES: Table = {
    1: Field("resource_name", Scalar.TEXT),
    2: Field("device_ids", Scalar.TEXT, repeated=True),
    3: Field("topology", _TOPOLOGY),
}
_MEMORY: Table = {
    1: Field("memory_type", Scalar.TEXT),
    2: Field("size", Scalar.UNSIGNED),
    3: Field("topology", _TOPOLOGY),
}
_CLAIM: Table = {
    2: Field("driver_name", Scalar.TEXT),
    3: Field("pool_name", Scalar.TEXT),
    4: Field("device_name", Scalar.TEXT),
}
_DYNAMIC: Table = {
    2: Field("claim_name", Scalar.TEXT),
    3: Field("claim_namespace", Scalar.TEXT),
    4: Field("claim_resources", _CLAIM, repeated=True),
}
_CONTAINER: Table = {
    1: Field("name", Scalar.TEXT),
    2: Field("devices", _DEVICES, repeated=True),
    3: Field("cpu_ids", Scalar.SIGNED, repeated=True),
    4: Field("memory", _MEMORY, repeated=True),
    5: Field("dynamic_resources", _DYNAMIC, repeated=True),
}
_POD: Table = {
    1: Field("name", Scalar.TEXT),
    2: Field("namespace", Scalar.TEXT),
    3: Field("containers", _CONTAINER, repeated=True),
}
_ANSWER: Table = {1: Field("pod_resources", _POD, repeated=True)}
_ALLOCATABLE: Table = {
    1: Field("devices", _DEVICES, repeated=True),
    2: Field("cpu_ids", Scalar.SIGNED, repeated=True),
    3: Field("memory", _MEMORY, repeated=True),
}


def decode_list(message: bytes) -> dict[str, Any]:
    """Decode the answer to `List`, for `read_pod_resources`."""
    return decode(message, _ANSWER)


def decode_allocatable(message: bytes) -> dict[str, Any]:
    """Decode the answer to `GetAllocatableResources`, for `read_allocatable`.

    Raises:
        InvalidRequest: it cannot be read (`protobuf-malformed`).

    """
    return decode(message, _ALLOCATABLE)
