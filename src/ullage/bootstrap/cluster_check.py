"""The check of a cluster: its API server answers, and accepts this user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec

from ullage.kube.client.changes import Call
from ullage.kube.client.connection import HttpAnswer, connect, namespace_of
from ullage.model.error import InvalidRequest
from ullage.wire.finding import BAD, OK, WARN, Finding

_WITHIN_S = 10.0
_DENIED = (401, 403)


def check_cluster(kubeconfig: Path | None, context: str | None) -> Iterator[Finding]:
    """Check that the cluster that a kubeconfig names answers."""
    try:
        answer = asyncio.run(_version(kubeconfig, context))
    except InvalidRequest as error:
        yield Finding("cluster", BAD, error.message, "`kubectl config get-contexts` lists the contexts")
    except (aiohttp.ClientError, OSError) as error:
        text = f"the API server does not answer: {error or type(error).__name__}"
        yield Finding("cluster", BAD, text, "`kubectl cluster-info` shows its address; check the network and the VPN")
    else:
        yield _of(answer, namespace_of(kubeconfig, context))


def _of(answer: HttpAnswer, namespace: str) -> Finding:
    if answer.status in _DENIED:
        return Finding("cluster", BAD, f"the API server refuses this user ({answer.status})", "log in to it again")
    if not answer.is_success:
        return Finding("cluster", WARN, f"the API server answers with {answer.status}", "`kubectl get --raw /version`")
    version = msgspec.json.decode(answer.content).get("gitVersion", "of an unknown version")
    return Finding("cluster", OK, f"the API server is {version}; the namespace of the context is {namespace}")


async def _version(kubeconfig: Path | None, context: str | None) -> HttpAnswer:
    async with connect(kubeconfig, context) as connection:
        return await connection.request(Call("GET", "/version", {}, b""), _WITHIN_S)
