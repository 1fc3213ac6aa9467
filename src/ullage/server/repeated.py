"""The warning of a repeated request that asks for something else than its uid holds: a repeat changes nothing."""

from __future__ import annotations

from dataclasses import replace

from ullage.model.allocation import Allocation
from ullage.model.claim import Request


def repeat_warnings(held: Allocation | None, asked: Request) -> list[str]:
    """Return what a uid holds that is not what is asked, in one sentence. `asked` has the defaults of its quota."""
    if held is None or held.claim is None:
        return []
    has, wants = held.claim, asked.claim
    requirement = replace(asked.requirement, alignment=held.requirement.alignment)  # a server adds its own
    pairs = {
        "": (held.requirement, requirement),
        "the limit ": (has.limit, has.limit if wants.limit is None else wants.limit),
        "namespace ": (has.namespace, wants.namespace),
        "priority ": (has.priority, wants.priority),
    }
    differing = [f"{what}{_text(there)}, not {_text(here)}" for what, (there, here) in pairs.items() if there != here]
    return [f"{asked.uid} exists already and holds {'; '.join(differing)}"] if differing else []


def _text(value: object) -> str:
    return "none" if value is None else str(value).lstrip(",")
