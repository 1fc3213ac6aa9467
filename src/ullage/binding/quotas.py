"""The quotas of owners and of their applications: numbers of cards and their memory, also of one model of card.

An owner, or an application, above its quota keeps the rows that it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ullage.binding.rows import row_on
from ullage.binding.view import BindingView
from ullage.model.binding import Binding, ShareMode
from ullage.model.card_figures import names_model
from ullage.model.compute import (
    EVERY_APP,
    EVERY_OWNER,
    AppKey,
    BoundCard,
    CardKey,
    CardQuota,
    ComputeCard,
    HostRoom,
    OwnerQuota,
)
from ullage.model.compute_result import BindingQuotaUse, Dimension, QuotaScope

NOTHING = HostRoom()


class HeldCards:
    """Cards of rows, and the bytes of these: the amounts on sliced cards, and each other card once, whole."""

    def __init__(self) -> None:
        self.cards, self.vram_bytes = 0, 0
        self._rows: defaultdict[CardKey, int] = defaultdict(int)
        self._whole: dict[CardKey, int] = {}
        self._shared: dict[tuple[AppKey, CardKey], int] = {}

    def added(self, row: BoundCard, card_bytes: int) -> tuple[int, int]:
        """Return the cards and bytes that a row would add. `card_bytes` is the memory of its card."""
        cards = 0 if self._rows.get(row.card) else 1
        if row.share is ShareMode.MEMORY_SLICE:
            return cards, max(0, row.memory_bytes - self._shared.get((row.app, row.card), 0))
        return cards, 0 if row.card in self._whole else card_bytes

    def add(self, row: BoundCard, card_bytes: int) -> None:
        cards, vram = self.added(row, card_bytes)
        self.cards, self.vram_bytes = self.cards + cards, self.vram_bytes + vram
        self._rows[row.card] += 1
        if row.share is ShareMode.MEMORY_SLICE:
            key = row.app, row.card
            self._shared[key] = max(self._shared.get(key, 0), row.memory_bytes)
        else:
            self._whole[row.card] = card_bytes


@dataclass(frozen=True, slots=True)
class _Limit:
    """One quota that applies to an application: of which of the rows of its owner, and the most of these."""

    scope: QuotaScope
    most: CardQuota

    def counts(self, row: BoundCard, card: ComputeCard | None) -> bool:
        """Return whether a row counts. The model of a card that does not exist is unknown."""
        scope = self.scope
        named = row.app.owner == scope.owner and scope.app in ("", row.app.name)
        return named and (not scope.model or (card is not None and names_model(scope.model, card.model)))


def quota_uses(
    view: BindingView, app: AppKey, added: HostRoom = NOTHING, rows: Iterable[BoundCard] = ()
) -> tuple[BindingQuotaUse, ...]:
    """Return the usage of the quotas of an application after adding this room and these rows, not in the view yet.

    The quota of its owner comes first, then that of models, then those of the application. Only limited amounts are
    returned. An addition of nothing never exceeds a quota.
    """
    return tuple(_uses(view, app, added, tuple(rows)))


def quota_status(view: BindingView, owner: str, apps: Iterable[AppKey]) -> tuple[BindingQuotaUse, ...]:
    """Return the usage of the quotas of an owner, then of those of these applications; each amount once."""
    keys = [AppKey("", owner), *sorted(app for app in apps if app.owner == owner)]
    found = {(use.scope, use.dimension.resource): use for key in keys for use in quota_uses(view, key)}
    return tuple(found.values())


def beyond_quota(view: BindingView, app: AppKey, rows: Iterable[BoundCard]) -> BindingQuotaUse | None:
    """Return the first quota that these rows exceed; None if they are within all."""
    return next((each for each in quota_uses(view, app, rows=rows) if each.pressured), None)


def _uses(view: BindingView, app: AppKey, added: HostRoom, rows: tuple[BoundCard, ...]) -> Iterator[BindingQuotaUse]:
    there = [row for row in view.rows if row.app.owner == app.owner]
    for limit in _limits(view.quotas, app):
        before = _held(view, limit, there)
        after = _held(view, limit, [*there, *rows])
        holders = _holders(view, limit, there)
        amounts = [
            ("cards", limit.most.cards, before.cards, after.cards - before.cards),
            ("vram", limit.most.vram_bytes, before.vram_bytes, after.vram_bytes - before.vram_bytes),
        ]
        if isinstance(limit.most, OwnerQuota):
            used = view.owner_use.get(app.owner, HostRoom())
            amounts += [
                ("cpu", limit.most.cpu_milli, used.cpu_milli, added.cpu_milli),
                ("memory", limit.most.memory_bytes, used.memory_bytes, added.memory_bytes),
            ]
        for resource, most, use, more in amounts:
            if most is not None:
                pressured = more > 0 and use + more > most
                yield BindingQuotaUse(limit.scope, Dimension(resource, more, use, most, pressured=pressured), holders)


class QuotaMeter:
    """Counts bindings in their order of precedence, so that each has the quotas that earlier ones have left."""

    def __init__(self, view: BindingView) -> None:
        """`view` has the rows of the ledger, which always count."""
        self._view, self._meters = view, dict[AppKey, list[tuple[_Limit, HeldCards]]]()
        self._of_scope: dict[QuotaScope, HeldCards] = {}
        self._rows: defaultdict[str, list[BoundCard]] = defaultdict(list)
        for row in view.rows:
            self._rows[row.app.owner].append(row)

    def rejected(self, binding: Binding, card: ComputeCard) -> BindingQuotaUse | None:
        """Return the quota that a binding exceeds; None if it is within all, and then it counts.

        A binding without an owner is in no quota.
        """
        if not binding.owner:
            return None
        row = row_on(card, binding.name, AppKey(binding.app, binding.owner, binding.namespace), binding.memory_bytes)
        counting = [each for each in self._of(row.app) if each[0].counts(row, card)]
        for limit, held in counting:
            cards, vram = held.added(row, card.memory_bytes)
            for resource, most, use, more in (
                ("cards", limit.most.cards, held.cards, cards),
                ("vram", limit.most.vram_bytes, held.vram_bytes, vram),
            ):
                if most is not None and more > 0 and use + more > most:
                    holders = _holders(self._view, limit, self._rows[binding.owner])
                    return BindingQuotaUse(limit.scope, Dimension(resource, more, use, most, pressured=True), holders)
        for _, held in counting:
            held.add(row, card.memory_bytes)
        self._rows[binding.owner].append(row)
        return None

    def _of(self, app: AppKey) -> list[tuple[_Limit, HeldCards]]:
        """Return the quotas of an application, each with what its owner, or all of that name, have so far."""
        if app not in self._meters:
            limits = list(_limits(self._view.quotas, app))
            for limit in limits:
                if limit.scope not in self._of_scope:
                    self._of_scope[limit.scope] = _held(self._view, limit, self._rows[app.owner])
            self._meters[app] = [(limit, self._of_scope[limit.scope]) for limit in limits]
        return self._meters[app]


def _limits(quotas: Mapping[str, OwnerQuota], app: AppKey) -> Iterator[_Limit]:
    """Yield the quotas that apply to an application: those of its owner, then its own."""
    key = app.owner if app.owner in quotas else EVERY_OWNER
    of_owner = quotas.get(key)
    if of_owner is None:
        return
    path = f"quotas.{_quoted(key)}"
    yield _Limit(QuotaScope(path, app.owner), of_owner)
    for model, most in of_owner.models.items():
        yield _Limit(QuotaScope(f"{path}.models.{_quoted(model)}", app.owner, model=model), most)
    name = app.name if app.name in of_owner.apps else EVERY_APP
    of_app = of_owner.apps.get(name)
    if of_app is None or not app.name:
        return
    path = f"{path}.apps.{_quoted(name)}"
    yield _Limit(QuotaScope(path, app.owner, app.name), of_app)
    for model, most in of_app.models.items():
        yield _Limit(QuotaScope(f"{path}.models.{_quoted(model)}", app.owner, app.name, model), most)


def _held(view: BindingView, limit: _Limit, rows: Iterable[BoundCard]) -> HeldCards:
    found = HeldCards()
    for row in rows:
        card = view.cards.get(row.card)
        if limit.counts(row, card):
            found.add(row, 0 if card is None else card.memory_bytes)
    return found


def _holders(view: BindingView, limit: _Limit, rows: Iterable[BoundCard]) -> tuple[str, ...]:
    """Return the names of the applications whose rows count in a quota, sorted."""
    return tuple(sorted({row.app.name for row in rows if limit.counts(row, view.cards.get(row.card))}))


def _quoted(name: str) -> str:
    """Return a name as a key of TOML."""
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else f'"{name}"'
