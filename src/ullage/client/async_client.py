"""The client for asyncio code.

It is the blocking client, waited for differently; nothing decides twice. The tasks of a session go out, and their
results come in, on the two threads of its exchange, which end the futures of the event loop; so batches, pickles,
errors and retries are those of `Session`. The other requests run in at most `offload.THREADS` threads for each client.
No call has a thread of its own; a stream (`events(follow=True)`, `log`) has one, because it waits for an unknown time.
A transport of asyncio would save these few threads, and would need a second set of rules for lost connections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, Unpack

from ullage.client.allocations import Allocations
from ullage.client.api import Api, ClosedOptions, ServerReads
from ullage.client.async_session import AsyncSession
from ullage.client.client import Client, connect
from ullage.client.offload import Offload, Unopened, in_own_thread, offloaded
from ullage.client.spec import SessionOptions
from ullage.client.unsendable import Unsendable
from ullage.wire.event import EventBody


def aconnect(endpoint: str | None = None, token: str | None = None) -> Unopened[AsyncClient]:
    """Connect to a server as `connect` does, for asyncio: `async with` closes the client, `await` leaves that to you.

    Raises:
        Unavailable: no server answers, and no local one can be started.
        InvalidRequest: the address is malformed.

    """

    async def open_it() -> AsyncClient:
        offload = Offload()
        try:
            return AsyncClient(await offload.run(connect, endpoint, token), offload)
        except BaseException:
            await offload.close()
            raise

    return Unopened(open_it)


class AsyncClient(Unsendable):
    """A connection to a server, for one event loop; `aconnect` returns it. Its blocking twin is `sync`."""

    _instead = "call ullage.connect() inside the function"

    def __init__(self, client: Client, offload: Offload) -> None:
        self.sync = client
        self.offload = offload

    def _repr_html_(self) -> str:
        return self.sync._repr_html_()  # it takes seconds at most

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, after the requests on the way. Later calls are refused; sessions do not change."""
        await self.offload.close()
        self.sync.close()

    def allocations(self) -> AsyncAllocations:
        """Return the client of allocations: cards held for work that runs elsewhere, gangs of requests, and quotas."""
        return AsyncAllocations(self.sync.allocations(), self.offload)

    # --- sessions ---

    def session(self, name: str | None = None, **options: Unpack[SessionOptions]) -> Unopened[AsyncSession]:
        """Create a session as `Client.session` does: `async with` closes it at the end, `await` leaves that to you.

        Raises:
            AlreadyExists: `name` is taken.
            NotFound: the application or the queue does not exist.
            InvalidRequest: an option is invalid or unknown.
            Unplaceable: the request can never be placed, and the option `wait` is not set.

        """

        async def open_it() -> AsyncSession:
            session = await self.offload.run(self.sync.session, name, **options)
            return AsyncSession(session, self.offload, self.sync.transport)

        return Unopened(open_it)

    def open_session(self, name: str, **options: Unpack[SessionOptions]) -> Unopened[AsyncSession]:
        """Open the session of that name as `Client.open_session` does. It stays open.

        Raises:
            NotFound: it does not exist, and no options are given.
            InvalidRequest: it differs from the options, or an option is unknown.
            Unplaceable: options are given, the request can never be placed, and `wait` is not set.

        """

        async def open_it() -> AsyncSession:
            session = await self.offload.run(self.sync.open_session, name, **options)
            return AsyncSession(session, self.offload, self.sync.transport)

        return Unopened(open_it)

    # --- the server ---

    register_application = offloaded(Client.register_application)
    update_application = offloaded(Client.update_application)
    unregister_application = offloaded(Client.unregister_application)
    server = offloaded(ServerReads.server)
    overview = offloaded(ServerReads.overview)
    applications = offloaded(ServerReads.applications)
    queues = offloaded(ServerReads.queues)
    nodes = offloaded(ServerReads.nodes)
    topology = offloaded(ServerReads.topology)
    gpus = offloaded(ServerReads.gpus)
    executors = offloaded(ServerReads.executors)
    sessions = offloaded(ServerReads.sessions)
    history = offloaded(ServerReads.history)
    stays = offloaded(ServerReads.stays)
    usage = offloaded(ServerReads.usage)
    fair_share = offloaded(ServerReads.fair_share)
    start = offloaded(ServerReads.start)
    starts = offloaded(ServerReads.starts)
    why = offloaded(ServerReads.why)
    delete_session = offloaded(ServerReads.delete_session)
    delete_closed = offloaded(ServerReads.delete_closed)

    async def delete_sessions(self, *, dry_run: bool = False, **options: Unpack[ClosedOptions]) -> AsyncIterator[str]:
        """Delete the closed sessions that match, as `Client.delete_sessions` does, and yield their ids."""
        deleted = self.sync.delete_sessions(dry_run=dry_run, **options)
        while (session := await self.offload.run(next, deleted, None)) is not None:
            yield session

    def events(self, after: int = 0, *, session: str | None = None, follow: bool = False) -> AsyncIterator[EventBody]:
        """Yield events after number `after`; with `follow` also future ones, in a thread of their own."""
        transport = self.sync.transport.another()
        events = Client(Api(transport)).events(after, session=session, follow=follow)
        return in_own_thread(events, transport.close)


class AsyncAllocations:
    """Calls under `/v1/allocations`, `/v1/plan`, `/v1/room`, `/v1/gangs` and `/v1/quotas`, for asyncio."""

    def __init__(self, allocations: Allocations, offload: Offload) -> None:
        self.sync = allocations
        self.offload = offload

    create = offloaded(Allocations.create)
    preempt = offloaded(Allocations.preempt)
    nominations = offloaded(Allocations.nominations)
    all = offloaded(Allocations.all)
    get = offloaded(Allocations.get)
    commit = offloaded(Allocations.commit)
    forget = offloaded(Allocations.forget)
    release = offloaded(Allocations.release)
    free = offloaded(Allocations.free)
    adjust = offloaded(Allocations.adjust)
    plan = offloaded(Allocations.plan)
    make_room = offloaded(Allocations.make_room)
    put_gang = offloaded(Allocations.put_gang)
    gang = offloaded(Allocations.gang)
    drop_gang = offloaded(Allocations.drop_gang)
    quotas = offloaded(Allocations.quotas)
    quota = offloaded(Allocations.quota)
    put_quota = offloaded(Allocations.put_quota)
    drop_quota = offloaded(Allocations.drop_quota)
