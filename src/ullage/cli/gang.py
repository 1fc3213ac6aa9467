"""`ullage gang`: requests that are placed together."""

from __future__ import annotations

import argparse

from ullage.cli.allocations import reach_allocations
from ullage.cli.output import DATA, Column, add_output, print_data, print_list
from ullage.cli.request import REQUEST_OPTIONS, add_request, request_fields
from ullage.cli.typed_fields import as_typed
from ullage.model.duration import FORMS, parse_duration
from ullage.wire.allocation import CreateAllocation
from ullage.wire.gang import GangBody, PutGangBody

_MEMBERS = (
    Column("UID", lambda m: m.uid),
    Column("STATE", lambda m: m.allocation and m.allocation.state),
    Column("NODE", lambda m: m.allocation and m.allocation.node),
    Column("CARDS", lambda m: m.allocation and len(m.allocation.gpus)),
    Column("REASON", lambda m: m.code),
    Column("MESSAGE", lambda m: m.message),
    Column("UUIDS", lambda m: m.allocation and ",".join(gpu.uuid for gpu in m.allocation.gpus), wide=True),
)


def configure_gang(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    submit = actions.add_parser(
        "submit",
        help="ask for cards for several requests together",
        description="All members have the same request. Either all are placed in one step, or the gang waits. "
        "Members that exist already do not change.",
        epilog="example: ullage gang submit train-1 w-0 w-1 w-2 -r gpu=1 --required 2",
    )
    submit.add_argument("key", metavar="GANG", help="its name")
    submit.add_argument("uids", metavar="UID", nargs="+", help="the ids of its members")
    add_request(submit, "the request of each member")
    submit.add_argument("--required", type=int, metavar="N", help="place it once N members fit (default: all)")
    submit.add_argument("--timeout", metavar="TIME", help=f"back off after waiting for {FORMS} (default: never)")
    submit.add_argument(
        "--domain",
        metavar="LABEL[,LABEL...]",
        help="prefer nodes with the same value of this label, such as a rack; of several levels, outermost first, "
        "the innermost with room for all",
    )
    submit.add_argument("--within", metavar="LABEL", help="require nodes with the same value of this label")
    submit.add_argument("--preempt", action="store_true", help="evict requests of lower priority for the whole gang")
    add_output(submit)
    submit.set_defaults(act=_submit)
    show = actions.add_parser("show", help="the state of a gang", epilog="example: ullage gang show train-1")
    show.add_argument("key", metavar="GANG")
    add_output(show)
    show.set_defaults(act=_show)
    end = actions.add_parser("end", help="end a gang and free its cards", epilog="example: ullage gang end train-1")
    end.add_argument("key", metavar="GANG")
    end.set_defaults(act=_end)


def _submit(arguments: argparse.Namespace) -> int:
    each = request_fields(arguments)
    gang = PutGangBody(
        members=[CreateAllocation(uid=uid, **each) for uid in arguments.uids],
        required=arguments.required,
        timeout_s=0.0 if arguments.timeout is None else parse_duration(arguments.timeout, "--timeout"),
        domain=arguments.domain,
        preempt=arguments.preempt,
        within=arguments.within,
    )
    named = {"gang.required": "--required", "timeout_s": "--timeout", "gang.domain": "--domain"}
    with as_typed({**REQUEST_OPTIONS, **named, "gang.within": "--within"}):
        body = reach_allocations().put_gang(arguments.key, gang)
    _print(body, arguments.output)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    _print(reach_allocations().gang(arguments.key), arguments.output)
    return 0


def _end(arguments: argparse.Namespace) -> int:
    reach_allocations().drop_gang(arguments.key)
    print(f"{arguments.key}: ended; its members hold nothing")
    return 0


def _print(gang: GangBody, output: str) -> None:
    if output in DATA:
        print_data(gang, output)
        return
    where = f", in {gang.domains} of {gang.domain}" if gang.domain and gang.domains else ""
    print(f"{gang.key}: {gang.phase}{where}\n")
    print_list(gang.members, _MEMBERS, output)
