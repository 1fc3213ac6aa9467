"""A requirement as a mapping."""

from __future__ import annotations

from ullage.wire.schema import Schema


class ResourceMap(Schema, frozen=True, kw_only=True):
    """A requirement as a mapping with the keys of its text; `mem` and `memory` mean the same, give one.

    `cpu` counts cores: `2`, `0.5` or `"500m"`. A part of a card is `gpu` below 1, or `vram`, `tflops` or `percent` of
    each card. Alternatives are separated by `|` in `gpu_model`, `gpu_vendor`, `gpu_index`, `gpu_uuid` and
    `gpu_model_like`. `gpu_uuid` may list more cards than are requested. A model matches `gpu_model_like` if its name
    contains one of the words, in any case. `not_gpu_uuid` and `not_gpu_model_like` exclude cards. `numa` says how
    strictly CPUs and cards are kept in the same zones. `pairs` says which devices its cards are kept near:
    `{"gpu~nic": "required"}`, or `preferred`. `links` says how its cards are linked with each other: `best` or
    `island`.
    """

    cpu: int | float | str = 0
    mem: int | str | None = None
    memory: int | str | None = None
    gpu: int | float | str | None = None
    vram: int | str | None = None
    tflops: int | float | str | None = None
    percent: int | float | str | None = None
    gpu_model: str | None = None
    gpu_vendor: str | None = None
    gpu_index: int | str | None = None
    gpu_uuid: str | None = None
    not_gpu_uuid: str | None = None
    gpu_model_like: str | None = None
    not_gpu_model_like: str | None = None
    pool: str | None = None
    isolation: str | None = None
    partition: str | None = None
    numa: str | None = None
    links: str | None = None
    pairs: dict[str, str] | None = None
