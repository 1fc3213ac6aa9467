"""Hardware slices of cards."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.core.fleet import Fleet
from ullage.model.allocation import Charge
from ullage.model.gpu import Gpu
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement


def template_for(gpu: Gpu, asked: ResourceRequirement) -> object | None:
    return None


def fit(fleet: Fleet, card: int, asked: ResourceRequirement, taken: Sequence[Charge] = ()) -> Charge | Rejection:
    return Rejection(Code.NO_PARTITION_TEMPLATE, Cure.NODE_CHANGE)
