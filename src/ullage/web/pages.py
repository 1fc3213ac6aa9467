"""The live page: one HTML document, one style sheet, one script, all ours.

The page is entered with the token once (`/enter#TOKEN` keeps it out of logs and history); from then
on a cookie that opens reading only is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

COOKIE = "ullage"
_KINDS = {"css": "text/css", "js": "text/javascript", "html": "text/html", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def pages(page_cookie: str) -> Iterable[BaseRoute]:
    """Routes of the page. `page_cookie` is what the guard accepts for reading."""

    async def page(_: Request) -> Response:
        return _file("index.html")

    async def static(request: Request) -> Response:
        return _file(request.path_params["name"])

    async def enter(_: Request) -> Response:
        return _file("enter.html")

    async def admit(_: Request) -> Response:
        response = Response(status_code=204)
        response.set_cookie(COOKIE, page_cookie, httponly=True, samesite="strict", max_age=30 * 24 * 3600)
        return response

    async def icon(_: Request) -> Response:
        return RedirectResponse("/static/icon.svg")

    return [
        Route("/", page),
        Route("/enter", enter),
        Route("/v1/admit", admit, methods=["POST"]),
        Route("/static/{name}", static),
        Route("/favicon.ico", icon),
    ]


def _file(name: str) -> Response:
    place = files("ullage.web") / "static" / name
    kind = _KINDS.get(name.rpartition(".")[2])
    if kind is None or not place.is_file():
        return Response(status_code=404)
    return Response(place.read_bytes(), media_type=kind, headers=_HEADERS)
