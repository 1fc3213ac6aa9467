"""Warnings about a session when it is opened or changed."""

from __future__ import annotations

from collections.abc import Callable

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.limits import unreachable
from ullage.core.explaining.zone_warning import width_trap
from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import Demand, World
from ullage.model.application import BUILT_IN
from ullage.model.session import SessionSpec, memory_warning
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord

_BUILT_IN = frozenset(application.name for application in BUILT_IN)


def warning_session(service: UllageService, record: SessionRecord) -> Callable[[Fleet], list[str]]:
    """Return a function of the books, or of a copy, that returns a sentence for each obstacle to executors."""
    spec, policy, queues = record.session.spec, service.policy, tuple(service.state.queues.values())
    demand = service.state.demand(record, record.session.created_at)  # what is read of it is the same at any time
    return lambda fleet: _warnings(World(fleet, queues=queues), policy, demand, spec)


def _warnings(world: World, policy: Policy, demand: Demand, spec: SessionSpec) -> list[str]:
    trap = width_trap(world.fleet, policy, spec.resreq)
    never = unreachable(world, policy, demand)
    little = memory_warning(spec.resreq) if spec.application in _BUILT_IN else None
    return [each for each in (trap, never, little) if each is not None]
