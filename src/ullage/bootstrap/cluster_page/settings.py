"""The settings of the page of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.queue import Queue


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The configured queues, and the name of the scheduler whose pods are shown while they wait."""

    queues: tuple[Queue, ...] = ()
    scheduler: str = "ullage"
