"""`recover`: what is whole of a damaged database."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.cli.exits import FAILED
from ullage.client.endpoint import home

if TYPE_CHECKING:
    from ullage.bootstrap.recover import Recovery


def configure_recover(parser: argparse.ArgumentParser) -> None:
    """`ullage recover`."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the database (default: that of the home)")
    parser.add_argument("--keep", action="store_true", help="move the damaged files aside and keep what is whole")
    parser.add_argument(
        "--as-it-is", action="store_true", help="accept what another program wrote, if a full check passes"
    )
    parser.set_defaults(act=_recover)


def _recover(arguments: argparse.Namespace) -> int:
    from ullage.bootstrap.recover import recover  # noqa: PLC0415  # the whole store, for this one verb

    path = (arguments.file or home() / "state.db").resolve()
    found = recover(path, keep=arguments.keep, as_it_is=arguments.as_it_is)
    for line in _lines(found):
        print(line)
    return FAILED if found.left_out else 0


def _lines(found: Recovery) -> Iterator[str]:
    if found.is_sound:
        yield f"{found.path}: nothing is damaged, and all that was acknowledged is there; nothing was changed"
        yield f"sessions: {found.sessions}"
        return
    if found.as_it_is:
        yield f"{found.path}: a full check finds it whole; whether it is what the server wrote last was not asked"
    elif found.pages is None:
        yield f"{found.path}: no witness can be read, so nothing proves that what can be read is what was written last"
    else:
        yield f"{found.path}: {found.pages} pages, {len(found.mended)} mended, {len(found.lost)} lost"
    if found.whole_at is not None:
        yield (
            f"a full check finds the file whole as it is, at commit {found.whole_at} of {found.acknowledged} that were "
            "acknowledged; --keep --as-it-is keeps that, such as what another program wrote"
        )
    yield f"sessions that are whole: {found.sessions}"
    for name in found.left_out:
        yield f"left out: {name}"
    if found.aside is None:
        yield "nothing was changed; --keep keeps what is whole and moves the damaged files aside"
    else:
        yield f"a sound database is in place; the damaged files are {found.aside} and the files named after it"
