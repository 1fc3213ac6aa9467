"""Warnings about a session when it is opened or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.limits import unreachable
from ullage.core.explaining.zone_warning import width_trap
from ullage.core.placing.policy import Policy
from ullage.core.sharing.reach import Reach
from ullage.core.sharing.world import Demand
from ullage.model.application import BUILT_IN
from ullage.model.queue import Queue
from ullage.model.session import SessionSpec, memory_warning
from ullage.service.service import UllageService
from ullage.service.state import SessionRecord

_BUILT_IN = frozenset(application.name for application in BUILT_IN)


def warning_session(service: UllageService, record: SessionRecord) -> Callable[[Fleet], list[str]]:
    """Return a function of the books, or of a copy, that returns a sentence for each obstacle to executors."""
    spec, policy, queues = record.session.spec, service.policy, tuple(service.state.queues.values())
    demand = service.state.demand(record, record.session.created_at)  # what is read of it is the same at any time
    return lambda fleet: _warnings(fleet, policy, demand, spec, queues=queues)


def _warnings(fleet: Fleet, policy: Policy, demand: Demand, spec: SessionSpec, *, queues: Iterable[Queue]) -> list[str]:
    trap = width_trap(fleet, policy, spec.resreq)
    never = unreachable(Reach(fleet, policy, queues), demand)
    little = memory_warning(spec.resreq) if spec.application in _BUILT_IN else None
    return [each for each in (trap, never, little) if each is not None]
