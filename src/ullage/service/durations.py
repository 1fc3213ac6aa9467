"""How long tasks will run, from how long others ran: what a simulated future draws.

A session is taken to be of the kind of a past one. Which past one is drawn by the urn of Blackwell and MacQueen
("Ferguson distributions via Polya urn schemes", 1973): of n in a group, each is as likely as a kind that the group has
not had yet, which is then drawn from the next wider group. What was drawn counts as past from then on. So few past
sessions say little, and many say nearly all.

- A task that runs already is longer than it has lasted: only kinds with longer tasks count.
- A task that has not ended counts as longer than it has lasted (Kaplan and Meier, 1958): else what is known early in a
  day would be short tasks only.
- A task that has lasted longer than all others lasts longer than x with the chance lasted / x (Harchol-Balter and
  Downey, "Exploiting process lifetime distributions for dynamic load balancing", 1997).
- Where nothing is known but a limit, each time up to it is as likely (Mu'alem and Feitelson, "Utilization,
  predictability, workloads, and user runtime estimates", 2001). A limit ends a task.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ullage.service.state import SHORTEST_S


class TaskTimes(NamedTuple):
    """How long tasks of one session ran, in seconds; at least one."""

    seconds: tuple[float, ...]

    def left_s(self, rng: random.Random, lasted_s: float) -> float:
        """Return the seconds that a task has left which has lasted so long."""
        longer = [each for each in self.seconds if each > lasted_s]
        return (rng.choice(longer) if longer else _beyond(rng, lasted_s)) - lasted_s


def _beyond(rng: random.Random, seconds: float) -> float:
    """Return a time above `seconds`, which exceeds x with the chance seconds / x."""
    return seconds / (1.0 - rng.random())


class _Item(NamedTuple):
    seconds: float
    weight: float
    kind: TaskTimes | None
    """None for a task that runs."""


class PastGroup:
    """Sessions with something in common. `running` are the seconds that tasks have lasted, for each session at work."""

    def __init__(self, ended: Iterable[TaskTimes], running: Iterable[TaskTimes] = ()) -> None:
        items = [_Item(each, 1 / len(kind.seconds), kind) for kind in ended for each in kind.seconds]
        items += [_Item(each, 1 / len(kind.seconds), None) for kind in running for each in kind.seconds]
        items.sort(key=lambda item: (item.seconds, item.kind is None))
        self._seconds: list[float] = []
        self._kinds: list[TaskTimes] = []
        masses: list[float] = []
        weights: list[float] = []
        at_risk = total = sum(item.weight for item in items)
        survives = 1.0
        for item in items:
            if item.kind is not None:
                masses.append(total * survives * item.weight / at_risk)
                weights.append(item.weight)
                self._seconds.append(item.seconds)
                self._kinds.append(item.kind)
                survives *= max(0.0, 1 - item.weight / at_risk)
            at_risk = max(at_risk - item.weight, 1e-9)
        self._mass = [0.0, *accumulate(masses)]
        self._weight = [0.0, *accumulate(weights)]
        self._unended = total * survives

    @property
    def greatest_s(self) -> float:
        """The longest time that is known; 0 if none is."""
        return self._seconds[-1] if self._seconds else 0.0

    def longer(self, lasted_s: float) -> float:
        """Return the number of sessions with tasks that took longer."""
        return self._weight[-1] - self._weight[bisect_right(self._seconds, lasted_s)]

    def pick(self, rng: random.Random, lasted_s: float) -> TaskTimes | None:
        """Return one of those sessions; None for a task that has not ended yet, and lasts longer than all of them."""
        first = bisect_right(self._seconds, lasted_s)
        low, high = self._mass[first], self._mass[-1]
        at = low + rng.random() * (high - low + self._unended)
        return None if at >= high else self._kinds[max(first, bisect_right(self._mass, at) - 1)]


class Urns:
    """The draws of one future: what was drawn of a group is drawn more often from then on, as if it were past."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._drawn: dict[int, list[TaskTimes]] = defaultdict(list)

    def draw(self, groups: Sequence[PastGroup], lasted_s: float) -> TaskTimes | None:
        """Return the kind of a session whose task has lasted so long; None for one that is not in any of the groups."""
        if not groups:
            return None
        group, *wider = groups
        drawn = [kind for kind in self._drawn[id(group)] if max(kind.seconds) > lasted_s]
        past = group.longer(lasted_s)
        at = self._rng.random() * (past + len(drawn) + 1)
        kind = group.pick(self._rng, lasted_s) if at < past else None
        if kind is None and past <= at < past + len(drawn):
            kind = self._rng.choice(drawn)
        if kind is None:
            kind = self.draw(wider, lasted_s)
        if kind is not None:
            self._drawn[id(group)].append(kind)
        return kind


@dataclass(frozen=True, slots=True)
class Durations:
    """How long tasks of a session run: its own ended tasks, the groups of others, narrowest first, and its limit.

    No past session is in two of the groups: it would count twice.
    """

    own: PastGroup
    groups: Sequence[PastGroup]
    limit_s: float | None = None

    @property
    def known(self) -> bool:
        """Whether anything is known."""
        return self.limit_s is not None or any(group.greatest_s for group in (self.own, *self.groups))

    def draw(self, rng: random.Random, urns: Urns, lasted_s: float = 0.0) -> TaskTimes | None:
        """Return a kind for the session, whose oldest task has lasted so long; None if nothing is known."""
        kind = urns.draw(self.groups, lasted_s)
        if kind is not None:
            return kind
        if self.limit_s is not None:
            return TaskTimes((max(rng.uniform(lasted_s, max(lasted_s, self.limit_s)), SHORTEST_S),))
        greatest = max(group.greatest_s for group in (self.own, *self.groups))
        return TaskTimes((_beyond(rng, max(lasted_s, greatest)),)) if greatest else None

    def left_s(self, rng: random.Random, kind: TaskTimes, lasted_s: float = 0.0) -> float:
        """Return the seconds that a task has left: as one of the session that has ended, or as one of this kind."""
        past = self.own.longer(lasted_s)
        own = self.own.pick(rng, lasted_s) if rng.random() * (past + 1) < past else None
        left_s = (own or kind).left_s(rng, lasted_s)
        return left_s if self.limit_s is None else min(left_s, max(0.0, self.limit_s - lasted_s))
