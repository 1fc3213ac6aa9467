"""The text of a refusal: its code, its reason, and a hint."""

from __future__ import annotations

from typing import NamedTuple

from ullage.cli.exits import TRY_AGAIN, UNPLACEABLE, complain
from ullage.cli.output import DATA, print_data
from ullage.cli.parts import show_part, show_tflops
from ullage.model.rejection import Cure
from ullage.wire.allocation import PartMap, RefusalBody


class Lists(NamedTuple):
    """The commands that list cards and quotas."""

    cards: str
    quotas: str


LISTS = Lists("ullage gpus", "ullage quotas")


def report_refusal(refusal: RefusalBody, output: str) -> int:
    """Print a refusal, in JSON also on stdout. Return its exit code."""
    if output in DATA:
        print_data(refusal, output)
    complain(f"{refusal.code}: {refusal.message}", hint_of(refusal))
    return TRY_AGAIN if refusal.curable else UNPLACEABLE


def hint_of(refusal: RefusalBody, lists: Lists = LISTS) -> str:
    """Return a hint for the user."""
    if refusal.warnings:
        return "; ".join(refusal.warnings)
    most, cure = refusal.max_request, refusal.rejections[0].cure if refusal.rejections else None
    if most is not None and (most.compute_gflops or most.compute_percent or most.vram_bytes or most.vram_percent):
        part = PartMap(
            tflops=show_tflops(most.compute_gflops),
            percent=None if most.compute_percent is None else f"{most.compute_percent:g}",
            vram=most.vram_bytes,
        )
        return f"at most {show_part(part)} of each card fits"
    if cure == Cure.NEVER:
        return "ask for less, or raise the quota of the namespace; waiting does not help"
    if cure == Cure.QUOTA:
        return f"free allocations of the namespace, or raise its quota; `{lists.quotas}` shows its usage"
    if refusal.curable:
        return f"freed cards could help; `{lists.cards}` shows their holders"
    return f"freed cards would not help: ask for less, or for other cards; `{lists.cards}` lists the cards"
