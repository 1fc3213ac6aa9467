"""Which rows and bindings of others take room: those in force, and what running pods hold without one in force.

A binding that is refused blocks nobody: it is invalid, or its card has no room for it. Pods that began to run under it
still hold their cards, so the amount that they hold stays charged until they end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ullage.binding.permit import BindingClaims
from ullage.binding.rows import as_binding, rows_of_bindings
from ullage.binding.view import BindingView
from ullage.model.binding import Binding, ShareMode
from ullage.model.compute import AppKey, BoundCard, CardKey, CardUser, ComputeCard


def in_force(
    own: BindingView, bindings: Sequence[Binding], users: Iterable[CardUser] = (), *, strict: bool = False
) -> BindingView:
    """Return a view with the rows and bindings that are in force, and what `users` hold of cards beyond these.

    `own` has all rows of the ledger. With `strict` a binding without an owner or a namespace is not in force.
    """
    by_device = {card.id: card for card in reversed(tuple(own.cards.values()))}
    claims = BindingClaims([*map(as_binding, own.rows), *bindings], by_device, tenants=own.tenants, strict=strict)
    rows = [row for row in own.rows if not _promises_too_much(row, own)]
    rows += rows_of_bindings(own.cards, (each for each in bindings if not claims.reason(each)))
    return BindingView(
        own.inventory,
        (*rows, *_uncovered(own, rows, users)),
        own.tenants,
        own.quotas,
        own.owner_use,
        own.added,
    )


def _promises_too_much(row: BoundCard, view: BindingView) -> bool:
    """Return whether a row has more memory than its card, as after the card was replaced."""
    card = view.cards.get(row.card)
    return card is not None and 0 < card.memory_bytes < row.memory_bytes


def _uncovered(view: BindingView, rows: Iterable[BoundCard], users: Iterable[CardUser]) -> Iterator[BoundCard]:
    """Rows for what pods hold of cards where no row of their application is in force."""
    covered = defaultdict(list)
    for row in rows:
        covered[row.card].append(row.app)
    held: dict[tuple[AppKey, CardKey], int] = {}
    for user in users:
        for card, amount in _cards_of(view, user):
            if not any(_is_of(user.app, app) for app in covered[card.key]):
                before = held.get((user.app, card.key), 0)
                more = card.memory_bytes if amount is None else amount
                held[user.app, card.key] = min(card.memory_bytes, before + more)
    for (app, key), memory in held.items():
        card = view.cards[key]
        name = f"{'/'.join(app)}@{'/'.join(key)}"
        sliced = card.share is ShareMode.MEMORY_SLICE
        yield BoundCard(name, app, key, card.accelerator, card.share, memory if sliced else 0)


def _cards_of(view: BindingView, user: CardUser) -> Iterator[tuple[ComputeCard, int | None]]:
    node = view.by_name.get(user.node)
    for card in () if node is None else node.cards:
        for uuid in card.uuids:
            if uuid in user.held:
                yield card, user.held[uuid]


def _is_of(app: AppKey, bound: AppKey) -> bool:
    """Return whether a row is for an application. A binding from before owners were known leaves the owner empty."""
    return bound.name == app.name and bound.owner in ("", app.owner) and bound.namespace in ("", app.namespace)
