"""Parts of cards: the requested amount of each card, and the conditions on cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ullage.model.choice import parse_choice
from ullage.model.error import invalid
from ullage.model.name import MAX_NAME
from ullage.model.quantity import (
    MAX_INT32,
    MAX_INT64,
    PPM,
    check_range,
    format_bytes,
    format_percent,
    parse_bytes,
    parse_count,
    parse_decimal,
)
from ullage.model.resources import show_milli

GFLOPS_PER_TFLOPS = 1000

MAX_SLICES = 128
"""The most partitions of one request on one card."""

MAX_NAMES = 1024
"""The most cards, or words, in one condition of a request."""

_LISTS = {
    "gpu_model": "models",
    "gpu_vendor": "vendors",
    "gpu_uuid": "uuids",
    "not_gpu_uuid": "not_uuids",
    "gpu_model_like": "model_words",
    "not_gpu_model_like": "not_model_words",
}
"""Conditions by lists of names, by their keys in a request text."""


class Isolation(StrEnum):
    """How users of one card are isolated.

    SHARED holds the card whole, SOFT relies on a limiter in the containers, HARD on the driver, PARTITIONED on a
    hardware slice.
    """

    SHARED = "shared"
    SOFT = "soft"
    HARD = "hard"
    PARTITIONED = "partitioned"


class IsolationPolicy(StrEnum):
    """Whether a card keeps one isolation mode (static) or takes that of its first user (dynamic)."""

    STATIC = "static"
    DYNAMIC = "dynamic"


MIN_VRAM_BYTES = 1 << 20
"""Bytes below which an amount of vram probably lacks its unit: a program takes hundreds of MiB of a card."""


@dataclass(frozen=True, slots=True)
class Part:
    """Amounts of each card: compute in GFLOPS or in millionths of the card, vram in bytes or millionths likewise.

    Millionths are resolved on each card, rounded down, so that parts which add up to a card fit on it.

    Raises:
        InvalidRequest: an amount is negative, above a whole card, or given in both units.

    """

    compute_gflops: int = 0
    vram_bytes: int = 0
    compute_ppm: int = 0
    vram_ppm: int = 0

    def __post_init__(self) -> None:
        for field, value, maximum in (
            ("tflops", self.compute_gflops, MAX_INT64),
            ("vram", self.vram_bytes, MAX_INT64),
            ("percent", self.compute_ppm, PPM),
            ("gpu", self.vram_ppm, PPM),
        ):
            check_range(field, value, 0, maximum)
        if self.compute_gflops and self.compute_ppm:
            raise invalid("percent", format_percent(self.compute_ppm), "tflops are given too; keep one of the two")
        if self.vram_bytes and self.vram_ppm:
            fix = "a fraction of the vram is given too; keep one of the two"
            raise invalid("vram", format_bytes(self.vram_bytes), fix)

    @classmethod
    def from_entries(cls, entries: Mapping[str, str], fraction_ppm: int) -> Part | None:
        """Return the part in a request text; `fraction_ppm` is the decimal of `gpu=0.5`. None: whole cards."""
        tflops, percent, vram = entries.get("tflops"), entries.get("percent"), entries.get("vram")
        if fraction_ppm and (tflops or percent):
            raise invalid("gpu", entries["gpu"], "a fraction states the compute already; leave out tflops and percent")
        if not (fraction_ppm or tflops or percent or vram):
            return cls() if _needs_no_amount(entries) else None
        return cls(
            compute_gflops=parse_tflops(tflops) if tflops else 0,
            vram_bytes=parse_bytes(vram, "vram") if vram else 0,
            compute_ppm=parse_percent(percent) if percent else fraction_ppm,
            vram_ppm=0 if vram else fraction_ppm,
        )

    @property
    def is_empty(self) -> bool:
        """Whether all amounts are 0."""
        return not (self.compute_gflops or self.vram_bytes or self.compute_ppm or self.vram_ppm)

    def on(self, compute_total: int, vram_total: int) -> tuple[int, int]:
        """Return the compute and vram that this part charges to a card of that capacity."""
        compute = self.compute_gflops or self.compute_ppm * compute_total // PPM
        return compute, self.vram_bytes or self.vram_ppm * vram_total // PPM

    def check_covers(self, request: Part, field: str = "limit") -> None:
        """Refuse these amounts as a limit below its request, where both have one unit; an amount of 0 is no limit."""
        for name, show, asked, most in (
            ("tflops", show_milli, request.compute_gflops, self.compute_gflops),
            ("percent", format_percent, request.compute_ppm, self.compute_ppm),
            ("vram", format_bytes, request.vram_bytes, self.vram_bytes),
            ("vram", format_percent, request.vram_ppm, self.vram_ppm),
        ):
            if 0 < most < asked:
                raise invalid(f"{field}.{name}", show(most), f"{show(asked)} is requested; a limit is at least that")

    @property
    def fraction_ppm(self) -> int:
        """The one fraction in both dimensions; 0 if there is none."""
        return self.compute_ppm if self.compute_ppm == self.vram_ppm else 0

    @property
    def share_milli(self) -> int:
        """Thousandths of a card, rounded up; 0 if that depends on the card."""
        if self.compute_gflops or self.vram_bytes:
            return 0
        return -(-max(self.compute_ppm, self.vram_ppm) * 1000 // PPM)

    def __str__(self) -> str:
        text = f",tflops={show_milli(self.compute_gflops)}" if self.compute_gflops else ""
        text += f",percent={format_percent(self.compute_ppm)}" if self.compute_ppm else ""
        return text + (f",vram={format_bytes(self.vram_bytes)}" if self.vram_bytes else "")


WHOLE_CARD = Part(compute_ppm=PPM, vram_ppm=PPM)
"""All of a card of any capacity."""


_SEPARATORS = frozenset(",|=")


def _is_name(text: str) -> bool:
    """Return whether a text can be written in a request and read again."""
    return 1 <= len(text) <= MAX_NAME and text == text.strip() and not _SEPARATORS.intersection(text)


@dataclass(frozen=True, slots=True)
class CardSelector:
    """The conditions on cards; an empty field accepts any. `template` pins a partition, `indices` name all cards.

    `uuids` are cards among which they are chosen, `not_uuids` excluded cards. A card's model is one of `models`, has
    one of `model_words` in its name, and none of `not_model_words`; words match in any case. `slices` is the number of
    partitions on each card.

    Raises:
        InvalidRequest: an index is named twice or negative, a template goes with no partition, a name is empty
            or too long or would end an entry of a text, or there are too many.

    """

    models: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    pool: str | None = None
    isolation: Isolation = Isolation.SHARED
    template: str | None = None
    policy: IsolationPolicy | None = None
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    model_words: tuple[str, ...] = ()
    not_model_words: tuple[str, ...] = ()
    slices: int = 1

    def __post_init__(self) -> None:
        if len(set(self.indices)) != len(self.indices) or any(index < 0 for index in self.indices):
            raise invalid("gpu_index", "|".join(map(str, self.indices)), "name different cards, 0 or above")
        if self.template is not None and self.isolation is not Isolation.PARTITIONED:
            raise invalid("partition", self.template, "only isolation=partitioned has partitions")
        check_range("slices", self.slices, 1, MAX_SLICES)
        if self.slices > 1 and self.isolation is not Isolation.PARTITIONED:
            raise invalid("slices", self.slices, "only isolation=partitioned has partitions")
        for key, name in _LISTS.items():
            texts = () if name == "vendors" else getattr(self, name)
            if len(texts) > MAX_NAMES or not all(map(_is_name, texts)):
                fix = f"give at most {MAX_NAMES}, each of 1 to {MAX_NAME} characters, without commas, bars and ="
                raise invalid(key, texts, fix)

    def takes_model(self, model: str | None) -> bool:
        """Return whether cards of that model match; an unknown model contains no word."""
        if self.models and model not in self.models:
            return False
        name = "" if model is None else model.casefold()
        if self.model_words and not any(word.casefold() in name for word in self.model_words):
            return False
        return not any(word.casefold() in name for word in self.not_model_words)

    def takes_uuid(self, uuid: str) -> bool:
        return uuid not in self.not_uuids and (not self.uuids or uuid in self.uuids)

    @classmethod
    def from_entries(cls, entries: Mapping[str, str], *, whole: bool) -> CardSelector:
        """Return the conditions in a request text; parts are softly isolated by default."""
        partition = entries.get("partition")
        lists: dict[str, Any] = {name: _alternatives(entries.get(key, "")) for key, name in _LISTS.items()}
        usual = Isolation.SHARED if whole else Isolation.PARTITIONED if partition else Isolation.SOFT
        return cls(
            indices=tuple(parse_count(i, "gpu_index", MAX_INT32) for i in _alternatives(entries.get("gpu_index", ""))),
            pool=entries.get("pool"),
            isolation=parse_choice(Isolation, entries["isolation"], "isolation") if "isolation" in entries else usual,
            template=partition,
            slices=parse_count(entries["slices"], "slices", MAX_SLICES) if "slices" in entries else 1,
            **lists,
        )

    def __str__(self) -> str:
        lists = {"gpu_model": self.models, "gpu_vendor": self.vendors, "gpu_index": tuple(map(str, self.indices))}
        lists |= {key: getattr(self, name) for key, name in _LISTS.items()}
        text = "".join(f",{key}={'|'.join(names)}" for key, names in lists.items() if names)
        text += f",pool={self.pool}" if self.pool else ""
        if self.isolation in (Isolation.HARD, Isolation.PARTITIONED):
            text += f",isolation={self.isolation.value}"
        text += f",partition={self.template}" if self.template else ""
        return text + (f",slices={self.slices}" if self.slices > 1 else "")


ANY_CARD = CardSelector()


def parse_tflops(text: str, field: str = "tflops") -> int:
    """Return the GFLOPS of a quantity in TFLOPS: `60`, `0.5`, `500m`; values finer than 1 GFLOPS round up."""
    milli = text.endswith("m")
    micro = parse_decimal(text[:-1] if milli else text, field, MAX_INT64)
    return -(-micro // PPM) if milli else -(-micro * GFLOPS_PER_TFLOPS // PPM)


def parse_percent(text: str, field: str = "percent") -> int:
    """Return the millionths of a percentage above 0 and up to 100, with or without the sign; finer values round up."""
    ppm = -(-parse_decimal(text.removesuffix("%"), field, MAX_INT64) // 100)
    if not 0 < ppm <= PPM:
        raise invalid(field, text, "write a percentage above 0 and up to 100")
    return ppm


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split("|") if name.strip())


def _needs_no_amount(entries: Mapping[str, str]) -> bool:
    return "partition" in entries or entries.get("isolation") == Isolation.PARTITIONED


def check_vram(part: Part | None) -> None:
    """Refuse an amount of vram that is too small for any program."""
    if part is not None and 0 < part.vram_bytes < MIN_VRAM_BYTES:
        fix = f"it counts bytes, and a program needs at least {format_bytes(MIN_VRAM_BYTES)}; write vram=20g or so"
        raise invalid("vram", part.vram_bytes, fix)
