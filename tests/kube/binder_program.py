"""A process that leads when it can, and binds one pod then: run by test_lease_processes.

With `hold` it stands still between its last look at its term and the write, until a line comes in.
"""

import asyncio
import sys
from pathlib import Path

from tests.kube.conftest import until
from tests.kube.leader_program import say
from ullage.bootstrap.kube_front import make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.changes import Bind, Change
from ullage.kube.client.connection import connect
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import PODS
from ullage.kube.client.lease import Candidate, LeaseTerms
from ullage.model.error import UllageError
from ullage.wire.extender import BindArgs


class Holding(HttpKubeApi):
    """Waits before a bind is sent, as a process does that is stopped there: nothing else goes on either.

    What is on its way to the network then goes on by itself, whoever still waits for the answer.
    """

    async def write(self, change: Change) -> bytes:
        if not isinstance(change, Bind):
            return await super().write(change)
        say("sends")
        sys.stdin.readline()
        return await asyncio.shield(asyncio.create_task(super().write(change)))


async def bind(kubeconfig: Path, pod: str, hold: bool) -> None:
    """Bind it to the node n1, in the first term."""
    async with connect(kubeconfig) as client:
        api = (Holding if hold else HttpKubeApi)(client)
        front = make_front(api, Candidate(api, "ullage", "default", LeaseTerms(5, 0.2, 4.0)), Rules())
        trying = asyncio.create_task(front.run())
        await until(lambda: not front.extender.unready, "it leads", 500)
        say(f"leads {front.candidate.epoch}")
        uid = (await api.get(PODS, pod, "default")).metadata.uid
        try:
            await front.extender.bind(BindArgs(pod, "default", uid, "n1"))
            say("bound")
        except UllageError as refused:
            say(f"refused {refused.code}")
        await trying


if __name__ == "__main__":
    asyncio.run(bind(Path(sys.argv[1]), sys.argv[2], hold=len(sys.argv) > 3))
