"""The words for a request that fits nowhere: what is asked, what comes closest, what was looked at, what helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ullage.core.explaining.cures import cure_text
from ullage.core.explaining.nowhere import KINDS, OF_NODES, Nowhere, RefusalCause
from ullage.core.verdict.sentences import MEANINGS, reject_text, show_amount
from ullage.model.counted import counted
from ullage.model.quantity import PPM, format_bytes, format_decimal, say_bytes
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement
from ullage.model.resources import show_milli


def asked_text(asked: ResourceRequirement) -> str:
    """Return what a request asks as people say it: `100Gi on one card`, `2 whole cards, cpu=4, numa=restricted`."""
    node = [f"cpu={show_milli(asked.cpu_milli)}"] if asked.cpu_milli else []
    node += [f"mem={format_bytes(asked.memory_bytes)}"] if asked.memory_bytes else []
    cards = [f"{cards_text(asked)}{str(asked.cards).replace(',', ', ')}"] if asked.gpu_count else []
    policy, pairs = asked.alignment.policy, asked.alignment.pairs
    zones = [f"numa={policy}"] if policy is not None else []
    zones += [f"links={asked.alignment.links}"] if asked.alignment.links is not None else []
    return ", ".join([*cards, *node, *zones, *map(str, pairs)]) or "nothing"


def cards_text(asked: ResourceRequirement) -> str:
    """Return the cards of a request: `2 whole cards`, `40Gi and 25 % of the compute on each of 2 cards`."""
    part, count = asked.part, asked.gpu_count
    if part is None or asked.whole or part.fraction_ppm == PPM:
        return counted(count, "whole card")
    where = "on one card" if count == 1 else f"on each of {count} cards"
    if part.fraction_ppm:
        return (
            f"{format_decimal(part.fraction_ppm)} of one card"
            if count == 1
            else (f"{format_decimal(part.fraction_ppm)} of each of {count} cards")
        )
    amounts = [say_bytes(part.vram_bytes)] if part.vram_bytes else []
    amounts += [f"{_percent(part.vram_ppm)} of the vram"] if part.vram_ppm else []
    amounts += [f"{show_milli(part.compute_gflops)} TFLOPS"] if part.compute_gflops else []
    amounts += [f"{_percent(part.compute_ppm)} of the compute"] if part.compute_ppm else []
    return f"{' and '.join(amounts) or 'a place'} {where}"


def nowhere_text(found: Nowhere, say: Callable[[ResourceRequirement], str] = asked_text) -> str:
    """Return why a request fits nowhere, in one line: what it asks, what comes closest, what helps, what else is there.

    `asks for 100Gi on one card; the largest has 80Gi (all 8,000 cards of 1,000 nodes looked at); 80Gi on one card would
    fit on 212 nodes now`. If nothing smaller fits, it says what else helps. `say` returns the words for a request that
    would fit; "" if the asker has none for it.
    """
    if not found.causes:
        return f"asks for {asked_text(found.asked)}; no node was offered"
    looked = counted(found.nodes, "node")
    if found.cards:
        looked = f"all {found.cards:,} cards of {looked}" if found.cards > 1 else f"1 card of {looked}"
    first, *others = found.causes
    parts = [f"asks for {asked_text(found.asked)}", f"{_nearest(found, first.rejection)} ({looked} looked at)"]
    if found.smaller is None:
        parts.append(cure_text(_never_free(found, first.rejection)))
    else:
        words = say(found.smaller) or asked_text(found.smaller)
        parts.append(f"{words} would fit on {counted(found.room, 'node')} now")
    parts += [f"{_counted(cause)}: {_meaning(cause.rejection)}" for cause in others]
    return "; ".join(filter(None, parts))


def _never_free(found: Nowhere, nearest: Rejection) -> Rejection:
    """Return a rejection that freed cards do not cure where more are asked than the largest node has."""
    return replace(nearest, cure=Cure.NODE_CHANGE) if found.asked.gpu_count > found.most > 0 else nearest


def _nearest(found: Nowhere, nearest: Rejection) -> str:
    """Return what the best card or node has."""
    code, had = nearest.code, show_amount(nearest.code, nearest.had)
    small = nearest.cure is Cure.NODE_CHANGE
    if (of_number := _by_number(found, code)) is not None:
        text = of_number
    elif code in (Code.GPU_VRAM, Code.GPU_COMPUTE, Code.GPU_SHARE) and nearest.needed:
        had = _of_card(found.asked, nearest) or had
        text = f"the largest has {had}" if small else f"the most that is free of one is {had}"
    elif code in (Code.CPU, Code.MEMORY) and nearest.needed:
        what = "cpu" if code is Code.CPU else "memory"
        text = f"the best node has {had} {what}{'' if small else ' free'}"
    else:
        named = nearest.wanted and code is not Code.NODE_TAINTED  # a taint is named by its node alone
        text = MEANINGS[code] if named else reject_text(nearest)
        text += f": there is {', '.join(nearest.found)}" if nearest.found and code in _OF_SLICES else ""
        text += f": there are {', '.join(found.kinds)}" if found.kinds and code in KINDS else ""
    return text


def _of_card(asked: ResourceRequirement, nearest: Rejection) -> str:
    """Return what the best card has in percent of it, where percent of a card are asked; "" where amounts are."""
    part = asked.part
    if part is None or nearest.code not in (Code.GPU_VRAM, Code.GPU_COMPUTE) or not nearest.needed:
        return ""
    share, what = (part.vram_ppm, "vram") if nearest.code is Code.GPU_VRAM else (part.compute_ppm, "compute")
    had = show_amount(nearest.code, nearest.had)
    return f"{_percent(share * nearest.had // nearest.needed)} of its {what} ({had})" if share else ""


def _by_number(found: Nowhere, code: Code) -> str | None:
    """Return what the best node has where the number of cards is the cause; None where it is not."""
    count = found.asked.gpu_count
    if count and not found.most and code is Code.NO_CANDIDATE:
        return "no node has cards"
    if count > found.most > 0:
        return f"the largest node has {counted(found.most, 'card')}"
    parts = count > 1 and code in (Code.GPU_VRAM, Code.GPU_COMPUTE, Code.GPU_SHARE)
    return _such(found.best) if found.could >= count and (parts or code in _NUMBER_OF_CARDS) else None


def _such(cards: int) -> str:
    return f"the best node has {counted(cards, 'such card')} free"


_OF_SLICES = frozenset({Code.NO_PARTITION_TEMPLATE, Code.NO_PARTITION_SLOT})
_NUMBER_OF_CARDS = frozenset({Code.GPU_NOT_IDLE, Code.NOT_ENOUGH_CARDS, Code.GPU})


def _meaning(rejection: Rejection) -> str:
    if rejection.code is Code.NO_CANDIDATE:
        return "no cards"
    if rejection.code in (Code.GPU_VRAM, Code.GPU_COMPUTE) and rejection.cure is Cure.NODE_CHANGE:
        return f"too small when empty, the largest has {show_amount(rejection.code, rejection.had)}"
    return MEANINGS[rejection.code]


def _counted(cause: RefusalCause) -> str:
    return counted(cause.count, "node" if cause.rejection.code in OF_NODES else "card")


def _percent(ppm: int) -> str:
    return show_amount(Code.QUOTA_TOTAL_CORES, ppm)
