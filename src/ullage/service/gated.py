"""Pods whose gate is closed or was opened recently: single pods, gangs, and the units in the admission order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.core.admitting.turns import Unit
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.model.claim import Request
from ullage.model.family_ids import uid_of
from ullage.model.nomination import Nomination
from ullage.model.rejection import Code, Cure, Rejection


@dataclass(slots=True)
class GatedPod:
    """A pod with a gate. `hint` is the node of its place before a restart, `avoided` until when nodes are not tried.

    Its `promise` ends at `until` if its scheduler has not placed it there.
    """

    request: Request
    queue: str
    gated: bool
    hint: str = ""
    promise: Nomination | None = None
    until: float = 0.0
    avoided: dict[str, float] = field(default_factory=dict)
    alone: Unit = field(init=False)
    """The pod as a unit of its own."""

    def __post_init__(self) -> None:
        self.alone = Unit(self.request.uid, self.queue, (self.request,), self.since)

    @property
    def waits(self) -> bool:
        """Whether it is not admitted yet."""
        return self.gated and self.promise is None

    @property
    def counts(self) -> bool:
        """Whether it stands for its pod, and not for cards of a further family alone."""
        return uid_of(self.request.uid) == self.request.uid

    @property
    def since(self) -> float:
        """The time of its creation, in seconds since 1970."""
        return self.request.claim.created_at

    @property
    def age(self) -> tuple[float, str, str]:
        """The sort key by age, the oldest first. Pods created in the same second are sorted by name."""
        return self.since, self.request.claim.pod, self.request.uid


@dataclass(frozen=True, slots=True)
class Standing:
    """The position of a waiting pod in its queue (the first is 1), and why it is not admitted.

    Without a `refusal` it was not examined yet. `reserved` are the nodes on which room is reserved for it.
    """

    queue: str
    position: int
    waiting: int
    refusal: Refusal | None
    reserved: tuple[str, ...] = ()


@dataclass(slots=True)
class QueueFigures:
    """Figures of a queue, counted since the start.

    The number of waiting pods, since when the oldest waits, and the share at the last step; the number of admitted
    pods, the sum of their waits, and how often a pod was not placed in time.
    """

    waiting: int = 0
    oldest: float | None = None
    share: float = 0.0
    opened: int = 0
    waited_s: float = 0.0
    returned: int = 0


class Members:
    """The gangs of these pods. `running` is the gang of each member that has its cards."""

    def __init__(self, pods: Mapping[str, GatedPod], running: Mapping[str, str]) -> None:
        self._running = running
        self.gangs: dict[str, list[GatedPod]] = {}
        """Members that wait or are admitted, by the key of their gang."""
        for pod in pods.values():
            if (gang := pod.request.claim.gang) is not None:
                self.gangs.setdefault(gang.key, []).append(pod)

    def going(self, key: str) -> int:
        """Return how many members of a gang have their cards, a place, or an open gate."""
        placed = sum(gang == key for gang in self._running.values())
        return placed + sum(not pod.waits for pod in self.gangs[key])

    def required(self, key: str) -> int:
        """Return how many members of a gang start together: the largest number that a member states."""
        return max(gang.required for pod in self.gangs[key] if (gang := pod.request.claim.gang) is not None)

    def broken(self) -> list[GatedPod]:
        """Return the pods with a place and a closed gate whose gang does not have enough members any more."""
        return [
            pod
            for key, members in self.gangs.items()
            if self.going(key) < self.required(key)
            for pod in members
            if pod.gated and pod.promise is not None
        ]

    def units(self, fleet: Fleet) -> tuple[list[Unit], dict[str, Refusal]]:
        """Return the units of gangs that may be admitted, and why other members may not.

        The required members are one unit. After that each further member is its own.
        """
        units, held_back = list[Unit](), dict[str, Refusal]()
        for key, members in self.gangs.items():
            waiting = [pod for pod in members if pod.waits]
            required, going = self.required(key), self.going(key)
            if going >= required:
                units += [pod.alone for pod in waiting]
                continue
            incomplete = Refusal((Rejection(Code.GANG_INCOMPLETE, Cure.OWNER, required, going + len(waiting)),))
            held_back |= dict.fromkeys((pod.request.uid for pod in waiting), incomplete)
            if going + len(waiting) >= required:
                first = _smallest(fleet, waiting)[: required - going]
                units.append(_whole(key, first, begun=going > 0))
                for pod in first:
                    del held_back[pod.request.uid]
        return units, held_back


def _smallest(fleet: Fleet, pods: Iterable[GatedPod]) -> list[GatedPod]:
    return sorted(pods, key=lambda pod: (fleet.resources(pod.request.requirement).gpu_milli, pod.age))


def _whole(key: str, pods: Sequence[GatedPod], *, begun: bool) -> Unit:
    """Return a gang as one unit, in the queue of its oldest member."""
    first = min(pods, key=lambda pod: pod.age)
    return Unit(f"gang {key}", first.queue, tuple(pod.request for pod in pods), first.since, begun=begun)
