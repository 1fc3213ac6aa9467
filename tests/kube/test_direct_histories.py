"""Random histories of pods that are bound without kube-scheduler, and whatever is lost, late or gone meanwhile.

After each step the books are what the API says, no card and no CPU is given twice, limits hold, gangs are whole, and
nobody waits who has room. At the end nothing is left of pods that are gone.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings

from tests.kube.api_server import ApiServer
from tests.kube.conftest import until
from tests.kube.direct_game import AVOIDED_S, CARDS, LIMITED, Ask, DirectCluster
from tests.kube.test_front import GPU, a_pod, put
from tests.kube.unsafe_network import EVERY_FAULT
from ullage.kube import controller
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.leader import unconfirmed
from ullage.kube.queues import admission

pytestmark = [pytest.mark.timeout(3600), pytest.mark.anyio]

MOST = 30
"""Pods at a time."""

SEEDS: Sequence[int] = range(100, 103)
"""Of long histories. `make search` has others in each run, the same ones in all its processes."""
if settings.get_current_profile_name() == "search":
    SEEDS = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).sample(range(10**6), 10)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything that is tried again be tried again soon."""
    for module, name, seconds in (
        (controller, "FIRST_S", 0.02),
        (controller, "LONGEST_S", 0.2),
        (controller, "_CLOSED_S", 0.02),
        (unconfirmed, "AGAIN_S", 0.02),
        (admission, "AGAIN_S", 0.1),
        (admission, "GATHER_S", 0.01),
    ):
        monkeypatch.setattr(module, name, seconds)


class Game(DirectCluster):
    """The moves."""

    def __init__(self, server: ApiServer, api: HttpKubeApi, seed: int) -> None:
        super().__init__(server, api, seed)
        self.away: dict[str, Any] = {}
        self.moves: list[tuple[Callable[[], Any], int]] = [
            (self.pods_come, 16),
            (self.gang_comes, 4),
            (self.pod_of_another_scheduler, 2),
            (self.pod_without_cards, 2),
            (self.delete, 18),
            (self.end_of_pod, 3),
            (self.change, 3),
            (self.node_changes, 5),
            (self.node_leaves, 2),
            (self.late_writes_arrive, 2),
            (self.connections_break, 1),
            (self.leader_ends, 1),
            (self.leader_is_killed, 1),
            (self.lease_runs_out, 1),
            (self.time_passes_by, 2),
            (self.restart_reads_the_same, 1),
        ]

    async def step(self) -> None:
        """One move, perhaps with writes that fail, and all that follows from it."""
        moves, weights = zip(*self.moves, strict=True)
        (move,) = self.chance.choices(moves, weights)
        faults: list[str] = []
        if self.chance.random() < 0.4:
            faults = self.chance.choices(EVERY_FAULT, k=self.chance.randint(1, 4))
        self.clean = not faults
        for each in self.processes:
            each.network.faults = list(faults)
        self.log.append(f"--- {move.__name__} {faults}")
        before = self.waiting(self.pods())
        await move()
        await self.settle()
        for each in self.processes:
            each.network.faults = []
        if self.clean and not self.preemption:
            self.check_order(before)
        self.counts[move.__name__] += 1

    def check_order(self, before: dict[str, Ask]) -> None:
        """Check that nobody of a queue came before another one with the same request and a higher priority."""
        after = self.pods()
        left = self.waiting(after)
        went = [(name, ask) for name, ask in before.items() if name in after and name not in left]
        for name, ask in went:
            for other, its in left.items():
                same = replace(its, priority=0) == replace(ask, priority=0) and not its.group
                assert other not in before or not same or its.priority <= ask.priority, (name, other, self.log[-20:])

    # --- pods ---

    def some_ask(self) -> Ask:
        chance = self.chance
        part = chance.random() < 0.35
        cards = chance.choice([1, 1, 1, 2]) if part else chance.choice([1, 1, 1, 2, 2, 3, 4])
        return Ask(
            queue=chance.choice(["x", "x", "y"] if part else ["x", "x", "y", LIMITED]),
            cards=cards,
            percent=chance.choice([10, 30, 50, 70]) if part else 100,
            cpus=chance.choice([0, 0, 0, 12, 24]),
            priority=chance.choice([0, 0, 0, 1000]),
            rack=chance.choice(["", "", "", "r0", "r1"]),
            tolerates=chance.random() < 0.3,
            gated=chance.random() < 0.2,
            several=not part and chance.random() < 0.2,
        )

    def create(self, *asks: Ask) -> None:
        names = [self.name("g" if ask.gated else "d") for ask in asks]
        for name, ask in zip(names, asks, strict=True):
            self.asks[name], self.cpus_of[name] = ask, ask.cpus
            self.oracle.asked[name] = None if ask.percent == 100 else (ask.percent * 10_000, 0)
            self.log.append(f"{name} {ask}")
        put(self.server, "pods", *(ask.body(name) for name, ask in zip(names, asks, strict=True)))

    async def pods_come(self) -> None:
        count = min(MOST - len(self.pods()), self.chance.choice([1, 1, 1, 2, 3, 6]))
        self.create(*(self.some_ask() for _ in range(count)))

    async def gang_comes(self) -> None:
        """A gang of equal members, all at once or in two parts; some of them may have a gate."""
        least, group = self.chance.randint(2, 4), self.name("gang")
        if len(self.pods()) > MOST - 6:
            return
        self.groups[group] = least
        ask = replace(self.some_ask(), group=group, cards=self.chance.choice([1, 1, 2]), several=False, cpus=0)
        gated = [self.chance.random() < 0.15 for _ in range(least + self.chance.choice([-1, 0, 0, 0, 1, 2]))]
        body = {"metadata": {"name": group, "namespace": "default"}, "spec": {"minMember": least}}
        put(self.server, "podgroups", body)
        members = [replace(ask, gated=each) for each in gated]
        first = self.chance.choice([len(members), self.chance.randint(0, len(members))])
        self.create(*members[:first])
        if members[first:]:
            await asyncio.sleep(self.chance.choice([0.0, 0.1]))
            self.create(*members[first:])

    async def pod_of_another_scheduler(self) -> None:
        """Another scheduler has placed a pod on a free card, and nobody knows on which."""
        name, node = self.name("some"), self.chance.choice(list(CARDS))
        used = self.used()
        free = [card for card, where in self.oracle.node_of.items() if where == node and card not in used]
        there = self.nodes().get(node)
        if there is None or len(free) != CARDS[node] or int(there["status"]["allocatable"][GPU]) != CARDS[node]:
            return
        self.oracle.some[name], body = 1, a_pod(name)
        body["spec"] |= {"nodeName": node, "schedulerName": "default-scheduler"}
        put(self.server, "pods", body)

    async def pod_without_cards(self) -> None:
        """Another scheduler has placed a pod that has CPUs alone."""
        name, node = self.name("cpu"), self.chance.choice(list(CARDS))
        if node not in self.nodes() or any(
            pod["spec"].get("nodeName") == node and self.cpus_of.get(name) for name, pod in self.pods().items()
        ):
            return
        body = a_pod(name, 0)
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "30"}}
        body["spec"] |= {"nodeName": node, "schedulerName": "default-scheduler"}
        self.cpus_of[name], self.oracle.fixed[name] = 30, {}
        put(self.server, "pods", body)

    async def delete(self) -> None:
        """Pods are deleted, those that wait or those that run, in order or at once."""
        pods = self.pods()
        there = list(self.bound(pods)) if self.chance.random() < 0.7 else list(pods)
        for name in self.chance.sample(there, min(len(there), self.chance.choice([1, 2, 3, 8]))):
            self.disturb(name)
            if self.chance.random() < 0.3:
                self.log.append(f"{name} is asked to leave")
                self.server.do(lambda name=name: self.server.rules.delete(("pods", "default", name), {}))
            else:
                self.remove(name)

    def disturb(self, name: str) -> None:
        if name in self.asks and (group := self.asks[name].group):
            self.disturbed.add(group)

    async def end_of_pod(self) -> None:
        there = list(self.bound(self.pods()))
        if there:
            name, phase = self.chance.choice(there), self.chance.choice(["Succeeded", "Failed"])
            self.disturb(name)
            self.log.append(f"{name} has {phase}")
            key = ("pods", "default", name)
            self.server.do(
                lambda: self.server.rules.change(
                    key, lambda pod: pod | {"status": pod["status"] | {"phase": phase}}, "status"
                )
            )

    async def change(self) -> None:
        """Somebody writes on pods while they are decided on."""
        self.create(*(self.some_ask() for _ in range(min(2, MOST - len(self.pods())))))
        for name in self.chance.choices(list(self.pods()) or [""], k=5):
            self.somebody_changes(name)
            await asyncio.sleep(self.chance.choice([0.0, 0.005, 0.02]))

    # --- nodes ---

    async def node_changes(self) -> None:
        """A node is cordoned, has a taint, or loses cards, or not any more; new pods come meanwhile."""
        self.clean = False
        there = list(self.nodes())
        if not there:
            return
        name = self.chance.choice(there)
        what, yes = self.chance.choice(["cordon", "taint", "cards"]), self.chance.random() < 0.5
        count = self.chance.randint(0, CARDS[name] - 1) if yes else CARDS[name]

        def changed(node: dict[str, Any]) -> dict[str, Any]:
            spec, status = dict(node["spec"]), node["status"]
            if what == "cordon":
                spec["unschedulable"] = yes
            elif what == "taint":
                spec["taints"] = [{"key": "team", "effect": "NoSchedule"}] if yes else []
            else:
                amounts = status["allocatable"] | {GPU: str(count)}
                status = status | {"allocatable": amounts, "capacity": amounts}
            return {**node, "spec": spec, "status": status}

        self.log.append(f"{name}: {what} {yes} {count}")
        if self.chance.random() < 0.5:
            await self.pods_come()
            await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.03]))
        key, rules = ("nodes", "", name), self.server.rules
        self.server.do(lambda: rules.store.put(key, changed(rules.get(key))))

    async def node_leaves(self) -> None:
        """A node is deleted, or is back."""
        self.clean = False
        if self.away and self.chance.random() < 0.7:
            name = self.chance.choice(list(self.away))
            del self.away[name]
            self.log.append(f"{name} is back")
            put(self.server, "nodes", self.node(name, CARDS[name]))
            return
        name = self.chance.choice(list(CARDS))
        if name in self.nodes() and len(self.away) < 2:
            if self.chance.random() < 0.5:
                await self.pods_come()
                await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.03]))
            self.log.append(f"{name} leaves")
            self.away[name] = True
            self.server.do(lambda: self.server.rules.delete(("nodes", "", name), {}))

    # --- processes and time ---

    async def late_writes_arrive(self) -> None:
        for network in (*self.lost, *(each.network for each in self.processes)):
            while network.limbo and self.chance.random() < 0.8:
                await network.deliver(self.chance.choice)

    async def connections_break(self) -> None:
        self.clean = False
        self.create(*(self.some_ask() for _ in range(min(3, MOST - len(self.pods())))))
        for _ in range(3):
            await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.03]))
            self.server.cut()
        if self.chance.random() < 0.5:
            self.server.forget()

    async def leader_ends(self) -> None:
        await self._leader_goes(killed=False)

    async def leader_is_killed(self) -> None:
        await self._leader_goes(killed=True)

    async def _leader_goes(self, *, killed: bool) -> None:
        self.clean = False
        self.create(*(self.some_ask() for _ in range(min(4, MOST - len(self.pods())))))
        await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.02, 0.05]))
        leader = self.leader
        if leader is not None:
            self.processes.remove(leader)
            await leader.end(killed=killed)
            self.lost.append(leader.network)
        if len(self.processes) < 2:
            await self.join()
        if self.chance.random() < 0.3:
            await self.late_writes_arrive()

    async def lease_runs_out(self) -> None:
        """The leader stands still for so long that another one may lead, and goes on."""
        self.clean = False
        if len(self.processes) < 2:
            await self.join()
        self.create(*(self.some_ask() for _ in range(min(4, MOST - len(self.pods())))))
        await asyncio.sleep(self.chance.choice([0.0, 0.01, 0.02, 0.05]))
        self.lease_clock.now += 16.0

    async def time_passes_by(self) -> None:
        await self.time_passes(self.chance.choice([1.0, 61.0, AVOIDED_S]))

    async def restart_reads_the_same(self) -> None:
        """A process that starts now has the books of the one that leads."""
        await self.settle()
        other = await self.join()
        await until(lambda: other.front.mirror.ready, "it has read the cluster")
        other.front.mirror.settle()
        now, again = _books(self.front, self.oracle.some), _books(other.front, self.oracle.some)
        differ = {key: (now.get(key), again.get(key)) for key in now | again if now.get(key) != again.get(key)}
        assert not differ, "\n".join([f"{differ}", *self.log[-40:]])
        if len(self.processes) > 2 or self.chance.random() < 0.5:
            self.processes.remove(other)
            await other.end(killed=False)

    async def all_is_over(self) -> None:
        """All pods are deleted: nothing is kept of them."""
        self.log.append("--- all is over")
        await self.late_writes_arrive()
        for name in self.pods():
            self.disturb(name)
            self.remove(name)
        await self.time_passes(1.0)
        await self.settle()
        await until(lambda: not list(_left(self.front)), lambda: f"{dict(_left(self.front))}", 20.0)


def _books(front: Any, unknown: dict[str, int]) -> dict[str, Any]:
    """What is held, and what is left of each node, but for pods of which nobody knows the cards."""
    fleet = front.cluster.allocator.fleet
    names = {pod.metadata.uid: name for (_, name), pod in front.pods.objects.items()}
    held = {
        names.get(uid, uid): (
            each.node,
            each.gpus,
            each.charges,
            each.state,
            each.requirement,
            replace(each.claim, labels={}),
        )
        for uid, each in fleet.ledger.items()
        if names.get(uid) not in unknown
    }
    columns = (fleet.cpu_free, fleet.memory_free, fleet.slots_free)
    left = {node.name: tuple(column.item(row) for column in columns) for row, node in enumerate(fleet.nodes)}
    return held | left | {f"usage of {name}": usage for name, usage in fleet.usage.items() if any(usage)}


def _left(front: Any) -> Any:
    """Yield what a process still keeps of pods, though there is none."""
    books = front.cluster.allocator
    fleet, gates, admitted, mirror = books.fleet, front.admission.gates, front.admission, front.mirror
    requests, (places,) = mirror._requests, front.admission._on_places
    kept = {
        "ledger": fleet.ledger,
        "usage": {name: usage for name, usage in fleet.usage.items() if any(usage)},
        "other usage": fleet.other_usage,
        "gangs": {key: members for key, members in fleet.gangs.items() if members},
        "CPUs": (fleet.cpu_total - fleet.cpu_free).nonzero()[0].tolist(),
        "slots": (fleet.slots_total - fleet.slots_free).nonzero()[0].tolist(),
        "compute": (fleet.compute_total - fleet.compute_free).nonzero()[0].tolist(),
        "nominations": books.nominations.entries,
        "gates": [*gates._pods, *gates._running, *gates._reserved, *gates._report.refused],
        "admission": [*admitted._pods, *admitted._members, *admitted._wrong, *admitted._reported, *admitted._free],
        "writes": [*admitted._written, *admitted._to_report],
        "requests": [*requests._asked, *requests._records, *requests._written],
        "mirror": [*mirror._waiting, *mirror._unreported, *mirror._withheld, *mirror._unread],
        "unconfirmed": [*front.unconfirmed._open, *front.unconfirmed._unobserved],
        "bound": places.__self__._bound,
        "preemption": [] if front.preemptor is None else [*front.preemptor._waiting, *front.preemptor._reserved],
    }
    return ((name, each) for name, each in kept.items() if each)


async def play(server: ApiServer, api: HttpKubeApi, seed: int, steps: int) -> Game:
    game = Game(server, api, seed)
    scheduler = asyncio.create_task(game.schedule())
    try:
        await game.join()
        if seed % 2:
            await game.join()
        await game.settle()
        for _ in range(steps):
            assert not scheduler.done(), scheduler.exception()
            await game.step()
        await game.all_is_over()
    finally:
        scheduler.cancel()
        await asyncio.gather(scheduler, return_exceptions=True)
        for each in game.processes:
            each.work.cancel()
        await asyncio.gather(*(each.work for each in game.processes), return_exceptions=True)
    return game


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_given_twice_and_nobody_waits_who_has_room(
    server: ApiServer, api: HttpKubeApi, seed: int
) -> None:
    game = await play(server, api, seed, 90)
    assert game.number > 30, "pods come"


@pytest.mark.long
@pytest.mark.seeds
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_given_twice_and_nobody_waits_who_has_room_for_long(
    server: ApiServer, api: HttpKubeApi, seed: int
) -> None:
    game = await play(server, api, seed, 600)
    assert game.number > 300, "pods come"
