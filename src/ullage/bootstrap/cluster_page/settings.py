"""The settings of the page of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.queue import Queue


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The configured queues."""

    queues: tuple[Queue, ...] = ()
