"""What people see of queues: why pods wait and at which position, and the figures of each queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ullage.core.placing.decision import Refusal
from ullage.service.gated import GatedPod, QueueFigures, Standing


class QueueReport:
    """`pods` wait or are admitted; `now` returns the time in seconds since 1970."""

    def __init__(self, pods: Mapping[str, GatedPod], now: Callable[[], float]) -> None:
        self._pods, self._now = pods, now
        self.refused: dict[str, Refusal] = {}
        """Why waiting pods are not admitted, as of the last step."""
        self._waiting: dict[str, list[GatedPod]] = {}
        """The pods that waited then, by queue."""
        self._standings: dict[str, Standing] | None = {}
        """Their positions; None until `standings` computes them."""
        self._figures: dict[str, QueueFigures] = {}

    def remember(self, refused: dict[str, Refusal]) -> None:
        """Remember the waiting pods, and why they wait."""
        self.refused, self._waiting, self._standings = refused, {}, None
        for pod in self._pods.values():
            if pod.waits and pod.counts:
                self._waiting.setdefault(pod.queue, []).append(pod)

    def standings(self, reserved: Mapping[str, str]) -> Mapping[str, Standing]:
        """Return the positions of waiting pods, as of the last step. `reserved` are nodes with room for one of them."""
        if self._standings is None:
            self._standings = {}
            for queue, pods in self._waiting.items():
                pods.sort(key=lambda pod: (-pod.request.claim.priority, pod.age))
                for position, pod in enumerate(pods, start=1):
                    uid = pod.request.uid
                    room = (reserved[uid],) if uid in reserved else ()
                    self._standings[uid] = Standing(queue, position, len(pods), self.refused.get(uid), reserved=room)
        return {uid: standing for uid, standing in self._standings.items() if uid in self._pods}

    def count(self, pod: GatedPod) -> None:
        """Count a pod that no longer waits."""
        if pod.counts:
            figures = self.of(pod.queue)
            figures.opened += 1
            figures.waited_s += max(0.0, self._now() - pod.since)

    def figures(self) -> dict[str, QueueFigures]:
        """Return the figures of the queues."""
        for figures in self._figures.values():
            figures.waiting, figures.oldest = 0, None
        for pod in self._pods.values():
            if pod.waits and pod.counts:
                figures = self.of(pod.queue)
                figures.waiting += 1
                figures.oldest = pod.since if figures.oldest is None else min(figures.oldest, pod.since)
        return self._figures

    def of(self, queue: str) -> QueueFigures:
        """Return the figures of one queue, to be counted in."""
        return self._figures.setdefault(queue, QueueFigures())
