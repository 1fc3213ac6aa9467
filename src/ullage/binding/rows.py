"""The ledger of bindings, and its changes. A change is planned on one version, and is made as a whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ullage.binding.view import BindingInventory, BindingView
from ullage.model.binding import Binding, BindingState, ShareMode
from ullage.model.compute import AppKey, BoundCard, CardKey, ComputeCard, ComputeRequirement, HostedApp, Pick
from ullage.model.compute_result import SwitchReport

REMEMBERED = 1000
"""Maximum number of answers that are kept for repeated requests."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The digest of a request with an idempotency key, so that a repeat is answered without repeating the change."""

    key: str
    asked: str
    switch: SwitchReport | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows, switched share modes, and answers. `version` counts the changes."""

    version: int = 0
    rows: tuple[BoundCard, ...] = ()
    shares: Mapping[CardKey, ShareMode] = field(default_factory=dict)
    answered: tuple[Answered, ...] = ()

    def of(self, app: AppKey) -> tuple[BoundCard, ...]:
        """Return the rows of an application that do not drain."""
        return tuple(row for row in self.rows if row.app == app and not row.draining)

    def answer(self, key: str) -> Answered | None:
        return next((each for each in self.answered if each.key == key), None) if key else None


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """Ids of rows to drop, rows to add or replace, and new share modes.

    `answered` is remembered for repeated requests. The answer with the key `unanswered` is forgotten.
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
    rows = {row.id: row for row in ledger.rows if row.id not in change.drop}
    rows |= {row.id: row for row in change.put}
    answered = [each for each in ledger.answered if each.key != change.unanswered]
    answered += [change.answered] if change.answered else []
    shares = {**ledger.shares, **dict(change.shares)}
    return Ledger(ledger.version + 1, tuple(rows.values()), shares, tuple(answered[-REMEMBERED:]))


def released(rows: Iterable[BoundCard], held: Collection[str]) -> LedgerChange:
    """Return the change that releases rows. Those in `held` drain, as pods run with them; the others are dropped."""
    rows = tuple(rows)
    gone = tuple(row.id for row in rows if row.id not in held)
    put = (replace(row, state=BindingState.DRAINING) for row in rows if row.id in held and not row.draining)
    return LedgerChange(gone, tuple(put))


def drained(ledger: Ledger, held: Collection[str]) -> LedgerChange:
    """Return the change that drops the draining rows with which no pod runs any more."""
    return LedgerChange(tuple(row.id for row in ledger.rows if row.draining and row.id not in held))


def bound(
    view: BindingView, ledger: Ledger, app: HostedApp, picks: Iterable[Pick], held: Collection[str]
) -> LedgerChange:
    """Return the change that binds an application to exactly these cards. Unchanged rows keep their ids.

    The cards must have been validated on the same version.
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
    """Return the change that undoes a binding: its new rows go, and rows that drain because of it are bound again.

    A row whose card has another share mode by now stays unchanged.
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
    """Return the rows of an application on chosen cards, with temporary ids. Amounts count where memory is sliced."""
    cards = ((view.cards[pick.key], pick.memory_bytes) for pick in picks)
    rows = (row_on(card, f"{'/'.join(app)}@{'/'.join(card.key)}", app, memory) for card, memory in cards)
    return tuple(replace(row, app_id=app_id, spec=requirement) for row in rows)


def row_on(card: ComputeCard, name: str, app: AppKey, memory_bytes: int | None) -> BoundCard:
    """Return the row of an application on a card. Its amount counts where memory is sliced."""
    memory = (memory_bytes or 0) if card.share is ShareMode.MEMORY_SLICE else 0
    return BoundCard(name, app, card.key, card.accelerator, share=card.share, memory_bytes=memory)


def as_binding(row: BoundCard) -> Binding:
    """Return a row as a binding for all pods of its application, with the id of the row as its name."""
    return Binding(
        row.id,
        row.card.device,
        *row.app,
        selector=(),
        memory_bytes=row.memory_bytes or None,
        accelerator=row.accelerator,
        state=row.state,
        row=True,
    )


def rows_of_bindings(inventory: BindingInventory, bindings: Iterable[Binding]) -> Iterator[BoundCard]:
    """Yield foreign bindings as rows with their names as ids, except those whose card does not exist."""
    for each in bindings:
        card = inventory.by_device.get(each.uuid)
        if card is not None and each.state is not BindingState.INVALID:
            yield row_on(card, each.name, AppKey(each.app, each.owner, each.namespace), each.memory_bytes)


def _same(row: BoundCard, other: BoundCard | None) -> bool:
    return other is not None and replace(row, id=other.id, spec=other.spec, app_id=other.app_id) == other
