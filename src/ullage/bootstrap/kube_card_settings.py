"""The lists under `[kube]` of the settings that describe cards: models, pools, and drivers of devices."""

from __future__ import annotations

import re

import msgspec

from ullage.model.card_driver import NVIDIA as NVIDIA_DRIVER
from ullage.model.card_driver import CardDriver
from ullage.model.card_figures import Figure, model_key
from ullage.model.card_pool import PoolRule
from ullage.model.error import invalid
from ullage.model.part import parse_tflops
from ullage.model.quantity import MIN_SIZE_BYTES
from ullage.wire.kubernetes_quantity import parse_quantity

DNS_NAME = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
LABEL_KEY, LABEL_VALUE = rf"(?:{DNS_NAME}/)?{_WORD}", rf"(?:{_WORD})?"
"""Patterns of the key and of the value of a label."""


class CardModelSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The capacity of a model of card, for cards whose device plugin and driver do not report it.

    `name` is the start of the model's name, in any case and without the prefix NVIDIA or AMD. `tflops` (`312`,
    `149.7`) overrides the figure that comes with Ullage: dense FP16, as the vendor publishes it. `vram` (`80Gi`)
    counts where no source reports the memory of the card.
    """

    name: str
    tflops: str | float | None = None
    vram: str | None = None

    def __post_init__(self) -> None:
        self.figure  # noqa: B018 - an invalid figure stops the start

    @property
    def figure(self) -> Figure:
        """Return the section as a value.

        Raises:
            InvalidRequest: the name or the figure is missing, or an amount is malformed.

        """
        path = f"kube.card_model.{self.name}"
        compute = None if self.tflops is None else parse_tflops(str(self.tflops), f"{path}.tflops")
        vram = None if self.vram is None else parse_quantity(self.vram, f"{path}.vram")
        if vram is not None and vram < MIN_SIZE_BYTES:
            raise invalid(f"{path}.vram", self.vram, "it counts bytes; write 80Gi or so")
        return Figure(self.name, compute, vram)


class CardPoolSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cards that pods request together, by the name of their pool.

    Its cards are on nodes with all of `labels`, and of one of `models` (starts of names, in any case) if any are
    named. Of several pools the first counts. A node overrides this: its label `DOMAIN/gpupool` names the pool of its
    cards, its annotation `DOMAIN/gpupool-cards` those of single ones.
    """

    name: str
    labels: dict[str, str] = {}
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.strip() or set(self.name) & set(",|="):
            raise invalid("kube.card_pool.name", self.name, "write a name without ',', '|' and '='")
        for key, value in self.labels.items():
            if not re.fullmatch(LABEL_KEY, key) or not re.fullmatch(LABEL_VALUE, value):
                fix = "write the key and the value of a label of nodes"
                raise invalid(f"kube.card_pool.{self.name}.labels", f"{key}={value}", fix)
        for model in self.models:
            if not model_key(model):
                fix = "write the start of a model's name, such as NVIDIA H100"
                raise invalid(f"kube.card_pool.{self.name}.models", model, fix)

    @property
    def rule(self) -> PoolRule:
        """Return the section as a value."""
        return PoolRule(self.name, self.labels, self.models)


class CardDriverSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver whose devices are cards, and its attributes; names without a domain are in the driver's own.

    A device whose attribute `kind` is `card` is a whole card (with an empty `kind`: one that has no `parent`). Another
    is part of the card whose uuid its `parent` names. `memory` is a capacity. `zone` has the NUMA node if no common
    attribute has it. Cards of a node with the same value of `island` are joined by NVLink or the like.
    """

    driver: str
    vendor: str
    kind: str = NVIDIA_DRIVER.kind
    card: str = NVIDIA_DRIVER.card
    uuid: str = NVIDIA_DRIVER.uuid
    parent: str = NVIDIA_DRIVER.parent
    model: str = NVIDIA_DRIVER.model
    memory: str = NVIDIA_DRIVER.memory
    zone: str = NVIDIA_DRIVER.zone
    island: str = NVIDIA_DRIVER.island

    def __post_init__(self) -> None:
        for name in ("driver", "uuid"):
            if not getattr(self, name):
                raise invalid(f"kube.card_driver.{name}", "", "a name is needed")

    @property
    def value(self) -> CardDriver:
        """Return the section as a value."""
        return CardDriver(*(getattr(self, name) for name in self.__struct_fields__))
