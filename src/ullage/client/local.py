"""Connecting to a server: the named one, the local one, or a new local one."""

from __future__ import annotations

import os
import sys
from contextlib import closing

from ullage.client.api import Api
from ullage.client.endpoint import ServerEndpoint, configured, home, local, nearby, silent_service
from ullage.client.patience import NotAnswered
from ullage.client.transport import RETRY_S, Transport
from ullage.model.error import UllageError, Unavailable

SERVER_PACKAGES = ("alembic", "numpy", "sqlalchemy", "starlette", "uvicorn")
"""Packages of the `server` extra that every server needs."""

INSTALL = "pip install 'ullage[server]'"


def reach(url: str | None = None, token: str | None = None, *, start: bool, retry_s: float = RETRY_S) -> Api:
    """Return a server that answers. With `start`, a local one is started if none is named and none answers.

    Inside an executor no server is started, nor on a machine with a service: it would count the same machine a second
    time.

    Raises:
        Unavailable: no server answers, the new one did not start, this is an executor
            (`in-executor`), or the service of this machine is down (`service-down`).
        InvalidRequest: the address is malformed, or another protocol is used there (`tls-failed`).
        Forbidden: another user answers in the home of a local server.

    """
    named = configured(url, token)

    def locate() -> ServerEndpoint | None:
        return nearby(token) if named is None else named

    transport = Transport(locate, retry_s)
    if named is None and start:
        if _is_ready(transport):
            return Api(transport)
        _refuse_in_executor()
        _refuse_without_service()
        start_server()
    if locate() is None:
        _refuse_without_service()
        raise Unavailable("no server is running")
    transport.require_ready()
    return Api(transport)


def _refuse_in_executor() -> None:
    """Refuse to start a server inside an executor.

    Raises:
        Unavailable: this process runs in an executor.

    """
    if (executor := os.environ.get("ULLAGE_EXECUTOR")) is None:
        return
    text = f"no server answers in {home()}, and none is started inside an executor ({executor})"
    fix = "keep ULLAGE_HOME of the executor, or name a server with ULLAGE_ENDPOINT"
    raise Unavailable(f"{text}: {fix}", code="in-executor")


def _refuse_without_service() -> None:
    """Refuse to go on while the service of the machine is down: a second server would count the same cards once more.

    Raises:
        Unavailable: the machine has a service.

    """
    if (place := silent_service()) is not None:
        text = f"the service of this machine does not answer in {place}, and no second server is started beside it"
        raise Unavailable(text, code="service-down")


def answers(endpoint: ServerEndpoint | None) -> bool:
    """Return whether a server is ready.

    Raises:
        Unavailable: a server runs, but does not answer in time.

    """
    if endpoint is None:
        return False
    with closing(Transport(lambda: endpoint)) as transport:
        return _is_ready(transport)


def _is_ready(transport: Transport) -> bool:
    """Return whether a server is ready.

    Raises:
        Unavailable: a server runs, but does not answer in time.

    """
    try:
        transport.require_ready()
    except NotAnswered:  # no second server of this home could start
        raise
    except UllageError:
        return False
    return True


def require_answer(endpoint: ServerEndpoint) -> None:
    """Check that a server is ready; raises as `Transport.require_ready` does."""
    with closing(Transport(lambda: endpoint)) as transport:
        transport.require_ready()


def missing_packages() -> list[str]:
    """Return the packages that a server needs and this interpreter lacks."""
    from importlib.util import find_spec  # noqa: PLC0415  # many verbs need no server of their own

    return [name for name in SERVER_PACKAGES if find_spec(name) is None]


def start_server() -> None:
    """Start a local server in the background like `ullage up`, and print its address on stderr.

    Raises:
        Unavailable: the server extra is not installed, or the server did not start.

    """
    missing = missing_packages()
    if missing:
        raise Unavailable(
            f"no server is running and none can be started: {', '.join(missing)} not installed; {INSTALL}"
        )
    import subprocess  # noqa: PLC0415  # needed only here, and slow to import for a command line

    done = subprocess.run(  # this interpreter, fixed arguments
        [sys.executable, "-m", "ullage.cli.main", "up"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"the local server did not start: {done.stderr.strip() or done.stdout.strip()}")
    started = local()
    print(  # noqa: T201  # names a process that outlives this one
        f"ullage: started a local server at {started.url if started else '?'}; `ullage down` ends it", file=sys.stderr
    )
