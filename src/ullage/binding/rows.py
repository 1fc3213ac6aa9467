"""The ledger of bindings and its changes: a change is planned against one version, and is made whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ullage.binding.view import BindingInventory, BindingView
from ullage.model.binding import Binding, BindingState, ShareMode
from ullage.model.compute import AppKey, BoundCard, CardKey, ComputeCard, ComputeRequirement, HostedApp, Pick
from ullage.model.compute_answer import SwitchReport

REMEMBERED = 1000
"""Answers that are kept for repeats; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What was asked under a key, as a digest, so that a repeat is answered and not done again."""

    key: str
    asked: str
    switch: SwitchReport | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows, how cards are shared where that was switched, and answers. `version` counts the changes."""

    version: int = 0
    rows: tuple[BoundCard, ...] = ()
    shares: Mapping[CardKey, ShareMode] = field(default_factory=dict)
    answered: tuple[Answered, ...] = ()

    def of(self, app: AppKey) -> tuple[BoundCard, ...]:
        """Return the rows of an application that are in force."""
        return tuple(row for row in self.rows if row.app == app and not row.draining)

    def answer(self, key: str) -> Answered | None:
        """Return what was answered under a key."""
        return next((each for each in self.answered if each.key == key), None) if key else None


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """Ids of rows that go, rows that come or are replaced, and how cards are shared from now on.

    `answered` is remembered for repeats; what was asked under the key `unanswered` is to be done again.
    """

    drop: tuple[str, ...] = ()
    put: tuple[BoundCard, ...] = ()
    shares: tuple[tuple[CardKey, ShareMode], ...] = ()
    answered: Answered | None = None
    unanswered: str = ""

    @property
    def empty(self) -> bool:
        """Whether the ledger stays as it is."""
        return self == LedgerChange()


def applied(ledger: Ledger, change: LedgerChange) -> Ledger:
    """Return the ledger after a change."""
    rows = {row.id: row for row in ledger.rows if row.id not in change.drop}
    rows |= {row.id: row for row in change.put}
    answered = [each for each in ledger.answered if each.key != change.unanswered]
    answered += [change.answered] if change.answered else []
    shares = {**ledger.shares, **dict(change.shares)}
    return Ledger(ledger.version + 1, tuple(rows.values()), shares, tuple(answered[-REMEMBERED:]))


def released(rows: Iterable[BoundCard], held: Collection[str]) -> LedgerChange:
    """Let go of rows: at once where nobody runs by them, else as soon as that is over."""
    rows = tuple(rows)
    gone = tuple(row.id for row in rows if row.id not in held)
    put = (replace(row, state=BindingState.DRAINING) for row in rows if row.id in held and not row.draining)
    return LedgerChange(gone, tuple(put))


def drained(ledger: Ledger, held: Collection[str]) -> LedgerChange:
    """Forget draining rows by which nobody runs any more."""
    return LedgerChange(tuple(row.id for row in ledger.rows if row.draining and row.id not in held))


def bound(
    view: BindingView, ledger: Ledger, app: HostedApp, picks: Iterable[Pick], held: Collection[str]
) -> LedgerChange:
    """Bind an application to these cards and no other. What stays as it is keeps its id.

    Whether the cards will do was decided before, against the same version.
    """
    requirement = app.requirement or ComputeRequirement("")
    wanted = {row.card: row for row in rows_of(view, app.key, requirement, picks, app_id=app.id)}
    kept = {row.card for row in ledger.of(app.key) if _same(row, wanted.get(row.card))}
    change = released((row for row in ledger.of(app.key) if row.card not in kept), held)
    fresh = (row for card, row in wanted.items() if card not in kept)
    ids = (f"{app.key.name}-{ledger.version + 1}-{position}" for position in range(len(wanted)))
    new = tuple(replace(row, id=name) for row, name in zip(fresh, ids, strict=False))
    return replace(change, put=(*change.put, *new))


def taken_back(view: BindingView, ledger: Ledger, change: LedgerChange, held: Collection[str]) -> LedgerChange:
    """Undo a binding: its new rows go, and the rows that drain because of it are in force again.

    A row stays as it is where its card is shared in another way since.
    """
    made = {row.id: row for row in change.put}
    now = [row for row in ledger.rows if row.id in made]
    undone = released((row for row in now if not made[row.id].draining), held)
    back = tuple(
        replace(row, state=BindingState.BOUND)
        for row in now
        if made[row.id].draining and row.card in view.cards and view.cards[row.card].share is row.share
    )
    return replace(undone, put=(*undone.put, *back))


def rows_of(
    view: BindingView, app: AppKey, requirement: ComputeRequirement, picks: Iterable[Pick], app_id: str = ""
) -> tuple[BoundCard, ...]:
    """Return the rows of an application on chosen cards, as yet without ids; memory counts where it is shared out."""
    cards = ((view.cards[pick.key], pick.memory_bytes) for pick in picks)
    rows = (row_on(card, f"{'/'.join(app)}@{'/'.join(card.key)}", app, memory) for card, memory in cards)
    return tuple(replace(row, app_id=app_id, spec=requirement) for row in rows)


def row_on(card: ComputeCard, name: str, app: AppKey, memory_bytes: int | None) -> BoundCard:
    """Return the row of an application on a card. Its amount counts where memory is shared out."""
    memory = (memory_bytes or 0) if card.share is ShareMode.MEMORY_SLICE else 0
    return BoundCard(name, app, card.key, card.accelerator, share=card.share, memory_bytes=memory)


def as_binding(row: BoundCard) -> Binding:
    """Return a row as a binding, under the id of the row: for every pod of its application."""
    return Binding(
        row.id,
        row.card.device,
        *row.app,
        selector=(),
        memory_bytes=row.memory_bytes or None,
        accelerator=row.accelerator,
        state=row.state,
    )


def rows_of_bindings(inventory: BindingInventory, bindings: Iterable[Binding]) -> Iterator[BoundCard]:
    """Yield bindings of others as rows, under their names; without those of cards that are not there."""
    for each in bindings:
        card = inventory.by_device.get(each.uuid)
        if card is not None and each.state is not BindingState.INVALID:
            yield row_on(card, each.name, AppKey(each.app, each.owner, each.namespace), each.memory_bytes)


def _same(row: BoundCard, other: BoundCard | None) -> bool:
    return other is not None and replace(row, id=other.id, spec=other.spec, app_id=other.app_id) == other
