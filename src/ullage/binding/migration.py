"""Migration of foreign bindings: those in use become rows of the ledger, and stale ones are listed.

A binding whose application is unknown or ambiguous is reported. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ullage.binding.quotas import beyond_quota
from ullage.binding.rows import Ledger, LedgerChange, row_on
from ullage.binding.view import BindingView
from ullage.model.binding import Binding, BindingState, ShareMode
from ullage.model.compute import AppKey, AppState, BoundCard, HostedApp
from ullage.model.compute_result import Problem

_KEPT = frozenset(
    {
        AppState.RUNNING,
        AppState.INITIALIZING,
        AppState.RESUMING,
        AppState.INSTALLING,
        AppState.UPGRADING,
        AppState.APPLYING_ENV,
        AppState.STOP_FAILED,
        AppState.RESUME_FAILED,
        AppState.UPGRADE_FAILED,
        AppState.APPLY_ENV_FAILED,
    }
)


@dataclass
class Migration:
    """The result of a migration: the names of bindings that become rows, are rows already, or are dropped."""

    change: LedgerChange = field(default_factory=LedgerChange)
    kept: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def migrated(view: BindingView, ledger: Ledger, bindings: Iterable[Binding], apps: Iterable[HostedApp]) -> Migration:
    """Return the migration of the bindings in use. A second migration leaves the rows of the first unchanged."""
    found, apps = Migration(), tuple(apps)
    put: list[BoundCard] = []
    for binding in sorted(bindings, key=lambda each: each.name):
        matching = _applications(binding, apps)
        app = next(iter(matching), None)
        if binding.state is BindingState.INVALID:
            found.problems.append(Problem(binding.name, binding.reason))
        elif len(matching) > 1:
            whose = ", ".join(sorted(f"{app.key.owner} in {app.key.namespace or '-'}" for app in matching))
            reason = f"{binding.app} is an application of {whose}; say the owner on the binding"
            found.problems.append(Problem(binding.name, reason))
        elif app is None or not _in_use(app):
            found.dropped.append(binding.name)
        elif any(row.app == app.key and row.card.device == binding.uuid for row in (*ledger.rows, *put)):
            found.unchanged.append(binding.name)
        else:
            row = _row(view.with_rows(put), binding, app)
            if isinstance(row, Problem):
                found.problems.append(row)
            else:
                put.append(row)
                found.kept.append(binding.name)
    found.change = LedgerChange(put=tuple(put))
    return found


def _applications(binding: Binding, apps: Iterable[HostedApp]) -> list[HostedApp]:
    """Return the applications that a binding may refer to. If it names an owner, only those of that owner."""
    left = [app for app in apps if app.key.name == binding.app]
    if binding.owner:
        return [app for app in left if app.key.owner == binding.owner]
    conditions: tuple[Callable[[HostedApp], bool], ...] = (
        lambda app: app.shared_server,
        lambda app: bool(binding.namespace) and app.key.namespace == binding.namespace,
        lambda app: bool(binding.selector) and all(each.holds(None, app.labels) for each in binding.selector or ()),
    )
    for condition in conditions:
        left = list(filter(condition, left)) or left
    return left


def _in_use(app: HostedApp) -> bool:
    """Return whether an application keeps its cards. Controllers write states with either case of the first letter."""
    return app.state[:1].lower() + app.state[1:] in _KEPT


def _row(view: BindingView, binding: Binding, app: HostedApp) -> BoundCard | Problem:
    """Return the row of a binding, also on an unhealthy card, as its pods still run there."""
    cards = [card for key, card in view.cards.items() if key.device == binding.uuid]
    if len(cards) != 1:
        return Problem(binding.name, f"{len(cards)} cards have the uuid {binding.uuid}")
    (card,) = cards
    memory = binding.memory_bytes
    if memory is None and card.share is ShareMode.MEMORY_SLICE:
        return Problem(binding.name, f"{card.id} shares out its memory, and the binding says no amount")
    if (rejected := view.room(card).reject(memory or 0)) is not None:
        return Problem(binding.name, rejected.sentence)
    row = replace(row_on(card, binding.name, app.key, memory), app_id=app.id, spec=app.requirement)
    over = beyond_quota(view, app.key, (row,))
    return row if over is None else Problem(binding.name, f"{over.code}: {over.sentence}")


def stale(
    view: BindingView, ledger: Ledger, bindings: Iterable[Binding], apps: Mapping[AppKey, HostedApp]
) -> tuple[Problem, ...]:
    """Return the stale rows and foreign bindings: `card-gone`, `no-application` or `duplicate`.

    `bindings` are the foreign ones, the oldest first. Of equal ones only the newest counts.
    """
    devices = {key.device for key in view.cards}
    found = [
        Problem(row.id, reason)
        for row in ledger.rows
        if not row.draining and (reason := _why(row.card in view.cards, row.app in apps))
    ]
    seen: set[tuple[str, str, str, str]] = set()
    for each in reversed(tuple(bindings)):
        if not (each.uuid or each.app):
            continue  # an unreadable binding may be valid
        same = each.app, each.owner, each.namespace, each.uuid
        reason = _why(each.uuid in devices, any(_means(each, app) for app in apps))
        if not reason and same in seen:
            reason = "duplicate"
        seen.add(same)
        if reason:
            found.append(Problem(each.name, reason))
    return tuple(found)


def _why(card: bool, app: bool) -> str:
    return "" if card and app else "no-application" if card else "card-gone"


def _means(binding: Binding, app: AppKey) -> bool:
    return binding.app == app.name and binding.owner in ("", app.owner) and binding.namespace in ("", app.namespace)
