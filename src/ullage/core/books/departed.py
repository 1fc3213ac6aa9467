"""Allocations that have ended: remembered for a while, for callers that ask for them or report them again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from ullage.model.allocation import Allocation

_Key = TypeVar("_Key")

HISTORY = 4096
"""Allocations that are gone and still remembered."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What a deallocation did: cards given back; of those named the ones it did not hold, and its own not named."""

    uid: str
    gpus: tuple[str, ...] = ()
    already_gone: bool = False
    unknown: bool = False
    not_held: tuple[str, ...] = ()
    not_named: tuple[str, ...] = ()


class Departed:
    """The last that went, by uid and by the pod they were on their node, each with when (seconds)."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, float] = OrderedDict()
        self._pods: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def add(self, allocation: Allocation, now: float) -> None:
        """Remember one that is gone now."""
        claim = allocation.claim
        _keep(self._uids, allocation.id, now)
        if claim is not None and claim.pod_uid:
            _keep(self._uids, claim.pod_uid, now)
        if claim is not None and claim.pod:
            _keep(self._pods, (allocation.node, claim.namespace, claim.pod), now)

    def recall(self, uids: Mapping[str, float]) -> None:
        """Remember these again, each with when it went; the earliest come first."""
        for uid, at in uids.items():
            _keep(self._uids, uid, at)

    def back(self, uid: str) -> None:
        """Note that it holds something again."""
        self._uids.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def since(self, node: str, uid: str, namespace: str, pod: str) -> float | None:
        """Return when a pod of a node ended, by its uid if it is given, else by its name; None if that is not known."""
        return self._uids.get(uid) if uid else self._pods.get((node, namespace, pod))


def _keep(history: OrderedDict[_Key, float], key: _Key, now: float) -> None:
    history[key] = now
    history.move_to_end(key)
    if len(history) > HISTORY:
        history.popitem(last=False)
