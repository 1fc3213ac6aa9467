"""`ullage adjust`: change the amounts of a request on its cards."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ullage.cli.allocations import or_not_found, reach_allocations
from ullage.cli.exits import NO
from ullage.cli.output import DATA, Column, add_output, print_row
from ullage.cli.refusal import report_refusal
from ullage.cli.request import add_limit, parse_part
from ullage.cli.size import show_size
from ullage.cli.typed_fields import as_typed
from ullage.client.answer import RefusedAnswer
from ullage.model.resources import show_milli
from ullage.wire.allocation import AdjustAllocation, AdjustmentBody, AmountsBody

_ADJUSTMENTS = (
    Column("UID", lambda a: a.allocation.uid),
    Column("REQUEST", lambda a: a.allocation.resreq),
    Column("CHANGE", lambda a: _amounts(a.delta_request, signed=True)),
    Column("LIMIT CHANGE", lambda a: _amounts(a.delta_limit, signed=True)),
    Column("LEFT ON CARD", lambda a: _amounts(a.remain)),
)


def configure_adjust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="UID", help="a bound request")
    parser.add_argument(
        "-r",
        "--request",
        metavar="LIST",
        required=True,
        help="its new amounts of each card, such as tflops=90,vram=20g; an amount left out becomes 0",
    )
    add_limit(parser, "the larger of the old one and the new request")
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing: show whether it fits, and the largest that does"
    )
    add_output(parser)
    parser.epilog = f"{parser.epilog}. Exit codes with --dry-run: 0 it would be done, 1 it would not"
    parser.set_defaults(act=_adjust)


def _adjust(arguments: argparse.Namespace) -> int:
    dry = arguments.dry_run
    try:
        adjusted = _adjusted(arguments)
    except RefusedAnswer as refused:
        code = report_refusal(refused.refusal, arguments.output)
        return NO if dry else code
    if dry and arguments.output not in DATA:
        print("this fits; nothing has changed\n")
    print_row(adjusted, _ADJUSTMENTS, arguments.output)
    return 0


def _adjusted(arguments: argparse.Namespace) -> AdjustmentBody:
    change = AdjustAllocation(
        request=parse_part("--request", arguments.request),
        limit=None if arguments.limit is None else parse_part("--limit", arguments.limit),
        dry_run=arguments.dry_run,
    )
    with as_typed({"request": "--request", "limit": "--limit"}):
        api = reach_allocations()
        return or_not_found(api, arguments.uid, lambda: api.adjust(arguments.uid, change))


def _amounts(body: AmountsBody, *, signed: bool = False) -> str:
    """Return text such as `30 TFLOPS, 5Gi vram`, or `30 % compute` of a card of unknown size."""
    compute = _amount(body.compute_gflops, show_milli, body.compute_percent, signed=signed)
    vram = _amount(body.vram_bytes, show_size, body.vram_percent, signed=signed)
    return f"{compute} {'TFLOPS' if body.compute_percent is None else 'compute'}, {vram} vram"


def _amount(amount: int | None, show: Callable[[int], str], percent: float | None, *, signed: bool) -> str:
    shown = f"{abs(percent or 0):g} %" if amount is None else show(abs(amount))
    sign = "-" if (amount or percent or 0) < 0 else "+"
    return f"{sign}{shown}" if signed else shown
