"""Pods that wait for their turn, before an API server: who goes when, what is written, and what a restart finds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.clock import Clock
from tests.kube.api_server import ApiServer, Canned
from tests.kube.at_work import answers, at_work
from tests.kube.conftest import until
from tests.kube.hami_node import hami_node
from tests.kube.test_events import recorded
from tests.kube.test_front import GPU, a_node, a_pod, put
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.controller import OnError
from ullage.kube.extender.extender import Extender
from ullage.kube.front import Front
from ullage.kube.mirror.cards import RegisteredCards
from ullage.model.error import UllageError
from ullage.model.queue import Queue, parse_queue
from ullage.service.expected_places import EXPECTED_S
from ullage.service.gates import OPEN_S
from ullage.wire.extender import BindArgs, ExtenderArgs

pytestmark = [pytest.mark.timeout(900), pytest.mark.anyio]

GATE = "ullage.io/queue"
Taints = Callable[[dict[str, Any], str], bool]


def waiting(name: str, gpus: int = 1, queue: str = "x", **annotations: str) -> dict[str, Any]:
    pod = a_pod(name, gpus, **annotations)
    pod["metadata"]["labels"] = {GATE: queue}
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    return pod


class Scheduler:
    """What kube-scheduler does: it looks at pods without gates, asks the extender, and has it bind.

    `refuses` are its own reasons against a node, which the extender does not know. `holds` keeps it from binding.
    """

    def __init__(self, server: ApiServer, extender: Extender, refuses: Taints, holds: set[str]) -> None:
        self.server, self.extender, self.refuses, self.holds = server, extender, refuses, holds
        self.order: list[str] = []

    async def run(self) -> None:
        while True:
            for pod in pods_of(self.server).values():
                spec = pod["spec"]
                direct = spec.get("schedulerName") == "ullage-direct"
                if not (spec.get("nodeName") or spec.get("schedulingGates") or direct):
                    await self._place(pod)
            await asyncio.sleep(0.01)

    async def _place(self, pod: dict[str, Any]) -> None:
        names = [name for name in self.server.do(lambda: nodes_of(self.server)) if not self.refuses(pod, name)]
        if pod["metadata"]["name"] in self.holds or not names:
            return
        args = ExtenderArgs(pod=pod, node_names=tuple(names))
        try:
            found = self.extender.filter(args).node_names or ()
            if not found:
                return
            scores = self.extender.prioritize(ExtenderArgs(pod=pod, node_names=tuple(found)))
            best = max(scores, key=lambda name: scores[name])
            meta = pod["metadata"]
            await self.extender.bind(BindArgs(meta["name"], meta["namespace"], meta["uid"], best))
        except UllageError:
            return
        self.order.append(pod["metadata"]["name"])


def nodes_of(server: ApiServer) -> list[str]:
    return [key[2] for key in server.store.at(server.store.revision) if key[0] == "nodes"]


def pods_of(server: ApiServer) -> dict[str, dict[str, Any]]:
    found = server.do(lambda: server.store.at(server.store.revision))
    return {key[2]: pod for key, pod in found.items() if key[0] == "pods"}


class Story:
    def __init__(self, server: ApiServer, front: Front, scheduler: Scheduler, clock: Clock) -> None:
        self.server, self.front, self.scheduler, self.clock = server, front, scheduler, clock

    @property
    def bound(self) -> set[str]:
        return {name for name, pod in pods_of(self.server).items() if pod["spec"].get("nodeName")}

    @property
    def gated(self) -> set[str]:
        return {name for name, pod in pods_of(self.server).items() if pod["spec"].get("schedulingGates")}

    def queues(self) -> Counter[str]:
        found = pods_of(self.server)
        return Counter(found[name]["metadata"]["labels"][GATE] for name in self.bound)

    def note(self, name: str, key: str = "waits") -> str:
        return str(pods_of(self.server)[name]["metadata"].get("annotations", {}).get(f"ullage.io/queue-{key}", ""))

    def nominated(self, name: str) -> str:
        return str(pods_of(self.server)[name]["status"].get("nominatedNodeName", ""))

    def heard(self, name: str) -> bool:
        """Whether the front knows the pod as it is now."""
        known, now = self.front.pods.objects.get(("default", name)), pods_of(self.server)[name]["metadata"]
        return known is not None and known.metadata.resource_version == now["resourceVersion"]

    def end(self, name: str) -> None:
        self.server.do(lambda: self.server.rules.delete(("pods", "default", name), {"gracePeriodSeconds": 0}))

    async def reported(self, name: str, word: str) -> None:
        await until(lambda: word in self.note(name), lambda: f"{name} has {word}, not {self.note(name)}")


@asynccontextmanager
async def story(
    server: ApiServer,
    api: HttpKubeApi,
    *queues: Queue,
    refuses: Taints = lambda _pod, _node: False,
    holds: set[str] | None = None,
    leads: bool = True,
    on_error: OnError = lambda _kind, _name, _error: None,
) -> AsyncIterator[Story]:
    clock, settings = Clock(), FrontSettings(queues=queues, readers=[RegisteredCards()])
    front = make_front(api, Candidate(api, "ullage", "default"), Rules(), settings, clock=clock, on_error=on_error)
    scheduler = Scheduler(server, front.extender, refuses, holds if holds is not None else set())
    async with at_work(front, answers if leads else lambda _: True):
        work = asyncio.create_task(scheduler.run() if leads else asyncio.Event().wait())
        try:
            yield Story(server, front, scheduler, clock)
        finally:
            work.cancel()
            (ended,) = await asyncio.gather(work, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError), ended


async def test_pods_go_in_the_order_of_shares_and_the_rest_have_a_reason(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 4), a_node("b", 4))
    put(server, "pods", *(waiting(f"x{n}") for n in range(8)), *(waiting(f"y{n}", queue="y") for n in range(8)))
    async with story(server, api, Queue("x", weight=3)) as up:
        await until(lambda: len(up.bound) == 8, "all cards are used")
        assert up.queues() == {"x": 6, "y": 2}
        left = sorted(up.gated)
        assert len(left) == 8
        for name in left:
            await up.reported(name, "insufficient-gpu: ")
        assert {up.note(name).rsplit("; ")[-1] for name in left} == {
            *(f"{n} of 2 in queue x" for n in (1, 2)),
            *(f"{n} of 6 in queue y" for n in range(1, 7)),
        }
        up.end(next(name for name in up.bound if name.startswith("y")))
        await until(lambda: len(up.bound) == 8, "the next one goes")
        assert up.queues() == {"x": 6, "y": 2}
        went = next(name for name in up.bound if name.startswith("y"))
        assert not up.note(went)
        assert up.note(went, "place") in "ab"


async def test_containers_that_can_only_share_a_card_wait_for_one_that_they_share(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", hami_node("a", "A0", mib=8000))
    pod = waiting("p")
    limits = {GPU: "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
    pod["spec"]["containers"] = [{"name": name, "image": "x", "resources": {"limits": limits}} for name in "cd"]
    put(server, "pods", pod)
    async with story(server, api) as up:
        await until(lambda: up.bound == {"p"}, lambda: f"its gate opens: {up.note('p')}")


async def test_pod_groups_are_admitted_as_a_whole(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 1))
    members = [waiting(f"m{n}", queue="y") for n in range(3)]
    for member in members:
        member["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "train"
    put(server, "pods", waiting("s"), *members)
    async with story(server, api) as up:
        await up.reported("m0", "pod-group-missing: ")
        await until(lambda: up.bound == {"s"}, "who is alone goes")
        put(server, "podgroups", {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 3}})
        await up.reported("m2", "gang-does-not-fit: ")
        up.end("s")
        await until(lambda: up.bound == {"m0", "m1", "m2"}, "all of them go")


async def test_members_that_run_count_after_a_restart_and_a_group_that_is_not_there_is_waited_for(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 4))
    members = [waiting(f"m{n}") for n in range(3)]
    for member in members:
        member["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "train"
    put(server, "podgroups", {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 2}})
    put(server, "pods", *members[:2])
    async with story(server, api) as up:
        await until(lambda: up.bound == {"m0", "m1"}, "both go")
    other = waiting("other")
    other["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "missing"
    put(server, "pods", other, members[2])
    async with story(server, api) as up:
        await until(lambda: up.bound == {"m0", "m1", "m2"}, "the third goes by itself")
        await up.reported("other", "pod-group-missing: ")


@pytest.mark.parametrize("carried_out", [False, True])
async def test_gangs_by_annotations_are_admitted_as_a_whole_after_a_failed_write(
    server: ApiServer, api: HttpKubeApi, carried_out: bool
) -> None:
    put(server, "nodes", a_node("a", 4))
    gang = {"gang-min-members": "4", "gang-group-key": "default/train"}
    put(server, "pods", *(waiting(f"m{n}", **gang) for n in range(3)))
    async with story(server, api) as up:
        for name in ("m0", "m1", "m2"):
            await up.reported(name, "gang-incomplete: ")
        server.canned.append(Canned("PATCH", "/pods/m1", 500, times=2, carried_out=carried_out))
        put(server, "pods", waiting("m3", **gang))
        await until(lambda: len(up.bound) == 4, "all of them go", 30)
        assert up.front.admission.failed >= 1


async def test_a_pod_that_its_scheduler_refuses_has_another_place(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    holds = {"p"}
    put(server, "pods", waiting("p"))
    async with story(server, api, holds=holds) as up:
        await until(lambda: up.note("p", "place") != "", "it has a place")
        first = up.note("p", "place")
        put(server, "pods", waiting("q"), waiting("r"))
        await until(lambda: len(up.bound) == 1, "the other place is used")
        up.clock.now += OPEN_S
        await until(lambda: len(up.bound) == 2, "what was kept is used")
        assert up.front.admission.gates.figures()["x"].returned == 1
        other = next(name for name in ("a", "b") if name != first)
        up.end(next(name for name, pod in pods_of(server).items() if pod["spec"].get("nodeName") == other))
        await until(lambda: up.note("p", "place") == other, "it has another place")
        holds.clear()
        await until(lambda: "p" in up.bound, "it is placed")


async def test_an_admitted_pod_has_its_place_as_nominated_node_which_follows_the_place(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    holds = {"p"}
    put(server, "pods", waiting("p"))
    async with story(server, api, holds=holds) as up:
        await until(lambda: up.gated == set(), "its gate is open")
        first = up.note("p", "place")
        assert up.nominated("p") == first
        await until(lambda: up.heard("p"), "the front knows that")
        up.clock.now += OPEN_S
        await until(lambda: up.note("p", "place") not in ("", first), "it has another place")
        assert up.nominated("p") == up.note("p", "place")
        entries = {entry.request.uid: entry.node for entry in up.front.cluster.allocator.nominations.entries}
        assert set(entries.values()) == {up.note("p", "place")}, "nothing is kept for it where it was"


async def test_a_nomination_of_its_scheduler_stays_and_one_of_a_lost_admission_keeps_no_room(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    put(server, "pods", waiting("p"))
    holds = {"p"}

    def nominate(node: str) -> None:
        key = ("pods", "default", "p")
        server.do(lambda: server.store.put(key, {**server.rules.get(key), "status": {"nominatedNodeName": node}}))

    nominate("b")  # the process that admitted it ended before it removed the gate
    put(server, "pods", waiting("first"))
    async with story(server, api, holds=holds) as up:
        await until(lambda: up.gated == set(), "both gates are open")
        await until(lambda: up.bound == {"first"}, "the other one is placed")
        place = up.note("p", "place")
        assert up.nominated("p") == place
        nominate("elsewhere")
        await until(lambda: up.heard("p"), "the front knows that")
        up.end("first")
        up.clock.now += OPEN_S
        await until(lambda: up.note("p", "place") != place, "it has another place")
        assert up.nominated("p") == "elsewhere"


async def test_without_the_right_to_nominate_gates_open_and_one_error_says_so(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 2))
    errors: list[UllageError] = []
    server.canned.append(Canned("PATCH", "/status", 403, times=9))
    put(server, "pods", waiting("p"), waiting("q"))
    async with story(server, api, on_error=lambda _kind, _name, error: errors.append(error)) as up:
        await until(lambda: up.bound == {"p", "q"}, "both are placed")
    assert {error.code for error in errors} == {"kube-forbidden"}
    assert server.canned[0].times > 0, "it is not tried for each pod"


@pytest.mark.parametrize("unwanted", ["a", "b"])
async def test_where_its_scheduler_does_not_want_it_another_free_place_does_at_once(
    server: ApiServer, api: HttpKubeApi, unwanted: str
) -> None:
    put(server, "nodes", a_node("a", 1), a_node("b", 1))
    put(server, "pods", waiting("p"))
    async with story(server, api, refuses=lambda _pod, node: node == unwanted) as up:
        await until(lambda: up.bound == {"p"}, "it is placed")
        assert not up.front.cluster.allocator.nominations.entries


async def test_a_restart_in_the_middle_loses_no_place_and_changes_no_order(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 2), a_node("b", 2))
    pods = put(server, "pods", *(waiting(f"{'xy'[n % 2]}{n}", queue="xy"[n % 2]) for n in range(12)))
    holds = {pod["metadata"]["name"] for pod in pods}
    async with story(server, api, holds=holds) as up:
        await until(lambda: len(up.gated) == 8, "four gates are open")
        went = sorted(holds - up.gated)
        places = {name: up.note(name, "place") for name in went}
    put(server, "pods", a_pod("intruder"))
    holds.add("intruder")
    async with story(server, api, holds=holds) as up:
        uids = {name: pod["metadata"]["uid"] for name, pod in pods_of(server).items()}
        assert up.front.admission.gates.places() == {uids[name]: node for name, node in places.items()}
        args = ExtenderArgs(pod=pods_of(server)["intruder"], node_names=("a", "b"))
        assert not up.front.extender.filter(args).node_names
        holds.difference_update(went)
        await until(lambda: len(up.bound) == 4, "they are placed")
        assert sorted(up.bound) == went
        assert {name: up.note(name, "place") for name in went} == places
        for name in went:
            up.end(name)
        await until(lambda: len(up.gated) == 4, "the next ones go")
        holds -= {"intruder"} ^ holds
        await until(lambda: len(up.bound) == 4, "the next ones are placed")
        assert up.queues() == {"x": 2, "y": 2}


async def test_a_restart_writes_no_reason_a_second_time(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    put(server, "pods", waiting("x0"), waiting("x1", 2))
    async with story(server, api) as up:
        await up.reported("x1", "1 of 1 in queue x")
        written = pods_of(server)["x1"]["metadata"]["resourceVersion"]
    async with story(server, api) as up:
        put(server, "pods", waiting("y0", 2, queue="y"))
        await up.reported("y0", "1 of 1 in queue y")
        assert pods_of(server)["x1"]["metadata"]["resourceVersion"] == written


async def test_followers_open_nothing(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    async with story(server, api):
        put(server, "pods", waiting("p", 2))
        async with story(server, api, leads=False) as follower:
            await until(lambda: len(follower.front.pods.objects) == 1, "it is heard of")
            put(server, "nodes", a_node("b", 2))
            await until(lambda: "p" in follower.bound, "the leader lets it go")
            assert not follower.front.admission.gates.places()
            assert not follower.front.cluster.allocator.nominations.entries


async def test_limits_of_queues_hold_and_are_reported(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 4))
    put(server, "pods", *(waiting(f"x{n}") for n in range(4)))
    async with story(server, api, parse_queue("x", "root", 1, None, "gpu=2")) as up:
        await up.reported("x3", "queue-limit: ")
        await until(lambda: up.bound == {"x0", "x1"}, "the others go")


async def test_pods_with_other_gates_are_left_alone_and_pods_without_cards_are_admitted_at_once(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1))
    other, plain, wrong = waiting("other"), waiting("plain", 0), waiting("wrong", 0)
    other["spec"]["schedulingGates"].append({"name": "example.com/quota"})
    wrong["metadata"]["annotations"] = {"ullage.io/gpu-count": "many"}
    put(server, "pods", other, plain, wrong)
    async with story(server, api) as up:
        await until(lambda: up.gated == {"other", "wrong"}, "the gate of the plain one is open")
        await up.reported("wrong", "invalid-annotation: ")
        put(server, "pods", waiting("p"))
        await until(lambda: "p" in up.bound, "nothing is kept for the other one")


async def test_a_pod_that_also_waits_for_claims_is_admitted_first_and_keeps_its_place(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1))
    both = waiting("both")
    both["spec"]["schedulingGates"].insert(0, {"name": "ullage.io/claims"})
    put(server, "pods", both)
    async with story(server, api) as up:
        await until(lambda: up.note("both", "place") == "a", "it had its turn")
        gates = pods_of(server)["both"]["spec"]["schedulingGates"]
        assert gates == [{"name": "ullage.io/claims"}]
        put(server, "pods", waiting("p"))
        await up.reported("p", "insufficient-gpu: ")
        assert len(up.front.admission.gates.places()) == 1


async def test_a_deleted_pod_holds_nothing(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    put(server, "pods", waiting("p"))
    async with story(server, api, holds={"p"}) as up:
        await until(lambda: not up.gated, "its gate is open")
        up.end("p")
        put(server, "pods", waiting("q"))
        await until(lambda: up.bound == {"q"}, "the next one is placed")
        assert not up.front.cluster.allocator.nominations.entries


async def test_the_queue_of_a_pod_is_that_of_its_namespace_if_it_names_none(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "namespaces", {"metadata": {"name": "team", "labels": {GATE: "lab"}}}, {"metadata": {"name": "solo"}})
    bodies = [waiting(f"p{n}") for n in range(3)]
    for body, namespace in zip(bodies, ("team", "solo", "team"), strict=True):
        body["metadata"]["namespace"] = namespace
        del body["metadata"]["labels"]
    bodies[2]["metadata"]["labels"] = {GATE: "other"}
    put(server, "pods", *bodies)
    async with story(server, api) as up:
        gates, expected = up.front.admission.gates, {"lab": 1, "solo": 1, "other": 1}
        await until(
            lambda: {name: each.waiting for name, each in gates.figures().items()} == expected,
            lambda: f"they are known: {gates.figures()}",
        )
        assert GPU in str(bodies[0])


class Losing:
    """Writes of a candidate, of which the first on a pod that waits fails after something else happened."""

    def __init__(self, candidate: Candidate, meanwhile: Callable[[], None]) -> None:
        self._candidate, self._meanwhile, self.lost = candidate, meanwhile, 0

    @property
    def epoch(self) -> int | None:
        return self._candidate.epoch

    async def write(self, epoch: int, change: Any) -> bytes:
        if "queue-waits" in str(change) and not self.lost:
            self.lost += 1
            self._meanwhile()
            raise UllageError("no answer")
        return await self._candidate.write(epoch, change)


async def test_a_new_reason_is_reported_though_the_last_write_was_lost(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    put(server, "pods", waiting("p"))
    async with story(server, api) as up:
        await until(lambda: up.bound == {"p"}, "the first goes")
        keeper = up.front.admission
        (pod,) = put(server, "pods", waiting("q"))

        def meanwhile() -> None:
            keeper._to_report[pod["metadata"]["uid"]] = ("another", "another: reason")

        keeper._candidate = Losing(keeper._candidate, meanwhile)  # type: ignore[assignment]  # a candidate that loses writes
        await until(lambda: keeper._candidate.lost == 1, "a write is lost")  # type: ignore[attr-defined]  # a candidate that loses writes
        await up.reported(
            "q", "insufficient-gpu: no node has enough free GPUs (wait until others end); 1 of 1 in queue x"
        )


async def test_what_an_earlier_term_decided_and_did_not_write_is_not_written_in_a_later_one(
    server: ApiServer, api: HttpKubeApi
) -> None:
    put(server, "nodes", a_node("a", 1))
    server.canned.append(Canned("PATCH", "/pods/p", 500, times=10_000))
    (pod,) = put(server, "pods", waiting("p"))
    async with story(server, api) as up:
        keeper = up.front.admission
        await until(lambda: keeper.failed > 0, "its gate cannot be opened")
        keeper.begin()
        tried = keeper.failed
        await keeper._open(pod["metadata"]["uid"])
        assert keeper.failed == tried, "nothing is written before the next decision"


async def test_a_deleted_pod_holds_nothing_though_its_scheduler_asks_again(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    async with story(server, api, holds={"p"}) as up:
        await until(lambda: bool(up.front.pods.objects), "it is heard of")
        up.end("p")
        await until(lambda: not up.front.pods.objects, "its end is heard of")
        assert up.front.extender.filter(ExtenderArgs(pod=pod, node_names=("a",))).node_names == ["a"]
        assert not up.front.cluster.allocator.nominations.entries


async def test_an_unused_place_expires_in_time_without_any_event(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    (pod,) = put(server, "pods", a_pod("p"))
    async with story(server, api, holds={"p"}) as up:
        assert up.front.extender.filter(ExtenderArgs(pod=pod, node_names=("a",))).node_names == ["a"]
        put(server, "pods", waiting("q"))
        await up.reported("q", "insufficient-gpu: ")
        await until(lambda: up.heard("q") and not up.front.admission._changed, "nothing is left to hear of")
        up.clock.now += EXPECTED_S
        await until(lambda: up.bound == {"q"}, "the next one is placed")


async def test_the_event_of_a_pod_that_waits_has_the_cure_and_no_position(server: ApiServer, api: HttpKubeApi) -> None:
    put(server, "nodes", a_node("a", 1))
    async with story(server, api, parse_queue("x", "root", 1, None, "gpu=1")):
        put(server, "pods", waiting("p"), waiting("q"))
        await until(lambda: "WaitingInQueue" in {reason for _, reason, _ in recorded(server)}, "one waits")
        (said,) = {message for _, reason, message in recorded(server) if reason == "WaitingInQueue"}
        assert said.startswith("queue-limit: ")
        assert said.endswith("(wait until others of the queue end, or have its limit raised)")
