"""What the applications of one owner may have together. What they have already is never taken for it."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.compute import EVERYBODY, AppKey, BoundCard, CardKey, HostRoom
from ullage.model.compute_answer import Dimension

NOTHING = HostRoom()


def of_quota(
    view: BindingView, app: AppKey, added: HostRoom = NOTHING, rows: Iterable[BoundCard] = ()
) -> tuple[Dimension, ...]:
    """Return what an application would use of its owner's quota with this room and these rows, which the view lacks.

    Only limited amounts are reported. An owner that takes no more than before is never over its quota.
    """
    quota = view.quotas.get(app.owner) or view.quotas.get(EVERYBODY)
    if quota is None:
        return ()
    used = view.owner_use.get(app.owner, HostRoom())
    there = [row for row in view.rows if row.app.owner == app.owner]
    cards, memory = _on_cards(view, there)
    more_cards, more_memory = _on_cards(view, [*there, *rows])
    amounts = (
        ("cards", quota.cards, cards, more_cards - cards),
        ("vram", quota.vram_bytes, memory, more_memory - memory),
        ("cpu", quota.cpu_milli, used.cpu_milli, added.cpu_milli),
        ("memory", quota.memory_bytes, used.memory_bytes, added.memory_bytes),
    )
    return tuple(
        Dimension(resource, more, before, most, pressured=more > 0 and before + more > most)
        for resource, most, before, more in amounts
        if most is not None
    )


def beyond_quota(view: BindingView, app: AppKey, rows: Iterable[BoundCard]) -> str:
    """Return the code by which rows are refused that are beyond the quota; "" for nothing."""
    short = [each.resource for each in of_quota(view, app, rows=rows) if each.pressured]
    return f"owner-quota:{short[0]}" if short else ""


def _on_cards(view: BindingView, rows: Iterable[BoundCard]) -> tuple[int, int]:
    """Return the number of cards of rows and their bytes: the shared amounts, and all of any other card, once."""
    shared: dict[tuple[AppKey, CardKey], int] = {}
    whole: dict[CardKey, int] = {}
    for row in rows:
        if row.share is ShareMode.MEMORY_SLICE:
            key = row.app, row.card
            shared[key] = max(shared.get(key, 0), row.memory_bytes)
        else:
            card = view.cards.get(row.card)
            whole[row.card] = card.memory_bytes if card is not None else 0
    cards = whole.keys() | {card for _, card in shared}
    return len(cards), sum(whole.values()) + sum(shared.values())
