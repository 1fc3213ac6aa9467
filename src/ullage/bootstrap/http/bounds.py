"""The limits of one HTTP server on unauthenticated callers."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass

_MOST_CONNECTIONS = 4096
_KIB, _MIB = 2**10, 2**20


def _connections() -> int:
    """Return half of the file descriptors that this process may open, at most 4096."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, min(_MOST_CONNECTIONS, soft // 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one server.

    `head_bytes` limits the request line with all headers, and also the bytes of a chunked body between two pieces of
    data. `head_s` limits the time from the connection, or from the first byte of a request, to the end of its headers.
    A body has to bring `body_step_bytes` in each `body_s`. `bodies_bytes` limits all unfinished requests together. A
    body comes in at most `pieces` pieces, and one more for each `piece_bytes`: each chunk takes time of its own. A
    request that was answered before its body was complete may send `drained_bytes` more within `drain_s`. `pipelined`
    limits the requests that wait on one connection for the response to an earlier one. `stalled_s` limits the time in
    which a client reads nothing of its response.
    """

    connections: int
    head_bytes: int = 32 * _KIB
    headers: int = 128
    head_s: float = 10.0
    handshake_s: float = 5.0
    body_step_bytes: int = 256 * _KIB
    body_s: float = 30.0
    pieces: int = 256
    piece_bytes: int = 256
    bodies_bytes: int = 2**63
    drained_bytes: int = 16 * _MIB
    drain_s: float = 2.0
    pipelined: int = 4
    stalled_s: float = math.inf


def local_bounds() -> Bounds:
    """Return the limits of a local server: bodies are read after the token was checked, and streams may pause."""
    return Bounds(connections=_connections())


def cluster_bounds() -> Bounds:
    """Return the limits of one port of a Kubernetes front, where bodies may come from unknown callers."""
    return Bounds(connections=min(512, _connections() // 4), body_s=10.0, bodies_bytes=128 * _MIB, stalled_s=30.0)
