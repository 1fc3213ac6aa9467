"""The needs of a request as rows: of each container, and of all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.core.kernel import board as at
from ullage.core.kernel.pairs import BOUND, WISHED
from ullage.core.topology.resources import ZoneResources
from ullage.model.alignment import AlignmentStage, ContainerNeeds, Level
from ullage.model.provider import pages_of
from ullage.model.quantity import MAX_INT32
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import CARD

Need = tuple[int, int, int, int, int, int]
"""Scope, container, stage, resource, amount, level, as `core/kernel/board.py` says."""

_LEVELS = {Level.PREFERRED: WISHED, Level.REQUIRED: BOUND, Level.SWITCH: BOUND}
_STAGES = {AlignmentStage.INIT: at.INIT, AlignmentStage.SIDECAR: at.SIDECAR, AlignmentStage.APP: at.APP}


def needs_of(asked: ResourceRequirement, resources: ZoneResources) -> list[Need]:
    """Return the needs container by container, then of all as one, in the columns of `core/kernel/board.py`."""
    containers = asked.alignment.containers or (_plain(asked),)
    each = [_amounts(container, resources) for container in containers]
    levels = {resources.code_of(pair.resource): _LEVELS[pair.level] for pair in asked.alignment.pairs}
    rows: list[Need] = []
    for number, (container, amounts) in enumerate(zip(containers, each, strict=True)):
        rows += _rows_of((0, number, _STAGES[container.stage]), amounts, levels)
    whole = _effective([container.stage for container in containers], each)
    rows += _rows_of((1, len(containers), at.APP), whole, levels)
    return rows


def _amounts(needs: ContainerNeeds, resources: ZoneResources) -> dict[int, int]:
    amounts = {at.CPUS: needs.cpus, at.MEMORY: needs.memory_bytes}
    amounts |= {resources.code_of(name): count for name, count in needs.devices}
    amounts |= {resources.code_of(pages_of(size)): size_of for size, size_of in needs.hugepages}
    return {code: amount for code, amount in amounts.items() if amount}


def _rows_of(head: tuple[int, int, int], amounts: dict[int, int], levels: dict[int, int]) -> Iterator[Need]:
    """Yield the rows of a container, with what its cards have to be near, if it has cards."""
    bound = levels if at.CARDS in amounts else {}
    for code in sorted({*amounts, *bound}):
        level = max(bound.values(), default=0) if code == at.CARDS else bound.get(code, 0)
        yield *head, code, amounts.get(code, 0), level


def _plain(asked: ResourceRequirement) -> ContainerNeeds:
    """Return the needs of a request without containers, as of one container. Whole CPUs are exclusive.

    No machine has more CPUs than a container may ask for, so larger numbers are limited to that.
    """
    whole, part = divmod(asked.cpu_milli, MILLI)
    devices = ((CARD, asked.gpu_count),) if asked.gpu_count else ()
    return ContainerNeeds(cpus=0 if part else min(whole, MAX_INT32), devices=devices)


def _effective(stages: Sequence[AlignmentStage], each: Sequence[dict[int, int]]) -> dict[int, int]:
    """Return the peak need of all containers: an init container with the sidecars before it, then all others."""
    together: dict[int, int] = {}
    peak: dict[int, int] = {}
    for stage, amounts in zip(stages, each, strict=True):
        for code, amount in amounts.items():
            if stage is AlignmentStage.INIT:
                peak[code] = max(peak.get(code, 0), together.get(code, 0) + amount)
            else:
                together[code] = together.get(code, 0) + amount
    return {code: max(peak.get(code, 0), together.get(code, 0)) for code in {*peak, *together}}
