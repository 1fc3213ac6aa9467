"""The front of a cluster as `kubectl ullage` asks it: through the API server, or at an address."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import yaml

from ullage.kube.client.api import Selection
from ullage.kube.client.changes import Call
from ullage.kube.client.connection import ApiConnection, HttpAnswer, connect, namespace_of
from ullage.kube.client.errors import ApiForbidden
from ullage.kube.client.http import HttpKubeApi
from ullage.kube.client.kinds import SERVICES
from ullage.kube.client.objects import Object, Status
from ullage.model.error import Forbidden, InvalidRequest, NotFound, UllageError, Unavailable, invalid
from ullage.wire.allocation import PlanBody
from ullage.wire.cluster_view import ClusterOverview, ClusterPlan
from ullage.wire.schema import ErrorBody

ANSWER_S = 60.0
"""Seconds within which an answer is expected. On a large cluster a plan may have to wait for another one."""

_LABELS = "app.kubernetes.io/name=ullage,app.kubernetes.io/component=extender"
_PORT = "page"
_NAME_IT = "name it by --front NAMESPACE/SERVICE, or by the URL of a port-forward"
_RIGHTS = "it takes the verbs get and create on services/proxy"

_KINDS: dict[int, type[UllageError]] = {400: InvalidRequest, 403: Forbidden, 404: NotFound}


@dataclass(frozen=True, slots=True)
class FrontPlace:
    """How to reach a front: the cluster as kubectl names it, and `front`, a URL or `NAMESPACE/SERVICE`.

    Without `front` it is the only Service of the cluster with the labels of the chart and a port `page`.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    front: str = ""


def cluster_overview(place: FrontPlace) -> ClusterOverview:
    """Return the overview of a cluster.

    Raises:
        InvalidRequest: the kubeconfig cannot be used (`kube-config`), or several fronts are there.
        Unavailable: there is no front (`no-front`), or it does not answer (`front-silent`).
        Forbidden: the user may not ask it.

    """
    return msgspec.json.decode(asyncio.run(_ask(place, "GET", "v1/overview")), type=ClusterOverview)


def cluster_plan(place: FrontPlace, plan: ClusterPlan) -> PlanBody:
    """Return the plan of a request or a pod; raises as `cluster_overview`, and what is wrong with the request."""
    return msgspec.json.decode(asyncio.run(_ask(place, "POST", "v1/plan", msgspec.json.encode(plan))), type=PlanBody)


def current_namespace(place: FrontPlace) -> str:
    """Return the namespace of the context; `default` if it names none."""
    return namespace_of(place.kubeconfig, place.context)


def read_pod(path: str) -> dict[str, Any]:
    """Return the pod in a file of YAML or JSON (`-`: the standard input), also the pod of a workload's template.

    Raises:
        InvalidRequest: the file cannot be read, or has no pod or several.

    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}", field="filename") from None
    found = [pod for each in documents if (pod := _pod_in(each)) is not None]
    if len(found) != 1:
        raise invalid("filename", path, f"it has {len(found)} pods; give one pod, or one workload with a template")
    return found.pop()


def _pod_in(document: Any) -> dict[str, Any] | None:
    """Return a pod, or the one that a workload makes."""
    if not isinstance(document, dict):
        return None
    if document.get("kind") == "Pod":
        return document
    spec = document.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict):
        return None
    own, made = (
        each if isinstance(each, dict) else {} for each in (document.get("metadata"), template.get("metadata"))
    )
    named = {key: own[key] for key in ("name", "namespace") if key in own}
    return {**template, "kind": "Pod", "metadata": {**named, **made}}


async def _ask(place: FrontPlace, method: str, path: str, body: bytes = b"") -> bytes:
    async with _reached(place) as (connection, base, name):
        try:
            answer = await connection.request(Call(method, f"{base}/{path}", {}, body), ANSWER_S)
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{name} does not answer: {error or type(error).__name__}", code="front-silent") from None
        if answer.is_success:
            return answer.content
        raise _refusal(answer, name)


@asynccontextmanager
async def _reached(place: FrontPlace) -> AsyncIterator[tuple[ApiConnection, str, str]]:
    """Yield a connection, the base of the paths, and the name of the front."""
    if place.front.startswith(("http://", "https://")):
        async with ApiConnection(place.front) as connection:
            yield connection, "", f"the front at {place.front}"
        return
    async with connect(place.kubeconfig, place.context) as connection:
        namespace, slash, service = (place.front or await _found(HttpKubeApi(connection))).partition("/")
        if not (namespace and slash and service):
            raise invalid("front", place.front, "write NAMESPACE/SERVICE, or a URL")
        port = f"{service}:{_PORT}" if ":" not in service else service
        base = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(port, safe=':')}/proxy"
        yield connection, base, f"the front {namespace}/{service}"


async def _found(api: HttpKubeApi) -> str:
    """Return the namespace and the name of the Service of the only front.

    Raises:
        Unavailable: there is none. InvalidRequest: there are several. Forbidden: Services may not be listed.

    """
    try:
        pages = [page async for page in api.pages(SERVICES, Selection(labels=_LABELS))]
    except ApiForbidden as error:
        raise Forbidden(f"{error.message}; {_NAME_IT}", code="front-forbidden") from None
    found = ["/".join(each.key) for page in pages for each in page.items if _has_page(each)]
    if not found:
        text = "no Service of Ullage in the cluster has the port `page`: install the chart with page.enabled=true"
        raise Unavailable(f"{text}, or {_NAME_IT}", code="no-front")
    if len(found) > 1:
        raise InvalidRequest(f"the cluster has several fronts: {', '.join(sorted(found))}; {_NAME_IT}", field="front")
    return found.pop()


def _has_page(service: Object) -> bool:
    ports = (service.document.get("spec") or {}).get("ports") or []
    return any(port.get("name") == _PORT for port in ports)


def _refusal(answer: HttpAnswer, name: str) -> UllageError:
    """Return the error of a failed answer, of the front or of the API server before it."""
    try:
        body = msgspec.json.decode(answer.content, type=ErrorBody)
    except msgspec.DecodeError:
        return _unreached(answer, name)
    kind = _KINDS.get(answer.status, Unavailable)
    return kind(body.message, code=body.code, field=body.field)


def _unreached(answer: HttpAnswer, name: str) -> UllageError:
    try:
        said = msgspec.json.decode(answer.content, type=Status).message
    except msgspec.DecodeError:
        said = ""
    said = said or f"status {answer.status}"
    if answer.status in (401, 403):
        return Forbidden(f"{name} may not be asked by you: {said}; {_RIGHTS}", code="front-forbidden")
    return Unavailable(f"{name} cannot be reached: {said}", code="no-front")
