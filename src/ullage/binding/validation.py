"""Check whether an application may have the chosen cards. The first fault is reported.

The codes are those that clients know, with the card or node behind a colon; of our own are `device-draining:X`
(somebody leaves who came under another mode), `tenants-exhausted:X` (no more may take turns),
`owner-quota:R` (the owner would have more of R than allowed: `cards` or `vram`) and `bound-cards-shared-differently:N`
(cards of the node N have different support types, and a pod takes all cards that are bound for it there).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ullage.binding.limits import beyond_quota, pressure
from ullage.binding.room import Hindrance
from ullage.binding.rows import rows_of
from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.compute import NVIDIA, AppKey, AvailabilityScope, ComputeCard, ComputeRequirement, Pick
from ullage.model.compute_answer import Validation


def validate(
    view: BindingView,
    asked: ComputeRequirement,
    picks: Sequence[Pick],
    app: AppKey,
    *,
    install: bool = False,
    singly: bool = False,
) -> Validation:
    """Judge a choice for an application, whose own rows the view must not have.

    With `singly` each of its pods takes one of the cards, so they may be shared in different ways.
    """
    code = _named(view, picks) or _together(asked, picks)
    if code:
        return Validation(code)
    cards = [view.cards[pick.key] for pick in picks]
    code = next(filter(None, (_alone(view, card, asked, pick) for card, pick in zip(cards, picks, strict=True))), "")
    code = code or ("" if singly else mixed(cards)) or _enough(cards, asked, picks)
    code = code or beyond_quota(view, app, rows_of(view, app, asked, picks))
    if code:
        return Validation(code)
    for name in dict.fromkeys(pick.node for pick in picks):
        found = pressure(view.node(name), asked.room(install=install))
        if found.pressured:
            return Validation(f"node-pressure:{name}", found)
    return Validation()


def mixed(cards: Iterable[ComputeCard]) -> str:
    """Return the code for cards of one node that are shared differently; "" where each node has one support type."""
    shares = defaultdict(set)
    for card in cards:
        shares[card.node].add(card.share)
    node = next((node for node, found in shares.items() if len(found) > 1), "")
    return f"{Hindrance.MIXED}:{node}" if node else ""


def unfit(view: BindingView, card: ComputeCard, memory_bytes: int) -> str:
    """Return what keeps an application from a card whatever it asks in all; "" for nothing."""
    if not view.usable(card):
        return f"device-unhealthy:{card.id}"
    rejected = view.room(card).reject(memory_bytes)
    if rejected is not None:
        return rejected.text
    if card.share is not ShareMode.MEMORY_SLICE:
        return ""
    if memory_bytes <= 0:
        return f"memory-required:{card.id}"
    return "" if card.memory_bytes else f"{Hindrance.NO_MEMORY}:{card.id}"  # an unknown amount cannot be shared out


def _named(view: BindingView, picks: Sequence[Pick]) -> str:
    """Return whether a choice names cards that are there, each once."""
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
    """Return whether an application can use so many cards, in so many places."""
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
    """Return whether the cards come to what is required."""
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
