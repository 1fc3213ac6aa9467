"""May a namespace hold this much more: quotas against what the ledger says is used.

Nothing here is counted: usage comes from the books (`Fleet.usage`, which holds assumed, bound and
releasing allocations), so a quota that is made late shows at once what was there before it. All
comparisons are in whole GFLOPS, bytes, cards and workers; what reaches a cap exactly is allowed.

Quotas nest: `parents` puts a namespace under another name, which may have a quota too. The usage of
a name is its own and that of everything below it, and every quota on the way up must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import le
from typing import NamedTuple, TypeVar

from ullage.core.books.usage import Usage
from ullage.model.error import InvalidRequest, invalid
from ullage.model.part import Part
from ullage.model.quantity import PPM, parse_decimal
from ullage.model.quota import RESOURCES, WHOLE_PERCENT, Quota, QuotaAlarm, QuotaCondition, TotalCaps
from ullage.model.rejection import Code, Cure, QuotaFigures, Rejection

SINGLE = (
    Code.QUOTA_SINGLE_COMPUTE_REQUEST,
    Code.QUOTA_SINGLE_VRAM_REQUEST,
    Code.QUOTA_SINGLE_COMPUTE_LIMIT,
    Code.QUOTA_SINGLE_VRAM_LIMIT,
    Code.QUOTA_SINGLE_GPU_COUNT,
)
"""Codes of `Quota.single`, in order. Their cure is `NEVER`: no room that is freed helps, so nobody is preempted."""

TOTAL = (
    Code.QUOTA_TOTAL_COMPUTE_REQUEST,
    Code.QUOTA_TOTAL_VRAM_REQUEST,
    Code.QUOTA_TOTAL_COMPUTE_LIMIT,
    Code.QUOTA_TOTAL_VRAM_LIMIT,
    Code.QUOTA_TOTAL_WORKERS,
    Code.QUOTA_TOTAL_CORES,
)
"""Codes of `Quota.total`, in order.

Their cure is `QUOTA`: what the namespace gives back helps, as does a new cap. It is `NEVER` for a request that is above
the cap by itself.
"""

PerCard = Part | Sequence[tuple[int, int]]
"""Amounts that are the same on each card, or (GFLOPS, bytes) of one card after the other."""

_NOTHING = Usage()

_UNBOUNDED = 2**128
"""More than anybody can ask, in place of no cap."""


class Asked(NamedTuple):
    """The largest amounts on one card and the number of cards; and the sums, for one worker."""

    single: tuple[int, ...]
    total: Usage

    def most(self, other: Asked) -> Asked:
        """Return the larger of the two in each number: what allows it allows both."""
        return Asked(tuple(map(max, self.single, other.single)), Usage(*map(max, self.total, other.total)))


Used = Mapping[str, Usage]
"""Usage per namespace, as `Fleet.usage` has it."""

Ceilings = tuple[tuple[str, Usage], ...]
"""Names of quotas, each with the most that may be used under it."""

T = TypeVar("T")


@dataclass(frozen=True)
class Quotas:
    """The quotas in force, the tree they stand in, and what is wrong with those that are not in force.

    Raises:
        InvalidRequest: a name is above itself.

    """

    quotas: Mapping[str, Quota] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.parents:
            seen = {name}
            above = self.parents.get(name)
            while above is not None:
                if above in seen:
                    raise invalid("parents", name, f"{above} is above itself; quotas stand in a tree")
                seen.add(above)
                above = self.parents.get(above)

    # --- which quotas ---

    def updated(self, namespace: str, read: Callable[[], Quota]) -> Quotas:
        """Return the quotas with what `read` returns. An invalid one leaves the last valid one; `faults` says why."""
        try:
            quota = read()
        except InvalidRequest as error:
            return replace(self, faults={**self.faults, namespace: error.message})
        return replace(self.without(namespace), quotas={**self.quotas, namespace: quota})

    def without(self, namespace: str) -> Quotas:
        """Return these quotas when that of the namespace is gone."""
        return replace(self, quotas=_less(self.quotas, namespace), faults=_less(self.faults, namespace))

    def levels(self, namespace: str) -> tuple[str, ...]:
        """Names whose quotas bind the namespace: itself, then upwards."""
        if not self.parents:
            return (namespace,) if namespace in self.quotas else ()
        names = [namespace]
        while names[-1] in self.parents:
            names.append(self.parents[names[-1]])
        return tuple(name for name in names if name in self.quotas)

    def count_cores(self, namespace: str) -> bool:
        """Return whether any of those counts compute in millionths of cards, which differ from card to card."""
        return any(self.quotas[level].max_cores_ppm is not None for level in self.levels(namespace))

    def used(self, used: Used, name: str) -> Usage:
        """Return what the name and everything below it holds."""
        total = used.get(name, _NOTHING)
        for below in self._below.get(name, ()) if self.parents else ():
            if below in used:
                total = total.plus(used[below])
        return total

    @cached_property
    def _below(self) -> dict[str, list[str]]:
        below: dict[str, list[str]] = {}
        for name in self.parents:
            above: str | None = self.parents[name]
            while above is not None:
                below.setdefault(above, []).append(name)
                above = self.parents.get(above)
        return below

    # --- may it ---

    def check(self, used: Used, namespace: str, asked: Asked) -> tuple[Rejection, ...]:
        """Return all that speaks against one more worker; empty if it is allowed, else the first one decides.

        Caps on one request come before totals, and of equal codes the namespace's own before those above it.
        """
        levels = self.levels(namespace)
        return (*self._singles(levels, asked), *self._totals(used, levels, asked.total, alone=asked.total))

    def check_change(self, used: Used, namespace: str, held: Usage, asked: Asked) -> tuple[Rejection, ...]:
        """Return all that speaks against a worker of other amounts, where `held` is what it counts as in `used` now.

        Caps on one request look at the new amounts, totals at the difference. A total that does not grow
        by the change refuses nothing, so that a namespace above its quota can become smaller.
        """
        levels = self.levels(namespace)
        change = asked.total.minus(held)._replace(workers=0)
        return (*self._singles(levels, asked), *self._totals(used, levels, change, alone=asked.total, growth_only=True))

    def ceilings(self, namespace: str, asked: Asked) -> Ceilings | None:
        """Return how much may be used under each quota, at most, for one more worker; None if no usage allows it."""
        found = []
        for level in self.levels(namespace):
            single, total = self._caps[level]
            if not _within(asked.single, single):
                return None
            most = (_UNBOUNDED if cap is None else cap - more for cap, more in zip(total, asked.total, strict=True))
            found.append((level, Usage(*most)))
        return tuple(found)

    def below(self, used: Used, ceilings: Ceilings) -> bool:
        """Return whether what is used is at most that: the answer of `check`, without its reasons."""
        for level, most in ceilings:  # noqa: SIM110 - for every decision, and a loop is faster
            if not all(map(le, self.used(used, level), most)):
                return False
        return True

    @cached_property
    def _caps(self) -> dict[str, tuple[TotalCaps, TotalCaps]]:
        """Per name, the caps on one request and those on the total."""
        return {name: (quota.single, quota.total) for name, quota in self.quotas.items()}

    def _singles(self, levels: Iterable[str], asked: Asked) -> Iterable[Rejection]:
        caps = [(level, self._caps[level][0]) for level in levels]
        if all(_within(asked.single, single) for _, single in caps):
            return
        for at, code in enumerate(SINGLE):
            for level, single in caps:
                cap = single[at]
                if cap is not None and asked.single[at] > cap:
                    figures = QuotaFigures(level, asked.single[at], cap, fault=self.faults.get(level, ""))
                    yield Rejection(code, Cure.NEVER, figures.requested, cap, quota=figures)

    def _totals(
        self, used: Used, levels: Iterable[str], more: Usage, *, alone: Usage, growth_only: bool = False
    ) -> Iterable[Rejection]:
        """Return all totals that `more` exceeds; `alone` is all that the worker will count as."""
        caps = [(level, self._caps[level][1], self.used(used, level)) for level in levels]
        if all(_within(held.plus(more), total) for _, total, held in caps):
            return
        for at, code in enumerate(TOTAL):
            if growth_only and more[at] <= 0:
                continue
            for level, total, held in caps:
                cap = total[at]
                if cap is not None and held[at] + more[at] > cap:
                    figures = QuotaFigures(level, more[at], cap, held[at], fault=self.faults.get(level, ""))
                    cure = Cure.QUOTA if alone[at] <= cap else Cure.NEVER
                    yield Rejection(code, cure, more[at], max(0, cap - held[at]), quota=figures)

    # --- how it stands ---

    def status(self, used: Used, namespace: str, now: float, before: QuotaStatus | None = None) -> QuotaStatus:
        """Return how the namespace stands. What did not change since `before` is the same, times included."""
        held, alarms = taken(namespace, self.used(used, namespace), Usage())
        quota = self.quotas.get(namespace)
        caps: TotalCaps = (None,) * len(RESOURCES) if quota is None else quota.total
        left = AvailablePercent(*(available_percent(cap, n) for cap, n in zip(caps, held, strict=True)))
        condition = _condition(quota or Quota(), left, now, before.condition if before else None)
        status = QuotaStatus(held, left, condition, alarms, fault=self.faults.get(namespace), last_update=now)
        return before if before is not None and replace(status, last_update=before.last_update) == before else status


class AvailablePercent(NamedTuple):
    """What is left of each total, in percent with two decimals, in the order of `RESOURCES`."""

    compute_request: str
    vram_request: str
    compute_limit: str
    vram_limit: str
    workers: str
    cores: str


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """How a namespace stands with its quota.

    `alarms` are faults of the books; `fault` says why the newest version of the quota is not in force.
    `last_update` is when anything of this last changed, in seconds since the epoch.
    """

    used: Usage
    available_percent: AvailablePercent
    condition: QuotaCondition
    alarms: tuple[QuotaAlarm, ...]
    fault: str | None
    last_update: float


def available_percent(total: int | None, used: int) -> str:
    """Return what is left of a total, in percent; `100` if nothing is counted.

    The second decimal is rounded down, so that the text is below a whole percentage exactly when the
    amount is.
    """
    if total is None or total <= 0:
        return str(WHOLE_PERCENT)
    whole, hundredths = divmod(max(0, total - used) * WHOLE_PERCENT * 100 // total, 100)
    return f"{whole}.{hundredths:02d}"


def alerts(available: str, threshold_percent: int) -> bool:
    """Return whether less is left than the threshold leaves; exactly as much is no alert, an unknown rest is one.

    Raises:
        InvalidRequest: neither empty nor a plain decimal.

    """
    if not available:
        return True
    left = parse_decimal(available, "available_percent", WHOLE_PERCENT * PPM)
    return left < (WHOLE_PERCENT - threshold_percent) * PPM


def taken(namespace: str, used: Usage, less: Usage) -> tuple[Usage, tuple[QuotaAlarm, ...]]:
    """`used` without `less`, never below 0; each resource that would be is an alarm."""
    rest = used.minus(less)
    alarms = tuple(
        QuotaAlarm(namespace, resource, had, given)
        for resource, had, given, n in zip(RESOURCES, used, less, rest, strict=True)
        if n < 0
    )
    return Usage(*(max(0, n) for n in rest)), alarms


def with_pre_scheduled(used: Used, extra: Used) -> dict[str, Usage]:
    """Usage with what was decided and is not in the books yet, for `check`."""
    return {**used, **{name: used.get(name, Usage()).plus(more) for name, more in extra.items()}}


def _within(amounts: Iterable[int], caps: TotalCaps) -> bool:
    """Return whether no amount is above its cap."""
    for amount, cap in zip(amounts, caps, strict=True):  # noqa: SIM110 - for every decision, and a loop is faster
        if cap is not None and amount > cap:
            return False
    return True


def asked_of(request: PerCard, limit: PerCard | None = None, count: int = 1, cores_ppm: int = 0) -> Asked:
    """Return what a worker on `count` cards asks of the quotas; without a `limit` the request is the limit.

    `cores_ppm` is the compute of all its cards, in millionths of one.

    Raises:
        InvalidRequest: the amounts are not of `count` cards, or are a percentage (see `Part.on`).

    """
    if count < 1:
        raise invalid("count", count, "at least one card is needed")
    most, total = _largest_and_sum("request", request, count)
    most_limit, total_limit = (most, total) if limit is None else _largest_and_sum("limit", limit, count)
    return Asked((*most, *most_limit, count), Usage(*total, *total_limit, 1, cores_ppm))


def _largest_and_sum(name: str, amounts: PerCard, count: int) -> tuple[tuple[int, int], tuple[int, int]]:
    if isinstance(amounts, Part):
        if amounts.compute_ppm:
            raise invalid(name, amounts, "a percentage is an amount only on a card; resolve it first")
        each = amounts.compute_gflops, amounts.vram_bytes
        return each, (each[0] * count, each[1] * count)
    if len(amounts) != count:
        raise invalid(name, len(amounts), f"give the amounts of each of the {count} cards")
    compute, vram = zip(*amounts, strict=True)
    return (max(compute), max(vram)), (sum(compute), sum(vram))


def _condition(quota: Quota, left: AvailablePercent, now: float, before: QuotaCondition | None) -> QuotaCondition:
    threshold = quota.alert_threshold_percent
    found = tuple((name, text) for name, text in zip(RESOURCES, left, strict=True) if alerts(text, threshold))
    ready = not found
    since = before.since if before is not None and before.ready == ready else now
    condition = QuotaCondition(ready, found, threshold, since)
    return before if before is not None and condition == before else condition


def _less(mapping: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in mapping.items() if key != name}
