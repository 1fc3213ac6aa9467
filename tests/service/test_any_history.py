"""Any history of submits, ends, failures, kills, cancels and time keeps the laws after every step."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.lab import Lab, a_node

from ullage.core.cycle import schedule
from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import WORKING, World
from ullage.model.error import Conflict
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code
from ullage.model.resources import MILLI
from ullage.model.task import TaskState

QUEUES = (Queue("default"), Queue("team", weight=2), Queue("capped", limit=Limit(gpu_milli=2 * MILLI)))
REQUESTS = ["cpu=1", "cpu=2,mem=4g", "cpu=1,gpu=1", "cpu=3,gpu=2", "gpu=4", "cpu=99", "mem=30g"]


class History(RuleBasedStateMachine):
    @initialize(gpus=st.integers(0, 4), grace=st.sampled_from([None, 0.0, 30.0]), runtime=st.sampled_from([0.0, 5.0]))
    def open_lab(self, gpus, grace, runtime):
        policy = Policy(reclaim_grace_s=grace, min_runtime_s=runtime, reserve_after_s=60)
        nodes = [a_node("n1", 8, "32g", gpus), a_node("n2", 4, "16g"), a_node("n3", 6, "32g", gpus)]
        self.lab = Lab(*nodes, policy=policy, queues=QUEUES)
        self.names: list[str] = []

    def teardown(self):
        if hasattr(self, "lab"):
            try:
                self.everything_that_can_run_ends()
            finally:
                self.lab.close()

    def everything_that_can_run_ends(self):
        """Live: once all nodes take work, tasks only succeed and no minimum is held, nothing that fits waits."""
        for name in self.names:
            if self.lab.service.state.session(name).open:
                self.lab.service.sessions.update(name, {"min_instances": 0}, lambda: None)
        for node in ("n1", "n2", "n3"):
            self.lab.service.nodes.cordon(node, False)
        self.lab.pump()
        for _ in range(60):
            busy = self.lab.engine.busy
            for executor in busy:
                if executor in self.lab.engine.busy:  # it may have gone when another one ended
                    self.lab.engine.finish(executor)
            self.lab.pump()
            self.lab.pass_time(61)
            if not busy:
                break
        for record in self.lab.service.state.sessions.values():
            if record.open and record.pending >= record.session.spec.batch_size:
                reasons = self.lab.why(record.id)
                assert reasons.code in (Code.TOO_LARGE, Code.QUEUE_LIMIT), (record.id, reasons)
            assert not record.counts[TaskState.RUNNING]

    # --- what can happen ---

    @rule(
        request=st.sampled_from(REQUESTS),
        queue=st.sampled_from([queue.name for queue in QUEUES]),
        priority=st.sampled_from([0, 0, 7]),
        weight=st.integers(1, 3),
        batch=st.sampled_from([1, 1, 1, 2, 3]),
        minimum=st.sampled_from([0, 0, 1]),
        maximum=st.sampled_from([None, 3, 6]),
        tasks=st.integers(0, 6),
        retries=st.sampled_from([0, 1]),
    )
    def create(self, request, queue, priority, weight, batch, minimum, maximum, tasks, retries):
        name = f"s{len(self.names)}"
        self.names.append(name)
        self.lab.session(
            name,
            request,
            tasks,
            queue=queue,
            priority=priority,
            weight=weight,
            batch_size=batch,
            min_instances=minimum,
            max_instances=maximum,
            retries=retries,
        )

    @precondition(lambda self: self.names)
    @rule(data=st.data(), count=st.integers(1, 5))
    def submit(self, data, count):
        name = data.draw(st.sampled_from(self.names))
        if self.lab.service.state.session(name).open:
            self.lab.submit(name, count)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), maximum=st.sampled_from([None, 3, 6]), priority=st.sampled_from([0, 7]))
    def update(self, data, maximum, priority):
        name = data.draw(st.sampled_from(self.names))
        if self.lab.service.state.session(name).open:
            changes = {"max_instances": maximum, "priority": priority}
            self.lab.service.sessions.update(name, changes, lambda: None)
            self.lab.pump()

    @rule(data=st.data(), code=st.sampled_from([0, 0, 0, 1]))
    def finish(self, data, code):
        if busy := self.lab.engine.busy:
            self.lab.engine.finish(data.draw(st.sampled_from(busy)), code)
            self.lab.pump()

    @rule(data=st.data())
    def kill_an_executor(self, data):
        if alive := self.lab.engine.alive:
            self.lab.engine.kill(data.draw(st.sampled_from(alive)))
            self.lab.pump()

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def cancel_session(self, data):
        self.lab.service.sessions.cancel(data.draw(st.sampled_from(self.names)), lambda: None)
        self.lab.pump()

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def close_session(self, data):
        name = data.draw(st.sampled_from(self.names))
        try:
            self.lab.service.sessions.close(name, lambda: None)
        except Conflict:
            assert self.lab.counts(name)["running"]
        self.lab.pump()

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def cancel_task(self, data):
        record = self.lab.service.state.session(data.draw(st.sampled_from(self.names)))
        if record.tasks:
            self.lab.service.tasks.cancel(record.id, data.draw(st.sampled_from(sorted(record.tasks))))
            self.lab.pump()

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def cancel_some_tasks(self, data):
        record = self.lab.service.state.session(data.draw(st.sampled_from(self.names)))
        if record.next_task > 1:
            numbers = data.draw(st.sets(st.integers(1, record.next_task - 1)))
            left = {number for number in numbers if number in record.tasks}
            assert self.lab.service.tasks.cancel_some(record.id, numbers, lambda: None) == len(left)
            self.lab.pump()

    @rule(node=st.sampled_from(["n1", "n2", "n3"]), cordoned=st.booleans())
    def cordon(self, node, cordoned):
        self.lab.service.nodes.cordon(node, cordoned)
        self.lab.pump()

    @rule(node=st.sampled_from(["n1", "n2"]), seconds=st.sampled_from([1, 31]))
    def lose_a_node_and_see_it_again(self, node, seconds):
        known = self.lab.service.state.nodes[node]
        self.lab.service.nodes.lost(node)
        self.lab.pass_time(seconds)
        self.lab.service.nodes.reported(known)
        self.lab.pump()

    @rule(seconds=st.sampled_from([1, 29, 61, 300]))
    def pass_time(self, seconds):
        self.lab.pass_time(seconds)

    # --- what always holds (the books are checked by the lab at every turn) ---

    @invariant()
    def limits_hold(self):
        if not hasattr(self, "lab"):
            return
        state = self.lab.service.state
        held = sum(
            len(e.gpus)
            for r in state.sessions.values()
            if r.session.spec.queue == "capped"
            for e in r.executors.values()
        )
        assert held <= 2
        for record in state.sessions.values():
            maximum = record.session.spec.max_instances
            assert maximum is None or self.lab.held(record.id) <= maximum

    @invariant()
    def batches_run_whole(self):
        if not hasattr(self, "lab"):
            return
        for record in self.lab.service.state.sessions.values():
            assert record.counts[TaskState.RUNNING] % record.session.spec.batch_size == 0 or record.session.cancelled
            for task in record.tasks.values():
                assert task.executor is None or all(member.executor for member in task.together())

    @invariant()
    def gangs_are_whole(self):
        if not hasattr(self, "lab"):
            return
        gangs: dict[str, list] = {}
        for executor in self.lab.executors:
            if executor.gang and executor.phase in WORKING:
                gangs.setdefault(executor.gang.id, []).append(executor)
        for members in gangs.values():
            assert len(members) == members[0].gang.size

    @invariant()
    def who_waits_has_a_reason(self):
        if not hasattr(self, "lab"):
            return
        for record in self.lab.service.state.sessions.values():
            if record.open and record.counts[TaskState.PENDING]:
                reasons = self.lab.why(record.id)
                assert reasons.summary
                if reasons.held < reasons.want:
                    assert reasons.cure is not None, reasons

    @invariant()
    def deciding_is_pure_and_blind_to_order(self):
        if not hasattr(self, "lab"):
            return
        world = self.lab.service.loop.world()
        turned = World(world.fleet, world.demands[::-1], world.executors[::-1], world.queues[::-1], world.promises)
        before = dict(world.fleet.ledger), world.fleet.cpu_free.tolist(), world.fleet.card_users.tolist()
        plan = schedule(world, self.lab.service.policy, self.lab.now)
        assert plan == schedule(turned, self.lab.service.policy, self.lab.now)
        assert before == (dict(world.fleet.ledger), world.fleet.cpu_free.tolist(), world.fleet.card_users.tolist())

    @invariant()
    def nothing_free_that_somebody_could_use(self):
        """Work-conserving: at rest, a cycle has nothing more to start."""
        if hasattr(self, "lab"):
            plan = schedule(self.lab.service.loop.world(), self.lab.service.policy, self.lab.now)
            assert not [action for action in plan.actions if type(action).__name__ in {"Start", "Reuse"}]


History.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_any_history = History.TestCase
