"""Fingerprints of pod sets: they say which pods are included in what a NodeResourceTopology has as available.

The fingerprint is the attribute `nodeTopologyPodsFingerprint`; `nodeTopologyPodsFingerprintMethod` says of which pods.
It is computed from the namespaces and the names of the pods, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ullage.wire.xxhash64 import xxhash64

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
"""The annotation of older writers, for all pods."""

EXCLUSIVE_ONLY = "with-exclusive-resources"
"""The method that includes only pods with exclusive CPUs, memory or devices."""

_HEAD = "pfp0v001"
"""The kind and the version of a fingerprint; those of other versions cannot be compared."""


def fingerprint_of(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of pods by namespace and name."""
    hashes = sorted(_hash_of(namespace, name) for namespace, name in pods)
    joined = b"".join(number.to_bytes(8, "little") for number in hashes)
    return f"{_HEAD}{xxhash64(joined):016x}"


def is_comparable(fingerprint: str) -> bool:
    """Return whether a fingerprint is of the version that `fingerprint_of` computes."""
    return fingerprint.startswith(_HEAD)


@lru_cache(maxsize=1 << 16)
def _hash_of(namespace: str, name: str) -> int:
    return xxhash64(name.encode(), xxhash64(namespace.encode()))
