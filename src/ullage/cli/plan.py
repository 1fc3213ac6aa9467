"""`ullage plan`: would it fit, where, and why; nothing is done."""

from __future__ import annotations

import argparse

from ullage.cli.exits import report
from ullage.cli.output import Column, add_output, print_json, print_list
from ullage.cli.preemption import add_standing, print_preemption
from ullage.client.allocations import Allocations
from ullage.client.local import reach
from ullage.model.error import UllageError
from ullage.model.request import ResourceRequirement
from ullage.wire.allocation import PlanBody, PlanRequest

PLACED = 1
NOT_PLACED = 0
ERROR = 255

_STAGES = (
    Column("STAGE", lambda s: s.name),
    Column("KIND", lambda s: s.kind),
    Column("BEFORE", lambda s: s.before),
    Column("AFTER", lambda s: s.after if s.reached else "-"),
    Column("REMOVED", lambda s: _reasons(s.removed)),
)
_CARDS = (
    Column("CARD", lambda gpu: gpu.uuid),
    Column("GFLOPS", lambda gpu: gpu.compute_gflops),
    Column("VRAM BYTES", lambda gpu: gpu.vram_bytes),
    Column("ISOLATION", lambda gpu: gpu.isolation),
    Column("PARTITION", lambda gpu: gpu.partition),
)


def configure_plan(parser: argparse.ArgumentParser) -> None:
    """`ullage plan`."""
    parser.add_argument(
        "-r", "--resreq", metavar="LIST", required=True, help="what it would hold, such as gpu=2,vram=20g,tflops=60"
    )
    parser.add_argument("--namespace", default="default", help="whose quota counts (default: default)")
    parser.add_argument("--strategy", metavar="NAME", help="instead of the pool's, such as compact-first")
    add_standing(parser)
    parser.add_argument("--preempt", action="store_true", help="who would be evicted if it does not fit")
    add_output(parser)
    parser.epilog = (
        f"{parser.epilog}. Exit codes: 1 it would be placed (also if others had to leave, with --preempt), "
        "0 it would not, 255 an error"
    )
    parser.set_defaults(act=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    try:
        resreq = str(ResourceRequirement.from_string(arguments.resreq))
        request = PlanRequest(
            resreq=resreq,
            namespace=arguments.namespace,
            strategy=arguments.strategy,
            qos=arguments.qos,
            priority=arguments.priority,
            preempt=arguments.preempt,
        )
        plan = Allocations(reach(start=False).transport).plan(request)
    except UllageError as error:
        report(error)
        return ERROR
    if arguments.output == "json":
        print_json(plan)
    else:
        _print(plan, arguments.output)
    makes_room = plan.preemption is not None and plan.preemption.node is not None
    return PLACED if plan.choice is not None or makes_room else NOT_PLACED


def _print(plan: PlanBody, output: str) -> None:
    if plan.choice is not None:
        scores = ", ".join(f"{node} {score:g}" for node, score in sorted(plan.node_scores.items())[:10])
        print(f"fits: node {plan.choice.node} ({scores})\n")
        print_list(plan.choice.gpus, _CARDS, output)
    elif plan.refusal is not None:
        print(f"does not fit: {plan.refusal.code}: {plan.refusal.message}")
        print(f"freed capacity {'could' if plan.refusal.curable else 'would not'} help")
    if plan.preemption is not None:
        print()
        print_preemption(plan.preemption, output)
    print()
    print_list(plan.stages, _STAGES, output)


def _reasons(removed: list[object]) -> str:
    counts: dict[str, int] = {}
    for rejection in removed:
        code = getattr(rejection, "code", "")
        counts[code] = counts.get(code, 0) + 1
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))
