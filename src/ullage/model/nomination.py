"""Room that is reserved for a request until it is placed or gone."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.allocation import Charge
from ullage.model.claim import Request
from ullage.model.victim import Victim


@dataclass(frozen=True, slots=True)
class Nomination:
    """A request for which room on a node is reserved until it is placed or gone.

    With `gpus` (and what it takes of them, nothing for whole ones) these cards are reserved; without, the cards that
    fit best. `since` is when it was nominated or last requested again (seconds), `victims` were evicted for it. It is
    `owed` once others were evicted or moved for it, or for another member of its gang, or if it moves itself. Then it
    excludes all other requests, of any priority, so that no eviction is in vain. A `hold` does so too, and the request
    already runs there; it may belong to a request that still leaves another place (see
    `core/evicting/consolidation.py`). A `first_come` one also excludes requests of its own priority that were not
    nominated before it.
    """

    request: Request
    node: str
    since: float = 0.0
    gpus: tuple[str, ...] = ()
    charges: tuple[Charge, ...] = ()
    victims: tuple[Victim, ...] = ()
    hold: bool = False
    first_come: bool = False
    owed: bool = False

    @property
    def excludes_all(self) -> bool:
        """Whether it excludes all other requests, of any priority."""
        return self.hold or self.owed
