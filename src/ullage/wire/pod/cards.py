"""The cards that a pod requests: how many, which, and how much of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ullage.model.counted import counted
from ullage.model.error import invalid
from ullage.model.part import GFLOPS_PER_TFLOPS, WHOLE_CARD, CardSelector, Isolation, Part
from ullage.model.quantity import MAX_INT32, PPM, parse_count
from ullage.model.request import MAX_CARDS
from ullage.wire.document import Document
from ullage.wire.pod.containers import containers_amount, containers_of, limited_resources
from ullage.wire.pod.keys import Keys
from ullage.wire.pod.record import record_of
from ullage.wire.pod.request import PodDefaults
from ullage.wire.vendors.shipped import NAMES, NATIVE_RESOURCES

_PPM_PER_PERCENT = PPM // 100

AMOUNTS = ("tflops-request", "compute-percent-request", "vram-request")
"""The annotations of the amounts of each card."""


class SlicesOnCards(NamedTuple):
    """On how many cards the slices of a pod lie, and how many on each."""

    cards: int
    slices: int


@dataclass(frozen=True, slots=True)
class CardRequest:
    """The requested cards; `guaranteed` is whether every amount has a limit that equals it."""

    count: int
    part: Part | None
    cards: CardSelector
    limit: Part | None
    guaranteed: bool
    warnings: tuple[str, ...] = ()
    nothing: tuple[tuple[str, str], ...] = ()
    """The keys that state an amount of 0, with their values."""
    ways: tuple[SlicesOnCards, ...] = ()
    """How slices that exist already may lie on cards, the preferred way first; none for any other request."""


def read_card_request(keys: Keys, spec: Document, defaults: PodDefaults) -> CardRequest:
    """Return the request in the annotations, else in the limits of device plugins, else of the pool.

    Cards without a requested amount are whole.
    """
    isolation = keys.choice("isolation", Isolation) or defaults.isolation
    models, vendors = keys.names("gpu-model"), _vendors(keys, defaults.vendors)
    indices = keys.parse("gpu-indices", _indices) or ()
    template = _template(keys, isolation)
    dedicated = _dedicated(keys, models, isolation)
    count, offered = _count(keys, spec, indices)
    if offered and vendors and offered not in vendors:
        raise keys.invalid("vendor", f"the containers request cards of {offered}; name that vendor, or none")
    native_vendor = "" if keys.count("gpu-count") is not None else offered
    request, limit = _stated(keys, "request"), _stated(keys, "limit")
    part, most, guaranteed = _part(request, limit)
    silent = not (request.stated or limit.stated) and template is None and isolation is not Isolation.PARTITIONED
    if full := dedicated or silent:
        part, most, guaranteed = WHOLE_CARD, None, bool(dedicated or native_vendor)
    elif native_vendor and isolation is not Isolation.PARTITIONED and not (part.compute_gflops or part.compute_ppm):
        part, most, guaranteed = _part(_Stated((0, PPM), request.vram), _Stated((0, PPM), limit.vram))
    cards = CardSelector(
        models=models,
        vendors=(offered,) if offered else vendors,
        indices=indices,
        pool=keys.text("gpupool") or defaults.pool,
        isolation=isolation,
        template=template,
    )
    whole = isolation is Isolation.SHARED and (full or part == Part())
    return CardRequest(
        count,
        None if whole else part,
        cards,
        most,
        guaranteed=guaranteed,
        warnings=_fractions_of_bytes(keys),
        nothing=tuple((keys.key(name), keys.text(name) or "") for name in AMOUNTS if keys.amount(name) == 0),
    )


# --- amounts ---


@dataclass(frozen=True, slots=True)
class _Stated:
    """The amounts in the keys of one kind (request or limit); None where none is stated. A limit of 0 is none."""

    compute: tuple[int, int] | None
    """GFLOPS and millionths of a card; at most one of them is not 0."""
    vram: int | None

    @property
    def stated(self) -> bool:
        return self.compute is not None or self.vram is not None


def _stated(keys: Keys, kind: str) -> _Stated:
    tflops = keys.amount(f"tflops-{kind}", units=GFLOPS_PER_TFLOPS)
    percent = keys.amount(f"compute-percent-{kind}", units=_PPM_PER_PERCENT, maximum=PPM)
    if tflops and percent:
        raise keys.conflict(f"tflops-{kind}", f"compute-percent-{kind}", "keep one of the two")
    vram = keys.amount(f"vram-{kind}")
    compute = None if tflops is None and percent is None else (tflops or 0, percent or 0)
    if kind == "limit":
        return _Stated(compute if tflops or percent else None, vram or None)
    return _Stated(compute, vram)


def _part(request: _Stated, limit: _Stated) -> tuple[Part, Part | None, bool]:
    """Return the part, its limit, and whether every amount has a limit that equals it.

    A request that is not stated is the limit. If no limit is stated, the limit is None; if only one of compute and
    vram is, the other is the request, because a limit is never below the request.
    """
    compute = request.compute or limit.compute or (0, 0)
    vram = request.vram if request.vram is not None else limit.vram or 0
    part = Part(compute_gflops=compute[0], compute_ppm=compute[1], vram_bytes=vram)
    if limit.compute is None and limit.vram is None:
        return part, None, False
    gflops, ppm = limit.compute or compute
    most = Part(gflops, vram if limit.vram is None else limit.vram, ppm)
    guaranteed = (limit.compute or (0, 0), limit.vram or 0) == (compute, vram)
    return part, most, guaranteed and part != Part()


def _fractions_of_bytes(keys: Keys) -> tuple[str, ...]:
    """Return a warning per amount of vram in fractions of a byte: `500m` is half a byte, `500M` was probably meant."""
    return tuple(
        f"{keys.key(name)}: {text!r} counts parts of a byte; M and Mi are megabytes"
        for name in ("vram-request", "vram-limit")
        if (text := keys.text(name)) and text[-1] in "num"
    )


# --- selection ---


def _dedicated(keys: Keys, models: tuple[str, ...], isolation: Isolation) -> bool:
    dedicated = keys.flag("dedicated-gpu")
    if dedicated and not models:
        raise keys.conflict("dedicated-gpu", "gpu-model", "a whole card is of a model; name it")
    if dedicated and isolation is Isolation.PARTITIONED:
        raise keys.conflict("dedicated-gpu", "isolation", "a whole card is not a partition; keep one of the two")
    return dedicated


def _template(keys: Keys, isolation: Isolation) -> str | None:
    """Return the requested partition template; one that was chosen at bind is not a request."""
    template = keys.text("partition-id")
    if template is None:
        return None
    if isolation is not Isolation.PARTITIONED:
        fix = f"only {keys.key('isolation')}=partitioned has partitions, it is {isolation.value}; change one of the two"
        raise keys.invalid("partition-id", fix)
    record = record_of(keys)
    return template if record is None or record.pinned else None


def _vendors(keys: Keys, known: Iterable[str]) -> tuple[str, ...]:
    vendors = {vendor.casefold(): vendor for vendor in known}
    named = [name.casefold() for name in keys.names("vendor")]
    if not vendors.keys() >= set(named):
        raise keys.invalid("vendor", f"choose among {', '.join(vendors.values())}")
    return tuple(dict.fromkeys(each for name in named for each in NAMES.get(vendors[name], (vendors[name],))))


def _indices(text: str, key: str) -> tuple[int, ...]:
    indices = tuple(parse_count(token.strip(), key, MAX_INT32) for token in text.split(","))
    if len(set(indices)) != len(indices):
        raise invalid(key, text, "name each card once")
    return indices


# --- counts ---


def _count(keys: Keys, spec: Document, indices: tuple[int, ...]) -> tuple[int, str]:
    """Return the number of requested cards, and their vendor if the containers' own limits state it."""
    count, source = keys.count("gpu-count"), keys.key("gpu-count")
    if count is not None and not 1 <= count <= MAX_CARDS:
        raise keys.invalid("gpu-count", f"request 1 to {MAX_CARDS} cards")
    resource, offered = _native_cards(spec)
    vendor = NATIVE_RESOURCES.get(resource, "")
    if count is None:
        count, source = offered, resource
    elif offered not in (0, count):
        fix = f"the containers request {offered} of {resource}; make them equal"
        raise keys.invalid("gpu-count", fix)
    if count and indices and len(indices) != count:
        fix = f"it names {counted(len(indices), 'card')}, and {source} requests {count}; make them equal"
        raise keys.invalid("gpu-indices", fix)
    return count or len(indices) or 1, vendor


def _native_cards(spec: Document) -> tuple[str, int]:
    """Return the device plugin's resource that the containers limit, and the cards; "" and 0 if there is none."""
    named = {name for _, path, container in containers_of(spec) for name in limited_resources(container, path)}
    kinds = [name for name in NATIVE_RESOURCES if name in named]
    found = {name: count for name in kinds if (count := containers_amount(spec, name, 1, kinds=("limits",)))}
    if len(found) > 1:
        raise invalid("spec.containers", ", ".join(found), "request cards of one kind")
    for name, count in found.items():
        if count > MAX_CARDS:
            raise invalid(name, count, f"at most {MAX_CARDS} cards can be requested")
        return name, count
    return "", 0
