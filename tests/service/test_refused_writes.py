"""A store that refuses any write of a history and all after it: memory and a restart agree, no answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import lab as lab_module
from tests.lab import Machine, a_node, check_books
from tests.service.answers import Answers, answers, lasting, without

from ullage.core.placing.adjust import AmountsChange
from ullage.model.application import Application
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import DiskFull, Unavailable
from ullage.model.part import Part
from ullage.model.queue import Queue
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionSpec
from ullage.service.store_port import Record, Store
from ullage.storage.open import open_store

pytestmark = pytest.mark.long

FULL, BROKEN = "full", "broken"
NODES = (a_node("cards-1", cpu=0, gpus=2), a_node("cards-2", cpu=0, gpus=2), a_node("cpus", cpu=3))

Done = Callable[..., None]
Step = Callable[[Machine, Done], object]


class RefusingStore:
    """A store that writes nothing from write number `at` on: its disk is full then, or it is broken."""

    def __init__(self, store: Store) -> None:
        self._store, self._notify = store, lambda _error: None
        self._at, self._how, self.written = 0, "", 0
        self._held: list[tuple[tuple[Record, ...], Future[None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def watch_room(self, notify: Callable[[Unavailable | None], None]) -> None:
        self._notify = notify

    def refuse(self, at: int, how: str) -> None:
        self._at, self._how, self.written = at, how, 0

    def write(self, *records: Record) -> Future[None]:
        self.written += bool(records)
        if not self._at or self.written < self._at:
            return self._store.write(*records)
        future: Future[None] = Future()
        if self._how == BROKEN:
            future.set_exception(Unavailable("the disk fails", code="storage-failed"))
            return future
        self._held.append((records, future))
        if records and len(self._held) == 1:
            self._notify(DiskFull("the disk is full"))
        return future

    def catch_up(self) -> None:
        """Wait for what is being written."""
        self._store.write().result()

    def make_room(self) -> None:
        """Write what waits, as the writer of the store does."""
        self._at = 0
        for records, future in self._held:
            self._store.write(*records).result()
            future.set_result(None)
        if self._held:
            self._notify(None)


class Server(Machine):
    """A service on such a store; after a failure of the store it does nothing any more, as a process that ended."""

    failure: BaseException | None = None

    def _fail(self, error: BaseException) -> None:
        self.failure = error

    @property
    def takes_changes(self) -> bool:
        return self.failure is None and self.service.no_room is None

    def pump(self) -> None:
        for _ in range(1000):
            self.store.catch_up()
            busy = bool(self._woken or self.engine.events) or (self.takes_changes and self.service.loop.dirty)
            while self._woken and self.failure is None:
                self._woken.popleft()()
            while self.engine.events and self.takes_changes:
                event = self.engine.events.popleft()
                self.service.on_engine_event(event)
            if self.takes_changes and self.service.loop.dirty:
                self.service.tick()
            if self.failure is None:
                check_books(self.service)
            if not busy or not self.takes_changes:
                return
        raise AssertionError("the service does not come to rest")

    def run(self, steps: list[Step]) -> list[int]:
        """Return the steps that were answered; once the store refuses, no step is begun."""
        answered: list[int] = []
        for number, step in enumerate(steps):
            if not self.takes_changes:
                break
            step(self, lambda *_, number=number: answered.append(number))
            self.pump()
        return answered


@contextmanager
def a_server(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    path.parent.mkdir(exist_ok=True)
    monkeypatch.setattr(lab_module, "open_store", lambda place: RefusingStore(open_store(place)))
    with Server(str(path), *NODES) as server:
        yield server


# --- the history ---


def asked(server: Machine, uid: str, text: str, priority: int = 0, gang: GangClaim | None = None) -> Request:
    requirement = ResourceRequirement.from_string(f"cpu=0,mem=0,{text}")
    return Request(uid, requirement, Claim(pod=uid, priority=priority, gang=gang, created_at=server.now))


def create(server: Machine, done: Done) -> object:
    return server.service.sessions.create("s", SessionSpec("function", ResourceRequirement.from_string("cpu=1")), done)


def submit(server: Machine, done: Done) -> object:
    return server.service.tasks.submit("s", "k", [b"x"] * 3, None, done=done)


def alloc(uid: str, text: str, priority: int = 0) -> Step:
    return lambda server, done: server.service.preemptions.alloc(asked(server, uid, text, priority), done)


def gang(server: Machine, done: Done) -> object:
    claim = GangClaim("g0", 2, 2, None)
    members = [asked(server, f"g0-{number}", "gpu=1", gang=claim) for number in range(2)]
    return server.service.gangs.put("g0", members, done)


def make_room(server: Machine, done: Done) -> object:
    return server.service.consolidations.carry_out(asked(server, "room", "gpu=2"), ["room-1"], None, done)


def of(part: str, use_case: str, *arguments: object) -> Step:
    return lambda server, done: getattr(getattr(server.service, part), use_case)(*arguments, done)


SESSIONS: dict[str, Step] = {
    "put a queue": of("catalog", "put_queue", Queue("team", weight=2)),
    "put an application": of("catalog", "put_application", Application("app", "run")),
    "create": create,
    "submit": submit,
    "update": of("sessions", "update", "s", {"priority": 3}),
    "cancel": of("sessions", "cancel", "s"),
    "delete": of("sessions", "delete", "s"),
    "drop the queue": of("catalog", "drop_queue", "team"),
    "drop the application": of("catalog", "drop_application", "app"),
}
REQUESTS: dict[str, Step] = {
    "put a quota": of("quotas", "put", "default", Quota(max_workers=20)),
    "bind": alloc("p0", "gpu=0.5"),
    "adjust": lambda server, done: server.service.allocations.adjust("p0", AMOUNTS, False, done),
    "assume": lambda server, done: server.service.allocations.assume(asked(server, "p1", "gpu=0.3"), None, done),
    "commit": of("allocations", "commit", "p1"),
    "assume another": lambda server, done: server.service.allocations.assume(asked(server, "p2", "gpu=1"), None, done),
    "forget": of("allocations", "forget", "p2"),
    "put a gang": gang,
    "preempt": alloc("urgent", "gpu=2", 5),
    "free a victim": of("allocations", "dealloc", "p0", None),
    "drop the gang": of("gangs", "drop", "g0"),
    "release": of("allocations", "release", "p1", 60.0),
    "drop the quota": of("quotas", "drop", "default"),
}
AMOUNTS = AmountsChange(Part(compute_ppm=600_000, vram_ppm=600_000))
HISTORIES = {"sessions": SESSIONS, "requests": REQUESTS}
EVENTS = ("/v1/events", "/v1/events")


def shown(server: Server) -> Answers:
    """What the server says and a restart must not change. Events, and where a task ran last, are not of a step."""
    ran = frozenset({"executor", "started_at"})
    return {key: without(answer, ran) for key, answer in lasting(answers(server)).items() if key != EVENTS}


def restarted(server: Server) -> Answers:
    server.failure = None
    server.restart()
    return shown(server)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Answers]]:
    """What a restart shows after no step of a history, after the first, and so on."""
    found: dict[str, list[Answers]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, history in HISTORIES.items():
            found[name] = []
            for number in range(len(history) + 1):
                path = tmp_path_factory.mktemp("reference") / "state.db"
                with a_server(path, patch) as server:
                    assert len(server.run(list(history.values())[:number])) == number
                    found[name].append(restarted(server))
    return found


def refusals(
    history: dict[str, Step], how: str, tmp_path: Path, patch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, ...]]:
    """Yield a server for each write of a history that may be the first that is refused, and the steps it answered."""
    for at in range(1, 1000):
        with a_server(tmp_path / f"{at}" / "state.db", patch) as server:
            server.store.refuse(at, how)
            answered = server.run(list(history.values()))
            if server.takes_changes:
                assert at > len(history), "each step writes something"
                return
            yield at, server, answered
    raise AssertionError("the history has no end")


@pytest.mark.parametrize("name", HISTORIES)
def test_once_a_full_disk_has_room_memory_is_what_a_restart_shows(name, tmp_path, monkeypatch):
    for at, server, _ in refusals(HISTORIES[name], FULL, tmp_path, monkeypatch):
        server.store.make_room()
        server.pump()
        assert server.takes_changes
        before = shown(server)
        assert restarted(server) == before, at


@pytest.mark.parametrize("how", [FULL, BROKEN])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_restart_shows_each_step_that_was_answered_and_of_the_next_all_or_nothing(
    name, how, tmp_path, monkeypatch, after
):
    names = [*HISTORIES[name], "the end"]
    for at, server, answered in refusals(HISTORIES[name], how, tmp_path, monkeypatch):
        assert answered == list(range(len(answered)))
        found = restarted(server)
        possible = after[name][len(answered) : len(answered) + 2]
        differing = [{key for key in found if found[key] != other.get(key)} for other in possible]
        assert set() in differing, (at, names[len(answered)], differing)
