"""Use cases of bindings: each reads one moment, decides on it, and commits all of it or nothing.

A commit that finds another version is decided anew from what is there then, unless the caller named the version.
What an operation lets go is free when nobody runs by it any more; `settle` sees to that.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from ullage.core.binding import installation
from ullage.core.binding.assignment import reassigned
from ullage.core.binding.availability import availability
from ullage.core.binding.migration import Migration, migrated
from ullage.core.binding.preflight import preflight
from ullage.core.binding.rows import Answered, Change, bound, drained, released, rows_of, taken_back
from ullage.core.binding.stale import Stale, stale
from ullage.core.binding.switching import STOPPED, share_of, switched
from ullage.core.binding.validation import validate
from ullage.model.compute import AppKey, AppState, BoundCard, CardKey, HostedApp, Pick
from ullage.model.compute_answer import (
    Availability,
    CheckType,
    Demand,
    FailedCheck,
    Preflight,
    SwitchReport,
    SwitchStatus,
    Validation,
)
from ullage.model.error import Conflict, Forbidden, UllageError, Unavailable, VersionChanged
from ullage.service.bindings_moment import Caller, Moment, Named, check_owner
from ullage.service.bindings_port import BindingPort

_TRIES = 8
"""Times that an operation is decided anew because others came first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """Under what a change is asked: a key by which a repeat is known, and the version that it was decided on."""

    key: str = ""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Validated:
    """A choice that will do, and the rows that it would make; without `availability` no card is needed."""

    availability: Availability | None = None
    validation: Validation | None = None
    rows: tuple[BoundCard, ...] = ()


class Bindings:
    """Applications and their cards, behind one port."""

    def __init__(self, port: BindingPort, now: Callable[[], float] = time.time) -> None:
        """`now` is the time, in seconds since 1970."""
        self._port, self._now = port, now

    # --- questions ---

    async def look(self) -> Moment:
        """What is there, for whoever shows it. The ledger comes first: what was let go since is not held for free."""
        ledger = await self._port.ledger()
        return Moment(await self._port.cluster(), ledger)

    async def rows(self, caller: Caller, named: Named) -> tuple[BoundCard, ...]:
        """The rows of an application that are in force; errors are those of `Moment.app`."""
        moment = await self.look()
        return moment.ledger.of(moment.app(caller, named).key)

    async def validate(self, caller: Caller, named: Named, picks: Sequence[Pick]) -> Validated | FailedCheck:
        """Judge a choice of cards as `resume` would; nothing is changed."""
        moment = await self.look()
        return _judged(moment, moment.judged(caller, named), picks)

    async def preflight(self, caller: Caller, demands: Sequence[Demand]) -> Preflight:
        """Whether demands could be installed one after the other.

        Raises:
            Forbidden: one is somebody else's.

        """
        for demand in demands:
            check_owner(caller, demand.app.owner)
        moment = await self.look()
        known = {key[:2]: key for key in moment.apps}
        demands = [replace(each, app=known.get(each.app[:2], each.app)) for each in demands]
        return await asyncio.to_thread(preflight, moment.view, demands)  # many demands on many nodes take seconds

    # --- applications ---

    async def resume(
        self, caller: Caller, named: Named, picks: Sequence[Pick], terms: Terms = Terms()
    ) -> tuple[BoundCard, ...] | FailedCheck:
        """Bind an application to the chosen cards and let it start; if it cannot start, its rows are taken back."""

        def plan(moment: Moment) -> tuple[HostedApp | FailedCheck, Change]:
            app = moment.judged(caller, named)
            found = _judged(moment, app, picks)
            if isinstance(found, FailedCheck):
                return found, Change()
            chosen = picks if found.availability else ()
            return app, bound(moment.view, moment.ledger, app, chosen, moment.cluster.held)

        asked = f"{caller.name}: resume {named} {sorted(map(repr, picks))}"
        return await self._started(plan, caller, named, terms, asked)

    async def install(
        self, caller: Caller, named: Named, accelerator: str = "", picks: Sequence[Pick] = (), terms: Terms = Terms()
    ) -> tuple[BoundCard, ...] | FailedCheck:
        """Install an application in the only way that is possible, or the chosen one, on cards chosen by us or them."""

        def plan(moment: Moment) -> tuple[HostedApp | FailedCheck, Change]:
            app = moment.judged(caller, named)
            found = installation.chosen(moment.view.without(app.key), app, accelerator, picks)
            if isinstance(found, FailedCheck):
                return found, Change()
            app, cards = found
            return app, bound(moment.view, moment.ledger, app, cards, moment.cluster.held)

        asked = f"{caller.name}: install {named} {accelerator} {sorted(map(repr, picks))}"
        return await self._started(plan, caller, named, terms, asked)

    async def suspend(self, caller: Caller, named: Named, terms: Terms = Terms()) -> None:
        """Let an application stop and its cards go; a second time does nothing more."""

        def plan(moment: Moment) -> tuple[None, Change]:
            app = moment.app(caller, named)
            return None, released(moment.ledger.of(app.key), moment.cluster.held)

        await self._changed(plan, terms, f"{caller.name}: suspend {named}")
        moment = await self.look()
        for key in _leaving(moment, moment.keys(caller, named)):
            await self._port.stop(key)

    async def uninstall(self, caller: Caller, named: Named, terms: Terms = Terms()) -> None:
        """Let the cards of an application go, whether or not it is still there; who removes it is its controller."""

        def plan(moment: Moment) -> tuple[None, Change]:
            keys = moment.keys(caller, named)
            return None, released((row for key in keys for row in moment.ledger.of(key)), moment.cluster.held)

        await self._changed(plan, terms, f"{caller.name}: uninstall {named}")

    async def _started(
        self,
        plan: Callable[[Moment], tuple[HostedApp | FailedCheck, Change]],
        caller: Caller,
        named: Named,
        terms: Terms,
        asked: str,
    ) -> tuple[BoundCard, ...] | FailedCheck:
        found, change = await self._changed(plan, terms, asked, caller)
        if isinstance(found, FailedCheck):
            return found
        if found is None:
            moment = await self.look()
            app = moment.app(caller, named)
            if app.state in STOPPED and moment.ledger.of(app.key):
                await self._start(app)
            return moment.ledger.of(app.key)
        if change.empty and found.state == AppState.RUNNING:
            return (await self.look()).ledger.of(found.key)
        try:
            await self._start(found)
        except UllageError:
            await self._take_back(change, terms)
            raise
        return (await self.look()).ledger.of(found.key)

    async def _start(self, app: HostedApp) -> None:
        requirement = app.requirement
        await self._port.start(app.key, requirement.accelerator if requirement else "")

    async def _take_back(self, change: Change, terms: Terms) -> None:
        """Undo a binding whose application was not started; a repeat is then done again."""

        def plan(moment: Moment) -> tuple[None, Change]:
            undone = taken_back(moment.view, moment.ledger, change, moment.cluster.held)
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

        def plan(moment: Moment) -> tuple[SwitchReport, Change]:
            card = moment.card(key)
            own = {row.id for row in moment.ledger.rows}
            foreign = [row for row in moment.view.on(card) if row.id not in own]
            if foreign:
                fix = f"{foreign[0].id} is in force and not of the ledger: migrate or delete it, or end its pods"
                raise Conflict(f"{key.device} cannot be switched: {fix}", code="binding-not-migrated")
            return switched(moment.ledger, card, share_of(card, share), moment.apps, moment.cluster.held)

        asked = f"{caller.name}: switch {key} {share}"
        report, change = await self._changed(plan, terms, asked)
        if report is None:
            known = (await self.look()).ledger.answer(terms.key)
            report = known.switch if known else None
        report = report or SwitchReport(key, SwitchStatus.UNCHANGED)
        if report.status is SwitchStatus.BLOCKED:
            return FailedCheck(CheckType.BLOCKED, switch=report)
        if not change.empty:
            await self._stop(each.app for each in report.stopped)
        return report

    async def reassign(
        self, caller: Caller, named: Named, assign: Sequence[tuple[str, int]], unassign: Iterable[str]
    ) -> None:
        """Give cards to an application and take others, as one change; where anything changes it starts anew.

        `assign` has ids of cards with bytes of memory. Taking a card that it has not, or that is not there, is fine.

        Raises:
            NotFound: a card to be assigned, or the application, is not there.
            Conflict: a card has no room.
            InvalidRequest: memory is shared out and no amount is asked.

        """
        gone = tuple(unassign)

        def plan(moment: Moment) -> tuple[HostedApp | None, Change]:
            if not assign and not moment.keys(caller, named):
                return None, Change()
            app = moment.judged(caller, named) if assign else moment.app(caller, named)
            picks = [Pick(*moment.card_of(device).key, memory) for device, memory in assign]
            off = [key for key in moment.view.cards if key.device in gone]
            return app, reassigned(moment.view, moment.ledger, app, picks, off, moment.cluster.held)

        app, change = await self._changed(plan, Terms(), "", caller)
        if app is not None and not change.empty and app.state and app.state not in STOPPED:
            await self._port.restart(app.key)

    # --- upkeep ---

    async def settle(self) -> bool:
        """Forget rows by which nobody runs any more, and tell again who has to stop, or to start anew on other cards.

        Returns whether anything was forgotten.
        """

        def plan(moment: Moment) -> tuple[Moment, Change]:
            return moment, drained(moment.ledger, moment.cluster.held)

        moment, change = await self._changed(plan, Terms(), "")
        assert moment is not None
        leaving = dict.fromkeys(row.app for row in moment.ledger.rows if row.draining)
        await self._stop(leaving)
        for key in leaving:
            if moment.ledger.of(key) and key in moment.apps and moment.apps[key].state not in STOPPED:
                with suppress(UllageError):
                    await self._port.restart(key)
        return not change.empty

    async def migrate(self, caller: Caller, *, dry_run: bool = True) -> Migration:
        """Make rows of the bindings of others, which then go; a dry run only says which.

        Raises:
            Forbidden: the caller is no administrator.

        """
        _check_admin(caller, "migrate bindings")

        def plan(moment: Moment) -> tuple[Migration, Change]:
            found = migrated(moment.own, moment.ledger, moment.cluster.bindings, moment.cluster.apps)
            return found, Change() if dry_run else found.change

        found, _ = await self._changed(plan, Terms(), "", caller)
        assert found is not None
        if not dry_run:
            await self._port.discard([*found.kept, *found.unchanged, *found.dropped])
        return found

    async def clean(self, caller: Caller, *, dry_run: bool = True) -> tuple[Stale, ...]:
        """Let bindings go that stand for nothing any more; a dry run only says which.

        Raises:
            Forbidden: the caller is no administrator.

        """
        _check_admin(caller, "delete what is stale")

        def plan(moment: Moment) -> tuple[tuple[Stale, ...], Change]:
            found = stale(moment.own, moment.ledger, moment.cluster.bindings, moment.apps)
            names = {each.name for each in found}
            rows = [row for row in moment.ledger.rows if row.id in names]
            return found, Change() if dry_run else released(rows, moment.cluster.held)

        found, _ = await self._changed(plan, Terms(), "")
        assert found is not None
        if not dry_run:
            await self._port.discard([each.name for each in found])
        return found

    def _signed(self, change: Change, moment: Moment, by: Caller) -> Change:
        """The change with who made its new rows, and when."""
        known, now = {row.id for row in moment.ledger.rows}, self._now()
        rows = (row if row.id in known else replace(row, by=by.name, at=now) for row in change.put)
        return replace(change, put=tuple(rows))

    async def _stop(self, keys: Iterable[AppKey]) -> None:
        """Tell those to stop that have to. Who cannot be told now is told by `settle`."""
        for key in _leaving(await self.look(), keys):
            with suppress(UllageError):
                await self._port.stop(key)

    async def _changed(
        self, plan: Callable[[Moment], tuple[T, Change]], terms: Terms, asked: str, by: Caller | None = None
    ) -> tuple[T | None, Change]:
        """Decide and commit. A repeat under a key decides nothing: then there is no outcome. `by` is who asks.

        Raises:
            Conflict: the key was used for something else.
            VersionChanged: the ledger has another version than the caller named.
            Unavailable: others keep coming first.

        """
        asked = hashlib.sha256(asked.encode(errors="backslashreplace")).hexdigest()
        for _ in range(_TRIES):
            moment = await self.look()
            known = moment.ledger.answer(terms.key)
            if known is not None:
                if known.asked != asked:
                    raise Conflict(f"the key {terms.key!r} was used for something else", code="key-reused")
                return None, Change()
            if terms.version not in (None, moment.ledger.version):
                raise VersionChanged(f"the bindings have version {moment.ledger.version}, not {terms.version}")
            outcome, change = plan(moment)
            if change.empty:
                return outcome, change
            if by is not None:
                change = self._signed(change, moment, by)
            report = outcome if isinstance(outcome, SwitchReport) else None
            noted = replace(change, answered=Answered(terms.key, asked, report)) if terms.key else change
            with suppress(VersionChanged):
                await self._port.commit(noted, moment.ledger.version)
                return outcome, change
        raise Unavailable("bindings change too often to be decided on; try again")


def _check_admin(caller: Caller, what: str) -> None:
    if not caller.is_admin:
        raise Forbidden(f"only an administrator may {what}")


def _leaving(moment: Moment, keys: Iterable[AppKey]) -> list[AppKey]:
    """Those that run and have no card any more."""
    return [
        key
        for key in keys
        if key in moment.apps and moment.apps[key].state not in STOPPED and not moment.ledger.of(key)
    ]


def _judged(moment: Moment, app: HostedApp, picks: Sequence[Pick]) -> Validated | FailedCheck:
    """Whether an application may have these cards; one that needs none may have none."""
    if len(app.requirements) > 1 and app.requirement is None:
        return FailedCheck(CheckType.MODE, options=installation.options(moment.view.without(app.key), app))
    requirement = app.requirement
    if requirement is None or not requirement.needs_card:
        return Validated()
    view = moment.view.without(app.key)
    there = availability(view, requirement)
    if not picks:
        return FailedCheck(CheckType.REQUIRED, there)
    found = validate(view, requirement, picks, app.key, singly=app.singly)
    if not found.ok:
        return FailedCheck(CheckType.UNAVAILABLE, there, found)
    return Validated(there, found, rows_of(view, app.key, requirement, picks, app.id))
