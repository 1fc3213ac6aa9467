"""`ullage page`: the link to the live page."""

from __future__ import annotations

import argparse

from ullage.client.endpoint import ServerEndpoint, configured, nearby
from ullage.client.local import require_answer
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
            "the link needs a token: set ULLAGE_ENDPOINT and ULLAGE_TOKEN to the address of the server and your token"
        )
        raise InvalidRequest(text, code="unauthorized", field="token")
    return f"{there.url.rstrip('/')}/enter#{there.token}"


def _page(_arguments: argparse.Namespace) -> int:
    there = configured() or nearby()
    if there is None:
        raise Unavailable("no server is running")
    require_answer(there)
    print(link_of(there))
    return 0
