"""The choice between the accelerators on which an application can run. If only one has room, it is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ullage.binding.availability import availability
from ullage.binding.limits import too_full
from ullage.binding.placement import Picks, place_in_quotas, roomy
from ullage.binding.validation import validate
from ullage.binding.view import BindingView
from ullage.model.compute import ComputeRequirement, HostedApp, Pick
from ullage.model.compute_result import CheckType, FailedCheck, InstallStatus, ModeOption, NoRoom
from ullage.model.error import invalid


def options(view: BindingView, app: HostedApp) -> tuple[ModeOption, ...]:
    """Return for each requirement of an application whether it could be installed with it."""
    return tuple(_option(view, requirement) for requirement in app.requirements)


def chosen(
    view: BindingView, app: HostedApp, accelerator: str, picks: Sequence[Pick]
) -> tuple[HostedApp, Picks] | FailedCheck:
    """Return the application with its accelerator and its cards, or the failed check. `view` has none of its rows.

    Raises:
        InvalidRequest: the application does not support that accelerator.

    """
    if accelerator and accelerator not in {each.accelerator for each in app.requirements}:
        known = ", ".join(each.accelerator for each in app.requirements)
        raise invalid("mode", accelerator, f"{app.key.name} runs on {known or 'no cards'}")
    offered = options(view, app)
    runnable = [each.accelerator for each in offered if each.status is InstallStatus.INSTALLABLE]
    if not accelerator and len(app.requirements) > 1:
        if len(runnable) != 1:
            return FailedCheck(CheckType.MODE, options=offered)
        (accelerator,) = runnable
    app = replace(app, accelerator=accelerator)
    requirement = app.requirement
    if requirement is None:
        return app, ()
    if not requirement.needs_card:
        if requirement.accelerator in runnable:
            return app, ()
        return FailedCheck(CheckType.MODE, options=offered)
    return _cards(view, app, requirement, picks)


def _cards(
    view: BindingView, app: HostedApp, asked: ComputeRequirement, picks: Sequence[Pick]
) -> tuple[HostedApp, Picks] | FailedCheck:
    chosen = picks or place_in_quotas(view, app.key, asked, roomy(view, asked, install=True))
    if chosen is None:
        return FailedCheck(CheckType.UNAVAILABLE, availability(view, asked, install=True))
    found = validate(view, asked, chosen, app.key, install=True, one_card_per_pod=app.one_card_per_pod)
    if found.ok:
        return app, tuple(chosen)
    return FailedCheck(CheckType.UNAVAILABLE, availability(view, asked, install=True), found)


def _option(view: BindingView, asked: ComputeRequirement) -> ModeOption:
    if not asked.needs_card:
        added = asked.room(install=True)
        nodes = [node for node in view.every() if node.ready and not too_full(node, added)]
        reason = "" if nodes else NoRoom.NOT_AVAILABLE
    else:
        reason = availability(view, asked, install=True).reason or ""
    if not reason:
        return ModeOption(asked.accelerator, InstallStatus.INSTALLABLE)
    status = InstallStatus.NO_NODE if reason is NoRoom.NO_NODE else InstallStatus.INSUFFICIENT
    return ModeOption(asked.accelerator, status, reason)
