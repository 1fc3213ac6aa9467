"""Pods whose gate is closed or was opened recently: single pods, gangs, and the units in the admission order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ullage.core.admitting.quorum import Quorum
from ullage.core.admitting.turns import Running, Unit
from ullage.core.books.fleet import Fleet
from ullage.core.placing.decision import Refusal
from ullage.core.verdict.nodes import unsuited
from ullage.model.claim import GangClaim, Request
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
    """The gangs of these pods. `running` are the members that have their cards."""

    def __init__(self, pods: Mapping[str, GatedPod], running: Running) -> None:
        self._running = running
        self.gangs: dict[str, list[GatedPod]] = {}
        """Members that wait or are admitted, by the key of their gang."""
        for pod in pods.values():
            if (gang := pod.request.claim.gang) is not None:
                self.gangs.setdefault(gang.key, []).append(pod)

    def going(self, key: str) -> list[GangClaim]:
        """Return the members of a gang that have their cards, a place, or an open gate."""
        placed = [gang for gang, _ in self._running.get(key, ())]
        return placed + [gang for pod in self.gangs[key] if not pod.waits and (gang := pod.request.claim.gang)]

    def lacking(self, key: str) -> int:
        """Return how many members of a gang have to be admitted together; 1 for a further one."""
        return max(1, self.claim(key).required - len(self.going(key)))

    def claim(self, key: str) -> GangClaim:
        """Return the gang as the member describes it that requires the most; one that states subgroups, if any does."""
        claims = (gang for pod in self.gangs[key] if (gang := pod.request.claim.gang) is not None)
        return max(claims, key=lambda gang: (gang.divided, gang.required))

    def broken(self) -> list[GatedPod]:
        """Return the pods with a place and a closed gate whose gang does not have enough members any more."""
        return [
            pod
            for key, members in self.gangs.items()
            if not _suffice(self.claim(key), self.going(key))
            for pod in members
            if pod.gated and pod.promise is not None
        ]

    def units(self, fleet: Fleet) -> tuple[list[Unit], dict[str, Refusal]]:
        """Return the units of gangs that may be admitted, and why other members may not.

        The required members are one unit. After that each further member is its own, and each further subgroup.
        """
        units, held_back = list[Unit](), dict[str, Refusal]()

        def size(request: Request) -> int:
            return fleet.resources(request.requirement).gpu_milli

        for key, members in self.gangs.items():
            waiting = sorted((pod for pod in members if pod.waits), key=lambda pod: (size(pod.request), pod.age))
            claim, going = self.claim(key), self.going(key)
            quorum = Quorum(claim, going, (pod.request for pod in waiting), size) if claim.divided else None
            found = _units(key, waiting, claim.required - len(going), quorum, begun=bool(going))
            units += found
            starting = {uid for unit in found for uid in unit.uids}
            incomplete = _incomplete(claim.required, len(going) + len(waiting))
            for pod in waiting:
                if (uid := pod.request.uid) not in starting:
                    lack = None if quorum is None else quorum.lack_of(pod.request)
                    held_back[uid] = incomplete if lack is None else lack.refusal
        return units, held_back


def _suffice(claim: GangClaim, going: Sequence[GangClaim]) -> bool:
    return len(going) >= claim.required and (not claim.divided or Quorum(claim, going, ()).complete)


def _incomplete(required: int, there: int) -> Refusal:
    return Refusal((Rejection(Code.GANG_INCOMPLETE, Cure.OWNER, required, there),))


def _units(key: str, waiting: Sequence[GatedPod], missing: int, quorum: Quorum | None, *, begun: bool) -> list[Unit]:
    """Return the units of a gang that may be admitted; `missing` more members are required in all."""
    if quorum is None:
        if missing <= 0:
            return [pod.alone for pod in waiting]
        return [_whole(key, waiting[:missing], begun=begun)] if len(waiting) >= missing else []
    pods = {pod.request.uid: pod for pod in waiting}
    if quorum.complete:
        return [_further(key, [pods[request.uid] for request in unit]) for unit in quorum.further()]
    least = None if quorum.lack else quorum.least()
    if least is None:
        return []
    return [replace(_whole(key, [pods[request.uid] for request in least], begun=begun), quorum=quorum)]


def _further(key: str, pods: Sequence[GatedPod]) -> Unit:
    """Return a member, or a whole subgroup, of a gang that has started."""
    first, *others = pods
    return _whole(f"{key} {first.request.uid}", pods, begun=True) if others else first.alone


def _whole(key: str, pods: Sequence[GatedPod], *, begun: bool) -> Unit:
    """Return a gang as one unit, in the queue of its oldest member."""
    first = min(pods, key=lambda pod: pod.age)
    return Unit(f"gang {key}", first.queue, tuple(pod.request for pod in pods), first.since, begun=begun)


def holds(fleet: Fleet, promise: Nomination) -> bool:
    """Return whether the node still takes the pod, and the cards are there."""
    row = fleet.row_of.get(promise.node)
    if row is None or unsuited(fleet.nodes[row], promise.request.requirement.nodes) is not None:
        return False
    return bool(fleet.schedulable[row]) and all(uuid in fleet.card_of for uuid in promise.gpus)
