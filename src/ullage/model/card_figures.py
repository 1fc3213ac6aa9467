"""The compute of card models, for cards whose driver and device plugin do not report it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.resources import files

from ullage.model.error import invalid
from ullage.model.gpu import Gpu
from ullage.model.part import GFLOPS_PER_TFLOPS
from ullage.model.template import name_key

_VENDOR_PREFIXES = ("nvidia-", "tesla-", "amd-")
"""Prefixes of a model's name that do not distinguish models; some agents write the vendor twice."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The capacity of a model of card; None where it is not stated. `model` is the start of its name."""

    model: str
    compute_gflops: int | None = None
    vram_bytes: int | None = None

    def __post_init__(self) -> None:
        if not model_key(self.model):
            raise invalid("name", self.model, "name a model of card, such as NVIDIA A100-SXM4-80GB")
        stated = [each for each in (self.compute_gflops, self.vram_bytes) if each is not None]
        if not stated or min(stated) <= 0:
            raise invalid("tflops", self.compute_gflops, "state tflops or vram, above 0")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by the names of models: the longest matching start of the name counts, else those of `fallback`."""

    entries: tuple[Figure, ...] = ()
    fallback: Figures | None = None
    _by_key: Mapping[str, Figure] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_key", {model_key(each.model): each for each in reversed(self.entries)})

    def of(self, model: str | None) -> Figure | None:
        """Return the figure of a model; None if none is known."""
        key = "" if model is None else model_key(model)
        while key:
            if key in self._by_key:
                return self._by_key[key]
            key = key.rpartition("-")[0]
        return None if self.fallback is None else self.fallback.of(model)

    def complete(self, gpu: Gpu) -> Gpu:
        """Return the card with the known capacity of its model, where the card does not report its own."""
        if gpu.compute_gflops is not None and gpu.vram_bytes is not None:
            return gpu
        found = self.of(gpu.model)
        if found is None:
            return gpu
        compute = found.compute_gflops if gpu.compute_gflops is None else gpu.compute_gflops
        return replace(gpu, compute_gflops=compute, vram_bytes=gpu.vram_bytes or found.vram_bytes)

    def overridden_by(self, others: Iterable[Figure]) -> Figures:
        """Return figures in which `others` override these."""
        return Figures(tuple(others), self)


def model_key(model: str) -> str:
    """Return the form of a name for comparison: any case, `.`, `_` and blank as `-`, without prefixes of vendors."""
    key = name_key(model)
    while prefix := next((each for each in _VENDOR_PREFIXES if key.startswith(each)), ""):
        key = key.removeprefix(prefix)
    return key


def names_model(start: str, model: str) -> bool:
    """Return whether the name of a model starts with these words, compared by `model_key`."""
    return f"{model_key(model)}-".startswith(f"{model_key(start)}-")


def _shipped() -> Figures:
    text = (files("ullage.model.profiles") / "compute.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text, parse_float=Decimal)
    return Figures(
        tuple(
            Figure(model, int(tflops * GFLOPS_PER_TFLOPS))
            for of_vendor in table.values()
            for model, tflops in of_vendor.items()
        )
    )


SHIPPED_FIGURES = _shipped()
"""The figures that come with Ullage; an operator's own figures override them."""
