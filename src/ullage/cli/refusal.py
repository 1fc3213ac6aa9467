"""A refusal of cards, on the screen: its code, its reason, and what could help."""

from __future__ import annotations

from ullage.cli.exits import TRY_AGAIN, UNPLACEABLE, complain
from ullage.cli.output import print_json
from ullage.cli.parts import show_part, show_tflops
from ullage.model.rejection import Cure
from ullage.wire.allocation import PartMap, RefusalBody


def report_refusal(refusal: RefusalBody, output: str) -> int:
    """Show it, as JSON too if that is the output; its exit code."""
    if output == "json":
        print_json(refusal)
    complain(f"{refusal.code}: {refusal.message}", what_helps(refusal))
    return TRY_AGAIN if refusal.curable else UNPLACEABLE


def what_helps(refusal: RefusalBody) -> str:
    """Return what the one who asked can do about it."""
    if refusal.warnings:
        return "; ".join(refusal.warnings)
    most, cure = refusal.max_request, refusal.rejections[0].cure if refusal.rejections else None
    if most is not None:
        part = PartMap(
            tflops=show_tflops(most.compute_gflops),
            percent=None if most.compute_percent is None else f"{most.compute_percent:g}",
            vram=most.vram_bytes,
        )
        return f"the most that there is room for is {show_part(part)} of each card"
    if cure == Cure.NEVER:
        return "ask for less, or raise the quota of the namespace; waiting does not help"
    if cure == Cure.QUOTA:
        return "free something of the namespace, or raise its quota; `ullage quotas` shows how it stands"
    if refusal.curable:
        return "freed cards could help; `ullage gpus` shows who holds them"
    return "freed cards would not help: ask for less, or for other cards; `ullage gpus` shows what there is"
