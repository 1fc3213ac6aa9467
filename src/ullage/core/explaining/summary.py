"""The reason of a session in one sentence, with its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.sharing.world import Demand
from ullage.core.verdict.sentences import (
    AMOUNTS,
    MEANINGS,
    amount_text,
    first_text,
    reject_text,
    show_amount,
    zone_numbers,
)
from ullage.model.counted import counted
from ullage.model.rejection import Code, Cure, Rejection

_OF_CARDS = frozenset({Code.GPU, Code.GPU_COMPUTE, Code.GPU_VRAM, Code.GPU_SHARE})


def summary(
    code: Code, demand: Demand | None, rejections: Sequence[Rejection] = (), deserved: int = 0, held: int = 0
) -> str:
    """Return the reason in one sentence with its numbers."""
    by_zones = sorted((each for each in rejections if each.of_zones), key=lambda each: not each.zones)
    if code is Code.TOO_LARGE and not _best(rejections) and by_zones:
        return f"no node can take it: {reject_text(by_zones[0])}"
    if code is Code.ABOVE_LIMIT and rejections:
        return first_text(rejections)
    too_few = max((each for each in rejections if each.code is Code.NOT_ENOUGH_CARDS), key=_had, default=None)
    if too_few is not None and code in (Code.TOO_LARGE, Code.GPU) and not _best(rejections):
        return f"{'no node can take it' if code is Code.TOO_LARGE else MEANINGS[code]}: {reject_text(too_few)}"
    excluded = _excluded(rejections) if code is Code.TOO_LARGE else None
    if excluded is not None:
        return f"no node can take it: {first_text([each for each in rejections if each.code is excluded])}"
    numbers = "" if demand is None else _numbers(code, demand, rejections, deserved=deserved, held=held)
    return f"{MEANINGS[code]}: {numbers}" if numbers else MEANINGS[code]


def _had(rejection: Rejection) -> int:
    return rejection.had


def _numbers(code: Code, demand: Demand, rejections: Sequence[Rejection], *, deserved: int, held: int) -> str:
    if code is Code.TOO_LARGE:
        best = _best([rejection for rejection in rejections if rejection.cure is Cure.NODE_CHANGE])
        return _shortfall(best) if best else f"a gang of {demand.batch_size} does not fit all of them together"
    if code in (Code.NOT_ALIGNED, Code.BROKEN_CORES):
        return next((zone_numbers(rejection) for rejection in rejections if rejection.code is code), "")
    if code in AMOUNTS:
        kin = _OF_CARDS if code is Code.GPU else {code}
        best = _best([rejection for rejection in rejections if rejection.code in kin])
        return _shortfall(best) if best else ""
    numbers = {
        Code.SHARE: f"it holds {counted(held, 'executor')}, deserves {deserved}, wants {demand.want}",
        Code.GANG_INCOMPLETE: f"{demand.pending % demand.batch_size} of {demand.batch_size}",
        Code.MAX_INSTANCES: str(demand.max_instances),
        Code.RUNNING: counted(held, "executor"),
    }
    return numbers.get(code, "")


def _best(rejections: Sequence[Rejection]) -> Rejection | None:
    """Return the node that comes closest."""
    counted = [rejection for rejection in rejections if rejection.code in AMOUNTS]
    return min(counted, key=lambda r: (r.needed - r.had) / max(r.needed, 1), default=None)


def _excluded(rejections: Sequence[Rejection]) -> Code | None:
    """Return what rules cards out most often, if no node is merely too small."""
    codes = [r.code for r in rejections if r.gpu is not None and r.cure is Cure.NODE_CHANGE]
    return None if _best(rejections) or not codes else max(codes, key=codes.count)


def _shortfall(rejection: Rejection) -> str:
    needed, had = show_amount(rejection.code, rejection.needed), show_amount(rejection.code, rejection.had)
    verb = "has" if rejection.cure is Cure.NODE_CHANGE else "has free"
    best = f"the best node ({rejection.node})" if rejection.gpu is None else _best_card(rejection)
    return f"it needs {amount_text(rejection.code, needed)}, {best} {verb} {had}"


def _best_card(rejection: Rejection) -> str:
    return f"the best card ({rejection.gpu} on {rejection.node})"
