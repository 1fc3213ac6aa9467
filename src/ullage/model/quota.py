"""Quotas: caps on all that a namespace holds, and on one request of it per card."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.model.error import invalid
from ullage.model.part import Part
from ullage.model.quantity import MAX_INT64, is_whole

MAX_WORKERS = 32_768
"""The most workers of a namespace whose quota has no such cap."""

ALERT_THRESHOLD_PERCENT = 95
WHOLE_PERCENT = 100

RESOURCES = ("requests.tflops", "requests.vram", "limits.tflops", "limits.vram", "workers", "cores")
"""The names of the totals of a quota, in their order."""

TotalCaps = tuple[int | None, ...]
"""One cap per name in `RESOURCES`."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The most compute (GFLOPS) and vram (bytes); None is unlimited, 0 allows nothing."""

    compute_gflops: int | None = None
    vram_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """The totals cap all requests of a namespace together, the other caps each card of one request.

    None is unlimited, 0 allows nothing. `max_cores_ppm` caps the compute of cards of any kind together, in millionths
    of one card. The defaults fill what a request omits (see `with_defaults`). Below 100 - `alert_threshold_percent`
    percent left, the quota raises an alert.

    Raises:
        InvalidRequest: a negative amount, a limit below its request, or a threshold outside 0..100.

    """

    total_requests: Caps = Caps()
    total_limits: Caps = Caps()
    max_workers: int | None = MAX_WORKERS
    max_requests: Caps = Caps()
    max_limits: Caps = Caps()
    max_gpu_count: int | None = None
    default_requests: Part | None = None
    default_limits: Part | None = None
    alert_threshold_percent: int = ALERT_THRESHOLD_PERCENT
    max_cores_ppm: int | None = None

    def __post_init__(self) -> None:
        for field in ("total_requests", "total_limits", "max_requests", "max_limits"):
            caps = getattr(self, field)
            _check(f"{field}.compute_gflops", caps.compute_gflops)
            _check(f"{field}.vram_bytes", caps.vram_bytes)
        _check("max_workers", self.max_workers)
        _check("max_cores_ppm", self.max_cores_ppm)
        _check("max_gpu_count", self.max_gpu_count)
        threshold = self.alert_threshold_percent
        if not is_whole(threshold) or not 0 <= threshold <= WHOLE_PERCENT:
            raise invalid("alert_threshold_percent", threshold, "a whole percentage from 0 to 100 is needed")
        _check_order("total_limits", self.total_limits, "total_requests", self.total_requests)
        _check_order("max_limits", self.max_limits, "max_requests", self.max_requests)
        if self.default_limits is not None and self.default_requests is not None:
            limits, requests = _given(self.default_limits), _given(self.default_requests)
            _check_order("default_limits", limits, "default_requests", requests)

    @property
    def single(self) -> TotalCaps:
        """The caps of one request: compute and vram of its requests, then of its limits, per card; its cards."""
        return (*_both(self.max_requests), *_both(self.max_limits), self.max_gpu_count)

    @property
    def total(self) -> TotalCaps:
        """Caps of the namespace, in the order of `RESOURCES`."""
        return (*_both(self.total_requests), *_both(self.total_limits), self.max_workers, self.max_cores_ppm)

    def with_defaults(self, request: Part, limit: Part | None) -> tuple[Part, Part | None]:
        """Return a request as it is admitted: zero amounts get the defaults, within the amounts it states.

        A filled request is at most the limit that was given, a filled limit at least the request. Call it once, when a
        request is admitted: a quota that changes later changes no request.
        """
        asked = request
        if self.default_requests is not None:
            asked = _filled(request, self.default_requests, most=limit)
        if self.default_limits is None:
            return asked, limit
        if limit is None:
            return asked, _filled(_filled(Part(), self.default_limits, least=asked), asked)
        return asked, _filled(limit, self.default_limits, least=asked)


@dataclass(frozen=True, slots=True)
class QuotaAlarm:
    """An accounting error: more of a resource of the namespace was released than it had (`had` less `taken`)."""

    namespace: str
    resource: str
    had: int
    taken: int


@dataclass(frozen=True, slots=True)
class QuotaCondition:
    """Whether enough is left of a quota, and the facts that decide it.

    `alerts` pairs each resource that is nearly used up with the percentage left of it. `since` is when `ready` last
    changed, in seconds since the epoch.
    """

    ready: bool
    alerts: tuple[tuple[str, str], ...]
    threshold_percent: int
    since: float

    @property
    def reason(self) -> str:
        """The name of this condition, for programs."""
        return "CapacitySufficient" if self.ready else "AlertThresholdReached"


def _check(field: str, value: int | None) -> None:
    if value is not None and (not is_whole(value) or not 0 <= value <= MAX_INT64):
        raise invalid(field, value, f"a whole number from 0 to {MAX_INT64} is needed, or nothing for no cap")


def _check_order(above: str, limits: Caps, below: str, requests: Caps) -> None:
    for unit in ("compute_gflops", "vram_bytes"):
        limit, request = getattr(limits, unit), getattr(requests, unit)
        if limit is not None and request is not None and limit < request:
            raise invalid(f"{above}.{unit}", limit, f"at least {below}.{unit} ({request}) is needed")


def _both(caps: Caps) -> tuple[int | None, int | None]:
    return caps.compute_gflops, caps.vram_bytes


def _given(amounts: Part) -> Caps:
    """Return defaults as caps; zero fills nothing, and a percentage is comparable only on a card."""
    return Caps(amounts.compute_gflops or None, amounts.vram_bytes or None)


def _filled(amounts: Part, default: Part, *, least: Part | None = None, most: Part | None = None) -> Part:
    """Return `amounts` with its zero fields from `default`, kept at or above `least` and at or below `most`.

    Compute is bounded only by compute in the same unit; a bound in the other unit replaces it, since the two compare
    only on a card.
    """
    gflops, ppm, vram = amounts.compute_gflops, amounts.compute_ppm, amounts.vram_bytes
    if not gflops and not ppm:
        gflops, ppm = default.compute_gflops, default.compute_ppm
        for bound, pick in ((least, max), (most, min)):
            if bound is None or not (gflops or ppm) or not (bound.compute_gflops or bound.compute_ppm):
                continue
            same = bool(gflops) == bool(bound.compute_gflops)
            gflops = pick(gflops, bound.compute_gflops) if same else bound.compute_gflops
            ppm = pick(ppm, bound.compute_ppm) if same else bound.compute_ppm
    if not vram and default.vram_bytes:
        vram = max(default.vram_bytes, least.vram_bytes if least else 0)
        vram = min(vram, most.vram_bytes if most and most.vram_bytes else vram)
    return Part(gflops, vram, ppm)
