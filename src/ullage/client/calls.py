"""The calls of a session, as the blocking and the asyncio session make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ullage.client.api import Api
from ullage.client.carrying import carried_for
from ullage.client.chunk import Chunk, cut
from ullage.client.exchange import Exchange
from ullage.client.future import Decode, TaskFuture, decode_bytes, decode_value
from ullage.client.map_futures import MapFutures
from ullage.client.mapping import MapOptions, MapPlan, plan_map
from ullage.client.outstanding import OutstandingCall
from ullage.client.pickling import Prepare, SessionPickles, check_size
from ullage.client.resume import MapPlace
from ullage.client.retry import NO_RETRIES, Attempts, Retries
from ullage.client.shown_logs import ShownLogs
from ullage.client.spec import check_bytes
from ullage.wire.session import SessionBody
from ullage.worker.carried import Carried


class SessionCalls:
    """Makes futures of calls and gives them to the exchange. A session that `stays_open` can be resumed.

    `prepare` returns the function that is sent in place of another one. With `carries_context` tasks have the context
    variables and the trace of their caller.
    """

    def __init__(
        self, api: Api, body: SessionBody, *, stays_open: bool, carries_context: bool, prepare: Prepare | None
    ) -> None:
        self._stays_open = stays_open
        self._carries_context = carries_context
        self._pickles = SessionPickles()
        self._prepare = prepare
        # Results are numbered from 1 in the order of their ends; earlier ones belong to other clients.
        ended = body.succeed + body.failed + body.cancelled
        self.exchange = Exchange(api, body.id, ended, ended + body.running + body.pending)
        self._api, self._session = api, body.id

    def submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, blocks: bool
    ) -> TaskFuture[Any]:
        """Submit one call of a function; with `blocks` wait while too many bytes are unsent.

        Raises:
            InvalidRequest: it is not callable, or a value cannot be sent or is too large.

        """
        shared = self._pickles.dump(function, self._prepare)
        call = self._call(shared, self._pickles.dump_call(args, kwargs, self._carried_for(function)), decode_value)
        return self._add(call, blocks=blocks)

    def run(self, data: bytes, *, blocks: bool) -> TaskFuture[bytes | None]:
        """Submit one raw task, as `submit` does.

        Raises:
            InvalidRequest: `data` is not bytes, or is too large to be sent.

        """
        check_bytes("data", data)
        return self._add(self._call(None, data, decode_bytes), blocks=blocks)

    def plan(self, function: Callable[..., Any], options: MapOptions, *, keeps_failures: bool) -> MapPlan:
        """Return the checked options of one `map` of this session, as `plan_map` does."""
        return plan_map(function, options, keeps_failures=keeps_failures, stays_open=self._stays_open)

    def shown_logs(self, plan: MapPlan) -> ShownLogs | None:
        """Return what shows the prints of a `map`, if it has to; `submit_map` starts it."""
        return ShownLogs(self._api, self._session) if plan.shows_logs else None

    def submit_map(
        self,
        function: Callable[..., Any],
        iterables: Iterable[Iterable[Any]],
        plan: MapPlan,
        shown: ShownLogs | None = None,
    ) -> MapFutures:
        """Submit the calls of one `map`, or the first ones of a buffer, and return the futures of its tasks."""
        if shown is not None:
            shown.start()
        futures = MapFutures(self._map_futures(function, iterables, plan))
        try:
            with self.exchange.adding():
                futures.submit(plan.buffersize)
        except BaseException:  # nobody gets the results of the calls before
            self.exchange.cancel_soon(list(futures))
            raise
        return futures

    def _map_futures(
        self, function: Callable[..., Any], iterables: Iterable[Iterable[Any]], plan: MapPlan
    ) -> Iterator[TaskFuture[Any]]:
        """Submit each call of a `map` when its future is asked for."""
        calls = zip(*iterables, strict=False)  # as the built-in map
        inputs: Iterator[tuple[tuple[Any, ...], int | None]]
        if plan.chunksize == 1:
            shared, retries = self._pickles.dump(function, self._prepare), plan.retries
            inputs = ((args, None) for args in calls)
        else:
            chunk = Chunk(function, plan.retries, keeps_failures=plan.keeps_failures)
            shared, retries = self._pickles.dump(chunk, self._prepare), NO_RETRIES  # the chunk itself tries again
            inputs = (((each,), len(each)) for each in cut(calls, plan.chunksize))
        carried = self._carried_for(function)
        for number, (args, size) in enumerate(inputs):
            place = None if plan.keyed is None else MapPlace(plan.keyed, number)
            call = self._call(shared, self._pickles.dump_call(args, {}, carried), decode_value, place)
            call.future.chunk = size
            yield self._add(call, retries)

    def _carried_for(self, function: Callable[..., Any]) -> Carried | None:
        return carried_for(function) if self._carries_context else None

    def _call(
        self, shared: bytes | None, data: bytes, decode: Decode, place: MapPlace | None = None
    ) -> OutstandingCall:
        check_size(len(shared or b"") + len(data))
        future: TaskFuture[Any] = TaskFuture(decode, self.exchange, may_resume=place is not None)
        return OutstandingCall(shared, data, future, place)

    def _add(self, call: OutstandingCall, retries: Retries = NO_RETRIES, *, blocks: bool = True) -> TaskFuture[Any]:
        if retries.times:
            call.future.retry_by(Attempts(retries, partial(self._add_again, call)))
        self.exchange.add(call, blocks=blocks)
        return call.future

    def _add_again(self, call: OutstandingCall, attempt: int) -> None:
        """Send a call again. It runs in a thread of the exchange, which must not wait for room."""
        place = None if call.place is None else call.place._replace(attempt=attempt)
        self.exchange.add(call._replace(place=place), blocks=False)
