"""A server on this machine: state, engine, loop and HTTP server, from start to end.

The process is crash-only: it can be killed at any moment, and the next start restores every acknowledged change.
A failed write ends the process, because memory is then ahead of the disk.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import ullage
from ullage.bootstrap import log
from ullage.bootstrap.announcement import announce, announce_to_all, listen_at_home, listen_for_all, withdraw
from ullage.bootstrap.clock import ClockWatch, steady_clock
from ullage.bootstrap.end import End
from ullage.bootstrap.http.bounds import local_bounds
from ullage.bootstrap.http.server import BoundedServer
from ullage.bootstrap.listener import listen, reachable_host
from ullage.bootstrap.settings import PREFERRED_PORT, Settings, check_port, read_settings
from ullage.bootstrap.settings_changes import changed_settings, file_settings
from ullage.bootstrap.settings_check import check_start, unsatisfiable
from ullage.bootstrap.strategies import load_strategies
from ullage.bootstrap.token import own_token
from ullage.bootstrap.warm import change_over
from ullage.bootstrap.webhooks import Webhooks
from ullage.client.endpoint import LOG_FILE, SETTINGS_FILE, make_home
from ullage.core.kernel.compiling import tiers
from ullage.engines.open import EngineContext, open_engine
from ullage.inventory.machine import Machine, discover
from ullage.inventory.nvml import CardReader, CardsUnreadable, NvmlCards
from ullage.inventory.topology_reader import TopologyReader
from ullage.model.card_load import CardLoad
from ullage.model.error import UllageError, Unavailable, invalid
from ullage.model.event import Event
from ullage.server.app import describe_api, make_app
from ullage.server.history import Retention
from ullage.service.access_tokens import page_key
from ullage.service.engine_port import EngineEvent, HostedEngine
from ullage.service.service import ServiceHost, UllageService
from ullage.storage.failpoint import FailingStore
from ullage.storage.open import open_store
from ullage.web.pages import pages
from ullage.web.reference import reference
from ullage.wire.overview import ServerBody

HEARTBEAT_S = 5.0
"""Seconds between two discoveries of this machine."""

RETENTION_S = 60.0
"""Seconds between two searches for what is kept no longer."""

DRAIN_S = 2
"""Seconds in which requests in progress at the end are still answered."""

_COUNT = re.compile(r"-?[0-9]{1,18}")

CYCLE_GAP_S = 0.02
"""Seconds in which changes in the number of tasks are collected before a cycle handles them."""


def serve(home: Path, config: Path | None, host: str | None, port: int | None, gpus: str | None) -> int:
    """Run a server until a signal ends it; return the exit code.

    `home` holds its state; host, port and gpus (a count or a comma list of ids) override the file.

    Raises:
        InvalidRequest: a setting is wrong, or an installed strategy is broken.
        Unavailable: the state, the home or the port cannot be used.

    """
    import uvloop  # noqa: PLC0415 - imported where it is used: the import takes 20 ms

    load_strategies()
    usual = home / SETTINGS_FILE
    file = usual if config is None and usual.exists() else config
    settings = _override(read_settings(file, os.environ), host, port, gpus)
    check_start(settings)  # reports errors before any file is created
    make_home(home)
    log.bound_size(home / LOG_FILE)
    tiers.start_plain()
    options = {"config": None if file is None else str(file.absolute()), "gpus": cards_text(settings.node.gpus)}
    in_force = {name: value for name, value in options.items() if value is not None}
    return uvloop.run(_Server(home, settings, in_force).run())


def _log_eviction(event: Event) -> None:
    """Log the eviction of an executor, with the session that gets its room."""
    if event.kind in ("executor.reclaimed", "executor.evicted"):
        log.info(event.kind, session=event.session, executor=event.data["executor"], message=event.message)


FAIL_AT = "ULLAGE_FAIL_AT"
"""Environment variable that makes the server die at a step of a write (see `storage/failpoint.py`)."""


class _Server:
    def __init__(self, home: Path, settings: Settings, options: dict[str, str]) -> None:
        self._home = home
        self._settings = settings
        self._options = options
        self._file = Path(options["config"]) if "config" in options else None
        self._at_start = file_settings(self._file)
        self._sharing = settings.sharing()
        self._tls = settings.server.tls()
        self._machine = settings.machine(self._sharing)
        self._cards: CardReader = NvmlCards()
        self._meter = NvmlCards()
        self._topology = TopologyReader()
        self._topology_note = ""
        self._end = End()
        self._clock = steady_clock()

    async def run(self) -> int:
        listener = _listen(self._settings.server.host, self._settings.server.port)
        machine = self._discover()
        log.info("node.discovered", node=machine.node.name, note=machine.note)
        context = self._context(machine)
        engine = open_engine(self._settings.server.engine, context)
        store = open_store(self._settings.server.storage or str(self._home / "state.db"))
        if FAIL_AT in os.environ:
            store = FailingStore(store, os.environ[FAIL_AT])
        loop = asyncio.get_running_loop()
        clock = self._clock
        try:
            ticker = _Ticker(clock, self._end.fail)
            host = ServiceHost(
                clock=clock,
                wake=loop.call_soon_threadsafe,
                on_failure=self._end.fail,
                later=_InThread(self._end.fail),
                on_change=ticker.changed,
                on_event=_log_eviction,
            )
            service = UllageService(store, engine, self._settings.service(machine.node.name), host)
            ticking = asyncio.create_task(ticker.run(service.tick))
            await engine.open(_Reports(service, self._end.fail))
            engine.keep_logs({record.session.logs for record in service.state.sessions.values()})
            compiling = asyncio.create_task(change_over())
            hosts = self._settings.server.notify_hosts
            sending = asyncio.create_task(Webhooks(service.sessions.notices, service.news, clock, hosts).run())
            try:
                await self._serve(service, engine, machine, listener)
            finally:
                ticking.cancel()
                compiling.cancel()
                sending.cancel()
                service.executors.expect_end()
                await engine.close()
                await asyncio.wait({ticking, compiling, sending})
        finally:
            listener.close()
            store.close()
        if self._end.failure is not None:
            log.error("server.failed", error=str(self._end.failure))
        return 1 if self._end.failure is not None else 0

    def _context(self, machine: Machine) -> EngineContext:
        users = self._settings.users
        clients = Path(users.socket) if users.socket is not None and users.run_as == "owner" else None
        return EngineContext(self._home, machine.node, secrets.token_hex(8), self._sharing, clients=clients)

    def _discover(self) -> Machine:
        """Return the machine as it is now. Log once what its topology lacks."""
        machine = discover(self._machine, os.environ, self._cards, topology=self._topology)
        note = machine.node.topology_note
        if note and note != self._topology_note:
            log.warning("node.topology-incomplete", node=machine.node.name, note=note)
        self._topology_note = note
        return machine

    async def _serve(
        self, service: UllageService, engine: HostedEngine, machine: Machine, listener: socket.socket
    ) -> None:
        address, port = listener.getsockname()[:2]
        host = reachable_host(address, self._settings.server.names)
        url = f"{'http' if self._tls is None else 'https'}://{host}:{port}"
        token = own_token(self._home / "token")
        body = ServerBody(
            version=ullage.__version__,
            epoch=service.state.epoch,
            started_at=time.time(),
            home=str(self._home),
            storage=self._settings.server.storage or str(self._home / "state.db"),
            isolation=engine.layer,
            policy=msgspec.to_builtins(service.policy),
        )
        app = make_app(
            service,
            body,
            {machine.node.name: machine.note},
            token,
            hosts={host, "localhost", "127.0.0.1", *self._settings.server.names},
            task_logs=self._home / "logs" / "tasks",
            shut_down=lambda user: self._end.begin(f"a request of {user}"),
            pages=[*pages(page_key), reference(lambda: describe_api(ullage.__version__))],
        )
        shared = None if self._settings.users.socket is None else Path(self._settings.users.socket)
        for_all = [] if shared is None else [listen_for_all(shared)]
        front = BoundedServer(app, local_bounds(), self._tls, drain_s=DRAIN_S)
        self._end.watch_signals(self._hang_up)
        running = asyncio.create_task(front.serve(sockets=[listener, listen_at_home(self._home), *for_all]))
        heartbeat = asyncio.create_task(self._rediscover(service))
        retaining = asyncio.create_task(self._retain(service))
        warnings = unsatisfiable(self._settings, self._machine, machine.node)
        for text in warnings:
            log.warning("settings.unsatisfiable", text=text)
        service.accounting.heartbeat()
        announce(self._home, url, self._options, warnings, settings=self._at_start)
        if shared is not None:
            announce_to_all(shared, url)
        gc.freeze()  # a garbage collection over the restored state would delay every request
        log.info("server.ready", url=url, isolation=engine.layer)
        try:
            await asyncio.wait([running, asyncio.create_task(self._end.wait())], return_when=asyncio.FIRST_COMPLETED)
        finally:
            withdraw(self._home)
            if shared is not None:
                withdraw(shared)
            heartbeat.cancel()
            retaining.cancel()
            front.should_exit = True
            await running

    def _hang_up(self) -> None:
        """Log that a hangup changes nothing, and which settings a restart would change."""
        usual = self._home / SETTINGS_FILE
        try:
            file = usual if self._file is None and usual.exists() else self._file
            changed: object = changed_settings(file, self._at_start)
        except UllageError as error:
            changed = error.message
        note = "a hangup (SIGHUP) changes nothing: settings are read at the start, and the server bounds its log itself"
        log.warning("server.hangup", note=note, changed_settings=changed)

    async def _rediscover(self, service: UllageService) -> None:
        """Report changes of the machine, such as failed cards, new cgroup limits and a clock that was set."""
        watch = ClockWatch(self._clock)
        while True:
            if service.card_use.is_due(now := time.time()):
                service.card_use.add(now, service.state.fleet, await asyncio.to_thread(self._loads))
            await asyncio.sleep(HEARTBEAT_S)
            watch.check()
            try:
                if self._tls is not None and self._tls.renew():
                    log.info("tls.renewed")
                machine = await asyncio.to_thread(self._discover)
                service.nodes.heartbeat(machine.node)
                service.accounting.heartbeat()
            except UllageError as error:
                log.warning("node.unreadable", error=error.message)

    async def _retain(self, service: UllageService) -> None:
        """Drop what is kept no longer."""
        retention = Retention(service, self._settings.history.keeping())
        while True:
            await asyncio.sleep(RETENTION_S)
            try:
                if deleted := (await retention.sweep(time.time())).sessions:
                    log.info("retention.deleted", sessions=deleted)
            except UllageError as error:
                log.warning("retention.failed", error=error.message)

    def _loads(self) -> tuple[CardLoad, ...]:
        """Return how busy the cards are; without a driver nothing is measured."""
        try:
            return self._meter.loads()
        except CardsUnreadable:
            return ()


class _InThread:
    """Runs work in a thread, so that requests are answered meanwhile, and passes its result to the loop."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._running: set[asyncio.Task[None]] = set()

    def __call__(self, work: Callable[[], Any], take: Callable[[Any], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(work, take))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, work: Callable[[], Any], take: Callable[[Any], None]) -> None:
        try:
            take(await asyncio.to_thread(work))
        except Exception as fault:  # noqa: BLE001 - a half-done change must not be continued
            self._fail(fault)


class _Reports:
    """Passes the engine's reports on. An error may leave memory half changed, so it ends the process."""

    def __init__(self, service: UllageService, fail: Callable[[BaseException], None]) -> None:
        self._service = service
        self._fail = fail

    def on_engine_event(self, event: EngineEvent) -> None:
        try:
            self._service.on_engine_event(event)
        except Exception as fault:  # noqa: BLE001 - memory may be half changed
            self._fail(fault)


class _Ticker:
    """Runs the turns of a service: at once after an urgent change, else when one is due."""

    def __init__(self, clock: Callable[[], float], fail: Callable[[BaseException], None]) -> None:
        self._clock = clock
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")
        self._rest_s = 0.0

    def changed(self, urgent: bool) -> None:
        self._wake_in(self._rest_s if urgent else max(CYCLE_GAP_S, self._rest_s))

    def _wake_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if at >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._loop.call_later(seconds, self._due.set)

    async def run(self, turn: Callable[[], float | None]) -> None:
        """Run turns until one fails. Each returns when the next one is due, if one is."""
        while await self._due.wait():
            self._due.clear()
            self._at = float("inf")
            begin = self._loop.time()
            try:
                due = turn()
            except Exception as fault:  # noqa: BLE001 - an error in the ledger ends the process, and a restart recovers
                self._fail(fault)
                return
            self._rest_s = self._loop.time() - begin  # at least as much time for other work as for this
            if due is not None:
                self._wake_in(max(0.0, due - self._clock()))


def _override(settings: Settings, host: str | None, port: int | None, gpus: str | None) -> Settings:
    server = msgspec.structs.replace(
        settings.server,
        host=settings.server.host if host is None else host,
        port=settings.server.port if port is None else port,
    )
    check_port(server.port, "port")
    node = settings.node
    if gpus is not None:
        node = msgspec.structs.replace(node, gpus=_cards(gpus))
    return msgspec.structs.replace(settings, server=server, node=node)


def _cards(text: str) -> int | list[str]:
    if _COUNT.fullmatch(text.strip()):
        return int(text)
    ids = [entry.strip() for entry in text.split(",")]
    if not all(ids):
        raise invalid("--gpus", text, "write a count such as 4, or indexes or uuids such as 0,2 without empty entries")
    return ids


def cards_text(cards: int | list[str] | None) -> str | None:
    """Return the cards of the settings as `--gpus` has them, or as the file does if that option cannot name them."""
    if cards is None or isinstance(cards, int):
        return None if cards is None else str(cards)
    text = ",".join(cards)
    return text if len(cards) > 1 or not _COUNT.fullmatch(text) else str(cards)


def _listen(host: str, port: int | None) -> socket.socket:
    fix = "choose another port with --port"
    if port is not None:
        return listen(host, port, fix)
    try:
        return listen(host, PREFERRED_PORT, fix)
    except Unavailable:
        return listen(host, 0, fix)
