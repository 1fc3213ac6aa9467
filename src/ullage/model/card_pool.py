"""Pools of cards, by rules on the labels of nodes and on the models of cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.model.card_figures import names_model
from ullage.model.gpu import Gpu


@dataclass(frozen=True, slots=True)
class PoolRule:
    """A pool of the cards on nodes with all of these labels, and of one of these models if any are given.

    `models` are starts of names of models, in any case.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    def has(self, labels: Mapping[str, str], gpu: Gpu) -> bool:
        """Return whether a card of a node with these labels is in the pool."""
        if any(labels.get(key) != value for key, value in self.labels.items()):
            return False
        return not self.models or any(names_model(each, gpu.model or "") for each in self.models)
