"""The file in which a kubelet's CPU manager keeps its state (`cpu_manager_state`).

It is written only when something changes, so what it says is shown as stale. A document that names no policy says
nothing of who has CPUs: it is refused, for what is unknown is not free.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.holding import Holding, PodHolding, Use
from ullage.wire.document import mapping, named, present, text
from ullage.wire.topology.dropped import Dropped


@dataclass(frozen=True, slots=True)
class CpuState:
    """Whether the policy is static, the CPUs that all share, and by uid of the pod who has the others."""

    static: bool
    shared: tuple[int, ...]
    use: Use


def read_cpu_state(document: object) -> tuple[CpuState, tuple[str, ...]]:
    """The state, and a sentence for each entry that was dropped.

    Raises:
        InvalidRequest: it has not the form of such a state.

    """
    found, dropped = mapping(document, "cpu_manager_state"), Dropped()
    policy = named(present(found, "policyName", "cpu_manager_state"), "policyName")
    shared = dropped.read(lambda: dropped.ids(text(found.get("defaultCpuSet")), "defaultCpuSet"), ())
    pods = []
    for uid, told in dropped.section(found.get("entries"), "entries").items():
        containers = []
        for name, ids in dropped.section(told, f"entries.{uid}").items():
            with dropped.entry():
                containers.append(Holding(text(name), dropped.ids(ids, f"entries.{uid}.{name}")))
        pods.append(PodHolding(uid=text(uid), containers=tuple(containers)))
    return CpuState(policy == "static", shared, Use(tuple(pods), stale=True)), dropped.warnings
