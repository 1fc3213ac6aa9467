"""The pod that leads has the label by which its Service finds it, and no other pod has it."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer, Canned
from ullage.core.placing.rules import Rules
from ullage.kube.client.changes import Create, Delete
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import PODS
from ullage.kube.client.lease import Candidate
from ullage.kube.context import KubeContext
from ullage.kube.followed import Followed
from ullage.kube.leader.leader_label import LEADER, LeaderLabel
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.service.cluster import Cluster

pytestmark = pytest.mark.anyio


async def labels(api: HttpKubeApi, *names: str) -> list[str | None]:
    return [((await api.get(PODS, name, "default")).metadata.labels or {}).get(LEADER) for name in names]


async def leading(api: HttpKubeApi, name: str = "here") -> tuple[LeaderLabel, Candidate, Any]:
    """One whose term is to begin, in the pod of that name."""
    candidate, mirror = Candidate(api, "ullage", "default"), SimpleNamespace(term=None, ready=True)
    context = KubeContext(
        api=api, candidate=candidate, cluster=Cluster(Rules(), lambda: 0.0), followed=Followed.of(api)
    )
    found = PODS.read(await api.write(Create(PODS, bodies.pod(name), "default")))
    place = {"namespace": "default", "pod": name, "uid": found.metadata.uid}
    candidate.place = msgspec.structs.replace(candidate.place, **place)
    await context.followed.pods.catch_up()
    return LeaderLabel(context, ReadyTerm(candidate, cast("Any", mirror))), candidate, mirror


async def test_the_label_is_written_when_the_term_has_begun_and_removed_from_former_leaders(api: HttpKubeApi) -> None:
    for name in ("before", "elsewhere"):
        await api.write(Create(PODS, bodies.pod(name, labels={LEADER: "true"}), "default"))
    await api.write(Delete(PODS, "elsewhere", "default", grace_s=0))
    label, candidate, mirror = await leading(api)
    label.begin()
    await label.controller.drain()
    await candidate.attempt()
    await label.controller.drain()
    assert await labels(api, "here", "before") == [None, "true"], "nobody is answered before the term has begun"
    mirror.term = candidate.epoch
    await label.controller.drain()
    assert await labels(api, "here", "before") == ["true", None]


async def test_a_write_that_fails_is_tried_again_and_one_term_writes_once(server: ApiServer, api: HttpKubeApi) -> None:
    label, candidate, mirror = await leading(api)
    await candidate.attempt()
    mirror.term = candidate.epoch
    label.begin()
    server.canned.append(Canned("PATCH", "/pods/here", 500))
    await label.controller.drain()
    assert await labels(api, "here") == [None]
    await label.controller.drain()
    assert await labels(api, "here") == ["true"]
    assert not len(label.controller), "nothing is left to be written in this term"


async def test_a_process_in_no_pod_writes_nothing(server: ApiServer, api: HttpKubeApi) -> None:
    label, candidate, mirror = await leading(api)
    candidate.place = msgspec.structs.replace(candidate.place, pod="", uid="")
    await candidate.attempt()
    mirror.term = candidate.epoch
    before = len(server.asked)
    label.begin()
    await label.controller.drain()
    assert len(server.asked) == before
