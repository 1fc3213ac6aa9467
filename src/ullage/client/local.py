"""Reaching a server: the one that is named, the local one, or a new local one."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from ullage.client.api import Api
from ullage.client.endpoint import ServerEndpoint, given, home, local
from ullage.client.transport import RETRY_S, NotAnswered, Transport
from ullage.model.error import UllageError, Unavailable

SERVER_PACKAGES = ("alembic", "numpy", "sqlalchemy", "starlette", "uvicorn")
"""Packages of the `server` extra without which no server starts."""

INSTALL = "pip install 'ullage[server]'"


def reach(url: str | None = None, token: str | None = None, *, start: bool, retry_s: float = RETRY_S) -> Api:
    """Return a server that answers. With `start`, a local one is started if none is named and none answers.

    Inside an executor none is started: what runs there would count the same machine a second time.

    Raises:
        Unavailable: none answers, or the new one did not start, or this process runs in an executor (`in-executor`).
        InvalidRequest: the address is malformed, or what answers there speaks another protocol (`tls-failed`).
        Forbidden: another user answers in the home of a local server.

    """
    named = given(url, token)
    if named is None and start and not answers(local(token)):
        _refuse_in_executor()
        start_server()

    def locate() -> ServerEndpoint | None:
        return local(token) if named is None else named

    there = locate()
    if there is None:
        raise Unavailable("no server is running")
    require_answer(there)
    return Api(Transport(locate, retry_s))


def _refuse_in_executor() -> None:
    """Refuse to start a server where another one runs this process.

    Raises:
        Unavailable: it runs in an executor.

    """
    if (executor := os.environ.get("ULLAGE_EXECUTOR")) is None:
        return
    text = f"no server answers in {home()}, and inside an executor ({executor}) none is started by itself"
    fix = "leave ULLAGE_HOME as the executor has it, or name a server with ULLAGE_ENDPOINT"
    raise Unavailable(f"{text}: {fix}", code="in-executor")


def answers(endpoint: ServerEndpoint | None) -> bool:
    """Return whether a server is there and ready.

    Raises:
        Unavailable: one is there, and does not answer in time.

    """
    if endpoint is None:
        return False
    try:
        require_answer(endpoint)
    except NotAnswered:  # a second server of this home could not start
        raise
    except UllageError:
        return False
    return True


def require_answer(endpoint: ServerEndpoint) -> None:
    """Return if a server is there and ready.

    Raises:
        Unavailable: nothing answers, or the server is not ready.
        InvalidRequest: what answers does not speak the protocol of the address (`tls-failed`), or is no server.
        Forbidden: another user answers in the home of a local server.

    """
    transport = Transport(lambda: endpoint, retry_s=0.0)
    try:
        transport.request("GET", "/readyz")
    finally:
        transport.close()


def missing_packages() -> list[str]:
    """Return what a server needs and this interpreter lacks."""
    return [name for name in SERVER_PACKAGES if find_spec(name) is None]


def start_server() -> None:
    """Start a local server in the background, as `ullage up` does, and say so on stderr.

    Raises:
        Unavailable: the server extra is not installed, or the server did not come up.

    """
    missing = missing_packages()
    if missing:
        raise Unavailable(
            f"no server is running, and none can be started: {', '.join(missing)} not installed; {INSTALL}"
        )
    import subprocess  # noqa: PLC0415  # needed only here, and slow to import for a command line

    done = subprocess.run(  # this interpreter, fixed arguments
        [sys.executable, "-m", "ullage.cli.main", "up"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"the local server did not start: {done.stderr.strip() or done.stdout.strip()}")
    started = local()
    print(  # noqa: T201  # the one line that tells of a process left behind
        f"ullage: started a local server at {started.url if started else '?'}; `ullage down` ends it", file=sys.stderr
    )
