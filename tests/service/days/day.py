"""One day: a service, its engine, and what happens to them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import extract_tb

from tests.lab import check_books
from tests.service.days.engine import Agenda, SlowEngine
from tests.service.days.shape import draw_shape
from tests.service.days.store import Forgetful, Synchronous
from tests.service.days.tally import Tally
from tests.service.days.watch import Watch

from ullage.model.node import Node
from ullage.service.engine_port import EngineEvent, NodeLost, NodeReported
from ullage.service.service import ServiceHost, ServiceSettings, UllageService
from ullage.storage.open import open_store

_ROUNDS = 500
"""Turns of the service without time passing, after which it will never come to rest."""


class Restless(AssertionError):
    """The service goes on although nothing happens."""


class Day:
    """A day with this seed. With the path of a store its server restarts now and then.

    After a restart its nodes report within `nodes_within_s`.
    """

    nodes_within_s = 0.0

    def __init__(self, seed: int, tally: Tally, path: str = "memory://") -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.shape = draw_shape(self.rng)
        self.policy, self.queues = self.shape.policy, self.shape.queues
        self.nodes = self._draw_nodes()
        self.agenda = Agenda()
        self.path = path
        self.failing: set[str] = set()
        self._names = 0
        self._length: dict[str, float] = {}
        self._tally = tally
        self._open()
        for node in self.nodes:
            self._report(node)
        self.watch = Watch(self, tally)

    def _draw_nodes(self) -> list[Node]:
        return list(self.shape.nodes)

    @property
    def now(self) -> float:
        return self.agenda.now

    @property
    def all_nodes_known(self) -> bool:
        return all(node.name in self.service.state.nodes for node in self.nodes)

    def _open_store(self) -> Forgetful | Synchronous:
        return Forgetful() if self.path == "memory://" else Synchronous(open_store(self.path))

    def _open(self) -> None:
        self.store = self._open_store()
        self.engine = SlowEngine(self.agenda, self.rng, self._seconds, self.failing)
        self._woken: deque[Callable[[], None]] = deque()
        self._reports: deque[EngineEvent] = deque()
        self.engine.report = self._reports.append
        self.service = UllageService(
            self.store,
            self.engine,
            ServiceSettings(policy=self.policy, queues=self.queues),
            ServiceHost(clock=lambda: self.agenda.now, wake=self._woken.append, on_failure=self._raise),
        )

    @staticmethod
    def _raise(error: BaseException) -> None:
        raise error

    def _seconds(self, session: str) -> float:
        return self.rng.expovariate(1 / self._length[session]) + 0.1

    def run(self, seconds: float) -> None:
        """Let that much time pass. What is raised is a violation, and ends the day."""
        try:
            self._run(seconds)
        except Exception as fault:  # noqa: BLE001 - other days go on
            where = extract_tb(fault.__traceback__)[-1]
            self.watch.fail(f"{type(fault).__name__} in {where.name}, line {where.lineno}: {fault}")
        finally:
            self.store.close()

    def _run(self, seconds: float) -> None:
        end = self.now + seconds
        often = ((self._arrive, self.shape.arrives_s), (self._more, 200), (self._disturb, 150), (self._leave, 400))
        for kind, mean in often:
            self._again(kind, mean)
        for _ in range(self.shape.first):
            self._arrive()
        while self.now < end:
            wake = self._settle()
            self.watch.look()
            self.agenda.now = min(self.agenda.next, end, inf if wake is None else max(wake, self.now + 1e-3))
            for work in self.agenda.due():
                work()
        self._settle()
        check_books(self.service)

    def _again(self, work: Callable[[], None], mean: float) -> None:
        def once() -> None:
            work()
            self._again(work, mean)

        self.agenda.after(self.rng.expovariate(1 / mean), once)

    def _settle(self) -> float | None:
        """Let everything happen that happens without time passing."""
        for _ in range(_ROUNDS):
            while self._woken:
                self._woken.popleft()()
            while self._reports:
                self.service.on_engine_event(self._reports.popleft())
            wake = self.service.tick()
            if not (self._woken or self._reports or self.service.loop.dirty):
                return wake
        raise Restless("the service does not come to rest")

    # --- what happens ---

    def _arrive(self) -> None:
        rng = self.rng
        self._names += 1
        name = f"s{self._names}"
        self._length[name] = rng.choice((2.0, 10.0, 60.0, 600.0))
        spec = self.shape.session(rng)
        self.service.sessions.create(name, spec, lambda: None)
        if rng.random() < 0.03:
            self.failing.add(name)
        self._submit(name, rng.choice((1, 2, 4, 4, 12)) * spec.batch_size)

    def _submit(self, name: str, count: int) -> None:
        record = self.service.state.session(name)
        self.service.tasks.submit(name, f"{name}-{record.next_task}", [b""] * count, None, lambda _first, _n: None)

    def _open_sessions(self) -> list[str]:
        return [record.id for record in self.service.state.sessions.values() if record.takes_tasks]

    def _more(self) -> None:
        names = self._open_sessions()
        if names:
            self._submit(self.rng.choice(names), self.rng.choice((1, 6)))

    def _leave(self) -> None:
        names = self._open_sessions()
        if names:
            self.service.sessions.cancel(self.rng.choice(names), lambda: None)

    def _disturb(self) -> None:
        kinds = [self._cordon, self._cordon, self._kill, self._kill, self._change_priority, self._lose_node]
        self.rng.choice([*kinds, *([self._restart] * 3 if self.path != "memory://" else [])])()

    def _cordon(self) -> None:
        node = self.rng.choice(self.nodes).name
        if node in self.service.state.nodes:
            self.watch.disturbed()
            self.service.nodes.cordon(node, True)
            self.agenda.after(self.rng.choice((1.0, 20.0, 200.0)), lambda: self._uncordon(node))

    def _uncordon(self, node: str) -> None:
        if node not in self.service.state.nodes:
            self.agenda.after(5.0, lambda: self._uncordon(node))
            return
        self.watch.disturbed()
        self.service.nodes.cordon(node, False)

    def _lose_node(self) -> None:
        """Contact is lost for less, or for more, than its executors have to be heard of again."""
        node = self.rng.choice(self.nodes)
        self.watch.node_lost(node.name)
        self.service.on_engine_event(NodeLost(node.name))
        self.agenda.after(self.rng.choice((5.0, 60.0)), lambda: self._comes_back(node))

    def _comes_back(self, node: Node) -> None:
        self.watch.disturbed()
        self._report(node)

    def _report(self, node: Node) -> None:
        self.service.on_engine_event(NodeReported(node))

    def _kill(self) -> None:
        alive = sorted(name for name, worker in self.engine.workers.items() if not worker.ended)
        if alive:
            name = self.rng.choice(alive)
            self.watch.killed(name)
            self.engine.kill(name)

    def _change_priority(self) -> None:
        names = self._open_sessions()
        if names:
            self.service.sessions.update(self.rng.choice(names), {"priority": self.rng.choice((0, 5))}, lambda: None)

    def _restart(self) -> None:
        """The server ends and starts again; its executors end with it."""
        self._settle()
        self.watch.look()
        self._tally.restarts += 1
        cordoned = {node.name for node in self.service.state.nodes.values() if node.cordoned}
        self.engine.dead = True
        self.store.close()
        self._open()
        self.watch.restarted(cordoned)
        for node in self.nodes:
            if self.nodes_within_s:
                self.agenda.after(self.rng.uniform(0.0, self.nodes_within_s), lambda node=node: self._report(node))
            else:
                self._report(node)


def run_days(seeds: Sequence[int], seconds: float = 1800.0) -> Tally:
    """These days, one in four with restarts of the server."""
    tally = Tally()
    memory = Path("/dev/shm")
    for seed in seeds:
        tally.days += 1
        if seed % 4:
            Day(seed, tally).run(seconds)
            continue
        with TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
            day = Day(seed, tally, str(Path(place) / "state.db"))
            day.nodes_within_s = 5.0
            day.run(seconds)
    return tally
