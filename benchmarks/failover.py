"""The time from a kill of the leader to the next bind by the other replica, on a control plane of real processes.

Work: 100 nodes of 8 cards, two processes of `ullage kube` with the terms of an installation behind one address, a
real kube-scheduler, and a client that creates a pod of a tenth to nine tenths of a card ten times a second. The
leader is killed five times, and replaced each time. Both processes run on this machine, so the other one sees that
the leader has ended. On two machines the report of the kubelet takes its place; where the machine itself is lost, the
lease runs out after 15 s.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kube.control_plane import ControlPlane, find
from tests.kube.live_front import LiveFront
from tests.kube.service import Service

from benchmarks.race import PODS_PATH, Api, nodes, part

_NODES, _KILLS = 100, 5
_EVERY_S, _BETWEEN_S, _DEADLINE_S = 0.1, 5.0, 120.0
_WHOLE = 1_000_000


class Arrivals:
    """Creates pods, one after the other, and notes which are bound when."""

    def __init__(self, api: Api) -> None:
        self._api, self.created = api, 0

    async def create(self) -> None:
        """Create pods until this is cancelled."""
        while True:
            await asyncio.to_thread(self._api.call, "POST", PODS_PATH, part(self.created))
            self.created += 1
            await asyncio.sleep(_EVERY_S)

    async def bound(self) -> list[dict[str, str]]:
        """Return the annotations of each pod that has a node."""
        page = await asyncio.to_thread(self._api.call, "GET", f"{PODS_PATH}?fieldSelector=spec.nodeName%21%3D")
        return [pod["metadata"]["annotations"] for pod in page["items"]]

    async def more_than(self, count: int) -> None:
        """Wait until more pods than this are bound."""
        end = time.perf_counter() + _DEADLINE_S
        while len(await self.bound()) <= count:
            assert time.perf_counter() < end, f"no pod was bound for {_DEADLINE_S:g} s"
            await asyncio.sleep(0.02)


async def measured(folder: Path, plane: ControlPlane, api: Api) -> tuple[list[float], Arrivals]:
    """Return the seconds from each kill to the next bind."""
    arrivals, fronts, seconds = Arrivals(api), list[LiveFront](), list[float]()

    async def another() -> None:
        place = folder / f"front-{len(fronts)}-{time.monotonic_ns()}"
        place.mkdir()
        fronts.append(await asyncio.to_thread(LiveFront(place, plane.kubeconfig).start))

    try:
        await another()
        await asyncio.to_thread(fronts[0].wait_ready)
        await another()
        async with Service(lambda: fronts) as service, _scheduler(plane, service.port):
            creating = asyncio.create_task(arrivals.create())
            for _ in range(_KILLS):
                await asyncio.sleep(_BETWEEN_S)
                leader = fronts.pop(0)
                assert leader.process is not None
                os.kill(leader.process.pid, signal.SIGKILL)
                began, before = time.perf_counter(), len(await arrivals.bound())
                await arrivals.more_than(before)
                seconds.append(time.perf_counter() - began)
                leader.kill()
                await another()
            creating.cancel()
            await asyncio.gather(creating, return_exceptions=True)
            await arrivals.more_than(arrivals.created - 1)
    finally:
        for front in fronts:
            front.kill()
    return seconds, arrivals


@asynccontextmanager
async def _scheduler(plane: ControlPlane, port: int) -> AsyncIterator[None]:
    scheduler = await asyncio.to_thread(plane.start_asking_scheduler, port)
    try:
        yield
    finally:
        await asyncio.to_thread(plane.stop, scheduler)


async def _most_held(arrivals: Arrivals) -> float:
    """Return the part of the fullest card that is held."""
    held = Counter[str]()
    for written in await arrivals.bound():
        (charge,) = json.loads(written["ullage.io/allocation"])["cards"]
        held[written["ullage.io/gpu-ids"]] += charge["compute"]
    return max(held.values()) / _WHOLE


def main() -> None:
    """Kill the leader, and print how long no pod was bound."""
    print("Failover: from a kill of the leader to the next bind")
    if not all(map(find, ("etcd", "kube-apiserver", "kube-scheduler"))):
        print("  not measured: no kube-scheduler in $KUBEBUILDER_ASSETS or on PATH; `make control-plane` builds it")
        return
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Path(folder))
        try:
            api = Api(plane)
            nodes(api, _NODES)
            seconds, arrivals = asyncio.run(measured(Path(folder), plane, api))
            most = asyncio.run(_most_held(arrivals))
        finally:
            plane.close()
    print(
        f"  {_KILLS} kills: median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s; "
        f"all {arrivals.created} pods are bound, the fullest card holds {most:.0%}"
    )


if __name__ == "__main__":
    main()
