"""Requests for cards: `alloc`, `commit`, `forget`, `allocations`, `release`, `free`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from ullage.cli.exits import TRY_AGAIN, caution
from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, print_list, print_row
from ullage.cli.parts import show_part
from ullage.cli.places import PLACE
from ullage.cli.preemption import print_leaving
from ullage.cli.refusal import report_refusal
from ullage.cli.request import REQUEST_OPTIONS, add_request, request_fields
from ullage.cli.several import for_each
from ullage.cli.times import show_time
from ullage.cli.typed_fields import as_typed
from ullage.client.allocations import Allocations
from ullage.client.answer import RefusedAnswer
from ullage.client.local import reach
from ullage.model.allocation import AllocationState
from ullage.model.duration import FORMS, parse_duration
from ullage.model.error import Conflict, NotFound
from ullage.wire.allocation import AllocationBody, CreateAllocation, FreedBody
from ullage.wire.preemption import NominationBody

T = TypeVar("T")

ALLOCATIONS = (
    Column("UID", lambda a: a.uid),
    Column("STATE", lambda a: a.state),
    Column("NODE", lambda a: a.node),
    Column("CARDS", lambda a: len(a.gpus)),
    Column("REQUEST", lambda a: a.resreq),
    Column("NAMESPACE", lambda a: a.namespace),
    Column("POD", lambda a: a.pod),
    Column("LIMIT", lambda a: show_part(a.limit), wide=True),
    Column("PRIORITY", lambda a: a.priority, wide=True),
    Column("QOS", lambda a: a.qos, wide=True),
    Column("BOUND", lambda a: show_time(a.bound_at), wide=True),
    Column("RELEASE BY", lambda a: show_time(a.release_by), wide=True),
    Column("UUIDS", lambda a: ",".join(gpu.uuid for gpu in a.gpus), wide=True),
    *PLACE,
)


_LISTING = Listing(
    kind="request",
    columns=ALLOCATIONS,
    body=AllocationBody,
    name=lambda allocation: allocation.uid,
    known_states=tuple(AllocationState),
    states_of=lambda allocation: (allocation.state,),
)


def configure_alloc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="UID", help="the id of the request; a repeat returns the same answer")
    add_request(parser, "its request")
    parser.add_argument("--gpu", action="append", metavar="UUID", help="a card it must get (again for more)")
    parser.add_argument("--assume", action="store_true", help="only reserve: `ullage commit` binds, `forget` releases")
    parser.add_argument("--preempt", action="store_true", help="evict requests of lower priority if it does not fit")
    add_output(parser)
    parser.epilog = f"{parser.epilog}. Exit code 75: victims are leaving; repeat the command when they are freed"
    parser.set_defaults(act=_alloc)


def configure_commit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="UID", nargs="+", help="a request that `ullage alloc --assume` reserved")
    add_output(parser)
    parser.set_defaults(act=_commit)


def configure_forget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="UID", nargs="+", help="a request, assumed or bound; an unknown one is fine")
    parser.set_defaults(act=_forget)


def configure_allocations(parser: argparse.ArgumentParser) -> None:
    _LISTING.configure(parser, lambda _: reach_allocations().all())


def configure_release(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Mark requests whose owners were asked to end: their cards stay held until `ullage free`. "
        "A repeat may shorten the time, but not extend it."
    )
    parser.add_argument("uid", metavar="UID", nargs="+")
    parser.add_argument("--within", metavar="TIME", help=f"free its cards after {FORMS} at the latest")
    add_output(parser)
    parser.set_defaults(act=_release)


def configure_free(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="UID", nargs="+")
    parser.set_defaults(act=_free)


def reach_allocations() -> Allocations:
    """Return the client for allocations of the configured or local server."""
    return Allocations(reach(start=False).transport)


def or_not_found(api: Allocations, uid: str, act: Callable[[], T]) -> T:
    """Return `act()`. If it fails because the request does not exist, raise NotFound instead of Conflict.

    Raises:
        NotFound: there is no such request.

    """
    try:
        return act()
    except Conflict as refusal:
        if refusal.code in ("not-assumed", "not-allocated"):
            api.get(uid)
        raise


def _alloc(arguments: argparse.Namespace) -> int:
    api = reach_allocations()
    spec = CreateAllocation(
        uid=arguments.uid, **request_fields(arguments), gpus=arguments.gpu, commit=not arguments.assume
    )
    try:
        with as_typed(REQUEST_OPTIONS):
            answer = api.preempt(spec) if arguments.preempt else api.create(spec)
    except RefusedAnswer as refused:
        return report_refusal(refused.refusal, arguments.output)
    if isinstance(answer, NominationBody):
        print_leaving(answer, arguments.output)
        return TRY_AGAIN
    caution(_warnings(answer))
    print_row(answer, ALLOCATIONS, arguments.output)
    return 0


def _warnings(answer: AllocationBody) -> list[str]:
    """Return the warnings of the server, with what changes an allocation."""
    fix = f"`ullage adjust {answer.uid}` changes amounts, `ullage free {answer.uid}` frees them"
    return [f"{text}; {fix}" for text in answer.warnings]


def _commit(arguments: argparse.Namespace) -> int:
    api = reach_allocations()
    code, committed = for_each(arguments.uid, lambda uid: or_not_found(api, uid, lambda: api.commit(uid)))
    if committed:
        print_list(committed, ALLOCATIONS, arguments.output)
    return code


def _forget(arguments: argparse.Namespace) -> int:
    api = reach_allocations()

    def forget(uid: str) -> None:
        api.forget(uid)
        print(f"{uid}: holds nothing")

    return for_each(arguments.uid, forget)[0]


def _release(arguments: argparse.Namespace) -> int:
    within_s = None if arguments.within is None else parse_duration(arguments.within, "--within")
    api = reach_allocations()

    def release(uid: str) -> AllocationBody:
        with as_typed({"within_s": "--within"}):
            return api.release(uid, within_s)

    code, released = for_each(arguments.uid, release)
    if released:
        print_list(released, ALLOCATIONS, arguments.output)
    return code


def _free(arguments: argparse.Namespace) -> int:
    api = reach_allocations()

    def free(uid: str) -> None:
        freed = api.free(uid)
        if freed.unknown:
            raise NotFound(f"allocation {uid} does not exist; `ullage allocations` lists them", field="uid")
        print(f"{uid}: {_freed(freed)}")

    return for_each(arguments.uid, free)[0]


def _freed(freed: FreedBody) -> str:
    if freed.already_gone:
        return "was free already"
    return f"{', '.join(freed.gpus)} free" if freed.gpus else "its reservation is removed"
