"""`ullage recover`: check and recover a damaged database."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.cli.exits import NO
from ullage.client.endpoint import looked_after
from ullage.model.error import Forbidden, invalid

if TYPE_CHECKING:
    from ullage.bootstrap.recover import Recovery


def configure_recover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the database (default: that of the settings)"
    )
    parser.add_argument("--keep", action="store_true", help="move the damaged files aside and keep the intact records")
    parser.add_argument(
        "--as-it-is", action="store_true", help="accept changes of another program, if a full check passes"
    )
    parser.epilog = f"{parser.epilog}. Exit code 1: the database is damaged, and nothing was changed"
    parser.set_defaults(act=_recover)


def _recover(arguments: argparse.Namespace) -> int:
    from ullage.bootstrap.recover import recover  # noqa: PLC0415  # the whole store, for this one verb

    found = recover(_path(arguments), keep=arguments.keep, as_it_is=arguments.as_it_is)
    for line in _lines(found):
        print(line)
    return 0 if found.is_sound or found.aside is not None else NO


def _path(arguments: argparse.Namespace) -> Path:
    """Return the database to check: by default that of the settings.

    Raises:
        InvalidRequest: the settings keep the state in memory.
        Forbidden: the database is that of the system service, and this process is not root (`not-root`).

    """
    from ullage.bootstrap.database_check import database_path  # noqa: PLC0415  # as above

    if arguments.file is not None:
        return Path(arguments.file.resolve())
    place = looked_after()
    if place is None:
        raise Forbidden("only root may recover the database of the service of this machine", code="not-root")
    path = database_path(place)
    if path is None:
        raise invalid("storage", "memory://", "name the file of a database")
    return path


def _lines(found: Recovery) -> Iterator[str]:
    if found.is_sound:
        yield f"{found.path}: intact and complete; nothing was changed"
        yield f"sessions: {found.sessions}"
        return
    if found.as_it_is:
        yield f"{found.path}: a full check finds it intact; it was not checked to be the last state of the server"
    elif found.pages is None:
        yield f"{found.path}: no witness can be read, so nothing proves that the file is the last state of the server"
    else:
        yield f"{found.path}: {found.pages} pages, {len(found.repaired)} repaired, {len(found.lost)} lost"
    if found.intact_at is not None:
        yield (
            f"a full check finds the file intact at commit {found.intact_at} of {found.acknowledged} acknowledged "
            "ones; --keep --as-it-is keeps it, with changes of other programs"
        )
    yield f"intact sessions: {found.sessions}"
    for name in found.left_out:
        yield f"left out: {name}"
    if found.aside is None:
        yield "nothing was changed; --keep keeps the intact records and moves the damaged files aside"
    else:
        yield f"an intact database is in place; the files from before are {found.aside} and those named after it"
