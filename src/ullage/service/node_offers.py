"""What the nodes of a cluster offer one request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from ullage.core.placing.offers import NodeRefusal


@dataclass(frozen=True, slots=True)
class NodeOffers:
    """Of the nodes that were asked about those that can take a request, each with its score, and why others cannot.

    `refused` has the names of the nodes of which the same is true together.
    """

    names: list[str]
    scores: npt.NDArray[np.float64]
    refused: list[tuple[NodeRefusal, list[str]]]

    @property
    def best(self) -> str | None:
        """The node with the highest score; of several the first by name."""
        if not self.names:
            return None
        return min(compress(self.names, self.scores == self.scores.max()))

    @property
    def refusals(self) -> dict[str, NodeRefusal]:
        """Why not, by node."""
        return {name: refusal for refusal, names in self.refused for name in names}
