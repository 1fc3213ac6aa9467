"""Which devices of one node satisfy claims: selectors have been judged, here is the rest, searched within a bound.

Requests are served in order, of their alternatives the first with which all claims can be satisfied, and of a
request's devices the first in the order that they are offered in. So the answer is the same for the same input, and
which of equal devices is taken is decided by the order of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ullage.core.verdict.device_use import Consumed, DeviceUse, consumption
from ullage.model.device_claim import MAX_RESULTS, Constraint, DeviceAlternative, DeviceClaim
from ullage.model.slice_device import DeviceId, SliceDevice, ValueKind
from ullage.model.taint import tolerated

_Mark = tuple[ValueKind, int | bool | str]

MAX_STEPS = 20_000
"""Devices that are tried on one node before it is given up: some tenths of a second."""


class SearchExhausted(Exception):
    """The bound was reached before it was known whether the claims can be satisfied."""


@dataclass(frozen=True, slots=True)
class DevicePick:
    """A device for a request of a claim, by the number of the claim."""

    claim: int
    request: str
    device: SliceDevice
    consumed: Consumed = field(default_factory=dict)
    admin: bool = False
    every: bool = False
    """The request is for all such devices."""


@dataclass(slots=True)
class Steps:
    """What is left of the bound; the same may bound several searches."""

    left: int = MAX_STEPS

    def step(self) -> None:
        """Count one.

        Raises:
            SearchExhausted: there is none left.

        """
        self.left -= 1
        if self.left < 0:
            raise SearchExhausted


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node has: devices in the order of preference, and what of them is in use.

    `selects` says whether the class and the expressions of a request take a device; None if it cannot be evaluated.
    `free` says whether nobody holds the device otherwise, as the books of cards know. `whole` is false where a pool
    that reaches the node is not complete: then nobody can have all devices.
    """

    devices: Sequence[SliceDevice]
    use: DeviceUse
    selects: Callable[[DeviceAlternative, SliceDevice], bool | None]
    free: Callable[[SliceDevice], bool] = lambda _device: True
    whole: bool = True


def search(
    claims: Sequence[DeviceClaim],
    offer: Offer,
    steps: Steps,
    allows: Callable[[SliceDevice], bool] = lambda _device: True,
) -> tuple[DevicePick, ...] | None:
    """Devices for all requests of all claims; None if there are none. `allows` narrows those that are counted out.

    Raises:
        SearchExhausted: the bound was reached.

    """
    return _Search(claims, offer, steps, allows).run()


def suitable(wanted: DeviceAlternative, offer: Offer) -> list[tuple[SliceDevice, Consumed]] | None:
    """Return the devices that a request can be given, others being left as they are, and what it would take of each.

    None if it asks for all, and one of them cannot be had, or is not known.
    """
    found: list[tuple[SliceDevice, Consumed]] = []
    every = wanted.count is None
    if every and not offer.whole:
        return None
    for device in offer.devices:
        selected = offer.selects(wanted, device)
        if not selected:
            if every and selected is None:
                return None
            continue
        consumed = consumption(device, wanted.capacity)
        if consumed is None:
            continue  # it does not have what is asked, so it is none of them
        can = tolerated(device.taints, wanted.tolerations)
        if can and not wanted.admin:
            can = offer.free(device) and offer.use.fits(device, consumed)
        if can:
            found.append((device, {} if wanted.admin else consumed))
        elif every:
            return None
    return found


@dataclass(slots=True)
class _Held:
    """How far the devices of one claim meet one of its constraints: what they have in common, or all they have."""

    constraint: Constraint
    marks: frozenset[object] | None = None

    def with_(self, device: SliceDevice) -> _Held | None:
        """Return the same with one more device; None if that breaks it. Who has not the attribute meets none."""
        attribute = device.attributes.get(self.constraint.attribute)
        if attribute is None:
            return None
        own: frozenset[object] = frozenset(attribute.match_values)
        if self.constraint.distinct:
            known = self.marks or frozenset()
            return None if known & own else replace(self, marks=known | own)
        common = own if self.marks is None else self.marks & own
        return replace(self, marks=common) if common else None


class _Turn(NamedTuple):
    """One alternative of a request at its position in the order, and the devices that suit it."""

    at: int
    claim: int
    wanted: DeviceAlternative
    found: Sequence[tuple[SliceDevice, Consumed]]

    def pick(self, device: SliceDevice, consumed: Consumed, *, every: bool = False) -> DevicePick:
        wanted = self.wanted
        return DevicePick(self.claim, wanted.name, device, consumed, admin=wanted.admin, every=every)


class _Search:
    def __init__(
        self, claims: Sequence[DeviceClaim], offer: Offer, steps: Steps, allows: Callable[[SliceDevice], bool]
    ) -> None:
        self._offer, self._steps, self._allows = offer, steps, allows
        self._requests = [(number, request) for number, claim in enumerate(claims) for request in claim.requests]
        self._held = {
            number: tuple(_Held(constraint) for constraint in claim.constraints) for number, claim in enumerate(claims)
        }
        self._picks: list[DevicePick] = []
        self._counts = dict.fromkeys(range(len(claims)), 0)
        self._suitable = {
            (number, wanted.name): self._narrowed(wanted)
            for number, request in self._requests
            for wanted in request.alternatives
        }

    def run(self) -> tuple[DevicePick, ...] | None:
        try:
            return tuple(self._picks) if self._serve(0) else None
        finally:
            for pick in self._picks:  # what is in use is not changed by looking
                if not pick.admin:
                    self._offer.use.give(pick.device, pick.consumed)

    def _narrowed(self, wanted: DeviceAlternative) -> list[tuple[SliceDevice, Consumed]] | None:
        found = suitable(wanted, self._offer)
        if found is None or wanted.count is None or wanted.admin:
            return found
        return [each for each in found if self._allows(each[0])]

    def _serve(self, at: int) -> bool:
        """Serve the requests from there on."""
        if at == len(self._requests):
            return True
        claim, request = self._requests[at]
        for wanted in request.alternatives:
            found = self._suitable[claim, wanted.name]
            if found is None:
                continue
            turn = _Turn(at, claim, wanted, found)
            if wanted.count is None:
                if found and self._take_all(turn):
                    return True
            elif self._has(found, wanted.count) and self._choose(turn, start=0, left=wanted.count):
                return True
        return False

    @staticmethod
    def _has(found: Sequence[tuple[SliceDevice, Consumed]], count: int) -> bool:
        return len(found) >= count or any(device.shareable for device, _ in found)

    def _choose(self, turn: _Turn, *, start: int, left: int) -> bool:
        """Choose `left` devices from `start` on; one that may be shared can be chosen again."""
        if left == 0:
            return self._serve(turn.at + 1)
        for position in range(start, len(turn.found)):
            device, consumed = turn.found[position]
            before = self._take(turn.pick(device, consumed))
            if before is None:
                continue
            again = position if device.shareable and not turn.wanted.admin else position + 1
            if self._choose(turn, start=again, left=left - 1):
                return True
            self._give(turn.claim, before)
        return False

    def _take_all(self, turn: _Turn) -> bool:
        taken = []
        for device, consumed in turn.found:
            before = self._take(turn.pick(device, consumed, every=True))
            if before is None:
                break
            taken.append(before)
        else:
            if self._serve(turn.at + 1):
                return True
        for before in reversed(taken):
            self._give(turn.claim, before)
        return False

    def _take(self, pick: DevicePick) -> tuple[_Held, ...] | None:
        """Add a pick; return the constraints of its claim before it, or None if it cannot be added."""
        self._steps.step()
        claim = pick.claim
        if self._counts[claim] == MAX_RESULTS or not (pick.admin or self._offer.use.fits(pick.device, pick.consumed)):
            return None
        before = self._held[claim]
        after = []
        for held in before:
            now = held.with_(pick.device) if held.constraint.applies_to(pick.request) else held
            if now is None:
                return None
            after.append(now)
        self._held[claim] = tuple(after)
        self._counts[claim] += 1
        self._picks.append(pick)
        if not pick.admin:
            self._offer.use.take(pick.device, pick.consumed)
        return before

    def _give(self, claim: int, before: tuple[_Held, ...]) -> None:
        pick = self._picks.pop()
        if not pick.admin:
            self._offer.use.give(pick.device, pick.consumed)
        self._counts[claim] -= 1
        self._held[claim] = before


def rank(claims: Sequence[DeviceClaim], picks: Sequence[DevicePick]) -> tuple[int, ...]:
    """Return which alternative each request was served with, in the order of the requests: less is better."""
    served = {(pick.claim, pick.request) for pick in picks}
    return tuple(
        next(place for place, wanted in enumerate(request.alternatives) if (number, wanted.name) in served)
        for number, claim in enumerate(claims)
        for request in claim.requests
    )


def groups(
    claims: Sequence[DeviceClaim], picks: Sequence[DevicePick], devices: Sequence[SliceDevice]
) -> Iterator[frozenset[DeviceId]]:
    """Yield sets of devices that have one value of what a constraint matches, for claims served with these picks."""
    attributes = dict.fromkeys(
        constraint.attribute
        for number, claim in enumerate(claims)
        for constraint in claim.constraints
        if not constraint.distinct and any(p.claim == number and constraint.applies_to(p.request) for p in picks)
    )
    for attribute in attributes:
        sharing: dict[_Mark, set[DeviceId]] = {}
        for device in devices:
            value = device.attributes.get(attribute)
            for mark in value.match_values if value is not None else ():
                sharing.setdefault(mark, set()).add(device.id)
        for mark in sorted(sharing, key=_by_value):
            yield frozenset(sharing[mark])


def _by_value(mark: _Mark) -> tuple[ValueKind, str]:
    kind, value = mark
    return kind, str(value)
