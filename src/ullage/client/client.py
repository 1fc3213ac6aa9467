"""A connection to a server."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack

from ullage.client.allocations import Allocations
from ullage.client.api import Api, ClosedOptions, ServerReads, delete_closed, list_events
from ullage.client.local import reach
from ullage.client.pickling import Prepare
from ullage.client.placeable import refuse_unplaceable, withdraw
from ullage.client.session import Session
from ullage.client.spec import SessionOptions, session_spec
from ullage.client.unsendable import Unsendable
from ullage.model.error import Unplaceable
from ullage.model.variables import unknown_variables
from ullage.wire.catalog import ApplicationBody, PutApplicationBody
from ullage.wire.event import EventBody
from ullage.wire.session import SessionBody


def connect(endpoint: str | None = None, token: str | None = None, *, prepare: Prepare | None = None) -> Client:
    """Connect to a server: the given one, that of ULLAGE_ENDPOINT, or the local one, which is started if necessary.

    Unknown environment variables that begin with ULLAGE_ are warned of. Its sessions send what
    `prepare` makes of a function in place of it, if that is given.

    Raises:
        Unavailable: no server answers, and no local one can be started.
        InvalidRequest: the address is malformed.

    """
    for text in unknown_variables(os.environ):
        warnings.warn(text, stacklevel=2)
    return Client(reach(endpoint, token, start=True), prepare)


class Client(Unsendable, ServerReads):
    """A connection to a server; several threads may use it."""

    _instead = "call ullage.connect() inside the function"

    def __init__(self, api: Api, prepare: Prepare | None = None) -> None:
        super().__init__(api.transport)
        self._api, self._prepare = api, prepare

    def _repr_html_(self) -> str:
        from ullage.client.notebook import client_html  # noqa: PLC0415  # only notebooks need it

        return client_html(self.transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Later calls are refused; sessions do not change."""
        self.transport.close()

    def allocations(self) -> Allocations:
        """Return the client of allocations: cards held for work that runs elsewhere, gangs of requests, and quotas."""
        return Allocations(self.transport)

    # --- sessions ---

    def session(self, name: str | None = None, **options: Unpack[SessionOptions]) -> Session:
        """Create a session, for Python functions unless `application` names another application.

        Raises:
            AlreadyExists: `name` is taken.
            NotFound: the application or the queue does not exist.
            InvalidRequest: an option is invalid or unknown.
            Unplaceable: the request can never be placed, and the option `wait` is not set.

        """
        body = self._api.create_session(session_spec(name, options))
        try:
            self._check(body, options)
        except Unplaceable:
            withdraw(self._api, body.id)
            raise
        return self._warned(body, options)

    def open_session(self, name: str, **options: Unpack[SessionOptions]) -> Session:
        """Return the open session of that name. With options it is created if it does not exist.

        Raises:
            NotFound: it does not exist, and no options are given.
            InvalidRequest: it differs from the options, or an option is unknown.
            Unplaceable: options are given, the request can never be placed, and `wait` is not set.

        """
        creates = bool(options.keys() - {"carry_context"})
        body = self._api.open_session(name, session_spec(name, options) if creates else None)
        if creates:
            self._check(body, options)
        return self._warned(body, options, keep_open=True)

    def _check(self, body: SessionBody, options: SessionOptions) -> None:
        if not options.get("wait", False):
            refuse_unplaceable(self._api, body)

    def _warned(self, body: SessionBody, options: SessionOptions, *, keep_open: bool = False) -> Session:
        """Return the session and pass on the warnings of the server."""
        for text in body.warnings:
            warnings.warn(text, stacklevel=3)
        carries_context = options.get("carry_context", True)
        return Session(self._api, body, keep_open=keep_open, carries_context=carries_context, prepare=self._prepare)

    def delete_sessions(self, *, dry_run: bool = False, **options: Unpack[ClosedOptions]) -> Iterator[str]:
        """Delete the closed sessions that match, with their tasks, results and events, and yield their ids.

        `before` is when they were closed at the latest, in seconds since the epoch. With `dry_run` none is deleted.
        Their rows in the history stay. Sessions are deleted while the iterator is consumed.
        """
        return delete_closed(self._api, dry_run=dry_run, **options)

    # --- applications ---

    def register_application(self, name: str, spec: PutApplicationBody) -> ApplicationBody:
        """Register an application, or replace the whole specification of one."""
        return self._api.put_application(name, spec)

    update_application = register_application

    def unregister_application(self, name: str) -> None:
        """Remove an application.

        Raises:
            Conflict: it has open sessions.

        """
        self._api.delete_application(name)

    # --- events ---

    def events(self, after: int = 0, *, session: str | None = None, follow: bool = False) -> Iterator[EventBody]:
        """Yield events after number `after`; with `follow` also future ones."""
        return list_events(self._api, after, session=session, follow=follow)
