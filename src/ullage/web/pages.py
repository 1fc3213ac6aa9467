"""The pages of a server and of a cluster: documents, style sheets and small scripts, all ours.

The page of a server is entered with the token once (`/enter#TOKEN` keeps it out of logs and history); from then on a
key that opens reading only is enough. The browser keeps the key for this address and port, and the token in the tab in
which it was entered, for changes. The page of a cluster has no key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

_KINDS = {"css": "text/css", "js": "text/javascript", "html": "text/html", "svg": "image/svg+xml"}
HEADERS = {
    "Cache-Control": "no-cache",  # a new server brings a new page
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def pages(page_key: Callable[[str], str]) -> Iterable[BaseRoute]:
    """Return the routes of the page. `page_key` returns what the guard accepts for reading in place of a token."""

    async def admit(request: Request) -> Response:
        _, _, token = request.headers.get("authorization", "").partition(" ")
        if not token:
            raise HTTPException(400, "send the token that the key is for")
        return JSONResponse({"key": page_key(token)}, headers={"Cache-Control": "no-store"})

    assets = _read_assets()
    return [
        _document("/", assets, "index.html"),
        _document("/enter", assets, "enter.html"),
        Route("/v1/admit", admit, methods=["POST"]),
        *_files(assets),
    ]


def cluster_pages() -> Iterable[BaseRoute]:
    """Return the routes of the page of a cluster.

    All its addresses are relative, so that it also works below a path, as behind the proxy of an API server.
    """
    assets = _read_assets()
    return [_document("/", assets, "cluster.html"), *_files(assets)]


def _document(path: str, assets: dict[str, bytes], name: str) -> Route:
    async def document(_: Request) -> Response:
        return _answer(assets, name)

    return Route(path, document)


def _files(assets: dict[str, bytes]) -> list[Route]:
    async def static(request: Request) -> Response:
        return _answer(assets, request.path_params["name"])

    async def icon(_: Request) -> Response:
        return RedirectResponse("static/icon.svg")

    return [Route("/static/{name:path}", static), Route("/favicon.ico", icon)]


def _read_assets() -> dict[str, bytes]:
    """Everything that may be served, by its path: a request can name no other file."""
    return dict(_assets_in(files("ullage.web") / "static", ""))


def _assets_in(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for asset in folder.iterdir():
        name = path + asset.name
        if asset.is_dir():
            yield from _assets_in(asset, f"{name}/")
        elif _kind(name) is not None:
            yield name, asset.read_bytes()


def _answer(assets: dict[str, bytes], name: str) -> Response:
    if name not in assets:
        raise HTTPException(404)
    return Response(assets[name], media_type=_kind(name), headers=HEADERS)


def _kind(name: str) -> str | None:
    return _KINDS.get(name.rpartition(".")[2])
