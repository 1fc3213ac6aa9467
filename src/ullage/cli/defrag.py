"""`ullage defrag`: find moves that free whole cards; with `--yes`, start them."""

from __future__ import annotations

import argparse

from ullage.cli.allocations import reach_allocations
from ullage.cli.exits import TRY_AGAIN, UNPLACEABLE
from ullage.cli.output import DATA, Column, add_output, print_data, print_list
from ullage.cli.parts import show_cards
from ullage.cli.refusal import report_refusal
from ullage.cli.typed_fields import as_typed
from ullage.client.answer import RefusedAnswer
from ullage.model.counted import counted
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement
from ullage.wire.consolidation import MakeRoom, RoomPlan
from ullage.wire.explanation import RejectionBody

_OPTIONS = {
    "resreq": "--for",
    "count": "--count",
    "uids": "--uid",
    "up_to": "--max-priority",
    "namespace": "--namespace",
    "priority": "--priority",
}
_MOVES = (
    Column("MOVES", lambda move: move.uid),
    Column("NAMESPACE", lambda move: move.namespace),
    Column("PRIORITY", lambda move: move.priority),
    Column("HOLDS", lambda move: move.resreq),
    Column("FROM", lambda move: move.node),
    Column("TO", lambda move: move.to_node if move.to_node != move.node else f"{move.node}, other cards"),
    Column("GAP", lambda move: move.gap),
    Column("FROM UUIDS", lambda move: ",".join(move.gpus), wide=True),
    Column("TO UUIDS", lambda move: ",".join(move.to_gpus), wide=True),
)
_UNITS = (
    Column("ROOM", lambda unit: unit.uid),
    Column("NODE", lambda unit: unit.node),
    Column("UUIDS", lambda unit: ",".join(unit.gpus)),
)


def configure_defrag(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--for", dest="resreq", metavar="LIST", required=True, help="a request for whole cards, such as gpu=8,cpu=16")
    add("--count", type=int, default=1, metavar="N", help="number of such requests (default: 1)")
    add("--max-priority", type=int, metavar="PRIORITY", help="move nobody above this priority (default: anybody)")
    add("--namespace", default="default", help="of these requests (default: default)")
    add("--priority", type=int, default=0, metavar="N", help="of these requests (default: 0)")
    add("--yes", action="store_true", help="start the moves and reserve the room")
    add("--uid", action="append", metavar="UID", help="id of a reservation (again for more; default: room-1, ...)")
    add_output(parser)
    parser.epilog = f"{parser.epilog}. Exit codes: 75 moving does not make it fit, 78 nor would an empty fleet"
    parser.set_defaults(act=_defrag)


def _defrag(arguments: argparse.Namespace) -> int:
    asked = MakeRoom(
        resreq=str(ResourceRequirement.from_string(arguments.resreq)),
        count=arguments.count,
        uids=arguments.uid,
        namespace=arguments.namespace,
        priority=arguments.priority,
        up_to=arguments.max_priority,
        dry_run=not arguments.yes,
    )
    try:
        with as_typed(_OPTIONS):
            plan = reach_allocations().make_room(asked)
    except RefusedAnswer as refused:
        return report_refusal(refused.refusal, arguments.output)
    if arguments.output in DATA:
        print_data(plan, arguments.output)
    else:
        print_room(plan, arguments.output)
    if plan.refusal is None:
        return 0
    return UNPLACEABLE if _never_fits(plan.refusal) else TRY_AGAIN


def print_room(plan: RoomPlan, output: str) -> None:
    """Print the plan or its refusal, and how many allocations cannot move."""
    print(_summary(plan))
    if plan.moves:
        print()
        print_list(plan.moves, _MOVES, output)
    if plan.units:
        print()
        print_list(plan.units, _UNITS, output)
    if plan.stays:
        reasons = ", ".join(f"{number} {reason}" for reason, number in plan.stays.items())
        print(f"\nnot moved: {reasons}")


def _never_fits(refusal: RejectionBody) -> bool:
    return refusal.cure == Cure.NODE_CHANGE


def _summary(plan: RoomPlan) -> str:
    if plan.refusal is not None:
        never = "more would not fit on empty nodes either; ask for less"
        if plan.refusal.code != Code.NO_MOVES_HELP:
            return plan.refusal.text
        why = never if _never_fits(plan.refusal) else plan.refusal.text
        return f"room can be made for {plan.refusal.had} of {plan.refusal.needed}: {why}"
    if plan.cost is None or not plan.moves:
        return "it fits without moves"
    cost = plan.cost
    many = counted(cost.number, "allocation moves", "allocations move")
    text = f"{many}, {show_cards(cost.gpu_milli)}, the highest of priority {cost.highest}"
    if plan.done:
        return f"{text}; their owners are asked to move them, and the room is reserved"
    return f"{text}. Nothing has changed: --yes starts the moves" + ("" if plan.least else "; a cheaper plan may exist")
