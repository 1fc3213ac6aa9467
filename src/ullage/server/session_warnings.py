"""Warnings about a session when it is opened."""

from __future__ import annotations

from ullage.core.explaining.zone_warning import width_trap
from ullage.model.application import BUILT_IN
from ullage.model.session import SessionSpec, little_memory
from ullage.service.service import UllageService

_BUILT_IN = frozenset(application.name for application in BUILT_IN)


def session_warnings(service: UllageService, spec: SessionSpec) -> list[str]:
    """Return a sentence for each reason that will keep its executors from starting."""
    trap = width_trap(service.state.fleet, service.policy, spec.resreq)
    little = little_memory(spec.resreq) if spec.application in _BUILT_IN else None
    return [each for each in (trap, little) if each is not None]
