"""The switch of the share mode of a card. All applications on the card must be able to stop, or nothing changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ullage.binding.rows import Ledger, LedgerChange, released
from ullage.model.binding import ShareMode, supported_modes
from ullage.model.compute import AppKey, AppState, ComputeCard, HostedApp
from ullage.model.compute_result import StoppedApp, SwitchReport, SwitchStatus
from ullage.model.error import invalid

NOT_ALLOWED = "stop-operation-not-allowed"

STOPPED = frozenset({AppState.STOPPED, AppState.UNINSTALLED, AppState.INSTALL_FAILED})
"""States in which an application has no pods."""

_STOPPABLE = frozenset(
    {
        AppState.RUNNING,
        AppState.STOPPING,
        AppState.STOP_FAILED,
        AppState.RESUME_FAILED,
        AppState.UPGRADE_FAILED,
        AppState.APPLY_ENV_FAILED,
    }
)


def share_of(card: ComputeCard, asked: str) -> ShareMode:
    """Return the requested share mode of a card.

    Raises:
        InvalidRequest: cards of this type do not support such a mode.

    """
    known = supported_modes(card.accelerator)
    if asked not in known:
        raise invalid("supportType", asked, f"choose one of {', '.join(known)}")
    return ShareMode(asked)


def switched(
    ledger: Ledger,
    card: ComputeCard,
    share: ShareMode,
    apps: Mapping[AppKey, HostedApp],
    held: Collection[str],
) -> tuple[SwitchReport, LedgerChange]:
    """Return the report and the change of a switch. All applications on the card stop, and release all their cards.

    Rows of an application that no longer exists are released too.
    """
    if share is card.share:
        return SwitchReport(card.key, SwitchStatus.UNCHANGED), LedgerChange()
    there = dict.fromkeys(row.app for row in ledger.rows if row.card == card.key and not row.draining)
    known = [apps[key] for key in there if key in apps]
    blocked = tuple(
        StoppedApp(app.key, app.state, NOT_ALLOWED) for app in known if app.state not in _STOPPABLE | STOPPED
    )
    if blocked:
        return SwitchReport(card.key, SwitchStatus.BLOCKED, blocked=blocked), LedgerChange()
    stopped = tuple(StoppedApp(app.key, app.state) for app in known if app.state not in STOPPED)
    change = released((row for row in ledger.rows if row.app in there), held)
    change = replace(change, shares=((card.key, share),))
    return SwitchReport(card.key, SwitchStatus.SWITCHED, stopped), change
