"""A Lease whose holder is known to have ended is not waited for, and nothing else takes one from its holder."""

import asyncio
import sys
from typing import Any

import msgspec
import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from tests.kube.test_lease import PLACE, Time, time
from ullage.kube.client.changes import Create, Delete, Patch, PatchType
from ullage.kube.client.holder import CONTAINER, HOLDER, NAMESPACE, POD, UID, ProcessPlace, here, place_of, started_at
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import LEASES, PODS
from ullage.kube.client.lease import Candidate

__all__ = ["time"]
pytestmark = pytest.mark.anyio
ELSEWHERE = {"kernel": "another-boot/pid:[1]", "pid": 1, "started": 1}


async def leading(api: HttpKubeApi, time: Time, **place: Any) -> Candidate:
    """One that leads, and that says it runs there."""
    first = time.candidate(api)
    first.place = msgspec.structs.replace(first.place, **place)
    await first.attempt()
    assert first.epoch == 1
    return first


async def a_pod(api: HttpKubeApi, name: str = "leader") -> dict[str, str]:
    made = PODS.read(await api.write(Create(PODS, bodies.pod(name), "default")))
    return {"namespace": "default", "pod": name, "uid": made.metadata.uid, "container": "ullage"}


def ended_at(moment: str, state: str = "lastState") -> dict[str, Any]:
    status = {"name": "ullage", state: {"terminated": {"finishedAt": moment}}}
    return {"status": {"containerStatuses": [status, {"name": "other"}]}}


async def test_a_killed_leader_of_this_kernel_is_replaced_at_once(api: HttpKubeApi, time: Time) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=pipe)
    await leading(api, time, pid=process.pid, started=started_at(process.pid))
    second = time.candidate(api)
    await time.wait(4, second)
    assert second.epoch is None, "it lives"
    process.kill()
    await process.wait()
    await second.attempt()
    assert second.epoch == 2
    assert not second.handed_over, "what it sent may be on its way"


async def test_another_process_with_its_number_is_not_it(api: HttpKubeApi, time: Time) -> None:
    await leading(api, time, started=1)
    second = time.candidate(api)
    await second.attempt()
    assert second.epoch == 2


async def test_a_restarted_container_leads_again_at_once(api: HttpKubeApi, time: Time) -> None:
    place = await a_pod(api)
    await leading(api, time, **ELSEWHERE, **place)
    other, again = time.candidate(api), time.candidate(api)
    other.place = msgspec.structs.replace(other.place, **place | {"uid": "another"})
    again.place = msgspec.structs.replace(again.place, **place)
    await other.attempt()
    assert other.epoch is None
    await again.attempt()
    assert again.epoch == 2


async def test_a_pod_that_is_gone_counts_when_a_renewal_was_missed(api: HttpKubeApi, time: Time) -> None:
    first = await leading(api, time, **ELSEWHERE, **await a_pod(api))
    second = time.candidate(api)
    await time.wait(6, first, second)
    await api.write(Delete(PODS, "leader", "default", grace_s=0))
    await time.wait(6, first, second)
    assert (first.epoch, second.epoch) == (1, None), "it renews, whatever became of its object"
    await time.wait(3, second, every_s=1)
    assert second.epoch == 2


@pytest.mark.parametrize("state", ["state", "lastState"])
@pytest.mark.parametrize(
    ("moment", "ended"), [("2026-05-04T03:02:02Z", True), ("2026-05-04T03:01:59Z", False), ("never", False)]
)
async def test_a_container_counts_that_ended_after_it_took_the_lease(
    api: HttpKubeApi, time: Time, state: str, moment: str, ended: bool
) -> None:
    await leading(api, time, **ELSEWHERE, **await a_pod(api))
    body = ended_at(moment, state)
    await api.write(Patch(PODS, "leader", body, "default", PatchType.MERGE, "status"))
    second = time.candidate(api)
    await second.attempt()
    await time.wait(3, second, every_s=1)
    assert second.epoch == (2 if ended else None)


async def test_what_cannot_be_read_proves_nothing(server: ApiServer, api: HttpKubeApi, time: Time) -> None:
    await leading(api, time, identity="of-another", started=1)
    second = time.candidate(api)
    await time.wait(14, second)
    assert second.epoch is None
    for text in ("", "{", "[]", '{"identity": 7}'):
        await api.write(Patch(LEASES, PLACE[0], {"metadata": {"annotations": {HOLDER: text}}}, PLACE[1]))
        assert place_of(await api.get(LEASES, *PLACE)) is None


@pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1, 2**80])
async def test_a_number_that_no_process_has_proves_nothing(api: HttpKubeApi, time: Time, pid: int) -> None:
    await leading(api, time, pid=pid)
    second = time.candidate(api)
    await time.wait(14, second)
    assert second.epoch is None
    assert second.last_error is None


async def test_a_pod_that_cannot_be_read_proves_nothing(server: ApiServer, api: HttpKubeApi, time: Time) -> None:
    await leading(api, time, **ELSEWHERE, **await a_pod(api))
    server.canned.append(Canned("GET", "/pods/leader", 403, times=1000))
    second = time.candidate(api)
    await second.attempt()
    await time.wait(14, second)
    assert second.epoch is None
    await time.wait(2, second)
    assert second.epoch == 2, "its time is over"


def test_a_process_says_where_it_runs() -> None:
    reported = {NAMESPACE: "n", POD: "p", UID: "u", CONTAINER: "c"}
    place = here("me", reported)
    assert place.identity == "me"
    assert (place.namespace, place.pod, place.uid, place.container) == ("n", "p", "u", "c")
    assert isinstance(place, ProcessPlace)
    assert place.kernel
    assert place.started > 0
