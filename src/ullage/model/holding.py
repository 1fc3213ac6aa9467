"""Who holds what on a node, as somebody saw it there: the containers of pods, with CPUs, devices and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryHolding:
    """Bytes of memory, or of huge pages (`kind` is `hugepages-2Mi`), that were taken from these zones together."""

    kind: str
    zones: tuple[int, ...]
    amount_bytes: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What one container holds: CPUs it has alone, ascending, and devices by resource (`gpu` for cards).

    `counts` are of devices that the source counts and does not name.
    """

    container: str
    cpus: tuple[int, ...] = ()
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    memory: tuple[MemoryHolding, ...] = ()


@dataclass(frozen=True, slots=True)
class PodHolding:
    """What a pod holds; a source knows its uid, or its namespace and name, or both ("" is not told)."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    containers: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """All that is held on a node. `stale`: it comes from a file that outlives what it tells of."""

    pods: tuple[PodHolding, ...] = ()
    stale: bool = False
