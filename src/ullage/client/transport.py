"""Requests to the server over HTTP, repeated until it answers or patience ends.

Each thread keeps one connection alive. A request that may be repeated is sent again after a lost
connection, also while the server restarts, perhaps at another address. The standard library's
client is used because importing a larger one takes longer than the command line may take as a whole.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ullage.client import local_socket
from ullage.client.answer import JSON, MSGPACK, error_of, may_be_repeated
from ullage.client.endpoint import ServerEndpoint
from ullage.model.error import Conflict, DiskFull, Forbidden, InvalidRequest, UllageError, Unavailable

T = TypeVar("T")

ANSWER_S = 60.0
"""Seconds the server may take to answer, on top of what the request itself asks it to wait."""

RETRY_S = 60.0
"""Seconds for which a request is repeated while no server answers."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_OK = range(200, 300)
_ROOT = 0


def path_of(*parts: str | int, **query: str | float | None) -> str:
    """Return the path of a route under `/v1`, such as `/v1/sessions/NAME/tasks?limit=9`; None is left out."""
    given = {name: value for name, value in query.items() if value is not None}
    path = "/".join(quote(str(part), safe="") for part in ("v1", *parts))
    return f"/{path}?{urlencode(given)}" if given else f"/{path}"


class Patience:
    """Pauses between attempts, each twice the one before, until `seconds` without success have passed."""

    def __init__(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self.renew()

    def renew(self) -> None:
        """Start again after a success."""
        self._ends = time.monotonic() + self._seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, reason: UllageError) -> None:
        """Pause before the next attempt.

        Raises:
            UllageError: `reason`, when patience is at its end.

        """
        if time.monotonic() + self._pause > self._ends:
            raise reason
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)


class Transport:
    """Sends requests to the server that `locate` names; it is asked again after a connection is lost."""

    def __init__(
        self,
        locate: Callable[[], ServerEndpoint | None],
        retry_s: float = RETRY_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._locate = locate
        self._retry_s = retry_s
        self._sleep = sleep
        self._own = threading.local()
        self._all: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()

    def __del__(self) -> None:
        self.close()  # a caller that drops its client leaves no connection behind

    def patience(self) -> Patience:
        """Return the patience for a caller that repeats more than one request."""
        return Patience(self._retry_s, self._sleep)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        packed: bool = False,
        repeat: bool = True,
        wait_s: float = 0.0,
    ) -> bytes:
        """Return the body of a successful response; MessagePack both ways if `packed`.

        `repeat` says that a repeated request has no further effect. `wait_s` is how long the server may hold
        the request before it starts to answer.

        Raises:
            Unavailable: no server answers, and patience is at its end.
            DiskFull: at once, whatever `repeat` says.
            Conflict: it was closed here (`client-closed`), or made before a fork (`client-forked`).
            UllageError: the server refuses the request.

        """
        self.require_open()
        patience = self.patience()
        if not repeat:
            self.close_own()  # on an old connection, a loss would leave open whether the server has acted
        kind = MSGPACK if packed else JSON
        headers = {"Accept": kind} | ({} if body is None else {"Content-Type": kind})
        while True:
            try:
                return self._send(method, path, body, headers, timeout_s=ANSWER_S + wait_s)
            except _NotConnected as error:
                patience.wait(error)
            except DiskFull:  # an operator has to make room: raised at once
                raise
            except Unavailable as error:
                if not repeat:
                    raise
                patience.wait(error)

    def call(
        self, method: str, path: str, answer: type[T], body: msgspec.Struct | None = None, *, repeat: bool = True
    ) -> T:
        """Return the answer to a request with JSON bodies; raises as `request` does."""
        sent = None if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(self.request(method, path, sent, repeat=repeat), type=answer)

    @contextmanager
    def open_stream(self, path: str, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        """Yield a successful response whose body is read while it arrives, on its own connection.

        Raises:
            Unavailable: no server answers. It is not asked again: the caller knows where to resume.
            Conflict: the transport was closed here (`client-closed`).
            UllageError: the server refuses the request.

        """
        self.require_open()
        connection, endpoint = self._connect(ANSWER_S)
        try:
            connection.request("GET", path, headers=_with_token(headers, endpoint))
            answer = connection.getresponse()
            if answer.status not in _OK:
                raise error_of(answer.status, answer.headers.get("Content-Type", ""), answer.read())
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the connection to {endpoint.url} was lost: {_text(error)}") from error
        finally:
            with self._lock:
                self._all.discard(connection)
            connection.close()

    def close_own(self) -> None:
        """Close the calling thread's connection."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            self._forget(connection)

    def close(self) -> None:
        """Close the connections of all threads, and make no others; threads that wait for an answer are woken."""
        if not self.is_of_this_process:  # the connections and the lock are those of the process that made them
            return
        with self._lock:
            self._closed = True
            connections = list(self._all)
            self._all.clear()
        for connection in connections:
            used: socket.socket | None = connection.sock
            if used is not None:  # the connection is its thread's, which may be in the middle of a request
                with suppress(OSError):
                    used.shutdown(socket.SHUT_RDWR)
                used.close()

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here: a fork copies it, but neither its threads nor what is underway on its sockets."""
        return os.getpid() == self._process

    def require_here(self) -> None:
        """Return if it was made by this process, so that what is waited for can come.

        Raises:
            Conflict: it was made before a fork (`client-forked`).

        """
        if not self.is_of_this_process:
            text = "this client was made before a fork, and its threads are in the process that made it"
            raise Conflict(f"{text}: make a new one here with ullage.connect()", code="client-forked")

    def require_open(self) -> None:
        """Return unless it was closed.

        Raises:
            Conflict: it was (`client-closed`), or it was made before a fork (`client-forked`).

        """
        self.require_here()
        if self._closed:
            raise _closed_here()

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float) -> bytes:
        connection, endpoint = self._connection(timeout_s)
        try:
            # A server may refuse a request, and close the connection, before it has read all of it.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body=body, headers=_with_token(headers, endpoint))
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._forget(connection)
            raise Unavailable(f"the connection to {endpoint.url} was lost: {_text(error)}") from error
        except BaseException:  # interrupted in the middle: what would be read next belongs to this request
            self._forget(connection)
            raise
        if answer.status in _OK:
            return data
        refusal = error_of(answer.status, answer.headers.get("Content-Type", ""), data)
        if may_be_repeated(answer.status):
            raise _as_unavailable(refusal)
        raise refusal

    def _connection(self, timeout_s: float) -> tuple[http.client.HTTPConnection, ServerEndpoint]:
        """Return the calling thread's connection, made if need be."""
        self.require_open()
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(timeout_s)
            endpoint: ServerEndpoint = self._own.endpoint
            return connection, endpoint
        connection, endpoint = self._connect(timeout_s)
        self._own.connection, self._own.endpoint = connection, endpoint
        return connection, endpoint

    def _connect(self, timeout_s: float) -> tuple[http.client.HTTPConnection, ServerEndpoint]:
        """Return a new connection, which `close` finds."""
        endpoint = self._locate()
        if endpoint is None:
            raise _NotConnected("no server is running; `ullage up` starts it, and what was submitted goes on")
        connection = _new_connection(endpoint, timeout_s)
        try:
            connection.connect()
        except ssl.SSLError as error:
            connection.close()
            raise InvalidRequest(_tls_text(endpoint, error), code="tls-failed", field="endpoint") from error
        except OSError as error:
            connection.close()
            raise _NotConnected(f"no server answers at {endpoint.url}: {_text(error)}") from error
        except Forbidden:
            connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._all.add(connection)
                return connection, endpoint
        connection.close()
        raise _closed_here()

    def _forget(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._all.discard(connection)
        with suppress(OSError):
            connection.close()
        self._own.connection = None


def _closed_here() -> Conflict:
    return Conflict("the client is closed; make a new one with ullage.connect()", code="client-closed")


class _NotConnected(Unavailable):
    """The request was not sent: any request may be repeated after that."""


class _LocalConnection(http.client.HTTPConnection):
    """A connection to the socket of a local server, which proves that it runs as the owner of the home."""

    def __init__(self, home: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._home = Path(home)

    def connect(self) -> None:
        """Connect, before any byte is sent.

        Raises:
            OSError: no process listens.
            Forbidden: another user listens.

        """
        self.sock = local_socket.connect(self._home, self.timeout)
        found, owner = local_socket.peer_of(self.sock).uid, self._home.stat().st_uid
        if found not in (owner, _ROOT):
            text = f"the process that answers in {self._home} runs as user {found}, and the home belongs to {owner}"
            raise Forbidden(f"{text}: the token is not sent to it", code="not-the-owner", field="endpoint")


def _new_connection(endpoint: ServerEndpoint, timeout_s: float) -> http.client.HTTPConnection:
    if endpoint.home is not None:
        return _LocalConnection(endpoint.home, timeout_s)
    parts = urlsplit(endpoint.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout_s)


def _with_token(headers: dict[str, str], endpoint: ServerEndpoint) -> dict[str, str]:
    return headers if endpoint.token is None else {**headers, "Authorization": f"Bearer {endpoint.token}"}


def _tls_text(endpoint: ServerEndpoint, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {endpoint.url} is not trusted: {error.verify_message}"
    plain = "http" + endpoint.url.removeprefix("https")
    return f"what answers at {endpoint.url} does not speak TLS ({error.reason}); a server of Ullage is at {plain}"


def _as_unavailable(error: UllageError) -> Unavailable:
    return error if isinstance(error, Unavailable) else Unavailable(error.message, code=error.code, field=error.field)


def _text(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
