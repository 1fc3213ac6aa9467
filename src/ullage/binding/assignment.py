"""Add single cards to the binding of an application, or remove them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ullage.binding.quotas import beyond_quota
from ullage.binding.rows import Ledger, LedgerChange, bound
from ullage.binding.validation import mixed, unfit
from ullage.binding.view import BindingView
from ullage.model.compute import CardKey, HostedApp, Pick
from ullage.model.error import Conflict, InvalidRequest


def reassigned(
    view: BindingView,
    ledger: Ledger,
    app: HostedApp,
    assign: Sequence[Pick],
    unassign: Iterable[CardKey],
    held: Collection[str],
) -> LedgerChange:
    """Return one change with all cards. A card in both lists is assigned; of a repeated card the first entry counts.

    Raises:
        InvalidRequest: the memory of a card is sliced, and no amount is requested.
        Conflict: a card is full or unusable, a quota is exceeded, or cards of a node have different
            share modes.

    """
    others = view.without(app.key)
    wanted = {pick.key: pick for pick in reversed(assign)}
    for pick in wanted.values():
        card = others.cards[pick.key]
        code = unfit(others, card, pick.memory_bytes)
        if code.startswith("memory-required"):
            raise InvalidRequest(f"memory: {card.id} shares out its memory; say how much", code=code, field="memory")
        if code:
            raise Conflict(f"{card.id} cannot be assigned: {code}", code=code)
    gone = set(unassign)
    kept = {
        row.card: Pick(row.card.node, row.card.device, row.memory_bytes)
        for row in ledger.of(app.key)
        if row.card not in gone and row.card in view.cards
    }
    change = bound(view, ledger, app, {**kept, **wanted}.values(), held=held)
    fresh = [row for row in change.put if not row.draining]
    staying = [row for row in ledger.of(app.key) if row.id not in {each.id for each in change.put} | {*change.drop}]
    if fresh and (over := beyond_quota(others, app.key, [*staying, *fresh])) is not None:
        raise Conflict(over.sentence, code=over.code)
    if wanted and not app.one_card_per_pod and (code := mixed(others.cards[key] for key in {**kept, **wanted})):
        message = f"{app.key.name} would have cards of one node that are shared differently; its pods take all of them"
        raise Conflict(message, code=code)
    return change
