"""An API server in this process, on a real socket: routes, pages and watches over `rules` and `store`."""

import asyncio
import base64
import itertools
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.kube.admission import Hook
from tests.kube.listening import listening
from tests.kube.patches import Unpatchable, apply_operations, merge
from tests.kube.rules import CUSTOM, KINDS, Refused, Rules, bad, defaulted
from tests.kube.selection import Match, field_selector, label_selector
from tests.kube.store import Change, Compacted, Item, Key, Store
from tests.ports import free_port

R = TypeVar("R")
TOKEN = "a-token"
_PROXY = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/services/(?P<service>[^/]+)/proxy/(?P<rest>.*)")
_GONE = Refused(410, "Expired", "The resourceVersion is too old")


@dataclass
class Canned:
    """An answer given instead of the real one, `times` times, to calls of that method whose path ends so."""

    method: str
    path_end: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    carried_out: bool = False  # the call is carried out, and the answer to it is lost
    then: Callable[[], None] = lambda: None  # called before the response is sent

    def takes(self, request: Request) -> bool:
        return self.times > 0 and request.method == self.method and request.url.path.endswith(self.path_end)


class ApiServer:
    """Started at construction. State outlives `stop` and `start`, which keep the port."""

    def __init__(self, bookmark_s: float = 0.1) -> None:
        self.store = Store()
        self.rules = Rules(self.store)
        self.canned: list[Canned] = []
        self.asked: list[tuple[str, str]] = []  # method and path with query of every call so far
        self.writes: list[tuple[str, str]] = []  # carried out: who wrote, as its token says, and the path
        self.bookmark_s = bookmark_s
        self.configz: Item | None = None  # the answer of every kubelet; None: it may not be asked
        self.hook: Hook | None = None  # asked about the pods of its namespace
        self.proxied: dict[str, str] = {}  # URLs behind ports of services, by NAMESPACE/NAME:PORT
        for name in ("default", "kube-system", "kube-node-lease"):
            self.rules.create("namespaces", "", {"metadata": {"name": name}})
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port = self.port or free_port()
        listener = listening(self.port)
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])])
        self._ending = False
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
        self._serving = asyncio.run_coroutine_threadsafe(self._server.serve(sockets=[listener]), self._loop)

    def stop(self) -> None:
        """As when the process is killed: every connection is cut."""
        self._ending = True
        self._server.should_exit = self._server.force_exit = True
        self.cut()
        self._serving.result(60)

    def cut(self) -> None:
        """Break every connection, in the middle of whatever is said on it."""

        def abort() -> None:
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()

        self.do(abort)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def forget(self) -> None:
        """Keep no version but the present one."""
        self.do(self.store.compact)

    def do(self, work: Callable[[], R]) -> R:
        """What `work` returns; it runs between calls."""

        async def once() -> R:
            try:
                return work()
            finally:
                await self.store.announce()

        return asyncio.run_coroutine_threadsafe(once(), self._loop).result(60)

    async def _answer(self, request: Request) -> Response:
        self.asked.append((request.method, f"{request.url.path}?{request.url.query}"))
        canned = next((canned for canned in self.canned if canned.takes(request)), None)
        try:
            if canned is not None:
                canned.times -= 1
                if canned.carried_out:
                    await self._route(request)
                canned.then()
                refused = Refused(canned.status, "", "as the test wants it")
                return JSONResponse(_status(refused), canned.status, headers=dict(canned.headers))
            return await self._route(request)
        except Refused as refused:
            headers = {"Retry-After": "1"} if refused.code == 429 else {}
            return JSONResponse(_status(refused), refused.code, headers=headers)
        except Compacted:
            return JSONResponse(_status(_GONE), 410)
        finally:
            await self.store.announce()

    async def _route(self, request: Request) -> Response:
        if request.url.path == "/readyz":
            return Response("ok")
        token, _, who = request.headers.get("Authorization", "").removeprefix("Bearer ").partition("/")
        if token != TOKEN:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if (proxied := _PROXY.fullmatch(request.url.path)) is not None:
            return await self._pass_on(request, f"{proxied['namespace']}/{proxied['service']}", proxied["rest"])
        if request.method == "GET":
            return self._get(request)
        answer = await self._write(request, *_parse(request.url.path))
        self.writes.append((who, request.url.path))
        return answer

    async def _write(self, request: Request, key: Key, subresource: str) -> Response:
        try:
            body = json.loads(await request.body() or b"{}")
        except ValueError as error:
            raise bad(str(error), 400, "BadRequest") from None
        match request.method:
            case "POST":
                return await self._post(key, subresource, body)
            case "PUT":
                return JSONResponse(self.rules.replace(key, body, subresource))
            case "PATCH":
                return self._patch(request, key, body, subresource)
        gone = self.rules.delete(key, body)
        done = {"kind": "Status", "status": "Success", "details": {"uid": gone["metadata"]["uid"]}}
        return JSONResponse(gone if key[0] == "pods" or self.store.get(key) else done)

    def _get(self, request: Request) -> Response:
        if request.url.path.endswith("/proxy/configz"):
            if self.configz is None:
                raise Refused(403, "Forbidden", "nodes/proxy may not be read")
            return JSONResponse(self.configz)
        key, _ = _parse(request.url.path)
        return JSONResponse(self.rules.get(key)) if key[2] else self._list(request, key[0], key[1])

    async def _pass_on(self, request: Request, service: str, rest: str) -> Response:
        if service not in self.proxied:
            name = service.partition("/")[2].partition(":")[0]
            found = any(key[0] == "services" and key[2] == name for key in self.store.at(self.store.revision))
            if not found:
                raise Refused(404, "NotFound", f'services "{name}" not found')
            raise Refused(503, "ServiceUnavailable", f'no endpoints available for service "{name}"')
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            sent = {name: text for name, text in request.headers.items() if name in ("if-none-match", "content-type")}
            body = await request.body()
            answer = await http.request(request.method, f"{self.proxied[service]}/{rest}", content=body, headers=sent)
        kept = {name: text for name, text in answer.headers.items() if name in ("content-type", "etag")}
        return Response(answer.content, answer.status_code, kept)

    async def _post(self, key: Key, subresource: str, body: Item) -> Response:
        plural, namespace, name = key
        done = {"kind": "Status", "status": "Success", "code": 201}
        if subresource == "binding":
            self.rules.bind(namespace, name, body)
            return JSONResponse(done, 201)
        if subresource == "eviction":
            self.rules.evict(namespace, name, body.get("deleteOptions") or {})
            return JSONResponse(done, 201)
        if plural == "pods" and self.hook is not None and self.hook.namespace == namespace:
            body = await self.hook.admit(defaulted(plural, body))
        return JSONResponse(self.rules.create(plural, namespace, body), 201)

    def _patch(self, request: Request, key: Key, patch: Any, subresource: str) -> Response:
        media = request.headers.get("Content-Type", "")
        if "apply" in media and self.store.get(key) is None:
            return JSONResponse(self.rules.create(key[0], key[1], patch), 201)
        if "strategic" in media and key[0] in CUSTOM:
            raise bad("the body of the request was in an unknown format", 415, "UnsupportedMediaType")

        def patched(item: Item) -> Any:
            try:
                if "json-patch" in media:
                    return apply_operations(item, patch)
                return merge(item, patch, strategic="merge-patch+json" not in media or "strategic" in media)
            except Unpatchable as error:
                raise bad(str(error)) from None

        return JSONResponse(self.rules.change(key, patched, subresource))

    def _list(self, request: Request, plural: str, namespace: str) -> Response:
        query = request.query_params
        wanted = _wanted(plural, namespace, query)
        if query.get("watch") in ("true", "1"):
            return StreamingResponse(self._watch(wanted, plural, query), media_type="application/json")
        start, revision = "", self.store.revision
        if token := query.get("continue"):
            revision, start = json.loads(base64.b64decode(token))
        listed = {f"{key[1]}/{key[2]}": item for key, item in self.store.at(revision).items() if key[0] == plural}
        rest = [(path, item) for path, item in sorted(listed.items()) if path > start and wanted(item)]
        limit = int(query.get("limit") or 0) or len(rest)
        metadata: Item = {"resourceVersion": str(revision)}
        if rest[limit:]:
            token = json.dumps([revision, rest[limit - 1][0]])
            metadata["continue"] = base64.b64encode(token.encode()).decode()
            metadata["remainingItemCount"] = len(rest) - limit
        items = [item if plural in CUSTOM else _bare(item) for _, item in rest[:limit]]
        kind = KINDS[plural]
        return JSONResponse(
            {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}
        )

    async def _watch(self, wanted: Match, plural: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        clock, seen = asyncio.get_running_loop().time, int(query["resourceVersion"])
        until = clock() + int(query.get("timeoutSeconds", "1800"))
        while not self._ending:
            try:
                changes = list(self.store.since(seen))
            except Compacted:
                yield _line("ERROR", _status(_GONE))
                return
            for change in changes:
                if change.key[0] == plural and (line := _told(change, wanted)):
                    yield line
                seen = change.revision
            if await self.store.wait(seen, min(self.bookmark_s, max(0.0, until - clock()))):
                continue
            if query.get("allowWatchBookmarks") == "true":
                kind = KINDS[plural]
                metadata = {"resourceVersion": str(seen), "creationTimestamp": None}
                yield _line("BOOKMARK", {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata})
            if clock() >= until:
                return


def _parse(path: str) -> tuple[Key, str]:
    """The key, whose name is "" for all of a kind, and the subresource."""
    parts = path.strip("/").split("/")
    root, parts = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if parts[0:1] == ["namespaces"] and len(parts) > 2 and parts[2] in KINDS:
        namespace, parts = parts[1], parts[2:]
    kind = KINDS.get(parts[0]) if parts else None
    if kind is None or not kind.path().startswith("/" + "/".join(root) + "/"):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    plural, name, subresource = [*parts, "", ""][:3]
    return (plural, namespace, name), subresource


def _wanted(plural: str, namespace: str, query: Mapping[str, str]) -> Match:
    labels, fields = label_selector(query.get("labelSelector", "")), field_selector(query.get("fieldSelector", ""))

    def wanted(item: Mapping[str, Any]) -> bool:
        there = not namespace or item["metadata"].get("namespace") == namespace
        return there and labels(item) and fields(item)

    return wanted


def _told(change: Change, wanted: Match) -> bytes | None:
    """What a watch with that selection sees of a change: an object may come into it, or leave it."""
    was, now = (side is not None and wanted(side) for side in (change.before, change.after))
    if was and not now:
        last = change.before or change.reported
        version = {"resourceVersion": str(change.revision)}
        return _line("DELETED", {**last, "metadata": last["metadata"] | version})
    if now:
        return _line("MODIFIED" if was else "ADDED", change.reported)
    return None


def _line(kind: str, item: Item) -> bytes:
    return json.dumps({"type": kind, "object": item}, ensure_ascii=False).encode() + b"\n"


def _bare(item: Item) -> Item:
    return dict(itertools.filterfalse(lambda pair: pair[0] in ("kind", "apiVersion"), item.items()))


def _status(refused: Refused) -> Item:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": refused.code,
        "reason": refused.reason,
        "message": refused.message,
    }
