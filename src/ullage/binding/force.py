"""The rows and foreign bindings that take room: those in force, and what running pods hold without one.

An invalid binding, or one for which its card has no room, takes none. Pods that started under it still hold their
cards, so the amounts that they hold by the books stay charged until they end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ullage.binding.permit import BindingClaims
from ullage.binding.rows import as_binding, row_on, rows_of_bindings
from ullage.binding.view import BindingView
from ullage.model.binding import Binding, BindingState
from ullage.model.compute import AppKey, BoundCard, CardKey, CardUser


def in_force(
    own: BindingView, bindings: Sequence[Binding], users: Iterable[CardUser] = (), *, strict: bool = False
) -> BindingView:
    """Return a view with the rows and bindings in force, and what `users` hold in addition to these.

    `own` has all rows of the ledger. With `strict`, a binding without an owner or a namespace is not in force. A
    binding that waits for its card to drain takes its room already.
    """
    claims = BindingClaims(own, bindings, strict=strict)
    rows = [row for row in own.rows if claims.seen(as_binding(row)).state is not BindingState.INVALID]
    accepted = (each for each in bindings if not claims.invalid(each) and claims.crowded_out(each) is None)
    rows += rows_of_bindings(own.inventory, accepted)
    return replace(own, rows=(*rows, *_uncovered(own, rows, users)))


def _uncovered(view: BindingView, rows: Iterable[BoundCard], users: Iterable[CardUser]) -> Iterator[BoundCard]:
    """Yield rows for cards that pods hold although no row of their application is in force there."""
    covered = defaultdict(list)
    for row in rows:
        covered[row.card].append(row.app)
    held: defaultdict[tuple[AppKey, CardKey], int] = defaultdict(int)
    for user in users:
        cards = view.by_name[user.node].cards if user.node in view.by_name else ()
        there = ((card, uuid) for card in cards for uuid in card.uuids if uuid in user.held)
        for card, uuid in there:
            if not any(_is_of(user.app, app) for app in covered[card.key]):
                amount = user.held[uuid]
                more = card.memory_bytes if amount is None else amount
                held[user.app, card.key] = min(card.memory_bytes, held[user.app, card.key] + more)
    for (app, key), memory in held.items():
        yield row_on(view.cards[key], f"{'/'.join(app)}@{'/'.join(key)}", app, memory)


def _is_of(app: AppKey, bound: AppKey) -> bool:
    """Return whether a row is for an application. Older bindings have no owner, which stands for any owner."""
    return bound.name == app.name and bound.owner in ("", app.owner) and bound.namespace in ("", app.namespace)
