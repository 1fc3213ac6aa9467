"""Warnings about a session when it is opened or changed."""

from __future__ import annotations

from ullage.core.explaining.limits import unreachable
from ullage.core.explaining.zone_warning import width_trap
from ullage.core.sharing.world import World
from ullage.model.application import BUILT_IN
from ullage.model.session import little_memory
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord

_BUILT_IN = frozenset(application.name for application in BUILT_IN)


def session_warnings(service: UllageService, record: SessionRecord) -> list[str]:
    """Return a sentence for each thing that will keep its executors from starting."""
    state, spec = service.state, record.session.spec
    trap = width_trap(state.fleet, service.policy, spec.resreq)
    demand = state.demand(record, record.session.created_at)  # what is read of it is the same at any time
    never = unreachable(World(state.fleet, queues=tuple(state.queues.values())), service.policy, demand)
    little = little_memory(spec.resreq) if spec.application in _BUILT_IN else None
    return [each for each in (trap, never, little) if each is not None]
