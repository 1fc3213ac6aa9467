"""Room that is kept for a request until it is placed or gone."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.allocation import Charge
from ullage.model.claim import Request
from ullage.model.victim import Victim


@dataclass(frozen=True, slots=True)
class Nomination:
    """A request that room is kept for on a node until it is placed or gone.

    With `gpus` (and what it takes of them, nothing said for whole ones) it is kept there; without, on the cards that
    fit best. `since` is when it was nominated or last asked for again (seconds), `victims` who was evicted for it. It
    is `owed` once others gave way to it or moved for it, or for another one of its gang, or if it moves itself: then
    it keeps everybody else out, whatever their priority, so that nobody is evicted in vain. A `hold` does so too, and
    the request goes where it is; it may be of one that still leaves another place (see
    `core/evicting/consolidation.py`). One that is `first_come` keeps those of its own priority out too, but who was
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
    def keeps_all_out(self) -> bool:
        """Whether nobody else gets this room, whatever their priority."""
        return self.hold or self.owed
