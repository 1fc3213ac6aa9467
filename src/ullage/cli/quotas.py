"""`ullage quotas`: list, set and delete quotas of namespaces."""

from __future__ import annotations

import argparse
from typing import Any

from ullage.cli.allocations import reach_allocations
from ullage.cli.listing import Listing
from ullage.cli.output import Column, add_output, print_row
from ullage.cli.request import parse_part
from ullage.cli.size import show_size
from ullage.cli.typed_fields import as_typed
from ullage.model.error import InvalidRequest
from ullage.wire.allocation import PutQuotaBody, QuotaBody, QuotaSingle, QuotaTotal

_QUOTAS = (
    Column("NAMESPACE", lambda q: q.namespace),
    Column("READY", lambda q: q.ready),
    Column("TFLOPS", lambda q: _of(q.used.requests.tflops, q.total.requests.tflops)),
    Column("VRAM", lambda q: _of(_size(q.used.requests.vram), _size(q.total.requests.vram))),
    Column("LIMITS TFLOPS", lambda q: _of(q.used.limits.tflops, q.total.limits.tflops)),
    Column("LIMITS VRAM", lambda q: _of(_size(q.used.limits.vram), _size(q.total.limits.vram))),
    Column("WORKERS", lambda q: _of(q.used.workers, q.total.max_workers)),
    Column("MESSAGE", lambda q: q.message),
)
_AMOUNTS = {
    "total_requests": "the most of all requests together: amounts times cards",
    "total_limits": "the most of all limits together",
    "max_requests": "the most that one request may ask of each card",
    "max_limits": "the highest limit of one request on each card",
    "default_requests": "amounts of a request for a part of a card that leaves them out",
    "default_limits": "the limit of a request without one",
}
_COUNTS = {
    "max_workers": "the most requests that hold cards at a time (default: 32768)",
    "max_gpu_count": "the most cards of one request",
    "alert_threshold_percent": "not ready when more than N percent of an amount are used (default: 95)",
}
_OF_ALL = {"total_requests": "requests", "total_limits": "limits", "max_workers": "max_workers"}
"""Options whose fields are under `total` of the body; the others, except the alert, are under `single`."""
_ALERT = "alert_threshold_percent"


_STATES = ("ready", "not-ready")
QUOTAS = Listing(
    kind="quota",
    columns=_QUOTAS,
    body=QuotaBody,
    name=lambda quota: quota.namespace,
    known_states=_STATES,
    states_of=lambda quota: (_STATES[not quota.ready],),
)


def configure_quotas(parser: argparse.ArgumentParser) -> None:
    actions = QUOTAS.configure_with_actions(
        parser, lambda _: reach_allocations().quotas(), "ullage quotas list -o json"
    )
    put = actions.add_parser(
        "set",
        help="set the whole quota of a namespace",
        description="An amount that is left out is unlimited, also if the replaced quota had it; 0 allows nothing. "
        "LIST is amounts such as tflops=200,vram=80g.",
        epilog="example: ullage quotas set research --total-requests tflops=200,vram=80g --max-gpu-count 2",
    )
    put.add_argument("namespace", metavar="NAMESPACE")
    for name, text in _AMOUNTS.items():
        put.add_argument(_option(name), metavar="LIST", help=text)
    for name, text in _COUNTS.items():
        put.add_argument(_option(name), metavar="N", type=int, help=text)
    add_output(put, inner=True)
    put.set_defaults(act=_set)
    delete = actions.add_parser(
        "delete", help="delete the quota of a namespace", epilog="example: ullage quotas delete research"
    )
    delete.add_argument("namespace", metavar="NAMESPACE")
    delete.set_defaults(act=_delete)


def _set(arguments: argparse.Namespace) -> int:
    given: dict[str, Any] = {
        name: parse_part(_option(name), text) for name in _AMOUNTS if (text := getattr(arguments, name)) is not None
    }
    given |= {name: count for name in _COUNTS if (count := getattr(arguments, name)) is not None}
    if not given:
        options = ", ".join(map(_option, (*_AMOUNTS, *_COUNTS)))
        raise InvalidRequest(f"the quota is empty: give one of {options}; `ullage quotas delete` removes a quota")
    total = {field: given.pop(name) for name, field in _OF_ALL.items() if name in given}
    alert = {_ALERT: given.pop(_ALERT)} if _ALERT in given else {}
    quota = PutQuotaBody(total=QuotaTotal(**total), single=QuotaSingle(**given), **alert)
    with as_typed({_sent(name): _option(name) for name in (*_AMOUNTS, *_COUNTS)}):
        body = reach_allocations().put_quota(arguments.namespace, quota)
    print_row(body, _QUOTAS, arguments.output)
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    reach_allocations().drop_quota(arguments.namespace)
    print(f"the quota of {arguments.namespace} is deleted")
    return 0


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _sent(name: str) -> str:
    """Return the name of a field in the body."""
    if name in _OF_ALL:
        return f"total.{_OF_ALL[name]}"
    return name if name == _ALERT else f"single.{name}"


def _of(used: object, cap: object | None) -> str:
    """Return usage and cap such as `60/200`; without a cap the usage."""
    return f"{used}" if cap is None else f"{used}/{cap}"


def _size(amount: int | str | None) -> str | None:
    return None if amount is None else show_size(int(amount))
