"""Gated pods with a real control plane: kube-scheduler places the pods that are admitted."""

from collections import Counter
from typing import Any

import pytest

from tests.kube.conftest import define, until
from tests.kube.control_plane import ControlPlane
from tests.kube.stage import CLASSES
from tests.kube.test_scheduler import Watched, a_pod, answering, create, machines, scheduled
from ullage.kube.client.changes import Create, Patch
from ullage.kube.client.kinds import KAI_POD_GROUPS, KAI_TOPOLOGIES, NODES, POD_GROUPS
from ullage.kube.queues.subgroups import KAI_LABEL
from ullage.model.queue import Queue

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]
QUEUES = (Queue("x", weight=2), Queue("y"), Queue("z", weight=3))
GATE = "ullage.io/queue"
__all__ = ["scheduled"]  # a fixture


def waiting(name: str, queue: str, gpus: int = 1, group: str = "", **annotations: str) -> dict[str, Any]:
    pod = a_pod(name, gpus)
    pod["metadata"]["labels"] = {GATE: queue} | ({"scheduling.x-k8s.io/pod-group": group} if group else {})
    pod["metadata"]["annotations"] = {f"ullage.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


def queues(watched: Watched) -> Counter[str]:
    return Counter((pod.metadata.labels or {})[GATE] for pod in watched.live())


def names(watched: Watched, prefix: str) -> set[str]:
    return {pod.metadata.name for pod in watched.live() if pod.metadata.name.startswith(prefix)}


async def finish(kubelets: Any, watched: Watched, *prefixes: str) -> None:
    for pod in watched.live():
        if pod.metadata.name.startswith(prefixes):
            await kubelets.finish("default", pod.metadata.name)


async def test_three_queues_share_as_their_weights_say_also_over_a_restart(scheduled: tuple[ControlPlane, int]) -> None:
    plane, port = scheduled
    async with machines(plane, a=4, b=4, c=4) as (api, kubelets, watched):
        await create(api, *(waiting(f"{queue}{n:02}", queue) for queue in "xyz" for n in range(18)))
        async with answering(api, port, *QUEUES):
            await until(lambda: len(watched.cards()) == 12, "every card is used", 120)
            assert queues(watched) == {"x": 4, "y": 2, "z": 6}
            await finish(kubelets, watched, "x", "y")
            await until(lambda: watched.phases()["Succeeded"] == 6, "they are done", 60)
            await until(lambda: len(watched.cards()) == 12, "every card is used again", 120)
            assert queues(watched) == {"x": 4, "y": 2, "z": 6}
        await finish(kubelets, watched, "z0")
        async with answering(api, port, *QUEUES):
            await until(lambda: watched.phases()["Succeeded"] == 12, "they are done", 60)
            await until(lambda: len(watched.cards()) == 12, "every card is used after the restart", 120)
            assert queues(watched) == {"x": 4, "y": 2, "z": 6}
            left = next(pod for pod in watched.mirror.objects.values() if pod.spec.scheduling_gates)
            await until(
                lambda: "ullage.io/queue-waits" in (watched.mirror.objects[left.key].metadata.annotations or {}),
                "the reason is shown",
                60,
            )


async def test_gangs_start_whole_among_others_and_a_wide_pod_is_not_passed(
    scheduled: tuple[ControlPlane, int],
) -> None:
    plane, port = scheduled
    async with machines(plane, d=4, e=4) as (api, kubelets, watched):
        await define(api, POD_GROUPS)
        await create(api, *(waiting(f"s{n}", "x") for n in range(6)))
        async with answering(api, port, *QUEUES) as front:
            await until(lambda: len(watched.cards()) == 6, "the small ones run", 60)
            await api.write(Create(POD_GROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 4}}, "default"))
            await create(api, *(waiting(f"g{n}", "y", group="g") for n in range(4)))
            await create(api, waiting("t0", "z"))
            await until(lambda: names(watched, "t") == {"t0"}, "one that fits runs next to the gang", 60)
            assert not names(watched, "g")
            await finish(kubelets, watched, "s")
            await until(lambda: len(names(watched, "g")) == 4, "all of the gang run", 60)
            assert front.admission.gates.figures()["y"].opened == 4


async def test_subgroups_of_kai_start_together_each_in_its_rack(scheduled: tuple[ControlPlane, int]) -> None:
    plane, port = scheduled
    async with machines(plane, a0=1, a1=1, b0=1, b1=1, b2=1) as (api, _, watched):
        for kind in (KAI_POD_GROUPS, KAI_TOPOLOGIES):
            await define(api, kind)
        for name in ("a0", "a1", "b0", "b1", "b2"):
            await api.write(Patch(NODES, name, {"metadata": {"labels": {"rack": name[:1]}}}))
        tree = {"metadata": {"name": "tree"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
        await api.write(Create(KAI_TOPOLOGIES, tree))
        near = {"topology": "tree", "requiredTopologyLevel": "rack"}
        parts = [{"name": name, "minMember": n, "topologyConstraint": near} for name, n in (("two", 2), ("three", 3))]
        await api.write(Create(KAI_POD_GROUPS, {"metadata": {"name": "k"}, "spec": {"subGroups": parts}}, "default"))
        members = [waiting(f"{name}-{n}", "x") for name, count in (("two", 2), ("three", 3)) for n in range(count)]
        for pod in members:
            pod["metadata"]["annotations"]["pod-group-name"] = "k"
            pod["metadata"]["labels"][KAI_LABEL] = pod["metadata"]["name"].partition("-")[0]
        *first, last = members
        await create(api, *first)
        async with answering(api, port, *QUEUES):
            await until(
                lambda: any(
                    "subgroup three has 2 of 3 members" in (pod.metadata.annotations or {}).get(f"{GATE}-waits", "")
                    for pod in watched.mirror.objects.values()
                ),
                "the reason is shown",
                60,
            )
            await create(api, last)
            await until(lambda: len(watched.cards()) == 5, "all run", 120)
            racks = {pod.metadata.name: pod.spec.node_name[:1] for pod in watched.live()}
            assert {name: racks[name] for name in sorted(racks)} == {
                **{f"three-{n}": "b" for n in range(3)},
                **{f"two-{n}": "a" for n in range(2)},
            }


async def test_pods_that_need_no_kube_scheduler_and_others_share_the_cards(scheduled: tuple[ControlPlane, int]) -> None:
    plane, port = scheduled
    direct = [waiting(f"x{n}", "x") for n in range(6)]
    for pod in direct:
        del pod["spec"]["schedulingGates"]
        pod["spec"]["schedulerName"] = "ullage-direct"
    async with machines(plane, m=4) as (api, kubelets, watched):
        await create(api, *direct, *(waiting(f"y{n}", "y") for n in range(6)))
        async with answering(api, port, *QUEUES):
            await until(lambda: len(watched.cards()) == 4, "every card is used", 120)
            assert queues(watched) == {"x": 3, "y": 1}
            await finish(kubelets, watched, "x", "y")
            await until(lambda: watched.phases()["Succeeded"] >= 4, "they are done", 60)
            await until(lambda: len(watched.cards()) == 4, "every card is used again", 120)


async def test_others_leave_for_an_urgent_gang_which_starts_whole(scheduled: tuple[ControlPlane, int]) -> None:
    plane, port = scheduled
    async with machines(plane, u=2, v=2) as (api, kubelets, watched):
        await define(api, POD_GROUPS)
        urgent = {"metadata": {"name": "urgent-gangs"}, "value": 1000, "globalDefault": False}
        await api.write(Create(CLASSES, urgent))
        await create(api, *(waiting(f"s{n}", "x") for n in range(4)))
        async with answering(api, port, *QUEUES):
            await until(lambda: len(watched.cards()) == 4, "every card is used", 120)
            kubelets.may_end.clear()
            await api.write(Create(POD_GROUPS, {"metadata": {"name": "h"}, "spec": {"minMember": 2}}, "default"))
            members = [waiting(f"h{n}", "y", gpus=2, group="h") for n in range(2)]
            for pod in members:
                pod["spec"]["priorityClassName"] = "urgent-gangs"
            await create(api, *members)
            await until(lambda: all(pod.terminating for pod in watched.live()), "all others are asked to leave", 60)
            await create(api, waiting("t0", "z"))
            kubelets.may_end.set()
            await until(lambda: names(watched, "h") == {"h0", "h1"}, "both members run", 60)
            assert names(watched, "t") == names(watched, "s") == set()
