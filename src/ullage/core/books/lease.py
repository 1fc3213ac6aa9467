"""Numbers lent to pods: device indices, node ports and cluster ports.

A pod is known by (namespace, name) and has at most one number of a range; taking again is answered with
the same one. A number is free when its pod is given back. After a restart the leases are what was
recorded with the pods.

A library: numbers are for pods, so the service lends none until a front places pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ullage.model.error import invalid

Pod = tuple[str, str]
"""Namespace and name."""

DEVICE_INDICES = (1, 128)
NODE_PORTS = (40_000, 41_999)
CLUSTER_PORTS = (42_000, 61_999)


@dataclass(frozen=True, slots=True)
class NumberTaken:
    """A recorded number that could not be lent again: out of range, or `holder` has it already."""

    pod: Pod
    number: int
    holder: Pod | None = None


class NumberRange:
    """The numbers from `first` to `last`, lent lowest first, or (`round_robin`) onwards from the newest.

    Raises:
        InvalidRequest: the range is empty.

    """

    def __init__(self, first: int, last: int, *, round_robin: bool = False) -> None:
        if first > last:
            raise invalid("last", last, f"{first} or more is needed")
        self._first, self._last, self._round_robin = first, last, round_robin
        self._number_of: dict[Pod, int] = {}
        self._holder_of: dict[int, Pod] = {}
        self._next = first
        """Lowest first: nothing below is free. Round robin: where the search starts."""

    def take(self, namespace: str, pod: str) -> int | None:
        """Return the pod's number; None if all are lent, and the pod must wait until one is given back."""
        known = self._number_of.get((namespace, pod))
        if known is not None:
            return known
        number = self._free()
        if number is not None:
            self._lend((namespace, pod), number)
        return number

    def release(self, namespace: str, pod: str) -> int | None:
        """Return the number the pod gives back; None if it had none."""
        number = self._number_of.pop((namespace, pod), None)
        if number is not None:
            del self._holder_of[number]
            self._next = self._next if self._round_robin else min(self._next, number)
        return number

    def restore(self, recorded: Iterable[tuple[Pod, int]]) -> tuple[NumberTaken, ...]:
        """Lend exactly what was recorded. Return the records that contradict others; their pods get no number.

        Of two pods with one number the first by (namespace, name) keeps it. Round robin goes on after
        the largest number.
        """
        self._number_of, self._holder_of, self._next = {}, {}, self._first
        misfits = []
        for pod, number in sorted(recorded):
            if not self._first <= number <= self._last or self._holder_of.get(number, pod) != pod:
                misfits.append(NumberTaken(pod, number, self._holder_of.get(number)))
            elif self._number_of.get(pod, number) != number:
                misfits.append(NumberTaken(pod, number, pod))
            else:
                self._number_of[pod], self._holder_of[number] = number, pod
        if self._round_robin and self._holder_of:
            self._next = self._after(max(self._holder_of))
        return tuple(misfits)

    @property
    def lent(self) -> dict[Pod, int]:
        """Who has which number."""
        return dict(self._number_of)

    def _free(self) -> int | None:
        if len(self._holder_of) > self._last - self._first:
            return None
        number = self._next
        while number in self._holder_of:
            number = self._after(number)
        return number

    def _lend(self, pod: Pod, number: int) -> None:
        self._number_of[pod], self._holder_of[number] = number, pod
        self._next = self._after(number)

    def _after(self, number: int) -> int:
        return self._first if number == self._last else number + 1


def device_indices() -> NumberRange:
    """Indices by which a device plugin recognises the pod it starts: round robin, so that none comes back soon."""
    return NumberRange(*DEVICE_INDICES, round_robin=True)


def cluster_ports() -> NumberRange:
    """Ports that are unique in the cluster, lowest free first."""
    return NumberRange(*CLUSTER_PORTS)


class NodePorts:
    """Ports that are unique on each node, lowest free first."""

    def __init__(self, first: int = NODE_PORTS[0], last: int = NODE_PORTS[1]) -> None:
        self._range = first, last
        self._leases: dict[str, NumberRange] = {}

    def take(self, node: str, namespace: str, pod: str) -> int | None:
        """Return the pod's port on the node; None if all are lent."""
        return self._on(node).take(namespace, pod)

    def release(self, namespace: str, pod: str) -> dict[str, int]:
        """Return what the pod gives back, by node."""
        freed = {node: lease.release(namespace, pod) for node, lease in sorted(self._leases.items())}
        self._leases = {node: lease for node, lease in self._leases.items() if lease.lent}
        return {node: port for node, port in freed.items() if port is not None}

    def restore(self, recorded: Iterable[tuple[str, Pod, int]]) -> tuple[NumberTaken, ...]:
        """Lend exactly what was recorded as (node, pod, port). Return the records that contradict others."""
        by_node: dict[str, list[tuple[Pod, int]]] = {}
        for node, pod, port in recorded:
            by_node.setdefault(node, []).append((pod, port))
        self._leases = {}
        return tuple(misfit for node, lent in sorted(by_node.items()) for misfit in self._on(node).restore(lent))

    def _on(self, node: str) -> NumberRange:
        return self._leases.setdefault(node, NumberRange(*self._range))
