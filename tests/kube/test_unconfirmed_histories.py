"""Whatever is lost, late, repeated or started again: no card is given twice, and no pod is stuck."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.kube.faults import FAULTS, FaultyApi, Server
from tests.kube.test_front import a_node, a_pod
from ullage.bootstrap.kube_front import make_front
from ullage.core.placing.rules import Rules
from ullage.kube.client.lease import Candidate
from ullage.kube.front import Front
from ullage.model.allocation import AllocationState
from ullage.model.error import UllageError
from ullage.wire.extender import BindArgs, ExtenderArgs

WHO = st.integers(0, 1)
NODES = {"a": 2, "b": 1}
ASKS = {"whole": 1, "two": 2, "half": 0}
FULL = 100
faults = st.lists(st.sampled_from(("", "late", *FAULTS)), max_size=3)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


class Histories(RuleBasedStateMachine):
    """Two processes before one server. A write that one of them sent may arrive long after that one has gone."""

    @initialize()
    def begin(self) -> None:
        self.server, self.now, self.named = Server(), 1000.0, 0
        for name, gpus in NODES.items():
            self.server.rules.create("nodes", "", a_node(name, gpus))
        self.fronts = [self.started(), self.started()]
        self.lead(0)

    def started(self) -> Front:
        api = FaultyApi(self.server)

        async def pause(seconds: float) -> None:
            self.now += seconds

        candidate = Candidate(api, "ullage", "default", clock=lambda: self.now)  # type: ignore[arg-type]  # a fake of the cluster
        front = make_front(api, candidate, Rules(), clock=lambda: self.now)  # type: ignore[arg-type]  # a fake of the cluster
        front.unconfirmed._pause = pause
        run(self.read(front))
        front.mirror.recover()
        return front

    async def read(self, front: Front) -> None:
        for informer in (front.nodes, front.pods):
            await informer.catch_up()

    def api(self, who: int) -> FaultyApi:
        return self.fronts[who].context.api  # type: ignore[return-value]  # a fake of the cluster

    def lead(self, who: int) -> None:
        front = self.fronts[who]
        run(front.candidate.attempt())
        run(front.takeover.controller.drain())

    # --- what happens ---

    @rule(who=WHO, kind=st.sampled_from(sorted(ASKS)), lost=faults, data=st.data())
    def a_pod_comes_and_is_placed(self, who: int, kind: str, lost: list[str], data: st.DataObject) -> None:
        self.named += 1
        notes = {"gpu-count": "1", "compute-percent-request": "50"} if kind == "half" else {}
        pod = self.server.rules.create("pods", "default", a_pod(f"{kind}-{self.named}", ASKS[kind], **notes))
        self.lead(who)
        self.api(who).faults = list(lost)
        self.place(who, pod, lambda names: data.draw(st.sampled_from(names)))
        self.api(who).faults = []

    @precondition(lambda self: self.server.all("pods"))
    @rule(data=st.data())
    def a_pod_is_deleted(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.server.all("pods")))
        options = data.draw(st.sampled_from([{}, {"gracePeriodSeconds": 0}]))
        self.server.rules.delete(("pods", "default", pod["metadata"]["name"]), options)

    @precondition(lambda self: self.server.all("pods"))
    @rule(data=st.data())
    def somebody_changes_a_pod(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.server.all("pods")))["metadata"]["name"]
        self.named += 1
        label = {"metadata": {"labels": {"n": str(self.named)}}}
        self.server.rules.change(
            ("pods", "default", name), lambda pod: {**pod, "metadata": pod["metadata"] | label["metadata"]}
        )

    @precondition(lambda self: self.pending())
    @rule(who=WHO, lost=faults, data=st.data())
    def a_pod_is_placed(self, who: int, lost: list[str], data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self.pending()))
        self.lead(who)
        self.api(who).faults = list(lost)
        self.place(who, pod, lambda names: data.draw(st.sampled_from(names)))
        self.api(who).faults = []

    @rule(who=WHO)
    def all_are_placed(self, who: int) -> None:
        self.lead(who)
        for pod in self.pending():
            self.place(who, pod, lambda names: names[0])

    @precondition(lambda self: self.server.limbo)
    @rule(data=st.data(), all_=st.booleans())
    def what_was_late_arrives(self, data: st.DataObject, all_: bool) -> None:
        self.server.deliver(data.draw(st.integers(0, len(self.server.limbo) - 1)))
        while all_ and self.server.limbo:
            self.server.deliver(0)

    @rule(who=WHO, lost=faults)
    def one_takes_over(self, who: int, lost: list[str]) -> None:
        """The other one stands still for so long that its lease runs out."""
        front = self.fronts[who]
        run(front.candidate.attempt())
        self.now += 16
        run(front.candidate.attempt())
        self.api(who).faults = list(lost)
        run(front.takeover.controller.drain())
        self.api(who).faults = []

    @rule(who=WHO)
    def one_hears(self, who: int) -> None:
        run(self.read(self.fronts[who]))

    @rule(who=WHO, lost=faults)
    def one_resolves_its_unconfirmed_binds(self, who: int, lost: list[str]) -> None:
        self.api(who).faults = list(lost)
        run(self.fronts[who].unconfirmed.controller.drain())
        self.api(who).faults = []

    @rule(who=WHO, tidy=st.booleans())
    def one_starts_again(self, who: int, tidy: bool) -> None:
        if tidy:
            run(self.fronts[who].release())
        self.fronts[who] = self.started()

    def place(self, who: int, pod: dict[str, Any], choose: Any) -> bool:
        extender, meta = self.fronts[who].extender, pod["metadata"]
        try:
            names = extender.filter(ExtenderArgs(pod, node_names=sorted(NODES))).node_names
            if not names:
                return False
            run(extender.bind(BindArgs(meta["name"], "default", meta["uid"], choose(names))))
        except UllageError:
            return False
        return True

    # --- what must hold ---

    def pending(self) -> list[dict[str, Any]]:
        return [pod for pod in self.server.all("pods") if not pod["spec"].get("nodeName")]

    def live(self) -> list[dict[str, Any]]:
        return [pod for pod in self.server.all("pods") if pod["spec"].get("nodeName")]

    def used(self) -> Counter[str]:
        """Percent of each card, as the pods themselves say."""
        taken: Counter[str] = Counter()
        for pod in self.live():
            part = 50 if pod["metadata"]["name"].startswith("half") else FULL
            for card in pod["metadata"]["annotations"]["ullage.io/gpu-ids"].split(","):
                taken[card] += part
        return taken

    @invariant()
    def no_card_is_given_twice(self) -> None:
        if hasattr(self, "server"):
            assert max(self.used().values(), default=0) <= FULL, self.used()

    def teardown(self) -> None:
        """Nothing is lost any more, and one process is left: it knows what is true, and places all that has room."""
        if not hasattr(self, "server"):
            return
        front = self.fronts[0]
        while front.candidate.epoch is None:
            run(front.candidate.attempt())
            self.now += 2
        while front.candidate.epoch != front.mirror.term:
            run(front.candidate.attempt())
            run(front.takeover.controller.drain())
        self.now += 5
        run(self.read(front))
        for _ in range(9):
            run(front.candidate.attempt())
            run(front.unconfirmed.controller.drain())
            self.now += 9
        self.check_books(front)
        while self.server.limbo:
            self.server.deliver(0)
        self.check_books(front)
        for pod in self.server.all("pods"):
            run(front.candidate.attempt())
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                placed = self.place(0, pod, lambda names: names[0])
                assert placed or not self.fits(pod["metadata"]["name"].split("-")[0])
        self.no_card_is_given_twice()

    def check_books(self, front: Front) -> None:
        run(self.read(front))
        front.mirror.settle()
        ledger = front.cluster.allocator.fleet.ledger
        assert {pod["metadata"]["uid"] for pod in self.live()} == set(ledger)
        assert AllocationState.ASSUMED not in {held.state for held in ledger.values()}
        for pod in self.live():
            own = pod["metadata"]["annotations"]["ullage.io/gpu-ids"].split(",")
            assert list(ledger[pod["metadata"]["uid"]].gpus) == own

    def fits(self, kind: str) -> bool:
        used = self.used()
        left = [
            [FULL - used[f"{name}/nvidia.com/gpu/{number}"] for number in range(gpus)] for name, gpus in NODES.items()
        ]
        if kind == "half":
            return any(room >= FULL // 2 for cards in left for room in cards)
        return any(cards.count(FULL) >= ASKS[kind] for cards in left)


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
test_histories = Histories.TestCase
