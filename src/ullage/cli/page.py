"""`ullage page`: the link to the live page."""

from __future__ import annotations

import argparse
import re

from ullage.client.endpoint import ServerEndpoint, configured, nearby
from ullage.client.local import require_answer
from ullage.model.error import InvalidRequest, Unavailable

_WILDCARD = re.compile(r"(https?://)(?:0\.0\.0\.0|\[::\])(:\d+)")
"""The URL of a server that listens on all addresses; a browser needs one of them."""


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
    url = _WILDCARD.sub(r"\1localhost\2", there.url.rstrip("/"))
    return f"{url}/enter#{there.token}"


def _page(_arguments: argparse.Namespace) -> int:
    there = configured() or nearby()
    if there is None:
        raise Unavailable("no server is running")
    require_answer(there)
    print(link_of(there))
    return 0
