"""Who gives way for parts of cards, before an API server; `test_stories.py` has it before a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kube import bodies
from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.test_front import Running, a_node, a_pod, put, running
from ullage.core.evicting.victims import Budgets
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.informer import Informer
from ullage.kube.client.objects import PodDisruptionBudget
from ullage.kube.evicting.preemption import AGAIN_S, ASKED_S, NODES_AT_ONCE, PATIENCE_S, RESERVED_S, Preemptor
from ullage.kube.extender.extender import Extender
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.claim import Request
from ullage.wire.extender import ExtenderArgs, PreemptionArgs, Victims

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

Document = dict[str, Any]
URGENT = 1_000


def a_part(name: str, percent: int = 50, priority: int = 0, **spec: Any) -> Document:
    words = {"gpu-count": "1", "compute-percent-request": str(percent)}
    pod = a_pod(name, 0, **words)
    pod["spec"] |= {"priority": priority} | spec
    pod["metadata"]["labels"] = {"app": name}
    return pod


def a_budget(server: ApiServer, name: str, app: str) -> None:
    budget = bodies.budget(name, {"app": app})
    put(server, "poddisruptionbudgets", {**budget, "metadata": {"namespace": "default", "name": name}})


@dataclass
class Pressed:
    """A front, and a preemptor whose clock the test moves; it gets the answers of the extender."""

    up: Running
    preemptor: Preemptor
    extender: Extender
    clock: list[float]
    pods: dict[str, Document] = field(default_factory=dict)

    def create(self, *pods: Document) -> None:
        for pod in put(self.up.server, "pods", *pods):
            self.pods[pod["metadata"]["name"]] = pod

    async def place(self, node: str, *pods: Document) -> None:
        self.create(*pods)
        for pod in pods:
            name = pod["metadata"]["name"]
            assert await self.up.place(self.pods[name], [node]) == f"!{node}"
            self._run(name)
            key = "default", name
            await until(lambda key=key: self._heard(key), "it is heard to run")

    def _run(self, name: str) -> None:
        """As a kubelet says: budgets count those that run."""
        server, key = self.up.server, ("pods", "default", name)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        server.do(lambda: server.store.put(key, {**server.rules.get(key), "status": ready}))

    def _heard(self, key: tuple[str, str]) -> bool:
        pod = self.up.front.pods.objects.get(key)
        return pod is not None and pod.status.phase == "Running"

    async def ask(self, name: str, *nodes: str) -> list[str]:
        """What kube-scheduler does: it asks where there is room."""
        await until(lambda: ("default", name) in self.up.front.pods.objects, "it is heard of")
        return self.extender.filter(ExtenderArgs(self.pods[name], node_names=list(nodes))).node_names or []

    async def look(self, seconds: float) -> set[str]:
        """Move the clock and make a round. Return the pods evicted by then."""
        self.clock[0] += seconds
        await self.preemptor.controller.drain()
        return self.leaving

    @property
    def leaving(self) -> set[str]:
        return {name for name in self.pods if "deletionTimestamp" in self.now(name)["metadata"]}

    def now(self, name: str) -> Document:
        server = self.up.server
        return server.do(lambda: server.rules.get(("pods", "default", name)))

    def nominate(self, name: str, node: str) -> None:
        """As kube-scheduler does once it has evicted others there."""
        server, key = self.up.server, ("pods", "default", name)
        status = {"nominatedNodeName": node} if node else {}
        server.do(lambda: server.store.put(key, {**server.rules.get(key), "status": status}))

    async def end(self, name: str) -> None:
        """As a kubelet does in the end."""
        server = self.up.server
        server.do(lambda: server.rules.delete(("pods", "default", name), {"gracePeriodSeconds": 0}))
        uid = self.pods.pop(name)["metadata"]["uid"]
        await until(lambda: self.up.front.cluster.held(uid) is None, "it is gone")

    async def heard_to_leave(self, *names: str) -> None:
        pods = self.up.front.pods.objects
        await until(lambda: all(pods["default", name].terminating for name in names), "that they leave is heard")


@asynccontextmanager
async def pressed(
    server: ApiServer,
    api: HttpKubeApi,
    nodes: int = 1,
    budgets: Callable[[], Iterable[PodDisruptionBudget]] | None = None,
    **terms: Any,
) -> AsyncIterator[Pressed]:
    """`budgets` are those that it has heard of, in place of those that are there."""
    put(server, "nodes", *(a_node(name, 1) for name in ascii_lowercase[:nodes]))
    async with running(server, api, preemption=False) as up:
        front, clock = up.front, [0.0]
        followed = front.followed
        if budgets is not None:
            heard = cast("Informer[PodDisruptionBudget]", SimpleNamespace(objects=SimpleNamespace(values=budgets)))
            followed = replace(followed, budgets=heard)
        context = replace(front.context, followed=followed, clock=lambda: clock[0])
        term = ReadyTerm(front.candidate, front.mirror)
        preemptor = Preemptor(context, term, **terms)
        asked = Extender(context, term, front.unconfirmed, front.plugins, preemptor=preemptor)
        await preemptor.controller.drain()
        yield Pressed(up, preemptor, asked, clock)


async def test_a_pod_of_lower_priority_is_evicted_after_the_scheduler_had_time_to_offer_victims(
    server: ApiServer, api: HttpKubeApi
):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", priority=5), a_part("two", priority=7))
        it.create(a_part("urgent", 50, URGENT))
        assert await it.ask("urgent", "a") == [], "it is asked about before a round has looked at their holders"
        assert await it.look(PATIENCE_S - 0.1) == set()
        assert await it.look(0.2) == {"one"}, "the one with the lowest priority, and no more than are needed"
        assert it.now("urgent")["metadata"]["annotations"]["ullage.io/room-on"] == "a"
        await it.heard_to_leave("one")
        assert await it.ask("urgent", "a") == []
        assert await it.look(10 * AGAIN_S) == {"one"}, "there is room when it is gone"
        await it.end("one")
        assert await it.ask("urgent", "a") == ["a"]
        assert it.preemptor.evicted == 1


async def test_nobody_is_evicted_for_an_equal_priority_or_a_pod_that_may_not_preempt(
    server: ApiServer, api: HttpKubeApi
):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one"), a_part("two"))
        it.create(a_part("equal"), a_part("modest", 50, URGENT, preemptionPolicy="Never"))
        for name in ("equal", "modest"):
            assert await it.ask(name, "a") == []
        assert await it.look(PATIENCE_S) == set()


async def test_a_pod_that_waits_gets_the_room_of_a_holder_of_lower_priority_that_came_later(
    server: ApiServer, api: HttpKubeApi
):
    async with pressed(server, api) as it:
        await it.place("a", a_part("equal", 60, URGENT))
        it.create(a_part("urgent", 60, URGENT))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == set()
        await it.end("equal")
        await it.place("a", a_part("low", 60))
        assert await it.look(AGAIN_S) == {"low"}


async def test_only_nodes_that_the_scheduler_asked_about_are_examined(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api, nodes=2) as it:
        await it.place("a", a_part("cheap", 60, 1))
        await it.place("b", a_part("dear", 60, 9))
        it.create(a_part("urgent", 50, URGENT))
        assert await it.ask("urgent", "b") == []
        assert await it.look(PATIENCE_S) == {"dear"}


async def test_a_budget_is_never_violated_and_all_victims_are_evicted_or_none(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one"), a_part("two"))
        a_budget(server, "b", "two")
        await until(lambda: bool(it.up.front.followed.budgets.objects), "the budget is observed")
        it.create(a_part("urgent", 80, URGENT))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == set()
        key = "poddisruptionbudgets", "default", "b"
        status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0}
        server.do(lambda: server.store.put(key, {**server.rules.get(key), "status": status}))
        budgets = it.up.front.followed.budgets.objects
        await until(lambda: budgets["default", "b"].status.disruptions_allowed == 1, "it is reported")
        assert await it.look(AGAIN_S - 1) == set(), "it is not tried again at once"
        assert await it.look(1) == {"one", "two"}


async def test_of_many_nodes_some_are_examined_in_each_attempt(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api, nodes=3, most_nodes=1) as it:
        for priority, node in enumerate("abc"):
            await it.place(node, a_part(f"on-{node}", 100, priority))
        for name in ("on-a", "on-b"):
            a_budget(server, name, name)
        await until(lambda: len(it.up.front.followed.budgets.objects) == 2, "the budgets are observed")
        it.create(a_part("urgent", 100, URGENT))
        assert await it.ask("urgent", "a", "b", "c") == []
        assert await it.look(PATIENCE_S) == set()
        assert await it.look(AGAIN_S) == set()
        assert await it.look(AGAIN_S) == {"on-c"}


async def test_a_budget_that_was_used_up_meanwhile_keeps_all_of_them(server: ApiServer, api: HttpKubeApi):
    """What was heard of a budget may be old; the dry run asks the server itself."""
    async with pressed(server, api, budgets=tuple) as it:
        await it.place("a", a_part("one"), a_part("two"))
        a_budget(server, "b", "two")
        it.create(a_part("urgent", 80, URGENT))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == set()
        assert "ullage.io/room-on" not in it.now("urgent")["metadata"]["annotations"]


async def test_nothing_is_evicted_if_the_scheduler_offers_victims_itself(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100))
        it.create(a_part("urgent", 100, URGENT))
        assert await it.ask("urgent", "a") == []
        offered = await it.extender.preempt(PreemptionArgs(it.pods["urgent"], {"a": Victims([])}))
        assert offered.node_name_to_meta_victims.keys() == {"a"}
        assert await it.look(AGAIN_S - 1) == set()
        assert await it.look(1) == {"one"}, "it did not"


async def test_other_questions_are_answered_while_victims_are_searched_on_many_nodes(
    server: ApiServer, api: HttpKubeApi, monkeypatch: pytest.MonkeyPatch
):
    async with pressed(server, api, nodes=2 * NODES_AT_ONCE + 1) as it:
        it.create(a_part("urgent", 100, URGENT))
        nodes = sorted(name for _, name in it.up.front.nodes.objects)
        searched: list[int] = []
        turns: list[int] = []
        victims = it.up.front.cluster.victims

        def watched(request: Request, candidates: Mapping[str, Sequence[str]], *budgets: Budgets) -> object:
            searched.append(len(candidates))
            return victims(request, candidates, *budgets)

        async def other() -> None:
            while True:
                turns.append(len(searched))
                await asyncio.sleep(0)

        monkeypatch.setattr(it.up.front.cluster, "victims", watched)
        asking = asyncio.create_task(other())
        await it.extender.preempt(PreemptionArgs(it.pods["urgent"], {node: Victims([]) for node in nodes}))
        asking.cancel()
        assert searched == [NODES_AT_ONCE, NODES_AT_ONCE, 1]
        assert {1, 2} <= set(turns)


async def test_a_scheduler_that_knows_first_that_its_victims_are_gone_gets_no_others(
    server: ApiServer, api: HttpKubeApi
):
    async with pressed(server, api, nodes=2) as it:
        await it.place("a", a_part("one", 100))
        await it.place("b", a_part("two", 100))
        it.create(a_part("urgent", 100, URGENT))
        offered = {"a": Victims([]), "b": Victims([])}

        async def asked(node: str) -> list[str]:
            pod = {**it.pods["urgent"], "status": {"nominatedNodeName": node}}
            return list((await it.extender.preempt(PreemptionArgs(pod, offered))).node_name_to_meta_victims)

        assert await it.ask("urgent", "a", "b") == []
        assert await asked("a") == ["a", "b"], "nobody leaves"
        server.do(lambda: server.rules.delete(("pods", "default", "one"), {}))
        await it.heard_to_leave("one")
        assert (await asked("a"), await asked("b"), await asked("gone")) == ([], ["b"], ["b"])
        for closed in (True, False):
            key, spec = ("nodes", "", "a"), {"unschedulable": closed}
            server.do(lambda key=key, spec=spec: server.store.put(key, {**server.rules.get(key), "spec": spec}))
            await until(lambda spec=spec: it.up.front.nodes.objects["", "a"].document["spec"] == spec, "it is heard")
            assert await asked("a") == (["b"] if closed else []), "nobody goes where nobody may"
        await it.end("one")
        assert (await asked("a"), await asked("b")) == ([], ["b"]), "there is room now"
        assert await it.ask("urgent", "a", "b") == ["a"]
        assert await asked("a") == ["b"], "the scheduler has reasons of its own against it"
        assert await it.ask("urgent", "b") == []
        assert await asked("a") == ["b"], "it has, and did not even ask about it"


async def test_a_scheduler_that_does_not_say_yet_which_node_it_nominated_evicts_no_others(
    server: ApiServer, api: HttpKubeApi
):
    """An older watch event of the pod may arrive later."""
    async with pressed(server, api, nodes=2) as it:
        await it.place("a", a_part("one", 100))
        await it.place("b", a_part("two", 100))
        it.create(a_part("urgent", 100, URGENT), a_part("other", 100, URGENT))

        async def asked(name: str) -> list[str]:
            args = PreemptionArgs(it.pods[name], {"a": Victims([]), "b": Victims([])})
            return list((await it.extender.preempt(args)).node_name_to_meta_victims)

        assert await it.ask("urgent", "a", "b") == []
        assert await asked("urgent") == ["a", "b"]
        server.do(lambda: server.rules.delete(("pods", "default", "one"), {}))
        await it.heard_to_leave("one")
        assert await asked("urgent") == []
        assert await it.ask("other", "a", "b") == []
        assert await asked("other") == ["b"], "nobody was named for this one before"
        assert await it.ask("urgent", "a", "b") == []
        await it.end("one")
        assert await asked("urgent") == [], "there is room now"
        names = {"PodName": "urgent", "PodNamespace": "default", "PodUID": it.pods["urgent"]["metadata"]["uid"]}
        assert await it.ask("urgent", "a") == ["a"]
        await it.up.ask("bind", **names, Node="a")
        assert await asked("urgent") == [], "it has a place"


async def test_simulated_and_old_requests_evict_nobody(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100))
        it.create(a_part("urgent", 100, URGENT), a_part("old", 100, URGENT))
        nodes = {"items": [a_node("a", 1)]}
        assert not (it.extender.filter(ExtenderArgs(it.pods["urgent"], nodes=nodes)).nodes or {})["items"]
        assert await it.look(PATIENCE_S) == set()
        assert await it.ask("old", "a") == []
        assert await it.look(ASKED_S + 1) == set()


async def test_room_is_reserved_until_it_is_used_or_expires(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100))
        it.create(a_part("urgent", 100, URGENT), a_part("low", 100, 1))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == {"one"}
        await it.heard_to_leave("one")
        await it.look(100 * RESERVED_S)
        await it.end("one")
        assert await it.ask("low", "a") == [], "it is kept for another"
        await it.look(RESERVED_S - 1)
        assert await it.ask("low", "a") == []
        await it.look(1)
        assert "ullage.io/room-on" not in it.now("urgent")["metadata"]["annotations"]
        assert await it.ask("low", "a") == ["a"]


async def test_room_stays_reserved_over_a_change_of_leaders(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100))
        it.create(a_part("urgent", 100, URGENT), a_part("low", 100, 1))
        assert await it.ask("urgent", "a") == []
        assert await it.look(PATIENCE_S) == {"one"}
        await until(lambda: _room(it, "urgent") == "a", "it is heard")
        it.up.front.cluster.withdraw(it.pods["urgent"]["metadata"]["uid"])
        it.preemptor.begin()
        await it.end("one")
        assert await it.ask("low", "a") == []
        assert await it.ask("urgent", "a") == ["a"]


async def test_room_from_victims_of_the_scheduler_is_reserved_for_its_pod(server: ApiServer, api: HttpKubeApi):
    async with pressed(server, api) as it:
        await it.place("a", a_part("one", 100))
        it.create(a_part("urgent", 100, URGENT), a_part("low", 100, 1), a_part("higher", 100, 2 * URGENT))
        await it.ask("urgent", "a")
        it.nominate("urgent", "a")
        await until(lambda: it.up.front.cluster.allocator.nominations.entries, "it is heard")
        await it.end("one")
        assert await it.ask("low", "a") == []
        assert await it.ask("higher", "a") == [], "nobody leaves in vain"
        assert await it.ask("urgent", "a") == ["a"]
        it.nominate("urgent", "")
        await until(lambda: not it.up.front.cluster.allocator.nominations.entries, "it is heard")
        assert await it.ask("low", "a") == ["a"]


def _room(it: Pressed, name: str) -> str:
    return (it.up.front.pods.objects["default", name].metadata.annotations or {}).get("ullage.io/room-on", "")
