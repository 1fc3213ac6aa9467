"""`ullage bindings`: the bindings of applications to cards of a cluster, from `ullage kube`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, print_list
from ullage.client.endpoint import configured
from ullage.client.transport import Transport
from ullage.model.compute_result import CheckType
from ullage.model.error import Conflict, InvalidRequest, invalid
from ullage.model.quantity import format_bytes, parse_bytes
from ullage.wire.compute_resources import (
    BindingQuotaBody,
    ComputeAllocationBody,
    ComputeDeviceBody,
    ComputeNodeBody,
    Envelope,
)

_ROOT = "/app-service/v1"
BOUND_CARDS = (
    Column("NODE", lambda card: card.node),
    Column("CARD", lambda card: card.id),
    Column("MODEL", lambda card: card.model),
    Column("SHARED", lambda card: card.share),
    Column("STATE", lambda card: card.state or "-"),
    Column("FREE", lambda card: f"{format_bytes(card.available)} of {format_bytes(card.memory_bytes)}"),
    Column("APPLICATIONS", lambda card: ", ".join(map(_holder, card.bindings))),
)
_ROWS = (
    Column("APPLICATION", lambda row: row.app_name),
    Column("OWNER", lambda row: row.owner),
    Column("NODE", lambda row: row.node_name),
    Column("CARD", lambda row: row.device_id),
    Column("MEMORY", lambda row: format_bytes(row.memory) if row.memory else "-"),
)


_QUOTAS = (
    Column("OWNER", lambda quota: quota.owner),
    Column("APPLICATION", lambda quota: quota.app or "-"),
    Column("MODEL", lambda quota: quota.model or "-"),
    Column("RESOURCE", lambda quota: quota.resource),
    Column("USED", lambda quota: f"{_amount(quota, quota.used)} of {_amount(quota, quota.capacity)}"),
)


CARDS = Listing(
    kind="card",
    columns=BOUND_CARDS,
    body=ComputeDeviceBody,
    name=lambda card: f"{card.node}/{card.id}",
    users_of=lambda card: [row.owner for row in card.bindings],
)


def configure_bindings(parser: argparse.ArgumentParser) -> None:
    actions = CARDS.configure_with_actions(parser, _cards, "ullage bindings list --me")
    quotas = actions.add_parser("quotas", help="the use of your quotas", epilog="example: ullage bindings quotas")
    quotas.add_argument("--owner", metavar="NAME", help="of this owner (default: you; an administrator: all owners)")
    add_output(quotas, inner=True)
    quotas.set_defaults(act=_quotas)
    for name, help_, act in (
        ("resume", "bind an application to cards and start it", _resume),
        ("check", "check whether it could be bound; nothing changes", _check),
        ("show", "the cards of an application", _show),
        ("suspend", "stop an application and free its cards", _suspend),
    ):
        action = actions.add_parser(name, help=help_, epilog=f"example: ullage bindings {name} comfyui")
        action.add_argument("application", metavar="APPLICATION")
        if name in ("resume", "check"):
            action.add_argument(
                "--compute-binding",
                action="append",
                default=[],
                metavar="NODE:CARD[:MEMORY]",
                help="a card; MEMORY of a sliced card in GiB, or with a unit such as 512Mi; may be repeated",
            )
        action.add_argument("--owner", metavar="NAME", help="its owner (default: you; for administrators only)")
        action.add_argument("--namespace", metavar="NAME", help="its namespace, if several have the name")
        add_output(action, inner=True)
        action.set_defaults(act=act)


_BARE = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
"""A number without a unit."""


def parse_choice(text: str) -> dict[str, Any]:
    """Return the body of `NODE:CARD[:MEMORY]`; a number without a unit counts GiB.

    Raises:
        InvalidRequest: the text is malformed.

    """
    node, *rest = text.split(":")
    if len(rest) not in (1, 2) or not node or not all(rest):
        raise invalid("--compute-binding", text, "write NODE:CARD or NODE:CARD:MEMORY, such as n1:GPU-1f0c:8")
    card, *memory = rest
    choice: dict[str, Any] = {"nodeName": node, "deviceId": card}
    for amount in memory:
        with_unit = f"{amount}Gi" if _BARE.fullmatch(amount) else amount
        choice["memory"] = parse_bytes(with_unit, "--compute-binding")
    return choice


def _cards(_: argparse.Namespace) -> list[ComputeDeviceBody]:
    nodes = _call("GET", f"{_ROOT}/compute-resources", list[ComputeNodeBody])
    return [card for node in nodes for card in node.devices]


def _quotas(arguments: argparse.Namespace) -> int:
    asked = f"?{urlencode({'owner': arguments.owner})}" if arguments.owner else ""
    found = _call("GET", f"{_ROOT}/compute-resources/quotas{asked}", list[BindingQuotaBody])
    print_list(found, _QUOTAS, arguments.output)
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    rows = _call("POST", _app(arguments, "resume"), list[ComputeAllocationBody], _choice(arguments.compute_binding))
    print_list(rows, _ROWS, arguments.output)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    path = _app(arguments, "compute-resources/bindings/validate")
    answer = _call("POST", path, dict[str, Any], _choice(arguments.compute_binding))
    print_list(msgspec.convert(answer["allocations"], list[ComputeAllocationBody]), _ROWS, arguments.output)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    rows = _call("GET", _app(arguments, "compute-resources/bindings"), list[ComputeAllocationBody])
    print_list(rows, _ROWS, arguments.output)
    return 0


def _suspend(arguments: argparse.Namespace) -> int:
    _call("DELETE", _app(arguments, "compute-resources/bindings"), list[Any])
    print(f"{arguments.application}: has no card")
    return 0


def _app(arguments: argparse.Namespace, what: str) -> str:
    query = {name: text for name in ("owner", "namespace") if (text := getattr(arguments, name))}
    asked = f"?{urlencode(query)}" if query else ""
    return f"{_ROOT}/apps/{quote(arguments.application, safe='')}/{what}{asked}"


def _choice(texts: Sequence[str]) -> bytes:
    return msgspec.json.encode({"computeBinding": [parse_choice(text) for text in texts]})


def _call(method: str, path: str, kind: Any, body: bytes | None = None) -> Any:
    """Return the answer of `ullage kube`.

    Raises:
        InvalidRequest: no card is named, and one is needed.
        Conflict: another check failed; the code names it.
        UllageError: as the transport.

    """
    endpoint = configured()
    if endpoint is None:
        raise InvalidRequest("set ULLAGE_ENDPOINT to the address of the bindings, and ULLAGE_TOKEN to your token")
    with closing(Transport(lambda: endpoint, 0.0)) as transport:  # as with every verb, who asks decides to ask again
        raw = transport.request(method, path, body, repeat=method == "GET")
    answer = msgspec.json.decode(raw, type=Envelope)
    if answer.code != _OK:
        failed, details = answer.data["type"], answer.data.get("Data")
        if failed == CheckType.REQUIRED:
            raise InvalidRequest("it needs a card: name one by --compute-binding; `ullage bindings` shows what is free")
        check = details.get("validation", {}) if isinstance(details, dict) else {}
        code, quota = check.get("code", ""), check.get("quota", {}).get("message", "")
        raise Conflict(f"{code}{': ' if code else ''}{quota or '`ullage bindings` shows what is free'}", code=failed)
    return msgspec.convert(answer.data, kind)


_OK = 200


def _amount(quota: BindingQuotaBody, amount: int) -> str:
    match quota.resource:
        case "cards":
            return str(amount)
        case "cpu":
            return f"{amount}m"
    return format_bytes(amount)


def _holder(row: ComputeAllocationBody) -> str:
    return f"{row.app_name} of {row.owner}{' (terminating)' if row.state else ''}"
