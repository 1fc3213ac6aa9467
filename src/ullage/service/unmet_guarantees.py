"""Sessions that wait while guarantees take more than there is."""

from __future__ import annotations

from dataclasses import replace

from ullage.core.explaining.explain import Reasons
from ullage.core.verdict.sentences import CURES
from ullage.model.rejection import Cure


def with_unmet(reasons: Reasons, unmet: tuple[str, ...]) -> Reasons:
    """Return why a session waits for room, with the guarantees that all nodes together cannot meet."""
    if CURES.get(reasons.code) is not Cure.CAPACITY:
        return reasons
    return replace(reasons, warnings=(*reasons.warnings, *unmet))
