"""A whole service on simulated nodes: real store (in memory), real loop, a clock that the test turns.

`SimulatedEngine` is an adapter of the engine port whose workers are entries in a dictionary: orders
are answered when the test pumps, tasks end when the test says so (or at once).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from ullage.core.explaining.explain import Reasons
from ullage.core.placing.policy import Policy
from ullage.model.executor import BindCode
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.past_use import HalfLife
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec
from ullage.model.task import TaskState
from ullage.service.engine_port import (
    BindOrder,
    Completed,
    EngineEvent,
    ExecutorBound,
    ExecutorGone,
    LaunchOrder,
    NodeReported,
    NoTerminals,
    Registered,
    SignalOrder,
    TaskOrder,
    TaskOutcome,
    Unbound,
)
from ullage.service.service import ServiceHost, ServiceSettings, UllageService
from ullage.service.state import SessionRecord
from ullage.service.store_port import Page
from ullage.storage.open import open_store


def a_node(name: str = "n1", cpu: int = 8, memory: str = "64g", gpus: int = 0, **facts: object) -> Node:
    cards = tuple(Gpu(f"GPU-{name}-{index}", index) for index in range(gpus))
    size = ResourceRequirement.of(memory=memory).memory_bytes
    return Node(name, cpu * 1000, size, cards, **facts)


@dataclass
class Worker:
    launch: LaunchOrder
    bound: BindOrder | None = None
    tasks: deque[TaskOrder] = field(default_factory=deque)
    leaving: bool = False
    stopped: bool = False
    since: float = 0.0


class SimulatedEngine(NoTerminals):
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.workers: dict[str, Worker] = {}
        self.events: deque[EngineEvent] = deque()
        self.bind_code: dict[str, BindCode] = {}
        self.launched: list[LaunchOrder] = []
        self.forgotten: list[str] = []
        self.notes: list[tuple[str, int, str]] = []
        self.graces: dict[str, float] = {}
        self.signals: list[tuple[str, SignalOrder]] = []

    def launch(self, order: LaunchOrder) -> None:
        self.workers[order.executor] = Worker(order)
        self.launched.append(order)
        self.events.append(Registered(order.executor, pid=1))

    def bind(self, order: BindOrder) -> None:
        self.workers[order.executor].bound = order
        code = self.bind_code.get(order.session, BindCode.OK)
        self.events.append(ExecutorBound(order.executor, code, "" if code is BindCode.OK else "no such model"))

    def hand_out(self, executor: str, tasks: Sequence[TaskOrder]) -> None:
        worker = self.workers[executor]
        if not worker.tasks:
            worker.since = self.clock()
        worker.tasks.extend(tasks)

    def unbind(self, executor: str) -> None:
        worker = self.workers[executor]
        worker.leaving = True
        self._leave_if_done(executor)

    def stop(self, executor: str, grace_s: float) -> None:
        self.graces[executor] = grace_s
        worker = self.workers.get(executor)
        if worker is not None and not worker.stopped:
            worker.stopped = True
            self.events.append(ExecutorGone(executor, "stopped"))

    def signal(self, executor: str, order: SignalOrder) -> None:
        self.signals.append((executor, order))

    def note(self, logs: str, task: int, text: str) -> None:
        self.notes.append((logs, task, text))

    def forget(self, logs: str) -> None:
        self.forgotten.append(logs)

    @property
    def alive(self) -> list[str]:
        """Return the executors that were not stopped."""
        return sorted(name for name, worker in self.workers.items() if not worker.stopped)

    @property
    def busy(self) -> list[str]:
        """Return those that have a task."""
        return [name for name in self.alive if self.workers[name].tasks]

    def finish(self, executor: str, code: int = 0, output: bytes = b"done", message: str = "") -> TaskOrder:
        """End the running task of a worker."""
        worker = self.workers[executor]
        task = worker.tasks.popleft()
        now = self.clock()
        outcome = TaskOutcome(task.task, task.claim, code, output, message, worker.since, now)
        worker.since = now
        self.events.append(Completed(executor, (outcome,)))
        self._leave_if_done(executor)
        return task

    def kill(self, executor: str, reason: str = "killed") -> None:
        self.workers[executor].stopped = True
        self.events.append(ExecutorGone(executor, reason))

    def _leave_if_done(self, executor: str) -> None:
        worker = self.workers[executor]
        if worker.leaving and not worker.tasks:
            worker.leaving, worker.bound = False, None
            self.events.append(Unbound(executor))


class Lab:
    def __init__(
        self, *nodes: Node, policy: Policy | None = None, queues: Sequence[Queue] = (), **more: object
    ) -> None:
        self.now = 1000.0
        self.engine = SimulatedEngine(lambda: self.now)
        self.store = open_store("memory://")
        self._woken: deque[Callable[[], None]] = deque()
        self._serve(ServiceSettings(policy=policy or Policy(), queues=queues, **more))
        for node in nodes:
            self.service.on_engine_event(NodeReported(node))
        self.pump()

    def _serve(self, settings: ServiceSettings) -> None:
        self.service = UllageService(
            self.store,
            self.engine,
            settings,
            ServiceHost(clock=lambda: self.now, wake=self._woken.append, on_failure=self._fail),
        )

    def _fail(self, error: BaseException) -> None:
        raise error

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- driving ---

    def pump(self) -> None:
        """Let everything happen that happens without time passing; check the books at each turn."""
        for _ in range(1000):
            self.store.write().result()
            busy = bool(self._woken or self.engine.events) or self.service.loop.dirty
            while self._woken:
                self._woken.popleft()()
            while self.engine.events:
                event = self.engine.events.popleft()
                if isinstance(event, ExecutorGone):
                    self.engine.workers.pop(event.executor, None)
                self.service.on_engine_event(event)
            if self.service.loop.dirty:
                self.service.tick()
            self.check()
            if not busy:
                return
        raise AssertionError("the service does not come to rest")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.service.tick()
        self.pump()

    def session(self, name: str, resreq: str = "cpu=1", tasks: int = 0, **spec: object) -> SessionRecord:
        built = SessionSpec("function", ResourceRequirement.from_string(resreq), **spec)
        record = self.service.sessions.create(name, built, lambda: None)
        self.pump()
        if tasks:
            self.submit(name, tasks)
        return record

    def submit(self, name: str, count: int, key: str | None = None) -> tuple[int, int]:
        answer: list[tuple[int, int]] = []
        record = self.service.state.session(name)
        key = key or f"{name}-{record.next_task}"
        self.service.tasks.submit(name, key, [b"x"] * count, None, lambda first, n: answer.append((first, n)))
        self.pump()
        return answer[0]

    def finish(self, name: str, count: int = 1, code: int = 0, message: str = "") -> None:
        """End `count` running tasks of a session, lowest ids first."""
        for _ in range(count):
            running = sorted((w.tasks[0].task, e) for e, w in self.engine.workers.items() if self._works_for(w, name))
            self.engine.finish(running[0][1], code, message=message)
            self.pump()

    @staticmethod
    def _works_for(worker: Worker, name: str) -> bool:
        return bool(worker.tasks) and worker.tasks[0].session == name and not worker.stopped

    # --- looking ---

    def held(self, name: str) -> int:
        return sum(e.session == name and e.phase.value in {"starting", "vacant", "busy"} for e in self.executors)

    @property
    def executors(self) -> list:
        return list(self.service.state.executors.values())

    def counts(self, name: str) -> dict[str, int]:
        return {state.value: n for state, n in self.service.state.session(name).counts.items()}

    def states(self, name: str) -> list[str]:
        return [state.value for _, state in self.service.tasks.list(name, Page(0, 10_000))]

    def why(self, name: str) -> Reasons:
        """Return why a session has what it has."""
        return self.service.explaining(name)()

    def deserved(self, name: str) -> int:
        return self.service.state.session(name).deserved

    def check(self) -> None:
        """The laws that hold after every step."""
        check_books(self.service)


class Machine(Lab):
    """A lab on a file. `restart` ends the process with all its workers and starts it again."""

    def __init__(self, path: str, *nodes: Node) -> None:
        super().__init__()
        self._path = path
        self._nodes = nodes
        self.restart()

    def restart(self) -> None:
        self.store.close()
        self.store = open_store(self._path)
        self._woken.clear()
        self.engine = SimulatedEngine(lambda: self.now)
        self._serve(ServiceSettings(policy=self.policy, queues=self.queues, half_life=self.half_life))
        for node in self._nodes:
            self.service.on_engine_event(NodeReported(node))
        self.pump()

    queues: tuple[Queue, ...] = ()
    policy = Policy()
    half_life: HalfLife | None = None

    def claims(self) -> set[int]:
        return {order.claim for worker in self.engine.workers.values() for order in worker.tasks}


def check_books(service: UllageService) -> None:
    """Columns equal inventory minus ledger; nothing is over-committed; counts add up."""
    state = service.state
    fleet = state.fleet
    rebuilt = type(fleet)(fleet.nodes, fleet.ledger.values(), profiles=fleet.profiles)
    for name in ("cpu_free", "memory_free", "gpu_free", "slots_free", "compute_free", "vram_free", "card_users"):
        assert (getattr(fleet, name) == getattr(rebuilt, name)).all(), name
    assert (fleet.board.supplies == rebuilt.board.supplies).all(), "what is free in zones"
    assert {uid for uid, held in fleet.ledger.items() if held.of_session} == set(state.executors)
    if any(held.observed for held in fleet.ledger.values()):
        return  # what a node shows may contradict what is bound
    pinned = [(held.node, cpu) for held in fleet.ledger.values() if held.placement for cpu in held.placement.cpus]
    assert len(pinned) == len(set(pinned)), "a CPU has two owners"
    for held in fleet.holders:
        assert len(held) < 2 or None not in held.values(), "a card that is held whole has two owners"
    assert (fleet.compute_free >= 0).all(), "a card gives more compute than it has"
    assert (fleet.vram_free >= 0).all(), "a card gives more vram than it has"
    for executor in state.executors.values():
        if executor.session is not None:
            assert executor.id in state.sessions[executor.session].executors
    for record in state.sessions.values():
        running = sum(task.executor is not None for task in record.tasks.values())
        assert record.counts[TaskState.RUNNING] == running
        assert record.counts[TaskState.PENDING] == len(record.tasks) - running
        waiting = {task for task in record.line if task in record.tasks and not record.tasks[task].executor}
        assert not record.open or len(waiting) == record.pending
        assert sum(record.counts.values()) <= record.next_task - 1
