"""`ullage why`: the reason, its numbers, and what would help."""

from __future__ import annotations

import argparse

from ullage.cli.output import Column, add_output, print_json, print_list
from ullage.client.local import reach
from ullage.wire.api import Explanation

_REJECTIONS = (
    Column("NODE", lambda r: r.node),
    Column("GPU", lambda r: r.gpu, wide=True),
    Column("REASON", lambda r: r.code),
    Column("CURE", lambda r: r.cure),
    Column("NEEDED", lambda r: r.needed, wide=True),
    Column("HAD", lambda r: r.had, wide=True),
    Column("TEXT", lambda r: r.text),
)

_HOLDERS = (
    Column("HELD BY", lambda h: h.session),
    Column("OWNER", lambda h: h.owner),
    Column("EXECUTORS", lambda h: h.executors),
    Column("DESERVED", lambda h: h.deserved),
    Column("AMOUNT", lambda h: h.amount),
)


def configure_why(parser: argparse.ArgumentParser) -> None:
    """`ullage why`."""
    parser.add_argument("session", metavar="SESSION")
    add_output(parser)
    parser.set_defaults(act=_why)


def _why(arguments: argparse.Namespace) -> int:
    explanation = reach(start=False).why(arguments.session)
    if arguments.output == "json":
        print_json(explanation)
    else:
        _print(explanation, arguments.output)
    return 0


def _print(explanation: Explanation, output: str) -> None:
    print(f"{explanation.session}: {explanation.code}: {explanation.summary}")
    place = "" if explanation.position is None else f"; position {explanation.position}"
    print(
        f"executors: wants {explanation.want}, holds {explanation.held}, deserves {explanation.deserved}; "
        f"share {explanation.share:.1%}{place}"
    )
    if explanation.rejections:
        print()
        print_list(explanation.rejections, _REJECTIONS, output)
    if explanation.holders:
        print()
        print_list(explanation.holders, _HOLDERS, output)
    for warning in explanation.warnings:
        print(f"\n{warning}")
    if explanation.suggestions:
        print("\nwhat would help:")
        for suggestion in explanation.suggestions:
            print(f"  {suggestion}")
