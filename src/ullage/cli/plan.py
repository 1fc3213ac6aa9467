"""`ullage plan`: whether and where a request would fit, and why; nothing changes."""

from __future__ import annotations

import argparse

from ullage.cli.allocations import reach_allocations
from ullage.cli.defrag import print_room
from ullage.cli.exits import NO
from ullage.cli.output import DATA, Column, add_output, print_data, print_list
from ullage.cli.parts import show_tflops
from ullage.cli.preemption import print_preemption
from ullage.cli.refusal import LISTS, Lists, hint_of
from ullage.cli.request import REQUEST_OPTIONS, add_request, request_fields
from ullage.cli.size import show_size
from ullage.cli.typed_fields import as_typed
from ullage.model.counted import counted
from ullage.wire.allocation import PlanBody, PlanRequest

_STAGES = (
    Column("STAGE", lambda s: s.name),
    Column("KIND", lambda s: s.kind),
    Column("BEFORE", lambda s: s.before),
    Column("AFTER", lambda s: s.after if s.reached else "-"),
    Column("REMOVED", lambda s: _reasons(s.removed)),
)
_CARDS = (
    Column("CARD", lambda gpu: gpu.uuid),
    Column("TFLOPS", lambda gpu: show_tflops(gpu.compute_gflops)),
    Column("VRAM", lambda gpu: None if gpu.vram_bytes is None else show_size(gpu.vram_bytes)),
    Column("ISOLATION", lambda gpu: gpu.isolation),
    Column("PARTITION", lambda gpu: gpu.partition),
)


def configure_plan(parser: argparse.ArgumentParser) -> None:
    add_request(parser, "the request")
    parser.add_argument("--preempt", action="store_true", help="list the victims if it does not fit")
    parser.add_argument("--move", action="store_true", help="list the moves if it does not fit (for whole cards)")
    add_output(parser)
    parser.epilog = (
        f"{parser.epilog}. Exit codes: 0 it would be placed (with --preempt or --move also after evictions or moves), "
        "1 it would not"
    )
    parser.set_defaults(act=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    with as_typed(REQUEST_OPTIONS):
        plan = reach_allocations().plan(
            PlanRequest(**request_fields(arguments), preempt=arguments.preempt, move=arguments.move)
        )
    return show_plan(plan, arguments.output)


def show_plan(plan: PlanBody, output: str, lists: Lists = LISTS) -> int:
    """Print a plan. Return the exit code: 0 if the request would be placed, 1 if not."""
    if output in DATA:
        print_data(plan, output)
    else:
        _print(plan, output, lists)
    makes_room = plan.preemption is not None and plan.preemption.node is not None
    makes_room |= plan.room is not None and plan.room.refusal is None
    return 0 if plan.choice is not None or makes_room else NO


def _print(plan: PlanBody, output: str, lists: Lists) -> None:
    if plan.choice is not None:
        scores = ", ".join(f"{node} {score:g}" for node, score in sorted(plan.node_scores.items())[:10])
        learned = f", learned from {counted(plan.learned_from, 'task')}" if plan.learned_from else ""
        learned += "".join(f", {name} {milli / 1000:.3f} cards" for name, milli in plan.terms.items())
        print(f"fits: node {plan.choice.node} (by {plan.strategy}{learned}; scores: {scores})\n")
        print_list(plan.choice.gpus, _CARDS, output)
    elif plan.refusal is not None:
        print(f"does not fit: {plan.refusal.code}: {plan.refusal.message}")
        print(hint_of(plan.refusal, lists))
    for warning in plan.warnings:
        print(warning)
    if plan.preemption is not None:
        print()
        print_preemption(plan.preemption, output)
    if plan.room is not None:
        print()
        print_room(plan.room, output)
    if plan.stages:
        print()
        print_list(plan.stages, _STAGES, output)


def _reasons(removed: list[object]) -> str:
    counts: dict[str, int] = {}
    for rejection in removed:
        code = getattr(rejection, "code", "")
        counts[code] = counts.get(code, 0) + 1
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))
