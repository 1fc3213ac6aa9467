"""Queues: the nodes of the share tree."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.name import check_name
from ullage.model.quantity import check_range
from ullage.model.request import ResourceRequirement, parse_amounts
from ullage.model.resources import DIMENSIONS, Resources

ROOT = "root"
DEFAULT_QUEUE = "default"
MAX_WEIGHT = 1000
MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that may be held; None leaves a dimension unlimited."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    gpu_milli: int | None = None

    def allows(self, held: Resources) -> bool:
        """Return whether `held` stays within the limit in every dimension."""
        return self.exceeded(held) is None

    def exceeded(self, held: Resources) -> str | None:
        """Return the first dimension in which `held` exceeds the limit."""
        limits = (self.cpu_milli, self.memory_bytes, self.gpu_milli)
        for name, limit, amount in zip(DIMENSIONS, limits, held, strict=True):
            if limit is not None and amount > limit:
                return name
        return None


@dataclass(frozen=True, slots=True)
class Queue:
    """`weight` scales its share among its siblings; `guarantee` is served first and is lent while unused.

    A guarantee binds in the dimensions it names (those above 0), like a limit.

    Raises:
        InvalidRequest: bad name, a weight outside 1..1000, or a queue that is its own parent.

    """

    name: str
    parent: str = ROOT
    weight: int = 1
    guarantee: Resources = Resources()
    limit: Limit = Limit()

    def __post_init__(self) -> None:
        check_name("queue", self.name)
        if self.name in (ROOT, self.parent):
            raise invalid("queue", self.name, f"choose a name other than {ROOT} and its parent's")
        check_weight("weight", self.weight)


def check_weight(field: str, weight: object) -> None:
    """Refuse a weight that is not a whole number in 1..1000."""
    check_range(field, weight, 1, MAX_WEIGHT)


def parse_queue(name: str, parent: str, weight: int, guarantee: str | None, limit: str | None) -> Queue:
    """Return a queue whose guarantee and limit are requirement texts; a limit binds only the dimensions it names."""
    guaranteed = ResourceRequirement.from_string(guarantee).resources if guarantee else Resources()
    maximum = parse_limit(limit) if limit else Limit()
    if (above := maximum.exceeded(guaranteed)) is not None:
        raise invalid("guarantee", guarantee, f"its {above} is above that of the limit ({limit})")
    return Queue(name, parent, weight, guaranteed, limit=maximum)


def parse_limit(text: str) -> Limit:
    """Return the limit of a text such as `gpu=8,mem=1t`; an omitted dimension is unlimited, `gpu=0` allows none."""
    amounts = parse_amounts(text)
    return Limit(amounts.get("cpu"), amounts.get("memory"), amounts.get("gpu"))
