"""`ullage page`: the link to the live page."""

from __future__ import annotations

import argparse
from contextlib import closing, suppress

import msgspec

from ullage.client.api import Api
from ullage.client.endpoint import ServerEndpoint, configured, looked_after, nearby
from ullage.client.local import require_answer
from ullage.client.transport import Transport
from ullage.model.error import InvalidRequest, Unavailable


def configure_page(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(act=_page)


def link_of(there: ServerEndpoint) -> str:
    """Return the link to the live page of a server. It contains the token.

    Raises:
        InvalidRequest: the token of the server is unknown.

    """
    if there.token is None:
        text = (
            "the link needs a token of yours: an administrator creates it with `ullage token create --user NAME`, and "
            f"`ULLAGE_ENDPOINT={there.url} ULLAGE_TOKEN=TOKEN ullage page` prints the link"
        )
        raise InvalidRequest(text, code="unauthorized", field="token")
    return f"{there.url.rstrip('/')}/enter#{there.token}"


def _page(_arguments: argparse.Namespace) -> int:
    there = configured() or nearby()
    if there is None:
        raise Unavailable("no server is running")
    require_answer(there)
    print(link_of(there if there.token is not None else _with_token(there)))
    return 0


def _with_token(there: ServerEndpoint) -> ServerEndpoint:
    """Return a local server with the token in its home, for root, or with one that it creates for this user."""
    there = _with_token_of_service(there)
    if there.token is not None or there.pid is None:
        return there
    with closing(Transport(lambda: there)) as transport:
        return msgspec.structs.replace(there, token=Api(transport).create_link().token)


def _with_token_of_service(there: ServerEndpoint) -> ServerEndpoint:
    """Return the system service with the token in its home, which root can read."""
    place = looked_after()
    if there.pid is None or place is None:
        return there
    with suppress(OSError):
        return msgspec.structs.replace(there, token=(place.home / "token").read_text().strip())
    return there
