"""The context that all use cases of one service share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ullage.core.placing.policy import Policy
from ullage.service.accounting import Accounting
from ullage.service.engine_port import Engine
from ullage.service.events import Events
from ullage.service.journal import Journal
from ullage.service.news import News
from ullage.service.state import State
from ullage.service.store_port import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """The parts of one service that its use cases need.

    `clock` is the time in seconds since 1970, and never goes back. `changed` requests a turn of the loop: soon, or with
    True at once.
    """

    state: State
    store: Store
    journal: Journal
    engine: Engine
    events: Events
    accounting: Accounting
    news: News
    policy: Policy
    clock: Callable[[], float]
    changed: Callable[[bool], None]
