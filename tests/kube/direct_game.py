"""A cluster whose pods Ullage binds itself, the processes before it, and what somebody slow says of both."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.clock import Clock
from tests.kube.api_server import ApiServer
from tests.kube.card_game import CardGame
from tests.kube.cards_oracle import WHOLE_PPM, Document
from tests.kube.test_direct_binds import reviewed
from tests.kube.test_front import GPU, a_node, a_pod, put
from tests.kube.test_queue_admission import GATE, Scheduler
from tests.kube.unsafe_network import UnsafeNetwork
from ullage.bootstrap.kube_front import FrontSettings, make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.lease import Candidate
from ullage.kube.front import Front
from ullage.model.allocation import AllocationState
from ullage.model.queue import parse_queue

CARDS = {"n0": 1, "n1": 2, "n2": 4, "n3": 4}
CPUS = 64
LIMITED, LIMIT = "limited", 4
"""A queue whose pods may have so many cards."""

AVOIDED_S = 301.0
"""Seconds after which a pod tries a node again that refused it."""

PATIENCE_S, DEADLINE_S = 2.0, 30.0
"""Seconds until time is turned on for pods that wait though they have room, and until that is an error."""

GROUP = "scheduling.x-k8s.io/pod-group"


@dataclass(frozen=True)
class Ask:
    """What a pod asks for: so many cards of one node, whole or a part of each, and where it may go."""

    queue: str = "x"
    cards: int = 1
    percent: int = 100
    cpus: int = 0
    priority: int = 0
    rack: str = ""
    tolerates: bool = False
    group: str = ""
    gated: bool = False
    several: bool = False
    """Whether each card is that of a container of its own."""

    def body(self, name: str) -> Document:
        """Return the pod as the webhook leaves it."""
        pod = a_pod(name, 0)
        limits = {GPU: "1" if self.several else str(self.cards)}
        if self.percent < 100:
            limits = {}
            pod["metadata"]["annotations"] = {
                "ullage.io/gpu-count": str(self.cards),
                "ullage.io/compute-percent-request": str(self.percent),
            }
        count = self.cards if self.several else 1
        requests = limits | ({"cpu": str(self.cpus // count)} if self.cpus else {})
        resources = {"limits": limits, "requests": requests}
        pod["spec"]["containers"] = [{"name": f"c{at}", "image": "x", "resources": resources} for at in range(count)]
        pod["metadata"]["labels"] = {GATE: self.queue} | ({GROUP: self.group} if self.group else {})
        pod["spec"] |= {"priority": self.priority} if self.priority else {}
        pod["spec"] |= {"nodeSelector": {"rack": self.rack}} if self.rack else {}
        pod["spec"] |= {"tolerations": [{"key": "team", "operator": "Exists"}]} if self.tolerates else {}
        if self.gated:
            pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        patched, outcome = reviewed(pod)
        assert patched["spec"]["schedulerName"] == ("ullage" if self.gated else "ullage-direct"), outcome
        assert bool(patched["spec"].get("schedulingGates")) is self.gated
        return patched


@dataclass(frozen=True)
class Room:
    """What is left of a node: the millionths of each card, and CPUs."""

    labels: dict[str, str]
    tainted: bool
    cards: tuple[int, ...]
    cpus: int

    def after(self, ask: Ask) -> Room | None:
        """Return the room that a pod leaves; None if it does not fit."""
        if (ask.rack and self.labels["rack"] != ask.rack) or (self.tainted and not ask.tolerates):
            return None
        needed = ask.percent * WHOLE_PPM // 100
        fits = sorted((left, at) for at, left in enumerate(self.cards) if left >= needed)[: ask.cards]
        if len(fits) < ask.cards or ask.cpus > self.cpus:
            return None
        taken = {at for _, at in fits}
        left = tuple(each - needed * (at in taken) for at, each in enumerate(self.cards))
        return Room(self.labels, self.tainted, left, self.cpus - ask.cpus)


def fit_together(ask: Ask, count: int, rooms: list[Room]) -> bool:
    """Return whether so many equal pods fit. They are equal, so each node takes as many as it can."""
    found = 0
    for room in rooms:
        left: Room | None = room
        while left is not None and (left := left.after(ask)) is not None:
            found += 1
    return found >= count


class Process:
    """One front at work. It ends in order, or as if it was killed: then its writes may still be on their way."""

    def __init__(self, front: Front, network: UnsafeNetwork) -> None:
        self.front, self.network = front, network
        self.work = asyncio.create_task(front.run())

    async def end(self, *, killed: bool) -> None:
        assert not self.work.done(), self.work.exception()
        self.work.cancel()
        await asyncio.gather(self.work, return_exceptions=True)
        assert self.work.cancelled(), self.work.exception()
        if not killed:
            await self.front.release()

    @property
    def leads(self) -> bool:
        if self.work.done():
            self.work.result()
        return not self.front.extender.unready


class DirectCluster(CardGame):
    """What there is, and whether it is as it should be."""

    def __init__(self, server: ApiServer, api: HttpKubeApi, seed: int) -> None:
        super().__init__(server, seed)
        self.api, self.clock, self.lease_clock = api, Clock(), Clock()
        self.preemption = seed % 3 == 2
        self.processes: list[Process] = []
        self.lost: list[UnsafeNetwork] = []
        self.asks: dict[str, Ask] = {}
        self.groups: dict[str, int] = {}
        self.cpus_of: dict[str, int] = {}
        self.disturbed: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.clean = True
        """Whether nothing was lost and no node or process changed in this step."""
        for name, count in CARDS.items():
            put(server, "nodes", self.node(name, count))
            self.know(name, {f"{name}/{GPU}/{at}": 0 for at in range(count)})

    def node(self, name: str, cards: int) -> Document:
        node = a_node(name, cards)
        node["metadata"]["labels"] = {"rack": "r0" if name in ("n0", "n2") else "r1"}
        return node

    # --- processes ---

    async def join(self) -> Process:
        """One more process starts."""
        network = UnsafeNetwork(self.api, self.server, self.somebody_changes)

        async def pause(seconds: float) -> None:
            await asyncio.sleep(seconds / 50)

        candidate = Candidate(network, "ullage", "default", clock=self.lease_clock, pause=pause)  # type: ignore[arg-type]  # it has what is used of an API
        settings = FrontSettings(
            queues=(parse_queue("x", "root", 3, None, None), parse_queue(LIMITED, "root", 1, None, f"gpu={LIMIT}")),
            reserve_after_s=1e9,
            preemption=self.preemption,
        )

        def on_error(kind: str, name: str, error: Any) -> None:
            self.log.append(f"{name} {kind}: {type(error).__name__} {error}")

        front = make_front(network, candidate, Rules(), settings, clock=self.clock, on_error=on_error)  # type: ignore[arg-type]  # it has what is used of an API
        process = Process(front, network)
        self.processes.append(process)
        return process

    @property
    def leader(self) -> Process | None:
        return next((each for each in self.processes if each.leads), None)

    @property
    def front(self) -> Front:
        leader = self.leader
        assert leader is not None
        return leader.front

    async def schedule(self) -> None:
        """Act as kube-scheduler for pods with a gate."""
        scheduler = Scheduler(self.server, None, lambda _pod, _node: False, set())  # type: ignore[arg-type]  # set below
        while True:
            for name, pod in self.pods().items():
                ask, leader = self.asks.get(name), self.leader
                if ask is None or not ask.gated or leader is None or "deletionTimestamp" in pod["metadata"]:
                    continue
                if not (pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates")):
                    scheduler.extender = leader.front.extender
                    await scheduler._place(pod)
            await asyncio.sleep(0.02)

    # --- what there is ---

    def somebody_changes(self, name: str) -> None:
        """Change a pod as its owner may: nothing that says what it asks for."""
        self.number += 1
        key = ("pods", "default", name)
        where = self.chance.choice(["labels", "annotations"])

        def changed(pod: Document) -> Document:
            metadata = pod["metadata"]
            return {**pod, "metadata": metadata | {where: (metadata.get(where) or {}) | {"n": str(self.number)}}}

        if self.server.do(lambda: self.server.store.get(key)) is not None:
            self.server.do(lambda: self.server.rules.change(key, changed))

    def nodes(self) -> dict[str, Document]:
        found = self.server.do(lambda: self.server.store.at(self.server.store.revision))
        return {name: item for (plural, _, name), item in found.items() if plural == "nodes"}

    def bound(self, pods: dict[str, Document]) -> dict[str, Document]:
        """Pods that hold what they have."""
        there = ((name, pod) for name, pod in pods.items() if pod["spec"].get("nodeName"))
        return {name: pod for name, pod in there if pod["status"].get("phase") not in ("Succeeded", "Failed")}

    def rooms(self, pods: dict[str, Document]) -> list[Room]:
        """What is left of each node that takes pods. One that lost a card which somebody has is left out."""
        bound, rooms = self.bound(pods), list[Room]()
        used, used_cpus = self.used(), Counter[str]()
        for name, pod in bound.items():
            used_cpus[pod["spec"]["nodeName"]] += self.cpus_of.get(name, 0)
        for name, node in self.nodes().items():
            there = [f"{name}/{GPU}/{at}" for at in range(int(node["status"]["allocatable"][GPU]))]
            lost = {card for card in used if self.oracle.node_of[card] == name} - set(there)
            if lost or node["spec"].get("unschedulable"):
                continue
            left = tuple(WHOLE_PPM - used.get(card, (0, 0))[0] for card in there)
            rooms.append(
                Room(node["metadata"]["labels"], bool(node["spec"].get("taints")), left, CPUS - used_cpus[name])
            )
        return rooms

    def waiting(self, pods: dict[str, Document]) -> dict[str, Ask]:
        return {
            name: self.asks[name]
            for name, pod in pods.items()
            if name in self.asks and not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
        }

    def members(self, pods: dict[str, Document]) -> dict[str, list[str]]:
        """The members of each gang that have a node and stay."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name, pod in self.bound(pods).items():
            if name in self.asks and "deletionTimestamp" not in pod["metadata"] and (group := self.asks[name].group):
                found[group].append(name)
        return found

    def forgotten(self) -> Iterator[str]:
        """Yield who waits though there is room."""
        pods = self.pods()
        rooms, waiting, members = self.rooms(pods), self.waiting(pods), self.members(pods)
        held = sum(self.asks[name].cards for name in self.bound(pods).keys() & self.asks.keys() if self.in_limit(name))
        there = Counter(ask.group for ask in waiting.values())
        for name, ask in waiting.items():
            count = 1
            if ask.group:
                count = max(1, self.groups[ask.group] - len(members[ask.group]))
                if there[ask.group] < count:
                    continue
            if ask.queue == LIMITED and held + count * ask.cards > LIMIT:
                continue
            if fit_together(ask, count, rooms):
                yield name

    def in_limit(self, name: str) -> bool:
        return self.asks[name].queue == LIMITED

    # --- whether it is as it should be ---

    def unrest(self) -> str:
        """Why something is still to happen; "" if nothing is."""
        if self.leader is None:
            if not any(each.front.candidate.epoch for each in self.processes):
                self.lease_clock.now += 1.0
            return "nobody leads"
        front = self.front
        seen = {name: node.metadata.resource_version for (_, name), node in front.nodes.objects.items()}
        if seen != {name: node["metadata"]["resourceVersion"] for name, node in self.nodes().items()}:
            return "nodes are not known"
        if why := self.differs():
            return why
        if not front.unconfirmed.quiet:
            return "the outcome of a bind is not known"
        states = {each.state for each in front.cluster.allocator.fleet.ledger.values()}
        if AllocationState.ASSUMED in states:
            return "a bind has not ended"
        return next((f"{name} fits" for name in self.forgotten()), "")

    async def settle(self) -> None:
        clock = asyncio.get_running_loop().time
        began, turned = clock(), 0.0
        while why := self.unrest():
            now = clock()
            if now - began > PATIENCE_S and now - turned > PATIENCE_S:
                turned = now
                self.log.append(f"time is turned on: {why}")
                self.counts["turned"] += 1
                await self.time_passes(AVOIDED_S)
            assert now - began < DEADLINE_S, "\n".join([why, *self.log[-40:]])
            await asyncio.sleep(0.01)
        self.check_kept()

    async def time_passes(self, seconds: float) -> None:
        for network in (*self.lost, *(each.network for each in self.processes)):
            await network.deliver_all()
        self.lost.clear()
        if self.preemption:
            for name, pod in self.pods().items():
                if "deletionTimestamp" in pod["metadata"]:
                    self.remove(name)
        self.clock.now += seconds

    def check_kept(self) -> None:
        """Check what must hold whenever nothing is still to happen."""
        pods = self.pods()
        bound, story = self.bound(pods), "\n".join(self.log[-40:])
        for card, (ppm, _) in self.used().items():
            assert ppm <= WHOLE_PPM, (card, ppm, story)
        cpus: Counter[str] = Counter()
        for name, pod in bound.items():
            cpus[pod["spec"]["nodeName"]] += self.cpus_of.get(name, 0)
        assert max(cpus.values(), default=0) <= CPUS, (cpus, story)
        limited = sum(self.asks[name].cards for name in bound.keys() & self.asks.keys() if self.in_limit(name))
        assert limited <= LIMIT, (limited, story)
        for group, members in self.members(pods).items():
            if len(members) < self.groups[group] and group not in self.disturbed:
                self.counts["broken gangs"] += 1
                assert not self.clean, (group, members, self.groups[group], story)
                self.disturbed.add(group)
