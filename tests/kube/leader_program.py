"""A process that leads when it can, and writes on and on in its term: run by test_lease_processes."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from ullage.kube.client.changes import Patch
from ullage.kube.client.connection import connect
from ullage.kube.client.errors import Unreachable, VersionConflict
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES
from ullage.kube.client.lease import Candidate, LeaseTerms, NotLeading


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def lead(kubeconfig: Path, name: str) -> None:
    """Write until the term is over, each time on the version that was read."""
    async with connect(kubeconfig) as client:
        api = HttpKubeApi(client)
        candidate = Candidate(api, "leader", "default", LeaseTerms(5, 0.2, 4.0))
        trying = asyncio.create_task(candidate.run())
        while not trying.done():
            epoch = candidate.epoch
            if epoch is None:
                await asyncio.sleep(0.05)
                continue
            say(f"leads {epoch}")
            labels = {"writer": name, "epoch": str(epoch)}
            try:
                while True:
                    node = await api.get(NODES, "n1")
                    body = {"metadata": {"resourceVersion": node.metadata.resource_version, "labels": labels}}
                    with suppress(VersionConflict, Unreachable):
                        await candidate.write(epoch, Patch(NODES, "n1", body))
            except NotLeading as refused:
                say(f"over {epoch} {refused.code}")


if __name__ == "__main__":
    asyncio.run(lead(Path(sys.argv[1]), sys.argv[2]))
