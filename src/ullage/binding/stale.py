"""Bindings that stand for nothing any more: they are listed, and go when somebody says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ullage.binding.rows import Ledger
from ullage.binding.view import BindingView
from ullage.model.binding import Binding
from ullage.model.compute import AppKey, HostedApp


@dataclass(frozen=True, slots=True)
class Stale:
    """A binding or row by its name, and why it stands for nothing: `card-gone`, `no-application` or `duplicate`."""

    name: str
    reason: str


def stale(
    view: BindingView, ledger: Ledger, bindings: Iterable[Binding], apps: Mapping[AppKey, HostedApp]
) -> tuple[Stale, ...]:
    """Of the rows, and of the bindings of others, which come oldest first: of equal ones only the newest counts."""
    devices = {key.device for key in view.cards}
    found = [
        Stale(row.id, reason)
        for row in ledger.rows
        if not row.draining and (reason := _why(row.card in view.cards, row.app in apps))
    ]
    seen: set[tuple[str, str, str, str]] = set()
    for each in reversed(tuple(bindings)):
        if not (each.uuid or each.app):
            continue  # what cannot be read at all may be anything
        same = each.app, each.owner, each.namespace, each.uuid
        reason = _why(each.uuid in devices, any(_means(each, app) for app in apps))
        if not reason and same in seen:
            reason = "duplicate"
        seen.add(same)
        if reason:
            found.append(Stale(each.name, reason))
    return tuple(found)


def _why(card: bool, app: bool) -> str:
    return "" if card and app else "no-application" if card else "card-gone"


def _means(binding: Binding, app: AppKey) -> bool:
    return binding.app == app.name and binding.owner in ("", app.owner) and binding.namespace in ("", app.namespace)
