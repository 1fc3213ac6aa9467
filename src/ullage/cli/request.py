"""The options of a request for cards."""

from __future__ import annotations

import argparse
from typing import TypedDict

from ullage.model.claim import PRIORITIES, Qos
from ullage.model.error import invalid
from ullage.model.nearest import did_you_mean
from ullage.model.request import ResourceRequirement
from ullage.wire.allocation import PartMap

REQUEST_OPTIONS = {field: f"--{field}" for field in ("limit", "namespace", "strategy", "qos", "priority")}
_AMOUNTS = ("tflops", "percent", "vram")


class RequestFields(TypedDict):
    """The fields of every request for cards."""

    resreq: str
    limit: PartMap | None
    namespace: str
    strategy: str | None
    qos: str
    priority: int | None


def add_request(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options of a request for cards, `--namespace` too; `what` describes `-r`."""
    add_amounts(parser, what)
    parser.add_argument("--namespace", default="default", help="the namespace whose quota applies (default: default)")


def add_amounts(parser: argparse.ArgumentParser, what: str, *, required: bool = True) -> None:
    """Add the options of a request for cards but `--namespace`."""
    parser.add_argument(
        "-r",
        "--resreq",
        metavar="LIST",
        required=required,
        help=f"{what}, such as gpu=2,vram=20g,tflops=60; with numa= as in `ullage run`",
    )
    add_limit(parser, "its request")
    parser.add_argument("--strategy", metavar="NAME", help="strategy instead of the pool's, such as compact-first")
    shown = ", ".join(f"{qos} {priority}" for qos, priority in PRIORITIES.items())
    parser.add_argument(
        "--qos", choices=[str(qos) for qos in Qos], default="medium", help=f"quality of service, its priority: {shown}"
    )
    parser.add_argument("--priority", metavar="N", type=int, help="priority instead of that of --qos")


def add_limit(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--limit",
        metavar="LIST",
        help=f"the most it may use of each card, such as tflops=80,vram=30g (default: {default})",
    )


def request_fields(arguments: argparse.Namespace) -> RequestFields:
    """Return the request from the options of `add_request`.

    Raises:
        InvalidRequest: the request or its limit is malformed.

    """
    return RequestFields(
        resreq=str(ResourceRequirement.from_string(arguments.resreq)),
        limit=None if arguments.limit is None else parse_part("--limit", arguments.limit),
        namespace=arguments.namespace,
        strategy=arguments.strategy,
        qos=arguments.qos,
        priority=arguments.priority,
    )


def parse_part(option: str, text: str) -> PartMap:
    """Return the amounts of `tflops=60,vram=20g`. The server parses the values.

    Raises:
        InvalidRequest: an entry is not KEY=VALUE, or its key is unknown or given twice.

    """
    amounts: dict[str, str] = {}
    for entry in text.split(","):
        key, _, value = (word.strip() for word in entry.partition("="))
        if key not in _AMOUNTS or not value:
            meant = "" if key in _AMOUNTS else did_you_mean(key, _AMOUNTS)
            raise invalid(option, entry, f"{meant}write amounts of each card, such as tflops=60,vram=20g or percent=25")
        if key in amounts:
            raise invalid(option, entry, f"{key} is given twice; leave one out")
        amounts[key] = value
    return PartMap(**amounts)
