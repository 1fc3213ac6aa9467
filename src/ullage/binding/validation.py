"""Validation of the cards that a user chose for an application. The first fault is reported.

The codes are those that clients know, followed by a colon and the card or node. Four are additions:
`device-draining:X` (an application still drains that has another share mode), `tenants-exhausted:X` (the maximum number
of applications time-slices the card), `owner-quota:R` or `app-quota:R` (a quota of `cards` or `vram` would be
exceeded; with `:M` that of a model) and `bound-cards-shared-differently:N` (cards of node N have different share modes,
and a pod takes all its bound cards).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ullage.binding.limits import pressure
from ullage.binding.quotas import beyond_quota
from ullage.binding.room import Hindrance
from ullage.binding.rows import rows_of
from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.compute import NVIDIA, AppKey, AvailabilityScope, ComputeCard, ComputeRequirement, Pick
from ullage.model.compute_result import Validation


def validate(
    view: BindingView,
    asked: ComputeRequirement,
    picks: Sequence[Pick],
    app: AppKey,
    *,
    install: bool = False,
    one_card_per_pod: bool = False,
) -> Validation:
    """Validate a choice for an application. `view` has none of its rows.

    With `one_card_per_pod`, each of its pods takes one card, so the cards may have different share modes.
    """
    code = _named(view, picks) or _together(asked, picks)
    if code:
        return Validation(code)
    cards = [view.cards[pick.key] for pick in picks]
    code = next(filter(None, (_alone(view, card, asked, pick) for card, pick in zip(cards, picks, strict=True))), "")
    code = code or ("" if one_card_per_pod else mixed(cards)) or _enough(cards, asked, picks)
    if code:
        return Validation(code)
    if (over := beyond_quota(view, app, rows_of(view, app, asked, picks))) is not None:
        return Validation(over.code, quota=over)
    for name in dict.fromkeys(pick.node for pick in picks):
        found = pressure(view.node(name), asked.room(install=install))
        if found.pressured:
            return Validation(f"node-pressure:{name}", found)
    return Validation()


def mixed(cards: Iterable[ComputeCard]) -> str:
    """Return the code if cards of one node have different share modes, else ""."""
    shares = defaultdict(set)
    for card in cards:
        shares[card.node].add(card.share)
    node = next((node for node, found in shares.items() if len(found) > 1), "")
    return f"{Hindrance.MIXED}:{node}" if node else ""


def unfit(view: BindingView, card: ComputeCard, memory_bytes: int) -> str:
    """Return why an application cannot use a card, apart from its total request; "" if it can."""
    if not view.usable(card):
        return f"device-unhealthy:{card.id}"
    rejected = view.room(card).reject(memory_bytes)
    if rejected is not None:
        return rejected.text
    if card.share is not ShareMode.MEMORY_SLICE:
        return ""
    if memory_bytes <= 0:
        return f"memory-required:{card.id}"
    return "" if card.memory_bytes else f"{Hindrance.NO_MEMORY}:{card.id}"  # an unknown amount cannot be sliced


def _named(view: BindingView, picks: Sequence[Pick]) -> str:
    """Return the code unless the choice names existing cards, each once."""
    if not picks:
        return "empty-selection"
    seen = set()
    for pick in picks:
        if not pick.node or not pick.device:
            return "empty-compute-binding"
        if pick.node not in view.by_name:
            return f"node-not-found:{pick.node}"
        if pick.key not in view.cards:
            return f"device-not-found:{pick.device}"
        if pick.key in seen:
            return f"duplicate-selection:{pick.node}/{pick.device}"
        seen.add(pick.key)
    return ""


def _together(asked: ComputeRequirement, picks: Sequence[Pick]) -> str:
    """Return the code if an application cannot use that many cards, or cards of several nodes."""
    if len(picks) == 1:
        return ""
    if asked.accelerator != NVIDIA:
        return "non-nvidia-must-single-selection"
    if asked.scope is AvailabilityScope.CARD:
        return "multi-card-not-supported"
    nodes = {pick.node for pick in picks}
    return "multi-node-not-supported" if len(nodes) > 1 and asked.scope is not AvailabilityScope.NODES else ""


def _alone(view: BindingView, card: ComputeCard, asked: ComputeRequirement, pick: Pick) -> str:
    return "gpu-type-mismatch" if card.accelerator != asked.accelerator else unfit(view, card, pick.memory_bytes)


def _enough(cards: Sequence[ComputeCard], asked: ComputeRequirement, picks: Sequence[Pick]) -> str:
    """Return the code if the cards have less memory than required."""
    shares = [
        pick.memory_bytes if card.share is ShareMode.MEMORY_SLICE else card.memory_bytes
        for card, pick in zip(cards, picks, strict=True)
    ]
    if sum(shares) >= asked.gpu_bytes:
        return ""
    card, *others = cards
    if others:
        return "aggregate-vram-insufficient"
    if asked.accelerator != NVIDIA:
        return "device-memory-insufficient"
    return f"{Hindrance.NO_MEMORY}:{card.id}" if card.share is ShareMode.MEMORY_SLICE else Hindrance.NO_MEMORY.value
