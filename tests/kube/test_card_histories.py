"""Random histories of pods of all vendors and dialects on the whole front, against a slow oracle of every card.

After each step the books equal what `cards_oracle` works out from the API, and no card has more than all of itself.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings

from tests.kube.api_server import ApiServer
from tests.kube.card_game import CardGame
from tests.kube.cards_oracle import (
    ALLOCATED,
    ASCEND_ALLOCATED,
    ASCEND_MIB,
    WHOLE_PPM,
    Amount,
    Cards,
    Document,
)
from tests.kube.conftest import until
from tests.kube.test_after_init import CRASHES, ENDED, FAILED, RUNS, WAITING
from tests.kube.test_front import Running, put, running
from tests.kube.test_vendor_stories import NOW, READERS, STORIES, WHOLE, Story
from tests.kube.vendor_nodes import a_node, a_pod, card, registered
from ullage.kube.client.changes import Patch, PatchType
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.front import Front

pytestmark = [pytest.mark.timeout(3600), pytest.mark.anyio]

REGISTER, CORDON = "hami.io/node-nvidia-register", "hami.io/device-cordon"
GPU, MIB, PERCENT, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
LOCKS = ("hami.io/mutex.lock", "cambricon.com/dsmlu.lock", "hamivgpu")
SHARED = {"g0": 1, "g1": 2, "g2": 4}
"""NVIDIA's nodes with HAMi's register, and their cards; every other node has one kind of a story, or plain cards."""

PLAIN = {"p0": ("nvidia.com/gpu", 3), "p1": ("amd.com/gpu", 2)}
MIXED = "m0"
"""The node with two cards of NVIDIA and two of Ascend, each vendor's by a register."""

ASCEND_REGISTER, NPU = "hami.io/node-register-Ascend910B3", "huawei.com/Ascend910B3"
SLICES = {9_000: 16_384, 20_000: 32_768, 40_000: ASCEND_MIB}
"""MiB of Ascend's cards that are asked, and the slice or card that a container gets for them."""

SIZE = 16_000
MOST = 40
"""Pods at a time."""

SEEDS: Sequence[int] = range(100, 103)
"""Of long histories. `make search` has others in each run, the same ones in all its processes."""
if settings.get_current_profile_name() == "search":
    SEEDS = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).sample(range(10**6), 10)


class Game(CardGame):
    """A cluster, the front before it, and the moves."""

    def __init__(self, server: ApiServer, api: HttpKubeApi, seed: int) -> None:
        super().__init__(server, seed)
        self.api = api
        self.stories = {f"v{at}": _moved(story, f"v{at}") for at, story in enumerate(STORIES)}
        self.cordoned: set[str] = set()
        self.broken: set[str] = set()
        self.in_mib = True
        put(server, "nodes", *self._nodes())
        self.moves: list[tuple[Callable[[], Any], int]] = [
            (self.hami_pod, 8),
            (self.vendor_pod, 6),
            (self.annotated_pod, 6),
            (self.plain_pod, 4),
            (self.placed_by_hami, 5),
            (self.vendor_pod_of_hami, 3),
            (self.placed_by_nobody, 2),
            (self.unreadable, 1),
            (self.record_grows, 2),
            (self.init, 8),
            (self.end, 4),
            (self.delete, 6),
            (self.cordon, 2),
            (self.card_fails, 2),
            (self.node_leaves, 1),
            (self.leader_ends, 1),
            (self.pod_of_two_vendors, 8),
            (self.two_vendors_of_hami, 2),
        ]

    def _nodes(self) -> list[Document]:
        nodes = []
        for name, count in SHARED.items():
            cards = [card(f"{name}-{at}", SIZE, index=at) for at in range(count)]
            nodes.append(a_node(name, registered(REGISTER, *cards), **{GPU: str(10 * count)}))
            self.know(name, {f"{name}-{at}": SIZE for at in range(count)})
        nodes += [a_node(name, None, **{kind: str(count)}) for name, (kind, count) in PLAIN.items()]
        registers = registered(REGISTER, *(card(f"{MIXED}-G{at}", SIZE, index=at) for at in range(2)))
        npus = (card(f"{MIXED}-N{at}", ASCEND_MIB, 20, index=at, type="Ascend910B3") for at in range(2))
        nodes.append(a_node(MIXED, registers | registered(ASCEND_REGISTER, *npus), **{GPU: "20"}))
        return [*nodes, *(story.node for story in self.stories.values())]

    @property
    def front(self) -> Front:
        return self.up.front

    async def begin(self, stack: AsyncExitStack) -> None:
        """A process that leads."""
        self.stack = stack
        self.up: Running = await stack.enter_async_context(
            running(self.server, self.api, now=lambda: NOW, readers=READERS)
        )
        self.know_from_books()

    # --- what there is ---

    def closed(self) -> set[str]:
        """Nodes with a pod of which nobody knows which cards it has."""
        there, pods = self.expected(), self.pods()
        return {pods[name]["spec"]["nodeName"] for name, says in there.items() if says.unknown}

    # --- moves ---

    async def step(self) -> None:
        moves, weights = zip(*self.moves, strict=True)
        (move,) = self.chance.choices(moves, weights)
        await move()
        await self.check()

    async def place(self, body: Document, nodes: list[str], asked: Amount | None, *, alone: int = 0) -> str:
        """Ask for a place as kube-scheduler does. Where `alone` whole cards are idle, one is found."""
        name = body["metadata"]["name"]
        if len(self.pods()) >= MOST:
            return ""
        self.oracle.asked[name] = asked
        closed, used = self.closed(), self.used()
        (pod,) = put(self.server, "pods", body)
        answer = await self.up.place(pod, nodes)
        self.log.append(f"{name} {body['spec']} on {nodes}: {answer}")
        if not answer.startswith("!"):
            assert "refused" in answer, (answer, self.cordoned, self.log[-8:])
            idle = defaultdict(int)
            for each, node in self.oracle.node_of.items():
                idle[node] += used.get(each, (0, 0)) == (0, 0) and each not in self.cordoned | self.broken
            roomy = [node for node in nodes if node not in closed and alone and idle[node] >= alone]
            assert not roomy, (roomy, answer, self.log[-12:])
            self.remove(name)
            return ""
        node = answer[1:]
        assert node in nodes
        assert node not in closed, (answer, self.log[-12:])
        await self.handed_out(name, node)
        says = self.oracle.says(self.pods()[name])
        assert says is not None
        assert not says.cards.keys() & (self.cordoned | self.broken), (says, self.log[-1])
        return node

    async def handed_out(self, name: str, node: str) -> None:
        """The device plugin of the node has answered."""
        await self.api.write(Patch(NODES, node, {"metadata": {"annotations": dict.fromkeys(LOCKS)}}))
        await self.api.write(
            Patch(PODS, name, {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}}, "default")
        )
        if node == MIXED:  # only then another pod may take the lock of both plugins
            state = {"name": "c0", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
            body = {"status": {"containerStatuses": [state]}}
            await self.api.write(Patch(PODS, name, body, "default", PatchType.MERGE, "status"))

    def limits(self) -> dict[str, int]:
        """A container's words of HAMi for NVIDIA's cards."""
        in_mib = self.chance.random() < (0.9 if self.in_mib else 0.1)  # two units go together only beside whole cards
        amount = {MIB: self.chance.randint(1, 6000)} if in_mib else {PERCENT: self.chance.choice([5, 25, 50])}
        if self.chance.random() < 0.15:
            return {GPU: 1}
        cores = {CORES: self.chance.randint(1, 40)} if self.chance.random() < 0.5 else {}
        return {GPU: self.chance.choice([1, 1, 1, 2])} | amount | cores

    def containers(self, name: str) -> Document:
        """A pod with one to three containers, and perhaps init containers and sidecars."""
        self.in_mib = self.chance.random() < 0.6
        body = a_pod(name, self.limits(), *(self.limits() for _ in range(self.chance.choice([0, 0, 1, 2]))))
        before = a_pod("i", *(self.limits() for _ in range(self.chance.choice([0, 0, 1, 2]))))["spec"]["containers"]
        for at, each in enumerate(before):
            each["name"] = f"i{at}"
            each.update({"restartPolicy": "Always"} if self.chance.random() < 0.3 else {})
        if before:
            body["spec"]["initContainers"] = before
        return body

    async def hami_pod(self) -> None:
        name = self.name("hami")
        body = self.containers(name)
        asks = [*body["spec"].get("initContainers", ()), *body["spec"]["containers"]]
        single = len(asks) == 1 and asks[0]["resources"]["limits"][GPU] == "1"
        if not await self.place(body, list(SHARED), None, alone=1 if single else 0):
            return
        written = self.pods()[name]["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        for container, part in zip(asks, written.split(";")[:-1], strict=True):
            limits = {key: int(value) for key, value in container["resources"]["limits"].items()}
            whole = MIB not in limits and PERCENT not in limits
            mib = SIZE if whole else limits.get(MIB, SIZE * limits.get(PERCENT, 0) // 100)
            cores = limits.get(CORES, 100 if whole else 0)
            given = [each.split(",")[2:] for each in part.split(":") if each]
            assert given == [[str(mib), str(cores)]] * limits[GPU], (written, limits, self.log[-1])

    async def vendor_pod(self) -> None:
        node, story = self.chance.choice(list(self.stories.items()))
        name = self.name("vendor")
        self.oracle.fixed[name] = self.filled(story.held)
        await self.place(a_pod(name, story.limits, annotations=dict(story.words)), [node], None, alone=1)

    async def pod_of_two_vendors(self) -> None:
        """A pod whose first container asks for a card of Ascend too, or for that alone."""
        body = self.containers(name := self.name("mixed"))
        asked = self.chance.choice(list(SLICES))
        (first, *_), more = body["spec"]["containers"], {NPU: "1", f"{NPU}-memory": str(asked)}
        own = first["resources"]["limits"] if self.chance.random() < 0.8 else {}
        first["resources"] = {"limits": own | more, "requests": own | more}
        asks = [*body["spec"].get("initContainers", ()), *body["spec"]["containers"]]
        gpus = sum(int(each["resources"]["limits"].get(GPU, 0)) for each in asks)
        used, full = self.used(), len(self.pods()) >= MOST
        idle = [each for each, node in self.oracle.node_of.items() if node == MIXED and not any(used.get(each, ()))]
        roomy = gpus <= sum("-G" in each for each in idle) and any("-N" in each for each in idle)
        node = await self.place(body, [*SHARED, MIXED], None)
        assert node or full or not roomy or MIXED in self.closed() or len({*self.units(asks)}) > 1, self.log[-12:]
        if node:
            assert node == MIXED
            written = self.pods()[name]["metadata"]["annotations"][ASCEND_ALLOCATED]
            assert [part.split(",")[2] for part in written.split(";") if part] == [str(SLICES[asked])], written

    def units(self, asks: list[Document]) -> list[str]:
        """The units in which containers state memory of NVIDIA's cards; those of one pod have to be the same."""
        return [key for each in asks for key in (MIB, PERCENT) if key in each["resources"]["limits"]]

    async def two_vendors_of_hami(self) -> None:
        """HAMi's scheduler has placed a pod on a card of each vendor."""
        name, mib, npu_mib = self.name("both"), self.chance.randint(1, 6000), self.chance.choice([16_384, 32_768])
        gpu, npu = f"{MIXED}-G{self.chance.randrange(2)}", f"{MIXED}-N{self.chance.randrange(2)}"
        if len(self.pods()) >= MOST or not self.fits({gpu: (0, mib), npu: (0, npu_mib)}):
            return
        notes = {ALLOCATED: f"{gpu},NVIDIA,{mib},0:;", ASCEND_ALLOCATED: f"{npu},Ascend910B3,{npu_mib},0:;"}
        limits = {GPU: 1, MIB: mib, NPU: 1, f"{NPU}-memory": npu_mib}
        self.foreign(name, MIXED, a_pod(name, limits), notes)

    async def annotated_pod(self) -> None:
        domain = self.chance.choice(["ullage.io", "tensor-fusion.ai"])
        mib, percent, count = self.chance.randint(1, 6000), self.chance.randint(1, 40), self.chance.choice([1, 1, 2])
        words, asked = {f"{domain}/gpu-count": str(count)}, None
        if self.chance.random() < 0.8:
            words |= {f"{domain}/vram-request": f"{mib}Mi", f"{domain}/compute-percent-request": str(percent)}
            asked = percent * 10_000, mib
        body = a_pod(self.name("words"), {}, annotations=words)
        await self.place(body, list(SHARED), asked, alone=count)

    async def plain_pod(self) -> None:
        node, (kind, most) = self.chance.choice(list(PLAIN.items()))
        count = self.chance.randint(1, most)
        await self.place(a_pod(self.name("plain"), {kind: count}), [node], None, alone=count)

    def filled(self, held: Any) -> Cards:
        whole = {uuid: (WHOLE_PPM, self.oracle.capacity[uuid]) for uuid in held}
        return {uuid: whole[uuid] if each is WHOLE else each for uuid, each in held.items()}

    def fits(self, cards: Cards) -> bool:
        used, books = self.used(), self.books()
        users = {each: sum(each in held for held in books.values()) for each in cards}
        return all(
            used.get(each, (0, 0))[0] + ppm <= WHOLE_PPM
            and used.get(each, (0, 0))[1] + mib <= self.oracle.capacity[each]
            and users[each] < 10
            for each, (ppm, mib) in cards.items()
        )

    def foreign(self, name: str, node: str, body: Document, notes: dict[str, str]) -> None:
        body["metadata"]["annotations"] |= notes | ({"hami.io/vgpu-node": node} if notes else {})
        body["spec"] |= {"nodeName": node, "schedulerName": "hami-scheduler"}
        self.log.append(f"{name} is on {node} with {notes}")
        put(self.server, "pods", body)

    async def placed_by_hami(self) -> None:
        """HAMi's scheduler has placed a pod with containers of all kinds on cards where there is room."""
        node = self.chance.choice(list(SHARED))
        body, parts = self.containers(name := self.name("his")), []
        uuids = [each for each in self.oracle.node_of if self.oracle.node_of[each] == node]
        for container in (*body["spec"].get("initContainers", ()), *body["spec"]["containers"]):
            count = min(int(container["resources"]["limits"][GPU]), len(uuids))
            given = self.chance.sample(uuids, count)
            amount = f"NVIDIA,{self.chance.randint(1, 3000)},{self.chance.randint(0, 20)}"
            parts.append("".join(f"{uuid},{amount}:" for uuid in given))
        written = ";".join(parts) + ";"
        probe = copy.deepcopy(body)
        probe["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": written}
        probe["spec"]["nodeName"] = node
        says = self.oracle.says(probe)
        if says is not None and self.fits(says.cards) and len(self.pods()) < MOST:
            self.foreign(name, node, body, {"hami.io/vgpu-devices-allocated": written})

    async def vendor_pod_of_hami(self) -> None:
        node, story = self.chance.choice(list(self.stories.items()))
        name, cards = self.name("theirs"), self.filled(story.of_hami or story.held)
        if self.fits(cards) and len(self.pods()) < MOST:
            self.oracle.fixed[name] = cards
            self.foreign(name, node, a_pod(name, story.limits, annotations=dict(story.words)), dict(story.written))

    async def placed_by_nobody(self) -> None:
        """Some scheduler has placed a pod with plain cards: nobody says which."""
        node, (kind, _) = self.chance.choice(list(PLAIN.items()))
        name = self.name("some")
        self.oracle.some[name] = count = self.chance.randint(1, 2)
        there = [each for each, where in self.oracle.node_of.items() if where == node]
        if sum(each not in self.used() for each in there) >= count:
            self.foreign(name, node, a_pod(name, {kind: count}), {})

    async def unreadable(self) -> None:
        """A record that is no record, or names a card that no node has. The pod leaves soon, as its node is closed."""
        node = self.chance.choice(list(SHARED))
        text = self.chance.choice(["g0-0,NVIDIA,much,0:;", "nowhere,NVIDIA,10,0:;", "g0-0:;"])
        if not self.closed():
            name = self.name("riddle")
            self.foreign(name, node, a_pod(name, {GPU: 1, MIB: 10}), {"hami.io/vgpu-devices-allocated": text})

    async def record_grows(self) -> None:
        """A pod gets another card by HAMi's annotation: it adds to what the pod holds."""
        pods = self.pods()
        his = [name for name, pod in pods.items() if name.startswith("his") and not pod["spec"].get("initContainers")]
        if not his:
            return
        name = self.chance.choice(his)
        pod, says = pods[name], self.oracle.says(pods[name])
        if says is None:
            return
        node = pod["spec"]["nodeName"]
        more = [each for each, where in self.oracle.node_of.items() if where == node and each not in says.cards]
        if not more:
            return
        uuid, mib = self.chance.choice(more), self.chance.randint(1, 2000)
        if self.fits({uuid: (0, mib)}):
            key = "hami.io/vgpu-devices-allocated"
            head, _, rest = pod["metadata"]["annotations"][key].partition(";")
            written = f"{head}{uuid},NVIDIA,{mib},0:;{rest}"
            self.log.append(f"{name} gets {uuid}: {written}")
            await self.api.write(Patch(PODS, name, {"metadata": {"annotations": {key: written}}}, "default"))

    async def init(self) -> None:
        """A kubelet reports the init containers of a pod: they run, end, or fail."""
        pods = [
            pod for pod in self.pods().values() if pod["spec"].get("initContainers") and pod["spec"].get("nodeName")
        ]
        if not pods:
            return
        pod = self.chance.choice(pods)
        name, init, begun = pod["metadata"]["name"], pod["spec"]["initContainers"], self.oracle.says(pod)
        over = self.chance.random() < 0.6
        states = [
            RUNS
            if "restartPolicy" in each
            else ENDED
            if over
            else self.chance.choice([WAITING, RUNS, ENDED, FAILED, CRASHES])
            for each in init
        ]
        found = [{"name": each["name"], "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
                 for each, state in zip(init, states, strict=True)]  # fmt: skip
        again = copy.deepcopy(pod)
        again["status"]["initContainerStatuses"] = found
        grown = self.oracle.says(again)
        if (
            begun is not None
            and grown is not None
            and any(amount > begun.cards.get(each, (0, 0)) for each, amount in grown.cards.items())
        ):
            return  # init containers that run again hold their peak, whoever got the rest: then a card may be too full
        self.log.append(f"{name} says {states}")
        body = {"status": {"initContainerStatuses": found}}
        await self.api.write(Patch(PODS, name, body, "default", PatchType.MERGE, "status"))

    async def end(self) -> None:
        there = [name for name, pod in self.pods().items() if pod["spec"].get("nodeName")]
        if there:
            name, phase = self.chance.choice(there), self.chance.choice(["Succeeded", "Failed"])
            self.log.append(f"{name} has {phase}")
            await self.api.write(Patch(PODS, name, {"status": {"phase": phase}}, "default", PatchType.MERGE, "status"))

    async def delete(self) -> None:
        there = sorted(self.pods(), key=lambda name: (not name.startswith("riddle"), self.chance.random()))
        for name in there[: self.chance.choice([1, 1, 2, 5])]:
            if self.chance.random() < 0.3:
                self.log.append(f"{name} is asked to leave")
                self.server.do(lambda name=name: self.server.rules.delete(("pods", "default", name), {}))
            else:
                self.remove(name)

    async def cordon(self) -> None:
        """An operator closes cards of a node, or opens them."""
        node = self.chance.choice(list(SHARED))
        cards = [each for each, where in self.oracle.node_of.items() if where == node]
        closed = [each for each in cards if self.chance.random() < 0.3]
        self.cordoned = (self.cordoned - set(cards)) | set(closed)
        self.log.append(f"{closed} of {node} are closed")
        await self.api.write(Patch(NODES, node, {"metadata": {"annotations": {CORDON: ",".join(closed)}}}))

        unknown = self.closed()

        def known() -> bool:
            self.up.front.mirror.settle()
            there = {gpu.uuid: gpu.cordoned for gpu in self.up.front.cluster.allocator.fleet.cards}
            return node in unknown or all(there[each] is (each in closed) for each in cards)

        await until(known, "the front knows which cards are closed")

    async def card_fails(self) -> None:
        """An agent registers its cards again: some are broken, or repaired, and they may come in another order."""
        node = self.chance.choice(list(SHARED))
        found = self.server.do(lambda: self.server.rules.get(("nodes", "", node)))
        cards = json.loads(found["metadata"]["annotations"][REGISTER])
        for each in cards:
            each["health"] = self.chance.random() < 0.7
        self.chance.shuffle(cards)
        bad = {each["id"] for each in cards if not each["health"]}
        self.broken = (self.broken - {each["id"] for each in cards}) | bad
        self.log.append(f"{sorted(bad)} of {node} are broken")
        await self.api.write(Patch(NODES, node, {"metadata": {"annotations": {REGISTER: json.dumps(cards)}}}))

        def known() -> bool:
            self.up.front.mirror.settle()
            there = {gpu.uuid: gpu.healthy for gpu in self.up.front.cluster.allocator.fleet.cards}
            return all(there.get(each["id"]) is each["health"] for each in cards)

        await until(known, "the front knows which cards are broken")

    async def node_leaves(self) -> None:
        """A node is deleted, and its kubelet registers it again; its pods run on."""
        node = self.chance.choice([*SHARED, *PLAIN, MIXED, *self.stories])
        body = self.server.do(lambda: self.server.rules.get(("nodes", "", node)))
        self.log.append(f"{node} leaves")
        self.server.do(lambda: self.server.rules.delete(("nodes", "", node), {}))

        def there() -> bool:
            self.up.front.mirror.settle()
            return any(each.name == node for each in self.up.front.cluster.allocator.fleet.nodes)

        if self.chance.random() < 0.7:
            await until(lambda: not there(), "the front knows that the node is gone")
        kept = {key: body["metadata"][key] for key in ("name", "annotations", "labels") if key in body["metadata"]}
        self.log.append(f"{node} is back")
        put(self.server, "nodes", {"metadata": kept, "spec": body.get("spec", {}), "status": body["status"]})
        await until(there, "the front knows the node")

    async def leader_ends(self) -> None:
        """The process ends, and another one leads with the same books."""
        before = self.books()
        self.log.append("another process leads")
        await self.stack.aclose()
        await self.begin(self.stack)
        said = self.expected()
        after = self.books()
        known = {name: cards for name, cards in before.items() if not said[name].some}
        assert {name: after.get(name) for name in known} == known, self.log[-12:]


def _moved(story: Story, node: str) -> Story:
    """A story on a node of another name, whose cards no other node has."""
    ids = {uuid: f"{node}{uuid[1:]}" if uuid.startswith("a-") else f"{node}-{uuid}" for uuid in story.held}

    def renamed(value: Any) -> Any:
        text = json.dumps(value)
        for old, new in ids.items():
            for before, after in (('"', '\\"'), ('"', "&"), ('"', ","), (":", ","), (":", "&")):
                text = text.replace(f"{before}{old}{after}", f"{before}{new}{after}")
            text = text.replace(f'\\"{old}\\"', f'\\"{new}\\"')
        return json.loads(text)

    body = renamed(story.node)
    body["metadata"]["name"] = node
    written = {key: node if value == "a" else value for key, value in renamed(story.written).items()}
    held = {ids[uuid]: amount for uuid, amount in story.held.items()}
    of_hami = None if story.of_hami is None else {ids[uuid]: amount for uuid, amount in story.of_hami.items()}
    return Story(story.family, body, story.limits, written, held, story.words, of_hami, story.lock)


async def play(server: ApiServer, api: HttpKubeApi, seed: int, steps: int) -> Game:
    game = Game(server, api, seed)
    async with AsyncExitStack() as stack:
        await game.begin(stack)
        for _ in range(steps):
            await game.step()
        await game.leader_ends()
        await game.check()
    return game


@pytest.mark.parametrize("seed", range(3))
async def test_the_books_are_what_the_pods_hold(server: ApiServer, api: HttpKubeApi, seed: int) -> None:
    game = await play(server, api, seed, 100)
    assert game.number > 30, "pods come"


@pytest.mark.long
@pytest.mark.seeds
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_books_are_what_the_pods_hold_after_long(server: ApiServer, api: HttpKubeApi, seed: int) -> None:
    game = await play(server, api, seed, 1000)
    assert game.number > 300, "pods come"
