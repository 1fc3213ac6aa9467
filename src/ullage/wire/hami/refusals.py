"""The refusal of a pod by a node, in HAMi's texts: `2/4 CardInsufficientMemory, 1/4 CardCordoned`.

Schedulers count equal texts over nodes, so there are few texts, without names and amounts. A code of ours for which
HAMi has no text stands for itself. `ullage why` and the events of a pod have the details.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ullage.model.part import Isolation
from ullage.model.quantity import PPM
from ullage.model.rejection import Code, Rejection

UNREGISTERED = "node unregistered"
"""A node without known cards."""

TOO_FEW = "NodeInsufficientDevice"
TOO_FEW_LEFT = "AllocatedCardsInsufficientRequest"

_QUOTA = "ResourceQuotaNotFit"
_MUTEX = "mutex busy"
_EXCLUSIVE = "ExclusiveDeviceAllocateConflict"
_NO_CORES = "CardComputeUnitsExhausted"

_OF_CARDS: dict[str, tuple[Code, ...]] = {
    "CardNotHealth": (Code.GPU_MISSING, Code.GPU_NOT_RUNNING, Code.NO_CAPACITY),
    "CardCordoned": (Code.GPU_CORDONED,),
    "CardTypeMismatch": (
        *(Code.WRONG_MODEL, Code.WRONG_VENDOR, Code.ISOLATION_POLICY, Code.ISOLATION_UNSUPPORTED),
        *(Code.ISOLATION_LOCKED, Code.ISOLATION_CONFLICT),
    ),
    "NumaNotFit": (
        *(Code.TOPOLOGY_UNKNOWN, Code.NODE_POLICY_WEAKER, Code.ZONES_TOO_MANY, Code.NOT_ALIGNED),
        *(Code.SHORT_ALLOCATION, Code.BROKEN_CORES, Code.NOT_LINKED, Code.OFF_SWITCH, Code.REFUSED_THERE),
    ),
    "CardUuidMismatch": (Code.WRONG_UUID, Code.WRONG_INDEX),
    "CardTimeSlicingExhausted": (Code.GPU_USERS, Code.WORKER_CAP, Code.SLOTS),
    _MUTEX: (),
    _QUOTA: tuple(code for code in Code if code.name.startswith("QUOTA_")),
    "CardInsufficientMemory": (Code.GPU_VRAM, Code.GPU_SHARE),
    "CardInsufficientCore": (Code.GPU_COMPUTE,),
    _EXCLUSIVE: (Code.GPU_NOT_IDLE,),
    _NO_CORES: (),
    "CardMigTopologyInfeasible": (
        *(Code.NO_PARTITION_TEMPLATE, Code.PARTITION_COUNT, Code.TEMPLATE_MAX, Code.EXTENDED_RESOURCE),
        *(Code.NO_PARTITION_SLOT, Code.NO_ISOLATION_GROUP),
    ),
}
"""HAMi's texts about cards in the order in which they are reported, and our codes for each."""

_TEXT = {code: text for text, codes in _OF_CARDS.items() for code in codes}
_ORDER = {text: place for place, text in enumerate(_OF_CARDS)}
_OF_NODES = frozenset(
    {Code.CPU, Code.MEMORY, Code.NOT_READY, Code.CORDONED, Code.NODE_AFFINITY, Code.NODE_TAINTED, Code.NODE_UNKNOWN}
    | {Code.OVERSUBSCRIPTION}
)
"""Codes that are reported without numbers of cards, as they apply to all cards of a node."""
_NOT_OF_ONE_CARD = _OF_NODES | {Code.NOT_ENOUGH_CARDS}


def refusal_text(rejections: Sequence[Rejection], cards: int, asked: int = 1, *, mutex: bool = False) -> str:
    """Return the text for one node with `cards` cards, for a request of `asked` cards.

    Each card counts once, by its first rejection. With `mutex` the pod requested idle cards only.
    """
    if not cards:
        return UNREGISTERED
    if asked > cards:
        return TOO_FEW
    first: dict[str | None, Rejection] = {}
    for rejection in rejections:
        if rejection.code not in _NOT_OF_ONE_CARD:
            first.setdefault(rejection.gpu, rejection)
    counts = Counter(_text(rejection, mutex=mutex) for rejection in first.values())
    texts = [f"{counts[text]}/{cards} {text}" for text in sorted(counts, key=lambda text: (_ORDER.get(text, 99), text))]
    texts += dict.fromkeys(rejection.code.value for rejection in rejections if rejection.code in _OF_NODES)
    if any(rejection.code is Code.NOT_ENOUGH_CARDS for rejection in rejections):
        texts.append(f"{cards - len(first)}/{cards} {TOO_FEW_LEFT}")
    return ", ".join(texts)


def _text(rejection: Rejection, *, mutex: bool) -> str:
    code = rejection.code
    if code is Code.GPU_NOT_IDLE and mutex:
        return _MUTEX
    if (code is Code.GPU_COMPUTE and not rejection.needed) or rejection.mode is Isolation.SHARED:
        return _NO_CORES
    if code is Code.GPU_SHARE and rejection.needed >= PPM:
        return _EXCLUSIVE
    return _TEXT.get(code, code.value)
