"""After any history a restart at any point changes no answer of the API, but for what is named in `answers`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.lab import Machine, a_node
from tests.service.answers import Answers, answers, lasting

from ullage.model.application import Application
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import Conflict, NotFound
from ullage.model.holding import Holding, PodHolding, Use
from ullage.model.queue import Queue
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement

NODES = (a_node("cards-1", cpu=0, gpus=2), a_node("cards-2", cpu=0, gpus=2), a_node("cpus", cpu=3))
UIDS = st.sampled_from(["p0", "p1", "p2", "p3", "p4"])
NAMES = st.sampled_from(["s0", "s1", "s2", "s3"])
CARDS = st.sampled_from(["gpu=1", "gpu=2", "gpu=0.5", "gpu=0.3", "gpu=4"])
EVENTS = ("/v1/events", "/v1/events")
KEPT = ("/v1/nominations", "/v1/nominations")


def nothing() -> None:
    pass


class Restarts(RuleBasedStateMachine):
    @initialize()
    def open_lab(self):
        self.place = TemporaryDirectory()
        self.lab = Machine(str(Path(self.place.name) / "state.db"), *NODES)

    def teardown(self):
        if hasattr(self, "lab"):
            try:
                self.restart()
            finally:
                self.lab.close()
                self.place.cleanup()

    def attempt(self, use_case, *args):
        """Call a use case, which may refuse, and let everything happen that follows from it."""
        with suppress(Conflict, NotFound):
            use_case(*args)
        self.lab.pump()

    # --- sessions: on the node without cards, of which requests take nothing ---

    @rule(name=NAMES, cpu=st.integers(1, 4), batch=st.sampled_from([1, 1, 2]), priority=st.sampled_from([0, 0, 5]))
    def create(self, name, cpu, batch, priority):
        if name not in self.lab.service.state.sessions:
            self.lab.session(name, f"cpu={cpu}", tasks=3, batch_size=batch, priority=priority)

    @rule(name=NAMES, count=st.integers(1, 3))
    def submit(self, name, count):
        record = self.lab.service.state.sessions.get(name)
        if record is not None and record.takes_tasks:
            self.lab.submit(name, count)

    @rule(data=st.data(), code=st.sampled_from([0, 0, 1]))
    def finish(self, data, code):
        if busy := self.lab.engine.busy:
            self.lab.engine.finish(data.draw(st.sampled_from(busy)), code)
            self.lab.pump()

    @rule(data=st.data())
    def kill(self, data):
        if alive := self.lab.engine.alive:
            self.lab.engine.kill(data.draw(st.sampled_from(alive)))
            self.lab.pump()

    @rule(name=NAMES, how=st.sampled_from(["cancel", "close", "delete", "clear_failures"]))
    def end(self, name, how):
        self.attempt(getattr(self.lab.service.sessions, how), name, nothing)

    @rule(name=NAMES, task=st.integers(1, 3))
    def cancel_task(self, name, task):
        self.attempt(self.lab.service.tasks.cancel, name, task)

    @rule(weight=st.integers(1, 3))
    def change_the_catalog(self, weight):
        self.attempt(self.lab.service.catalog.put_queue, Queue("team", weight=weight), nothing)
        self.attempt(self.lab.service.catalog.put_application, Application("app", "run", retries=weight), nothing)

    # --- requests: on the nodes with cards ---

    def request(self, uid: str, text: str, priority: int, gang: GangClaim | None = None) -> Request:
        asked = ResourceRequirement.from_string(f"cpu=0,mem=0,{text}")
        return Request(uid, asked, Claim(pod=uid, priority=priority, gang=gang, created_at=self.lab.now))

    @rule(uid=UIDS, text=CARDS, priority=st.integers(0, 2), how=st.sampled_from(["alloc", "assume", "preempt"]))
    def ask(self, uid, text, priority, how):
        service, request = self.lab.service, self.request(uid, text, priority)
        if how == "assume":
            self.attempt(service.allocations.assume, request, None, nothing)
        else:
            self.attempt((service.allocations if how == "alloc" else service.preemptions).alloc, request, nothing)

    @rule(uid=UIDS, how=st.sampled_from(["commit", "forget"]))
    def commit_or_forget(self, uid, how):
        self.attempt(getattr(self.lab.service.allocations, how), uid, nothing)

    @rule(uid=UIDS)
    def free(self, uid):
        self.attempt(self.lab.service.allocations.dealloc, uid, None, nothing)

    @rule(uid=UIDS, within_s=st.sampled_from([None, 10.0, 100.0]))
    def release(self, uid, within_s):
        self.attempt(self.lab.service.allocations.release, uid, within_s, nothing)

    @rule(units=st.integers(1, 2))
    def make_room(self, units):
        uids = [f"room{number}" for number in range(units)]
        self.attempt(self.lab.service.consolidations.carry_out, self.request("room", "gpu=2", 0), uids, None, nothing)

    @rule(key=st.sampled_from(["g0", "g1"]), size=st.integers(1, 3), timeout_s=st.sampled_from([None, 30.0]))
    def put_gang(self, key, size, timeout_s):
        claim = GangClaim(key, size, size, timeout_s)
        members = [self.request(f"{key}-{number}", "gpu=1", 0, claim) for number in range(size)]
        self.attempt(self.lab.service.gangs.put, key, members, nothing)

    @rule(key=st.sampled_from(["g0", "g1"]))
    def drop_gang(self, key):
        self.attempt(self.lab.service.gangs.drop, key, nothing)

    @rule(most=st.sampled_from([None, 1, 3]))
    def put_quota(self, most):
        if most is None:
            self.attempt(self.lab.service.quotas.drop, "default", nothing)
        else:
            self.attempt(self.lab.service.quotas.put, "default", Quota(max_workers=most), nothing)

    # --- nodes and time ---

    @rule(node=st.sampled_from([node.name for node in NODES]), cordoned=st.booleans())
    def cordon(self, node, cordoned):
        self.attempt(self.lab.service.nodes.cordon, node, cordoned)

    @rule(pods=st.lists(st.sampled_from(["p0", "p1", "stranger"]), unique=True))
    def show(self, pods):
        shown = [
            PodHolding("default", pod, "", (Holding("main", devices=(("gpu", (f"GPU-cards-1-{number}",)),)),))
            for number, pod in enumerate(pods[:2])
        ]
        self.attempt(self.lab.service.observations.observed, "cards-1", Use(tuple(shown)))

    @rule(seconds=st.sampled_from([1, 29, 61, 300, 2000]))
    def pass_time(self, seconds):
        self.lab.pass_time(seconds)

    # --- what must be as before ---

    @rule()
    def restart(self):
        lab = self.lab
        lab.pass_time(0)
        lab.store.write().result()
        assert {wait.session: wait for wait in lab.store.load().waits} == waits_of(lab)
        before = answers(lab)
        lab.restart()
        lab.pass_time(0)
        assert_same(before, answers(lab))


def waits_of(lab: Machine) -> dict[str, object]:
    waits = lab.service._waits
    records = (record for record in lab.service.state.sessions.values() if record.open)
    return {record.id: wait for record in records if (wait := waits._wait_of(record)) is not None}


def assert_same(before: Answers, after: Answers) -> None:
    reported, tells = before[EVENTS], after[EVENTS]
    assert tells[: len(reported)] == reported
    same, as_before = lasting(after), lasting(before)
    for found in (same, as_before):  # of those that were nominated at the same time none is the older one
        found[KEPT].sort(key=lambda kept: kept["uid"])
    del same[EVENTS], as_before[EVENTS]
    for route, path in as_before:
        assert same[route, path] == as_before[route, path], path
    assert same.keys() == as_before.keys()
    for session, one in zip(before["/v1/sessions", "/v1/sessions"], after["/v1/sessions", "/v1/sessions"], strict=True):
        assert one["pending"] + one["running"] == session["pending"] + session["running"]


Restarts.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
test_any_restart = Restarts.TestCase
