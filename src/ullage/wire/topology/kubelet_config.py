"""The configuration of a kubelet: its file (KubeletConfiguration), or its `configz` answer, which has flags too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.model.error import invalid
from ullage.model.quantity import MAX_INT32, MAX_INT64, PPM, parse_decimal
from ullage.model.resources import MILLI, Resources
from ullage.model.topology import MAX_ZONE_BYTES, MAX_ZONES, Kubelet, Scope, ZonePolicy
from ullage.wire.document import Document, mapping, text, whole
from ullage.wire.kubernetes_quantity import parse_quantity
from ullage.wire.topology.dropped import Dropped

_EVICTION_DEFAULT = "100Mi"
"""Memory that the kubelet keeps free where `evictionHard` is not set."""

_ALL = 100
"""Percent."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """How a kubelet aligns, and what it reserves from pods.

    `reserved` are amounts; `reserved_cpus` are CPUs by id, if the configuration names them; `reserved_memory` are
    bytes by zone and kind (`memory`, `hugepages-2Mi`).
    """

    kubelet: Kubelet
    reserved: Resources
    reserved_cpus: frozenset[int] = frozenset()
    reserved_memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


def read_kubelet_config(document: object, memory_bytes: int = 0) -> tuple[KubeletSettings, tuple[str, ...]]:
    """Return the settings, and a sentence for each one that was left out.

    `memory_bytes` is the memory of the node, for percentages. CPUs by id (`reservedSystemCPUs`) replace the CPU
    amounts of `kubeReserved` and `systemReserved`.
    """
    found, dropped = mapping(document, "kubelet"), Dropped()
    config = dropped.section(found.get("kubeletconfig", found), "kubeletconfig")
    cpus = dropped.read(lambda: dropped.ids(text(config.get("reservedSystemCPUs")), "reservedSystemCPUs"), ())
    sections = [dropped.section(config.get(name), name) for name in ("kubeReserved", "systemReserved")]
    cpu_milli = sum(_amount(raw, "cpu", MILLI, MAX_INT32, dropped=dropped) for raw in sections)
    memory = sum(_amount(raw, "memory", 1, MAX_INT64, dropped=dropped) for raw in sections)
    return KubeletSettings(
        kubelet=_kubelet(config, dropped),
        reserved=Resources(len(cpus) * MILLI or cpu_milli, memory + _eviction(config, memory_bytes, dropped)),
        reserved_cpus=frozenset(cpus),
        reserved_memory=_reserved_memory(config, dropped),
    ), dropped.warnings


def _kubelet(config: Document, dropped: Dropped) -> Kubelet:
    return Kubelet(
        policy=ZonePolicy(_choice(config, "topologyManagerPolicy", [*ZonePolicy], dropped)),
        scope=Scope(_choice(config, "topologyManagerScope", [*Scope], dropped)),
        options=_options(config, "topologyManagerPolicyOptions", dropped),
        static_cpus=_choice(config, "cpuManagerPolicy", ["none", "static"], dropped) == "static",
        cpu_options=_options(config, "cpuManagerPolicyOptions", dropped),
        static_memory=_choice(config, "memoryManagerPolicy", ["None", "Static"], dropped) == "Static",
    )


def _choice(config: Document, name: str, known: list[str], dropped: Dropped) -> str:
    """Return the value of a key; the first known value is the kubelet's own default."""
    return dropped.choice(config.get(name), name, known)


def _options(config: Document, name: str, dropped: Dropped) -> dict[str, str]:
    options = {}
    for key, value in dropped.section(config.get(name), name).items():
        if isinstance(key, str) and isinstance(value, str):
            options[key] = value
        else:
            dropped.warn(invalid(f"{name}.{key}", value, "a text is needed; it is left out").message)
    return options


def _amount(raw: Document, name: str, units: int, most: int, dropped: Dropped) -> int:
    return dropped.read(lambda: parse_quantity(raw.get(name, 0), name, units=units, maximum=most * units), 0)


def _eviction(config: Document, memory_bytes: int, dropped: Dropped) -> int:
    """Return the bytes that stay free (`memory.available`): an amount, or a percentage of the node's memory."""
    raw = config.get("evictionHard")
    limits = {"memory.available": _EVICTION_DEFAULT} if raw is None else dropped.section(raw, "evictionHard")
    value, path = limits.get("memory.available", 0), "evictionHard.memory.available"
    if not isinstance(value, str) or not value.endswith("%"):
        return dropped.read(lambda: parse_quantity(value, path), 0)
    share = dropped.read(lambda: parse_decimal(value.removesuffix("%"), path, _ALL * PPM), 0)
    return memory_bytes * share // (_ALL * PPM)


def _reserved_memory(config: Document, dropped: Dropped) -> dict[int, dict[str, int]]:
    zones: dict[int, dict[str, int]] = {}
    for path, raw in dropped.rows(config.get("reservedMemory"), "reservedMemory"):
        with dropped.entry():
            zone = whole(raw.get("numaNode"), f"{path}.numaNode", MAX_ZONES - 1)
            limits = mapping(raw.get("limits"), f"{path}.limits")
            zones[zone] = {
                text(kind): parse_quantity(amount, f"{path}.limits.{kind}", maximum=MAX_ZONE_BYTES)
                for kind, amount in limits.items()
            }
    return zones
