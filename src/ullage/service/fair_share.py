"""Fair share over time: the weights of queues and owners, by what they used in the past.

The core divides by weights what is there now. With a half-life, weights change with past use, so that use over time
follows the weights as they are set. Sources of the rule:

- Siblings are compared by the part that each used of what they used together, and by the part that its weight gives,
  as the level fair share of Slurm's Fair Tree does. The factor halves with each multiple of its part that one is above,
  and past use decays with a half-life, as in Slurm's classic fair share, F = 2^(-U/S) (priority/multifactor,
  PriorityDecayHalfLife).
- Use is measured against what could have been used, not only against that of the others, and weights of the DRF change
  and nothing else, as in the time-aware fairness of KAI-Scheduler. So minutes on an idle machine cost nothing.

Owners are siblings in their queue, all of one weight, which the weights of their sessions divide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from typing import NamedTuple

from ullage.core.learning.learned import Later, at_once
from ullage.model.history import Stay
from ullage.model.past_use import DecayedUse, ShareKey
from ullage.model.queue import ROOT, Queue
from ullage.model.queue_bounds import upwards
from ullage.model.resources import Resources
from ullage.service.accounting import Accounting
from ullage.service.past_use import NO_USE, PastUse
from ullage.service.state import SessionRecord, State

EMPHASIS = 2.0
"""Who used twice its part of a machine that was always busy has its weight divided by two to this power."""

STEPS = (3, 4, 6, 8, 12, 16, 24, 36, 48)
"""The factors of weights, in 24ths: from an eighth to two. Weights are integers, so all of them are multiplied."""

ONE = 24
"""The factor that changes nothing."""

_STAY = 0.75
"""How far towards the next factor the exact one must be, in logarithms, before the next one applies."""

UPDATE_S = 300.0
"""Seconds between two updates of the factors, as Slurm's PriorityCalcPeriod; less with a half-life of some hours."""

_UPDATES = 50
"""Updates in one half-life, at least."""

_SPLIT = 1 << 20
"""The weight of an owner before it is divided."""

_BITS = 6
"""Significant bits of the weight of a session: a few different weights keep the arithmetic of the core small."""


class ShareStanding(NamedTuple):
    """What a queue used, or an owner in a queue, and what follows.

    `part` is what it used of what its siblings that have work used together, `due` what its weight gives. Both are None
    without work. Its weight is multiplied by `step` 24ths.
    """

    used: DecayedUse
    part: float | None = None
    due: float | None = None
    step: int = ONE

    @property
    def factor(self) -> float:
        """The factor of its weight."""
        return self.step / ONE


class KnownStandings(NamedTuple):
    """How queues, and owners that compete, stood at a time."""

    at: float
    standings: Mapping[ShareKey, ShareStanding]


class Weighed(NamedTuple):
    """Queues with the weights that apply now, and weights of sessions; a session that is not named has its own."""

    queues: tuple[Queue, ...]
    sessions: Mapping[str, int]


def as_they_are(state: State) -> Weighed:
    """Return the weights without a half-life: those that are set."""
    return Weighed(tuple(state.queues.values()), {})


class _Judged(NamedTuple):
    """One of several siblings: its part of their use, the part that its weight gives, and the exact factor."""

    part: float
    due: float
    exponent: float
    """Its factor is two to this power."""


class _Judgement(NamedTuple):
    """What was used at a time, and how those that compete stand."""

    at: float
    used: Mapping[ShareKey, DecayedUse]
    judged: Mapping[ShareKey, _Judged]

    def standings(self, steps: Mapping[ShareKey, int]) -> dict[ShareKey, ShareStanding]:
        """Return how all stand, with the factors that apply."""
        return {
            key: ShareStanding(self.used.get(key, NO_USE), *_parts(self.judged.get(key)), step=steps.get(key, ONE))
            for key in sorted({*self.used, *self.judged}, key=_place)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Present:
    """What factors follow from, copied for another thread: there may be many owners. `owners` compete."""

    now: float
    past: PastUse
    stays: Sequence[Stay]
    owners: frozenset[ShareKey]
    queues: Mapping[str, Queue]
    total: Resources

    def judge(self, of: Collection[ShareKey] | None) -> _Judgement:
        """Return what all queues and these owners used, by default all, and how those stand that compete."""
        used = _with_above(self.past.used(self.stays, self.now, of), self.queues)
        return _Judgement(self.now, used, dict(self._judged(used)))

    def _judged(self, used: Mapping[ShareKey, DecayedUse]) -> Iterator[tuple[ShareKey, _Judged]]:
        """Yield how those that compete stand among their siblings, from the root down."""
        below = self._siblings()
        rooms = [(ROOT, self.past.half_life.steady_s)]
        while rooms:
            above, room = rooms.pop()
            siblings = below.get(above, {})
            amounts = {key: used.get(key, NO_USE).dominant_s(self.total) for key in siblings}
            for key, judged in _judged(siblings, amounts, room):
                yield key, judged
                if key.owner is None:
                    rooms.append((key.queue, room * judged.due))

    def _siblings(self) -> dict[str, dict[ShareKey, int]]:
        """Return the weights of those that compete, by the queue above them; owners have a weight of 1 each."""
        found: dict[str, dict[ShareKey, int]] = {}
        for key in sorted(self.owners, key=_place):
            found.setdefault(key.queue, {})[key] = 1
        for name in tuple(found):
            for queue in upwards(self.queues, name):
                found.setdefault(queue.parent, {})[ShareKey(queue.name)] = queue.weight
        return found


class FairShare:
    """The factors by past use. They are computed every few minutes, and when a new queue or owner competes.

    That is done by `later`, in another thread; then `changed` is called if a factor changed.
    """

    def __init__(
        self,
        past: PastUse,
        state: State,
        accounting: Accounting,
        clock: Callable[[], float],
        *,
        later: Later = at_once,
        changed: Callable[[bool], None] = lambda _urgent: None,
    ) -> None:
        self.past, self._state, self._accounting, self._clock = past, state, accounting, clock
        self._later, self._changed = later, changed
        self.every_s = min(UPDATE_S, past.half_life.seconds / _UPDATES)
        self._steps: dict[ShareKey, int] = {}
        """The factor that applies to each queue, and owner in a queue, that competes."""
        self._due = 0.0
        self._owners: frozenset[ShareKey] = frozenset()
        """Those that the last update is about."""
        self._updating = False
        self._judgement: _Judgement | None = None
        self._known = KnownStandings(-inf, {})

    def expire(self, now: float) -> float | None:
        """Update the factors if it is time. Return when the next update is due; None is while nobody competes."""
        owners = self._competing_owners()
        if not owners:
            return None
        if not self._updating and (now >= self._due or not owners <= self._owners):
            self.past.forget(now)
            self._due, self._owners, self._updating = now + self.every_s, owners, True
            present = self._present(now, owners)
            self._later(lambda: present.judge(owners), self._update)
        return self._due

    def _update(self, judgement: _Judgement) -> None:
        before, self._updating = self._steps, False
        judged = judgement.judged.items()
        self._steps = {key: _step(each.exponent, before.get(key, ONE)) for key, each in judged}
        self._judgement = judgement
        if before != self._steps:
            self._changed(False)

    def weigh(self, also: str | None = None) -> Weighed:
        """Return the weights for a cycle; `also` names a session that gets one although it has no work."""
        records = [*self._competing()]
        if also is not None and not _competes(self._state.sessions[also]):
            records.append(self._state.sessions[also])
        weights: dict[ShareKey, int] = {}
        for record in records:
            weights[_key(record)] = weights.get(_key(record), 0) + record.session.spec.weight
        queues = (
            replace(queue, weight=queue.weight * self._steps.get(ShareKey(queue.name), ONE))
            for queue in self._state.queues.values()
        )
        return Weighed(tuple(queues), {record.id: self._weight(record, weights[_key(record)]) for record in records})

    def known(self) -> KnownStandings:
        """Return how queues stand that used something or have work, and owners that have work.

        It is as old as the last update, while somebody competes: for answers that are given often.
        """
        now, judgement = self._clock(), self._judgement
        if judgement is None or (now >= judgement.at + self.every_s and not self._updating):
            owners = self._competing_owners()
            self._judgement = judgement = self._present(now, owners).judge(owners)
        if self._known.at != judgement.at:
            self._known = KnownStandings(judgement.at, judgement.standings(self._steps))
        return self._known

    def standings(self) -> dict[ShareKey, ShareStanding]:
        """Return how queues and owners stand that used something or have work."""
        return self.reporting()()

    def reporting(self) -> Callable[[], dict[ShareKey, ShareStanding]]:
        """Return a function for another thread that returns `standings` of the present."""
        present, steps = self._present(self._clock(), self._competing_owners()), self._steps
        return lambda: present.judge(None).standings(steps)

    def _competing(self) -> Iterator[SessionRecord]:
        return (record for record in self._state.sessions.values() if _competes(record))

    def _competing_owners(self) -> frozenset[ShareKey]:
        return frozenset(_key(record) for record in self._competing())

    def _present(self, now: float, owners: frozenset[ShareKey]) -> _Present:
        return _Present(
            now=now,
            past=self.past.copy(),
            stays=self._accounting.stays,
            owners=owners,
            queues=dict(self._state.queues),
            total=self._state.fleet.total,
        )

    def _weight(self, record: SessionRecord, together: int) -> int:
        step = self._steps.get(_key(record), ONE)
        return _rounded(_SPLIT * step * record.session.spec.weight // (ONE * together))


def fair_share_of(
    state: State, accounting: Accounting, clock: Callable[[], float], later: Later, changed: Callable[[bool], None]
) -> FairShare | None:
    """Return the fair share over time; None without a half-life."""
    if accounting.past is None:
        return None
    return FairShare(accounting.past, state, accounting, clock, later=later, changed=changed)


def _with_above(used: Mapping[ShareKey, DecayedUse], queues: Mapping[str, Queue]) -> dict[ShareKey, DecayedUse]:
    """Return uses where that of a queue has those of the queues below it."""
    found = {key: each for key, each in used.items() if key.owner is not None}
    for key in used.keys() - found.keys():
        above = [ShareKey(queue.name) for queue in upwards(queues, key.queue)]
        for each in above or [key]:
            found[each] = found.get(each, NO_USE).plus(used[key])
    return found


def _judged(
    weights: Mapping[ShareKey, int], amounts: Mapping[ShareKey, float], room: float
) -> Iterator[tuple[ShareKey, _Judged]]:
    """Yield how siblings stand; `amounts` are what each used, and `room` what all may use, in seconds of all nodes."""
    together, whole = sum(amounts.values()), sum(weights.values())
    for key, weight in weights.items():
        due = weight / whole
        if together:
            excess = (amounts[key] - due * together) / (due * max(room, together))
            yield key, _Judged(amounts[key] / together, due, -EMPHASIS * excess)
        else:
            yield key, _Judged(due, due, 0.0)


def _step(exponent: float, present: int) -> int:
    """Return the factor nearest to a power of two, or the present one if that is near enough."""
    place = STEPS.index(present)
    while place + 1 < len(STEPS) and exponent > _UP[place]:
        place += 1
    while place and exponent < _DOWN[place]:
        place -= 1
    return STEPS[place]


def _between(place: int, following: int) -> float:
    """Return where the following factor begins to apply, as a power of two."""
    here, there = (log2(STEPS[each] / ONE) for each in (place, following))
    return here + _STAY * (there - here)


_UP = tuple(_between(place, place + 1) for place in range(len(STEPS) - 1))
_DOWN = tuple(_between(place, max(0, place - 1)) for place in range(len(STEPS)))
"""By factor, where the next larger one, and the next smaller one, begin to apply."""


def _rounded(weight: int) -> int:
    """Return a weight with few significant bits, at least 1."""
    spare = max(0, weight.bit_length() - _BITS)
    return max(1, (weight + (1 << spare >> 1)) >> spare << spare)


def _parts(judged: _Judged | None) -> tuple[float | None, float | None]:
    return (None, None) if judged is None else (judged.part, judged.due)


def _place(key: ShareKey) -> tuple[str, bool, str]:
    return key.queue, key.owner is not None, key.owner or ""


def _key(record: SessionRecord) -> ShareKey:
    return ShareKey(record.session.spec.queue, record.session.spec.owner)


def _competes(record: SessionRecord) -> bool:
    return record.open and record.takes_tasks and not record.at_rest
