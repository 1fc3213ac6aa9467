"""Sentences that explain why a pod fits on no node. Each inspects all nodes, so it is made once for a cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ullage.kube.client.lease import clock_s
from ullage.kube.events import AGAIN_S
from ullage.kube.recent import Recent

_REMEMBERED = 4096


class _Sentence(NamedTuple):
    cause: str
    made_at: float
    text: str


@dataclass(frozen=True, slots=True)
class Explained:
    """The last sentence for each pod. It is reused while the cause is the same, for `AGAIN_S` seconds at most.

    A scheduler asks about a pending pod repeatedly. Numbers that change in between cause no new event.
    """

    clock: Callable[[], float] = clock_s
    _last: Recent[str, _Sentence] = field(default_factory=lambda: Recent(_REMEMBERED))

    def of(self, uid: str, cause: str, explain: Callable[[], str]) -> str:
        """Return the sentence for a pod and this cause. `explain` makes it."""
        last = self._last.pop(uid, None)
        if last is None or last.cause != cause or self.clock() - last.made_at >= AGAIN_S:
            last = _Sentence(cause, self.clock(), explain())
        self._last[uid] = last
        return last.text

    def forget(self, uid: str) -> None:
        self._last.pop(uid, None)
