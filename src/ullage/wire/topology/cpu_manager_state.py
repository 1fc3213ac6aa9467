"""The state file of a kubelet's CPU manager (`cpu_manager_state`).

The kubelet writes it only when something changes, so its content is shown as stale. A document without a policy does
not say which CPUs are held. It is refused, because unknown CPUs must not count as free.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.holding import Holding, PodHolding, Use
from ullage.wire.document import mapping, named, present, text
from ullage.wire.topology.dropped import Dropped


@dataclass(frozen=True, slots=True)
class CpuState:
    """Whether the policy is static, the shared CPUs, and the exclusive CPUs by uid of the pod."""

    static: bool
    shared: tuple[int, ...]
    use: Use


def read_cpu_state(document: object) -> tuple[CpuState, tuple[str, ...]]:
    """Return the state, and a sentence for each entry that was dropped."""
    found, dropped = mapping(document, "cpu_manager_state"), Dropped()
    policy = named(present(found, "policyName", "cpu_manager_state"), "policyName")
    shared = dropped.read(lambda: dropped.ids(text(found.get("defaultCpuSet")), "defaultCpuSet"), ())
    pods = []
    for uid, raw in dropped.section(found.get("entries"), "entries").items():
        containers = []
        for name, ids in dropped.section(raw, f"entries.{uid}").items():
            with dropped.entry():
                containers.append(Holding(text(name), dropped.ids(ids, f"entries.{uid}.{name}")))
        pods.append(PodHolding(uid=text(uid), containers=tuple(containers)))
    return CpuState(policy == "static", shared, Use(tuple(pods), stale=True)), dropped.warnings
