"""A decision in the ledger: who holds what, where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ullage.model.request import ResourceRequirement


class AllocationState(StrEnum):
    """Assumed when decided, bound when its process lives, releasing until that process is known gone."""

    ASSUMED = "assumed"
    BOUND = "bound"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Allocation:
    """An executor's charge on one node: `gpus` are the uuids of the cards it holds whole."""

    id: str
    node: str
    requirement: ResourceRequirement
    gpus: tuple[str, ...] = ()
    state: AllocationState = AllocationState.ASSUMED
