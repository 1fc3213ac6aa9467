"""Equal values of the pods of one workload are kept once: labels, requests, and what these take of a card.

Only recent values are known, so that none is kept for long after its last pod.
"""

from __future__ import annotations

from functools import lru_cache

from ullage.model.allocation import Charge
from ullage.model.request import ResourceRequirement

_MOST = 8192


@lru_cache(_MOST)
def shared_texts(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return a dictionary with these items. Nobody may change it: others with equal items have it too."""
    return dict(items)


@lru_cache(_MOST)
def shared_requirement(asked: ResourceRequirement) -> ResourceRequirement:
    """Return an equal requirement."""
    return asked


def shared_charges(charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """Return equal charges, of the same basis."""
    return _charges(charges, tuple((each.basis, each.mixed) for each in charges)) if charges else ()


@lru_cache(_MOST)
def _charges(charges: tuple[Charge, ...], _further: object) -> tuple[Charge, ...]:
    return charges
