"""What people see of decisions on their pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clock import Clock
from tests.kube.api_server import ApiServer, Canned
from tests.kube.conftest import until
from tests.kube.test_front import a_node, a_pod, put, running
from ullage.kube import events
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.events import AGAIN_S, EventRecorder, PodEvent, Reason

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]


def recorded(server: ApiServer) -> list[tuple[str, str, str]]:
    found = server.do(
        lambda: [item for key, item in server.store.at(server.store.revision).items() if key[0] == "events"]
    )
    return [(item["involvedObject"]["name"], item["reason"], item["message"]) for item in found]


async def test_events_of_a_pod_say_why_it_is_not_placed_and_where_it_went(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    first, second = put(server, "pods", a_pod("first"), a_pod("second", 2))
    async with running(server, api) as up:
        assert await up.place(first, ["a"]) == "!a"
        for _ in range(3):  # a scheduler that retries causes one event
            await up.ask("filter", Pod=second, NodeNames=["a", "b"])
        server.canned.append(Canned("POST", "/binding", 403, times=1))
        (third,) = put(server, "pods", a_pod("third"))
        assert "forbidden" in await up.place(third, ["b"])
        await until(lambda: len(recorded(server)) == 3, "all three are written")
        by_pod = {name: (reason, message) for name, reason, message in recorded(server)}
        assert by_pod["first"] == ("BindingSucceed", "bound to a")
        assert by_pod["second"] == (
            "FilteringFailed",
            (
                "asks for 2 whole cards, gpu_vendor=NVIDIA; the largest node has 1 card "
                "(all 2 cards of 2 nodes looked at); nvidia.com/gpu: 1 would fit on 1 node now; "
                "2 of 2 nodes: NodeInsufficientDevice"
            ),
        )
        assert by_pod["third"][0] == "BindingFailed"
        assert "kube-forbidden" in by_pod["third"][1]


async def test_only_the_leader_records_events_and_a_limited_number(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 2)
    clock, candidate = Clock(), Candidate(api, "ullage", "default")
    recorder = EventRecorder(candidate, clock=clock)

    def event(**other: Any) -> PodEvent:
        return PodEvent(**{"namespace": "default", "pod": "p", "uid": "u", "reason": Reason.FILTERING_FAILED} | other)

    recorder.record(event(message="by a follower"))
    await candidate.attempt()
    for message in ("one", "one", "two", "three"):
        recorder.record(event(message=message))
    assert recorder.dropped == 1
    await recorder.controller.drain()
    clock.now += AGAIN_S
    recorder.record(event(message="one"))
    server.canned.append(Canned("POST", "/events", 403, times=1))
    await recorder.controller.drain()
    assert recorder.dropped == 2, "one more is refused"
    recorder.record(event(message="too late"))
    await candidate.release()
    recorder.record(event(message="after the term"))
    await recorder.controller.drain()
    assert sorted(message for _, _, message in recorded(server)) == ["one", "two"]


async def test_an_event_that_was_dropped_is_written_when_it_is_recorded_again(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 1)
    candidate = Candidate(api, "ullage", "default")
    recorder = EventRecorder(candidate, clock=Clock())
    await candidate.attempt()
    one, two = (PodEvent("default", "p", "u", Reason.CARD_MISSING, message) for message in ("one", "two"))
    server.canned.append(Canned("POST", "/events", 403, times=1))
    recorder.record(one)
    recorder.record(two)
    assert recorder.dropped == 1
    await recorder.controller.drain()
    assert recorder.dropped == 2, "the first is refused, the second had no room"
    for event in (one, two):
        recorder.record(event)
        await recorder.controller.drain()
    assert [message for _, _, message in recorded(server)] == ["one", "two"]


async def test_a_pod_whose_annotations_the_webhook_removed_has_an_event_once(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1))
    old, new = a_pod("old"), a_pod("new")
    for pod in (old, new):
        pod["metadata"]["annotations"] = {"ullage.io/removed-annotations": "hami.io/bind-phase,ullage.io/gpu-ids"}
    put(server, "pods", new)
    async with running(server, api) as up:
        await until(lambda: len(recorded(server)) == 1, "the pod from before the term has its event")
        assert recorded(server) == [
            (
                "new",
                "AnnotationsRemoved",
                (
                    "annotations were removed at creation, as only a scheduler writes them: "
                    "hami.io/bind-phase, ullage.io/gpu-ids"
                ),
            )
        ]
        put(server, "pods", a_pod("plain"), a_pod("later") | {"metadata": {**old["metadata"], "name": "later"}})
        await until(lambda: len(recorded(server)) == 2, "a new pod has its event")
        assert {name for name, _, _ in recorded(server)} == {"new", "later"}
        assert await up.place(up.server.do(lambda: up.server.rules.get(("pods", "default", "later"))), ["a"]) == "!a"
