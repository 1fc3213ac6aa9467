"""Requests to the server over HTTP, repeated until it answers or a time limit ends.

Each thread keeps one connection open. A request that may be repeated is sent again after a lost connection, also while
the server restarts, possibly at another address. The client is that of the standard library, because importing a
larger one takes longer than a whole command.
"""

from __future__ import annotations

import http.client
import os
import select
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
from ullage.client.body import encode_body
from ullage.client.endpoint import ServerEndpoint
from ullage.client.patience import NotAnswered, NotConnected, Patience
from ullage.client.silence import UNANSWERED_S, Silence
from ullage.model.error import Conflict, DiskFull, Forbidden, InvalidRequest, UllageError, Unavailable
from ullage.model.name import check_name

T = TypeVar("T")

ANSWER_S = 60.0
"""Seconds the server may take to answer, in addition to the wait that the request itself asks for."""

RETRY_S = 60.0
"""Seconds for which a request is repeated while no server answers."""

STALLED_S = 8.0
"""Seconds after which a stream without a byte is given up; a server that is there sends one every two seconds."""

_OK = range(200, 300)
_ROOT = 0
_TLS_ALERT = "\x15\x03"
"""How an answer of TLS to plain HTTP begins (RFC 8446, section 5.1)."""
_SWITCHED = 101


_FIELDS = {
    "allocations": "uid",
    "applications": "application",
    "gangs": "gang",
    "nodes": "node",
    "queues": "queue",
    "quotas": "namespace",
    "sessions": "session",
    "tokens": "token",
}
"""The field in errors for the name after each of these parts of a path."""


def path_of(kind: str, *parts: str | int, **query: str | float | None) -> str:
    """Return the path of a route under `/v1`, such as `/v1/sessions/NAME/tasks?limit=9`; None is left out.

    Raises:
        InvalidRequest: a name is invalid, such as an empty one or one with a slash, which would change the path.

    """
    if parts and kind in _FIELDS:
        name, *_ = parts
        check_name(_FIELDS[kind], name)
    given = {name: value for name, value in query.items() if value is not None}
    path = "/".join(quote(str(part), safe="") for part in ("v1", kind, *parts))
    return f"/{path}?{urlencode(given)}" if given else f"/{path}"


class Transport:
    """Sends requests to the server that `locate` returns, which is called again after a lost connection."""

    def __init__(
        self,
        locate: Callable[[], ServerEndpoint | None],
        retry_s: float = RETRY_S,
        sleep: Callable[[float], None] = time.sleep,
        *,
        answer_s: float | None = None,
        silence: Silence | None = None,
    ) -> None:
        self._locate = locate
        self._retry_s = retry_s
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._sleep = sleep
        self._silence = Silence() if silence is None else silence
        self._own = threading.local()
        self._all: dict[http.client.HTTPConnection, socket.socket] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()

    def __del__(self) -> None:
        self.close()  # a dropped client leaves no connection open

    def patience(self, show: Callable[[str], object] | None = None) -> Patience:
        """Return the patience for a caller that repeats more than one request; `show` as for `Patience`."""
        return Patience(self._retry_s, self._sleep, silence=self._silence, show=show)

    def hurried(self, seconds: float) -> Transport:
        """Return a transport to the same server with other time limits: `seconds` to connect and to answer."""
        return self._like_this(seconds, seconds)

    def another(self) -> Transport:
        """Return a transport to the same server with the same limits, to be closed by itself."""
        return self._like_this(self._retry_s, self._answer_s)

    def _like_this(self, retry_s: float, answer_s: float) -> Transport:
        """Return a transport to the same server. One wait of both is reported once."""
        return Transport(self._locate, retry_s, self._sleep, answer_s=answer_s, silence=self._silence)

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

        `repeat` means that a repeated request has no further effect. `wait_s` is how long the server may hold
        the request before it starts to answer.

        Raises:
            Unavailable: no server answers within the time limit.
            DiskFull: the disk of the server is full; such a request is not repeated.
            Conflict: it was closed here (`client-closed`), or created before a fork (`client-forked`).
            UllageError: the server refuses the request.

        """
        self.require_open()
        patience = self.patience()
        if not repeat:
            self.close_own()  # after a loss of an old connection, it is unknown whether the server has acted
        kind = MSGPACK if packed else JSON
        headers = {"Accept": kind} | ({} if body is None else {"Content-Type": kind})
        while True:
            try:
                return self._send(method, path, body, headers, timeout_s=self._answer_s + wait_s)
            except NotConnected as error:
                patience.wait(error)
            except DiskFull:  # an operator has to free space
                raise
            except Unavailable as error:
                if not repeat:
                    raise
                patience.wait(error)

    def require_ready(self) -> None:
        """Check that the server is ready. The connection stays open for the requests of this thread.

        Raises:
            Unavailable: no server answers, or it is not ready; this is not repeated.
            InvalidRequest: another protocol is used at the address (`tls-failed`), or another program answers.
            Forbidden: another user answers in the home of a local server.

        """
        self._send("GET", "/readyz", None, {"Accept": JSON}, timeout_s=self._answer_s)

    def call(
        self, method: str, path: str, answer: type[T], body: msgspec.Struct | None = None, *, repeat: bool = True
    ) -> T:
        """Return the answer to a request with JSON bodies; raises as `request` does."""
        return msgspec.json.decode(self.request(method, path, encode_body(body), repeat=repeat), type=answer)

    @contextmanager
    def open_stream(self, path: str, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        """Yield a successful response whose body is read while it arrives, on its own connection.

        Raises:
            Unavailable: no server answers, or nothing arrives for `STALLED_S`. The request is not repeated: the
                caller knows where to resume.
            Conflict: the transport was closed here (`client-closed`).
            UllageError: the server refuses the request.

        """
        self.require_open()
        connection, endpoint = self._connect(self._answer_s)
        try:
            connection.request("GET", path, headers=_with_token(headers, endpoint))
            self._listen(connection, endpoint, self._answer_s)
            answer = connection.getresponse()
            if answer.status not in _OK:
                raise error_of(answer.status, answer.headers.get("Content-Type", ""), answer.read())
            with self._lock:
                used = self._all.get(connection)
            if used is not None:  # else it is closed by now
                used.settimeout(STALLED_S)
            yield answer
        except (OSError, http.client.HTTPException) as error:
            raise _lost(endpoint, error) from error
        finally:
            with self._lock:
                self._all.pop(connection, None)
            connection.close()

    @contextmanager
    def open_upgraded(self, path: str, protocol: str) -> Iterator[socket.socket]:
        """Yield the connection of a request as a stream both ways, once the server has accepted that `protocol`.

        Raises:
            Unavailable: no server answers. The request is not repeated.
            Conflict: the transport was closed here (`client-closed`).
            UllageError: the server refuses the request.

        """
        self.require_open()
        connection, endpoint = self._connect(self._answer_s)
        headers = {"Connection": "Upgrade", "Upgrade": protocol}
        try:
            try:
                connection.request("POST", path, headers=_with_token(headers, endpoint))
                self._listen(connection, endpoint, self._answer_s)
                answer = connection.getresponse()
                if answer.status != _SWITCHED:
                    raise error_of(answer.status, answer.headers.get("Content-Type", ""), answer.read())
            except (OSError, http.client.HTTPException) as error:
                raise _lost(endpoint, error) from error
            yield connection.sock
        finally:
            with self._lock:
                self._all.pop(connection, None)
            connection.close()

    def close_own(self) -> None:
        """Close the calling thread's connection."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            self._drop(connection)

    def close(self) -> None:
        """Close the connections of all threads for good. Threads that wait for an answer are woken."""
        if not self.is_of_this_process:  # the parent process owns the connections and the lock
            return
        with self._lock:
            self._closed = True
            sockets = list(self._all.values())
            self._all.clear()
        for used in sockets:  # its thread may be in the middle of a request
            with suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
            used.close()

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was created here. A fork copies it without its threads."""
        return os.getpid() == self._process

    def require_here(self) -> None:
        """Check that this process created it, so that answers can arrive.

        Raises:
            Conflict: it was created before a fork (`client-forked`).

        """
        if not self.is_of_this_process:
            text = "this client was created before a fork, and its threads are in the parent process"
            raise Conflict(f"{text}: create a new one here with ullage.connect()", code="client-forked")

    def require_open(self) -> None:
        """Check that it is open.

        Raises:
            Conflict: it was closed (`client-closed`), or created before a fork (`client-forked`).

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
            self._listen(connection, endpoint, timeout_s)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._drop(connection)
            raise _lost(endpoint, error) from error
        except BaseException:  # interrupted: the next bytes on the connection belong to this request
            self._drop(connection)
            raise
        if answer.status in _OK:
            self._silence.end()
            return data
        refusal = error_of(answer.status, answer.headers.get("Content-Type", ""), data)
        if may_be_repeated(answer.status):
            raise _as_unavailable(refusal)
        raise refusal

    def _listen(self, connection: http.client.HTTPConnection, endpoint: ServerEndpoint, timeout_s: float) -> None:
        """Wait for the answer to a request that may take `timeout_s`, and report a long wait."""
        used: socket.socket | None = connection.sock
        if used is None or not self._silence.is_shown:
            return
        ready = select.poll()
        with suppress(ValueError):  # closed by another thread
            ready.register(used, select.POLLIN)
            asked_to_wait_s = timeout_s - self._answer_s
            if not ready.poll(1000 * (asked_to_wait_s + UNANSWERED_S)):
                self._silence.report(_unanswered(endpoint), self._answer_s)

    def _connection(self, timeout_s: float) -> tuple[http.client.HTTPConnection, ServerEndpoint]:
        """Return the connection of the calling thread, which is created if necessary."""
        self.require_open()
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(timeout_s)
            endpoint: ServerEndpoint = self._own.endpoint
            return connection, endpoint
        if connection is not None:  # the server closed it with its last answer
            self._drop(connection)
        connection, endpoint = self._connect(timeout_s)
        self._own.connection, self._own.endpoint = connection, endpoint
        return connection, endpoint

    def _connect(self, timeout_s: float) -> tuple[http.client.HTTPConnection, ServerEndpoint]:
        """Return a new connection, and register it for `close`."""
        endpoint = self._locate()
        if endpoint is None:
            raise NotConnected("no server is running; `ullage up` starts it, and submitted tasks continue")
        connection = _new_connection(endpoint, timeout_s)
        try:
            connection.connect()
        except ssl.SSLError as error:
            connection.close()
            raise InvalidRequest(_tls_text(endpoint, error), code="tls-failed", field="endpoint") from error
        except OSError as error:
            connection.close()
            raise NotConnected(f"no server answers at {endpoint.url}: {_text(error)}") from error
        except Forbidden:
            connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._all[connection] = connection.sock  # a stream removes the socket from the connection
                return connection, endpoint
        connection.close()
        raise _closed_here()

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._all.pop(connection, None)
        with suppress(OSError):
            connection.close()
        self._own.connection = None


def _closed_here() -> Conflict:
    return Conflict("the client is closed; create a new one with ullage.connect()", code="client-closed")


class _LocalConnection(http.client.HTTPConnection):
    """A connection to the socket of a local server, which must run as the owner of the home."""

    def __init__(self, home: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._home = Path(home)

    def connect(self) -> None:
        """Connect and check the user.

        Raises:
            OSError: no process listens.
            Forbidden: another user listens.

        """
        self.sock = local_socket.connect(self._home, self.timeout)
        found, owner = local_socket.peer_of(self.sock).uid, self._home.stat().st_uid
        if found not in (owner, _ROOT):
            text = f"the process that answers in {self._home} runs as user {found}, but the home belongs to {owner}"
            raise Forbidden(f"{text}: the token is not sent", code="not-the-owner", field="endpoint")


def _new_connection(endpoint: ServerEndpoint, timeout_s: float) -> http.client.HTTPConnection:
    if endpoint.home is not None:
        return _LocalConnection(endpoint.home, timeout_s)
    parts = urlsplit(endpoint.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout_s)


def _lost(endpoint: ServerEndpoint, error: BaseException) -> UllageError:
    """Return the error for a request whose answer is missing or incomplete."""
    if isinstance(error, TimeoutError):
        return NotAnswered(_unanswered(endpoint))
    if isinstance(error, http.client.BadStatusLine) and str(error).startswith(_TLS_ALERT):
        fix = f"try https{endpoint.url.removeprefix('http')}"
        return InvalidRequest(f"the server at {endpoint.url} uses TLS; {fix}", code="tls-needed", field="endpoint")
    return Unavailable(f"the connection to {endpoint.url} was lost: {_text(error)}")


def _unanswered(endpoint: ServerEndpoint) -> str:
    process = "" if endpoint.pid is None else f" (process {endpoint.pid})"
    return f"the server at {endpoint.url}{process} does not answer"


def _with_token(headers: dict[str, str], endpoint: ServerEndpoint) -> dict[str, str]:
    return headers if endpoint.token is None else {**headers, "Authorization": f"Bearer {endpoint.token}"}


def _tls_text(endpoint: ServerEndpoint, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = (
            "SSL_CERT_FILE names the certificate of another authority, and the URL must have a name of the certificate"
        )
        return f"the certificate of {endpoint.url} is not trusted: {error.verify_message.rstrip('.')}; {fix}"
    plain = "http" + endpoint.url.removeprefix("https")
    return f"the server at {endpoint.url} does not use TLS ({error.reason}); try {plain}"


def _as_unavailable(error: UllageError) -> Unavailable:
    return error if isinstance(error, Unavailable) else Unavailable(error.message, code=error.code, field=error.field)


def _text(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
