"""Queues: the nodes of the share tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from ullage.model.error import invalid
from ullage.model.name import check_name
from ullage.model.quantity import MAX_INT32, check_range, check_size
from ullage.model.queue_name import DEFAULT_QUEUE, ROOT
from ullage.model.request import ResourceRequirement, parse_amounts
from ullage.model.resources import DIMENSIONS, Resources

__all__ = [
    "DEFAULT_QUEUE",
    "MAX_PRIORITY",
    "MAX_WEIGHT",
    "ROOT",
    "Limit",
    "Queue",
    "QueueBounds",
    "check_weight",
    "parse_bounds",
    "parse_limit",
    "parse_queue",
]

MAX_WEIGHT = 1000
MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that may be held; None leaves a dimension unlimited."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    gpu_milli: int | None = None

    def __iter__(self) -> Iterator[int | None]:
        yield self.cpu_milli
        yield self.memory_bytes
        yield self.gpu_milli

    def __str__(self) -> str:
        whole = str(Resources(*(amount or 0 for amount in self))).split(",")
        return ",".join(text for text, amount in zip(whole, self, strict=True) if amount is not None)

    def exceeded(self, held: Resources) -> str | None:
        """Return the first dimension in which `held` exceeds the limit."""
        parts = zip(DIMENSIONS, self.broken_by(held), strict=True)
        return next((name for name, limit in parts if limit is not None), None)

    def broken_by(self, held: Resources) -> Limit:
        """Return the part of the limit that `held` exceeds; of a limit that it stays within nothing."""
        pairs = zip(self, held, strict=True)
        return Limit(*(limit if limit is not None and amount > limit else None for limit, amount in pairs))

    def part_of(self, amounts: Resources) -> Limit:
        """Return these amounts in the dimensions that the limit binds."""
        pairs = zip(self, amounts, strict=True)
        return Limit(*(None if limit is None else amount for limit, amount in pairs))


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Defaults and maxima of the sessions of a queue, and of the queues below it; None is none.

    A session that states nothing gets `default_resreq`, and `default_time_s` (seconds) for each of its tasks. It may
    state at most `max_resreq` for an executor, and `max_time_s` for a task.

    Raises:
        InvalidRequest: a time is not above 0, or a default is above its maximum.

    """

    default_resreq: ResourceRequirement | None = None
    max_resreq: Limit = Limit()
    default_time_s: float | None = None
    max_time_s: float | None = None

    def __post_init__(self) -> None:
        for field, value in (("default_time_s", self.default_time_s), ("max_time_s", self.max_time_s)):
            if value is not None and not (isfinite(value) and value > 0):
                raise invalid(field, value, "more than 0 seconds are needed; omit it for no limit")
        if self.default_time_s is not None and self.max_time_s is not None and self.default_time_s > self.max_time_s:
            raise invalid("default_time_s", self.default_time_s, f"it is above max_time_s ({self.max_time_s:g})")
        if self.default_resreq is not None:
            above = self.max_resreq.exceeded(self.default_resreq.resources)
            if above is not None:
                raise invalid("default_resreq", str(self.default_resreq), f"its {above} is above that of max_resreq")


@dataclass(frozen=True, slots=True)
class Queue:
    """`weight` scales its share among its siblings; `guarantee` is served first and is lent while unused.

    A guarantee binds in the dimensions it names (those above 0), like a limit. Users state weights of 1..1000; past use
    multiplies them.

    Raises:
        InvalidRequest: bad name, a weight outside 1..2^31-1, or a queue that is its own parent.

    """

    name: str
    parent: str = ROOT
    weight: int = 1
    guarantee: Resources = Resources()
    limit: Limit = Limit()
    bounds: QueueBounds = QueueBounds()

    def __post_init__(self) -> None:
        check_name("queue", self.name)
        if self.name in (ROOT, self.parent):
            raise invalid("queue", self.name, f"choose a name other than {ROOT} and its parent's")
        check_range("weight", self.weight, 1, MAX_INT32)


def check_weight(field: str, weight: object) -> None:
    """Refuse a weight that is not a whole number in 1..1000."""
    check_range(field, weight, 1, MAX_WEIGHT)


def parse_queue(
    name: str,
    parent: str,
    weight: int,
    guarantee: str | None,
    limit: str | None,
    *,
    bounds: QueueBounds = QueueBounds(),  # frozen
) -> Queue:
    """Return a queue whose guarantee and limit are requirement texts; a limit binds only the dimensions it names."""
    check_weight("weight", weight)
    guaranteed = ResourceRequirement.from_string(guarantee).resources if guarantee else Resources()
    check_size("guarantee.mem", guaranteed.memory_bytes)
    maximum = parse_limit(limit) if limit else Limit()
    if (above := maximum.exceeded(guaranteed)) is not None:
        raise invalid("guarantee", guarantee, f"its {above} is above that of the limit ({limit})")
    return Queue(name, parent, weight, guaranteed, limit=maximum, bounds=bounds)


def parse_bounds(
    default_resreq: str | None, max_resreq: str | None, default_time_s: float | None, max_time_s: float | None
) -> QueueBounds:
    """Return the bounds of a queue; requirement and maximum are texts, times are in seconds.

    Raises:
        InvalidRequest: a text is malformed, a time is not above 0, or a default is above its maximum.

    """
    default = ResourceRequirement.from_string(default_resreq) if default_resreq else None
    check_size("default_resreq.mem", 0 if default is None else default.memory_bytes)
    maximum = parse_limit(max_resreq) if max_resreq else Limit()
    return QueueBounds(default, maximum, default_time_s=default_time_s, max_time_s=max_time_s)


def parse_limit(text: str) -> Limit:
    """Return the limit of a text such as `gpu=8,mem=1t`; an omitted dimension is unlimited, `gpu=0` allows none."""
    amounts = parse_amounts(text)
    check_size("mem", amounts.get("memory", 0))
    return Limit(amounts.get("cpu"), amounts.get("memory"), amounts.get("gpu"))
