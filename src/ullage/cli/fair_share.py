"""`ullage usage --fair-share`: past use with its half-life, and the factors of weights."""

from __future__ import annotations

import argparse
import sys

from ullage.cli.exits import caution
from ullage.cli.listing import Listing
from ullage.cli.output import Column
from ullage.client.api import PAGE
from ullage.client.local import reach
from ullage.model.counted import counted
from ullage.model.duration import duration_text
from ullage.model.error import invalid
from ullage.wire.fair_share import ShareBody

_HOUR = 3600.0


def _percent(part: float | None) -> str | None:
    return None if part is None else f"{part:.1%}"


SHARES = Listing(
    kind="share",
    columns=(
        Column("QUEUE", lambda s: s.queue),
        Column("USER", lambda s: s.owner),
        Column("CARD-HOURS", lambda s: f"{s.card_s / _HOUR:.2f}", key=lambda s: s.card_s),
        Column("CORE-HOURS", lambda s: f"{s.core_s / _HOUR:.2f}", key=lambda s: s.core_s),
        Column("PART", lambda s: _percent(s.part), key=lambda s: s.part),
        Column("DUE", lambda s: _percent(s.due), key=lambda s: s.due),
        Column("FACTOR", lambda s: f"{s.factor:.2g}", key=lambda s: s.factor),
    ),
    body=ShareBody,
    name=lambda share: share.queue if share.owner is None else f"{share.queue}/{share.owner}",
)


def fair_shares(arguments: argparse.Namespace) -> list[ShareBody]:
    """Return how queues and owners stand; say on stderr of which half-life."""
    api, most = reach(start=False), arguments.limit
    if most is not None and most < 1:
        raise invalid("--limit", most, "write a number from 1")
    found = api.fair_share(limit=PAGE if most is None else min(PAGE, most))
    if found.half_life_s is None:
        caution(["no half-life of past use is set (half_life under [fair_share]): shares are of the present"])
    elif not arguments.watch:
        print(f"use counts half after {duration_text(found.half_life_s)}", file=sys.stderr)
    wanted = found.total if most is None else min(found.total, most)
    shares = list(found.shares)
    while len(shares) < wanted:
        page = api.fair_share(offset=len(shares), limit=min(PAGE, wanted - len(shares)))
        if not page.shares:  # some are gone meanwhile
            break
        shares += page.shares
    if wanted < found.total:
        caution([f"{counted(found.total - wanted, 'share')} more; a larger --limit shows more"])
    return shares
