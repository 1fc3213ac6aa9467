"""What a day is made of: nodes, queues, rules, and who comes how often."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ullage.core.placing.policy import Order, Policy
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources
from ullage.model.session import SessionSpec

_DEFAULT = Queue("default")
_SAFE = Queue("safe", guarantee=Resources(cpu_milli=2000))
_SMALL = Queue("small", limit=Limit(cpu_milli=3000))
_TREE = (
    Queue("team", weight=2),
    Queue("dear", "team", guarantee=Resources(cpu_milli=1000, gpu_milli=1000)),
    Queue("tight", "team", limit=Limit(cpu_milli=4000, gpu_milli=2000)),
)
_QUEUES = (
    (_DEFAULT,),
    (_DEFAULT,),
    (_DEFAULT, Queue("team", weight=2)),
    (_DEFAULT, _SAFE, _SMALL),
    (_DEFAULT, *_TREE),
)
_CARDS = ("", "", "", ",gpu=1", ",gpu=1", ",gpu=0.5", ",gpu=2", ",gpu=4", ",gpu=8")
_FULL_OF_SMALL = (*["cpu=1,gpu=1"] * 5, "cpu=1,gpu=2", "cpu=1,gpu=8")
_KINDS = 5
"""Requests of a day that is not full of small ones."""


@dataclass(frozen=True)
class Shape:
    """`first` sessions are there from the start; another one comes every `arrives_s` seconds."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    policy: Policy
    first: int
    arrives_s: float
    requests: tuple[str, ...]
    batches: tuple[int, ...] = (1, 1, 1, 1, 2, 3)

    @property
    def leaf_queues(self) -> list[Queue]:
        """Those that take sessions."""
        parents = {queue.parent for queue in self.queues}
        return [queue for queue in self.queues if queue.name not in parents]

    def session(self, rng: random.Random) -> SessionSpec:
        """Return a session of any size."""
        batch = rng.choice(self.batches)
        return SessionSpec(
            "function",
            ResourceRequirement.from_string(rng.choice(self.requests)),
            queue=rng.choice(self.leaf_queues).name,
            priority=rng.choice((0, 0, 0, 5)),
            weight=rng.choice((1, 1, 2)),
            batch_size=batch,
            min_instances=rng.choice((0, 0, 0, 0, 1)),
            max_instances=rng.choice((None, None, batch, 4 * batch)),
            close_when_done=rng.random() < 0.7,
        )


def draw_shape(rng: random.Random) -> Shape:
    """Return a small fleet with mixed work; one in eight is 14 sessions on 12 cards."""
    policy = Policy(
        order=rng.choice((Order.DRF, Order.DRF, Order.FIFO)),
        reclaim_grace_s=rng.choice((0.0, 3.0, 30.0, 30.0, 30.0, None)),
        protected_s=rng.choice((5.0, 20.0, 60.0)),
        reserve_after_s=rng.choice((60.0, 300.0)),
        min_runtime_s=rng.choice((0.0, 0.0, 0.0, 10.0)),
    )
    if rng.random() < 1 / 8:
        return Shape((_node("n0", 64, 12),), (_DEFAULT,), policy, 14, 60.0, _FULL_OF_SMALL, (1,))
    sizes = [(rng.choice((2, 4, 8, 16)), rng.choice((0, 2, 4, 12))) for _ in range(rng.choice((1, 1, 2, 3)))]
    nodes = tuple(_node(f"n{number}", *size) for number, size in enumerate(sizes))
    requests = tuple(f"cpu={rng.choice((1, 1, 1, 2, 4))}{rng.choice(_CARDS)}" for _ in range(_KINDS))
    return Shape(nodes, rng.choice(_QUEUES), policy, rng.choice((1, 4, 10)), rng.choice((30.0, 60.0)), requests)


def _node(name: str, cpu: int, cards: int) -> Node:
    return Node(name, cpu * 1000, 64 << 30, tuple(Gpu(f"GPU-{name}-{card}", card) for card in range(cards)))
