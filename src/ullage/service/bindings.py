"""Use cases of bindings: each reads a snapshot, decides on it, and commits all of the change or nothing.

If the ledger has another version at the commit, the decision is made again from a new snapshot, unless the caller
named the version. A card that is released is free once no pod uses its row any more: see `remove_drained`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from ullage.binding import installation
from ullage.binding.assignment import reassigned
from ullage.binding.availability import availability
from ullage.binding.migration import Migration, migrated, stale
from ullage.binding.preflight import preflight
from ullage.binding.quotas import quota_status
from ullage.binding.rows import Answered, LedgerChange, bound, drained, released, rows_of, taken_back
from ullage.binding.switching import STOPPED, share_of, switched
from ullage.binding.validation import validate
from ullage.model.compute import EVERY_OWNER, AppKey, AppState, BoundCard, CardKey, HostedApp, Pick
from ullage.model.compute_result import (
    AppDemand,
    Availability,
    BindingQuotaUse,
    CheckType,
    FailedCheck,
    Preflight,
    Problem,
    SwitchReport,
    SwitchStatus,
    Validation,
)
from ullage.model.error import Conflict, Forbidden, UllageError, Unavailable, VersionChanged
from ullage.service.bindings_port import BindingPort
from ullage.service.bindings_snapshot import BindingsSnapshot, Caller, NamedApp, check_owner
from ullage.service.pages import written

_TRIES = 8
"""Maximum number of decisions for one operation, while other writers come first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a change: a key that identifies a repeat, and the version that the caller decided on."""

    key: str = ""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Validated:
    """A valid choice, and the rows that it would make; without `availability` no card is needed."""

    availability: Availability | None = None
    validation: Validation | None = None
    rows: tuple[BoundCard, ...] = ()


class Bindings:
    """Applications and their cards, behind one port."""

    def __init__(self, port: BindingPort, now: Callable[[], float] = time.time) -> None:
        """`now` is the time, in seconds since 1970."""
        self._port, self._now = port, now

    # --- questions ---

    async def snapshot_now(self) -> BindingsSnapshot:
        """Return a snapshot. The ledger is read first, so that a row released since does not count as free."""
        ledger = await self._port.ledger()
        return BindingsSnapshot(await self._port.cluster(), ledger)

    async def rows(self, caller: Caller, named: NamedApp) -> tuple[BoundCard, ...]:
        """Return the rows of an application that are in force; raises as `BindingsSnapshot.app`."""
        snapshot = await self.snapshot_now()
        return snapshot.ledger.of(snapshot.app(caller, named).key)

    async def validate(self, caller: Caller, named: NamedApp, picks: Sequence[Pick]) -> Validated | FailedCheck:
        """Judge a choice of cards as `resume` would; nothing is changed."""
        snapshot = await self.snapshot_now()
        app = snapshot.judged(caller, named)
        return await written(lambda: _judged(snapshot, app, picks))

    async def quotas(self, caller: Caller, owner: str = "") -> tuple[BindingQuotaUse, ...]:
        """Return the usage of the quotas of an owner, by default of the caller; of an administrator, of all owners.

        Raises:
            Forbidden: it is another owner, and the caller is no administrator.

        """
        if owner or not caller.is_admin:
            check_owner(caller, owner or caller.name)
        snapshot = await self.snapshot_now()
        apps = dict.fromkeys([*snapshot.apps, *(row.app for row in snapshot.view.rows)])
        named = {key.owner for key in apps} | {each for each in snapshot.cluster.quotas if each != EVERY_OWNER}
        owners = sorted(named) if caller.is_admin and not owner else [owner or caller.name]
        return tuple(use for each in owners if each for use in quota_status(snapshot.view, each, apps))

    async def preflight(self, caller: Caller, demands: Sequence[AppDemand]) -> Preflight:
        """Return whether these demands could be installed one after the other.

        Raises:
            Forbidden: a demand is for an application of another owner.

        """
        for demand in demands:
            check_owner(caller, demand.app.owner)
        snapshot = await self.snapshot_now()
        known = {key[:2]: key for key in snapshot.apps}
        demands = [replace(each, app=known.get(each.app[:2], each.app)) for each in demands]
        return await written(lambda: preflight(snapshot.view, demands))  # many demands on many nodes take seconds

    # --- applications ---

    async def resume(
        self, caller: Caller, named: NamedApp, picks: Sequence[Pick], terms: Terms = Terms()
    ) -> tuple[BoundCard, ...] | FailedCheck:
        """Bind an application to the chosen cards and start it. If it cannot start, its rows are removed again."""

        def choose(snapshot: BindingsSnapshot, app: HostedApp) -> tuple[HostedApp, Sequence[Pick]] | FailedCheck:
            found = _judged(snapshot, app, picks)
            return found if isinstance(found, FailedCheck) else (app, picks if found.availability else ())

        asked = f"{caller.name}: resume {named} {sorted(map(repr, picks))}"
        return await self._started(choose, caller, named, terms, asked=asked)

    async def install(
        self, caller: Caller, named: NamedApp, accelerator: str = "", picks: Sequence[Pick] = (), terms: Terms = Terms()
    ) -> tuple[BoundCard, ...] | FailedCheck:
        """Install an application for this accelerator, or the only one possible, on these cards or the best."""

        def choose(snapshot: BindingsSnapshot, app: HostedApp) -> tuple[HostedApp, Sequence[Pick]] | FailedCheck:
            return installation.chosen(snapshot.view.without(app.key), app, accelerator, picks)

        asked = f"{caller.name}: install {named} {accelerator} {sorted(map(repr, picks))}"
        return await self._started(choose, caller, named, terms, asked=asked)

    async def suspend(self, caller: Caller, named: NamedApp, terms: Terms = Terms()) -> None:
        """Stop an application and release its cards. A repeat changes nothing."""

        def plan(snapshot: BindingsSnapshot) -> tuple[None, LedgerChange]:
            app = snapshot.app(caller, named)
            return None, released(snapshot.ledger.of(app.key), snapshot.cluster.held)

        await self._changed(plan, terms, f"{caller.name}: suspend {named}")
        snapshot = await self.snapshot_now()
        for key in _without_cards(snapshot, snapshot.keys(caller, named)):
            await self._port.stop(key)

    async def uninstall(self, caller: Caller, named: NamedApp, terms: Terms = Terms()) -> None:
        """Release the cards of an application, whether or not it still exists. Its controller removes it."""

        def plan(snapshot: BindingsSnapshot) -> tuple[None, LedgerChange]:
            keys = snapshot.keys(caller, named)
            return None, released((row for key in keys for row in snapshot.ledger.of(key)), snapshot.cluster.held)

        await self._changed(plan, terms, f"{caller.name}: uninstall {named}")

    async def _started(
        self,
        choose: Callable[[BindingsSnapshot, HostedApp], tuple[HostedApp, Sequence[Pick]] | FailedCheck],
        caller: Caller,
        named: NamedApp,
        terms: Terms,
        asked: str,
    ) -> tuple[BoundCard, ...] | FailedCheck:
        def plan(snapshot: BindingsSnapshot) -> tuple[HostedApp | FailedCheck, LedgerChange]:
            found = choose(snapshot, snapshot.judged(caller, named))
            if isinstance(found, FailedCheck):
                return found, LedgerChange()
            app, cards = found
            return app, bound(snapshot.view, snapshot.ledger, app, cards, held=snapshot.cluster.held)

        found, change = await self._changed(plan, terms, asked, caller)
        if isinstance(found, FailedCheck):
            return found
        if found is None:
            snapshot = await self.snapshot_now()
            app = snapshot.app(caller, named)
            if app.state in STOPPED and snapshot.ledger.of(app.key):
                await self._start(app)
            return snapshot.ledger.of(app.key)
        if change.empty and found.state == AppState.RUNNING:
            return (await self.snapshot_now()).ledger.of(found.key)
        try:
            await self._start(found)
        except UllageError:
            await self._take_back(change, terms)
            raise
        return (await self.snapshot_now()).ledger.of(found.key)

    async def _start(self, app: HostedApp) -> None:
        requirement = app.requirement
        await self._port.start(app.key, requirement.accelerator if requirement else "")

    async def _take_back(self, change: LedgerChange, terms: Terms) -> None:
        """Undo a binding whose application was not started; a repeat is then done again."""

        def plan(snapshot: BindingsSnapshot) -> tuple[None, LedgerChange]:
            undone = taken_back(snapshot.view, snapshot.ledger, change, snapshot.cluster.held)
            return None, replace(undone, unanswered=terms.key)

        await self._changed(plan, Terms(), "")

    # --- cards ---

    async def switch(
        self, caller: Caller, key: CardKey, share: str, terms: Terms = Terms()
    ) -> SwitchReport | FailedCheck:
        """Switch how a card is shared. Its applications stop; where one cannot, nothing changes.

        Raises:
            Forbidden: the caller is no administrator.
            NotFound: there is no such card.
            InvalidRequest: cards of this type cannot be shared like that.
            Conflict: a binding on it is none of the ledger.

        """
        _check_admin(caller, "switch how a card is shared")

        def plan(snapshot: BindingsSnapshot) -> tuple[SwitchReport, LedgerChange]:
            card = snapshot.card(key)
            own = {row.id for row in snapshot.ledger.rows}
            foreign = [row for row in snapshot.view.on(card) if row.id not in own]
            if foreign:
                fix = f"{foreign[0].id} is in force and not of the ledger: migrate or delete it, or end its pods"
                raise Conflict(f"{key.device} cannot be switched: {fix}", code="binding-not-migrated")
            return switched(snapshot.ledger, card, share_of(card, share), snapshot.apps, held=snapshot.cluster.held)

        asked = f"{caller.name}: switch {key} {share}"
        report, change = await self._changed(plan, terms, asked)
        if report is None:
            known = (await self.snapshot_now()).ledger.answer(terms.key)
            report = known.switch if known else None
        report = report or SwitchReport(key, SwitchStatus.UNCHANGED)
        if report.status is SwitchStatus.BLOCKED:
            return FailedCheck(CheckType.BLOCKED, switch=report)
        if not change.empty:
            await self._stop(each.app for each in report.stopped)
        return report

    async def reassign(
        self, caller: Caller, named: NamedApp, assign: Sequence[tuple[str, int]], unassign: Iterable[str]
    ) -> None:
        """Bind cards to an application and unbind others, in one change. If anything changed, the application restarts.

        `assign` has ids of cards with bytes of memory. Unbinding a card that is not bound, or does not exist, is no
        error.

        Raises:
            NotFound: a card to be assigned, or the application, does not exist.
            Conflict: a card has no room.
            InvalidRequest: the card is shared by memory, and no amount is given.

        """
        gone = tuple(unassign)

        def plan(snapshot: BindingsSnapshot) -> tuple[HostedApp | None, LedgerChange]:
            if not assign and not snapshot.keys(caller, named):
                return None, LedgerChange()
            app = snapshot.judged(caller, named) if assign else snapshot.app(caller, named)
            picks = [Pick(*snapshot.card_of(device).key, memory) for device, memory in assign]
            off = [key for key in snapshot.view.cards if key.device in gone]
            return app, reassigned(snapshot.view, snapshot.ledger, app, picks, unassign=off, held=snapshot.cluster.held)

        app, change = await self._changed(plan, Terms(), "", caller)
        if app is not None and not change.empty and app.state and app.state not in STOPPED:
            await self._port.restart(app.key)

    # --- upkeep ---

    async def remove_drained(self) -> bool:
        """Remove released rows that no pod uses any more. Stop or restart again the applications that still use some.

        Return whether a row was removed.
        """

        def plan(snapshot: BindingsSnapshot) -> tuple[BindingsSnapshot, LedgerChange]:
            return snapshot, drained(snapshot.ledger, snapshot.cluster.held)

        snapshot, change = await self._changed(plan, Terms(), "")
        assert snapshot is not None
        leaving = dict.fromkeys(row.app for row in snapshot.ledger.rows if row.draining)
        await self._stop(leaving)
        for key in leaving:
            if snapshot.ledger.of(key) and key in snapshot.apps and snapshot.apps[key].state not in STOPPED:
                with suppress(UllageError):
                    await self._port.restart(key)
        return not change.empty

    async def migrate(self, caller: Caller, *, dry_run: bool = True) -> Migration:
        """Turn bindings of other writers into rows of the ledger, and delete these bindings. A dry run only lists them.

        Raises:
            Forbidden: the caller is no administrator.

        """
        _check_admin(caller, "migrate bindings")

        def plan(snapshot: BindingsSnapshot) -> tuple[Migration, LedgerChange]:
            found = migrated(snapshot.own, snapshot.ledger, snapshot.cluster.bindings, snapshot.cluster.apps)
            return found, LedgerChange() if dry_run else found.change

        found, _ = await self._changed(plan, Terms(), "", caller)
        assert found is not None
        if not dry_run:
            await self._port.discard([*found.kept, *found.unchanged, *found.dropped])
        return found

    async def clean(self, caller: Caller, *, dry_run: bool = True) -> tuple[Problem, ...]:
        """Remove bindings without an application or a card. A dry run only lists them.

        Raises:
            Forbidden: the caller is no administrator.

        """
        _check_admin(caller, "delete what is stale")

        def plan(snapshot: BindingsSnapshot) -> tuple[tuple[Problem, ...], LedgerChange]:
            found = stale(snapshot.own, snapshot.ledger, snapshot.cluster.bindings, snapshot.apps)
            names = {each.item for each in found}
            rows = [row for row in snapshot.ledger.rows if row.id in names]
            return found, LedgerChange() if dry_run else released(rows, snapshot.cluster.held)

        found, _ = await self._changed(plan, Terms(), "")
        assert found is not None
        if not dry_run:
            await self._port.discard([each.item for each in found])
        return found

    def _signed(self, change: LedgerChange, snapshot: BindingsSnapshot, by: Caller) -> LedgerChange:
        """Return the change with the author and the time of its new rows."""
        known, now = {row.id for row in snapshot.ledger.rows}, self._now()
        rows = (row if row.id in known else replace(row, by=by.name, at=now) for row in change.put)
        return replace(change, put=tuple(rows))

    async def _stop(self, keys: Iterable[AppKey]) -> None:
        """Stop the applications that have no card any more. `remove_drained` retries those that cannot stop now."""
        for key in _without_cards(await self.snapshot_now(), keys):
            with suppress(UllageError):
                await self._port.stop(key)

    async def _changed(
        self,
        plan: Callable[[BindingsSnapshot], tuple[T, LedgerChange]],
        terms: Terms,
        asked: str,
        by: Caller | None = None,
    ) -> tuple[T | None, LedgerChange]:
        """Decide and commit. A repeat under a key decides nothing: then there is no outcome. `by` is who asks.

        Raises:
            Conflict: the key was used for something else.
            VersionChanged: the ledger has another version than the caller named.
            Unavailable: others keep coming first.

        """
        asked = hashlib.sha256(asked.encode(errors="backslashreplace")).hexdigest()
        for _ in range(_TRIES):
            snapshot = await self.snapshot_now()
            known = snapshot.ledger.answer(terms.key)
            if known is not None:
                if known.asked != asked:
                    raise Conflict(f"the key {terms.key!r} was used for something else", code="key-reused")
                return None, LedgerChange()
            if terms.version not in (None, snapshot.ledger.version):
                raise VersionChanged(f"the bindings have version {snapshot.ledger.version}, not {terms.version}")
            outcome, change = plan(snapshot)
            if change.empty:
                return outcome, change
            if by is not None:
                change = self._signed(change, snapshot, by)
            report = outcome if isinstance(outcome, SwitchReport) else None
            noted = replace(change, answered=Answered(terms.key, asked, report)) if terms.key else change
            with suppress(VersionChanged):
                await self._port.commit(noted, snapshot.ledger.version)
                return outcome, change
        raise Unavailable("bindings change too often to be decided on; try again")


def _check_admin(caller: Caller, what: str) -> None:
    if not caller.is_admin:
        raise Forbidden(f"only an administrator may {what}")


def _without_cards(snapshot: BindingsSnapshot, keys: Iterable[AppKey]) -> list[AppKey]:
    """Return the applications that run and have no card any more."""
    return [
        key
        for key in keys
        if key in snapshot.apps and snapshot.apps[key].state not in STOPPED and not snapshot.ledger.of(key)
    ]


def _judged(snapshot: BindingsSnapshot, app: HostedApp, picks: Sequence[Pick]) -> Validated | FailedCheck:
    """Judge whether an application may have these cards. An application that needs no card may have none."""
    if len(app.requirements) > 1 and app.requirement is None:
        return FailedCheck(CheckType.MODE, options=installation.options(snapshot.view.without(app.key), app))
    requirement = app.requirement
    if requirement is None or not requirement.needs_card:
        return Validated()
    view = snapshot.view.without(app.key)
    there = availability(view, requirement)
    if not picks:
        return FailedCheck(CheckType.REQUIRED, there)
    found = validate(view, requirement, picks, app.key, one_card_per_pod=app.one_card_per_pod)
    if not found.ok:
        return FailedCheck(CheckType.UNAVAILABLE, there, found)
    return Validated(there, found, rows_of(view, app.key, requirement, picks, app_id=app.id))
