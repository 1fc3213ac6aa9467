"""A GPUBinding that comes after the pod of its application says why the pod does not have its card."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.hosting import ALONE, a_binding, a_machine, hosting, pod_of
from tests.kube.test_front import cards_of, put
from ullage.kube.client.http import HttpKubeApi
from ullage.wire.gpubinding import REASON, STATE

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]


def notes(server: ApiServer, name: str) -> dict[str, Any]:
    return dict(server.do(lambda: server.rules.get(("gpubindings", "", name)))["metadata"].get("annotations", {}))


async def test_it_names_the_pod_that_has_to_be_deleted_and_the_next_pod_has_its_card(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "gpubindings", a_binding("first", "g1"))
    (pod,) = put(server, "pods", pod_of("p"))
    async with hosting(server, api) as up:
        assert await up.place(pod, ["a"]) == "!a"
        put(server, "gpubindings", a_binding("late", "g2"))
        await until(lambda: REASON in notes(server, "late"), "the binding says why")
        assert notes(server, "late")[REASON] == (
            "pod default/p has run since before it was in force, and keeps the cards that it started with: delete the "
            "pod, and the next one has this card too"
        )
        assert STATE not in notes(server, "late"), "it is in force"
        assert REASON not in notes(server, "first")
        assert cards_of(server, "p") == ["g1"]
        server.do(lambda: server.rules.delete(("pods", "default", "p"), {"gracePeriodSeconds": 0}))
        await until(lambda: up.front.cluster.held(pod["metadata"]["uid"]) is None, "it is gone")
        (after,) = put(server, "pods", pod_of("after"))
        assert await up.place(after, ["a"]) == "!a"
        assert sorted(cards_of(server, "after")) == ["g1", "g2"]
        await until(lambda: REASON not in notes(server, "late"), "nothing is to be said any more")


async def test_a_pod_that_takes_single_cards_reports_no_unused_bindings(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_machine("a", {"g1": ALONE, "g2": ALONE}))
    put(server, "gpubindings", a_binding("one", "g1"), a_binding("two", "g2"))
    (pod,) = put(server, "pods", pod_of("p", consume="single"))
    async with hosting(server, api) as up:
        assert await up.place(pod, ["a"]) == "!a"
        put(server, "gpubindings", a_binding("wrong", "g2", memory="0"))
        await until(lambda: REASON in notes(server, "wrong"), "bindings were looked at")
        assert REASON not in notes(server, "one") | notes(server, "two")
