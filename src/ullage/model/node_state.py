"""The states of a node."""

from __future__ import annotations

from enum import StrEnum


class NodeState(StrEnum):
    """READY takes work; UNKNOWN lost contact and is given time; NOT_READY has lost its executors."""

    READY = "ready"
    UNKNOWN = "unknown"
    NOT_READY = "not-ready"
